"""Answers that follow the stream: server-sent events.

A connection asks the same question every ``interval_s`` and sends the answers when they are others
than those it sent last, named by their entity tag. In between it sends comments, by which proxies
see that it lives. It ends when the client leaves, when the server stops, when the question can no
longer be answered (with an event that says why), and after an hour, so that a client comes again
and shows its key again; an ``EventSource`` does so by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.responses import StreamingResponse

from api import schemas
from api.access.guard import reads
from api.errors import ServiceError, TooManyLiveClientsError, answer_to
from api.queries import Desk, QueryRequest
from api.routes.common import TheSettings, problems
from api.routes.queries import AskedInUrl, TheDesk
from decaysketch.errors import DecaySketchError

__all__ = ["router"]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.live_clients = 0
    yield


router = APIRouter(lifespan=_lifespan)

_BEAT_S = 15.0
_LIFETIME_S = 3600.0
_RETRY_MS = 3000


async def _place(request: Request, settings: TheSettings) -> AsyncIterator[None]:
    """One of the places for live clients, until the response has ended."""
    state = request.app.state
    if state.live_clients >= settings.live_clients:
        raise TooManyLiveClientsError(settings.live_clients, _RETRY_MS // 1000)
    state.live_clients += 1
    try:
        yield
    finally:
        state.live_clients -= 1


@router.get(
    "/v1/streams/{name}/live",
    tags=["queries"],
    summary="Ask again and again",
    dependencies=[Depends(reads), Depends(_place)],
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events: `answer`, the JSON that a query is answered with, "
            "its entity tag as the id; `problem`, why there are no more.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **problems(
            s403="The key may not read the stream.",
            s404="No such stream, or nothing came from one of the sources.",
            s422="The request is malformed or beyond a limit, or cannot be answered.",
            s429="As many live connections are open as there may be.",
        ),
    },
)
async def get_live(
    name: schemas.StreamName,
    request: AskedInUrl,
    desk: TheDesk,
    http: Request,
    interval_s: Annotated[
        float, Query(ge=0.2, le=3600, description="Seconds between two answers.")
    ] = 1.0,
    last_event_id: Annotated[
        str | None, Header(description="The entity tag of the answers that the client has.")
    ] = None,
) -> StreamingResponse:
    """The answers now, and again whenever they are others. Queries without `now` follow the clock
    of the server."""
    planned = await desk.plan([name], request)
    first = _event("answer", await desk.body(planned), planned.tag)
    events = _events(
        desk, name, request, interval_s, http.app.state.closing,
        sent=planned.tag, first="" if planned.tag == last_event_id else first,
    )  # fmt: skip
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _events(
    desk: Desk,
    name: str,
    request: QueryRequest,
    interval_s: float,
    closing: asyncio.Event,
    *,
    sent: str,
    first: str,
) -> AsyncIterator[str]:
    clock = asyncio.get_running_loop().time
    end = clock() + _LIFETIME_S
    yield f"retry: {_RETRY_MS}\n\n{first}"
    while clock() < end:
        due = clock() + interval_s
        while (wait_s := due - clock()) > 0:
            if await _happens(closing, min(wait_s, _BEAT_S)):
                return
            if clock() < due:
                yield ":\n\n"
        try:
            planned = await desk.plan([name], request)
            body = None if planned.tag == sent else await desk.body(planned)
        except (ServiceError, DecaySketchError) as error:
            yield _event("problem", bytes(answer_to(error).body))
            return
        if body is not None:
            sent = planned.tag
            yield _event("answer", body, sent)


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False


def _event(kind: str, data: bytes, name: str | None = None) -> str:
    """An event; its data, JSON without white space, is one line."""
    identity = "" if name is None else f"id: {name}\n"
    return f"event: {kind}\n{identity}data: {data.decode()}\n\n"
