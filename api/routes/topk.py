"""Top-k lists of a stream: definitions, results, and the exchange with sources."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, Field

from api import schemas
from api.http.caller import administers, reads, writes
from api.http.json_body import JsonRoute, json_only
from api.http.problems import problems
from api.monitors.topk import Listed, Lists
from api.routes.common import TheQuestions, TheStream, asked_json
from api.service.streams import Stream
from decaysketch.topk import Ask

__all__ = ["router"]

router = APIRouter(route_class=JsonRoute, tags=["topk"])

_BODY = {"content": {"application/json": {"schema": {"type": "object"}}}, "required": True}

TopKName = Annotated[
    str,
    Path(
        pattern=schemas.STREAM,
        description="The same rules as for stream names.",
        examples=["talkers"],
    ),
]


class TopKRow(BaseModel):
    """An item and its count."""

    item: str | int
    lower: int | float
    upper: int | float


class TopKFound(BaseModel):
    """A list at the time of its round."""

    as_of: int = Field(description="In the time unit of the stream.")
    rows: list[TopKRow] = Field(description="At most k items, sorted by `lower`.")
    certain: bool = Field(
        description="These are the k largest counts over all sources except `without`, each exact."
    )
    outside: int | float = Field(description="No other item of these sources has a larger count.")
    without: list[str] = Field(description="Sources without a report.")


class TopKRound(BaseModel):
    """The open round."""

    as_of: int | None = Field(description="In the stream's time unit. Null before the first.")
    serial: int = Field(description="Number of the current request.")
    heard: int = Field(description="Sources that have posted in this round.")
    waiting_for: list[str] = Field(description="Sources that have not.")


class TopKState(BaseModel):
    """A list, and the open round."""

    topk: str = Field(description="Its name.")
    spec: dict[str, Any] = Field(description="As it was defined, in its normal form.")
    epoch: int = Field(description="Changes when the monitor is defined again.")
    time_unit: str = Field(description="Of the stream.")
    entries: int = Field(description="Maximum number of entries of a source in one round.")
    found: TopKFound | None = Field(description="The last list. Null: none in this epoch yet.")
    round: TopKRound


class TopKLists(BaseModel):
    """The lists of a stream, sorted by name."""

    lists: list[TopKState]


class TopKAsk(BaseModel):
    """`Ask` from `decaysketch.topk`."""

    epoch: int
    serial: int
    as_of: int | None
    floor: int | float | None
    least: int
    watched: list[str | int]
    have: tuple[int, int] | None


async def _lists(request: Request) -> Lists:
    lists: Lists = request.app.state.lists
    return lists


TheLists = Annotated[Lists, Depends(_lists)]


@router.put(
    "/v1/streams/{name}/topk/{topk}",
    summary="Define a top-k list",
    dependencies=[Depends(administers), Depends(json_only)],
    response_model=TopKState,
    response_description="The same list exists, or it was defined again.",
    responses={
        201: {"description": "Created.", "model": TopKState},
        **problems(
            s404="No such stream.",
            s409="The number of lists is at its limit.",
            s413="The body is too long.",
            s415="The body is not JSON.",
            s422="A field is unknown, missing or outside its domain.",
            s429="Too many queries are running, for this caller or in total.",
            s503="The journal is unreachable. The change may have been stored or not.",
        ),
    },
    openapi_extra={"requestBody": _BODY | {"description": "`TopKSpec(...).to_dict()`."}},
)
async def put_topk(
    form: Annotated[Any, Depends(asked_json)],
    stream: TheStream,
    topk: TopKName,
    lists: TheLists,
    questions: TheQuestions,
    response: Response,
) -> TopKState:
    """The same spec again changes nothing. Another spec begins a new epoch: the list is empty until
    sources have posted under it.
    """
    with questions() as compute:
        spec = await compute(lists.read_spec, stream, form)
    listed, new = await lists.define(stream, topk, spec)
    response.status_code = HTTPStatus.CREATED if new else HTTPStatus.OK
    return _state_of(stream, listed)


@router.get(
    "/v1/streams/{name}/topk/{topk}",
    summary="A top-k list",
    dependencies=[Depends(reads)],
    response_model=TopKState,
    responses=problems(
        s404="No such stream, or no such list.",
        s422="A name is outside its domain.",
        s503="The journal is unreachable.",
    ),
)
async def get_topk(stream: TheStream, topk: TopKName, lists: TheLists) -> TopKState:
    """The list from the last complete round, with its certificate, and the open round."""
    return _state_of(stream, await lists.find(stream, topk))


@router.get(
    "/v1/streams/{name}/topk",
    summary="List the top-k lists",
    dependencies=[Depends(reads)],
    response_model=TopKLists,
    responses=problems(
        s404="No such stream.",
        s422="The name is outside its domain.",
        s503="The journal is unreachable.",
    ),
)
async def list_topk(stream: TheStream, lists: TheLists) -> TopKLists:
    """Each with its items."""
    return TopKLists(lists=[_state_of(stream, each) for each in lists.of_stream(stream)])


@router.delete(
    "/v1/streams/{name}/topk/{topk}",
    summary="Delete a top-k list",
    dependencies=[Depends(administers)],
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream, or no such list.",
        s422="A name is outside its domain.",
        s503="The journal is unreachable. The change may have been stored or not.",
    ),
)
async def delete_topk(stream: TheStream, topk: TopKName, lists: TheLists) -> None:
    """Its sources receive the deletion with their next request."""
    await lists.remove(stream, topk)


@router.get(
    "/v1/streams/{name}/topk/{topk}/ask",
    summary="Get the request to a source",
    dependencies=[Depends(reads)],
    response_model=TopKAsk,
    responses=problems(
        s404="No such stream, or no such list.",
        s422="A name or the source is outside its domain.",
        s503="The journal is unreachable.",
    ),
)
async def get_topk_ask(
    stream: TheStream, topk: TopKName, source: schemas.SourceKey, lists: TheLists
) -> Response:
    """For `TopKSite.take`. Poll it, because the server sends no notification."""
    return _said(await lists.ask(stream, topk, source))


@router.post(
    "/v1/streams/{name}/topk/{topk}/posts",
    summary="Report the counts of a source",
    dependencies=[Depends(writes), Depends(json_only)],
    response_model=TopKAsk,
    response_description="The current request to the source, with the data that the server has "
    "from it.",
    responses=problems(
        s403="The source was revoked.",
        s404="No such stream, or no such list.",
        s409="The source is not a source of the list, or exceeds their number.",
        s413="The body is too long.",
        s415="The body is not JSON.",
        s422="A field is unknown, missing or outside its domain.",
        s503="The journal is unreachable. Post again.",
    ),
    openapi_extra={"requestBody": _BODY | {"description": "`Post.to_dict()`."}},
)
async def post_topk(
    form: Annotated[Any, Depends(asked_json)],
    stream: TheStream,
    topk: TopKName,
    source: schemas.SourceKey,
    lists: TheLists,
) -> Response:
    """A post for another round or epoch than the open one, or older than the stored one, changes
    nothing, and the response contains the stored state. You may send the same post any number
    of times, in any order.
    """
    return _said(await lists.take(stream, topk, source, form))


def _said(ask: Ask) -> Response:
    return Response(ask.to_json(), media_type="application/json")


def _state_of(stream: Stream, listed: Listed) -> TopKState:
    row, heard = listed.row, listed.heard
    return TopKState(
        topk=row.name,
        spec=dict(row.spec),
        epoch=row.epoch,
        time_unit=stream.recipe.params.time_unit,
        entries=listed.spec.entries,
        found=None if row.found is None else TopKFound.model_validate(row.found),
        round=TopKRound(
            as_of=listed.asked.as_of,
            serial=listed.asked.serial,
            heard=len(heard),
            waiting_for=sorted(listed.sites - heard.keys()),
        ),
    )
