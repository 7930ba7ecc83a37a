"""Results for Prometheus: an operator's saved queries, and the scrape that runs them."""

from __future__ import annotations

import json
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel, Field

from api import schemas
from api.access.keys import Caller
from api.errors import ServiceError, UnanswerableQueriesError, UnknownQuestionError
from api.http.caller import Reads, administers, asker, check_scope, left_of, reads
from api.http.json_body import JsonRoute, asked_in_body, body_described, json_only
from api.http.problems import answer_to, problems
from api.http.refusals import ForbiddenError
from api.monitors.saved_queries import Configured, ConfiguredQuestion
from api.queries import Answerer, QueryRequest
from api.queries.configured import QuestionDefinition, exposition, read_query
from api.routes.common import TheStream
from api.routes.queries import TheAnswerer
from api.service.streams import Stream
from decaysketch.errors import DecaySketchError

__all__ = ["router"]

router = APIRouter(route_class=JsonRoute, tags=["queries"])

_REFUSALS = (ServiceError, DecaySketchError, ForbiddenError)

QuestionName = Annotated[
    str,
    Path(
        pattern=schemas.STREAM,
        description="The same rules as for stream names.",
        examples=["mean_1h"],
    ),
]


class QuestionState(BaseModel):
    """A saved query."""

    name: str
    set: str
    query: dict[str, Any] | None = Field(
        description="As it was configured. Null if its stream is outside the key's scope."
    )


class QuestionList(BaseModel):
    """A stream's saved queries, sorted by name."""

    questions: list[QuestionState]


async def _configured(request: Request) -> Configured:
    configured: Configured = request.app.state.configured
    return configured


TheConfigured = Annotated[Configured, Depends(_configured)]
Defined = Annotated[QuestionDefinition, Depends(asked_in_body(QuestionDefinition))]


@router.put(
    "/v1/streams/{name}/questions/{question}",
    summary="Save a query",
    dependencies=[Depends(administers), Depends(json_only)],
    response_model=QuestionState,
    response_description="Replaced.",
    responses={
        201: {"description": "Created.", "model": QuestionState},
        **problems(
            s403="The key may not administer the stream, or may not read another stream in the "
            "query.",
            s404="No such stream.",
            s409="The number of saved queries is at its limit.",
            s413="The body is too long.",
            s415="The body is not JSON.",
            s422="A field is unknown, missing or outside its domain, the stream's family does "
            "not support the query, or its time unit has no clock.",
            s429="Too many queries are running, for this caller or in total.",
            s503="The journal is unreachable. The change may have been stored or not.",
        ),
    },
    openapi_extra=body_described(QuestionDefinition),
)
async def put_question(
    definition: Defined,
    stream: TheStream,
    question: QuestionName,
    configured: TheConfigured,
    answerer: TheAnswerer,
    http: Request,
    response: Response,
) -> QuestionState:
    """The server runs the query once, and rejects one that can never have a result. A query without
    a result at this moment is accepted.
    """
    request = QueryRequest(queries=[definition.query])
    with suppress(UnanswerableQueriesError):
        await _ask(answerer, stream, request, http)
    kept = ConfiguredQuestion(question, definition.set, definition.text())
    new = await configured.define(stream, kept)
    response.status_code = HTTPStatus.CREATED if new else HTTPStatus.OK
    return _state(kept, http.scope["state"]["caller"])


@router.get(
    "/v1/streams/{name}/questions",
    summary="List the saved queries",
    response_model=QuestionList,
    responses=problems(
        s404="No such stream.",
        s422="The name is outside its domain.",
        s503="The journal is unreachable.",
    ),
)
async def list_questions(
    caller: Reads, stream: TheStream, configured: TheConfigured
) -> QuestionList:
    """Every set."""
    found = await configured.of_stream(stream)
    return QuestionList(questions=[_state(each, caller) for each in found])


@router.delete(
    "/v1/streams/{name}/questions/{question}",
    summary="Delete a saved query",
    dependencies=[Depends(administers)],
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream, or no such saved query.",
        s422="A name is outside its domain.",
        s503="The journal is unreachable. The change may have been stored or not.",
    ),
)
async def delete_question(
    stream: TheStream, question: QuestionName, configured: TheConfigured
) -> None:
    """The next scrape omits it."""
    await configured.remove(stream, question)


@router.get(
    "/v1/streams/{name}/prometheus",
    summary="Scrape the saved queries",
    dependencies=[Depends(reads)],
    response_class=Response,
    responses={
        200: {
            "description": "Gauges in the text format of Prometheus.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **problems(
            s404="No such stream, or no saved query in the set.",
            s422="The name is outside its domain.",
            s429="Too many queries are running, for this caller or in total.",
            s503="The journal is unreachable.",
        ),
    },
)
async def get_prometheus(
    stream: TheStream,
    configured: TheConfigured,
    answerer: TheAnswerer,
    http: Request,
    chosen: Annotated[
        str | None,
        Query(
            alias="set",
            pattern=schemas.STREAM,
            description="Only queries in this set. Default: all.",
        ),
    ] = None,
) -> Response:
    """Results at this time. The response omits a query without a result, and names it in
    `decaysketch_answer_error`.
    """
    found = await configured.of_stream(stream)
    if chosen is not None:
        found = [each for each in found if each.set_name == chosen]
        if not found:
            raise UnknownQuestionError(stream.name, f"saved query in the set {chosen!r}")
    text = exposition(stream.name, *await _answers(answerer, stream, found, http))
    headers = {"Cache-Control": "no-store", "Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
    return Response(text, headers=headers)


async def _answers(
    answerer: Answerer, stream: Stream, found: list[ConfiguredQuestion], http: Request
) -> tuple[list[tuple[str, Any]], list[tuple[str, str]]]:
    """Return each query's result, or the reason why it has none."""
    if not found:
        return [], []
    queries = [read_query(each.query) for each in found]
    try:
        body = await _ask(answerer, stream, QueryRequest(queries=queries), http)
        names = [each.name for each in found]
        return list(zip(names, json.loads(body)["answers"], strict=True)), []
    except _REFUSALS as error:
        _reason(error)
    # One of the queries failed. Run each one separately.
    answers: list[tuple[str, Any]] = []
    errors: list[tuple[str, str]] = []
    for each, query in zip(found, queries, strict=True):
        try:
            body = await _ask(answerer, stream, QueryRequest(queries=[query]), http)
        except _REFUSALS as error:
            errors.append((each.name, _reason(error)))
            continue
        answers += [(each.name, answer) for answer in json.loads(body)["answers"]]
    return answers, errors


async def _ask(answerer: Answerer, stream: Stream, request: QueryRequest, http: Request) -> bytes:
    """Results as JSON."""
    check_scope(http.scope["state"]["caller"], sorted(request.others))
    answered = await answerer.answer(
        [stream.name],
        request,
        asker=asker(http),
        known=lambda _tag: False,
        has_left=left_of(http),
    )
    assert answered.body is not None  # nothing is known
    return answered.body


def _reason(error: Exception) -> str:
    """Return the problem kind for a query. Problems with the service are raised."""
    problem = answer_to(error)
    if problem.status_code not in (403, 404, 409, 422):
        raise error
    kind: str = json.loads(bytes(problem.body))["type"].rpartition(":")[2]
    return "forbidden" if problem.status_code == HTTPStatus.FORBIDDEN else kind


def _state(question: ConfiguredQuestion, caller: Caller) -> QuestionState:
    others = read_query(question.query).others.values()
    query = json.loads(question.query) if all(map(caller.sees, others)) else None
    return QuestionState(name=question.name, set=question.set_name, query=query)
