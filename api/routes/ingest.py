"""A body in any protocol, from the request to the receipt.

One function, :func:`ingest`, runs the stages for every body with rows: read, check and sketch
(:class:`api.ingest.building.Ingestion`) in time slices, then commit and apply
(:meth:`api.service.aggregator.Aggregator.post`). Senders in other protocols get problems with the
statuses and texts that they understand (:func:`understood_by`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.errors import (
    BusyError,
    Fault,
    IngestBusyError,
    InvalidRequestError,
    RowsInFlightError,
)
from api.http.caller import as_long_as_connected, asker, caller_of
from api.http.problems import ProblemResponse, handled
from api.ingest.building import UNCHECKED, Ingestion, SeriesIngestion, refuse_other_unit
from api.journal.log import Post
from api.service.aggregator import Aggregator
from api.service.budget import Hold, Memory
from api.service.committer import Receipt
from api.service.source_stats import Notes, notes_of, warnings_of
from api.service.streams import Stream, latest_time
from api.service.threads import Lanes, by_steps
from api.settings import Settings
from decaysketch.core.row_check import Verdict
from decaysketch.ingest.columns import Batch, Form, Lead
from decaysketch.ingest.mapping import Map
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import RefusedError, Steps
from decaysketch.ingest.series import SeriesIndex

__all__ = [
    "BAD",
    "BUSY",
    "COST",
    "ReadBody",
    "Work",
    "as_understood",
    "copies_of",
    "count_rows",
    "form_of",
    "held",
    "index_of",
    "ingest",
    "ingest_messages",
    "ingest_series",
    "maps_of",
    "notes_on",
    "precision_check",
    "translated",
    "understood_by",
    "warnings_on",
]

_PATIENCE_S, _STEP_S = 0.01, 0.001
COST = 32  # to read one takes as long as to decode so many rows of a sketch

M = TypeVar("M", bound=Map)
T = TypeVar("T")
B = TypeVar("B", bound=Batch)

ReadBody = Callable[[bytes], Steps[Sequence[B]]]
"""Reads a body in steps. Returns its rows for each stream."""


@dataclass(frozen=True)
class Work:
    """Runs a request's work.

    Attributes:
        request: the request. Its client must still be connected.
        rows: the number of sketch rows that take as long.
    """

    request: Request
    rows: int

    async def by_steps(self, steps: Steps[T]) -> T:
        """Run work in steps, in time slices by caller. Return its result.

        Raises:
            ClientLeftError: the client has left.
        """
        lanes: Lanes = self.request.app.state.lanes
        caller = asker(self.request)
        async with as_long_as_connected(self.request), lanes.lane(caller, self.rows) as compute:
            return await by_steps(compute, steps)


def maps_of(stream: Stream, format: str, kind: type[M], example: str) -> list[M]:
    """Return a stream's mappings for a format.

    Args:
        stream: the stream.
        format: the format's name in the mappings.
        kind: the mapping class for the format.
        example: further content of such a mapping, for the error message.

    Raises:
        InvalidRequestError: it has none. The message has the remedy.
    """
    given = () if stream.mappings is None else stream.mappings.map
    maps: list[M] = [each for each in given if isinstance(each, kind) and each.format == format]
    if not maps:
        raise _without_maps(stream, format, example)
    return maps


def index_of(stream: Stream, format: str, example: str) -> SeriesIndex[Any]:
    """Return a stream's compiled mappings for a time-series format. See :func:`maps_of`."""
    found = stream.series_index(format)
    if found is None:
        raise _without_maps(stream, format, example)
    return found


def _without_maps(stream: Stream, format: str, example: str) -> InvalidRequestError:
    """Return the error for a stream without a mapping for a format. The message has the remedy."""
    given = 0 if stream.mappings is None else len(stream.mappings.map)
    reason = f"the stream has no mapping with the format {format!r}"
    others = f", ...]}}, where ... are its other mappings ({given}): PUT replaces all"
    return InvalidRequestError(
        f'{reason}; PUT /v1/streams/{stream.name} with a key of the role admin, its "params", and '
        f'"ingest": {{"map": [{{"format": "{format}", {example}}}{others if given else "]}"}',
        [Fault(field="format", reason=reason, value=format)],
    )


def form_of(
    aggregator: Aggregator,
    stream: Stream,
    source: str,
    settings: Settings,
    most: int | None = None,
    zone: tzinfo | None = None,
) -> Form:
    """Return the required row form. A body has at most ``most`` rows, or the server's limit if
    that is less.
    """
    skew_s = stream.row.max_clock_skew_s
    latest = latest_time(stream.recipe.params.time_unit, skew_s, aggregator.now_us() * 1000)
    lead = None if skew_s is None else Lead(skew_s, "max_clock_skew_s")
    taken = min(settings.max_rows, settings.max_post_rows // copies_of(stream))
    most = max(1, taken if most is None else min(most, taken))
    return Form(stream.recipe, source, latest, most, stream.row.bind_keys, lead, zone)


def precision_check(
    stream: Stream, unit: str, *, check_units: bool, may_choose: bool = False
) -> Callable[[npt.NDArray[np.int64]], None] | None:
    """Return the check whether a body's times are dates in its unit. None: no check.

    Args:
        may_choose: whether a request chooses the unit. A protocol may prescribe one.
    """
    if not check_units:
        return None
    cure = f"another precision (ns, us, ms, s), or {UNCHECKED}" if may_choose else UNCHECKED
    return partial(refuse_other_unit, stream, unit, cure=cure)


async def ingest(
    request: Request,
    ingestions: Sequence[Ingestion],
    body: bytes,
    read: ReadBody[B],
    *,
    rows: int | None = None,
    cost: int = COST,
) -> tuple[Receipt | None, Sequence[B]]:
    """Read, check and sketch a body in time slices. Commit all its posts in one transaction.

    Args:
        request: the client's request. The client must stay connected while its body is read.
        ingestions: one for each stream.
        body: plain bytes.
        read: reads the body, once for all streams.
        rows: most rows that all streams together get from it. The sum of their forms' limits, at
            most ``max_post_rows``, if not given.
        cost: the cost per row, in sketch rows that take as long to decode.

    Returns:
        The posts' receipt, or None if no row was accepted. For each stream, the body's rows.

    Raises:
        ServiceError: the reason to reject the body, now or for good. Nothing is stored then.
    """
    aggregator: Aggregator = request.app.state.aggregator
    if rows is None:
        together = sum(copies_of(each.stream) * each.form.max_rows for each in ingestions)
        rows = min(together, request.app.state.settings.max_post_rows)
    caller = caller_of(request)
    source = ingestions[0].form.source
    streams = [each.stream for each in ingestions]
    parts: dict[Stream, Sequence[Post]] = {}
    derived: dict[Stream, Sequence[Post]] = {}
    receipt = None
    with aggregator.hold_observations(streams, source, rows, caller) as hold:
        steps = held(_steps(ingestions, body, read, parts, derived), aggregator.memory, hold)
        batches = await Work(request, cost * rows).by_steps(steps)
        if parts:
            receipt = await aggregator.post(parts, derived=derived, hold=hold, caller=caller)
    for each, batch in zip(ingestions, batches, strict=True):
        count_rows(aggregator, each, batch)
    return receipt, batches


def _steps(
    ingestions: Sequence[Ingestion],
    body: bytes,
    read: ReadBody[B],
    parts: dict[Stream, Sequence[Post]],
    derived: dict[Stream, Sequence[Post]],
) -> Steps[Sequence[B]]:
    """Read a body and return its rows. Add the posts to ``parts`` and ``derived``."""
    batches = yield from read(body)
    yield
    for each, batch in zip(ingestions, batches, strict=True):
        posts = yield from each.posts(batch)
        for stream, post in posts.items():
            (parts if stream is each.stream else derived)[stream] = [post]
        yield
    return batches


def copies_of(stream: Stream) -> int:
    """Return how many sketch rows a row in a body may become."""
    copies: int = getattr(stream.recipe.params, "samples", 1)
    return copies


def held(steps: Steps[T], memory: Memory, hold: Hold) -> Steps[T]:
    """Run the same steps, short ones together, and reserve the rows in each. A step with many rows
    runs while no other work merges many rows. It never waits long for that, since other posts wait
    for its thread.
    """
    while True:
        with hold, memory.merging(hold.rows, _PATIENCE_S) as is_free:
            latest = time.monotonic() + _STEP_S
            try:
                while is_free:
                    next(steps)
                    is_free = time.monotonic() < latest
            except StopIteration as end:
                found: T = end.value
                return found
        yield


def count_rows(aggregator: Aggregator, ingestion: Ingestion, batch: Batch) -> None:
    """Count a body's accepted rows by their status, and suspicious ones."""
    stream, source = ingestion.stream, ingestion.form.source
    counts = np.bincount(batch.statuses, minlength=len(Verdict)).tolist()
    for status, rows in zip(Verdict, counts, strict=False):  # the rejected rows are the last
        if rows:
            aggregator.observer.observations(stream.name, source, status.name.lower(), rows)
    for view, rows in batch.without_device.items():
        if rows:
            aggregator.observer.skipped(view, "no-device", rows)
    aggregator.disagreeing(stream, batch.disagreeing)
    aggregator.noted(stream, notes_on(batch))


def notes_on(batch: Batch) -> Notes:
    """Return the suspicious readings in a body."""
    return notes_of(
        replaced=batch.replaced,
        undated=batch.undated,
        off=batch.told.off,
        unnamed=batch.told.unnamed,
        dropped=batch.dropped,
    )


def warnings_on(stream: Stream, batch: Batch) -> list[str]:
    """Return sentences on the suspicious readings in a body."""
    return warnings_of(notes_on(batch), len(batch.positions), stream.mappings)


async def ingest_messages(
    request: Request, ingestions: Sequence[Ingestion], body: bytes, read: ReadBody[B]
) -> tuple[Receipt | None, Sequence[B]]:
    """The same for protocols whose clients repeat a request only at 503.

    Raises:
        IngestBusyError: not now. The client must send the body again.
    """
    try:
        return await ingest(request, ingestions, body, read)
    except (BusyError, RowsInFlightError) as error:
        raise IngestBusyError(str(error)) from None


async def ingest_series(
    request: Request,
    ingestions: Sequence[SeriesIngestion],
    body: bytes,
    read: ReadBody[Points],
    most_listed: int,
) -> tuple[int, list[str], Sequence[Points]]:
    """The same for time series, with the points, lines or samples that were rejected.

    Args:
        request, ingestions, body, read: likewise.
        most_listed: most rejections per stream with place and reason.

    Returns:
        Their number, the first ones, and the body's readings for each stream.
    """
    aggregator: Aggregator = request.app.state.aggregator
    _, found = await ingest_messages(request, ingestions, body, partial(_readings, read))
    rejected, listed = 0, list[str]()
    for each, points in zip(ingestions, found, strict=True):
        stream, source, told = each.stream, each.form.source, points.told
        for kind, count in told.skipped.items():
            aggregator.observer.skipped(stream.name, kind, count)
        if told.refusals:
            aggregator.refused(stream, source, each.place, told.refusals)
        for refusal in points.refusals:
            aggregator.refused(stream, source, f"observation-{refusal.field}")
        rejected += each.count_rejected(points)
        listed += each.rejected(points, most_listed)[:most_listed]
    return rejected, listed, found


def _readings(read: ReadBody[Points], body: bytes) -> Steps[Sequence[Points]]:
    """Read a body of time series.

    Raises:
        InvalidRequestError: it cannot be read.
    """
    try:
        return (yield from read(body))
    except RefusedError as error:
        raise InvalidRequestError(str(error)) from None


# --------------------------------------------------------------------------------------- problems


BAD = {
    HTTPStatus.UNPROCESSABLE_ENTITY.value: HTTPStatus.BAD_REQUEST.value,
    HTTPStatus.CONFLICT.value: HTTPStatus.BAD_REQUEST.value,
}
"""Some senders give up for good after 422. All treat 400 as a fault in the body."""

BUSY = {HTTPStatus.TOO_MANY_REQUESTS.value: HTTPStatus.SERVICE_UNAVAILABLE.value}
"""For senders that drop data after 429."""

Answer = Callable[[Request, ProblemResponse], Response]


def understood_by(answer: Answer) -> type[APIRoute]:
    """Return a route class with problems written by ``answer``."""

    class Understood(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()

            async def handle(request: Request) -> Response:
                try:
                    return await handler(request)
                except Exception as error:
                    return answer(request, await handled(request, error))

            return handle

    return Understood


def translated(
    answer: ProblemResponse, statuses: Mapping[int, int]
) -> tuple[dict[str, Any], int, dict[str, str]]:
    """Return a problem's members, the response status, and the headers in addition to the
    content headers.
    """
    status = statuses.get(answer.status_code, answer.status_code)
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name not in ("content-length", "content-type")
    }
    return json.loads(bytes(answer.body)), status, headers


def as_understood(
    answer: ProblemResponse, statuses: Mapping[int, int], **beside: Any
) -> ProblemResponse:
    """Return a problem with another status and additional members."""
    problem, status, headers = translated(answer, statuses)
    return ProblemResponse(problem | beside | {"status": status}, status, headers)
