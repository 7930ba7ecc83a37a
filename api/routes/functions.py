"""Functions across the sources of a stream: definitions, results, and the exchange with sources."""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, Field

from api import schemas
from api.http.caller import administers, reads, writes
from api.http.json_body import JsonRoute, json_only
from api.http.problems import problems
from api.monitors.function_rows import FunctionRow
from api.monitors.functions import Functions
from api.routes.common import TheQuestions, TheStream, asked_json
from api.service.streams import Stream

__all__ = ["router"]

router = APIRouter(route_class=JsonRoute, tags=["functions"])

_BODY = {"content": {"application/json": {"schema": {"type": "object"}}}, "required": True}

FunctionName = Annotated[
    str,
    Path(
        pattern=schemas.STREAM, description="The same rules as for stream names.", examples=["skew"]
    ),
]


class FunctionFound(BaseModel):
    """The result that the hub guarantees."""

    certain: bool = Field(description="The guarantee holds now: every source has reported.")
    value: float | None = Field(
        description="At the beginning of the round. Null before the first round."
    )
    low: float | None = Field(description="Guaranteed lower bound of the present value.")
    high: float | None = Field(
        description="Guaranteed upper bound of the present value. Null: no bound."
    )
    frequent: list[int] | None = Field(description="Frequent keys.")
    silent: list[str] = Field(
        description="Sources without a report in this round or within the lease."
    )
    messages: int = Field(description="Messages in both directions, and posts.")
    arrivals: int = Field(description="Events that the sources reported.")
    posts: bool = Field(
        description="Messages would cost more than the events, so the sources post their "
        "sketches and the server reads the result from these."
    )
    costly: bool = Field(
        description="The messages outnumber the events, and the sources cannot post, because the "
        "function names no second stream."
    )


class FunctionModel(BaseModel):
    """A function and its result."""

    function: str = Field(description="Its name.")
    spec: dict[str, Any] = Field(description="As it was defined, in its normal form.")
    epoch: int = Field(description="Changes when the function is defined again.")
    found: FunctionFound


class FunctionList(BaseModel):
    """The functions of a stream, sorted by name."""

    functions: list[FunctionModel]


class Exchanged(BaseModel):
    """Messages for a source."""

    epoch: int
    messages: list[dict[str, Any]]
    spec: dict[str, Any] | None = Field(
        default=None, description="If the source named another epoch: the definition to begin with."
    )
    posts: bool | None = Field(
        default=None,
        description="Together with the definition: whether the source posts its sketches in this "
        "epoch.",
    )


async def _functions(request: Request) -> Functions:
    functions: Functions = request.app.state.functions
    return functions


TheFunctions = Annotated[Functions, Depends(_functions)]


@router.put(
    "/v1/streams/{name}/functions/{function}",
    summary="Define a function across sources",
    dependencies=[Depends(administers), Depends(json_only)],
    response_model=FunctionModel,
    response_description="The same function exists, or it was defined again.",
    responses={
        201: {"description": "Created.", "model": FunctionModel},
        **problems(
            s404="No such stream, or no such second stream.",
            s409="The number of functions is at its limit.",
            s413="The body is too long.",
            s415="The body is not JSON.",
            s422="A field is unknown, missing or outside its domain, the stream counts no keys, or "
            "the webhook is not allowed.",
            s429="Too many queries are running, for this caller or in total.",
            s503="The journal is unreachable. The change may have been stored or not.",
        ),
    },
    openapi_extra={"requestBody": _BODY | {"description": "`FunctionSpec(...).to_dict()`."}},
)
async def put_function(
    form: Annotated[Any, Depends(asked_json)],
    stream: TheStream,
    function: FunctionName,
    functions: TheFunctions,
    questions: TheQuestions,
    response: Response,
) -> FunctionModel:
    """The same spec again changes nothing. Another spec begins a new epoch, and every source
    begins again.
    """
    with questions() as compute:
        spec = await compute(functions.read_spec, stream, form)
    row, new = await functions.define(stream, function, spec)
    response.status_code = HTTPStatus.CREATED if new else HTTPStatus.OK
    return await _model(functions, stream, row)


@router.get(
    "/v1/streams/{name}/functions/{function}",
    summary="A function across sources",
    dependencies=[Depends(reads)],
    response_model=FunctionModel,
    responses=problems(
        s404="No such stream, or no such function.",
        s422="A name is outside its domain.",
        s503="The journal is unreachable.",
    ),
)
async def get_function(
    stream: TheStream, function: FunctionName, functions: TheFunctions
) -> FunctionModel:
    """The result and its range, and whether they are certain."""
    return await _model(functions, stream, await functions.find(stream, function))


@router.get(
    "/v1/streams/{name}/functions",
    summary="List the functions across sources",
    dependencies=[Depends(reads)],
    response_model=FunctionList,
    responses=problems(
        s404="No such stream.",
        s422="The name is outside its domain.",
        s503="The journal is unreachable.",
    ),
)
async def list_functions(stream: TheStream, functions: TheFunctions) -> FunctionList:
    """Each with its result."""
    rows = await functions.of_stream(stream)
    return FunctionList(functions=[await _model(functions, stream, row) for row in rows])


@router.delete(
    "/v1/streams/{name}/functions/{function}",
    summary="Delete a function across sources",
    dependencies=[Depends(administers)],
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream, or no such function.",
        s422="A name is outside its domain.",
        s503="The journal is unreachable. The change may have been stored or not.",
    ),
)
async def delete_function(
    stream: TheStream, function: FunctionName, functions: TheFunctions
) -> None:
    """Its sources receive the deletion with their next exchange, as 404."""
    await functions.remove(stream, function)


@router.post(
    "/v1/streams/{name}/functions/{function}/exchange",
    summary="Exchange messages with a source",
    dependencies=[Depends(writes), Depends(json_only)],
    response_model=Exchanged,
    response_model_exclude_none=True,
    response_description="The messages for the source.",
    responses=problems(
        s403="The source was revoked.",
        s404="No such stream, or no such function.",
        s413="The body is too long.",
        s415="The body is not JSON.",
        s422="A field or message is outside its domain, or the source does not participate.",
        s429="Other sources use the capacity for exchanges. Repeat the request later.",
        s503="The journal is unreachable. Repeat the request.",
    ),
    openapi_extra={
        "requestBody": _BODY
        | {"description": '`{"epoch": ..., "messages": [...], "arrivals": ..., "posts": ...}`'}
    },
)
async def post_exchange(
    form: Annotated[Any, Depends(asked_json)],
    stream: TheStream,
    function: FunctionName,
    source: schemas.SourceKey,
    functions: TheFunctions,
) -> Exchanged:
    """For `FunctionSource` from `decaysketch.monitor.functions`. You may repeat any exchange. With
    the epoch null, or another one, the response contains the definition.
    """
    return Exchanged(**await functions.exchange(stream, function, source, form))


async def _model(functions: Functions, stream: Stream, row: FunctionRow) -> FunctionModel:
    found = asdict(await functions.state(stream, row))
    return FunctionModel(
        function=row.name, spec=dict(row.spec), epoch=row.epoch, found=FunctionFound(**found)
    )
