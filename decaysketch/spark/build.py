"""Logs to sketch tables, and merged sketch tables: DataFrames in, DataFrames out.

A Parquet log needs no Spark reader: tasks receive the row groups to read, and read them directly
into sketches. Spark reads any other log and sends it to Python as Arrow batches. Either way a task
gives one small partial sketch for each of its keys. Partials are brought together by key, sorted,
and merged one key after the other. So neither many keys nor many partials per key need much memory.
The result does not depend on the cuts in the log, byte for byte.

Everything is lazy and uses only the DataFrame API, so it works under Spark Connect as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from decaysketch.errors import ParameterError
from decaysketch.families import Params, Recipe, recipe_of
from decaysketch.spark import pushdown
from decaysketch.spark._names import quoted
from decaysketch.spark.splits import (
    Log,
    ParquetTasks,
    TaskSplits,
    find_files,
    is_uri,
    parquet_tasks,
)
from decaysketch.tables import (
    RESULT_FIELDS,
    TALLY_FIELDS,
    BatchFunction,
    BuiltWith,
    ColumnMapping,
    RowFilter,
    file_builder,
    file_refusal_finder,
    key_fields,
    partial_builder,
    partition_merger,
    refusal_finder,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["detect_format", "merge_table", "read_log", "refusal_table", "sketch_table"]

MEMORY_BYTES = 1 << 29  # of partial sketches in one task, before it hands them on
_CORES_UNTOLD = 64
_PARTIALS_AT_ONCE = 256  # of one key in one task; more are merged in a tree

_FORMAT_OF_SUFFIX = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSED = re.compile(r"\.(gz|bz2|zst)$")
FORMATS = ("parquet", "csv", "json")
_SALT = "__salt"
TORN = "_corrupt_record"
"""The column of lines that Spark cannot read as a row of the schema, null in other rows."""


def sketch_table(
    session: SparkSession,
    log: Log | DataFrame,
    params: BuiltWith,
    mapping: ColumnMapping,
    by: Sequence[str] = (),
    *,
    now: int | None = None,
    only: RowFilter | None = None,
    refused: Literal["raise", "count"] = "raise",
    format: str | None = None,
    schema: str | None = None,
    read_in_workers: bool = True,
    tasks: int | None = None,
    memory_bytes: int = MEMORY_BYTES,
    salts: int | None = None,
    tally: bool = False,
    epoch: int = 0,
) -> DataFrame:
    """Return one sketch for each key in a log (lazily): the key columns, then ``RESULT_FIELDS``.

    Args:
        session: the Spark session.
        log: a DataFrame. Or a file, or a folder with files in one format, or several, as paths or
            URIs.
        params, mapping, by, now, only, refused: see :class:`decaysketch.tables.KeyedBuilder`.
        format: "parquet", "csv", "json" or any Spark format. None: by suffix.
        schema: column types for a CSV or JSON log (Spark DDL). None: inferred.
        read_in_workers: let tasks read Parquet files themselves, if the log allows it.
        tasks: number of tasks for a Parquet log. None: see
            :func:`decaysketch.spark.splits.parquet_tasks`.
        memory_bytes: a task whose sketches exceed this forwards them and starts again.
        salts: number of parts in which one key's partials are merged first. None: 1, more if there
            are hundreds of tasks.
        tally: see :func:`merge_table`.
        epoch: the sites' epoch, if the family counts by site. Give each log part that is built
            separately its own epoch (:func:`decaysketch.tables.epoch_of`).

    If the family counts by site, Spark reads the log, and brings the rows for each key and site
    together in time order. The counts then depend on the rows alone.

    Raises:
        FileNotFoundError, ParameterError: the log does not exist, or a column is not in it.
    """
    recipe = recipe_of(params)
    sited = recipe.kind.input.sited
    source = _source(
        session, log, recipe.params, mapping, only, by, format=format, schema=schema,
        read_in_workers=read_in_workers and not sited, tasks=tasks,
    )  # fmt: skip
    mapping = source.mapping
    keys = key_fields(mapping.typed_schema(source.schema), by)
    if sited:
        rows = _by_site(source.rows, mapping, by)
        function = partial_builder(
            recipe, mapping, by, now=now, only=only, refused=refused, memory_bytes=memory_bytes,
            epoch=epoch,
        )  # fmt: skip
        partials = rows.mapInArrow(function, _spark_schema(session, [*keys, *RESULT_FIELDS]))
        return merge_table(partials, by, recipe, salts=salts or 1, tally=tally)
    options: dict[str, Any] = {
        "now": now, "only": only, "refused": refused, "memory_bytes": memory_bytes
    }  # fmt: skip
    if source.parts is not None:
        function = file_builder(source.parts.splits, recipe, mapping, by, **options)
    else:
        function = partial_builder(recipe, mapping, by, **options)
    partials = source.run(function, _spark_schema(session, [*keys, *RESULT_FIELDS]))
    if salts is None:
        many = source.parts is not None and len(source.parts) > _PARTIALS_AT_ONCE
        salts = ceil(sqrt(len(source.parts))) if many and source.parts else 1
    return merge_table(partials, by, recipe, salts=salts, tally=tally)


def _by_site(rows: DataFrame, mapping: ColumnMapping, by: Sequence[str]) -> DataFrame:
    """Bring all rows for each key and site into one partition, in key, site and time order. Rows
    with one time may be in any order, which makes no difference.
    """
    from pyspark.sql import functions as F  # noqa: N812

    of_site = list(dict.fromkeys((*by, *(() if mapping.source is None else (mapping.source,)))))
    whole = [_compared_by_bytes(name, rows.schema) for name in of_site]
    timed = [name for name in (mapping.time, mapping.fallback_time) if name is not None]
    times = [F.col(quoted(name)) for name in timed]
    if len({rows.schema[name].dataType for name in timed}) == 1:
        times = [F.coalesce(*times)]
    together = rows.repartition(*whole) if whole else rows.repartition(1)
    return together.sortWithinPartitions(*whole, *times)


def merge_table(
    table: DataFrame, by: Sequence[str], recipe: Recipe, *, salts: int = 1, tally: bool = False
) -> DataFrame:
    """Return one sketch for each key in a sketch table (lazily): the same columns, with counts
    added up.

    Args:
        table: has the columns ``by`` and ``RESULT_FIELDS``. Others are dropped.
        by: key columns. None: one sketch over everything.
        recipe: the sketch configuration.
        salts: with more than 1, this many tasks first merge a key's sketches in as many parts. Use
            it for keys with thousands of sketches.
        tally: add ``TALLY_FIELDS``: the number of observations in each sketch and in its input.

    Raises:
        ParameterError: Spark compares the keys in another way, or the family's merge is not
            idempotent.
    """
    recipe.kind.check_deliverable("a table whose tasks may run again")
    names = [*by, *(field.name for field in RESULT_FIELDS)]
    columns = list(map(quoted, names))
    table = table.select(*columns)
    schema = table.schema
    keys = [_compared_by_bytes(name, schema) for name in by]
    merge = partition_merger(by, recipe)
    if salts > 1:
        from pyspark.sql import functions as F  # noqa: N812

        salted = table.withColumn(_SALT, F.spark_partition_id() % salts)
        parts = salted.repartition(_SALT, *keys).sortWithinPartitions(_SALT, *keys)
        table = parts.select(*columns).mapInArrow(merge, schema)
    if tally:
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StructType

        merge = partition_merger(by, recipe, tally=True)
        schema = StructType([*schema.fields, *from_arrow_schema(pa.schema(TALLY_FIELDS)).fields])
    if not keys:
        return table.repartition(1).mapInArrow(merge, schema)
    return table.repartition(*keys).sortWithinPartitions(*keys).mapInArrow(merge, schema)


def _compared_by_bytes(name: str, schema: StructType) -> Column:
    """Return a key column in which Spark's equality agrees with the library's. Otherwise rows
    with one key would mix with another's.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types

    kind = schema[name].dataType
    if isinstance(kind, types.FloatType | types.DoubleType):
        raise ParameterError(f"cannot merge by {name!r}, which is of type {kind.simpleString()}")
    column = F.col(quoted(name))
    if isinstance(kind, types.StringType) and kind != types.StringType():
        return F.collate(column, "UTF8_BINARY")
    return column


def refusal_table(
    session: SparkSession,
    log: Log | DataFrame,
    params: BuiltWith,
    mapping: ColumnMapping,
    *,
    only: RowFilter | None = None,
    format: str | None = None,
    schema: str | None = None,
    read_in_workers: bool = True,
    tasks: int | None = None,
) -> DataFrame:
    """Return a row for each log row that a build would reject (lazily).

    Columns: place (the file, or null if Spark read it), row (from 0, in the file or in the batch),
    column, reason, record (the columns read, as JSON). Arguments as for :func:`sketch_table`.
    """
    recipe = recipe_of(params)
    source = _source(
        session, log, recipe.params, mapping, only, (), format=format, schema=schema,
        read_in_workers=read_in_workers, tasks=tasks,
    )  # fmt: skip
    if source.parts is not None:
        function = file_refusal_finder(source.parts.splits, recipe, source.mapping, only=only)
    else:
        function = refusal_finder(recipe, source.mapping, only=only)
    return source.run(
        function, "place string, row long, column string, reason string, record string"
    )


@dataclass(frozen=True, slots=True)
class OfSplits:
    """A function for ``mapInArrow`` that receives the rows in a task's splits."""

    function: BatchFunction
    splits_of: TaskSplits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.function(self.splits_of(batches))


def detect_format(log: Log) -> str:
    """Return "parquet", "csv" or "json" (one object per line), from the suffixes of a log's files.

    Raises:
        FileNotFoundError: the log does not exist.
        ParameterError: the suffixes are unknown, or differ.
    """
    files = find_files(log) or []
    found = {PurePosixPath(_COMPRESSED.sub("", file.parts[-1])).suffix.lower() for file in files}
    formats = {_FORMAT_OF_SUFFIX.get(suffix) for suffix in found}
    if len(formats) == 1 and (only := formats.pop()) is not None:
        return only
    listed = ", ".join(suffix or "none" for suffix in sorted(found)) or "no files"
    raise ParameterError(
        f"{log} has no known suffix ({listed}); give its format with --format (format=): "
        f"{', '.join(FORMATS)}"
    )


def read_log(
    session: SparkSession,
    log: Log,
    format: str,
    schema: str | None = None,
    *,
    base: str | Path | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read a log with Spark. Types in text formats are inferred unless ``schema`` (DDL) is given.

    Inference reads "0012" as the number 12, so text ids need a schema. A line in a text format that
    is no row, such as one with too few cells, is in the column :data:`TORN`. If ``log`` is part of
    a folder with columns in its subfolder names (``day=3``), ``base`` is that folder. ``options``
    are the reader's, such as ``sep``.
    """
    reader = session.read.format(format)
    if format in ("csv", "json"):
        # A line that is no row is kept as text, and rejected as any other row is.
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", TORN)
    if format == "csv":
        reader = reader.option("header", True).option("inferSchema", schema is None)
        reader = reader.option("columnPruning", False)  # with it, all rows seem to be whole
        reader = reader.options(**(options or {}))
    if base is not None:
        plain = isinstance(base, Path) or not is_uri(base)
        reader = reader.option(
            "basePath", f"file://{Path(base).absolute()}" if plain else str(base)
        )
    paths = [_for_spark(path) for path in ([log] if isinstance(log, str | Path) else log)]
    if format == "csv" and schema is None:
        schema = reader.load(paths).schema.toDDL()
    if schema is not None:
        whole = format not in ("csv", "json") or TORN in schema
        reader = reader.schema(schema if whole else f"{schema}, {quoted(TORN)} STRING")
    return reader.load(paths)


def _for_spark(path: str | Path) -> str:
    """Return a path for Spark's readers. They read brackets, braces, ``*`` and ``?`` as
    patterns.
    """
    if isinstance(path, str) and is_uri(path):
        return path
    return "file://" + re.sub(r"[\\{}\[\]*?]", r"\\\g<0>", str(Path(path).absolute()))


@dataclass(frozen=True, slots=True)
class _Source:
    """A function's input: rows that Spark reads, or part numbers for files.

    Attributes:
        rows: the rows, or part numbers.
        schema: of the log.
        mapping: with the declared columns that the log has.
        parts: the parts of files that tasks read.
    """

    rows: DataFrame
    schema: pa.Schema
    mapping: ColumnMapping
    parts: ParquetTasks | None

    def run(self, function: BatchFunction, schema: StructType | str) -> DataFrame:
        if self.parts is not None:
            function = OfSplits(function, TaskSplits(self.parts.starts))
        return self.rows.mapInArrow(function, schema)


def _source(
    session: SparkSession,
    log: Log | DataFrame,
    params: Params,
    mapping: ColumnMapping,
    only: RowFilter | None,
    by: Sequence[str],
    *,
    format: str | None,
    schema: str | None,
    read_in_workers: bool,
    tasks: int | None,
) -> _Source:
    others = (*by, *(only.columns if only is not None else ()))
    if isinstance(log, str | Path | Sequence):
        format = format or detect_format(log)
        files = find_files(log) if format == "parquet" and read_in_workers else None
        if files:
            parts = parquet_tasks(files, params, mapping, only, cores=_cores(session), tasks=tasks)
            if parts is not None:
                numbers = session.range(0, len(parts), 1, max(1, len(parts)))
                mapping = mapping.complete(params, parts.schema.names)
                _refuse_missing((*mapping.names, *others), parts.schema.names, f"{log}")
                return _Source(numbers, parts.schema, mapping, parts)
        log = read_log(session, log, format, schema)
    mapping = mapping.complete(params, log.columns)
    if TORN in log.columns and mapping.torn is None:
        mapping = replace(mapping, torn=TORN)
    wanted = list(dict.fromkeys((*mapping.names, *others)))
    _refuse_missing(wanted, log.columns, "the log")
    rows = pushdown.where(log, params, mapping, only).select(*map(quoted, wanted))
    # An empty data frame with this schema: an action on this one would end its observations.
    schema_of = session.createDataFrame([], rows.schema)
    return _Source(rows, schema_of.toArrow().schema, mapping, None)


def _refuse_missing(wanted: Sequence[str], there: Sequence[str], what: str) -> None:
    there = [name for name in there if name != TORN]
    wanted = [name for name in wanted if name != TORN]
    for name in wanted:
        if name not in there:
            raise ParameterError(f"{what} has no column {name!r}; it has {', '.join(there)}")
        if list(there).count(name) > 1:
            raise ParameterError(f"{what} has two columns {name!r}; rename one of them")


def _cores(session: SparkSession) -> int:
    from pyspark.errors import PySparkException

    try:
        return int(session.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect does not report the cores
        return _CORES_UNTOLD


def _spark_schema(session: SparkSession, fields: Sequence[pa.Field]) -> StructType:
    return session.createDataFrame(pa.schema(fields).empty_table()).schema
