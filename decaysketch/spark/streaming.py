"""Structured Streaming into a stored table of sketches: at least once is exactly once here.

    query = (
        logs.writeStream.foreachBatch(merge_into("/tables/ward-7", params, mapping, by=["path"]))
        .option("checkpointLocation", "/tables/ward-7.checkpoint")
        .start()
    )

Every micro-batch becomes one sketch a key, built as a batch job builds them, and a run of the table
(:meth:`decaysketch.spark.tables.SketchTable.append`). Spark runs a batch again when it cannot know
whether it was finished. A sketch takes that, and rows that come late or several times, without a
watermark and without a state of what was seen: whatever is killed when, the table ends with the
bytes that one batch build of all rows gives.

*Counts* (``rows`` and its like) are of deliveries and would count twice. So a version of the table
also says which batch of which query it was made by, in the same file and at the same moment. A
batch that is there already is merged again, which changes no sketch, with counts of 0. (Merged and
not skipped: a checkpoint that was deleted under a query's name makes other batches of the same
numbers.)

*Sites.* Where a family counts by site, a state replaces an older one of its name and never adds to
it; so every micro-batch is counted under an epoch that follows from the query and its number. A
batch that is run again gives the same states, and the sum of all is what one build counts, within
the same bounds. What it costs is a state for each site and batch: a ``horizon`` ends those that no
question reaches any more, and the capacity has to hold the others.

*Bounded.* Workers hold the keys of one batch; the driver holds names and counts. Every batch adds a
run, and runs of similar size are merged (:func:`runs_to_merge`), so that a table of size B into
which batches of size d went has at most ``max(most_runs, 2 + log3(B / d))`` of them, and a byte was
rewritten ``log1.5(B / d)`` times at most.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from decaysketch.batch import BuiltWith, ColumnMapping, RowFilter, epoch_of
from decaysketch.errors import IncompatibleSketchError
from decaysketch.families import Recipe, recipe_of
from decaysketch.spark.build import sketch_table
from decaysketch.spark.tables import SketchTable, TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["merge_into", "merge_rows", "runs_to_merge", "sketch_batches"]

#: What ``foreachBatch`` calls, with a micro-batch and its number.
BatchSink: TypeAlias = "Callable[[DataFrame, int], None]"

_QUERY_ID = "sql.streaming.queryId"  # of the thread that runs a micro-batch


def merge_into(
    path: str | os.PathLike[str],
    params: BuiltWith,
    mapping: ColumnMapping,
    by: Sequence[str] = (),
    *,
    now: int | None = None,
    only: RowFilter | None = None,
    refused: Literal["raise", "count"] = "raise",
    query: str | None = None,
    also: Sequence[BatchSink] = (),
    most_runs: int = 8,
    keep: int = 16,
    wait_s: float = 60.0,
) -> BatchSink:
    """A function for ``foreachBatch`` that merges rows of a log into a table of sketches.

    Args:
        path: the table; made if it is not there.
        params, mapping, by, now, only, refused: see :class:`decaysketch.batch.KeyedBuilder`. With
            ``refused="raise"`` a row that is refused ends the query, and ends it again when it is
            started; with "count" it is left out and counted.
        query, also, most_runs, keep, wait_s: see :func:`merge_rows`.

    Raises:
        IncompatibleSketchError: the table's sketches were built with other parameters.
        TableError: ``path`` is something else, or its keys are other columns.
    """
    recipe = recipe_of(params)
    sink = merge_rows(
        path, recipe, by, query=query, also=also, most_runs=most_runs, keep=keep, wait_s=wait_s
    )
    return sketch_batches(
        sink, recipe, mapping, by, now=now, only=only, refused=refused, query=query
    )


def sketch_batches(
    sink: BatchSink,
    params: BuiltWith,
    mapping: ColumnMapping,
    by: Sequence[str] = (),
    *,
    now: int | None = None,
    only: RowFilter | None = None,
    refused: Literal["raise", "count"] = "raise",
    query: str | None = None,
) -> BatchSink:
    """A function for ``foreachBatch`` that builds one sketch a key and hands them on.

    Args:
        sink: given the sketches, a lazy DataFrame of one row a key, and the number of the batch;
            must bear to be given a batch again. See :func:`merge_rows`, and
            :func:`decaysketch.spark.source.post_rows`.
        params, mapping, by, now, only, refused: see :func:`merge_into`.
        query: see :func:`merge_rows`; only where the family counts by site.
    """
    recipe = recipe_of(params)
    sited = recipe.kind.input.sited

    def build(batch: DataFrame, batch_id: int) -> None:
        epoch = epoch_of(query or _query_id(batch), batch_id) if sited else 0
        rows = sketch_table(
            batch.sparkSession, batch, recipe, mapping, by, now=now, only=only, refused=refused,
            epoch=epoch,
        )  # fmt: skip
        sink(rows, batch_id)

    return build


@dataclass(frozen=True)
class _Merger:
    path: str
    recipe: Recipe
    by: tuple[str, ...]
    query: str | None
    also: tuple[BatchSink, ...]
    most_runs: int
    wait_s: float

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        session = rows.sparkSession
        query = self.query or _query_id(rows)
        table = self.table()
        table = table.append(
            rows,
            {"query": query, "batch": batch_id},
            applied=(query, batch_id),
            wait_s=self.wait_s,
        )
        try:
            if table.added and self.also:
                added = table.stored(session, table.added)
                for sink in self.also:
                    sink(added, batch_id)
        finally:  # a sink that fails again and again must not make the table grow
            sizes = [run.size for run in table.partitions[""].runs]
            if last := runs_to_merge(sizes, self.most_runs):
                table.compact(session, partitions=[""], last=last, wait_s=self.wait_s)

    def table(self) -> SketchTable:
        recipe = self.recipe
        return SketchTable.open(self.path, id_key=recipe.params.id_key, decay=recipe.decay)


def merge_rows(
    path: str | os.PathLike[str],
    recipe: Recipe,
    by: Sequence[str] = (),
    *,
    query: str | None = None,
    also: Sequence[BatchSink] = (),
    most_runs: int = 8,
    keep: int = 16,
    wait_s: float = 60.0,
) -> BatchSink:
    """A function for ``foreachBatch`` that merges rows that are sketches into a table of them.

    Args:
        path: the table; made if it is not there.
        recipe: what the sketches are built by.
        by: the key columns.
        query: a name by which batches are told from those of other queries into the same table;
            None: the query's id, which its checkpoint keeps. Spark Connect does not tell it, so
            that a name is needed there.
        also: given what each batch added, read back from the table, once it is in there.
        most_runs: more runs than these are merged.
        keep: versions of the table that stay readable, where it is made here. Every batch makes
            one or two, and a reader must be done before ``keep`` more of them.
        wait_s: patience with another writer to the table; then the query ends with TableBusyError.

    Raises:
        IncompatibleSketchError: the table's sketches were built with other parameters.
        ParameterError: a family whose merge is not idempotent: a batch may be merged again.
        TableError: ``path`` is something else, or its keys are other columns.
    """
    recipe.kind.check_deliverable("a streaming query")
    if most_runs < 1:
        raise TableError(f"most_runs is {most_runs}; expected at least 1")
    merger = _Merger(
        os.fspath(path), recipe, tuple(by), query, tuple(also), most_runs, wait_s
    )  # fmt: skip
    if not SketchTable.exists(path):
        try:
            SketchTable.create(path, recipe, by, keep=keep)
        except TableError:
            if not SketchTable.exists(path):  # else another query made it meanwhile
                raise
    table = merger.table()
    if differences := recipe.differences(table.recipe):
        raise IncompatibleSketchError(differences)
    if table.by != tuple(by):
        raise TableError(f"{table.path} has a sketch for each {table.by}; expected {tuple(by)}")
    return merger


def runs_to_merge(sizes: Sequence[int], most: int) -> int:
    """How many of the last runs to merge into one, 0 for none.

    All at the end of which each is at most twice as large as all after it together. So what is
    rewritten becomes larger by half at least, and a byte is rewritten a logarithmic number of
    times; and runs that stay beyond ``most`` are each more than twice as large as all after them.

    Args:
        sizes: of all runs, the oldest first.
        most: so many may stay.
    """
    if len(sizes) <= most:
        return 0
    count, total = 1, sizes[-1]
    while count < len(sizes) and sizes[-count - 1] <= 2 * total:
        total += sizes[-count - 1]
        count += 1
    return count if count > 1 else 0


def _query_id(rows: DataFrame) -> str:
    from pyspark.errors import PySparkException

    try:
        found = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    except PySparkException:  # Spark Connect has no context
        found = None
    if found is None:
        raise TableError("the query's id is not known here; give merge_into a name, query=...")
    return str(found)
