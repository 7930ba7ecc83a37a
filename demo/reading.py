"""A delivery log of any form, looked at before a minute of work is put into it.

Parquet, CSV, NDJSON or Arrow; columns by the names that ``spark_jobs.build`` has for them, or by
the same options. A file that cannot be a delivery log raises one :class:`ValueError` with the
reason. Invalid rows are rejected: they are skipped, and listed with the reason.

Spark reads the log as it was given where that is a Parquet file with the usual columns and nothing
is refused; otherwise a copy that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet as pq

from decaysketch.cli.output import CommandError
from decaysketch.cli.tables import FORMATS, format_of
from decaysketch.core.time_units import NANOSECONDS
from demo.columns import Refusals, keys_of, micros_of, values_of, weights_of

__all__ = ["COLUMNS", "Columns", "DeliveryLog", "Reason", "read_log", "reasons"]

#: Columns that the demonstration reads. ``weight`` may be absent.
COLUMNS: Final = ("arrival_us", "event_us", "source", "msg", "path", "value", "weight")

_NAMED: Final = 24  # columns listed in an error
_MAGIC: Final = {b"PAR1": "parquet", b"ARRO": "arrow"}


@dataclass(frozen=True)
class Columns:
    """The columns of a log and their meanings, as options of ``spark_jobs.build``.

    None means the usual name, and "" no such column. Of the usual names, arrival, path, weight and
    one of the two times may be absent.

    Attributes:
        time: when the thing happened (``--time-column``, event_us).
        fallback_time: when the delivery arrived, which also counts as the time where that is null
            (``--fallback-time-column``, arrival_us).
        ids: the columns that together identify a message (``--id-columns``, source and msg).
        path: by which path the delivery came (``--by``, path).
        value: the measured number (``--value-column``, value).
        weight: integer weights (``--weight-column``, weight).
        unit: of times that are plain numbers (``--column-unit``, us).
    """

    time: str | None = None
    fallback_time: str | None = None
    ids: tuple[str, ...] | None = None
    path: str | None = None
    value: str | None = None
    weight: str | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if self.unit is not None and self.unit not in NANOSECONDS:
            raise ValueError(
                f"--column-unit is {self.unit!r}; expected one of {', '.join(NANOSECONDS)}"
            )
        if self.ids == ():
            raise ValueError("--id-columns is ''; expected the columns that identify a message")


@dataclass(frozen=True)
class DeliveryLog:
    """A log that can be worked with.

    Attributes:
        given: the file that it was read from.
        path: the Parquet file for Spark, with the usual columns: ``given``, or a copy.
        rows: :data:`COLUMNS` and ``time`` of the accepted rows, in their order.
        refused: a row for each rejected one: its number, column, the value there, the reason, and
            the record as JSON.
        remarks: facts about the reading that matter for the results.
    """

    given: Path
    path: Path
    rows: pl.DataFrame
    refused: pl.DataFrame
    remarks: tuple[str, ...] = ()


def read_log(
    given: Path, columns: Columns | None = None, *, format: str | None = None,
    out: Path | None = None,
) -> DeliveryLog:  # fmt: skip
    """Read a log.

    Args:
        given: the file.
        columns: its columns and their meanings.
        format: "parquet", "csv", "ndjson" or "arrow"; None: by suffix, or by its first bytes.
        out: folder for the copy, where one is needed, and for the refused rows (``quarantine``);
            None: neither is written.

    Raises:
        ValueError: it is no delivery log; the message is one line.
        OSError: it cannot be opened.
    """
    columns = columns or Columns()
    try:
        format = _format(given, format)
        names = _names(given, format)
        chosen = _choose(given, names, columns)
        table, broken = _read(given, format, [*dict.fromkeys(n for n in chosen.all if n)])
    except (pa.ArrowException, UnicodeDecodeError) as fault:
        reason = " ".join(str(fault).split())
        raise ValueError(f"{given} cannot be read as {format}: {reason}") from None
    except CommandError as fault:
        raise ValueError(str(fault)) from None
    if not table.height:
        raise ValueError(f"{given} has no rows; nothing can be asked of it")
    refusals = Refusals(table.height)
    rows, remarks = _converted(table, chosen, columns.unit, refusals)
    refused = _among(_records(refusals.listing(), table), broken)
    rows = rows.filter(~refusals.mask)
    if not rows.height:
        raise ValueError(f"{given} has no row that can be counted: {_reasons(refused)}")
    if not (rows["weight"] > 0).any():
        raise ValueError(f"{given} has no row that can be counted: every weight is 0")
    path = given
    if refused.height or not _as_it_is(given, format, names, table, rows, columns):
        path = given if out is None else _written(rows, out / f"{given.stem}.as-read.parquet")
        remarks.append(f"Spark reads a copy with the usual columns, {path.name}")
    if out is not None:
        _quarantine(refused, out / "quarantine")
    return DeliveryLog(given, path, rows, refused, tuple(remarks))


# -------------------------------------------------------------------------------------- the file


def _format(given: Path, format: str | None) -> str:
    if given.is_dir():
        raise ValueError(
            f"{given} is a folder; expected one file (spark_jobs.build takes folders as well)"
        )
    if not given.is_file():
        raise ValueError(f"{given} is not a file")
    if not given.stat().st_size:
        raise ValueError(f"{given} is empty: 0 bytes")
    if format is not None:
        if format not in FORMATS:
            raise ValueError(f"--format is {format!r}; expected one of {', '.join(FORMATS)}")
        return format
    with given.open("rb") as file:
        begins = file.read(4)
    return _MAGIC.get(begins) or format_of(given)


def _names(given: Path, format: str) -> list[str]:
    """The columns of a file."""
    if format == "parquet":
        with pq.ParquetFile(given) as file:
            return list(file.schema_arrow.names)
    if format == "csv":
        with pa.input_stream(str(given)) as stream:  # opened so that it is inflated
            header = stream.read(1 << 16).decode("utf-8-sig", errors="replace")
        return _csv_header(header, _delimiter(header))
    if format == "ndjson":
        return list(_ndjson(given).schema.names)
    return list(_arrow(given).schema.names)


def _delimiter(header: str) -> str:
    """A comma, unless the first line has none and another usual one."""
    line = header.partition("\n")[0]
    return "," if "," in line else next((d for d in ";\t|" if d in line), ",")


def _csv_header(header: str, delimiter: str) -> list[str]:
    line = header.partition("\n")[0].rstrip("\r")
    options = pa.csv.ReadOptions(autogenerate_column_names=True)
    parse = pa.csv.ParseOptions(delimiter=delimiter)
    count = len(line.split(delimiter))
    convert = pa.csv.ConvertOptions(
        column_types={f"f{k}": pa.string() for k in range(count)}, strings_can_be_null=False
    )
    read = pa.csv.read_csv(pa.py_buffer(f"{line}\n".encode()), options, parse, convert)
    return [str(column[0]) for column in read.columns]


def _ndjson(given: Path) -> pa.Table:
    with pa.input_stream(str(given)) as stream:
        return pa.json.read_json(stream)


def _arrow(given: Path) -> pa.Table:
    with pa.memory_map(str(given)) as source:
        if source.read(6) == b"ARROW1":
            return pa.ipc.open_file(source).read_all()
        source.seek(0)
        return pa.ipc.open_stream(source).read_all()


def _read(given: Path, format: str, names: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The columns of these names, and the lines of a CSV file that are no rows."""
    broken: list[dict[str, Any]] = []
    if format == "csv":
        table = _csv(given, names, broken)
    elif format == "parquet":
        with pq.ParquetFile(given, coerce_int96_timestamp_unit="us") as file:
            table = file.read(list(names))
    else:
        table = (_ndjson if format == "ndjson" else _arrow)(given).select(list(names))
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame, pl.DataFrame(broken, schema=_RECORDED)


def _csv(given: Path, names: Sequence[str], broken: list[dict[str, Any]]) -> pa.Table:
    """Every entry as text, because the complete column decides its type, not the first rows."""
    with pa.input_stream(str(given)) as stream:
        header = stream.read(1 << 16).decode("utf-8-sig", errors="replace")

    def set_aside(row: Any) -> str:
        broken.append(
            {
                "row": None if row.number is None else row.number - 2,  # a header, and from 1
                "column": "",
                "found": f"{row.actual_columns} entries",
                "reason": f"expected {row.expected_columns} entries, as the header has",
                "record": row.text,
            }
        )
        return "skip"

    return pa.csv.read_csv(
        given,
        pa.csv.ReadOptions(use_threads=False),
        pa.csv.ParseOptions(delimiter=_delimiter(header), invalid_row_handler=set_aside),
        pa.csv.ConvertOptions(
            include_columns=list(names), column_types={name: pa.string() for name in names},
            strings_can_be_null=True, null_values=["", "null", "NULL", "None", "NA", "N/A"],
        ),
    )  # fmt: skip


# ----------------------------------------------------------------------------------- the columns


@dataclass(frozen=True)
class _Chosen:
    """Names of columns that are there; "" for none."""

    time: str
    fallback_time: str
    ids: tuple[str, ...]
    path: str
    value: str
    weight: str

    @property
    def all(self) -> tuple[str, ...]:
        return (self.time, self.fallback_time, *self.ids, self.path, self.value, self.weight)


def _choose(given: Path, names: Sequence[str], columns: Columns) -> _Chosen:
    missing: dict[str, str] = {}  # column: the option that names another

    def found(name: str | None, usual: str, option: str, *, needed: bool = False) -> str:
        column = usual if name is None else name
        if not column or column in names:
            return column
        if needed or name is not None:
            missing[column] = option
        return ""

    fallback = found(columns.fallback_time, "arrival_us", "--fallback-time-column")
    time = found(columns.time, "event_us", "--time-column", needed=not fallback)
    ids = tuple(
        found(name, name, "--id-columns", needed=True) for name in columns.ids or ("source", "msg")
    )
    chosen = _Chosen(
        time, fallback, ids,
        found(columns.path, "path", "--by"),
        found(columns.value, "value", "--value-column", needed=True),
        found(columns.weight, "weight", "--weight-column"),
    )  # fmt: skip
    if missing:
        listed = ", ".join(names[:_NAMED]) + (" and more" if len(names) > _NAMED else "")
        options = ", ".join(dict.fromkeys(missing.values()))
        raise ValueError(
            f"{given} lacks {_listed(missing)}; it has {listed}. Say which columns mean what: "
            f"{options}"
        )
    if not time and not fallback:
        raise ValueError("--time-column and --fallback-time-column are ''; expected one of them")
    for name in dict.fromkeys(filter(None, chosen.all)):
        if (count := names.count(name)) > 1:
            raise ValueError(f"{given} has {count} columns with the name {name!r}; rename them")
    return chosen


def _listed(names: Iterable[str]) -> str:
    quoted = [repr(name) for name in names]
    return f"the column{'s' if len(quoted) > 1 else ''} {', '.join(quoted)}"


def _converted(
    table: pl.DataFrame, chosen: _Chosen, unit: str | None, refusals: Refusals
) -> tuple[pl.DataFrame, list[str]]:
    """:data:`COLUMNS` and ``time`` of all rows, and remarks."""
    remarks = []
    nothing = pl.repeat(None, table.height, dtype=pl.Int64, eager=True)

    def times(name: str) -> pl.Series:
        return micros_of(table[name], name, unit, refusals) if name else nothing

    event, arrival = times(chosen.time), times(chosen.fallback_time)
    time = event.zip_with(event.is_not_null(), arrival)
    untimed = chosen.time or chosen.fallback_time
    also = f", and so is {chosen.fallback_time}" if chosen.time and chosen.fallback_time else ""
    refusals.refuse(time.is_null(), untimed, f"is null{also}", table[untimed])
    undated = ~time.is_between(_YEAR_1_US, _YEAR_9999_US)
    refusals.refuse(undated, untimed, "expected a time in the years 1 to 9999", table[untimed])
    ids = [keys_of(table[name], name, refusals) for name in chosen.ids]
    source, msg = _source_and_message(ids)
    if chosen.path:
        path = keys_of(table[chosen.path], chosen.path, None)
        if path.null_count():
            remarks.append(f"{path.null_count():,} rows without a path stand as {_NO_PATH!r}")
            path = path.cast(pl.String).fill_null(_NO_PATH)
    else:
        path = pl.repeat(0, table.height, dtype=pl.Int32, eager=True)
        remarks.append("no column of paths: all deliveries count as one path's (--by names one)")
    if chosen.value:
        value = values_of(table[chosen.value], chosen.value, refusals)
    else:
        value = nothing.cast(pl.Float64)
        remarks.append("no column of values: messages are counted only")
    if chosen.weight:
        weight = weights_of(table[chosen.weight], chosen.weight, refusals)
    else:
        weight = pl.repeat(1, table.height, dtype=pl.Int64, eager=True)
    series = (arrival, event, source, msg, path, value, weight)
    named = {name: each.alias(name) for name, each in zip(COLUMNS, series, strict=True)}
    return pl.DataFrame([*named.values(), time.alias("time")]), remarks


_YEAR_1_US: Final = -62_135_596_800_000_000
_YEAR_9999_US: Final = 253_370_764_800_000_000
_NO_PATH: Final = "(no path)"


def _source_and_message(ids: Sequence[pl.Series]) -> tuple[pl.Series, pl.Series]:
    """The source and the message of each row: the first id, and the other ids together."""
    if len(ids) == 1:
        return pl.repeat(0, len(ids[0]), dtype=pl.Int32, eager=True), ids[0]
    if len(ids) == 2:
        return ids[0], ids[1]
    others = pl.DataFrame([each.alias(str(k)) for k, each in enumerate(ids[1:])])
    distinct = others.unique(maintain_order=True).with_row_index("number")
    joined = others.join(
        distinct, on=others.columns, how="left", nulls_equal=True, maintain_order="left"
    )
    return ids[0], joined["number"].cast(pl.Int64)


def _as_it_is(
    given: Path, format: str, names: Sequence[str], table: pl.DataFrame, rows: pl.DataFrame,
    columns: Columns,
) -> bool:  # fmt: skip
    """Whether Spark reads the contents of ``rows`` from the file itself."""
    if format != "parquet" or given.suffix not in (".parquet", ".pq"):
        return False
    if columns.unit not in (None, "us") or len(set(names)) < len(names):
        return False
    usual = [name for name in COLUMNS if name != "weight" or not (rows["weight"] == 1).all()]
    if not all(name in table.columns and name in names for name in usual):
        return False
    return (
        all(
            table.schema[name] == rows.schema[name]
            or (name == "weight" and table.schema[name].is_integer())
            for name in usual
        )
        and Columns(unit=columns.unit) == columns
    )


# --------------------------------------------------------------------------------- refused rows


_RECORDED: Final = {
    "row": pl.Int64, "column": pl.String, "found": pl.String, "reason": pl.String,
    "record": pl.String,
}  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """Why rows are refused: how many, and the first of them."""

    column: str
    reason: str
    rows: int
    first: int
    found: str


def reasons(refused: pl.DataFrame) -> list[Reason]:
    """The reasons of refused rows, the most frequent first."""
    counted = (
        refused.group_by("column", "reason")
        .agg(rows=pl.len(), first=pl.col("row").first(), found=pl.col("found").first())
        .sort("rows", "first", descending=[True, False])
    )
    return [Reason(**each) for each in counted.iter_rows(named=True)]


def _records(refused: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """With each refused row as JSON."""
    binary = [name for name, kind in table.schema.items() if kind == pl.Binary]
    records = (
        table[refused["row"]]
        .with_columns(pl.col(name).bin.encode("hex") for name in binary)
        .select(pl.struct(pl.all()).struct.json_encode())
        .to_series()
    )
    return refused.with_columns(record=records)


def _reasons(refused: pl.DataFrame) -> str:
    return "; ".join(
        f"{each.rows:,} rows with {each.column} {each.found!r}: {each.reason}"
        if each.found
        else f"{each.rows:,} rows with {each.column} {each.reason}"
        for each in reasons(refused)
    )


def _among(refused: pl.DataFrame, broken: pl.DataFrame) -> pl.DataFrame:
    """Both together, by their rows in the file: ``refused`` counts without the broken ones."""
    if not broken.height:
        return refused
    gaps = broken["row"].sort().to_numpy() - np.arange(broken.height)
    before = np.searchsorted(gaps, refused["row"].to_numpy(), side="right")
    shifted = refused.with_columns(row=refused["row"] + pl.Series(before, dtype=pl.Int64))
    return pl.concat([shifted, broken]).sort("row")


def _written(rows: pl.DataFrame, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.select(COLUMNS).write_parquet(path)
    return path


def _quarantine(refused: pl.DataFrame, folder: Path) -> None:
    """Write the rejected rows of this log, and remove those of an earlier one."""
    place = folder / "refused.parquet"
    place.unlink(missing_ok=True)
    if refused.height:
        folder.mkdir(parents=True, exist_ok=True)
        refused.write_parquet(place)
