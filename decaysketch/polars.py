"""Sketches in polars: importing this module gives expressions and series of sketch bytes a
namespace ``.sketch``.

    >>> import decaysketch.polars  # doctest: +SKIP
    >>> frame.group_by("site").agg(  # doctest: +SKIP
    ...     pl.col("sketch").sketch.merge().sketch.decayed_mean("window(1h)", now)
    ... )

==========================================  ======================================================
``merge``                                   aggregate: sketches to a sketch
``union``                                   the merged sketches in one row
``info``                                    parameters and contents of a sketch
``decayed_mean``, and so on                 the queries in :mod:`decaysketch.query.catalog`
``decayed_query``                           a query as one text
``decayed_between``, ``decayed_compare``    a query over a time range, or at two moments
==========================================  ======================================================

Names, arguments and results are the same as in :mod:`decaysketch.spark.functions`, from the same
query table. The same functions compute them (:mod:`decaysketch.tables.sql`). Queries are
elementwise, so they work in every context, lazily and in the streaming engine too.

It needs pyarrow and polars. ``from_frame`` makes one sketch (:mod:`decaysketch.tables.frames`), and
:func:`build` one for each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Unpack

import polars as pl
import pyarrow as pa

from decaysketch.core.log_columns import LogColumnArguments
from decaysketch.core.time_units import instant
from decaysketch.decay import Decay
from decaysketch.families import BuiltWith, Sketch
from decaysketch.tables import ColumnMapping, samples
from decaysketch.tables.frames import Columns
from decaysketch.tables.relations import build_relation
from decaysketch.tables.sql import aggregates, queries, query_syntax, sources, time_ranges
from decaysketch.tables.sql.arguments import text_of
from decaysketch.tables.sql.queries import FunctionError
from decaysketch.tables.sql.signatures import NAMES, Asked, asking, recipes_of

__all__ = ["SketchExpr", "SketchSeries", "build", "decayed_sample"]

_ARGUMENTS = """

    Args:{argument}
        decay: a decay, or its text: ``"window(1h)"``, ``"exponential(half_life=15min)"``,
            ``"polynomial(2)"``, ``"none"``, an expression in the age such as ``"1/(1 + x/60)"``, or
            JSON. An expression of such texts. None where the decay was fixed when the sketch was
            built.
        now: the time that is asked about: an expression, or the name of a column, of integers in
            the stream's unit, datetimes (without a zone: UTC) or dates; or one such value, a
            ``datetime`` with its time zone.
        confidence: of the interval; 0.95 unless given.
        streams: what sketches were built with that cannot be read without: under a secret id key,
            with a table as their decay, or with a fingerprint in place of parameters.

    A null in any of them gives a null. Raises
    :class:`~decaysketch.tables.sql.queries.FunctionError`: a row that cannot be read or answered.
"""


@pl.api.register_expr_namespace("sketch")
class SketchExpr:
    """The namespace ``.sketch`` for an expression over a column with sketch bytes."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., pl.Expr]: ...

    def __init__(self, sketches: pl.Expr) -> None:
        self._sketches = sketches

    def merge(self, *, streams: Iterable[BuiltWith] = ()) -> pl.Expr:
        """Aggregate: merge a group's sketches into one, as bytes. Nulls are skipped.

        Raises:
            FunctionError: bytes that are no sketch, with their row, or sketches from two streams.
        """
        recipes = recipes_of(streams)

        def merged(sketches: pl.Series) -> bytes | None:
            return aggregates.merge("merge", recipes, iter([sketches.to_arrow()]))

        return self._sketches.map_batches(merged, return_dtype=pl.Binary(), returns_scalar=True)

    def union(self, *others: pl.Expr | str, streams: Iterable[BuiltWith] = ()) -> pl.Expr:
        """Return the merged sketches in one row: columns, or lists of them."""
        recipes = recipes_of(streams)

        def united(columns: Sequence[pa.Array]) -> pa.Array:
            return queries.unite("union", recipes, columns)

        return _elementwise([self._sketches, *others], united, pa.binary())

    def info(self, *, streams: Iterable[BuiltWith] = ()) -> pl.Expr:
        """Return a sketch's parameters and contents as a struct, with the fields from
        :func:`decaysketch.spark.functions.sketch_info`.
        """
        recipes = recipes_of(streams)

        def described(columns: Sequence[pa.Array]) -> pa.Array:
            return queries.describe("info", recipes, *columns)

        return _elementwise([self._sketches], described, queries.INFO)

    def decayed_between(
        self,
        aggregate: pl.Expr | str,
        start: Any,
        stop: Any,
        *,
        confidence: Any = None,
        streams: Iterable[BuiltWith] = (),
    ) -> pl.Expr:
        """Query the observations in ``[start, stop)``, see
        :func:`decaysketch.spark.functions.decayed_between`.
        """
        given = [_literal(aggregate), _time(start), _time(stop)]
        return self._of_moments(time_ranges.BETWEEN, given, [confidence], streams)

    def decayed_compare(
        self,
        aggregate: pl.Expr | str,
        decay: Any,
        now: Any,
        then_decay: Any,
        then_now: Any,
        *,
        how: Any = None,
        confidence: Any = None,
        streams: Iterable[BuiltWith] = (),
    ) -> pl.Expr:
        """Compare a query at two moments, see
        :func:`decaysketch.spark.functions.decayed_compare`.
        """
        sides = ((decay, now), (then_decay, then_now))
        given = [_literal(aggregate)]
        for of, at in sides:
            given += [_literal(text_of(of)), _time(at)]
        said = ["difference" if how is None else how, confidence]
        return self._of_moments(time_ranges.COMPARE, given, said, streams)

    def decayed_query(
        self,
        decay: Any,
        now: Any,
        query: pl.Expr | str,
        *,
        confidence: Any = None,
        streams: Iterable[BuiltWith] = (),
    ) -> pl.Expr:
        """Answer a query as one text, see :func:`decaysketch.spark.functions.decayed_query`."""
        recipes = recipes_of(streams)

        def answer(columns: Sequence[pa.Array]) -> pa.Array:
            return query_syntax.answer(recipes, columns, {})

        given = [_literal(text_of(decay)), _time(now), _literal(query)]
        given += [] if confidence is None else [_literal(confidence)]
        return _elementwise([self._sketches, *given], answer, query_syntax.TYPE)

    def decayed_coverage(self, decay: Any, now: Any, **said: Any) -> pl.Expr:
        """Return each source's share in all heard messages. Structs in the lists have
        a source name and its sketch. See
        :func:`decaysketch.spark.functions.decayed_coverage`."""
        return self._of_sources("decayed_coverage", [], decay, now, **said)

    def decayed_delivery(self, decay: Any, now: Any, **said: Any) -> pl.Expr:
        """See :func:`decaysketch.spark.functions.decayed_delivery`."""
        return self._of_sources("decayed_delivery", [], decay, now, **said)

    def decayed_exclusive(self, decay: Any, now: Any, **said: Any) -> pl.Expr:
        """See :func:`decaysketch.spark.functions.decayed_exclusive`."""
        return self._of_sources("decayed_exclusive", [], decay, now, **said)

    def decayed_overlap(self, decay: Any, now: Any, **said: Any) -> pl.Expr:
        """See :func:`decaysketch.spark.functions.decayed_overlap`."""
        return self._of_sources("decayed_overlap", [], decay, now, **said)

    def decayed_set_count(self, set: pl.Expr | str, decay: Any, now: Any, **said: Any) -> pl.Expr:
        """See :func:`decaysketch.spark.functions.decayed_set_count`."""
        return self._of_sources("decayed_set_count", [_literal(set)], decay, now, **said)

    def _of_sources(
        self, called: str, given: list[pl.Expr], decay: Any, now: Any, *, confidence: Any = None,
        streams: Iterable[BuiltWith] = (),
    ) -> pl.Expr:  # fmt: skip
        recipes = recipes_of(streams)

        def answer(columns: Sequence[pa.Array]) -> pa.Array:
            return sources.answer(called, recipes, columns, {})

        columns = [*given, _literal(text_of(decay)), _time(now)]
        columns += [] if confidence is None else [_literal(confidence)]
        return _elementwise([self._sketches, *columns], answer, sources.answer_type(called))

    def _of_moments(
        self, called: str, given: list[pl.Expr], said: list[Any], streams: Iterable[BuiltWith]
    ) -> pl.Expr:
        recipes = recipes_of(streams)

        def answer(columns: Sequence[pa.Array]) -> pa.Array:
            return time_ranges.answer(called, recipes, columns, {})

        optional = [_literal(each) for each in said if each is not None]
        returns = time_ranges.answer_type(called)
        return _elementwise([self._sketches, *given, *optional], answer, returns)


@pl.api.register_series_namespace("sketch")
class SketchSeries:
    """The namespace ``.sketch`` for a series. Arguments may be series where :class:`SketchExpr`
    accepts expressions.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., pl.Series]: ...

    def __init__(self, sketches: pl.Series) -> None:
        self._sketches = sketches

    def merge(self, *, streams: Iterable[BuiltWith] = ()) -> bytes | None:
        """Merge all sketches, see :meth:`SketchExpr.merge`."""
        merged: bytes | None = self._select(SketchExpr(pl.first()).merge(streams=streams)).item()
        return merged

    def union(self, *others: pl.Series, streams: Iterable[BuiltWith] = ()) -> pl.Series:
        """Return the merged sketches in one row, see :meth:`SketchExpr.union`."""
        return self._select(SketchExpr(pl.first()).union(*map(pl.lit, others), streams=streams))

    def info(self, *, streams: Iterable[BuiltWith] = ()) -> pl.Series:
        """Return each sketch's parameters and contents, see :meth:`SketchExpr.info`."""
        return self._select(SketchExpr(pl.first()).info(streams=streams))

    def decayed_between(self, *given: Any, **named: Any) -> pl.Series:
        """See :meth:`SketchExpr.decayed_between`."""
        return self._select(SketchExpr(pl.first()).decayed_between(*given, **named))

    def decayed_compare(self, *given: Any, **named: Any) -> pl.Series:
        """See :meth:`SketchExpr.decayed_compare`."""
        return self._select(SketchExpr(pl.first()).decayed_compare(*given, **named))

    def decayed_query(self, *given: Any, **named: Any) -> pl.Series:
        """See :meth:`SketchExpr.decayed_query`."""
        return self._select(SketchExpr(pl.first()).decayed_query(*given, **named))

    def _select(self, expression: pl.Expr) -> pl.Series:
        return self._sketches.to_frame().select(expression).to_series()


def _ask(namespace: SketchExpr, asked: Asked) -> pl.Expr:
    def answer(columns: Sequence[pa.Array]) -> pa.Array:
        return queries.answer(asked.function, asked.recipes, columns, {})

    columns = [*map(_literal, asked.argument), _literal(text_of(asked.decay)), _time(asked.now)]
    if asked.confidence is not None:
        columns.append(_literal(asked.confidence))
    returns = queries.answer_type(asked.function)
    return _elementwise([namespace._sketches, *columns], answer, returns)


def _ask_series(namespace: SketchSeries, asked: Asked) -> pl.Series:
    return namespace._select(_ask(SketchExpr(pl.first()), asked))


def _series_of_sources(called: str) -> Callable[..., pl.Series]:
    def ask(namespace: SketchSeries, *given: Any, **said: Any) -> pl.Series:
        return namespace._select(getattr(SketchExpr(pl.first()), called)(*given, **said))

    ask.__name__ = ask.__qualname__ = called
    ask.__doc__ = f"See :func:`decaysketch.spark.functions.{called}`."
    return ask


for _name in sources.NAMES:
    setattr(SketchSeries, _name, _series_of_sources(_name))
for _name in NAMES:
    setattr(SketchExpr, _name, asking(_name, _ask, _ARGUMENTS))
    setattr(SketchSeries, _name, asking(_name, _ask_series, _ARGUMENTS))


# ------------------------------------------------------------------------------------------ build


def build(
    frame: pl.DataFrame | pl.LazyFrame,
    stream: BuiltWith,
    mapping: ColumnMapping | None = None,
    *,
    by: Columns = (),
    now: int | None = None,
    refused: Literal["raise", "count"] = "raise",
    check_units: bool = True,
    **columns: Unpack[LogColumnArguments],
) -> pl.DataFrame:
    """Build one sketch for each key in a data frame. See :func:`decaysketch.duckdb.build`, which
    has the same arguments, results and errors. A lazy frame is collected in polars' streaming
    engine.
    """
    rows = frame.collect(engine="streaming") if isinstance(frame, pl.LazyFrame) else frame
    built = build_relation(
        rows, stream, ColumnMapping.of(mapping, columns), by, now=now, refused=refused,
        check_units=check_units,
    )  # fmt: skip
    return pl.DataFrame(built)


def decayed_sample(
    sketch: Sketch | bytes,
    decay: Decay | str | None,
    now: Any = None,
    streams: Iterable[BuiltWith] = (),
) -> pl.DataFrame:
    """Return a sketch's rows with their masses. See
    :func:`decaysketch.tables.samples.sample_table`. Expressions over it have no interval.
    """
    return pl.DataFrame(samples.decayed_sample(sketch, decay, now, streams))


# ------------------------------------------------------------------------------ columns and values


def _elementwise(
    columns: Sequence[pl.Expr | str],
    function: Callable[[Sequence[pa.Array]], pa.Array],
    returns: pa.DataType,
) -> pl.Expr:
    """Return a result for each row in the columns. A single value represents a column with that
    value.
    """

    def answer(series: Sequence[pl.Series]) -> pl.Series:
        return pl.Series(series[0].name, function(_arrays(series)))

    kind = pl.Series(pa.array([], returns)).dtype
    return pl.map_batches(columns, answer, return_dtype=kind, is_elementwise=True)


def _arrays(series: Sequence[pl.Series]) -> list[pa.Array]:
    lengths = {len(each) for each in series} - {1}
    if len(lengths) > 1:
        listed = ", ".join(f"{len(each)} of {each.name!r}" for each in series)
        raise FunctionError(f"rows are {listed}; expected as many of each, or one")
    [rows] = lengths or {1}
    return [
        (each if len(each) == rows else each.new_from_index(0, rows)).to_arrow() for each in series
    ]


def _literal(given: Any) -> pl.Expr:
    return given if isinstance(given, pl.Expr) else pl.lit(given)


def _time(given: Any) -> pl.Expr:
    if isinstance(given, str):
        return pl.col(given)
    if isinstance(given, datetime):
        instant(given, "us")  # refuses one without a zone
    return _literal(given)
