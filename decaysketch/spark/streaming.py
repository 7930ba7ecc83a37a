"""Structured Streaming into a stored sketch table: at least once is exactly once here.

    query = (
        logs.writeStream.foreachBatch(merge_into("/tables/ward-7", params, mapping, by=["path"]))
        .option("checkpointLocation", "/tables/ward-7.checkpoint")
        .start()
    )

Every micro-batch becomes one sketch per key, built as in a batch job, and a run in the table
(:meth:`decaysketch.spark.tables.SketchTable.append`). Spark runs a batch again if it cannot know
whether the batch was finished. A sketch tolerates that. It also tolerates late and repeated rows,
without a watermark and without state about earlier rows. If any process is killed at any time, the
table ends with the same bytes as one batch build over all rows.

*Counts* (``rows`` and the like) count deliveries and would count twice. So a commit also records
the batch and the query that made it, as an application transaction of Delta. A batch that
is there already is merged again with counts of 0. That changes no sketch. (It is merged and not
skipped, because after a deleted checkpoint a query makes other batches with the same numbers under
its name.)

*Sites.* If a family counts by site, a state replaces an older one with its name and never adds to
it. So every micro-batch is counted under an epoch that follows from the query and its number. A
batch that runs again gives the same states, and their sum equals the counts from one build, within
the same bounds. The cost is a state for each site and batch. A ``horizon`` ends the states that no
query reaches any more, and the capacity has to cover the others.

*Bounded.* Workers store the keys of one batch. The driver stores names and counts. Every batch adds
a run, and runs with similar sizes are merged (:func:`runs_to_merge`). So a table with size B that
received batches with size d has at most ``max(most_runs, 2 + log3(B / d))`` runs, and a byte was
rewritten ``log1.5(B / d)`` times at most.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from decaysketch.errors import IncompatibleSketchError
from decaysketch.families import Recipe, recipe_of
from decaysketch.spark.build import sketch_table
from decaysketch.spark.tables import SketchTable, TableError
from decaysketch.tables import BuiltWith, ColumnMapping, RowFilter, epoch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["merge_into", "merge_rows", "runs_to_merge", "sketch_batches"]

#: A function for ``foreachBatch``, called with a micro-batch and its number.
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
    """Return a function for ``foreachBatch`` that merges log rows into a sketch table.

    Args:
        path: the table. It is created if it does not exist.
        params, mapping, by, now, only, refused: see :class:`decaysketch.tables.KeyedBuilder`. With
            ``refused="raise"`` a rejected row ends the query, and ends it again at the next start.
            With "count" it is dropped and counted.
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
    """Return a function for ``foreachBatch`` that builds one sketch per key and forwards them.

    Args:
        sink: receives the sketches, a lazy DataFrame with one row per key, and the batch number. It
            must tolerate a repeated batch. See :func:`merge_rows`, and
            :func:`decaysketch.spark.source.post_rows`.
        params, mapping, by, now, only, refused: see :func:`merge_into`.
        query: see :func:`merge_rows`. Only if the family counts by site.
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
    """Return a function for ``foreachBatch`` that merges rows with sketches into a sketch table.

    Args:
        path: the table. It is created if it does not exist.
        recipe: the sketch configuration.
        by: the key columns.
        query: a name that distinguishes its batches from other queries' batches into the same
            table. None: the query's id. The checkpoint stores it. Spark Connect does not report it,
            so a name is needed there.
        also: receive the rows that each batch added, read back from the table after the change.
        most_runs: more runs than these are merged.
        keep: versions of the table that stay readable, if it is created here. Every batch makes one
            or two, and a reader must be done before ``keep`` more of them.
        wait_s: time limit for another writer to the table. Then the query ends with TableBusyError.

    Raises:
        IncompatibleSketchError: the table's sketches were built with other parameters.
        ParameterError: the family's merge is not idempotent. A batch may be merged again.
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
            if not SketchTable.exists(path):  # else another query has just made it
                raise
    table = merger.table()
    if differences := recipe.differences(table.recipe):
        raise IncompatibleSketchError(differences)
    if table.by != tuple(by):
        raise TableError(f"{table.path} has a sketch for each {table.by}; expected {tuple(by)}")
    return merger


def runs_to_merge(sizes: Sequence[int], most: int) -> int:
    """Return how many of the last runs to merge into one, 0 for none.

    It chooses the longest end of the list in which each run is at most twice as large as all after
    it together. So a rewritten run becomes larger by half at least, and a byte is rewritten
    logarithmically often. Runs that stay beyond ``most`` are each more than twice as large as all
    after them.

    Args:
        sizes: all run sizes, the oldest first.
        most: this many may stay.
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
