"""Write and read a sketch table's rows as Parquet. See ``tables.py``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from decaysketch.core.codec.reading import HEAD_BYTES, fingerprint_of
from decaysketch.errors import IncompatibleSketchError
from decaysketch.families import Recipe, family_of
from decaysketch.spark._log import COLUMNS, COUNTS, File, Run, TableError
from decaysketch.spark._names import quoted
from decaysketch.spark._storage import Storage
from decaysketch.tables import RESULT_FIELDS, key_fields, merge_blobs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "Expected",
    "Rows",
    "keys_of",
    "merged",
    "order_of",
    "parquet_files",
    "read_run",
    "row_schema",
    "selected",
    "without_counts",
    "written_run",
]


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected first bytes in every sketch of a table.

    Attributes:
        family: from the table's sketch configuration.
        fingerprint: its parameters' fingerprint. None if the sketch configuration needs a secret.
    """

    family: str
    fingerprint: bytes | None

    def check(self, head: bytes) -> None:
        """Reject a sketch with another family or fingerprint.

        Args:
            head: its first ``HEAD_BYTES``.

        Raises:
            CorruptSketchError, IncompatibleSketchError: it is no sketch, or another one.
        """
        found = family_of(head)
        if found != self.family:
            raise IncompatibleSketchError({"family": (self.family, found)})
        fingerprint = fingerprint_of(head)
        if self.fingerprint is not None and fingerprint != self.fingerprint:
            raise IncompatibleSketchError(
                {"fingerprint": (self.fingerprint.hex(), fingerprint.hex())}
            )


#: Rows to store: a (lazy) DataFrame, or Arrow.
Rows: TypeAlias = "DataFrame | pa.Table | pa.RecordBatchReader"

_ROWS_AT_A_TIME = 256


def row_schema(schema: pa.Schema, by: Sequence[str]) -> pa.Schema:
    """Return the table schema for rows or files with this schema.

    Raises:
        TableError: a column is missing.
        ParameterError: a column cannot be a group key.
    """
    if missing := {*by, *COLUMNS} - {*COUNTS[3:], *schema.names}:
        raise TableError(f"rows to be stored lack the columns {', '.join(sorted(missing))}")
    fields = [
        # Spark's usual form of an instant in Parquet, which does not say that it is UTC.
        pa.field(field.name, pa.timestamp("us", "UTC"))
        if schema.field(field.name).type == pa.timestamp("ns")
        else field
        for field in key_fields(schema, by)
    ]
    return pa.schema([*fields, *RESULT_FIELDS])


def selected(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return a table's columns in order. A missing count is 0."""
    from pyspark.sql.functions import col, lit

    def column(name: str) -> Column:
        if name in by or name in rows.columns:
            return col(quoted(name))
        return lit(0).cast("bigint").alias(name)

    return rows.select(*map(column, (*by, *COLUMNS)))


def without_counts(rows: Rows) -> Rows:
    """Return the same rows, with all counts 0."""
    if isinstance(rows, pa.RecordBatchReader):
        return without_counts(rows.read_all())
    if isinstance(rows, pa.Table):
        nothing = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
        for name in COUNTS:
            if name in rows.column_names:
                rows = rows.set_column(rows.column_names.index(name), name, nothing)
        return rows
    from pyspark.sql.functions import lit

    return rows.withColumns({name: lit(0).cast("bigint") for name in COUNTS})


def parquet_files(storage: Storage, folder: str) -> list[str]:
    """Return the row files in a folder, in name order."""
    return [
        f"{folder}/{name}"
        for name in sorted(storage.entries(folder))
        if name.endswith(".parquet") and not name.startswith(("_", "."))
    ]


def read_run(storage: Storage, run: Run, schema: pa.Schema) -> pa.Table:
    """Read all rows in a run, by the table's schema."""
    tables = []
    for file in run.files:
        with storage.open(file.path) as source:
            table = pq.read_table(source, columns=schema.names, coerce_int96_timestamp_unit="us")
            tables.append(_conformed(table, schema))
    return pa.concat_tables(tables)


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return columns in their order and types. A missing count is 0."""
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.repeat(pa.scalar(0, pa.int64()), table.num_rows))
            continue
        column = table.column(field.name)
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.timestamp("us", column.type.tz))
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def written_run(
    storage: Storage, folder: str, rows: Rows, by: Sequence[str], expected: Expected
) -> tuple[Run, pa.Schema]:
    """Write rows to a new folder. Return the run, and its table's schema.

    Raises:
        TableError: they are no table rows, two rows have the same key, or the engine wrote them to
            an invisible place.
        IncompatibleSketchError: their sketches have another family, or other parameters.
        CorruptSketchError: they are no sketches.
    """
    if isinstance(rows, pa.Table):
        rows = rows.to_reader()
    if isinstance(rows, pa.RecordBatchReader):
        schema = row_schema(rows.schema, by)
        storage.make(folder)
        with (
            storage.create(f"{folder}/part-00000.parquet") as sink,
            pq.ParquetWriter(sink, schema) as writer,
        ):
            for batch in rows:
                writer.write_table(_conformed(pa.Table.from_batches([batch]), schema))
    else:
        # An empty data frame with this schema: an action on this one would end its observations.
        empty = rows.sparkSession.createDataFrame([], rows.schema)
        schema = row_schema(empty.toArrow().schema, by)
        selected(rows, by).write.mode("error").parquet(storage.uri(folder))
    written = parquet_files(storage, folder)
    if not written:
        raise TableError(
            f"this program cannot see the files written to {storage.uri(folder)}; it and the "
            "engine's workers must share a file system"
        )
    counts = dict.fromkeys(("sketches", *COUNTS, "sketch_bytes"), 0)
    entries, keys, files = storage.entries(folder), [], []
    for path in written:
        before = counts["sketches"]
        keys.append(_checked(storage, path, counts, by, expected))
        size = entries[path.rpartition("/")[2]].size
        files.append(File(path, size, counts["sketches"] - before))
    _refuse_repeated(keys, by, counts["sketches"])
    storage.keep(*written)
    return Run(tuple(files), counts), schema


def _checked(
    storage: Storage, file: str, counts: dict[str, int], by: Sequence[str], expected: Expected
) -> pa.Table:
    """Check a file's rows, some at a time, and add them up. Return their keys."""
    keys = []
    with (
        storage.open(file) as source,
        pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as parquet,
    ):
        for batch in parquet.iter_batches(_ROWS_AT_A_TIME, columns=[*by, *COUNTS, "sketch"]):
            blobs = batch.column("sketch")
            if blobs.null_count:
                raise TableError("a sketch to be stored is missing")
            for head in pc.binary_slice(blobs, 0, HEAD_BYTES).unique().to_pylist():
                expected.check(head)
            counts["sketches"] += len(blobs)
            counts["sketch_bytes"] += pc.sum(pc.binary_length(blobs)).as_py() or 0
            for name in COUNTS:
                counts[name] += pc.sum(batch.column(name)).as_py() or 0
            keys.append(batch.select(list(by)))
        schema = pa.schema([parquet.schema_arrow.field(name) for name in by])
    return pa.Table.from_batches(keys, schema)


def _refuse_repeated(keys: Sequence[pa.Table], by: Sequence[str], rows: int) -> None:
    different = min(rows, 1)
    if by:
        different = pa.concat_tables(keys).group_by(list(by)).aggregate([]).num_rows
    if different < rows:
        raise TableError(
            f"{rows} rows to be stored have {different} different keys; expected one row a key"
        )


def keys_of(table: pa.Table, by: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Return each row's key."""
    if not by:
        return iter([()] * table.num_rows)
    return zip(*(table.column(name).to_pylist() for name in by), strict=True)


def order_of(table: pa.Table, by: Sequence[str]) -> pa.Array:
    """Return the row numbers in key order, null first."""
    if not by:
        return pa.array(range(table.num_rows), pa.int64())
    keys = [(name, "ascending", "at_start") for name in by]
    return pc.sort_indices(table.select(list(by)), keys)


def merged(table: pa.Table, by: Sequence[str], recipe: Recipe) -> pa.Table:
    """Return one row for each key, in this process's memory."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, key in enumerate(keys_of(table, by)):
        groups.setdefault(key, []).append(number)
    firsts = pa.array([rows[0] for rows in groups.values()], pa.int64())
    columns = [table.column(name).take(firsts) for name in by]
    for name in COUNTS:
        counts = table.column(name).to_pylist()
        sums = [sum(counts[n] for n in rows) for rows in groups.values()]
        columns.append(pa.array(sums, pa.int64()))
    column = table.column("sketch")
    blobs = [
        merge_blobs((column[n].as_py() for n in rows), recipe=recipe) for rows in groups.values()
    ]
    digests = [recipe.decode(blob).digest() for blob in blobs]
    columns += [pa.array(blobs, pa.binary()), pa.array(digests, pa.string())]
    return pa.Table.from_arrays(columns, schema=table.schema)
