"""Results that follow the stream: server-sent events.

A connection repeats its query every ``interval_s`` and sends the results if their entity tag has
changed. Between results it sends comments, so that proxies keep it open. It ends when the client
leaves, or does not read for ``READER_S`` seconds. It also ends, with an event that gives the
reason, when the key expires or the query has no result any more. Other ends are a stop of the
server, and an hour of age. An ``EventSource`` then reconnects by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from api import schemas
from api.access.keys import Caller, KeyCache
from api.http import server_sent
from api.http.caller import Reads, UnauthenticatedError, asker, check_scope, left_of
from api.http.problems import answer_to, problems
from api.http.server_sent import EventResponse, Places, event, happens
from api.queries import Answerer, Answers, QueryRequest
from api.routes.queries import AskedInUrl, TheAnswerer
from api.service.threads import never

__all__ = ["router"]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.live_places = Places(app.state.settings.live_clients, app.state.metrics.live)
    yield


router = APIRouter(lifespan=_lifespan)


async def _place(request: Request, caller: Reads) -> AsyncIterator[None]:
    """Occupy one of the connections for live clients until the response ends."""
    with request.app.state.live_places.place(caller.prefix):
        yield


@router.get(
    "/v1/streams/{name}/live",
    tags=["queries"],
    summary="Subscribe to query results",
    dependencies=[Depends(_place)],
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events. `answer`: the JSON of a query response, with its "
            "entity tag as the id. `problem`: the reason for the end of the "
            "events.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **problems(
            s403="The key may not read the stream.",
            s404="No such stream, or no posts from one of the sources.",
            s409="`after` belongs to a deleted stream or to no post.",
            s422="The request is malformed or beyond a limit, or has no result.",
            s429="Too many live connections are open, in total or for this key, or too many "
            "queries are running.",
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
        float, Query(ge=0.2, le=3600, description="Seconds between two results.")
    ] = 1.0,
    last_event_id: Annotated[
        str | None, Header(description="The entity tag of the client's stored results.")
    ] = None,
) -> Response:
    """The results now, and again after each change. Queries without `now` follow the server's
    clock.
    """
    check_scope(caller, sorted(request.others))
    answers = await answerer.answer(
        [name],
        request,
        asker=asker(http),
        known=lambda tag: tag == last_event_id,
        has_left=left_of(http),
    )
    first = "" if answers.body is None else event("answer", answers.body, answers.tag)
    question = _Question(answerer, name, request, http.app.state.keys, caller, asker(http))
    events = _events(question, interval_s, http.app.state.closing, sent=answers.tag, first=first)
    return EventResponse(events)


class _Question(NamedTuple):
    """A repeated query and its caller."""

    answerer: Answerer
    name: str
    request: QueryRequest
    keys: KeyCache
    caller: Caller
    asker: str

    async def answer(self, sent: str) -> Answers:
        """The results now, without their body if the client already has it."""
        for name in (self.name, *sorted(self.request.others)):
            if not await self.keys.still(self.caller, name):
                raise UnauthenticatedError
        return await self.answerer.answer(
            [self.name],
            self.request,
            asker=self.asker,
            known=lambda tag: tag == sent,
            has_left=never,  # the response notices that, and ends the query
            counted=False,  # a connection has a place
        )


async def _events(
    question: _Question, interval_s: float, closing: asyncio.Event, *, sent: str, first: str
) -> AsyncIterator[str]:
    clock = asyncio.get_running_loop().time
    end = clock() + server_sent.LIFETIME_S
    yield f"{server_sent.RETRY}{first}"
    while clock() < end:
        due = clock() + interval_s
        while (wait_s := due - clock()) > 0:
            if await happens(closing, min(wait_s, server_sent.BEAT_S)):
                return
            if clock() < due:
                yield server_sent.COMMENT
        try:
            answers = await question.answer(sent)
        except server_sent.REASONS_TO_END as error:
            yield event("problem", bytes(answer_to(error).body))
            return
        sent = answers.tag
        if answers.body is not None:
            yield event("answer", answers.body, sent)
