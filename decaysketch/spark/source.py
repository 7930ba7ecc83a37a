"""``format("decaysketch")``: an aggregator as a data source in Spark.

    spark.dataSource.register(SketchDataSource)
    where = {"url": "https://aggregator.example", "stream": "ward-7", "keyFile": "/etc/ds.key"}
    table.dataframe(spark).write.format("decaysketch").options(**where).mode("append").save()
    spark.read.format("decaysketch").options(**where).load()

*Reading* gives a row ``stream, source, sketch, digest`` for each source in the stream, or with
``merged=true`` one row for the complete stream, with a null source.

*Writing* accepts three row kinds, batch or streaming:

- sketches, if there is a column ``sketch``: each is posted as it is.
- log rows, with an option ``mapping`` (:class:`decaysketch.tables.ColumnMapping` as JSON): each
  task builds sketches from its rows, with the stream's parameters, and posts them. This excludes
  families that count by site, because a task may have only a part of a site.
- with ``raw=true`` observations (columns ``value``, ``weight``, ``time``, ``id`` as in
  ``docs/http-api.md``). The aggregator builds sketches from them. Use it if the stream's ids are
  keyed by the aggregator's own secret.

``source`` names the source for all rows. ``sourceBy`` lists columns with values that name it, as in
``spark_jobs.publish``. Without either, a sketch table's key columns name the source.

*Guarantees.* When a task has ended, all its rows are on the aggregator's disk. There is no commit
to wait for and nothing to undo: ``commit`` does nothing, and posts before an ``abort`` stay. Both
are right because a repeated post, by a task, a batch or a job that runs again, changes nothing. So
a streaming query without watermark and without state is exact. Rows that the aggregator rejects
fail the task, with row and reason. Sound rows stay posted.

*Secrets* are never options, because plans and logs show these. ``keyFile`` and ``keyVariable`` name
the place where a task finds the API key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)

from decaysketch.client.posting import Poster, source_name
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.spark._aggregator import Address
from decaysketch.tables import RESULT_FIELDS, ColumnMapping, KeyedBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["Posted", "SketchDataSource", "post_rows"]

_SCHEMA = "stream string, source string, sketch binary, digest string"
_ARROW_SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string()), pa.field("source", pa.string()),
        pa.field("sketch", pa.binary()), pa.field("digest", pa.string()),
    ]
)  # fmt: skip
_RAW = ("value", "weight", "time", "id")
_ROWS_OF_A_POST = 100_000
_SOURCES_OF_A_TASK = 64
_MEMORY_BYTES = 1 << 28  # of sketches that a task builds, before it posts them
_RESULTS = frozenset(field.name for field in RESULT_FIELDS)


class SketchDataSource(DataSource):
    """The data source. See the module."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "decaysketch"

    def schema(self) -> str:
        """Return the schema for reading."""
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for the stream's sketches."""
        merged = _truth(self.options, "merged")
        sources = self.options.get("sources")
        names = None if sources is None else _names("sources", sources)
        if merged and names is not None:
            raise ParameterError("merged and sources are both given; the engine can merge sketches")
        return _Reader(Address.of_options(self.options), names, merged)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer for rows with this ``schema``."""
        return _Writer(self._plan(schema, overwrite))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Return the same, batch by batch."""
        return _StreamWriter(self._plan(schema, overwrite))

    def _plan(self, schema: StructType, overwrite: bool) -> _Plan:
        if overwrite:
            raise ParameterError(
                'mode is "overwrite"; expected "append", because posts cannot replace others'
            )
        options, columns = self.options, schema.names
        mapping = _mapping(options["mapping"]) if "mapping" in options else None
        raw = _truth(options, "raw")
        if (mapping is not None) + raw + ("sketch" in columns) != 1:
            raise ParameterError(
                "expected a column sketch, an option mapping, or raw=true, and one of them only; "
                f"the columns are {', '.join(columns)}"
            )
        source, by = options.get("source"), options.get("sourceBy")
        if source is not None and by is not None:
            raise ParameterError("source and sourceBy are both given")
        names = None if by is None else _names("sourceBy", by)
        if source is None and names is None:
            if "sketch" not in columns:
                raise ParameterError("expected an option source or sourceBy")
            names = tuple(name for name in columns if name not in _RESULTS)
        needed = [*(names or ()), *(mapping.names if mapping else _RAW if raw else ())]
        for name in needed:
            if name not in columns:
                raise ParameterError(f"no column {name!r}; there are {', '.join(columns)}")
        return _Plan(Address.of_options(options), source, names or (), mapping, raw)


def post_rows(**options: str) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that writes every batch with this source.

    ``merge_into(..., also=[post_rows(url=..., stream=...)])`` also uses it to post each batch's
    sketches.
    """

    def post(rows: DataFrame, batch_id: int) -> None:
        rows.sparkSession.dataSource.register(SketchDataSource)
        rows.write.format("decaysketch").options(**options).mode("append").save()

    return post


# ------------------------------------------------------------------------------------------ read


@dataclass
class _Sources(InputPartition):
    """The sources that one task reads. None: the merge over all."""

    names: tuple[str, ...] | None


@dataclass
class _Reader(DataSourceReader):
    address: Address
    names: tuple[str, ...] | None
    merged: bool

    def partitions(self) -> Sequence[InputPartition]:
        """Return the present sources, some for each task."""
        if self.merged:
            return [_Sources(None)]
        names = self.names
        if names is None:
            with self.address.connected() as aggregator:
                names = tuple(aggregator.sources())
        starts = range(0, max(len(names), 1), _SOURCES_OF_A_TASK)
        return [_Sources(names[start : start + _SOURCES_OF_A_TASK]) for start in starts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one batch for each source. A source that was revoked since has no row."""
        assert isinstance(partition, _Sources)
        with self.address.connected() as aggregator:
            for name in (None,) if partition.names is None else partition.names:
                found = aggregator.sketch(name)
                if found is not None:
                    row = {"stream": self.address.stream, "source": name}
                    row |= {"sketch": found[0], "digest": found[1]}  # type: ignore[dict-item]
                    yield pa.RecordBatch.from_pylist([row], schema=_ARROW_SCHEMA)


# ----------------------------------------------------------------------------------------- write


@dataclass
class Posted(WriterCommitMessage):
    """One task's posts."""

    sketches: int = 0
    observations: int = 0
    new: int = 0


@dataclass(frozen=True)
class _Plan:
    """The instructions for tasks and their rows."""

    address: Address
    source: str | None
    by: tuple[str, ...]
    mapping: ColumnMapping | None
    raw: bool

    def post(self, batches: Iterator[pa.RecordBatch]) -> Posted:
        posted = Posted()
        with self.address.connected() as aggregator:
            if self.mapping is not None:
                self._post_log(aggregator, batches, self.mapping, posted)
            else:
                post = self._post_raw if self.raw else self._post_sketches
                for batch in batches:
                    post(aggregator, batch, posted)
        return posted

    def _sources(self, batch: pa.RecordBatch) -> dict[str, list[int]]:
        """Return each source's rows."""
        if self.source is not None:
            return {self.source: list(range(batch.num_rows))}
        if not self.by:
            return {source_name(()): list(range(batch.num_rows))}
        sources: dict[str, list[int]] = {}
        columns = [batch.column(name).to_pylist() for name in self.by]
        for number, key in enumerate(zip(*columns, strict=True)):
            sources.setdefault(source_name(key), []).append(number)
        return sources

    def _post_sketches(self, aggregator: Poster, batch: pa.RecordBatch, posted: Posted) -> None:
        blobs = batch.column("sketch")
        if blobs.null_count:
            raise ParameterError("a sketch to be posted is missing")
        for source, rows in self._sources(batch).items():
            receipt = aggregator.post(source, [blobs[row].as_py() for row in rows])
            posted.sketches += receipt.sketches
            posted.new += receipt.new

    def _post_log(
        self,
        aggregator: Poster,
        batches: Iterator[pa.RecordBatch],
        mapping: ColumnMapping,
        posted: Posted,
    ) -> None:
        recipe = aggregator.recipe()
        if recipe.kind.input.sited:
            raise ParameterError(
                f"the family {recipe.family!r} counts by site, and a site may have rows in several "
                "tasks; build its sketches by sketch_table or sketch_batches, and write those"
            )
        builder = KeyedBuilder(recipe, mapping, self.by, memory_bytes=_MEMORY_BYTES)
        for batch in batches:
            builder.add(batch)
            posted.observations += batch.num_rows
            if builder.full:
                self._post_built(aggregator, builder, posted)
        self._post_built(aggregator, builder, posted)

    def _post_built(self, aggregator: Poster, builder: KeyedBuilder, posted: Posted) -> None:
        for batch in builder.batches():
            self._post_sketches(aggregator, batch, posted)
        builder.clear()

    def _post_raw(self, aggregator: Poster, batch: pa.RecordBatch, posted: Posted) -> None:
        table = pa.Table.from_batches([batch])
        for source, rows in self._sources(batch).items():
            own = table.take(pa.array(rows, pa.int64())).select(list(_RAW))
            for start in range(0, len(rows), _ROWS_OF_A_POST):
                part = own.slice(start, _ROWS_OF_A_POST)
                fields = aggregator.post_observations(source, _arrow_stream(part))
                posted.observations += part.num_rows - fields["refused"]
                if fields["refused"]:
                    raise _refusal(fields, part)


def _arrow_stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _refusal(fields: dict[str, Any], part: pa.Table) -> ObservationError:
    first = fields["refusals"][0]
    record = part.slice(first["row"], 1).to_pylist()[0]
    return ObservationError(
        f"{fields['refused']} of {part.num_rows} observations were refused; the first, {record}: "
        f"{first['field']} is {first['reason']}, expected {first['expected']}",
        column=first["field"], row=first["row"], value=first["value"],
    )  # fmt: skip


@dataclass
class _Writer(DataSourceArrowWriter):
    plan: _Plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Post one task's rows."""
        return self.plan.post(iterator)


@dataclass
class _StreamWriter(DataSourceStreamArrowWriter):
    plan: _Plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Post the rows from one task in a batch."""
        return self.plan.post(iterator)


# --------------------------------------------------------------------------------------- options


def _truth(options: Any, name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ParameterError(f"the option {name} is {text!r}; expected true or false")
    return bool(text == "true")


def _names(option: str, text: str) -> tuple[str, ...]:
    """Parse a list in JSON, or names with commas between them."""
    if not text.lstrip().startswith("["):
        return tuple(name.strip() for name in text.split(",") if name.strip())
    try:
        names = json.loads(text)
    except ValueError as fault:
        raise ParameterError(f"the option {option} is not JSON: {fault}") from None
    if not all(isinstance(name, str) for name in names):
        raise ParameterError(f"the option {option} is {text}; expected a list of names")
    return tuple(names)


def _mapping(text: str) -> ColumnMapping:
    try:
        form = json.loads(text)
    except ValueError as fault:
        raise ParameterError(
            f"the option mapping is {text!r}; expected the fields of a ColumnMapping as JSON: "
            f"{fault}"
        ) from None
    return ColumnMapping.from_dict(form)
