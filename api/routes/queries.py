"""Queries, and results with intervals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response

from api import schemas
from api.http.caller import asker, check_scope, left_of, reads, reads_body_streams
from api.http.json_body import JsonRoute, asked_in_body, body_described, json_only, read_request
from api.http.problems import problems
from api.http.ranges import part_of
from api.queries import Answerer, Answers, GroupRequest, QueryRequest, is_known
from api.queries.answers import Form, GroupResponse, QueryResponse, media_type_of, preferred
from api.queries.requests import Time

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


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The requirements for a response, from a request's head.

    Attributes:
        form: response format.
        in_url: whether the URL names the format. If not, the ``Accept`` header may.
        after, if_none_match, part, if_range: headers.
    """

    form: Form
    in_url: bool
    after: str | None
    if_none_match: str | None
    part: str | None
    if_range: str | None


async def _wanted(
    http: Request,
    form: Annotated[
        Form | None,
        Query(
            alias="format",
            description="Output format, for clients that cannot set `Accept`: `json`, `csv` "
            "(`text/csv`) or `arrow` (`application/vnd.apache.arrow.stream`).",
        ),
    ] = None,
    after: Annotated[
        str | None,
        Header(
            alias="Decaysketch-After",
            max_length=200,
            description="The `token` of a post, as `after` in the request.",
        ),
    ] = None,
    if_none_match: Annotated[
        str | None, Header(description="Entity tags of the client's stored results.")
    ] = None,
) -> _Wanted:
    headers = http.headers
    chosen = preferred(headers.get("accept")) if form is None else form
    part, if_range = headers.get("range"), headers.get("if-range")
    return _Wanted(chosen, form is not None, after, if_none_match, part, if_range)


Wanted = Annotated[_Wanted, Depends(_wanted)]
Now = Annotated[
    Time | None,
    Query(
        description="Default time of the queries, in the stream's `time_unit`. Several requests, "
        "as for parts of a table, then have the same time."
    ),
]

_TABLE = {"schema": {"type": "string"}}
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_WRITTEN: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The results, as JSON or as a table with a row for each estimate.",
        "content": {"text/csv": _TABLE, "application/vnd.apache.arrow.stream": _BYTES},
    }
}
_ANSWERED: dict[int | str, dict[str, Any]] = _WRITTEN | {
    304: {
        "description": "The results are unchanged since the response that If-None-Match names. "
        "Nothing was computed."
    }
}
_REFUSED = problems(
    s403="The key may not read the stream.",
    s404="No such stream, or no posts from one of the sources.",
    s409="`after` belongs to a deleted stream or to no post.",
    s413="The body is too long.",
    s415="The body is not JSON.",
    s422="A query is malformed or beyond a limit, names an aggregate that the family does not "
    "have, or needs rows that every level has discarded.",
    s429="Too many queries are running, for this caller or in total.",
    s503="The post in `after` did not arrive here in time. Repeat the request.",
)


@router.post(
    "/v1/streams/{name}/query",
    tags=["queries"],
    summary="Query decayed aggregates",
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
    wanted: Wanted,
) -> Response:
    """Any aggregate under any decay, at one time or at many. You declare nothing beforehand. One
    sketch answers all queries in a request, in their order, or none. The entity tag names
    sketch, queries and time.
    """
    return await _respond(http, answerer, [name], request, wanted)


@router.get(
    "/v1/streams/{name}/query",
    tags=["queries"],
    summary="Query by URL",
    dependencies=[Depends(reads)],
    response_model=QueryResponse,
    responses={
        **_ANSWERED,
        206: {"description": "The part of a table that `Range` selects."},
        **problems(s416="The range starts beyond the last byte."),
        **{s: _REFUSED[s] for s in (403, 404, 409, 422, 429, 503)},
    },
)
async def get_query(
    name: schemas.StreamName,
    request: AskedInUrl,
    answerer: TheAnswerer,
    http: Request,
    wanted: Wanted,
    now: Now = None,
) -> Response:
    """The same queries and results as with POST, for HTTP caches and links. `Range` selects a part
    of a table if every query has a time, its own or `now`. Otherwise the response is complete,
    and `Content-Location` names a URL that serves the table in parts.
    """
    if now is not None:
        queries = [
            each.model_copy(update={"now": now}) if each.is_of_now else each
            for each in request.queries
        ]
        request = request.model_copy(update={"queries": queries})
    return await _respond(http, answerer, [name], request, wanted)


@router.post(
    "/v1/query",
    tags=["queries"],
    summary="Query several streams as one",
    dependencies=[Depends(reads_body_streams), Depends(json_only)],
    response_model=GroupResponse,
    responses={
        **_ANSWERED,
        **_REFUSED,
        **problems(
            s409="Two of the streams cannot be merged, and the problem names each differing "
            "field. Or `after` belongs to a deleted stream or to no post."
        ),
    },
    openapi_extra=body_described(GroupRequest),
)
async def post_group_query(
    request: GroupAskedInBody,
    answerer: TheAnswerer,
    http: Request,
    wanted: Wanted,
) -> Response:
    """Results for the join of the streams, as if one stream had received every post: an
    observation in several streams counts once.
    """
    return await _respond(http, answerer, request.streams, request, wanted)


async def _respond(
    http: Request,
    answerer: Answerer,
    names: Sequence[str],
    request: QueryRequest | GroupRequest,
    wanted: _Wanted,
) -> Response:
    check_scope(http.scope["state"]["caller"], sorted(request.others))
    if wanted.after is not None and request.after is None:
        request = request.model_copy(update={"after": wanted.after})
    answers = await answerer.answer(
        names,
        request,
        asker=asker(http),
        known=lambda tag: is_known(tag, wanted.if_none_match),
        has_left=left_of(http),
        form=wanted.form,
    )
    headers = {"ETag": answers.tag, "Cache-Control": "no-cache", "Vary": "Accept"}
    if answers.body is None:
        answerer.hit(request)
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    body, status = answers.body, HTTPStatus.OK
    if http.method == "GET" and wanted.form is not Form.JSON:
        if answers.now is not None:
            headers |= {"Accept-Ranges": "none", "Content-Location": _pinned(http, wanted, answers)}
        else:
            headers["Accept-Ranges"] = "bytes"
            part = part_of(body, wanted.part, wanted.if_range, answers.tag)
            if part is not None:
                headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(body)}"
                body, status = body[part], HTTPStatus.PARTIAL_CONTENT
    return Response(body, status, headers, media_type_of(wanted.form))


def _pinned(http: Request, wanted: _Wanted, answers: Answers) -> str:
    """Return the path and query for the same table with a fixed time."""
    fields = [*http.query_params.multi_items(), ("now", str(answers.now))]
    if not wanted.in_url:
        fields.append(("format", str(wanted.form)))
    return f"{http.url.path}?{urlencode(fields)}"
