"""Check a request against its streams and the limits, and read the clock.

:class:`Texts` reads a request's expressions, in time slices. :func:`plan` does the part that needs
the request and a sketch. It names the results before any result is computed
(:mod:`api.queries.answering`), so that a caller that already has them receives none. It is work
for a thread: nothing here waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from api.errors import Fault, InvalidRequestError, UnsupportedAggregateError
from api.queries.answers import etag
from api.queries.decays import DecayModel, PiecewiseDecay, decay_asked, is_expression
from api.queries.limits import refusal
from api.queries.requests import AnyQuery, GroupRequest, QueryRequest
from api.queries.sources import Asked, Joins, SourceSets, common_recipe
from api.service.streams import Stream
from api.settings import Settings
from decaysketch import Snapshot
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.text.expression import Kind, Schema, bind
from decaysketch.core.time_units import instant, now_in
from decaysketch.decay import Decay, integral
from decaysketch.decay.integral import IntegralDecay
from decaysketch.decay.read import fields_of
from decaysketch.errors import ParameterError
from decaysketch.families import Recipe
from decaysketch.query.columns import schema_of
from decaysketch.query.covering import SOURCE_QUESTIONS
from decaysketch.query.dispatch import read_argument, read_predicate
from decaysketch.query.relations import KINDS
from decaysketch.query.series_groups import attribute_schema
from decaysketch.sources.expression import read_expression

__all__ = ["MAX_ESTIMATES", "MAX_STEPS", "Plan", "Texts", "plan", "refusal"]

MAX_ESTIMATES = 20_000
"""Maximum estimates in the results for one request: about 6 MB of JSON."""

MAX_STEPS = 5000
"""Maximum steps in all decays of one request together."""

_KINDS: Mapping[str, tuple[Kind, ...]] = {
    "where": ("truth",), "weight": ("number",), "column": KINDS,
}  # fmt: skip
_NO_PART_OF_IT = {"name", "now", "times"}


class Other(NamedTuple):
    """The other side of a comparison query.

    Attributes:
        decay: the decay at the other moment. None where the stream's decay is fixed.
        at: returns that moment for a query time.
    """

    decay: Decay | None
    at: Callable[[int], int]


@dataclass(frozen=True)
class Plan:
    """A request that can be computed. :func:`plan` makes it.

    Attributes:
        request: as it came.
        names: the streams to join and query.
        snapshot: the queried sketch.
        others: sketches from streams that queries compare it with, by name.
        decays: one per query. None where the stream's decay is fixed.
        versus: the other moment for each comparison query. None for other queries.
        questions: one per query, without decay and time. Equal questions at one decay and time have
            equal results.
        now: the time for queries without a time. None where all queries name one.
        tag: entity tag of the results.
        sources: the sketches for each query that reads them per source. None for other queries.
    """

    request: QueryRequest | GroupRequest
    names: tuple[str, ...]
    snapshot: Snapshot
    others: Mapping[str, Snapshot]
    decays: tuple[Decay | None, ...]
    versus: tuple[Other | None, ...]
    questions: tuple[str, ...]
    now: int | None
    tag: str
    sources: tuple[Asked | None, ...]

    def times(self, position: int) -> Sequence[int]:
        """Return the query's times, one or several."""
        each = self.request.queries[position]
        if each.points is not None:
            return each.points
        now = self.now if each.now is None else each.now
        assert isinstance(now, int)  # a date was read, by Texts
        return [now]


class Texts:
    """A request's expressions and other texts, read one after the other. Each may take a twentieth
    of a second, with the interpreter's lock.

    Args:
        request: the queries.
        settings: the limits.
        time_unit: the queried streams' unit.

    Attributes:
        request: the same, with times in that unit for dates.
        read: by the requested decay, the parsed decay or the reason for its rejection.

    Raises:
        InvalidRequestError: the request is beyond a limit, or a date is none.
    """

    def __init__(
        self, request: QueryRequest | GroupRequest, settings: Settings, time_unit: str
    ) -> None:
        _check_limits(request, settings)
        self.request = request = _at(request, time_unit)
        self.read: dict[DecayModel | str, Decay | ParameterError] = {}
        self._time_unit = time_unit
        asked = (decay for each in request.queries for decay in each.decays)
        self._unread: set[DecayModel | str] = {
            each for each in asked if isinstance(each, str) or is_expression(each)
        }

    def work(self, turn_s: float) -> bool:
        """Read for about so long. Return whether all are read."""
        end = time.monotonic() + turn_s
        while self._unread:
            asked = self._unread.pop()
            try:
                self.read[asked] = decay_asked(asked, self._time_unit)
            except ParameterError as error:
                self.read[asked] = error
            if time.monotonic() > end:
                break
        return not self._unread

    def decay(self, asked: DecayModel | str) -> Decay:
        """Return a query's decay.

        Raises:
            ParameterError: it is no decay.
        """
        if not isinstance(asked, str) and not is_expression(asked):
            return decay_asked(asked, self._time_unit)
        if isinstance(found := self.read[asked], ParameterError):
            raise found
        return found


def plan(
    streams: Sequence[Stream],
    texts: Texts,
    joins: Joins,
    clock_ns: int,
    others: Sequence[Stream] = (),
    sets: SourceSets | None = None,
) -> Plan:
    """Check a request against its streams, and name its results.

    Args:
        streams: one stream, or several to join.
        texts: the request's texts, already read.
        joins: the stream joins.
        clock_ns: the time for queries without a time.
        others: streams that queries compare these with.
        sets: sketches by source, for queries that read them.

    Raises:
        InvalidRequestError: a decay, predicate or time is missing, cannot be read, or is not
            accepted by the stream. It names every fault.
        IncompatibleStreamsError: the streams cannot be joined.
        UnsupportedAggregateError: naming every query with an aggregate that the family does not
            have.
        UnknownSourceError: nothing came from a requested source.
    """
    request = texts.request
    alone = streams[0] if len(streams) == 1 else None
    recipe = common_recipe(streams) if alone is None else alone.recipe
    names = tuple(stream.name for stream in streams)
    _check_aggregates(names, recipe, request.queries)
    _check_levels([*streams, *others], request.queries)
    _check_others(recipe, request.queries, others)
    chosen = _decays(recipe, texts)
    versus = _versus(recipe, texts, chosen)
    if alone is None:
        snapshot = joins.snapshot(streams, request.sources)
    else:
        snapshot = alone.snapshot(request.sources)
    compared = {each.name: each.snapshot() for each in others}
    now = _now(recipe, snapshot, request.queries, clock_ns)
    sources = _sources(sets, request.queries)
    queries = [each.model_dump(mode="json", exclude={"decay"}) for each in request.queries]
    tag = etag(
        type(request).__name__,
        json.dumps(names),
        snapshot.digest,
        *(compared[name].digest for name in sorted(compared)),
        json.dumps([*zip(map(str, chosen), queries, strict=True)]),
        str(now),
        *(digest for each in {*sources} if each is not None for digest in each.digests),
    )
    questions = tuple(
        json.dumps({name: each[name] for name in each.keys() - _NO_PART_OF_IT}, sort_keys=True)
        for each in queries
    )
    return Plan(request, names, snapshot, compared, chosen, versus, questions, now, tag, sources)


def _sources(sets: SourceSets | None, queries: Sequence[AnyQuery]) -> tuple[Asked | None, ...]:
    """Return for each query the sketches by source, if it reads them."""
    found: list[Asked | None] = []
    for position, each in enumerate(queries):
        found.append(None)
        if sets is not None and each.of_sources:
            try:
                found[-1] = sets.asked(each)
            except ParameterError as error:
                named = str(error).split(maxsplit=1)[0]
                known = ("guard", "settle", "set", "among", "values_from")
                field = named if named in known else "set"
                fault = Fault(field=f"queries[{position}].{field}", reason=str(error))
                raise refusal([fault]) from None
    return tuple(found)


def _at(request: QueryRequest | GroupRequest, time_unit: str) -> QueryRequest | GroupRequest:
    """Return the same request, with numbers for dates."""
    faults: list[Fault] = []
    queries: list[AnyQuery] = []
    for position, each in enumerate(request.queries):
        moments: dict[str, int] = {}
        at_fault = ""
        try:
            for name, date in each.dates.items():
                at_fault = name
                moments[name] = instant(date, time_unit, name=name)
            queries.append(each.at(moments) if moments else each)
        except ParameterError as error:
            faults.append(Fault(field=f"queries[{position}].{at_fault}", reason=str(error)))
    if faults:
        raise refusal(faults)
    return request.model_copy(update={"queries": queries})


def _check_limits(request: QueryRequest | GroupRequest, settings: Settings) -> None:
    queries = request.queries
    _at_most("queries", len(queries), "entries", settings.max_queries)
    for position, each in enumerate(queries):
        if each.points is not None:
            _at_most(f"queries[{position}].times", each.point_count, "times", settings.max_points)
    points = [each.point_count for each in queries]
    most = max(settings.max_queries, settings.max_points)
    _at_most("queries", sum(points), "times, of all queries together,", most)
    estimates = sum(n * each.estimates for n, each in zip(points, queries, strict=True))
    _at_most("queries", estimates, "estimates to give", MAX_ESTIMATES)
    named = [decay for each in queries for decay in each.decays]
    steps = sum(len(decay.steps) for decay in named if isinstance(decay, PiecewiseDecay))
    _at_most("queries", steps, "steps of decays", MAX_STEPS)
    texts = {decay for decay in named if is_expression(decay)}
    predicates = {text for each in queries for text in each.predicates.values()}
    modifiers = {text for each in queries for text in each.expressions.values()}
    modifiers |= {text for each in queries for text in each.sets.values()}
    expressions = len(texts) + len(predicates) + len(modifiers)
    _at_most("queries", expressions, "different expressions", settings.max_expressions)


def _at_most(field: str, given: int, what: str, most: int) -> None:
    if given > most:
        reason = f"has {given} {what} in one request; expected at most {most}"
        raise InvalidRequestError(
            f"{field} {reason}", [Fault(field=field, reason=reason, value=given, expected=most)]
        )


def _check_aggregates(names: Sequence[str], recipe: Recipe, queries: Sequence[AnyQuery]) -> None:
    known = recipe.kind.questions
    if recipe.kind.joining is not None:
        known |= {each.name for each in SOURCE_QUESTIONS}
    unknown = {i: each.aggregate for i, each in enumerate(queries) if each.aggregate not in known}
    if unknown:
        raise UnsupportedAggregateError(names[0], recipe.family, known, unknown)


def _check_levels(streams: Sequence[Stream], queries: Sequence[AnyQuery]) -> None:
    """Reject queries that read all messages of a stream whose sources post only some levels."""
    found = next((each for each in streams if each.row.from_level), None)
    if found is None:
        return
    level = found.row.from_level
    reason = (
        f"missing; stream {found.name!r} has only messages of level {level} or above "
        "(from_level): query a set, such as `any`"
    )
    faults = [
        Fault(field=f"queries[{position}].set", reason=reason, value=None, expected="any")
        for position, each in enumerate(queries)
        if not each.of_sources
    ]
    if faults:
        raise refusal(faults)


def _check_others(recipe: Recipe, queries: Sequence[AnyQuery], others: Sequence[Stream]) -> None:
    families = {each.name: each.recipe.family for each in others}
    faults = [
        Fault(
            field=f"queries[{position}].{field}",
            reason=f"stream {name!r} is of another family",
            value=families[name],
            expected=recipe.family,
        )
        for position, each in enumerate(queries)
        for field, name in each.others.items()
        if families[name] != recipe.family
    ]
    if faults:
        raise refusal(faults)


def _decays(recipe: Recipe, texts: Texts) -> tuple[Decay | None, ...]:
    """Return each query's decay, where the query chooses it, with predicates read."""
    fixed = recipe.decay
    read = read_argument if getattr(recipe.params, "columns", ()) else read_predicate
    faults: list[Fault] = []
    chosen: list[Decay | None] = []
    for position, each in enumerate(texts.request.queries):
        field = f"queries[{position}].decay"
        chosen.append(None)
        try:
            if fixed is not None:
                faults += _faults_beside(fixed, field, each.decay, recipe.params.time_unit)
            elif each.decay is None:
                faults.append(Fault(field=field, reason="missing"))
            else:
                chosen[-1] = texts.decay(each.decay)
            for name, predicate in each.predicates.items():
                field = f"queries[{position}].{name}"
                read(predicate)
            for name, text in each.expressions.items():
                field = f"queries[{position}].{name}"
                role = name.partition("[")[0].removeprefix("versus.").removesuffix("s")
                bind(role, text, _schema(recipe), *_KINDS.get(role, ()))
            for name, text in each.sets.items():
                field = f"queries[{position}].{name}"
                read_expression(text, name)
        except ParameterError as error:
            faults.append(Fault(field=field, reason=str(error)))
    if faults:
        raise refusal(faults)
    return tuple(chosen)


def _schema(recipe: Recipe) -> Schema:
    """Return a stream's columns."""
    params: Any = recipe.params
    if recipe.kind.input.series:
        return attribute_schema(params.attributes, params.time_unit)
    return schema_of(params.value_type, params.time_unit, getattr(params, "columns", ()))


def _versus(
    recipe: Recipe, texts: Texts, chosen: Sequence[Decay | None]
) -> tuple[Other | None, ...]:
    """Return the other moment for each comparison query."""
    faults: list[Fault] = []
    found: list[Other | None] = []
    for position, (each, decay) in enumerate(zip(texts.request.queries, chosen, strict=True)):
        found.append(None)
        if each.versus is None or not each.at_another_moment:
            continue
        field = f"queries[{position}].versus"
        if recipe.decay is not None:
            reason = "the decay of this stream is fixed, so two times cannot be compared"
            faults.append(Fault(field=field, reason=reason))
        at_fault = f"{field}.{'ago' if each.versus.now is None else 'now'}"
        try:
            at = each.versus.moment(recipe.params.time_unit)
            at_fault = f"{field}.decay"
            other = decay if each.versus.decay is None else texts.decay(each.versus.decay)
            found[-1] = Other(other, at)
        except ParameterError as error:
            faults.append(Fault(field=at_fault, reason=str(error)))
    if faults:
        raise refusal(faults)
    return tuple(found)


def _faults_beside(
    fixed: IntegralDecay, field: str, asked: DecayModel | str | None, time_unit: str
) -> Iterator[Fault]:
    """Return the faults of a decay that is given although the stream's decay is fixed."""
    if asked is None:
        return
    if isinstance(asked, str):
        given = fields_of(asked, time_unit, fixed=True)
        if given["kind"] != "expression":  # their normal form takes long
            given = integral.normal_form(given)
    else:
        given = asked.fields()
    if given != (kept := fixed.to_dict()):
        reason = "the stream has another, fixed decay: omit decay"
        yield Fault(field=field, reason=reason, value=str(given), expected=str(kept))


def _now(
    recipe: Recipe, snapshot: Snapshot, queries: Sequence[AnyQuery], clock_ns: int
) -> int | None:
    """Return the time for queries without a time, if there are any."""
    unnamed = [i for i, each in enumerate(queries) if each.is_of_now]
    if not unnamed:
        return None
    unit = recipe.params.time_unit
    now = now_in(unit, clock_ns)
    if now is None:
        reason = f"missing: the server has no clock of the stream's time_unit, {unit!r}"
        raise refusal([Fault(field=f"queries[{i}].now", reason=reason) for i in unnamed])
    if snapshot.clock is not None:
        now = max(now, snapshot.clock)  # rows that expired before its clock are dropped
    return min(now, TIME_LIMIT)
