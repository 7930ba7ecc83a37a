"""Answer a request. The service does not compute results again that the caller or the cache has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from api.queries.caching import AnswerCache
from api.queries.evaluation import Evaluation
from api.queries.groups import Joins
from api.queries.planning import Plan, Texts, plan
from api.queries.requests import GroupRequest, QueryRequest
from api.queries.sources import SourceSets
from api.queries.tables import Form, write
from api.service import clock
from api.service.aggregator import Aggregator
from api.service.fair_queue import TURN_S, Turns
from api.service.metrics import Metrics
from api.service.streams import Stream
from api.settings import Settings

__all__ = ["Answerer", "Answers"]

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
        left: Callable[[], Awaitable[bool]],
        counted: bool = True,
        form: Form = Form.JSON,
    ) -> Answers | None:
        """Return results as of now, computed in time slices with other work.

        Args:
            names: the streams to join and query.
            request: the queries.
            asker: the caller that the work is charged to.
            known: whether the caller has the results for an entity tag. Called on another thread.
            left: whether the client has left. Called between time slices.
            counted: whether it counts toward the caller's concurrent requests. False where their
                number is bounded otherwise.
            form: the output form.

        Returns:
            None if the client has left before the last time slice.

        Raises:
            UnknownStreamError: a name has no stream.
            TooMuchAskedError: the caller has as much under way as may be.
            StaleTokenError, NotCaughtUpError: the post that its ``after`` names is not there.
            UnanswerableQueriesError, InvalidRequestError: see :func:`~api.queries.planning.plan`
                and :meth:`~api.queries.evaluation.Evaluation.work`.
        """
        if request.after is not None:
            await self._aggregator.reached(request.after, names)
        streams = [await self._aggregator.find(name) for name in names]
        others = [await self._aggregator.find(name) for name in sorted(request.others)]
        turns = self._turns.asked(asker) if counted else nullcontext(self._turns.by(asker))
        with turns as compute:
            texts = Texts(request, self._settings, streams[0].recipe.params.time_unit)
            now_ns = clock.now_ns()
            while (
                begun := await compute(self._begin, streams, others, texts, now_ns, known, form)
            ) is None:
                if await left():
                    return None
            planned, evaluation, body = begun
            tag = tag_of(planned.tag, form)
            if evaluation is None:
                if body is not None:
                    self.hit(request)
                return Answers(tag, body, planned.now)
            while body is None:
                if await left():
                    return None
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
        now_ns: int,
        known: Callable[[str], bool],
        form: Form,
    ) -> tuple[Plan, Evaluation | None, bytes | None] | None:
        """Return the planned request, its evaluation if the results are not known yet, and the
        results if a time slice was enough. None if the time slice was too short to read the
        texts.
        """
        if not texts.work(TURN_S):
            return None
        sets = SourceSets(streams, texts.request.sources, self._aggregator)
        planned = plan(streams, texts, self._joins, now_ns, others, sets)
        if known(tag := tag_of(planned.tag, form)):
            return planned, None, None
        if (kept := self._answers.get(tag)) is not None:
            return planned, None, kept
        if form is not Form.JSON and (kept := self._answers.get(planned.tag)) is not None:
            return planned, None, self._written(planned, kept, form)
        # Until it has ended, it holds samples of the rows it looks at.
        reading = self._aggregator.memory.reading
        rows = sum(map(len, (planned.snapshot, *planned.others.values()))) + sets.rows
        reading.make_room(rows)
        evaluation = reading.charge(Evaluation(planned), rows)
        return planned, evaluation, evaluation.work(TURN_S)

    def _written(self, planned: Plan, body: bytes, form: Form) -> bytes:
        """Return results as a table. The table is cached with them."""
        names = [each.name for each in planned.request.queries]
        table = write(form, body, names, planned.snapshot.params.time_unit)
        self._answers.put(tag_of(planned.tag, form), table)
        return table


def tag_of(tag: str, form: Form) -> str:
    """Return the entity tag of results in a form, from the tag of the results as JSON."""
    return tag if form is Form.JSON else f'{tag[:-1]}-{form}"'
