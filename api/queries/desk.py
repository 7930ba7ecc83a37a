"""Where requests are brought and answers fetched: what is known already is not computed again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from api import clock
from api.aggregator import Aggregator
from api.compute import Threads
from api.metrics import Metrics
from api.queries.caching import AnswerCache
from api.queries.evaluation import Evaluation
from api.queries.groups import Joins
from api.queries.planning import Plan, plan
from api.queries.requests import GroupRequest, QueryRequest
from api.settings import Settings

__all__ = ["Desk"]

_ANSWERS_BYTES = 64 << 20
_JOINS_KEPT = 8
_TURN_S = 0.05


class Desk:
    """Asks the streams of an aggregator.

    Args:
        aggregator: whose streams.
        settings: the limits.
        metrics: told of every query that was answered.

    Attributes:
        compute: threads of its own, so that no question waits for the posts that came before it.
    """

    def __init__(self, aggregator: Aggregator, settings: Settings, metrics: Metrics) -> None:
        self._aggregator = aggregator
        self._settings = settings
        self._metrics = metrics
        self._answers = AnswerCache(_ANSWERS_BYTES)
        self._joins = Joins(_JOINS_KEPT)
        self.compute = Threads(max(1, settings.compute_threads - 1), "queries")

    def close(self) -> None:
        """Wait for what is computed; nothing more is."""
        self.compute.close()

    async def plan(self, names: Sequence[str], request: QueryRequest | GroupRequest) -> Plan:
        """What is to be answered, as of now; see :func:`~api.queries.planning.plan`.

        Raises:
            UnknownStreamError: there is no stream of one of the names.
            StaleTokenError, NotCaughtUpError: what it is to be asked ``after`` is not there.
        """
        if request.after is not None:
            await self._aggregator.reached(request.after, names)
        streams = [await self._aggregator.find(name) for name in names]
        return await self.compute(
            plan, streams, request, self._settings, self._joins, clock.now_ns()
        )

    async def body(self, planned: Plan, left: Callable[[], Awaitable[bool]]) -> bytes | None:
        """The answers as JSON, computed in turns with other work.

        Args:
            planned: what to answer.
            left: whether the client has left; asked between turns.

        Returns:
            None if the client has left before the last turn.

        Raises:
            UnanswerableQueriesError, InvalidRequestError: see
                :meth:`~api.queries.evaluation.Evaluation.work`.
        """
        body = self._answers.get(planned.tag)
        if body is not None:
            self.knew(planned)
            return body
        evaluation = Evaluation(planned)
        while (body := await self.compute(evaluation.work, _TURN_S)) is None:
            if await left():
                return None
        self._answers.put(planned.tag, body)
        for each, seconds in zip(planned.request.queries, evaluation.seconds, strict=True):
            self._metrics.queried(each.aggregate, seconds, cached=False)
        return body

    def knew(self, planned: Plan) -> None:
        """Count queries whose answers did not have to be computed."""
        for each in planned.request.queries:
            self._metrics.queried(each.aggregate, 0.0, cached=True)
