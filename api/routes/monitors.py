"""A stream's monitors: definitions, states, reports from sources, and events for both."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from api import schemas
from api.access.keys import Caller
from api.errors import UnknownStreamError
from api.http import server_sent
from api.http.caller import Reads, UnauthenticatedError, administers, reads, writes
from api.http.json_body import JsonRoute, json_only
from api.http.problems import answer_to, problems
from api.http.server_sent import EventResponse, Places, event
from api.monitors import functions, topk
from api.monitors.engine import (
    Monitors,
    Watched,
    explained,
    group_counts,
    summary,
)
from api.monitors.history import Entry
from api.routes.common import TheAggregator, TheQuestions, TheStream, asked_json
from api.service.streams import Stream
from decaysketch.core.text.grammar import shortened
from decaysketch.core.time_units import duration, instant
from decaysketch.errors import ParameterError
from decaysketch.monitor import Report, explain, group_key, group_of

__all__ = ["router"]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.event_places = Places(app.state.settings.event_clients, app.state.metrics.events)
    yield


router = APIRouter(route_class=JsonRoute, tags=["monitors"], lifespan=_lifespan)

_LATEST_S = 1e11
_CHECK_S = 1.0  # whether who follows events still may, and the server still serves

_BODY = {"content": {"application/json": {"schema": {"type": "object"}}}, "required": True}

MonitorName = Annotated[
    str,
    Path(
        pattern=schemas.STREAM,
        description="The same rules as for stream names.",
        examples=["too-many"],
    ),
]


class SiteState(BaseModel):
    """A participating source. It may hold rows back."""

    source: str
    silent: bool = Field(
        description="The source has no current report, so the state does not cover it."
    )
    lease_until: float | None = Field(description="End of its lease, in seconds since 1970.")
    allowance: float = Field(description="Maximum weight that it may hold back.")
    last_report: float | None = Field(description="In seconds since 1970.")


class AlertState(BaseModel):
    """An alert's state."""

    phase: Literal["inactive", "pending", "firing"]
    since: float = Field(description="In seconds since 1970.")
    cleared: float | None = Field(
        description="For a firing group: the time since which its condition is false. Null while "
        "it is true."
    )


class ExpectedPosts(BaseModel):
    """Number of reports for a monitor in one lifetime of its decay. Null: no bound."""

    lifetime_s: float
    near: float | None = Field(description="Posts, while the aggregate is near the threshold.")
    renewals: float | None = Field(description="Maximum number of reports that only renew leases.")
    without: float | None = Field(description="Posts if sources posted every row at once.")


class GroupCounts(BaseModel):
    """The number of groups in each state."""

    firing: int
    uncertain: int
    calm: int
    untracked: int = Field(description="Groups without a state, because the limit is reached.")
    untracked_firing: int = Field(
        description="Number of listed rows that have reached the threshold."
    )


class GroupState(BaseModel):
    """A group's state and alert."""

    by: dict[str, Any] = Field(description="The value of each key.")
    state: Literal["calm", "firing", "uncertain"]
    reason: str | None
    explanation: str = Field(description="The state in one sentence.")
    since: float = Field(description="Beginning of the state, in seconds since 1970.")
    alert: AlertState
    value: float | None
    lower: float | None
    upper: float | None
    rows: int = Field(description="Retained rows of the group.")
    gone: float | None = Field(
        description="Time since which the group has no rows, in seconds since 1970. Null: it has "
        "rows."
    )


class _Said(BaseModel):
    """The fields of a monitor in every response."""

    monitor: str
    state: Literal["calm", "firing", "uncertain"]
    reason: str | None = Field(
        description="Reason for `uncertain`: `silent` sources, the `allowances` of sources, or "
        "the interval of the `sketch`. Null for other states, and before the first "
        "evaluation."
    )
    explanation: str = Field(description="The state in one sentence.")
    evaluated: float | None = Field(description="Time of the evaluation, in seconds since 1970.")
    since: float = Field(description="Beginning of the state, in seconds since 1970.")
    alert: AlertState
    value: float | None = Field(description="The estimate from the posts at the server.")
    lower: float | None = Field(
        description="Lower bound of the interval, including all rows that sources may hold back."
    )
    upper: float | None = Field(
        description="Upper bound of the interval, including all rows that sources may hold back."
    )
    threshold: float
    group_counts: GroupCounts | None = Field(description="For a monitor with `by`. Otherwise null.")


class MonitorState(_Said):
    """A monitor and its state."""

    groups: list[GroupState] = Field(
        description="For a monitor with `by`: the groups with a state, firing groups first."
    )

    spec: dict[str, Any] = Field(description="As it was defined, in its normal form.")
    epoch: int = Field(
        description="Epoch of its grants. Changes when the monitor is defined again."
    )
    pending_at_most: float = Field(description="Weight that all sources together may hold back.")
    silent: list[str] = Field(
        description="Participating sources without a report within their lease."
    )
    sites: list[SiteState] = Field(
        description="Participating sources. Empty: none, and the state is the result of a query."
    )
    expected: ExpectedPosts


class MonitorList(BaseModel):
    """A stream's monitors, sorted by name."""

    monitors: list[MonitorState]


class MonitorGlance(_Said):
    """A monitor in the list for all streams."""

    stream: str
    silent: int = Field(description="Number of sources without a current report.")


class HistoryState(BaseModel):
    """A monitor's past state."""

    since: float = Field(description="Beginning, in seconds since 1970.")
    until: float | None = Field(description="End, in seconds since 1970. Null: the present state.")
    state: Literal["calm", "firing", "uncertain"]
    reason: str | None
    alert: Literal["inactive", "pending", "firing"]
    value: float | None = Field(
        description="Beginning of the state, in the same form as the others."
    )
    lower: float | None
    upper: float | None
    threshold: float | None
    explanation: str


class MonitorHistory(BaseModel):
    """Monitor states, oldest first."""

    monitor: str
    states: list[HistoryState]
    complete: bool = Field(
        description="True: these are all retained states of that time. False: `limit` cut off "
        "older ones."
    )


class MonitorGlances(BaseModel):
    """The monitors in all streams that the caller may see, sorted by name."""

    monitors: list[MonitorGlance]


async def _monitors(request: Request) -> Monitors:
    monitors: Monitors = request.app.state.monitors
    return monitors


TheMonitors = Annotated[Monitors, Depends(_monitors)]


def _moment(name: str, what: str) -> Any:
    text = "seconds since 1970, a date with its zone, or a length of time ago such as `6h`"
    return Query(alias=name, max_length=40, description=f"{what}: {text}.")


def _read_moment(name: str, given: str, now_us: int) -> int:
    """A history time, in microseconds since 1970.

    Raises:
        ParameterError: the text has no known notation.
    """
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if 0.0 <= seconds <= _LATEST_S:
        return int(seconds * 1e6)
    with suppress(ParameterError):
        return min(instant(given, "us", name=name), int(_LATEST_S * 1e6))
    with suppress(ParameterError):
        return max(0, now_us - int(duration(given, "us", name=name)))
    raise ParameterError(
        f"{name} is {shortened(given)}; expected seconds since 1970, a date with its zone such as "
        "2026-01-31T12:00:00Z, or a length of time ago such as 6h"
    )


def _read_group(given: str) -> str:
    """The key of a group.

    Raises:
        ParameterError: the text is no JSON object.
    """
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ParameterError(
            f"group is {shortened(given)}; expected a JSON object with the group's keys, such as "
            '{"site": "a"}'
        )
    return group_key(found)


@router.put(
    "/v1/streams/{name}/monitors/{monitor}",
    summary="Define a monitor",
    dependencies=[Depends(administers), Depends(json_only)],
    response_model=MonitorState,
    response_description="The same monitor exists, or it was defined again.",
    responses={
        201: {"description": "Created.", "model": MonitorState},
        **problems(
            s404="No such stream.",
            s409="The number of monitors is at its limit.",
            s413="The body is too long.",
            s415="The body is not JSON.",
            s422="A field is unknown, missing or outside its domain, the stream's family does "
            "not support the query with a guarantee, or the webhook is not allowed.",
            s429="Too many queries are running, for this caller or in total.",
            s503="The journal is unreachable. The change may have been stored or not.",
        ),
    },
    openapi_extra={"requestBody": _BODY | {"description": "`Threshold(...).to_dict()`."}},
)
async def put_monitor(
    form: Annotated[Any, Depends(asked_json)],
    stream: TheStream,
    monitor: MonitorName,
    monitors: TheMonitors,
    questions: TheQuestions,
    response: Response,
) -> MonitorState:
    """The same spec again changes nothing. Another spec begins a new epoch, and participating
    sources have to report under it. A firing alert continues until the new spec ends it.
    """
    with questions() as compute:
        spec = await compute(monitors.read_spec, stream, form)
    watched, new = await monitors.define(stream, monitor, spec)
    response.status_code = HTTPStatus.CREATED if new else HTTPStatus.OK
    return _state_of(monitors, watched)


@router.get(
    "/v1/streams/{name}/monitors/{monitor}",
    summary="The state of a monitor",
    dependencies=[Depends(reads)],
    response_model=MonitorState,
    responses=problems(
        s404="No such stream, or no such monitor.",
        s422="A name is outside its domain.",
        s503="The journal is unreachable.",
    ),
)
async def get_monitor(
    stream: TheStream, monitor: MonitorName, monitors: TheMonitors
) -> MonitorState:
    """At most about a second old."""
    return _state_of(monitors, await monitors.find(stream, monitor))


@router.get(
    "/v1/streams/{name}/monitors",
    summary="List the monitors",
    dependencies=[Depends(reads)],
    response_model=MonitorList,
    responses=problems(
        s404="No such stream.",
        s422="The name is outside its domain.",
        s503="The journal is unreachable.",
    ),
)
async def list_monitors(stream: TheStream, monitors: TheMonitors) -> MonitorList:
    """Each with its state."""
    await monitors.refresh(stream)
    found = monitors.of_stream(stream)
    return MonitorList(monitors=[_state_of(monitors, each) for each in found])


@router.get(
    "/v1/monitors",
    summary="List the monitors of all streams",
    response_model=MonitorGlances,
)
async def list_all_monitors(caller: Reads, monitors: TheMonitors) -> MonitorGlances:
    """All monitors with their states, without their sources. At most `max_monitors`."""
    return MonitorGlances(
        monitors=[
            _glance(stream, watched) for stream, watched in monitors.every() if caller.sees(stream)
        ]
    )


@router.get(
    "/v1/streams/{name}/monitors/{monitor}/history",
    summary="List past states of a monitor",
    dependencies=[Depends(reads)],
    response_model=MonitorHistory,
    responses=problems(
        s404="No such stream, or no such monitor.",
        s422="A name or a parameter is outside its domain.",
        s503="The journal is unreachable.",
    ),
)
async def get_history(
    stream: TheStream,
    monitor: MonitorName,
    monitors: TheMonitors,
    aggregator: TheAggregator,
    start: Annotated[str | None, _moment("from", "After this time")] = None,
    stop: Annotated[str | None, _moment("to", "Before this time (default: now)")] = None,
    limit: Annotated[
        int, Query(ge=1, le=1000, description="Maximum number of states, the newest ones.")
    ] = 1000,
    group: Annotated[
        str | None,
        Query(
            max_length=8192,
            description="For a monitor with `by`: the states of this group, given as a JSON "
            "object like `by` of a group.",
        ),
    ] = None,
) -> MonitorHistory:
    """The transaction that changes a state also writes the history, so restarts lose no state and
    all replicas return the same. The server retains `monitor_history` states for each monitor, for
    `monitor_history_s`.
    """
    now_us = aggregator.now_us()
    begin_us = 0 if start is None else _read_moment("from", start, now_us)
    end_us = now_us + 1 if stop is None else _read_moment("to", stop, now_us)
    if end_us <= begin_us:
        raise ParameterError(f"to is {stop}, not after from, {start}")
    key = None if group is None else _read_group(group)
    found, complete = await monitors.history(stream, monitor, begin_us, end_us, limit, key)
    return MonitorHistory(monitor=monitor, states=list(map(_entry, found)), complete=complete)


@router.delete(
    "/v1/streams/{name}/monitors/{monitor}",
    summary="Delete a monitor",
    dependencies=[Depends(administers)],
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream, or no such monitor.",
        s422="A name is outside its domain.",
        s503="The journal is unreachable. The change may have been stored or not.",
    ),
)
async def delete_monitor(stream: TheStream, monitor: MonitorName, monitors: TheMonitors) -> None:
    """Its sources receive the deletion with their next report, or as an event. The server sends no
    notification for its alert.
    """
    await monitors.remove(stream, monitor)


@router.post(
    "/v1/streams/{name}/reports",
    summary="Report without a post",
    dependencies=[Depends(writes), Depends(json_only)],
    response_model=schemas.Granted,
    response_description="Weight that the source may hold back from now on.",
    responses=problems(
        s403="The source was revoked.",
        s404="No such stream.",
        s413="The body is too long.",
        s415="The body is not JSON.",
        s422="A field is unknown, missing or outside its domain.",
        s503="The journal is unreachable. Report again.",
    ),
    openapi_extra={
        "requestBody": _BODY
        | {"description": '`{"inc": 1, "seq": 2, "held": {"too-many": [epoch, serial]}}`'}
    },
)
async def post_report(
    form: Annotated[Any, Depends(asked_json)],
    stream: TheStream,
    source: schemas.SourceKey,
    monitors: TheMonitors,
) -> Response:
    """For a source without data to post: it renews its leases and confirms smaller allowances
    for all monitors in the stream at once.
    """
    answer = await monitors.report(stream, source, Report.from_dict(form))
    granted = schemas.Granted.model_validate(answer.to_dict())
    return Response(granted.model_dump_json(), media_type="application/json")


async def _place(request: Request, caller: Reads) -> AsyncIterator[None]:
    """Occupy a connection for event followers until the response ends."""
    with request.app.state.event_places.place(caller.prefix):
        yield


@router.get(
    "/v1/streams/{name}/events",
    summary="Follow monitors and lists",
    dependencies=[Depends(_place)],
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events. With `source`: `define` with `monitor`, `epoch` "
            "and `spec`, `recall` (post now), `function` (exchange now) and "
            "`gone`. Otherwise: `state`, `topk` (a list with other items or "
            "another certificate), `function` and `gone`. In both cases "
            "`problem`: the reason for the end of the events.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **problems(
            s403="The key may not read the stream.",
            s404="No such stream.",
            s422="The name or the source is outside its domain.",
            s429="Too many such connections are open, in total or for this key.",
        ),
    },
)
async def get_events(
    stream: TheStream,
    request: Request,
    caller: Reads,
    monitors: TheMonitors,
    source: Annotated[
        str | None, Query(pattern=schemas.SOURCE, description="The source that follows the events.")
    ] = None,
) -> Response:
    """First the current states, then changes. An event may be lost. A source that misses one
    receives the same information in the responses to its reports.
    """
    return EventResponse(_events(stream, request, caller, monitors, source))


async def _events(
    stream: Stream, request: Request, caller: Caller, monitors: Monitors, source: str | None
) -> AsyncIterator[str]:
    app = request.app
    clock = asyncio.get_running_loop().time
    end, beat = clock() + server_sent.LIFETIME_S, clock() + server_sent.BEAT_S
    with monitors.mailboxes.opened(stream.id, source) as mailbox:
        yield server_sent.RETRY
        if source is not None:
            for each in monitors.definitions(stream, source):
                mailbox.put("define", each["monitor"], each)
            for seen in app.state.functions.of_followed(stream):
                if source in seen.spec.sites:  # it may have missed an event: it exchanges once
                    said = {"function": seen.row.name, "epoch": seen.row.epoch}
                    mailbox.put("function", seen.row.name, said)
        else:
            for watched in monitors.of_stream(stream):
                mailbox.put("state", watched.row.name, summary(watched))
            for listed in app.state.lists.of_stream(stream):
                mailbox.put("topk", listed.row.name, topk.summary(listed))
            for seen in app.state.functions.of_followed(stream):
                mailbox.put("function", seen.row.name, functions.summary(seen))
        while clock() < end and not app.state.closing.is_set():
            for kind, data in mailbox.take():
                beat = clock() + server_sent.BEAT_S
                yield event(kind, data)
            if clock() >= beat:
                beat = clock() + server_sent.BEAT_S
                yield server_sent.COMMENT
            await mailbox.wait(_CHECK_S)
            try:
                if not await app.state.keys.still(caller, stream.name):
                    raise UnauthenticatedError
                if app.state.aggregator.stream_by_id(stream.id) is None:
                    raise UnknownStreamError(stream.name)
            except server_sent.REASONS_TO_END as error:
                yield event("problem", bytes(answer_to(error).body))
                return


def _state_of(monitors: Monitors, watched: Watched) -> MonitorState:
    row, state = watched.row, watched.state
    silent = set(watched.accounts) if state is None else set(state.silent)
    expected = monitors.expected(watched)
    return MonitorState(
        **_said(watched),
        spec=dict(row.spec),
        groups=_groups_of(watched),
        epoch=row.epoch,
        pending_at_most=0.0 if state is None else state.pending_at_most,
        silent=sorted(silent),
        sites=[
            SiteState(
                source=source,
                silent=source in silent,
                lease_until=account.until or None,
                allowance=account.charge if account.epoch == row.epoch else 0.0,
                last_report=account.last or None,
            )
            for source, account in sorted(watched.accounts.items())
        ],
        expected=ExpectedPosts(
            lifetime_s=watched.monitor.lifetime_s,
            near=_bounded(expected.near),
            renewals=_bounded(expected.renewals),
            without=_bounded(expected.without),
        ),
    )


def _entry(entry: Entry) -> HistoryState:
    said: dict[str, Any] = {
        "since": entry.at_us / 1e6,
        "until": None if entry.until_us is None else entry.until_us / 1e6,
        "state": entry.state,
        "alert": entry.alert,
    }
    return HistoryState(**said, **entry.found)


def _glance(stream: str, watched: Watched) -> MonitorGlance:
    silent = watched.accounts if watched.state is None else watched.state.silent
    return MonitorGlance(**_said(watched), stream=stream, silent=len(silent))


def _said(watched: Watched) -> dict[str, Any]:
    """The fields of a monitor in every response."""
    row, state = watched.row, watched.state
    return {
        "monitor": row.name,
        "state": "uncertain" if state is None else state.verdict,
        "reason": None if state is None else state.reason,
        "explanation": explained(watched),
        "evaluated": None if watched.at_us is None else watched.at_us / 1e6,
        "since": row.since_us / 1e6,
        "alert": AlertState(**row.alert.to_dict()),
        "value": None if state is None else state.value,
        "lower": None if state is None else state.lower,
        "upper": None if state is None else state.upper,
        "threshold": watched.monitor.spec.threshold if state is None else state.threshold,
        "group_counts": GroupCounts(**group_counts(watched)) if row.grouped else None,
    }


_RANK = {"firing": 0, "uncertain": 1, "calm": 2}


def _groups_of(watched: Watched) -> list[GroupState]:
    """The groups with a state. Before the first evaluation of a process there are none."""
    if watched.read is None:
        return []
    spec, read, found = watched.monitor.spec, watched.read, []
    for key, group in watched.row.groups.items():
        if (state := read.states.get(key)) is None:
            continue
        by = group_of(key)
        found.append(
            GroupState(
                by=by, state=group.state, reason=state.reason, since=group.since,
                explanation=explain(spec, state, watched.unit, by),
                alert=AlertState(**group.alert.to_dict()), value=state.value, lower=state.lower,
                upper=state.upper, rows=read.rows.get(key, 0), gone=group.gone,
            )
        )  # fmt: skip
    return sorted(found, key=lambda each: (_RANK[each.state], json.dumps(each.by)))


def _bounded(number: float) -> float | None:
    return number if math.isfinite(number) else None
