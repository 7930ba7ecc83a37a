"""Where requests are brought and answers fetched: what is known already is not computed again."""

from __future__ import annotations

from collections.abc import Sequence

from api import clock
from api.aggregator import Aggregator
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
    """

    def __init__(self, aggregator: Aggregator, settings: Settings) -> None:
        self._aggregator = aggregator
        self._settings = settings
        self._answers = AnswerCache(_ANSWERS_BYTES)
        self._joins = Joins(_JOINS_KEPT)

    async def plan(self, names: Sequence[str], request: QueryRequest | GroupRequest) -> Plan:
        """What is to be answered, as of now; see :func:`~api.queries.planning.plan`.

        Raises:
            UnknownStreamError: there is no stream of one of the names.
            StaleTokenError, NotCaughtUpError: what it is to be asked ``after`` is not there.
        """
        if request.after is not None:
            await self._aggregator.reached(request.after, names)
        streams = [await self._aggregator.find(name) for name in names]
        return await self._aggregator.compute(
            plan, streams, request, self._settings, self._joins, clock.now_ns()
        )

    async def body(self, planned: Plan) -> bytes:
        """The answers as JSON, computed in turns with other work.

        Raises:
            UnanswerableQueriesError, InvalidRequestError: see
                :meth:`~api.queries.evaluation.Evaluation.work`.
        """
        body = self._answers.get(planned.tag)
        if body is None:
            evaluation = Evaluation(planned)
            while body is None:
                body = await self._aggregator.compute(evaluation.work, _TURN_S)
            self._answers.put(planned.tag, body)
        return body
