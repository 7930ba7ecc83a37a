"""CSV logs for Spark, in the dialects that the command line reads.

Spark infers column types from all rows, and times from the session's zone. So the program reads
columns as texts, and :mod:`decaysketch.tables.texts` converts them row by row in the workers, as
for ``decaysketch build``. The first megabyte in the first file shows the dialect, and the columns
that name rows by integers. The build specification stores both for a rebuild.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from decaysketch.cli.dialect import Dialect, TextOptions, dialect_of, opened
from decaysketch.cli.output import CommandError, warn
from decaysketch.cli.tables import check_columns, head_of, kinds_of
from decaysketch.core.text_values import PLAIN, Numerals
from decaysketch.spark._names import quoted
from decaysketch.spark.splits import is_uri
from decaysketch.tables import ColumnMapping
from decaysketch.tables.texts import holds_numbers, numerals_of
from spark_jobs.inputs import inputs
from spark_jobs.spec import BuildSpec

__all__ = ["settled"]

_ENCODINGS = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8",
    "cp1252": "ISO-8859-1",  # Spark knows no Windows-1252, which differs in 27 characters
    "latin-1": "ISO-8859-1",
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16BE",
}
_CHECKED = 256  # files whose headings are compared here; Spark compares the others
_AT_A_TIME = 16
_TYPES = (
    (pa.types.is_integer, "BIGINT"),
    (pa.types.is_floating, "DOUBLE"),
    (pa.types.is_boolean, "BOOLEAN"),
)


def settled(spec: BuildSpec, options: TextOptions, declared_texts: Sequence[str] = ()) -> BuildSpec:
    """Return a specification with a CSV log's dialect and column types.

    Args:
        spec: without a schema.
        options: the separator and the encoding, if they are given.
        declared_texts: columns for declared texts. They remain texts, also if they name rows.

    Raises:
        CommandError: the first file lacks a column or has it twice, has its heading behind other
            lines, or is no text.
    """
    path, *others = (file.path for part in inputs(spec.log).values() for file in part.files)
    compared = spec.only.columns if spec.only is not None else ()
    wanted = tuple(dict.fromkeys((*spec.mapping.names, *spec.by, *compared)))
    dialect = _dialect(path, wanted, options)
    check_columns(Path(path), [each for each in wanted if f"{each}=" not in path], dialect.names)
    _check_others(path, dialect, others[:_CHECKED], wanted, options)
    for name in set(wanted) & dialect.twice:
        raise CommandError(f"{path} has two columns {name!r}; rename one of them")
    texts = [*(name for name, _ in spec.mapping.casts), *declared_texts]
    naming = [
        name for name in dict.fromkeys((*spec.mapping.naming, *spec.by))
        if name in dialect.names and name not in (*texts, *compared)
    ]  # fmt: skip
    kinds = kinds_of(dialect, [name for name in (*naming, *compared) if name in dialect.names])
    integers = [name for name in naming if pa.types.is_integer(kinds.get(name, pa.null()))]
    types = {name: _ddl(kinds.get(name, pa.string())) for name in compared}
    schema = ", ".join(f"{quoted(name)} {types.get(name, 'STRING')}" for name in dialect.names)
    casts = dict(spec.mapping.casts) | dict.fromkeys(integers, "int64")
    mapping = replace(_with_numerals(spec.mapping, dialect), casts=tuple(casts.items()))
    return replace(spec, mapping=mapping, schema=schema, reader=_reader(path, dialect))


def _with_numerals(mapping: ColumnMapping, dialect: Dialect) -> ColumnMapping:
    """Return the same with the marks of the first values, if they are certain and none is given."""
    given = Numerals(mapping.decimal, mapping.thousands)
    if mapping.value is None or given != PLAIN:
        return mapping
    column = head_of(dialect, [mapping.value], {mapping.value: pa.string()}).column(0)
    texts = pa.concat_arrays([pa.array([], pa.string()), *column.chunks])
    found = None if holds_numbers(texts) else numerals_of(texts)
    if found is None:
        return mapping
    said = f"--decimal '{found.decimal}'"
    said += f" --thousands {found.thousands!r}" if found.thousands else ""
    warn(f"numbers of column {mapping.value!r} are read with {said}")
    return replace(mapping, decimal=found.decimal, thousands=found.thousands)


def _check_others(
    path: str, dialect: Dialect, others: list[str], wanted: tuple[str, ...], options: TextOptions
) -> None:
    """Reject files of another dialect: Spark reads columns by their place, and all files alike."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        found = pool.map(lambda each: _dialect(each, wanted, options), others)
        for each, other in zip(others, found, strict=True):
            if _alike(other) != _alike(dialect):
                mine, theirs = (
                    f"{d.encoding}, separator {d.separator!r}, columns {', '.join(d.names)}"
                    for d in (dialect, other)
                )
                raise CommandError(f"{each} has {theirs}; expected as in {path}: {mine}")


def _alike(dialect: Dialect) -> tuple[str, str, tuple[str, ...]]:
    encoding = _ENCODINGS.get(dialect.encoding, dialect.encoding)
    return encoding, dialect.separator, dialect.names


def _dialect(path: str, wanted: tuple[str, ...], options: TextOptions) -> Dialect:
    raw = None
    if is_uri(path):
        system, name = fs.FileSystem.from_uri(path)
        raw = system.open_input_stream(name)
    stream, head = opened(Path(path), raw)
    stream.close()
    return dialect_of(Path(path), head, wanted, options)


def _reader(path: str, dialect: Dialect) -> dict[str, str]:
    """Return the options of Spark's reader."""
    above = dialect.above
    if any(line.strip() and not line.lstrip().startswith("#") for line in above):
        raise CommandError(
            f"{path} has its heading in line {len(above) + 1}, and Spark expects it in the first "
            "line: remove the lines above it, or begin them with #"
        )
    if dialect.encoding == "cp1252" and any(ord(each) > 255 for each in dialect.head):
        raise CommandError(
            f"{path} is encoded in Windows-1252, which Spark cannot read; convert it"
        )
    encoding = _ENCODINGS.get(dialect.encoding, dialect.encoding)
    checked = dialect.exact and dialect.encoding != "utf-8-sig"  # the headings of all files
    found = {"sep": dialect.separator, "encoding": encoding}
    found["enforceSchema"] = "false" if checked else "true"
    if above:
        found["comment"] = "#"
    wide = encoding.lower().startswith(("utf-16", "utf-32"))  # with other line ends
    if dialect.multiline or wide:
        found["multiLine"] = "true"
    return found


def _ddl(kind: pa.DataType) -> str:
    return next((name for known, name in _TYPES if known(kind)), "STRING")
