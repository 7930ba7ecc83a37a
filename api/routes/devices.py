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

    device: str | None = Field(description="Its name. Null if rows were fed without one.")
    id: str = Field(description="Hash of its name, a number that may need 56 bits.")
    value: float | int | str | None = Field(description="Its value. Null if missing.")
    time: int = Field(description="Time, in the stream's unit.")


class DevicesResponse(BaseModel):
    """A stream's devices at a time."""

    stream: str
    now: int
    newest: int = Field(description="The newest reading. Results at earlier times are unknown.")
    held: int = Field(description="Devices with a stored last reading.")
    complete: bool = Field(
        description="True: these are all devices. False: some were discarded, the longest silent "
        "first, and counts are estimates, or some rows were not accepted (`missed`)."
    )
    missed: int = Field(
        default=0,
        description="Rows of the stream since the server started for which the derived stream "
        "had no capacity. Devices may be missing.",
    )
    width: str
    active: EstimateModel = Field(description="Devices with readings within the width.")
    silent: EstimateModel | None = Field(
        description="Devices with readings before the window and none in it. Null if unknown."
    )
    listed: Literal["silent", "latest"]
    devices: list[DeviceModel] = Field(
        description="Silent devices, longest silence first. Or all stored devices, latest "
        "reading first."
    )
    more: bool = Field(description="The list is not complete.")


@router.get(
    "/v1/streams/{name}/devices",
    summary="List the devices",
    dependencies=[Depends(reads)],
    response_model=DevicesResponse,
    responses=problems(
        s404="No such stream.",
        s422="The name or a parameter is outside its domain, the stream has no derived stream of "
        "devices, or it has no posts. Or the result is unknown, because the time is before "
        "the newest reading, or because the stream has discarded silent devices.",
        s429="Too many queries are running, for this caller or in total.",
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
            description="Query time, in the stream's unit or as a date with its zone: the time "
            "of the newest reading (default) or later.",
        ),
    ] = None,
    listed: Annotated[
        Literal["silent", "latest"],
        Query(
            description="`silent`: devices without readings within the width. `latest`: all "
            "devices."
        ),
    ] = "silent",
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 100,
) -> Response:
    """Silent devices with the time they fell silent, each device's last reading, and the count of
    active devices. For a stream with `views`.
    """
    views = {each.name: each for each in aggregator.views_of(stream)}
    readings = views.get(f"{stream.name}{DEVICES}")
    if readings is None:
        raise InvalidRequestError(
            f"stream {stream.name!r} has no derived stream of devices; create one: PUT "
            f'/v1/streams/{stream.name} with "views": {{"devices": {{"id": 0}}}}, where 0 '
            "is the part of an observation's id that names its device",
            [
                Fault(
                    field="name",
                    reason="the stream has no derived stream of devices",
                    value=stream.name,
                )
            ],
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
            f"stream {stream.name!r} has no readings yet",
            [Fault(field="name", reason="there are no observations yet", value=stream.name)],
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
