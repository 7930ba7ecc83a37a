"""Every refusal as an RFC 9457 problem, and the one table from exception to status.

A problem says what was wrong in one sentence (``detail``) and, where fields are at fault, lists
each with the reason, the value given and the value expected (``errors``). No stack trace, no file
name and no text of the database driver ever leaves the process.
"""

from __future__ import annotations

import heapq
import json
import logging
import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from itertools import islice
from typing import Any, NamedTuple

import sqlalchemy.exc
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from api.journal.model import ReplayError, StorageError
from api.seldom import Seldom
from decaysketch.core.plausible_times import in_another_unit
from decaysketch.errors import (
    CorruptSketchError,
    DecaySketchError,
    IncompatibleSketchError,
    ParameterError,
    UnanswerableQueryError,
)

__all__ = [
    "BodiesInFlightError",
    "BodyTooLargeError",
    "BusyError",
    "CapacityTooSmallError",
    "ClockAheadError",
    "ClockEarlyError",
    "ClosingError",
    "CorruptEncodingError",
    "Fault",
    "ForbiddenError",
    "ForeignPageError",
    "IncompatibleStreamsError",
    "IntervalConflictError",
    "InvalidRequestError",
    "KeyChangedError",
    "NoRoomError",
    "NothingTakenError",
    "ObservationsOnlyError",
    "Problem",
    "ProblemResponse",
    "ProxiedError",
    "RowsAskedError",
    "RowsInFlightError",
    "ServiceError",
    "SlowBodyError",
    "StreamConflictError",
    "TokenBeyondError",
    "TooManyLiveClientsError",
    "TooManyRequestsError",
    "TooManyRowsError",
    "TooManySketchRowsError",
    "TooManySourcesError",
    "TooManyStreamsError",
    "TooMuchAskedError",
    "UnanswerableQueriesError",
    "UnauthenticatedError",
    "UnknownIntervalError",
    "UnknownKeyError",
    "UnknownSourceError",
    "UnknownStreamError",
    "UnsupportedAggregateError",
    "UnsupportedEncodingError",
    "UnsupportedMediaTypeError",
    "answer_to",
    "install",
    "presentable",
    "problem_of",
]

PROBLEM_JSON = "application/problem+json"
_FAULTS_SHOWN = 100


class Fault(BaseModel):
    """One field at fault."""

    field: str = Field(
        description="Where: a path into the body such as `queries[0].decay.rate`, or a parameter."
    )
    reason: str = Field(description="What is wrong with it.")
    value: Any = Field(default=None, description="What was given (shortened if long).")
    expected: Any = Field(default=None, description="What it should be, if that is one value.")


class Problem(BaseModel):
    """An error, as RFC 9457 defines it. Nothing was changed by the request."""

    type: str = Field(
        description="Names the kind of problem; `about:blank` where the status says it all."
    )
    title: str = Field(description="The kind of problem, in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What was wrong with this request.")
    errors: list[Fault] | None = Field(default=None, description="Every field at fault.")


# ------------------------------------------------------------------ refusals of the service itself


class ServiceError(Exception):
    """Base class of what the service refuses, as opposed to the library."""

    def __init__(self, detail: str, faults: Iterable[Fault] = ()) -> None:
        super().__init__(detail)
        self.faults = list(faults)


class UnknownStreamError(ServiceError):
    """No stream has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no stream {name!r}; create it by PUT /v1/streams/{name}")


class UnknownSourceError(ServiceError):
    """A stream has no sketch from some of the sources asked for."""

    def __init__(self, stream: str, sources: Iterable[str]) -> None:
        count = len(unknown := list(sources))
        unknown = heapq.nsmallest(_FAULTS_SHOWN, unknown)
        super().__init__(
            f"stream {stream!r} has no sketch from {count} of the sources asked for: "
            f"{reprlib.repr(unknown)}",
            [Fault(field="source", reason="unknown source", value=name) for name in unknown],
        )


class StreamConflictError(ServiceError):
    """A stream of this name exists and is of another family, or has other parameters."""

    def __init__(self, name: str, fields: Mapping[str, tuple[Any, Any]]) -> None:
        super().__init__(
            f"stream {name!r} exists with other parameters: {_listing(fields)}",
            _differences(fields, "differs from the stream's"),
        )


class CapacityTooSmallError(ServiceError):
    """A sketch was posted whose capacity is below the stream's."""

    def __init__(self, name: str, ours: int, theirs: int) -> None:
        super().__init__(
            f"the sketch has capacity {theirs}; stream {name!r} has {ours}, and merging takes the "
            "smaller one: it would coarsen the whole stream for ever",
            _differences({"capacity": (ours, theirs)}, "smaller than the stream's"),
        )


class IntervalConflictError(ServiceError):
    """Numbers of a source came before, in another interval or with other bytes."""

    def __init__(
        self, source: str, given: tuple[int, int], acknowledged: Sequence[tuple[int, int]]
    ) -> None:
        replayed = list(acknowledged) == [given]
        reason = "came with other bytes" if replayed else "overlaps an interval that came before"
        listed = ", ".join(map(_interval, acknowledged))
        super().__init__(
            f"the sketch is of the numbers {_interval(given)} of source {source!r}; acknowledged "
            f"before: {listed}{', with other bytes' if replayed else ''}",
            [
                Fault(
                    field="interval",
                    reason=f"{reason}: {_interval(each)}",
                    value=_interval(given),
                )
                for each in acknowledged
            ],
        )


class UnknownIntervalError(ServiceError):
    """An interval was to be released that was not acknowledged as such."""

    def __init__(
        self, source: str, given: tuple[int, int], overlapping: Sequence[tuple[int, int]]
    ) -> None:
        listed = ", ".join(map(_interval, overlapping)) or "none"
        super().__init__(
            f"no interval {_interval(given)} of source {source!r} was acknowledged; of those that "
            f"were, these share numbers with it: {listed}",
            [
                Fault(
                    field="interval",
                    reason=f"shares numbers with {_interval(each)}, which is released as a whole",
                    value=_interval(given),
                )
                for each in overlapping
            ],
        )


def _interval(interval: tuple[int, int]) -> str:
    return f"[{interval[0]}, {interval[1]})"


class ClockAheadError(ServiceError):
    """Times of a sketch lie further past the clock of this machine than the stream allows."""

    def __init__(
        self, stream: str, limit: int, skew_s: float, times: Mapping[str, int], unit: str
    ) -> None:
        listed = ", ".join(f"{field} is {time}" for field, time in times.items())
        hint = in_another_unit(unit, max(times.values()))
        super().__init__(
            f"{listed}; stream {stream!r} takes times up to {limit}, {skew_s:g} s past the clock "
            f"of this server{hint}",
            [
                Fault(
                    field=field,
                    reason=f"too far in the future{in_another_unit(unit, time)}",
                    value=time,
                    expected=limit,
                )
                for field, time in times.items()
            ],
        )


class ClockEarlyError(ServiceError):
    """The clock of a sketch would make a stream forget what is not due yet by the clock of this
    machine; it will be."""

    def __init__(
        self, stream: str, clock: int, limit: int, lead_s: float, retry_after_s: int
    ) -> None:
        super().__init__(
            f"clock is {clock}; stream {stream!r} takes clocks up to {limit} now, {lead_s:g} s "
            "past the clock of this server, so that none makes it forget what others hold: send "
            f"the same again in {retry_after_s} s",
            [Fault(field="clock", reason="ahead of its time", value=clock, expected=limit)],
        )
        self.retry_after_s = retry_after_s


class ObservationsOnlyError(ServiceError):
    """A sketch was posted to a stream whose id key only this server knows."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"stream {stream!r} keeps its id key secret and takes no sketches; post observations "
            f"to /v1/streams/{stream}/observations"
        )


class TooManyRowsError(ServiceError):
    """A body has more observations than one post may have."""

    def __init__(self, rows: int, limit: int) -> None:
        super().__init__(
            f"the body has {rows} observations or more; at most {limit} are taken in one post",
            [Fault(field="observations", reason="too many", value=rows, expected=limit)],
        )


class TooManySketchRowsError(TooManyRowsError):
    """The sketches of a post have more rows, together, than one post may have."""

    def __init__(self, rows: int, limit: int) -> None:
        ServiceError.__init__(
            self,
            f"the sketches of the body have {rows} rows together; at most {limit} are taken in one "
            "post",
            [Fault(field="rows", reason="too many", value=rows, expected=limit)],
        )


class RowsInFlightError(ServiceError):
    """The sketches of all posts at a time have more rows than this process may hold."""

    def __init__(self, present: int, rows: int, limit: int) -> None:
        super().__init__(
            f"the posts that are being taken hold {present} rows and this one {rows}; at most "
            f"{limit} are held at a time; nothing was taken, send it again later"
        )


class RowsAskedError(ServiceError):
    """What all questions at a time look at has more rows than this process may hold."""

    def __init__(self, present: int, rows: int, limit: int) -> None:
        super().__init__(
            f"questions that are being answered look at {present} rows, and this one at {rows}; at "
            f"most {limit} are looked at at a time; ask again later"
        )


class NoRoomError(ServiceError):
    """There is no room in memory for the rows of a post; ``where`` says in what."""

    def __init__(self, where: str, field: str, rows: int, limit: int) -> None:
        super().__init__(
            f"{where} would hold {rows} rows with this; it may hold {limit} ({field}); "
            "nothing was taken",
            [Fault(field=field, reason="no room", value=rows, expected=limit)],
        )


class TooManySourcesError(ServiceError):
    """A stream has as many sources as it may have, and this is another one."""

    def __init__(self, stream: str, sources: int, limit: int) -> None:
        super().__init__(
            f"stream {stream!r} has {sources} sources; it may have {limit} (max_sources), and this "
            "is another one",
            [Fault(field="max_sources", reason="no room", value=sources + 1, expected=limit)],
        )


class UnsupportedAggregateError(ServiceError):
    """Some queries of a request ask for what the family of the stream does not have."""

    def __init__(
        self, stream: str, family: str, known: Iterable[str], refused: Mapping[int, str]
    ) -> None:
        first, aggregate = next(iter(refused.items()))
        listed = ", ".join(sorted(known))
        super().__init__(
            f"stream {stream!r} is of family {family!r}, which has no aggregate {aggregate!r} "
            f"(queries[{first}]); it has {listed}",
            [
                Fault(
                    field=f"queries[{position}].aggregate",
                    reason=f"not of family {family!r}",
                    value=name,
                    expected=f"one of {listed}",
                )
                for position, name in refused.items()
            ],
        )


class UnanswerableQueriesError(ServiceError):
    """Some queries of a request ask for what the sketch has discarded at every level."""

    def __init__(self, asked: int, refused: Mapping[str, UnanswerableQueryError]) -> None:
        field, error = next(iter(refused.items()))
        super().__init__(
            f"{len(refused)} of {asked} answers cannot be given; {field}: {error}",
            [Fault(field=field, reason=str(error)) for field, error in refused.items()],
        )


class IncompatibleStreamsError(ServiceError):
    """Streams were to be asked as one that cannot be joined."""

    def __init__(self, first: str, other: str, fields: Mapping[str, tuple[Any, Any]]) -> None:
        pairs = fields.items()
        listed = "; ".join(f"{name} is {ours!r} and {theirs!r}" for name, (ours, theirs) in pairs)
        super().__init__(
            f"streams {first!r} and {other!r} cannot be joined: {listed}",
            _differences(fields, f"differs between {first!r} (expected) and {other!r}"),
        )


class TooManyLiveClientsError(HTTPException):
    """As many live connections are open as there may be."""

    def __init__(self, most: int, retry_s: int, *, of_key: bool = False) -> None:
        whose = "of this key " if of_key else ""
        super().__init__(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"{most} live connections {whose}are open, as many as there may be",
            {"Retry-After": str(retry_s)},
        )


class TooMuchAskedError(ServiceError):
    """As many requests are being worked at as may be."""

    def __init__(self, what: str, most: int, *, of_caller: bool) -> None:
        whose = "of this caller " if of_caller else ""
        super().__init__(
            f"{most} requests {whose}are being worked at, as many as there may be ({what}); ask "
            "again later"
        )


class RevokedSourceError(ServiceError):
    """What a source posted was dropped, and it is refused."""

    def __init__(self, stream: str, source: str) -> None:
        super().__init__(
            f"source {source!r} of stream {stream!r} was revoked; an administrator may reinstate it"
        )


class StaleTokenError(ServiceError):
    """The stream that a token is of was deleted since."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"the token is of another stream of the name {stream!r}, which was deleted since"
        )


class TokenBeyondError(ServiceError):
    """No post has the number of a token."""

    def __init__(self, token: str, last: int) -> None:
        super().__init__(
            f"the token {token!r} is of no post: the last row of the journal is {last}",
            [Fault(field="after", reason="of no post", value=token, expected=f"at most {last}")],
        )


class BusyError(ServiceError):
    """Too much waits to be written or merged."""

    def __init__(self) -> None:
        super().__init__("too much waits to be written; nothing was taken, send it again later")


class ClosingError(ServiceError):
    """This process is about to end."""

    def __init__(self) -> None:
        super().__init__("this server is stopping; nothing was taken, send it again")


class NotCaughtUpError(ServiceError):
    """This process has not read the post that a token is of."""

    def __init__(self, token: str) -> None:
        super().__init__(f"the post of token {token!r} has not arrived here in time; ask again")


class InvalidRequestError(ServiceError):
    """A request is well-formed JSON and yet outside the limits of this service."""


class NothingTakenError(ServiceError):
    """Every observation of a body was refused, each for what it is."""


class UnsupportedMediaTypeError(ServiceError):
    """The body is of another media type or encoding than the route takes."""

    def __init__(self, field: str, given: str | None, expected: str) -> None:
        super().__init__(
            f"{field} is {given!r}; expected {expected}"
            if given
            else f"{field} is missing; expected {expected}",
            [Fault(field=field, reason="not supported", value=given, expected=expected)],
        )


class BodyTooLargeError(HTTPException):
    """The body exceeds the limit. (An HTTPException, which every reader of bodies lets through.)"""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body is longer than {limit_bytes} bytes, the limit of this server",
        )


class UnauthenticatedError(HTTPException):
    """The route needs a key, and the request has none that is valid."""

    def __init__(self) -> None:
        super().__init__(
            HTTPStatus.UNAUTHORIZED,
            "this needs a key that is valid: Authorization: Bearer ds_...",
            {"WWW-Authenticate": "Bearer"},
        )


class ForbiddenError(HTTPException):
    """The key is valid, and not for this."""

    def __init__(self, detail: str) -> None:
        super().__init__(HTTPStatus.FORBIDDEN, detail)


class TooManyRequestsError(HTTPException):
    """The caller asks more often than it may."""

    def __init__(self, rate_per_s: float, wait_s: float) -> None:
        super().__init__(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"more than {rate_per_s:g} requests per second",
            {"Retry-After": str(math.ceil(wait_s))},
        )


class BodiesInFlightError(HTTPException):
    """The bodies of all requests at a time are more than this process may hold."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"the bodies that are being received are more than {limit_bytes} bytes together; "
            "nothing was taken, send it again later",
            {"Retry-After": "1"},
        )


class SlowBodyError(HTTPException):
    """The body did not arrive in time."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the body did not arrive within {limit_s:g} s",
            {"Connection": "close"},
        )


class UnsupportedEncodingError(HTTPException):
    """The content encoding of the body is none that is taken."""

    def __init__(self, given: str) -> None:
        super().__init__(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"content-encoding is {_shortened(given)!r}; expected one of gzip, zstd, identity",
        )


class CorruptEncodingError(HTTPException):
    """The body is not what its content encoding says."""

    def __init__(self, encoding: str, reason: str) -> None:
        super().__init__(
            HTTPStatus.UNPROCESSABLE_ENTITY, f"the body is not sound {encoding}: {reason}"
        )


class ForeignPageError(ServiceError):
    """A page of another site asks, and no key stands between."""

    def __init__(self, header: str, value: str) -> None:
        super().__init__(
            f"{header} is {_shortened(value)!r}: a page of another site asks, and this server, "
            "which asks for no key, takes requests of its own page and of programs alone",
            [Fault(field=header, reason="of another site", value=value)],
        )


class ProxiedError(ServiceError):
    """A proxy hands on a request, and no key stands between."""

    def __init__(self, header: str) -> None:
        super().__init__(
            f"the request has the header {_shortened(header)!r}: a proxy hands it on, and this "
            "server asks for no key, so whoever reaches the proxy could read, post and delete; set "
            "DECAYSKETCH_AUTH=keys and make keys by `python -m api keys mint`",
            [Fault(field=header, reason="only a proxy sends it")],
        )


class TooManyStreamsError(ServiceError):
    """There is no room for one more stream."""


class UnknownKeyError(ServiceError):
    """No key that the caller may manage has this prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__(f"there is no key {prefix!r}")


class KeyChangedError(ServiceError):
    """A key was changed by another request while this one was to change it."""

    def __init__(self, prefix: str) -> None:
        super().__init__(f"key {prefix!r} was changed or revoked by another request meanwhile")


class _Kind(NamedTuple):
    status: HTTPStatus
    slug: str
    title: str


_out_of_reach = Seldom(logging.getLogger("api.errors"))

# The table. The first class of an exception's own line of ancestors that is here decides.
TABLE: dict[type[Exception], _Kind] = {
    CorruptSketchError: _Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "corrupt-sketch", "The body is not a sound sketch"
    ),
    IncompatibleSketchError: _Kind(
        HTTPStatus.CONFLICT, "incompatible-sketch", "The sketch was built with other parameters"
    ),
    IncompatibleStreamsError: _Kind(
        HTTPStatus.CONFLICT, "incompatible-streams", "The streams cannot be joined"
    ),
    CapacityTooSmallError: _Kind(
        HTTPStatus.CONFLICT, "capacity-too-small", "The sketch is coarser than the stream"
    ),
    ClockAheadError: _Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "clock-ahead", "Times lie in the future"
    ),
    ClockEarlyError: _Kind(
        HTTPStatus.TOO_MANY_REQUESTS, "clock-ahead", "The clock of the sketch is ahead of its time"
    ),
    ObservationsOnlyError: _Kind(
        HTTPStatus.FORBIDDEN, "observations-only", "The stream takes no sketches"
    ),
    TooManyRowsError: _Kind(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-many-rows", "Too many observations"
    ),
    IntervalConflictError: _Kind(
        HTTPStatus.CONFLICT, "interval-conflict", "Numbers of this source came before"
    ),
    StreamConflictError: _Kind(
        HTTPStatus.CONFLICT, "stream-exists", "The stream exists with other parameters"
    ),
    ParameterError: _Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-parameter", "A parameter is outside its domain"
    ),
    UnanswerableQueryError: _Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "unanswerable-query", "The sketch cannot answer this"
    ),
    UnanswerableQueriesError: _Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "unanswerable-query", "The sketch cannot answer this"
    ),
    UnsupportedAggregateError: _Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "unsupported-aggregate",
        "The family of the stream does not answer this",
    ),
    DecaySketchError: _Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "refused", "The library refuses the request"
    ),
    RequestValidationError: _Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-request", "The request is malformed"
    ),
    InvalidRequestError: _Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-request", "The request is malformed"
    ),
    ForeignPageError: _Kind(
        HTTPStatus.FORBIDDEN, "foreign-page", "A page of another site may not ask"
    ),
    ProxiedError: _Kind(
        HTTPStatus.FORBIDDEN, "behind-a-proxy", "Behind a proxy this server needs keys"
    ),
    NothingTakenError: _Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "nothing-taken", "Every observation was refused"
    ),
    UnknownStreamError: _Kind(HTTPStatus.NOT_FOUND, "unknown-stream", "No such stream"),
    RevokedSourceError: _Kind(HTTPStatus.FORBIDDEN, "revoked-source", "The source was revoked"),
    StaleTokenError: _Kind(
        HTTPStatus.CONFLICT, "stale-token", "The token is of a stream that is no more"
    ),
    RowsInFlightError: _Kind(
        HTTPStatus.TOO_MANY_REQUESTS, "rows-in-flight", "Too many rows are being taken"
    ),
    RowsAskedError: _Kind(
        HTTPStatus.TOO_MANY_REQUESTS, "rows-asked", "Too many rows are being looked at"
    ),
    NoRoomError: _Kind(
        HTTPStatus.INSUFFICIENT_STORAGE, "no-room", "No room for the rows of this post"
    ),
    TooManySourcesError: _Kind(
        HTTPStatus.INSUFFICIENT_STORAGE, "too-many-sources", "No room for another source"
    ),
    TooMuchAskedError: _Kind(
        HTTPStatus.TOO_MANY_REQUESTS, "too-much-asked", "Too much is being worked at"
    ),
    TokenBeyondError: _Kind(HTTPStatus.CONFLICT, "unknown-token", "The journal has no such post"),
    BusyError: _Kind(HTTPStatus.TOO_MANY_REQUESTS, "busy", "Too much waits to be written"),
    ClosingError: _Kind(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "The server is stopping"),
    NotCaughtUpError: _Kind(
        HTTPStatus.SERVICE_UNAVAILABLE, "not-caught-up", "The post has not arrived here yet"
    ),
    TooManyStreamsError: _Kind(
        HTTPStatus.CONFLICT, "too-many-streams", "No room for another stream"
    ),
    UnknownKeyError: _Kind(HTTPStatus.NOT_FOUND, "unknown-key", "No such key"),
    KeyChangedError: _Kind(HTTPStatus.CONFLICT, "key-changed", "The key was changed meanwhile"),
    UnknownIntervalError: _Kind(HTTPStatus.NOT_FOUND, "unknown-interval", "No such interval"),
    UnknownSourceError: _Kind(HTTPStatus.NOT_FOUND, "unknown-source", "No such source"),
    UnsupportedMediaTypeError: _Kind(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "Not a body this route takes"
    ),
    ReplayError: _Kind(
        HTTPStatus.SERVICE_UNAVAILABLE, "journal-unreadable", "The journal cannot be read"
    ),
    StorageError: _Kind(
        HTTPStatus.SERVICE_UNAVAILABLE, "journal-unavailable", "The journal is out of reach"
    ),
    sqlalchemy.exc.SQLAlchemyError: _Kind(
        HTTPStatus.SERVICE_UNAVAILABLE, "journal-unavailable", "The journal is out of reach"
    ),
}

# Of what these refuse there is a count, by stream and reason.
_POSTS = {"/v1/streams/{name}/sketches", "/v1/streams/{name}/observations"}
# Neither who sends it nor when is at fault; 403 where the source was revoked.
_OF_THE_POST = {
    HTTPStatus.FORBIDDEN,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.INSUFFICIENT_STORAGE,
}

# What may leave the process where the text of the exception may not.
_TRANSIENT = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}

_UNWRITTEN = (
    "the journal could not be read or written; nothing was acknowledged, and the same request may "
    "be sent again"
)
_DETAILS: dict[type[Exception], str] = {
    ReplayError: "the journal cannot be read; the log of the server says where",
    StorageError: _UNWRITTEN,
    sqlalchemy.exc.SQLAlchemyError: _UNWRITTEN,
}


def problem_type(slug: str) -> str:
    """The URI that names a kind of problem."""
    return f"urn:decaysketch:problem:{slug}"


class ProblemResponse(JSONResponse):
    """A problem as JSON; ASCII only, because the values it quotes may not be valid Unicode."""

    media_type = PROBLEM_JSON

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def _respond(
    problem: Problem,
    headers: Mapping[str, str] | None = None,
    beside: Mapping[str, Any] | None = None,
) -> ProblemResponse:
    content = dict(beside or {}) | problem.model_dump(exclude={"errors"})
    if problem.errors:
        content["errors"] = [_presentable_fault(fault) for fault in problem.errors]
    return ProblemResponse(content, problem.status, headers)


def install(app: FastAPI) -> None:
    """Make every error of ``app`` a problem."""
    for exception in (*TABLE, HTTPException, Exception):
        app.add_exception_handler(exception, _handle)


def answer_to(error: Exception) -> ProblemResponse:
    """The problem that ``error`` is, for what stands outside of the routes."""
    if any(cls in TABLE for cls in type(error).__mro__):
        return _known(error)
    return _of_http(error) if isinstance(error, HTTPException) else _unknown()


def problem_of(error: ServiceError, beside: Mapping[str, Any]) -> ProblemResponse:
    """The problem that ``error`` is, with further members that its kind has."""
    return _known(error, beside)


async def _handle(request: Request, error: Exception) -> ProblemResponse:
    answer = answer_to(error)
    if getattr(request.scope.get("route"), "path", "") in _POSTS and request.method == "POST":
        _count_refusal(request, error, answer.status_code)
    elif isinstance(error, StorageError):  # of posts the journal itself says it
        _out_of_reach.say(logging.ERROR, "a request could not be answered: %s", error)
    if answer.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        answer.headers["Allow"] = ", ".join(sorted(_methods_of(request)))
    return answer


def _count_refusal(request: Request, error: Exception, status: int) -> None:
    """Count a post that is refused for what it is, if there is a stream of that name."""
    kind = next((TABLE[cls] for cls in type(error).__mro__ if cls in TABLE), None)
    if status not in _OF_THE_POST and not isinstance(error, ClockEarlyError):
        return
    if kind is None and status == HTTPStatus.FORBIDDEN:
        return
    aggregator = request.app.state.aggregator
    name = request.path_params["name"]
    if any(stream.name == name for stream in aggregator.streams()):
        aggregator.observer.refused(name, f"http-{status}" if kind is None else kind.slug)


def _methods_of(request: Request) -> set[str]:
    """The methods of every route of the path; the router tells those of the first alone."""
    methods = {
        method
        for route in iter_route_contexts(request.app.routes)
        if route.path_regex.match(request.url.path)
        for method in route.methods or ()
    }
    return methods | {"HEAD"} if "GET" in methods else methods


def _known(error: Exception, beside: Mapping[str, Any] | None = None) -> ProblemResponse:
    ancestor = next(cls for cls in type(error).__mro__ if cls in TABLE)
    kind = TABLE[ancestor]
    faults = list(islice(_faults(error), _FAULTS_SHOWN))
    if isinstance(error, RequestValidationError):
        detail = "; ".join(f"{fault.field}: {fault.reason}" for fault in faults[:3])
        if (count := len(error.errors())) > 3:
            detail += f"; and {count - 3} more"
    else:
        detail = _DETAILS.get(ancestor, str(error))
    return _respond(
        Problem(
            type=problem_type(kind.slug),
            title=kind.title,
            status=kind.status,
            detail=_shortened(detail, 1000),
            errors=faults or None,
        ),
        {"Retry-After": _retry_after(error)} if kind.status in _TRANSIENT else None,
        beside,
    )


def _retry_after(error: Exception) -> str:
    """In seconds."""
    return str(error.retry_after_s if isinstance(error, ClockEarlyError) else 1)


def _of_http(error: HTTPException) -> ProblemResponse:
    phrase = HTTPStatus(error.status_code).phrase
    return _respond(
        Problem(
            type="about:blank", title=phrase, status=error.status_code, detail=str(error.detail)
        ),
        error.headers,
    )


def _unknown() -> ProblemResponse:
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return _respond(
        Problem(
            type="about:blank",
            title=status.phrase,
            status=status,
            detail="the server met an error of its own; its log has the particulars",
        )
    )


# ------------------------------------------------------------------------------- fields at fault


def _faults(error: Exception) -> Iterable[Fault]:
    if isinstance(error, ServiceError):
        return error.faults
    if isinstance(error, IncompatibleSketchError):
        return _differences(error.fields, "differs from the stream's")
    if isinstance(error, RequestValidationError):
        return (_validation_fault(entry, error.body) for entry in error.errors())
    return []


def _differences(fields: Mapping[str, tuple[Any, Any]], reason: str) -> list[Fault]:
    """Faults for ``{name: (ours, theirs)}``."""
    return [
        Fault(field=name, reason=reason, value=theirs, expected=ours)
        for name, (ours, theirs) in fields.items()
    ]


def _listing(fields: Mapping[str, tuple[Any, Any]]) -> str:
    pairs = fields.items()
    return "; ".join(f"{name} is {ours!r}, not {theirs!r}" for name, (ours, theirs) in pairs)


def _validation_fault(entry: Mapping[str, Any], body: Any) -> Fault:
    """What pydantic found, in the terms of whoever wrote the request."""
    context = entry.get("ctx", {})
    location, absent = entry["loc"], False
    value = entry.get("input")
    reason = entry["msg"].removeprefix("Value error, ")
    match entry["type"]:
        case "json_invalid":
            reason = f"not JSON: {context['error']} at character {location[-1]}"
            location, value = location[:1], None
        case "missing":
            reason, value, absent = "missing", None, True
        case "union_tag_not_found":
            location = (*location, context["discriminator"].strip("'"))
            reason, value, absent = "missing", None, True
        case "union_tag_invalid":
            location = (*location, context["discriminator"].strip("'"))
            reason, value = f"expected one of {context['expected_tags']}", context["tag"]
    return Fault(field=_path(location, body, absent), reason=reason, value=value)


def _path(location: tuple[int | str, ...], body: Any, absent: bool) -> str:
    """``("body", "queries", 0, "mean", "decay")`` -> ``"queries[0].decay"``.

    pydantic puts the tags of discriminated unions among the keys. What the body does not have is
    such a tag and left out, unless it is the last part and ``absent``: a key that is missing.
    """
    if location[0] != "body":
        return ".".join(str(part) for part in location[1:]) or str(location[0])
    path, here = "", body
    for depth, part in enumerate(location[1:], start=2):
        if isinstance(part, int):
            path += f"[{part}]"
            here = here[part] if isinstance(here, list) and part < len(here) else None
        elif isinstance(here, dict) and part in here:
            path += f".{part}"
            here = here[part]
        elif absent and depth == len(location):
            path += f".{part}"
    return path.removeprefix(".") or "body"


def _presentable_fault(fault: Fault) -> dict[str, Any]:
    content: dict[str, Any] = {"field": _shortened(fault.field), "reason": fault.reason}
    for name in ("value", "expected"):
        if (value := getattr(fault, name)) is not None:
            content[name] = presentable(value)
    return content


def presentable(value: Any) -> Any:
    """A value that may come from anywhere, as something short that JSON has."""
    if isinstance(value, int):
        return value if value.bit_length() <= 128 else _shortened(str(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _shortened(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return _shortened(reprlib.repr(value))


def _shortened(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
