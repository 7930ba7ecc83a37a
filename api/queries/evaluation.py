"""The answers to a request that was planned, computed a little at a time.

A time series may take seconds, and posts wait for the same few threads. So an :class:`Evaluation`
is worked at in short turns, and lets others have theirs in between.
"""

from __future__ import annotations

import time

from api.errors import Fault, UnanswerableQueriesError
from api.queries.answers import GroupResponse, PointAnswer, QueryResponse, SeriesAnswer
from api.queries.planning import Plan, refusal
from api.queries.requests import GroupRequest
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.sample import pool

__all__ = ["Evaluation"]

_Place = tuple[int, int]  # which query, and which of its times


class Evaluation:
    """Answers every query of a plan, or none.

    Queries of one decay and time, wherever they stand, are read from one sample.

    Args:
        plan: what to answer.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        asked: dict[tuple[Decay | None, int], list[_Place]] = {}
        for position, decay in enumerate(plan.decays):
            for point, now in enumerate(plan.times(position)):
                asked.setdefault((decay, now), []).append((position, point))
        self._asked_in_all = sum(map(len, asked.values()))
        self._open = iter(asked.items())
        self._found: dict[_Place, PointAnswer] = {}
        self._refused: dict[_Place, UnanswerableQueryError] = {}

    def work(self, turn_s: float) -> bytes | None:
        """Go on for about so long.

        Returns:
            The answers as JSON; None if there is more to do.

        Raises:
            UnanswerableQueriesError: naming every query, and time of a series, that asks for what
                was discarded.
            InvalidRequestError: a decay that reaches further back than the sketch was built for.
        """
        end = time.monotonic() + turn_s
        for (decay, now), places in self._open:
            self._answer(decay, now, places)
            if time.monotonic() > end:
                return None
        if self._refused:
            raise UnanswerableQueriesError(
                self._asked_in_all,
                {self._path(*place): error for place, error in sorted(self._refused.items())},
            )
        return self._body()

    def _answer(self, decay: Decay | None, now: int, places: list[_Place]) -> None:
        try:
            samples = self._plan.snapshot.samples(decay, now)
            pooled = [pool(samples)]
            for place in places:
                each = self._plan.request.queries[place[0]]
                read = each.read(samples if each.combine == "median" else pooled, now)
                self._found[place] = read
        except UnanswerableQueryError as error:
            self._refused |= dict.fromkeys(places, error)
        except ParameterError as error:
            fault = Fault(field=f"queries[{places[0][0]}].decay", reason=str(error))
            raise refusal([fault]) from None

    def _body(self) -> bytes:
        names, digest, answers = self._plan.names, self._plan.snapshot.digest, self._answers()
        response: QueryResponse | GroupResponse
        if isinstance(self._plan.request, GroupRequest):
            response = GroupResponse(streams=list(names), digest=digest, answers=answers)
        else:
            response = QueryResponse(stream=names[0], digest=digest, answers=answers)
        return response.model_dump_json().encode()

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
