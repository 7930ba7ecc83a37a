"""Functions that an engine runs in its workers: batches in, batches out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from decaysketch.errors import ObservationError, ParameterError
from decaysketch.families import BuiltWith, Params, recipe_of
from decaysketch.tables.columns import Entry, is_binary, is_text
from decaysketch.tables.filters import ColumnStatistics, RowFilter
from decaysketch.tables.keyed import KeyedBuilder
from decaysketch.tables.log_times import ticks_of
from decaysketch.tables.mapping import ColumnMapping
from decaysketch.tables.rejections import Refusals

__all__ = [
    "REFUSAL_FIELDS",
    "FileSplit",
    "file_builder",
    "file_refusal_finder",
    "matching_row_groups",
    "open_parquet",
    "partial_builder",
    "records_of",
    "refusal_finder",
]

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_ROWS_AT_A_TIME = 1 << 18  # rows read from a file before they are folded in
_REFUSALS_AT_A_TIME = 1_000
_BUFFER_BYTES = 1 << 20  # of a column that is being read


def partial_builder(
    params: BuiltWith,
    mapping: ColumnMapping,
    keys: Sequence[str] = (),
    *,
    now: int | None = None,
    only: RowFilter | None = None,
    refused: Literal["raise", "count"] = "raise",
    memory_bytes: int | None = None,
    epoch: int = 0,
) -> BatchFunction:
    """Return a function from log batches to partial sketches, one for each key in those batches.

    Digests, which a merge recomputes, are null. For a family that counts by site, a call must
    receive all rows for each key and site that it receives, in key order.
    """

    def build_partials(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        builder = KeyedBuilder(
            params, mapping, keys, now=now, only=only, refused=refused, memory_bytes=memory_bytes,
            epoch=epoch,
        )  # fmt: skip
        for batch in batches:
            builder.add(batch)
            if builder.full and builder.sited:
                yield from builder.finished(digests=False)
            elif builder.full:
                yield from builder.batches(digests=False)
                builder.clear()
        yield from builder.batches(digests=False, forget=True)

    return build_partials


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A run of row groups in one Parquet file: the unit of work for :func:`file_builder`.

    Attributes:
        path: a path, or a URI that pyarrow knows a filesystem for (``s3://``, ``hdfs://``,
            ``gs://``, ``file://``).
        row_groups: numbers of consecutive row groups.
        first_row: the row in the file that the first group starts with.
    """

    path: str
    row_groups: tuple[int, ...]
    first_row: int


def file_builder(
    splits: Sequence[FileSplit],
    params: BuiltWith,
    mapping: ColumnMapping,
    keys: Sequence[str] = (),
    *,
    now: int | None = None,
    only: RowFilter | None = None,
    refused: Literal["raise", "count"] = "raise",
    memory_bytes: int | None = None,
) -> BatchFunction:
    """Return a function from split numbers (column ``id``) to partial sketches for their content,
    with null digests.

    The rows go from the file straight into the sketches, so an engine does not have to read and
    forward them. Row groups are skipped if their statistics exclude every row that ``only``
    accepts. The files must be readable where the function runs. The last splits and row groups come
    first: most logs are written in time order, and the latest rows exclude most earlier ones.

    Raises:
        ParameterError: the family counts by site. A site's rows may be in several splits.
    """
    if (recipe := recipe_of(params)).kind.input.sited:
        raise ParameterError(
            f"the family {recipe.family!r} counts by site; its rows are read by partial_builder, "
            "all of a site by one call"
        )

    def build_partials(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        builder = KeyedBuilder(
            params, mapping, keys, now=now, only=only, refused=refused, memory_bytes=memory_bytes
        )
        for batch in batches:
            for number in sorted(batch.column("id").to_pylist(), reverse=True):
                split = splits[number]
                for first_row, rows in _read_split(split, builder):
                    try:
                        builder.add(rows)
                    except ObservationError as fault:
                        place = f"{split.path}, rows from {first_row}: "
                        raise ObservationError(
                            place + str(fault), column=fault.column, row=fault.row,
                            value=fault.value,
                        ) from None  # fmt: skip
                    if builder.full:
                        yield from builder.batches(digests=False)
                        builder.clear()
        yield from builder.batches(digests=False)

    return build_partials


def _read_split(split: FileSplit, builder: KeyedBuilder) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches of the required columns, each with its first row number in the file."""
    named = (*builder.mapping.ids, *builder.mapping.key, *builder.keys, *builder.text_columns)
    with open_parquet(split.path, named) as file:
        schema = file.schema_arrow
        for name in builder.columns:
            if name not in schema.names:
                raise ParameterError(
                    f"{split.path} has no column {name!r}; it has {', '.join(schema.names)}"
                )
        chosen = set(
            matching_row_groups(
                file, builder.recipe.params, builder.mapping, builder.only, split.row_groups
            )
        )
        sizes = [file.metadata.row_group(group).num_rows for group in split.row_groups]
        starts = accumulate(sizes, initial=split.first_row)
        for group, at in sorted(zip(split.row_groups, starts, strict=False), reverse=True):
            if group not in chosen:
                continue
            for batch in file.iter_batches(
                _ROWS_AT_A_TIME, row_groups=[group], columns=builder.columns
            ):
                yield at, batch
                at += batch.num_rows


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters or more: a drive is no scheme


def open_parquet(path: str, named: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a Parquet file by a path, or by a URI that pyarrow knows a filesystem for.

    Args:
        path: the path or URI.
        named: columns that name rows. Text and bytes among them are read as dictionaries.
    """
    filesystem, where = None, path
    if _SCHEME.match(path):
        filesystem, where = fs.FileSystem.from_uri(path)
    # Without these two a row group's columns are read whole before the first batch of it.
    options: dict[str, object] = {
        "filesystem": filesystem, "pre_buffer": False, "buffer_size": _BUFFER_BYTES,
        "coerce_int96_timestamp_unit": "us",  # they are nanoseconds, which wrap around in 2262
    }  # fmt: skip
    file = pq.ParquetFile(where, **options)
    schema = file.schema_arrow
    text = [
        name
        for name in dict.fromkeys(named)
        if name in schema.names and schema.field(name).type in (pa.string(), pa.binary())
    ]
    if not text:
        return file
    with file:
        return pq.ParquetFile(where, metadata=file.metadata, read_dictionary=text, **options)


def matching_row_groups(
    file: pq.ParquetFile,
    params: Params,
    mapping: ColumnMapping,
    only: RowFilter | None,
    row_groups: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Return a file's row groups that, by their statistics, may contain a matching row.

    Args:
        file: a Parquet file.
        params, mapping: define the times in the filter and in the file.
        only: the filter. None accepts every row.
        row_groups: the candidates. None: all.
    """
    groups = range(file.metadata.num_row_groups) if row_groups is None else row_groups
    if only is None:
        return tuple(groups)
    return tuple(
        group
        for group in groups
        if only.may_match(*_known_of(file, file.metadata.row_group(group), params, mapping, only))
    )


def _known_of(
    file: pq.ParquetFile,
    group: pq.RowGroupMetaData,
    params: Params,
    mapping: ColumnMapping,
    only: RowFilter,
) -> tuple[dict[str, ColumnStatistics], tuple[int, int] | None]:
    schema, wanted = file.schema_arrow, {*only.columns, mapping.time}
    known = {}
    for number in range(group.num_columns):
        column = group.column(number)
        leaf = file.schema.column(number)  # a field of a struct has a path, not a name, with a dot
        if leaf.name == leaf.path and leaf.name in wanted and column.is_stats_set:
            statistics = column.statistics
            limits = _limits_of(statistics, schema.field(column.path_in_schema).type)
            nulls = statistics.null_count if statistics.has_null_count else None
            known[column.path_in_schema] = ColumnStatistics(*limits, nulls, group.num_rows)
    times = known.get(mapping.time)
    if times is None or times.low is None or times.high is None:
        return known, None
    if mapping.fallback_time is not None and times.nulls != 0:
        return known, None  # times that stand in another column
    if is_text(schema.field(mapping.time).type):  # texts do not sort as times
        return known, None
    ends = pa.array([times.low, times.high], schema.field(mapping.time).type)
    try:
        low, high = ticks_of(
            mapping, ends, mapping.time, params, Refusals(len(ends), raises=True)
        ).tolist()
    except ObservationError:  # some row will be refused; which one, the rows will tell
        return known, None
    return known, (low, high)


_WITH_LIMITS = (
    pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_timestamp,
    pa.types.is_date, is_text, is_binary,  # writers cut long texts short, never to the wrong side
)  # fmt: skip


def _limits_of(statistics: pq.Statistics, kind: pa.DataType) -> tuple[Entry, Entry]:
    """Return the smallest and the largest entry, if they are known exactly."""
    try:
        low, high = statistics.min, statistics.max
    except (OverflowError, ValueError):  # beyond the years of Python's times; or no UTF-8
        return None, None
    if not statistics.has_min_max or pa.types.is_dictionary(kind):
        return None, None
    if pa.types.is_timestamp(kind) and kind.unit == "ns":  # a Python time has microseconds
        return None, None
    if any(known(kind) for known in _WITH_LIMITS):
        return low, high
    return None, None


# -------------------------------------------------------------------------------------- refusals

REFUSAL_FIELDS = (
    pa.field("place", pa.string()),
    pa.field("row", pa.int64()),
    pa.field("column", pa.string()),
    pa.field("reason", pa.string()),
    pa.field("record", pa.string()),
)


def refusal_finder(
    params: BuiltWith, mapping: ColumnMapping, *, only: RowFilter | None = None
) -> BatchFunction:
    """Return a function from log batches to one row for each rejected row.

    The result has :data:`REFUSAL_FIELDS`: ``place`` is null, ``row`` counts the rows in this call
    from 0, ``record`` is a JSON object with the columns that are read.
    """

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        builder = KeyedBuilder(params, mapping, only=only, refused="count")
        first_row = 0
        for batch in batches:
            yield from _refused_rows(builder, batch, None, first_row)
            first_row += batch.num_rows

    return find


def file_refusal_finder(
    splits: Sequence[FileSplit],
    params: BuiltWith,
    mapping: ColumnMapping,
    *,
    only: RowFilter | None = None,
) -> BatchFunction:
    """Return a function from split numbers (column ``id``) to their rejected rows.

    As :func:`refusal_finder`, but ``place`` is the file's path, and ``row`` its row from 0.
    """

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        builder = KeyedBuilder(params, mapping, only=only, refused="count")
        for batch in batches:
            for number in batch.column("id").to_pylist():
                split = splits[number]
                for first_row, rows in _read_split(split, builder):
                    yield from _refused_rows(builder, rows, split.path, first_row)

    return find


def records_of(rows: pa.Table) -> list[dict[str, object]]:
    """Return rows as Python objects. Times that Python cannot represent become their numbers."""
    try:
        return list(rows.to_pylist())
    except (OverflowError, ValueError):
        for number, field in enumerate(rows.schema):
            if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type):
                wide = pa.int32() if pa.types.is_date32(field.type) else pa.int64()
                rows = rows.set_column(number, field.name, rows.column(number).cast(wide))
        return list(rows.to_pylist())


def _refused_rows(
    builder: KeyedBuilder, batch: pa.RecordBatch, place: str | None, first_row: int
) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches([batch])
    log = builder.mapping.read(table, builder.recipe, only=builder.only, refused=builder.refused)
    faults = log.refusals.refusals()
    for start in range(0, len(faults), _REFUSALS_AT_A_TIME):
        some = faults[start : start + _REFUSALS_AT_A_TIME]
        rows = [fault.row for fault in some]
        records = records_of(table.select(builder.columns).take(rows))
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([place] * len(some), pa.string()),
                pa.array([first_row + row for row in rows], pa.int64()),
                pa.array([fault.field for fault in some], pa.string()),
                pa.array([fault.sentence for fault in some], pa.string()),
                pa.array(map(_as_json, records), pa.string()),
            ],
            schema=pa.schema(REFUSAL_FIELDS),
        )


def _as_json(record: dict[str, object]) -> str:
    """Return values that JSON cannot express (NaN, infinities, times, decimals, bytes) as text."""
    return json.dumps({name: _plain(entry) for name, entry in record.items()})


def _plain(entry: object) -> object:
    if entry is None or isinstance(entry, (bool, int, str)):
        return entry
    if isinstance(entry, float):
        return entry if math.isfinite(entry) else str(entry)
    return entry.hex() if isinstance(entry, bytes) else str(entry)
