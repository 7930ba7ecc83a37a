"""Answer a request, a little at a time.

The service does not compute results again that the caller or the cache has. A request may take
seconds, and posts wait for the same few threads. So an :class:`Evaluation` works in short time
slices, and lets others have theirs in between: a time slice may end after any result to any query.
All results for one request together get ``MAX_WORK_S`` CPU time. Their cost is estimated from the
rows that they read, beforehand. So the same request to the same sketch is always rejected or always
answered, regardless of the machine's load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from api.errors import Fault, UnanswerableQueriesError
from api.queries.answers import (
    AnswerCache,
    Form,
    GroupResponse,
    PointAnswer,
    QueryResponse,
    SeriesAnswer,
    tag_of,
)
from api.queries.limits import MAX_WORK_S, refusal
from api.queries.planning import Plan, Texts, plan
from api.queries.requests import GroupRequest, QueryRequest
from api.queries.sources import Asked, Joins, SourceSets
from api.queries.tables import write
from api.service.aggregator import Aggregator
from api.service.metrics import Metrics
from api.service.streams import Stream
from api.service.threads import TURN_S, Turns
from api.settings import Settings
from decaysketch.core.plausible_times import doubts_of_query, told
from decaysketch.decay import Decay
from decaysketch.errors import ObservationError, ParameterError, UnanswerableQueryError
from decaysketch.query.catalog import View
from decaysketch.sources import CoverageView

__all__ = ["MAX_WORK_S", "Answerer", "Answers", "Evaluation"]

_FADED = 1e-3  # of a weight, which is next to nothing

_Place = tuple[int, int]  # which query, and which of its times


def now_ns() -> int:
    """Return this machine's clock: nanoseconds since 1970."""
    return time.time_ns()


class Evaluation:
    """Answers every query in a plan, or none.

    Queries with one decay and time are read from one sample, wherever they stand. Equal queries are
    answered once.

    Args:
        plan: the queries to answer.

    Attributes:
        seconds: time spent on each query.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        numbers: dict[Decay | None, int] = {}
        asked: dict[tuple[int, int, Asked | None], list[_Place]] = {}
        for position, decay in enumerate(plan.decays):
            number = numbers.setdefault(decay, len(numbers))
            for point, now in enumerate(plan.times(position)):
                key = (number, now, plan.sources[position])
                asked.setdefault(key, []).append((position, point))
        self._asked = asked
        self._asked_in_all = sum(map(len, asked.values()))
        self._found: dict[_Place, PointAnswer] = {}
        self._refused: dict[_Place, UnanswerableQueryError] = {}
        self._work_s = 0.0
        self._steps = self._answer_all()
        self.seconds = [0.0] * len(plan.decays)

    def work(self, turn_s: float) -> bytes | None:
        """Continue for about so long.

        Returns:
            The results as JSON. None if there is more to do.

        Raises:
            UnanswerableQueriesError: naming every query, and time of a series, that needs discarded
                rows.
            InvalidRequestError: a decay reaches further back than the sketch was built for. Or all
                results together take longer than ``MAX_WORK_S``.
        """
        begun = time.monotonic()
        end = begun + turn_s
        for position in self._steps:
            now = time.monotonic()
            self.seconds[position] += now - begun
            if now > end:
                return None
            begun = now
        if self._refused:
            raise UnanswerableQueriesError(
                self._asked_in_all,
                {self._path(*place): error for place, error in sorted(self._refused.items())},
            )
        return self._body()

    def _answer_all(self) -> Iterator[int]:
        """Answer one query after the other. Yield each answered query's position."""
        for (_, now, sources), places in self._asked.items():
            first = places[0][0]
            try:
                view = self._view(self._plan.decays[first], now, sources)
            except UnanswerableQueryError as error:
                self._refused |= dict.fromkeys(places, error)
                yield first
                continue
            except ParameterError as error:
                fault = Fault(field=f"queries[{first}].decay", reason=str(error))
                raise refusal([fault]) from None
            self._spend(view.drawn_s)
            yield from self._read(view, places)

    def _view(self, decay: Decay | None, now: int, sources: Asked | None) -> View:
        if sources is None:
            return self._plan.snapshot.at(decay, now)
        return sources.at(decay, now)

    def _read(self, view: View, places: list[_Place]) -> Iterator[int]:
        """Answer every query about one decay and time, from the rows visible then."""
        answered: dict[str, PointAnswer] = {}
        for place in places:
            position = place[0]
            question = self._plan.questions[position]
            if question not in answered:
                query = self._plan.request.queries[position]
                try:
                    if isinstance(view, CoverageView):
                        self._spend(view.reading_s([query.set or "any"]))
                    if not query.at_another_moment:
                        self._spend(query.modifiers.cost_s(len(self._plan.snapshot)))
                        prepared = query.prepared(view)
                        self._spend(query.work_s(prepared, self._plan.others))
                        answered[question] = query.read(view, prepared, self._plan.others)
                    else:
                        answered[question] = self._compared(position, view)
                except UnanswerableQueryError as error:
                    self._refused[place] = error
                    yield position
                    continue
                except (ParameterError, ObservationError) as error:
                    fault = Fault(field=f"queries[{position}]", reason=str(error))
                    raise refusal([fault]) from None
            self._found[place] = answered[question]
            yield position

    def _compared(self, position: int, view: View) -> PointAnswer:
        """Return the result for a query that compares two moments. The first is the view's
        moment.
        """
        query = self._plan.request.queries[position]
        decay, other = self._plan.decays[position], self._plan.versus[position]
        assert decay is not None
        assert other is not None
        assert other.decay is not None
        then = other.decay, other.at(view.now)
        if isinstance(view, CoverageView):
            return query.compare_sources(view, then)
        pair = self._plan.snapshot.against((decay, view.now), then)
        self._spend(pair.cost_s(query.how))
        return query.compare(pair, view)

    def _spend(self, work_s: float) -> None:
        self._work_s += work_s
        if self._work_s > MAX_WORK_S:
            reason = (
                f"take more than about {MAX_WORK_S:g} s of processor time for a sketch of "
                f"{len(self._plan.snapshot)} rows; send fewer queries or times in one request"
            )
            raise refusal([Fault(field="queries", reason=reason, expected=MAX_WORK_S)])

    def _body(self) -> bytes:
        names, digest, answers = self._plan.names, self._plan.snapshot.digest, self._answers()
        response: QueryResponse | GroupResponse
        if isinstance(self._plan.request, GroupRequest):
            response = GroupResponse(
                streams=list(names), digest=digest, answers=answers, warnings=self._warnings()
            )
        else:
            response = QueryResponse(
                stream=names[0], digest=digest, answers=answers, warnings=self._warnings()
            )
        return response.model_dump_json().encode()

    def _warnings(self) -> list[str]:
        held, nows = self._plan.snapshot, {now for _, now, _ in self._asked}
        found = doubts_of_query(held.params.time_unit, held.oldest, held.newest, nows)
        if not found and (faded := self._faded()) is not None:
            found.append(faded)
        if not found:
            found += dict.fromkeys(self._short())
        return found

    def _short(self) -> Iterator[str]:
        """Yield hints about decays whose length is a number and that leave only the newest
        instant.
        """
        plan, held = self._plan, self._plan.snapshot
        for position, (each, decay) in enumerate(
            zip(plan.request.queries, plan.decays, strict=True)
        ):
            if decay is None or each.decay is None or each.start is not None:
                continue
            given = each.decay if isinstance(each.decay, str) else each.decay.fields()
            doubt = held.doubt_of_length(given, decay, plan.times(position)[0])
            if doubt is not None:
                yield doubt

    def _faded(self) -> str | None:
        """Return a hint that the server's clock is so late that a decay leaves next to nothing."""
        held, now = self._plan.snapshot, self._plan.now
        if now is None or held.newest is None or held.newest >= now:
            return None
        queries = zip(self._plan.request.queries, self._plan.decays, strict=True)
        for decay in (decay for each, decay in queries if each.is_of_now and decay is not None):
            fresh, newest = decay([0, now - held.newest])
            if newest < _FADED * fresh:
                unit = held.params.time_unit
                return (
                    f"the newest observation is of {told(unit, held.newest)}, and at the query "
                    f"time, {told(unit, now)}, the decay leaves less than a thousandth of its "
                    f'weight: for old data, set "now": {held.newest}'
                )
        return None

    def _answers(self) -> list[PointAnswer | SeriesAnswer]:
        return [
            self._found[position, 0]
            if each.points is None
            else SeriesAnswer(
                aggregate=each.aggregate,
                points=[self._found[position, point] for point in range(each.point_count)],
            )
            for position, each in enumerate(self._plan.request.queries)
        ]

    def _path(self, position: int, point: int) -> str:
        series = self._plan.request.queries[position].points is not None
        return f"queries[{position}].times[{point}]" if series else f"queries[{position}]"


_ANSWERS_BYTES = 64 << 20
_JOINS_KEPT = 8


@dataclass(frozen=True, slots=True)
class Answers:
    """Results for a request.

    Attributes:
        tag: their entity tag, in the requested form.
        body: the results in that form. None where the caller has them.
        now: the time used for queries without a time. None where all queries name one.
    """

    tag: str
    body: bytes | None
    now: int | None


class Answerer:
    """Answers requests to an aggregator's streams.

    Args:
        aggregator: the stream owner.
        settings: the limits.
        metrics: count every query that was answered.
        turns: time slices on threads for queries alone, so that no query waits for earlier posts,
            nor behind another caller's many queries.
    """

    def __init__(
        self, aggregator: Aggregator, settings: Settings, metrics: Metrics, turns: Turns
    ) -> None:
        self._turns = turns
        self._aggregator = aggregator
        self._settings = settings
        self._metrics = metrics
        self._answers = AnswerCache(_ANSWERS_BYTES)
        self._joins = Joins(_JOINS_KEPT, aggregator.memory)

    async def answer(
        self,
        names: Sequence[str],
        request: QueryRequest | GroupRequest,
        *,
        asker: str,
        known: Callable[[str], bool],
        has_left: Callable[[], bool],
        counted: bool = True,
        form: Form = Form.JSON,
    ) -> Answers:
        """Return results as of now, computed in time slices with other work.

        Args:
            names: the streams to join and query.
            request: the queries.
            asker: the caller that the work is charged to.
            known: whether the caller has the results for an entity tag. Called on another thread.
            has_left: whether the client has left. Called before each time slice.
            counted: whether it counts toward the caller's concurrent requests. False where their
                number is bounded otherwise.
            form: the output form.

        Raises:
            LeftError: the client has left before the last time slice.
            UnknownStreamError: a name has no stream.
            TooMuchAskedError: the caller has as much under way as may be.
            StaleTokenError, NotCaughtUpError: the post that its ``after`` names is not there.
            UnanswerableQueriesError, InvalidRequestError: see :func:`~api.queries.planning.plan`
                and :meth:`~api.queries.answering.Evaluation.work`.
        """
        if request.after is not None:
            await self._aggregator.reached(request.after, names)
        streams = [await self._aggregator.find(name) for name in names]
        others = [await self._aggregator.find(name) for name in sorted(request.others)]
        uncounted = nullcontext(self._turns.by(asker, has_left))
        turns = self._turns.asked(asker, has_left) if counted else uncounted
        with turns as compute:
            texts = Texts(request, self._settings, streams[0].recipe.params.time_unit)
            clock_ns = now_ns()
            while (
                begun := await compute(self._begin, streams, others, texts, clock_ns, known, form)
            ) is None:
                pass
            planned, evaluation, body = begun
            tag = tag_of(planned.tag, form)
            if evaluation is None:
                if body is not None:
                    self.hit(request)
                return Answers(tag, body, planned.now)
            while body is None:
                body = await compute(evaluation.work, TURN_S)
            self._answers.put(planned.tag, body)
            if form is not Form.JSON:
                body = await compute(self._written, planned, body, form)
        for each, seconds in zip(request.queries, evaluation.seconds, strict=True):
            self._metrics.queried(each.aggregate, seconds, cached=False)
        return Answers(tag, body, planned.now)

    def hit(self, request: QueryRequest | GroupRequest) -> None:
        """Count a request's queries as cache hits: here, or in the caller's own cache."""
        for each in request.queries:
            self._metrics.queried(each.aggregate, 0.0, cached=True)

    def _begin(
        self,
        streams: Sequence[Stream],
        others: Sequence[Stream],
        texts: Texts,
        clock_ns: int,
        known: Callable[[str], bool],
        form: Form,
    ) -> tuple[Plan, Evaluation | None, bytes | None] | None:
        """Return the planned request, its evaluation if the results are not known yet, and the
        results if a time slice was enough. None if the time slice was too short to read the
        texts.
        """
        if not texts.work(TURN_S):
            return None
        request, sets = texts.request, None
        if any(each.of_sources for each in request.queries):
            sets = SourceSets(streams, request.sources, self._aggregator)
        planned = plan(streams, texts, self._joins, clock_ns, others, sets)
        if known(tag := tag_of(planned.tag, form)):
            return planned, None, None
        if (kept := self._answers.get(tag)) is not None:
            return planned, None, kept
        if form is not Form.JSON and (kept := self._answers.get(planned.tag)) is not None:
            return planned, None, self._written(planned, kept, form)
        # Until it has ended, it holds samples of the rows it looks at.
        reading = self._aggregator.memory.reading
        rows = sum(map(len, (planned.snapshot, *planned.others.values())))
        rows += 0 if sets is None else sets.rows
        reading.make_room(rows)
        evaluation = reading.charge(Evaluation(planned), rows)
        return planned, evaluation, evaluation.work(TURN_S)

    def _written(self, planned: Plan, body: bytes, form: Form) -> bytes:
        """Return results as a table. The table is cached with them."""
        names = [each.name for each in planned.request.queries]
        table = write(form, body, names, planned.snapshot.params.time_unit)
        self._answers.put(tag_of(planned.tag, form), table)
        return table
