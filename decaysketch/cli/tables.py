"""Files of observations, read a batch at a time: Parquet, CSV, NDJSON and Arrow.

CSV says no types: a column of it is of integers where the first block of the file (1 MiB) has no
other text, unless it is asked for as text. So one word makes a column of text of numbers, and rows
are looked at one by one (:func:`with_numbers`). Of a path such as ``day=2026-01-31/site=7/a.csv``
the parts with a name are columns, as in Hive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet as pq

from decaysketch.batch.columns import holds_text, is_text
from decaysketch.cli.output import CommandError

__all__ = [
    "FORMATS",
    "batches",
    "files_of",
    "format_of",
    "holds_texts",
    "numbers_of_text",
    "otherwise_written",
    "with_gaps",
    "with_numbers",
]

FORMATS = ("parquet", "csv", "ndjson", "arrow")
_OF_SUFFIX = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson",
    ".json": "ndjson", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow",
}  # fmt: skip
_COMPRESSED = re.compile(r"\.(gz|bz2|zst)$")
_ROWS = 1 << 17
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_INTEGER = r"^\s*[+-]?\d{1,18}\s*$"
_MOST = 0.5  # of the texts of a column
_NOTHING = pa.array(["", "NA", "N/A", "n/a", "NULL", "null", "NaN", "nan", "#N/A", "None"])
_PARTITION = re.compile(r"([A-Za-z_]\w*)=(.+)")

Torn = Callable[[str], None]  # is given a line of CSV that has too many or too few fields


def format_of(path: Path) -> str:
    """The format that a suffix says.

    Raises:
        CommandError: it says none.
    """
    suffix = Path(_COMPRESSED.sub("", path.name)).suffix.lower()
    if suffix not in _OF_SUFFIX:
        raise CommandError(
            f"cannot tell the format of {path} by its suffix; say which with --format: "
            f"{', '.join(FORMATS)}"
        )
    return _OF_SUFFIX[suffix]


def files_of(path: Path, format: str | None) -> list[Path]:
    """The file, or those in a folder and the folders in it, in the order of their names.

    What begins with a dot or an underscore is none, as in Hive and Spark. A format that was given
    is that of all of them.

    Raises:
        CommandError: there are none, or the suffix of one says no format.
    """
    if not path.exists():
        raise CommandError(f"{path}: No such file or directory")
    if not path.is_dir():
        return [path]
    found = [
        each
        for each in sorted(path.rglob("*"))
        if each.is_file() and not any(part[0] in "._" for part in each.relative_to(path).parts)
    ]
    if not found:
        raise CommandError(f"no files in {path}")
    if format is None:
        for each in found:
            format_of(each)
    return found


def batches(
    path: Path,
    format: str,
    columns: Sequence[str],
    progress: Callable[[float], None],
    texts: Sequence[str] = (),
    torn: Torn | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, of these columns at least.

    Args:
        path: the file; CSV and NDJSON may be compressed (.gz, .bz2, .zst).
        format: one of :data:`FORMATS`.
        columns: columns that are needed.
        progress: told the share of the file that was read, as far as that is known.
        texts: columns of integers or text that are to be text: of CSV as it stands there.
        torn: told of lines of CSV that are left out; None: such a line ends it.

    Raises:
        CommandError: a column is missing, or the file is not what its format says.
    """
    try:
        for batch in _batches(path, format, columns, progress, texts, torn):
            batch = _with_partitions(batch, path)
            for name in columns:
                if name not in batch.schema.names:
                    listed = ", ".join(batch.schema.names)
                    raise CommandError(
                        f"{path} has no column {name!r}; it has {listed} (--time-column, "
                        "--id-columns and others name those that are meant)"
                    )
            yield _with_texts(batch, texts, path)
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError) as fault:
        raise CommandError(f"{path} cannot be read as {format}: {fault}") from None
    progress(1.0)


def holds_texts(path: Path, format: str, column: str) -> bool:
    """Whether a column of a file is of text, as its first rows say; one that is not there is none.

    Raises:
        CommandError: the file is not what its format says; nearly all texts are numbers.
    """
    batch = _first(path, format, [column])
    if batch is None or column not in batch.schema.names:
        return False
    if not holds_text(batch.schema.field(column).type):
        return False
    _refuse_numbers(path, column, batch.column(column).cast(pa.string()))
    return True


def _refuse_numbers(path: Path, column: str, texts: pa.Array) -> None:
    """One word among numbers makes a column of text of them, and hardly one of labels."""
    said = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
    number = pc.match_substring_regex(said, _NUMBER)
    share = pc.mean(number).as_py() or 0.0
    if share <= _MOST:
        return
    row = pc.index(number, pa.scalar(False)).as_py()
    found = "numbers that are texts" if row < 0 else f"{said[row].as_py()!r} in row {row}"
    among = "" if row < 0 else f", where {100 * share:.6g} % of the texts are numbers"
    raise CommandError(
        f"{path}: column {column!r} has {found}{among}; mend that, or keep all as labels with "
        "--value-type label"
    )


def otherwise_written(path: Path, columns: Sequence[str]) -> tuple[str, str] | None:
    """A column of CSV that is read as integers, and a text of it that is not how its integer is
    written, such as "012"; None: there is none among the first rows.

    Raises:
        CommandError: the file is no CSV.
    """
    read, written = _first(path, "csv", columns), _first(path, "csv", columns, columns)
    for name in columns:
        if read is None or written is None or name not in read.schema.names:
            continue
        if pa.types.is_integer(read.schema.field(name).type):
            texts = written.column(name)
            other = pc.not_equal(texts, read.column(name).cast(pa.string()))
            if (row := pc.index(other, pa.scalar(True)).as_py()) >= 0:
                return name, texts[row].as_py()
    return None


def numbers_of_text(path: Path, columns: Sequence[str]) -> list[str]:
    """Which of some columns of CSV are of numbers, or of texts of which most are; others are of
    dates, say.

    Raises:
        CommandError: the file is no CSV.
    """
    first = _first(path, "csv", columns)
    if first is None:
        return []
    found = []
    for name in columns:
        if name in first.schema.names:
            kind = first.schema.field(name).type
            number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
            if number or (is_text(kind) and _numbers_among(first.column(name)) is not None):
                found.append(name)
    return found


def _first(
    path: Path, format: str, columns: Sequence[str], texts: Sequence[str] = ()
) -> pa.RecordBatch | None:
    """The first rows of a file, but for torn lines; None: it has none."""
    try:
        return next(_batches(path, format, columns, texts=texts, torn=lambda _line: None), None)
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError) as fault:
        raise CommandError(f"{path} cannot be read as {format}: {fault}") from None


def _numbers_among(texts: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    """The texts, null where they say nothing, and which are numbers; None: most are none."""
    texts = texts.cast(pa.string())
    said = pc.if_else(pc.is_in(texts, _NOTHING), pa.scalar(None, pa.string()), texts)
    number = pc.match_substring_regex(said, _NUMBER)
    return (said, number) if (pc.mean(number).as_py() or 0.0) > _MOST else None


def with_numbers(
    batch: pa.RecordBatch, columns: Sequence[str]
) -> tuple[pa.RecordBatch, dict[int, tuple[str, str]]]:
    """A batch in which texts that are numbers are such, and the rows in which they are none: the
    column and the text. Columns of which most texts are none stay as they are."""
    faults: dict[int, tuple[str, str]] = {}
    for name in columns:
        texts = batch.column(name)
        if not is_text(texts.type) or (found := _numbers_among(texts)) is None:
            continue
        said, number = found
        for row in pc.indices_nonzero(pc.invert(number)).to_pylist():
            faults.setdefault(row, (name, said[row].as_py()))
        kept = pc.utf8_trim_whitespace(pc.if_else(number, said, pa.scalar(None, pa.string())))
        whole = pc.all(pc.match_substring_regex(kept, _INTEGER)).as_py() is not False
        kept = pc.utf8_ltrim(kept, "+").cast(pa.int64() if whole else pa.float64())
        batch = _with(batch, name, kept)
    return batch, faults


def _with_partitions(batch: pa.RecordBatch, path: Path) -> pa.RecordBatch:
    for part in path.parts[:-1]:
        if (named := _PARTITION.fullmatch(part)) and named[1] not in batch.schema.names:
            entry = int(named[2]) if re.fullmatch(_INTEGER, named[2]) else unquote(named[2])
            batch = batch.append_column(named[1], pa.repeat(entry, batch.num_rows))
    return batch


def with_gaps(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """A batch in which an empty text of some columns is null: CSV writes both alike."""
    for name in columns:
        texts = batch.column(name)
        if is_text(texts.type):
            filled = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
            batch = _with(batch, name, filled)
    return batch


def _with(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """The same with another column of a name."""
    return batch.set_column(batch.schema.get_field_index(name), name, column)


def _batches(
    path: Path,
    format: str,
    columns: Sequence[str],
    progress: Callable[[float], None] = lambda _share: None,
    texts: Sequence[str] = (),
    torn: Torn | None = None,
) -> Iterator[pa.RecordBatch]:
    if format == "csv":
        types = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string()))
        if torn is None:
            return iter(pyarrow.csv.open_csv(path, convert_options=types))

        def skip(row: Any) -> str:
            torn(row.text)
            return "skip"

        lines = pyarrow.csv.ParseOptions(invalid_row_handler=skip)
        return iter(pyarrow.csv.open_csv(path, convert_options=types, parse_options=lines))
    return _READERS[format](path, list(columns), progress)


def _with_texts(batch: pa.RecordBatch, names: Sequence[str], path: Path) -> pa.RecordBatch:
    for name in names:
        column = batch.column(name)
        if not (is_text(column.type) or pa.types.is_integer(column.type)):
            raise CommandError(
                f"{path}: column {name!r} is of type {column.type}; expected integers or text to "
                "be taken as text"
            )
        batch = _with(batch, name, column.cast(pa.string()))
    return batch


def _parquet(path: Path, columns: list[str], progress: Any) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        there = [name for name in columns if name in file.schema_arrow.names]
        if len(there) < len(columns):
            yield _nothing(file)
        read, rows = 0, max(file.metadata.num_rows, 1)
        for batch in file.iter_batches(_ROWS, columns=there):
            yield batch
            read += batch.num_rows
            progress(read / rows)


def _nothing(file: Any) -> pa.RecordBatch:
    """No rows of every column, for the message that names them."""
    return pa.RecordBatch.from_pylist([], schema=file.schema_arrow)


def _ndjson(path: Path, columns: list[str], _: Any) -> Iterator[pa.RecordBatch]:
    with pa.input_stream(str(path)) as stream:  # opened so that it is inflated
        yield from pyarrow.json.open_json(stream)


def _arrow(path: Path, columns: list[str], progress: Any) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(path)) as source:
        if source.read(6) == b"ARROW1":
            with pyarrow.ipc.open_file(source) as file:
                for number in range(file.num_record_batches):
                    yield file.get_batch(number)
                    progress((number + 1) / file.num_record_batches)
        else:
            source.seek(0)
            with pyarrow.ipc.open_stream(source) as stream:
                for batch in stream:
                    yield batch
                    progress(source.tell() / max(source.size(), 1))


_READERS: dict[str, Callable[..., Iterator[pa.RecordBatch]]] = {
    "parquet": _parquet, "ndjson": _ndjson, "arrow": _arrow
}  # fmt: skip
