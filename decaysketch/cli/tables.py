"""Files of observations, read a batch at a time: Parquet, CSV, NDJSON and Arrow.

CSV cells are read as texts, and only in the wanted columns, so that no block of a
file decides a column's type. :mod:`decaysketch.tables.texts` converts numbers and times row by row.
Columns that name rows have a type, because 12 and "12" are two names. The first megabyte determines
it. A cell with another type rejects its row. NDJSON is read a few megabytes at a time. If a block
has several types in one column, its lines are read one by one.

In a path such as ``day=2026-01-31/site=7/a.csv``, the named parts are columns, as in Hive.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet as pq
import typer

from decaysketch.cli.dialect import (
    Dialect,
    Encoding,
    Separator,
    TextOptions,
    dialect_of,
    encoding_of,
    opened,
)
from decaysketch.cli.options import group
from decaysketch.cli.output import CommandError
from decaysketch.core.text_values import PLAIN
from decaysketch.tables.columns import decoded, holds_text, in_plain_text, is_text
from decaysketch.tables.rejections import Refusals
from decaysketch.tables.texts import numbers

__all__ = [
    "FORMATS",
    "Faults",
    "Files",
    "Reading",
    "batches",
    "check_columns",
    "files_of",
    "first_rows",
    "format_of",
    "head_of",
    "kinds_of",
    "otherwise_written",
    "texts_of",
]

FORMATS = ("parquet", "csv", "ndjson", "arrow")
_OF_SUFFIX = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".txt": "csv",
    ".ndjson": "ndjson", ".jsonl": "ndjson",
    ".json": "ndjson", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow",
}  # fmt: skip
_COMPRESSED = re.compile(r"\.(gz|bz2|zst|zip)$")
_ROWS = 1 << 17
_BLOCK = 1 << 22  # bytes of NDJSON
_LONGEST_LINE = 1 << 26
_INTEGER = r"^\s*[+-]?\d{1,18}\s*$"
_PARTITION = re.compile(r"([A-Za-z_]\w*)=(.+)")

Torn = Callable[[str], None]  # is given a line that is no row
Kinds = dict[str, pa.DataType]  # of columns of texts that name rows
Rows = Iterator[tuple[pa.RecordBatch, Kinds]]
Faults = dict[int, tuple[str, str]]  # row in the batch: its column and fault


class Reading(NamedTuple):
    """The parts of a file to read.

    Attributes:
        columns: the required columns.
        naming: those that name rows or sketches.
        texts: those that stay text in CSV, as they are written.
        options: the options for text files.
        torn: called for dropped lines; None: such a line is an error.
        progress: called with the share of the file that was read, if it is known.
        everything: read all columns.
        repeated: declared texts. Parquet reads dictionaries, NDJSON the text of any value.
    """

    columns: Sequence[str]
    naming: Sequence[str] = ()
    texts: Sequence[str] = ()
    options: TextOptions = TextOptions()
    torn: Torn | None = None
    progress: Callable[[float], None] = lambda _share: None
    everything: bool = False
    repeated: Sequence[str] = ()

    def chosen(self, there: Sequence[str]) -> list[str]:
        """Return a file's columns that are read."""
        return [name for name in there if self.everything or name in self.columns]


@group
class Files(NamedTuple):
    """Options for the files' format."""

    format: Annotated[
        str | None, typer.Option(help=f"{', '.join(FORMATS)}. Default: by suffix.")
    ] = None
    separator: Separator = None
    encoding: Encoding = None

    def text_options(self) -> TextOptions:
        """Return the options for text files.

        Raises:
            CommandError: an invalid one.
        """
        return TextOptions(self.separator, self.encoding).checked()


def format_of(path: Path) -> str:
    """Return the format for a suffix.

    Raises:
        CommandError: the suffix is unknown.
    """
    suffix = Path(_COMPRESSED.sub("", path.name.lower())).suffix
    if suffix not in _OF_SUFFIX:
        raise CommandError(
            f"{path} has no known suffix; give its format with --format: {', '.join(FORMATS)}"
        )
    return _OF_SUFFIX[suffix]


def files_of(path: Path, format: str | None) -> list[Path]:
    """Return the file, or all files below a folder, in name order.

    Names with a leading dot or underscore are skipped, as in Hive and Spark. A given format applies
    to all files.

    Raises:
        CommandError: there are none, or a suffix is unknown.
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
    path: Path, format: str, reading: Reading
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, Faults]]:
    """Yield the rows of a file, with at least the required columns.

    Args:
        path: the file; CSV and NDJSON may be compressed (gzip, bzip2, zstd, or one file in a ZIP).
        format: one of :data:`FORMATS`.
        reading: the parts to read.

    Yields:
        The rows as the file has them. The same rows with the columns of the ids in their types.
        The rows among them that have a cell of another type.

    Raises:
        CommandError: a column is missing or exists twice, or the file does not have its format.
    """
    try:
        for batch, kinds in _READERS[format](path, reading):
            batch = _with_partitions(batch, path)
            check_columns(path, reading.columns, batch.schema.names)
            yield (batch, *_named(batch, kinds))
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError) as fault:
        raise CommandError(f"{path} cannot be read as {format}: {_line(fault)}") from None
    except UnicodeDecodeError as fault:
        raise CommandError(
            f"{path} is not {fault.encoding}: {fault.reason}; give its encoding with --encoding"
        ) from None
    except OSError as fault:
        if fault.filename is not None:
            raise
        raise CommandError(f"{path} cannot be read: {_line(fault)}") from None
    reading.progress(1.0)


def _line(fault: Exception) -> str:
    return " ".join(str(fault).split())[:300]


def check_columns(path: Path, wanted: Sequence[str], there: Sequence[str]) -> None:
    """Reject a file that lacks a column, or has it twice.

    Raises:
        CommandError: with the names of its columns.
    """
    for name in wanted:
        if name not in there:
            raise CommandError(
                f"{path} has no column {name!r}; it has {', '.join(there)} (--time-column, "
                "--id-columns and others name the columns)"
            )
        if list(there).count(name) > 1:
            raise CommandError(_said_twice(path, name))


def _said_twice(path: Path, name: str) -> str:
    return f"{path} has two columns {name!r}; rename one of them"


# --------------------------------------------------------------------------------------- first rows


def first_rows(
    path: Path, format: str, reading: Reading, *, strict: bool = False
) -> pa.Table | None:
    """Return a file's first rows: no rows if there are none, and without a column that it lacks.
    None: it cannot be read, which is reported when it is read.

    Raises:
        CommandError: if ``strict``, as :func:`batches`.
    """
    reading = reading._replace(torn=lambda _line: None)
    try:
        if strict:
            first, _, _ = next(batches(path, format, reading))
            return pa.Table.from_batches([first])
        first, _ = next(_READERS[format](path, reading))
    except StopIteration:
        return pa.table({name: pa.nulls(0) for name in reading.columns}) if strict else None
    except (pa.ArrowException, ValueError, OSError, CommandError):
        if strict:
            raise
        return None
    return pa.Table.from_batches([_with_partitions(first, path)])


def texts_of(rows: pa.Table | None, column: str) -> pa.Array | None:
    """Return the entries of a column, if they are texts. None: there are none."""
    if rows is None or rows.column_names.count(column) != 1:
        return None
    values = rows.column(column).combine_chunks()
    if not holds_text(values.type) or values.null_count == len(values):
        return None
    return in_plain_text(decoded(values))


def otherwise_written(
    path: Path, columns: Sequence[str], options: TextOptions
) -> tuple[str, str] | None:
    """Return a CSV column that is read as integers, and a text in it that is written in another way
    than its integer, such as "012". None: there is none among the first rows.

    Raises:
        CommandError: the file is no CSV.
    """
    stream, head = opened(path)
    stream.close()
    dialect = dialect_of(path, head, columns, options)
    kinds = kinds_of(dialect, [each for each in columns if each in dialect.names])
    chosen = [name for name, kind in kinds.items() if pa.types.is_integer(kind)]
    texts = head_of(dialect, chosen, dict.fromkeys(chosen, pa.string()))
    for name in chosen:
        column = texts.column(name)
        column = column.chunk(0) if column.num_chunks else pa.array([], pa.string())
        read = numbers(column, name, PLAIN, Refusals(len(column), raises=False), integers=True)
        other = pc.not_equal(column, read.cast(pa.string()))
        if (row := pc.index(other, pa.scalar(True)).as_py()) >= 0:
            return name, column[row].as_py()
    return None


# ------------------------------------------------------------------------------------- partitions


def _with_partitions(batch: pa.RecordBatch, path: Path) -> pa.RecordBatch:
    for name, entry in _partitions(path).items():
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.repeat(entry, batch.num_rows))
    return batch


def _partitions(path: Path) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for part in path.parts[:-1]:
        if named := _PARTITION.fullmatch(part):
            found[named[1]] = (
                int(named[2]) if re.fullmatch(_INTEGER, named[2]) else unquote(named[2])
            )
    return found


def _with(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """Return the same with a column replaced."""
    return batch.set_column(batch.schema.get_field_index(name), name, column)


def _named(batch: pa.RecordBatch, kinds: Kinds) -> tuple[pa.RecordBatch, Faults]:
    """Return the same with the columns that name rows in their types."""
    faults: Faults = {}
    for name, kind in kinds.items():
        batch = _with(batch, name, _typed(batch.column(name), name, kind, faults))
    return batch, faults


# -------------------------------------------------------------------------------------------- CSV


def _csv(path: Path, reading: Reading) -> Rows:
    stream, head = opened(path)
    with closing(stream):
        if head or path.is_file():  # nothing comes from a pipe that was read before
            yield from _csv_of(path, reading, stream, head)


def _csv_of(path: Path, reading: Reading, stream: Any, head: bytes) -> Rows:
    wanted = [name for name in reading.columns if name not in _partitions(path)]
    dialect = dialect_of(path, head, wanted, reading.options)
    check_columns(path, wanted, dialect.names)
    for name in wanted:
        if name in dialect.twice:
            raise CommandError(_said_twice(path, name))
    chosen = reading.chosen(dialect.names)
    named = [each for each in chosen if each in reading.naming and each not in reading.texts]
    kinds = kinds_of(dialect, named)
    torn = _Torn(path, reading.torn)
    rows = pyarrow.csv.open_csv(
        pa.PythonFile(stream, mode="r"),
        read_options=pyarrow.csv.ReadOptions(
            column_names=list(dialect.names),
            skip_rows=len(dialect.above) + 1,
            encoding="utf8" if dialect.encoding.startswith("utf-8") else dialect.encoding,
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=dialect.separator, invalid_row_handler=torn,
            newlines_in_values=dialect.multiline,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=chosen, column_types=dict.fromkeys(chosen, pa.binary()),
            null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=True,
        ),
    )  # fmt: skip
    schema = pa.schema([(name, pa.string()) for name in chosen])
    nothing = True
    for batch in rows:
        torn.check()
        nothing = False
        columns = [_decoded(column) for column in batch.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=schema), kinds
    torn.check()
    if nothing:
        yield pa.RecordBatch.from_pylist([], schema=schema), {}


class _Torn:
    """CSV lines with more or fewer cells than the heading: stored, or the first one is an error."""

    def __init__(self, path: Path, torn: Torn | None) -> None:
        self._path, self._torn = path, torn
        self._first: str | None = None

    def __call__(self, row: Any) -> str:
        if self._torn is not None:
            self._torn(row.text)
        elif self._first is None:
            expected, found = row.expected_columns, row.actual_columns
            self._first = f"a row with {found} cells, and the heading has {expected}: {row.text}"
        return "skip"

    def check(self) -> None:
        if self._first is not None:
            raise CommandError(
                f"{self._path} has {self._first:.200}; skip such rows with --quarantine FILE, or "
                "give the separator with --separator"
            )


def _decoded(column: pa.Array) -> pa.Array:
    r"""Bytes as text; of a byte that is no UTF-8 its number, as in ``caf\xe9``: nothing is lost."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        cells = [each and each.decode("utf-8", "backslashreplace") for each in column.to_pylist()]
        return pa.array(cells, pa.string())


def head_of(dialect: Dialect, columns: Sequence[str], types: dict[str, pa.DataType]) -> pa.Table:
    """Return some columns of the first rows."""
    if not columns or not dialect.head.strip():
        return pa.table({name: pa.array([], types.get(name, pa.null())) for name in columns})
    return pyarrow.csv.read_csv(
        io.BytesIO(dialect.head.encode("utf-8", "replace")),
        read_options=pyarrow.csv.ReadOptions(column_names=list(dialect.names)),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=dialect.separator, invalid_row_handler=lambda _row: "skip",
            newlines_in_values=dialect.multiline,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=columns, column_types=types, strings_can_be_null=bool(types),
        ),
    ).combine_chunks()  # fmt: skip


def kinds_of(dialect: Dialect, columns: Sequence[str]) -> Kinds:
    """Return the types of some columns, from the first megabyte."""
    found = head_of(dialect, columns, {}).schema
    return {
        field.name: field.type for field in found
        if not (is_text(field.type) or pa.types.is_null(field.type))
    }  # fmt: skip


def _typed(texts: pa.Array, name: str, kind: pa.DataType, faults: Faults) -> pa.Array:
    """Convert texts to the type of their column. Rows with a cell of another type go to the
    faults.
    """
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        refusals = Refusals(len(texts), raises=False)
        found = numbers(texts, name, PLAIN, refusals, integers=pa.types.is_integer(kind))
        for refused in refusals.refusals():
            faults.setdefault(refused.row, (name, _other_kind(texts[refused.row].as_py(), name)))
        return found
    bad: list[int] = []
    found = _cast_by_halves(texts, kind, 0, bad)
    for row in bad:
        faults.setdefault(row, (name, _other_kind(texts[row].as_py(), name, str(kind))))
    return found


def _other_kind(text: str, name: str, kind: str = "integers") -> str:
    return (
        f"is {text!r:.100}, and the first rows have {kind}; --text-columns {name} reads the "
        "column as text"
    )


def _cast_by_halves(texts: pa.Array, kind: pa.DataType, start: int, bad: list[int]) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            bad.append(start)
            return pa.nulls(1, kind)
    half = len(texts) // 2
    halves = (texts[:half], start), (texts[half:], start + half)
    return pa.concat_arrays([_cast_by_halves(part, kind, at, bad) for part, at in halves])


# ----------------------------------------------------------------------------------------- NDJSON


def _ndjson(path: Path, reading: Reading) -> Rows:
    stream, head = opened(path)
    with closing(stream):
        yield from _ndjson_of(path, reading, stream, head)


def _ndjson_of(path: Path, reading: Reading, stream: Any, head: bytes) -> Rows:
    encoding = encoding_of(path, head, reading.options)
    if encoding not in (
        "utf-8",
        "utf-8-sig",
        "cp1252",
        "latin-1",
    ):  # which JSON is never written in
        text = io.TextIOWrapper(io.BufferedReader(stream), encoding=encoding)
        stream = _Encoded(text)
    known: Kinds = {}
    for number, block in enumerate(_blocks(path, stream)):
        block = block.removeprefix(b"\xef\xbb\xbf") if number == 0 else block
        if number == 0 and block.lstrip()[:1] == b"[":
            raise CommandError(
                f"{path} is one JSON array; expected one object per line: jq -c '.[]' converts it"
            )
        table, kinds = _table_of(path, block, reading, known)
        for name in [each for each in known if each not in table.schema.names]:
            table = table.append_column(name, pa.nulls(len(table), known[name]))
        for field in table.schema:
            if field.name in reading.columns and not pa.types.is_null(field.type):
                known.setdefault(field.name, field.type)
        for batch in table.combine_chunks().to_batches():
            yield batch, kinds


class _Encoded:
    """UTF-8 of a stream of text."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def read(self, size: int) -> bytes:
        return self._text.read(size).encode().removeprefix(b"\xef\xbb\xbf")


def _blocks(path: Path, stream: Any) -> Iterator[bytes]:
    """Yield complete lines, a few megabytes at a time."""
    rest = b""
    while part := stream.read(_BLOCK):
        rest += bytes(part)
        stop = rest.rfind(b"\n") + 1
        if stop:
            yield rest[:stop]
            rest = rest[stop:]
        elif len(rest) > _LONGEST_LINE:
            raise CommandError(f"{path} has a line with more than {_LONGEST_LINE:,} bytes")
    if rest.strip():
        yield rest


def _table_of(path: Path, block: bytes, reading: Reading, known: Kinds) -> tuple[pa.Table, Kinds]:
    """Return the rows of some lines: by Arrow if each column has one type, else line by line. Also
    return the types of columns that name rows and are texts here.
    """
    names = [each for each in reading.columns if each in reading.naming]
    try:
        # A number in a column of texts is an error here, and then read line by line: as its text.
        texts = [name for name in reading.repeated if json.dumps(name).encode() in block]
        schema = pa.schema([(name, pa.string()) for name in texts])
        options = pyarrow.json.ParseOptions(explicit_schema=schema)
        table = pyarrow.json.read_json(pa.BufferReader(block), parse_options=options)
        other = [
            name for name in names
            if name in known and name in table.schema.names
            and not _alike(table.schema.field(name).type, known[name])
        ]  # fmt: skip
        if not other:
            return table, {}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    return _by_lines(path, block, reading, known)


def _by_lines(path: Path, block: bytes, reading: Reading, known: Kinds) -> tuple[pa.Table, Kinds]:
    rows = []
    for line in block.splitlines():
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise TypeError
        except (ValueError, TypeError, RecursionError):
            text = line.decode("utf-8", "replace")
            if reading.torn is None:
                raise CommandError(
                    f"{path} has a line that is not a JSON object: {text:.120}; --quarantine FILE "
                    "leaves such lines out"
                ) from None
            reading.torn(text)
            continue
        rows.append(row)
    columns, kinds = {}, {}
    for name in reading.chosen(list(dict.fromkeys(name for row in rows for name in row))):
        cells, kind = [row.get(name) for row in rows], known.get(name)
        if name in reading.naming and kind is not None and not is_text(kind):
            columns[name], kinds[name] = _as_texts(cells), kind
        elif name in reading.repeated:
            columns[name] = _as_texts(cells)
        else:
            columns[name] = _column(cells, kind if name in reading.naming else None)
    return pa.table(columns), kinds


def _alike(kind: pa.DataType, before: pa.DataType) -> bool:
    return bool(kind == before) or pa.types.is_null(kind) is True


def _column(cells: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Return JSON cells as a column: of the given type, or their common type, else as texts."""
    try:
        return pa.array(cells, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return _as_texts(cells)


def _as_texts(cells: list[Any]) -> pa.Array:
    texts = [
        each if each is None or isinstance(each, str) else json.dumps(each) for each in cells
    ]  # fmt: skip
    return pa.array(texts, pa.string())


# -------------------------------------------------------------------------------- Parquet and Arrow


def _opened_parquet(path: Path, repeated: Sequence[str]) -> pq.ParquetFile:
    """Open a file and read some texts as dictionaries."""
    options: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}
    file = pq.ParquetFile(path, **options)
    found = [each.name for each in file.schema_arrow if each.type == pa.string()]
    chosen = [name for name in repeated if found.count(name) == 1]
    if not chosen:
        return file
    with file:
        return pq.ParquetFile(path, metadata=file.metadata, read_dictionary=chosen, **options)


def _parquet(path: Path, reading: Reading) -> Rows:
    with _opened_parquet(path, reading.repeated) as file:
        names = file.schema_arrow.names
        there = reading.chosen(names)
        if not {*reading.columns} <= {*there} or len({*there}) < len(there):
            yield pa.RecordBatch.from_pylist([], schema=file.schema_arrow), {}
        read, rows = 0, max(file.metadata.num_rows, 1)
        for batch in file.iter_batches(_ROWS, columns=there):
            yield batch, {}
            read += batch.num_rows
            reading.progress(read / rows)


def _arrow(path: Path, reading: Reading) -> Rows:
    with pa.memory_map(str(path)) as source:
        if source.read(6) == b"ARROW1":
            with pyarrow.ipc.open_file(source) as file:
                for number in range(file.num_record_batches):
                    yield file.get_batch(number), {}
                    reading.progress((number + 1) / file.num_record_batches)
        else:
            source.seek(0)
            with pyarrow.ipc.open_stream(source) as stream:
                for batch in stream:
                    yield batch, {}
                    reading.progress(source.tell() / max(source.size(), 1))


_READERS: dict[str, Callable[[Path, Reading], Rows]] = {
    "parquet": _parquet, "csv": _csv, "ndjson": _ndjson, "arrow": _arrow
}  # fmt: skip
