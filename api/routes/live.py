"""Answers that follow the stream: server-sent events.

A connection asks the same question every ``interval_s`` and sends the answers when they are others
than those it sent last, named by their entity tag. In between it sends comments, by which proxies
see that it lives. It ends when the client leaves, or does not read for ``_READER_S`` seconds; when
the key is no longer valid, or the question can no longer be answered, with an event that says so;
when the server stops; and after an hour. An ``EventSource`` then comes again by itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import Message, Send

from api import schemas
from api.access.cache import KeyCache
from api.access.keys import Caller
from api.errors import ServiceError
from api.http.asker import asker
from api.http.guard import Reads, check_scope
from api.http.problems import answer_to, problems
from api.http.refusals import TooManyLiveClientsError, UnauthenticatedError
from api.journal.model import StorageError
from api.queries import Answerer, Answers, QueryRequest
from api.routes.common import CLIENT_LEFT, TheSettings
from api.routes.queries import AskedInUrl, TheAnswerer
from decaysketch.errors import DecaySketchError

__all__ = ["router"]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.live_clients = 0
    app.state.live_clients_of = Counter()
    yield


router = APIRouter(lifespan=_lifespan)

_BEAT_S = 15.0
_LIFETIME_S = 3600.0
_READER_S = 30.0
_RETRY_MS = 3000
_KEY_SHARE = 4  # one key has at most this part of the places

_REASONS_TO_END = (
    ServiceError,
    UnauthenticatedError,
    DecaySketchError,
    StorageError,
    SQLAlchemyError,
)


async def _place(request: Request, caller: Reads, settings: TheSettings) -> AsyncIterator[None]:
    """One of the places for live clients, until the response has ended."""
    state, key = request.app.state, caller.prefix
    if state.live_clients >= settings.live_clients:
        raise TooManyLiveClientsError(settings.live_clients, _RETRY_MS // 1000)
    most = max(1, settings.live_clients // _KEY_SHARE)
    if key is not None and state.live_clients_of[key] >= most:
        raise TooManyLiveClientsError(most, _RETRY_MS // 1000, of_key=True)
    state.live_clients += 1
    state.live_clients_of[key] += 1
    state.metrics.live(1)
    try:
        yield
    finally:
        state.metrics.live(-1)
        state.live_clients -= 1
        state.live_clients_of[key] -= 1
        if not state.live_clients_of[key]:
            del state.live_clients_of[key]


class _SlowReaderError(Exception):
    """The client does not read what it is sent."""


class _LiveResponse(StreamingResponse):
    """Ends, and with it the connection, if the client does not read."""

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(_READER_S):
                    await send(message)
            except TimeoutError:
                raise _SlowReaderError from None

        with suppress(_SlowReaderError):
            await super().stream_response(send_in_time)


@router.get(
    "/v1/streams/{name}/live",
    tags=["queries"],
    summary="Ask again and again",
    dependencies=[Depends(_place)],
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
            s409="`after` is of a stream that was deleted since, or of no post.",
            s422="The request is malformed or beyond a limit, or cannot be answered.",
            s429="As many live connections are open as there may be, or as one key may have; or as "
            "many questions are under way.",
        ),
    },
)
async def get_live(
    name: schemas.StreamName,
    request: AskedInUrl,
    answerer: TheAnswerer,
    http: Request,
    caller: Reads,
    interval_s: Annotated[
        float, Query(ge=0.2, le=3600, description="Seconds between two answers.")
    ] = 1.0,
    last_event_id: Annotated[
        str | None, Header(description="The entity tag of the answers that the client has.")
    ] = None,
) -> Response:
    """The answers now, and again whenever they are others. Queries without `now` follow the clock
    of the server."""
    check_scope(caller, sorted(request.others))
    answers = await answerer.answer(
        [name],
        request,
        asker=asker(http),
        known=lambda tag: tag == last_event_id,
        left=http.is_disconnected,
    )
    if answers is None:
        return Response(status_code=CLIENT_LEFT)
    first = "" if answers.body is None else _event("answer", answers.body, answers.tag)
    question = _Question(answerer, name, request, http.app.state.keys, caller, asker(http))
    events = _events(question, interval_s, http.app.state.closing, sent=answers.tag, first=first)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return _LiveResponse(events, media_type="text/event-stream", headers=headers)


class _Question(NamedTuple):
    """What is asked again and again, and by whom."""

    answerer: Answerer
    name: str
    request: QueryRequest
    keys: KeyCache
    caller: Caller
    asker: str

    async def answer(self, sent: str) -> Answers:
        """The answers as of now, without their body if it is what was sent."""
        for name in (self.name, *sorted(self.request.others)):
            if not await self.keys.still(self.caller, name):
                raise UnauthenticatedError
        answers = await self.answerer.answer(
            [self.name],
            self.request,
            asker=self.asker,
            known=lambda tag: tag == sent,
            left=_never,
            counted=False,  # a connection has a place
        )
        assert answers is not None
        return answers


async def _never() -> bool:
    """Who leaves a stream of events is noticed by the response, which ends the question."""
    return False


async def _events(
    question: _Question, interval_s: float, closing: asyncio.Event, *, sent: str, first: str
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
            answers = await question.answer(sent)
        except _REASONS_TO_END as error:
            yield _event("problem", bytes(answer_to(error).body))
            return
        sent = answers.tag
        if answers.body is not None:
            yield _event("answer", answers.body, sent)


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
