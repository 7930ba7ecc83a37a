"""Silent and active devices and their last readings, from derived streams."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from api.errors import Fault, InvalidRequestError
from api.http.caller import reads
from api.http.problems import problems
from api.ingest.views import DEVICES, NAMES
from api.queries.answers import EstimateModel
from api.routes.common import TheAggregator, TheQuestions, TheStream
from api.service.streams import Stream
from decaysketch import Device, Devices
from decaysketch.core.time_units import in_units
from decaysketch.errors import UnanswerableQueryError
from decaysketch.query.query_syntax import is_integer

__all__ = ["router"]

router = APIRouter(tags=["queries"])

_FRESH = {"Cache-Control": "no-store"}
_LENGTH = Query(max_length=40, description="In the stream's unit, or a length such as `1h`.")


class DeviceModel(BaseModel):
    """A device's last reading."""

    device: str | None = Field(description="Its name; null where it was fed without one.")
    id: str = Field(description="What its name is hashed to, a number that may need 56 bits.")
    value: float | int | str | None = Field(description="What it said; null where it was missing.")
    time: int = Field(description="When, in the stream's unit.")


class DevicesResponse(BaseModel):
    """A stream's devices at a time."""

    stream: str
    now: int
    newest: int = Field(description="The newest reading; as of earlier times nothing is known.")
    held: int = Field(description="Devices whose last reading is kept.")
    complete: bool = Field(
        description="These are all there are. Else some were discarded, the longest silent first, "
        "and counts are estimates; or some were not taken (`missed`)."
    )
    missed: int = Field(
        default=0,
        description="Rows of the stream that the derived stream had no room for, since the server "
        "has begun: devices may be missing.",
    )
    width: str
    active: EstimateModel = Field(description="Devices that spoke within the width.")
    silent: EstimateModel | None = Field(
        description="Devices that spoke before and not within it; null where it cannot be told."
    )
    listed: Literal["silent", "latest"]
    devices: list[DeviceModel] = Field(
        description="The silent ones, the longest silent first; or those that are kept, the latest "
        "heard of first."
    )
    more: bool = Field(description="There are more than are listed.")


@router.get(
    "/v1/streams/{name}/devices",
    summary="Watch the devices",
    dependencies=[Depends(reads)],
    response_model=DevicesResponse,
    responses=problems(
        s404="No such stream.",
        s422="The name or a parameter is outside its domain, the stream has no view of devices or "
        "was not posted to; or the answer is not known: as of an earlier time than the newest "
        "reading, or of silent devices where some were discarded.",
        s429="The caller has as many questions under way as it may, or all have.",
    ),
)
async def list_devices(
    stream: TheStream,
    aggregator: TheAggregator,
    questions: TheQuestions,
    width: Annotated[str, _LENGTH] = "1h",
    now: Annotated[
        str | None,
        Query(
            max_length=40,
            description="The time that is asked about, in the stream's unit or as a date with its "
            "zone: that of the newest reading, which it is if not given, or a later one.",
        ),
    ] = None,
    listed: Annotated[
        Literal["silent", "latest"],
        Query(description="`silent`: who did not speak within the width; `latest`: all."),
    ] = "silent",
    limit: Annotated[int, Query(ge=1, le=1000, description="List so many at most.")] = 100,
) -> Response:
    """Silent devices with the time they fell silent, each device's last reading, and the count of
    active devices. For a stream with `views`.
    """
    views = {each.name: each for each in aggregator.views_of(stream)}
    readings = views.get(f"{stream.name}{DEVICES}")
    if readings is None:
        raise InvalidRequestError(
            f"stream {stream.name!r} has no view of devices; give it one: PUT "
            f'/v1/streams/{stream.name} with "views": {{"devices": {{"id": 0}}}}, where 0 is the '
            "part of an observation's id that names its device",
            [Fault(field="name", reason="the stream has no view of devices", value=stream.name)],
        )
    with questions() as compute:
        body = await compute(
            _listed, stream, readings, views.get(f"{stream.name}{NAMES}"), width, now, listed, limit
        )
    return Response(body, headers=_FRESH, media_type="application/json")


def _listed(
    stream: Stream,
    readings: Stream,
    names: Stream | None,
    width: str,
    now: str | None,
    listed: Literal["silent", "latest"],
    limit: int,
) -> bytes:
    devices: Any = Devices(
        readings.snapshot(),
        None if names is None else names.snapshot(),
    )
    if devices.newest is None:
        raise InvalidRequestError(
            f"no device of stream {stream.name!r} was heard of yet",
            [Fault(field="name", reason="no observation has come", value=stream.name)],
        )
    at = in_units(_number(now), devices.params.time_unit) if now is not None else devices.newest
    length = _number(width)
    found = (
        devices.silent(length, at, limit=limit + 1)
        if listed == "silent"
        else devices.listed(limit + 1)
    )
    return (
        DevicesResponse(
            stream=stream.name,
            now=at,
            newest=devices.newest,
            held=len(devices),
            complete=devices.complete_since is None and not readings.missed,
            missed=readings.missed,
            width=width,
            active=EstimateModel.of(devices.active(length, at)),
            silent=_silent(devices, length, at),
            listed=listed,
            devices=[_device(each) for each in found[:limit]],
            more=len(found) > limit,
        )
        .model_dump_json()
        .encode()
    )


def _silent(devices: Devices, length: Any, at: int) -> EstimateModel | None:
    try:
        return EstimateModel.of(devices.silent_count(length, at))
    except UnanswerableQueryError:  # devices were discarded at every level
        return None


def _device(each: Device) -> DeviceModel:
    return DeviceModel(device=each.name, id=str(each.id), value=each.value, time=each.time)


def _number(text: str) -> int | str:
    """An integer if the text is one, else the value of the text."""
    return int(text) if is_integer(text) else text
