"""Questions, and answers each with an interval."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response

from api import schemas
from api.http.asker import asker
from api.http.guard import check_scope, reads, reads_body_streams
from api.http.json_body import JsonRoute
from api.http.problems import problems
from api.http.reading import asked_in_body, body_described, read_request
from api.queries import Answerer, GroupRequest, QueryRequest, is_known
from api.queries.answers import GroupResponse, QueryResponse
from api.routes.common import CLIENT_LEFT, json_only

__all__ = ["AskedInUrl", "TheAnswerer", "router"]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state = app.state
    state.answerer = Answerer(state.aggregator, state.settings, state.metrics, state.questions)
    yield


router = APIRouter(lifespan=_lifespan, route_class=JsonRoute)


async def _answerer(request: Request) -> Answerer:
    answerer: Answerer = request.app.state.answerer
    return answerer


async def _asked(
    request: Annotated[
        str,
        Query(
            max_length=16_000,
            description="The body of `POST /v1/streams/{name}/query`, as JSON.",
            examples=['{"queries": [{"aggregate": "sum", "decay": {"kind": "none"}}]}'],
        ),
    ],
) -> QueryRequest:
    return read_request(request, QueryRequest)


TheAnswerer = Annotated[Answerer, Depends(_answerer)]
AskedInUrl = Annotated[QueryRequest, Depends(_asked)]
AskedInBody = Annotated[QueryRequest, Depends(asked_in_body(QueryRequest))]
GroupAskedInBody = Annotated[GroupRequest, Depends(asked_in_body(GroupRequest))]
After = Annotated[
    str | None,
    Header(
        alias="Decaysketch-After",
        max_length=200,
        description="The `token` of a post, as `after` in the request.",
    ),
]
IfNoneMatch = Annotated[
    str | None, Header(description="Entity tags of answers that the client has.")
]

_ANSWERED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The answers are those that If-None-Match names; nothing was computed."}
}
_REFUSED = problems(
    s403="The key may not read the stream.",
    s404="No such stream, or nothing came from one of the sources.",
    s409="`after` is of a stream that was deleted since, or of no post.",
    s413="The body is too long.",
    s415="The body is not JSON.",
    s422="A query is malformed or beyond a limit, names an aggregate that the family does not "
    "have, or asks for what was discarded at every level.",
    s429="The caller has as many questions under way as it may, or all have.",
    s503="What `after` names did not arrive here in time; ask again.",
)


@router.post(
    "/v1/streams/{name}/query",
    tags=["queries"],
    summary="Ask for decayed aggregates",
    dependencies=[Depends(reads), Depends(json_only)],
    response_model=QueryResponse,
    responses={**_ANSWERED, **_REFUSED},
    openapi_extra=body_described(QueryRequest),
)
async def post_query(
    name: schemas.StreamName,
    request: AskedInBody,
    answerer: TheAnswerer,
    http: Request,
    after: After = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Any aggregate under any decay, at one time or at many; nothing has to be declared beforehand.
    All queries of a request are answered from one and the same sketch, in their order, or none
    is. The entity tag names sketch, queries and time."""
    return await _respond(http, answerer, [name], request, after, if_none_match)


@router.get(
    "/v1/streams/{name}/query",
    tags=["queries"],
    summary="Ask by a URL alone",
    dependencies=[Depends(reads)],
    response_model=QueryResponse,
    responses={**_ANSWERED, **{s: _REFUSED[s] for s in (403, 404, 409, 422, 429, 503)}},
)
async def get_query(
    name: schemas.StreamName,
    request: AskedInUrl,
    answerer: TheAnswerer,
    http: Request,
    after: After = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The same questions and answers as by POST, for HTTP caches and links."""
    return await _respond(http, answerer, [name], request, after, if_none_match)


@router.post(
    "/v1/query",
    tags=["queries"],
    summary="Ask several streams as one",
    dependencies=[Depends(reads_body_streams), Depends(json_only)],
    response_model=GroupResponse,
    responses={
        **_ANSWERED,
        **_REFUSED,
        **problems(
            s409="Two of the streams cannot be joined; every differing field is named. Or `after` "
            "is of a stream that was deleted since, or of no post."
        ),
    },
    openapi_extra=body_described(GroupRequest),
)
async def post_group_query(
    request: GroupAskedInBody,
    answerer: TheAnswerer,
    http: Request,
    after: After = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Answers of the join of the streams, as if all had been posted to one: an observation that
    came to several of them counts once."""
    return await _respond(http, answerer, request.streams, request, after, if_none_match)


async def _respond(
    http: Request,
    answerer: Answerer,
    names: Sequence[str],
    request: QueryRequest | GroupRequest,
    after: str | None,
    if_none_match: str | None,
) -> Response:
    check_scope(http.scope["state"]["caller"], sorted(request.others))
    if after is not None and request.after is None:
        request = request.model_copy(update={"after": after})
    answers = await answerer.answer(
        names,
        request,
        asker=asker(http),
        known=lambda tag: is_known(tag, if_none_match),
        left=http.is_disconnected,
    )
    if answers is None:
        return Response(status_code=CLIENT_LEFT)
    headers = {"ETag": answers.tag, "Cache-Control": "no-cache"}
    if answers.body is None:
        answerer.hit(request)
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(answers.body, media_type="application/json", headers=headers)
