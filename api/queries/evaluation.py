"""Compute the results for a planned request, a little at a time.

A request may take seconds, and posts wait for the same few threads. So an :class:`Evaluation` works
in short time slices, and lets others have theirs in between: a time slice may end after any result
to any query. All results for one request together get ``MAX_WORK_S`` CPU time. Their cost is
estimated from the rows that they read, beforehand. So the same request to the same sketch is always
rejected or always answered, regardless of the machine's load.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from api.errors import Fault, UnanswerableQueriesError
from api.queries.answers import GroupResponse, PointAnswer, QueryResponse, SeriesAnswer
from api.queries.limits import MAX_WORK_S, refusal
from api.queries.planning import Plan
from api.queries.requests import GroupRequest
from api.queries.sources import Asked
from decaysketch.core.plausible_times import doubts_of_query, told
from decaysketch.decay import Decay
from decaysketch.errors import ObservationError, ParameterError, UnanswerableQueryError
from decaysketch.query.catalog import View
from decaysketch.sources import CoverageView

__all__ = ["MAX_WORK_S", "Evaluation"]

_FADED = 1e-3  # of a weight, which is next to nothing

_Place = tuple[int, int]  # which query, and which of its times


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
        return sources.sources.at(decay, now, without_silence=sources.without_silence)

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
                f"take more than {MAX_WORK_S:g} s of a processor, about, over a sketch of "
                f"{len(self._plan.snapshot)} rows; ask fewer, or at fewer times, in one request"
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
                    f"the newest observation is of {told(unit, held.newest)}, and of its weight "
                    f"the decay leaves less than a thousandth by now, {told(unit, now)}: a log of "
                    f'the past is asked with "now": {held.newest}'
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
