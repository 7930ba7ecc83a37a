"""Sketches in SQL and in DataFrames: aggregates that make them, functions that query them.

    >>> from decaysketch.spark import functions as F  # doctest: +SKIP
    >>> from decaysketch.spark import register  # doctest: +SKIP

:func:`register` adds them to SQL under the same names. ``docs/spark.md`` has the SQL forms,
the engine's limits with them, and the alternatives. The names follow Spark's own sketch
functions: an aggregate makes the bytes, scalar functions read them.

==========================================  ======================================================
``sketch_build``, ``sketch_merge``          aggregates: rows to a sketch, sketches to a sketch
``sketch_build_counted``                    the first without rejected rows, and their count
``sketch_union``                            the merge of the sketches of one row
``sketch_info``                             the properties of a sketch
``decayed_mean``, and so on                 the queries of :mod:`decaysketch.query.catalog`
``decayed_between``, ``decayed_compare``    one of them over a range of times, or two moments
``decayed_coverage``, and so on             tables for a map from source names to sketches
==========================================  ======================================================

Each query has two forms: ``decayed_mean`` gives
``struct<value, lower, upper, exact, rows, caveats>`` and ``decayed_mean_value`` the value alone. A
NULL argument gives a NULL result. An undefined value, such as the mean of nothing, is NULL too. If
an input cannot be read or has no result, an
error names the function and the reason.

Everything is DataFrame API and works under Spark Connect. Executors need this package installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import pyarrow as pa

from decaysketch.core.time_units import instant
from decaysketch.errors import ParameterError
from decaysketch.families import BuiltWith, Recipe, recipe_of
from decaysketch.spark._names import quoted
from decaysketch.tables import ColumnMapping
from decaysketch.tables.sql import aggregates, queries, query_syntax, sources, time_ranges
from decaysketch.tables.sql.arguments import text_of
from decaysketch.tables.sql.signatures import NAMES, Asked, asking, recipes_of

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = [
    "decayed_between",
    "decayed_compare",
    "decayed_coverage",
    "decayed_delivery",
    "decayed_exclusive",
    "decayed_overlap",
    "decayed_query",
    "decayed_set_count",
    "register",
    "sketch_build",
    "sketch_build_counted",
    "sketch_info",
    "sketch_merge",
    "sketch_union",
]

Function: TypeAlias = "Callable[..., Column]"


class Asking(Protocol):
    """A query function: ``(sketch, decay, now)``, or ``(sketch, argument, decay, now)`` if the
    query has an argument.
    """

    def __call__(
        self,
        sketch: Column | str,
        /,
        *argument_decay_and_now: Any,
        confidence: float | None = None,
        streams: Iterable[BuiltWith] = (),
        **by_name: Any,
    ) -> Column: ...


_ARGUMENTS = """

    Args:
        sketch: column of the bytes of sketches, of any family that has the aggregate.{argument}
        decay: a decay, or its text: ``"window(1h)"``, ``"exponential(half_life=15min)"``,
            ``"polynomial(2)"``, ``"none"``, an expression in the age such as ``"1/(1 + x/60)"``, or
            JSON. A column of such texts. None where the decay was fixed when the sketch was built.
        now: the time that is asked about: a column, or the name of one, of integers in the stream's
            unit, timestamps (without a zone: UTC) or dates; or one such value, a ``datetime`` with
            its time zone.
        confidence: of the interval; 0.95 unless given.
        streams: what sketches were built with that cannot be read without: under a secret id key,
            with a table as their decay, or with a fingerprint in place of parameters.
"""


def _ask(sketch: Any, asked: Asked) -> Any:
    columns = [_column(sketch), *map(_literal, asked.argument)]
    columns += [_literal(text_of(asked.decay)), _time(asked.now)]
    if asked.confidence is not None:
        columns.append(_literal(asked.confidence))
    return _question_udf(asked.function, asked.recipes)(*columns)


_ASKING = {called: asking(called, _ask, _ARGUMENTS) for called in NAMES}
globals().update(_ASKING)
__all__ += sorted(_ASKING)
__all__.sort()

if TYPE_CHECKING:

    def __getattr__(name: str) -> Asking: ...


def decayed_between(
    sketch: Column | str,
    aggregate: Column | str,
    start: Any,
    stop: Any,
    *,
    confidence: float | None = None,
    streams: Iterable[BuiltWith] = (),
) -> Column:
    """Query the observations in ``[start, stop)``:
    ``struct<value, lower, upper, exact, rows, caveats>``.

    Args:
        sketch: column of sketch bytes whose decay is chosen at query time.
        aggregate: a text, or a column of them, such as ``"mean"``, ``"quantile:0.9"``,
            ``"rank:20"``, for queries whose result is one estimate.
        start, stop: times, as ``now`` of the other functions.
        confidence, streams: as in the other functions.
    """
    given = [_literal(aggregate), _time(start), _time(stop)]
    return _of_moments(time_ranges.BETWEEN, sketch, given, {"confidence": confidence}, streams)


def decayed_compare(
    sketch: Column | str,
    aggregate: Column | str,
    decay: Any,
    now: Any,
    then_decay: Any,
    then_now: Any,
    *,
    how: Column | str | None = None,
    confidence: float | None = None,
    streams: Iterable[BuiltWith] = (),
) -> Column:
    """Compare a query at one moment with the same query at another, from one sample of both:
    ``struct<value, lower, upper, exact, rows, caveats, changed>``.

    Args:
        sketch: column of sketch bytes.
        aggregate: a text, or a column of them: "count", "rate", "sum", "total", "mean", or
            ``"rank:20"``.
        decay, now: the first moment, as in the other functions.
        then_decay, then_now: the second moment.
        how: "difference" (the first less the second), or "ratio" (the first over the second).
        confidence, streams: as in the other functions.
    """
    given = [
        _literal(aggregate), _literal(text_of(decay)), _time(now), _literal(text_of(then_decay)),
        _time(then_now),
    ]  # fmt: skip
    optional = {"how": how or "difference", "confidence": confidence}
    return _of_moments(time_ranges.COMPARE, sketch, given, optional, streams)


def decayed_query(
    sketch: Column | str,
    decay: Any,
    now: Any,
    query: Column | str,
    *,
    confidence: float | None = None,
    streams: Iterable[BuiltWith] = (),
) -> Column:
    """Run a query written as one text, such as ``"mean(v) by hour(time) where v > 3"``: an array
    with a struct ``by, of, value, lower, upper, exact, rows, small, caveats, changed``
    for each estimate.

    Args:
        sketch: column of sketch bytes.
        decay, now: as in the other functions.
        query: a text, or a text column. See :mod:`decaysketch.query.query_syntax`.
        confidence, streams: as in the other functions.
    """
    given = [_literal(text_of(decay)), _time(now), _literal(query)]
    if confidence is not None:
        given.append(_literal(confidence))
    return _query_udf(recipes_of(streams))(_column(sketch), *given)


def decayed_coverage(
    sketches: Column | str, decay: Any, now: Any, *,
    confidence: float | None = None, streams: Iterable[BuiltWith] = (),
) -> Column:  # fmt: skip
    """Return each source's share in all heard messages: an array with a struct
    ``source, value, lower, upper, exact, rows, caveats`` for each source.

    Args:
        sketches: column with a map from source names to sketch bytes, such as
            ``map_from_entries(collect_list(struct(source, sketch)))``.
        decay, now, confidence, streams: as in the other functions.
    """
    return _of_sources("decayed_coverage", sketches, [], decay, now, confidence, streams)


def decayed_delivery(
    sketches: Column | str, decay: Any, now: Any, *,
    confidence: float | None = None, streams: Iterable[BuiltWith] = (),
) -> Column:  # fmt: skip
    """Return each pair's delivery ratio, the share that ``source`` heard among the messages that
    ``other`` heard: an array with structs ``source, other, value, lower, upper, exact,
    rows, caveats``. Arguments
    as :func:`decayed_coverage`.
    """
    return _of_sources("decayed_delivery", sketches, [], decay, now, confidence, streams)


def decayed_exclusive(
    sketches: Column | str, decay: Any, now: Any, *,
    confidence: float | None = None, streams: Iterable[BuiltWith] = (),
) -> Column:  # fmt: skip
    """Return the messages that each source alone heard: an array with structs
    ``source, value, lower, upper, exact, rows, caveats``. Arguments as :func:`decayed_coverage`.
    """
    return _of_sources("decayed_exclusive", sketches, [], decay, now, confidence, streams)


def decayed_overlap(
    sketches: Column | str, decay: Any, now: Any, *,
    confidence: float | None = None, streams: Iterable[BuiltWith] = (),
) -> Column:  # fmt: skip
    """Return the messages that two sources both heard: an array with structs
    ``source, other, value, lower, upper, exact,
    rows, caveats``. Arguments as :func:`decayed_coverage`.
    """
    return _of_sources("decayed_overlap", sketches, [], decay, now, confidence, streams)


def decayed_set_count(
    sketches: Column | str, set: Column | str, decay: Any, now: Any, *,
    confidence: float | None = None, streams: Iterable[BuiltWith] = (),
) -> Column:  # fmt: skip
    """Return the messages in a source set: ``struct<value, lower, upper, exact, rows, caveats>``.

    Args:
        sketches: as in :func:`decayed_coverage`.
        set: a text, or a column of them, such as ``"a & ~b"``.
        decay, now, confidence, streams: as in the other functions.
    """
    given = [_literal(set)]
    return _of_sources("decayed_set_count", sketches, given, decay, now, confidence, streams)


def _of_sources(
    called: str, sketches: Any, given: list[Column], decay: Any, now: Any, confidence: Any,
    streams: Iterable[BuiltWith],
) -> Column:  # fmt: skip
    columns = [_column(sketches), *given, _literal(text_of(decay)), _time(now)]
    if confidence is not None:
        columns.append(_literal(confidence))
    return _sources_udf(called, recipes_of(streams))(*columns)


def _of_moments(
    called: str,
    sketch: Any,
    given: list[Column],
    optional: Mapping[str, Any],
    streams: Iterable[BuiltWith],
) -> Column:
    said = [_literal(each) for each in optional.values() if each is not None]
    return _moments_udf(called, recipes_of(streams))(_column(sketch), *given, *said)


# -------------------------------------------------------------------------------------- aggregates


def sketch_build(
    stream: BuiltWith,
    value: Column | str | Mapping[str, Column | str] | ColumnMapping | None,
    time: Column | str | None = None,
    ids: Column | str | Sequence[Column | str] = (),
    *,
    weight: Column | str | None = None,
    now: int | None = None,
    refused: Literal["raise", "count"] = "raise",
) -> Column:
    """Aggregate: the sketch of the rows of a group, as bytes.

    Args:
        stream: its parameters, or a sketch configuration (:func:`decaysketch.families.recipe_of`).
        value: numbers. NULL is a missing value. None: every value is missing. If the stream has
            columns: a column for each name, or a struct of them. For series likewise ``value``,
            ``start``, ``entity`` and attributes. Or a
            :class:`~decaysketch.tables.ColumnMapping`, which gives all columns.
        time: time of the event: integers in the stream's unit, timestamps (without a zone: UTC) or
            dates. A row with a NULL is rejected: ``coalesce`` it with the arrival.
        ids: the parts that identify an observation: integers, text, bytes. Structs are split. A
            sampler has two, the source and its sequence number. If keys are counted, the site (a
            column, or a literal) and then the columns of the key.
        weight: integers 0..max_weight. None: every weight is 1.
        now: the time for a sketch with a clock.
        refused: "raise": a rejected row (no time, no id, a weight out of range) fails the query.
            "count": it is dropped, and the result is the struct of :func:`sketch_build_counted`.

    The complete group goes through one task, in bounded memory. For large logs, and for very many
    keys, make a sketch table with :func:`decaysketch.spark.build.sketch_table`.
    """
    if refused not in ("raise", "count"):
        raise ParameterError(f"refused is {refused!r}; expected 'raise' or 'count'")
    recipe = recipe_of(stream)
    if isinstance(value, ColumnMapping):
        if time is not None or ids or weight is not None:
            raise ParameterError("a mapping is given, and so is time, ids or weight")
        mapping = value.complete(recipe)
        mapping.check(recipe)
        return _build_udf(recipe, now, refused, mapping)(*map(_named, mapping.names))
    if time is None:
        raise ParameterError("time is None; expected the column of the event time")
    listed = [ids] if isinstance(ids, str) or not isinstance(ids, Sequence) else list(ids)
    columns = [*map(_column, (_struct_of(value), weight, time)), *map(_column, listed)]
    return _build_udf(recipe, now, refused)(*columns)


def _named(name: str) -> Column:
    """Return a column by its name, with any dots in it."""
    return _column(quoted(name))


def _struct_of(value: Any) -> Any:
    """Return columns by name as one."""
    from pyspark.sql import functions as sql

    if not isinstance(value, Mapping):
        return value
    return sql.struct(*(_column(column).alias(name) for name, column in value.items()))


def sketch_build_counted(
    stream: BuiltWith,
    value: Column | str | Mapping[str, Column | str] | ColumnMapping | None,
    time: Column | str | None = None,
    ids: Column | str | Sequence[Column | str] = (),
    *,
    weight: Column | str | None = None,
    now: int | None = None,
) -> Column:
    """Aggregate: as :func:`sketch_build`, without the rejected rows, which are counted.

    ``struct<sketch, rows, missing_values, refused, replaced, first_refusal, warnings>``: the bytes,
    counts: accepted rows, those without a value among them, rejected rows, and readings that a
    later one with their id replaced although their times lie far apart
    (:mod:`decaysketch.core.duplicates`), the first rejected row with its reason, and sentences on
    replaced readings, times without a zone, and clocks that were not set. Duplicates count as rows.
    """
    return sketch_build(stream, value, time, ids, weight=weight, now=now, refused="count")


def sketch_merge(sketch: Column | str, *, streams: Iterable[BuiltWith] = ()) -> Column:
    """Aggregate: the merge of the sketches of a group, as bytes. NULLs are skipped.

    Args:
        sketch: column of sketches of one stream, in any order, each any number of times.
        streams: see ``decayed_sum``.
    """
    return _merge_udf(recipes_of(streams))(_column(sketch))


def sketch_union(*sketches: Column | str, streams: Iterable[BuiltWith] = ()) -> Column:
    """Merge the sketches in one row, from columns of them, or from arrays of them.

    ``sketch_union(collect_list(sketch))`` is an aggregate that works next to any other, and accepts
    FILTER.
    """
    return _union_udf(recipes_of(streams))(*map(_column, sketches))


def sketch_info(sketch: Column | str, *, streams: Iterable[BuiltWith] = ()) -> Column:
    """Return the properties of a sketch: ``struct<family, params, decay, time_unit, capacity, rows,
    oldest, newest, clock, exact_after, answerable_after, bytes, digest>``.

    Times are in the stream's unit. A window that reaches back no further than ``exact_after`` has
    an exact result. A window that reaches back to ``answerable_after`` or further has none. Both
    are NULL if nothing was discarded. For a fixed decay, they are the earliest times that can be
    queried.
    """
    return _info_udf(recipes_of(streams))(_column(sketch))


# --------------------------------------------------------------------------------------------- SQL


def register(spark: SparkSession, streams: Mapping[str, BuiltWith] | None = None) -> None:
    """Register this module's functions with SQL in a session, under their names.

    Args:
        spark: a session, of Spark Connect too.
        streams: sketch configurations, by names for ``sketch_build``. Sketches of
            these streams are read also if their bytes alone do not suffice (a secret id key).

    In SQL ``sketch_build(stream, value, weight, time, id, ...)`` begins with such a name, or with
    the JSON of the parameters: ``'{"max_weight": 1, "id_bits": 48}'``.
    """
    named = {name: recipe_of(stream) for name, stream in (streams or {}).items()}
    recipes = tuple(named.values())
    functions = {
        "sketch_build": _build_by_name_udf(named, "raise"),
        "sketch_build_counted": _build_by_name_udf(named, "count"),
        "sketch_merge": _merge_udf(recipes),
        "sketch_union": _union_udf(recipes),
        "sketch_info": _info_udf(recipes),
    }
    functions |= {called: _question_udf(called, recipes) for called in _ASKING}
    functions |= {called: _moments_udf(called, recipes) for called in time_ranges.MOMENTS}
    functions |= {called: _sources_udf(called, recipes) for called in sources.NAMES}
    functions[query_syntax.QUERY] = _query_udf(recipes)
    for name, function in functions.items():
        spark.udf.register(name, function)


# ------------------------------------------------------------------- functions as Spark takes them

# Spark reads a function's kind from its annotations, and pickles it by value. So it calls functions
# of importable modules, and workers import these.


def _question_udf(called: str, recipes: Sequence[Recipe]) -> Function:
    def ask(*columns: pa.Array, **named: pa.Array) -> pa.Array:
        return queries.answer(called, recipes, columns, named)

    return _udf(ask, called, queries.answer_type(called))


def _moments_udf(called: str, recipes: Sequence[Recipe]) -> Function:
    def ask(*columns: pa.Array, **named: pa.Array) -> pa.Array:
        return time_ranges.answer(called, recipes, columns, named)

    return _udf(ask, called, time_ranges.answer_type(called))


def _sources_udf(called: str, recipes: Sequence[Recipe]) -> Function:
    def ask(*columns: pa.Array, **named: pa.Array) -> pa.Array:
        return sources.answer(called, recipes, columns, named)

    return _udf(ask, called, sources.answer_type(called))


def _query_udf(recipes: Sequence[Recipe]) -> Function:
    def ask(*columns: pa.Array, **named: pa.Array) -> pa.Array:
        return query_syntax.answer(recipes, columns, named)

    return _udf(ask, query_syntax.QUERY, query_syntax.TYPE)


def _build_udf(
    recipe: Recipe,
    now: int | None,
    refused: Literal["raise", "count"],
    mapping: ColumnMapping | None = None,
) -> Function:
    if refused == "raise":

        def sketch_build(batches: Iterator[tuple[pa.Array, ...]]) -> Any:
            return aggregates.build("sketch_build", recipe, now, batches, mapping)

        return _udf(sketch_build, "sketch_build", pa.binary())

    def counted(batches: Iterator[tuple[pa.Array, ...]]) -> Any:
        return _struct(aggregates.build_counted(_COUNTED, recipe, now, batches, mapping))

    return _udf(counted, _COUNTED, aggregates.BUILT)


def _build_by_name_udf(
    streams: Mapping[str, Recipe], refused: Literal["raise", "count"]
) -> Function:
    if refused == "raise":

        def sketch_build(batches: Iterator[tuple[pa.Array, ...]]) -> Any:
            return aggregates.build_by_name("sketch_build", streams, batches)

        return _udf(sketch_build, "sketch_build", pa.binary())

    def counted(batches: Iterator[tuple[pa.Array, ...]]) -> Any:
        return _struct(aggregates.build_by_name(_COUNTED, streams, batches, "count"))

    return _udf(counted, _COUNTED, aggregates.BUILT)


_COUNTED = "sketch_build_counted"


def _struct(built: dict[str, Any] | None) -> Any:
    """Return it with its type, which Spark would have to guess."""
    return pa.scalar(built, aggregates.BUILT)


def _merge_udf(recipes: Sequence[Recipe]) -> Function:
    def sketch_merge(batches: Iterator[pa.Array]) -> Any:
        return aggregates.merge("sketch_merge", recipes, batches)

    return _udf(sketch_merge, "sketch_merge", pa.binary())


def _union_udf(recipes: Sequence[Recipe]) -> Function:
    def sketch_union(*columns: pa.Array) -> pa.Array:
        return queries.unite("sketch_union", recipes, columns)

    return _udf(sketch_union, "sketch_union", pa.binary())


def _info_udf(recipes: Sequence[Recipe]) -> Function:
    def sketch_info(sketch: pa.Array) -> pa.Array:
        return queries.describe("sketch_info", recipes, sketch)

    return _udf(sketch_info, "sketch_info", queries.INFO)


def _udf(function: Callable[..., Any], name: str, returns: pa.DataType) -> Function:
    from pyspark.sql.pandas import functions as vectorized
    from pyspark.sql.pandas.types import from_arrow_type

    function.__name__ = name
    arrow_udf: Any = vectorized.arrow_udf  # its overloads know no function that is made
    made: Function = arrow_udf(function, returnType=from_arrow_type(returns))
    return made


# ---------------------------------------------------------------------------------------- literals


def _column(given: Column | str | None) -> Column:
    from pyspark.sql import functions as sql

    if given is None:
        return sql.lit(None)
    return sql.col(given) if isinstance(given, str) else given


def _literal(given: Any) -> Column:
    from pyspark.sql import functions as sql

    if isinstance(given, (list, tuple)):
        return sql.array(*map(sql.lit, given))
    return sql.lit(given)  # a column stays one


def _time(given: Any) -> Column:
    if isinstance(given, str):
        return _column(given)
    if isinstance(given, datetime):
        instant(given, "us")  # refuses one without a zone
    return _literal(given)
