"""Sketches in DuckDB: :func:`register` adds the functions from Spark to its SQL.

    >>> import duckdb, decaysketch.duckdb  # doctest: +SKIP
    >>> decaysketch.duckdb.register(connection)  # doctest: +SKIP

Each is a vectorised Python function: Arrow columns with up to 2,048 rows in, one column out. Names,
arguments and results are the same as in :mod:`decaysketch.spark.functions`, from the same query
table. The same functions compute them (:mod:`decaysketch.tables.sql`). DuckDB's Python functions
cannot be aggregates, so you merge sketches as a list, ``sketch_merge(list(sketch))``, and build
them with :func:`build`. :func:`decayed_sample` gives a sketch's rows with their masses as a table,
for your own SQL.

It needs pyarrow and duckdb. ``docs/engines.md`` shows the SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa

from decaysketch.core.log_columns import LogColumnArguments
from decaysketch.families import BuiltWith, Recipe
from decaysketch.tables import ColumnMapping
from decaysketch.tables.frames import Columns
from decaysketch.tables.relations import build_relation
from decaysketch.tables.samples import decayed_sample
from decaysketch.tables.sql import queries, query_syntax, sources, time_ranges
from decaysketch.tables.sql.queries import FUNCTIONS, FunctionError
from decaysketch.tables.sql.signatures import NAMES, recipes_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["build", "decayed_sample", "register"]

Function = Callable[..., pa.Array]


def register(connection: DuckDBPyConnection, streams: Sequence[BuiltWith] = ()) -> None:
    """Register the functions with a database, for this connection and its cursors.

    They are ``sketch_merge``, ``sketch_union``, ``sketch_info``, ``decayed_between``,
    ``decayed_compare``, ``decayed_query``, the functions for source maps
    (:mod:`decaysketch.tables.sql.sources`) and, in both forms, the query functions. If the same
    connection registers them again, they are replaced.

    Args:
        connection: a DuckDB connection.
        streams: parameters or sketch configurations for sketches that cannot be read without them:
            built under a secret id key, with a table as their decay, or with a fingerprint that
            replaces the parameters.
    """
    from duckdb import InvalidInputException
    from duckdb.func import FunctionNullHandling, PythonUDFType

    recipes = recipes_of(streams)
    functions: dict[str, tuple[Function, pa.DataType]] = {
        "sketch_merge": (_merging(recipes), pa.binary()),
        "sketch_union": (_uniting(recipes), pa.binary()),
        "sketch_info": (_describing(recipes), queries.INFO),
    }
    functions |= {name: (_asking(name, recipes), queries.answer_type(name)) for name in NAMES}
    of_moments = {time_ranges.BETWEEN: _between(recipes), time_ranges.COMPARE: _compare(recipes)}
    functions |= {name: (each, time_ranges.answer_type(name)) for name, each in of_moments.items()}
    functions[query_syntax.QUERY] = (_query(recipes), query_syntax.TYPE)
    functions |= {
        name: (_of_sources(name, recipes), sources.answer_type(name)) for name in sources.NAMES
    }
    answers = [pa.array([], kind) for _, kind in functions.values()]
    # By DuckDB's own reading of Arrow's types; by a cursor, as the connection may have a result
    # that is still read.
    kinds = connection.cursor().from_arrow(pa.table(answers, names=list(functions))).types
    for (name, (function, _)), kind in zip(functions.items(), kinds, strict=True):
        with suppress(InvalidInputException):  # it was not registered before
            connection.remove_function(name)
        connection.create_function(
            name, function, None, kind,
            type=PythonUDFType.ARROW, null_handling=FunctionNullHandling.SPECIAL,
        )  # fmt: skip


# DuckDB counts a function's parameters, a star as one, and accepts that many arguments or more.
# So it reports missing arguments itself. One more argument may be the confidence.


def _asking(called: str, recipes: Sequence[Recipe]) -> Function:
    def without(sketch: Any, decay: Any, *now: Any) -> pa.Array:
        return queries.answer(called, recipes, (sketch, decay, *now), {})

    def with_argument(sketch: Any, argument: Any, decay: Any, *now: Any) -> pa.Array:
        return queries.answer(called, recipes, (sketch, argument, decay, *now), {})

    return without if FUNCTIONS[called.removesuffix("_value")].argument is None else with_argument


def _query(recipes: Sequence[Recipe]) -> Function:
    def query(sketch: Any, decay: Any, now: Any, *query: Any) -> pa.Array:
        return query_syntax.answer(recipes, (sketch, decay, now, *query), {})

    return query


def _of_sources(called: str, recipes: Sequence[Recipe]) -> Function:
    def table(sketches: Any, decay: Any, *now: Any) -> pa.Array:
        return sources.answer(called, recipes, (sketches, decay, *now), {})

    def of_set(sketches: Any, of: Any, decay: Any, *now: Any) -> pa.Array:
        return sources.answer(called, recipes, (sketches, of, decay, *now), {})

    return of_set if sources.takes_set(called) else table


def _between(recipes: Sequence[Recipe]) -> Function:
    def between(sketch: Any, aggregate: Any, start: Any, *stop: Any) -> pa.Array:
        return time_ranges.answer(
            time_ranges.BETWEEN, recipes, (sketch, aggregate, start, *stop), {}
        )

    return between


def _compare(recipes: Sequence[Recipe]) -> Function:
    def compare(
        sketch: Any, aggregate: Any, decay: Any, now: Any, then_decay: Any, *then_now: Any
    ) -> pa.Array:
        given = (sketch, aggregate, decay, now, then_decay, *then_now)
        return time_ranges.answer(time_ranges.COMPARE, recipes, given, {})

    return compare


def _merging(recipes: Sequence[Recipe]) -> Function:
    def sketch_merge(sketches: Any) -> pa.Array:
        kind = sketches.type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_null(kind)):
            raise FunctionError(
                f"sketch_merge: sketches is of type {kind}; expected a list of sketches: "
                "sketch_merge(list(sketch))"
            )
        return queries.unite("sketch_merge", recipes, [sketches])

    return sketch_merge


def _uniting(recipes: Sequence[Recipe]) -> Function:
    def sketch_union(*sketches: Any) -> pa.Array:
        return queries.unite("sketch_union", recipes, sketches)

    return sketch_union


def _describing(recipes: Sequence[Recipe]) -> Function:
    def sketch_info(sketch: Any) -> pa.Array:
        return queries.describe("sketch_info", recipes, sketch)

    return sketch_info


# ------------------------------------------------------------------------------------------ build


def build(
    relation: Any,
    stream: BuiltWith,
    mapping: ColumnMapping | None = None,
    *,
    by: Columns = (),
    now: int | None = None,
    refused: Literal["raise", "count"] = "raise",
    check_units: bool = True,
    site: str | int = 0,
    epoch: int = 0,
    **columns: Unpack[LogColumnArguments],
) -> pa.Table:
    """Build one sketch for each key in a relation.

    Args:
        relation: a query result, ``connection.sql(...)``, or any other object with
            ``__arrow_c_stream__``: a polars data frame, a Parquet reader. It is read once, in
            batches, and is never completely in memory.
        stream: the configuration of the sketches: parameters, or a recipe
            (:func:`decaysketch.families.recipe_of`).
        mapping: the meaning of the columns. None: from the keywords.
        by: the column, or columns, of the keys. None: one sketch for all rows.
        now: the time for sketches with a clock.
        refused: "raise" for a rejected row (no time, no id, a weight out of range), or "count" to
            drop and count it.
        check_units: reject integers that are unlikely as times in their unit (except for few).
        site, epoch: where rows are counted for a source, see
            :class:`decaysketch.tables.KeyedBuilder`.
        columns: the columns by their meaning: ``time``, ``value``, ``id`` and others
            (:class:`decaysketch.core.log_columns.LogColumnArguments`).

    Returns:
        The key columns and then ``rows``, ``missing_values``, ``fallback_times``, ``refused``,
        ``sketch`` and ``digest``: a table that DuckDB reads by the name of its variable. A
        :class:`~decaysketch.DisagreeingCopiesWarning` warns if rows with one id are unlikely to be
        duplicates, a :class:`~decaysketch.TimeZoneWarning` if times name no zone, an
        :class:`~decaysketch.UnlikelyClockWarning` if some lie outside 1990 to 2099.

    Raises:
        ObservationError: the first rejected row, counted from the first row in the relation.
        ParameterError: a column does not exist, or the mapping does not fit the stream.
        OtherUnitError: the times are dates in another unit.

    Complexity: O(rows log max_weight). Memory: the sketches, and one batch.
    """
    return build_relation(
        relation, stream, ColumnMapping.of(mapping, columns), by, now=now, refused=refused,
        check_units=check_units, site=site, epoch=epoch,
    )  # fmt: skip
