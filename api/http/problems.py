"""Every rejection as an RFC 9457 problem, and the one table from exception to status.

A problem describes the fault in one sentence (``detail``). Where fields are at fault, it lists each
with the reason, the value given and the value expected (``errors``). No stack trace, no file name
and no text from the database driver ever leaves the process.
"""

from __future__ import annotations

import json
import logging
import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
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

from api import errors
from api.errors import MOST_FAULTS, Fault, ServiceError, differences
from api.http import refusals
from api.http.refusals import shortened
from api.journal.log import ReplayError, StorageError
from api.logs import Seldom
from api.schemas import SOURCE
from api.service.threads import LeftError
from decaysketch import errors as library
from decaysketch.ingest.mapping import without_echoes
from decaysketch.query.other_names import meant, percentile

__all__ = [
    "PROBLEM_JSON",
    "Problem",
    "ProblemResponse",
    "answer_to",
    "handled",
    "install",
    "plain_problem",
    "presentable",
    "problem_of",
    "problems",
]

PROBLEM_JSON = "application/problem+json"

_out_of_reach = Seldom(logging.getLogger(__name__))


class Problem(BaseModel):
    """An error as RFC 9457 defines it. The request changed nothing."""

    type: str = Field(description="Type of the problem. `about:blank` if the status is enough.")
    title: str = Field(description="The kind of problem, in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="The fault in this request.")
    errors: list[Fault] | None = Field(default=None, description="All invalid fields.")


class _Kind(NamedTuple):
    """A kind of problem. ``detail`` replaces an exception's text that may not leave the process.

    Temporary rejections, 429 and 503, state when to retry (``_retry_after``).
    """

    status: int
    slug: str
    title: str
    detail: str | None = None


_UNWRITTEN = (
    "the journal could not be read or written; nothing was acknowledged, send the same request "
    "again"
)

# The table. The first class of an exception's own line of ancestors that is here decides.
TABLE: dict[type[Exception], _Kind] = {
    errors.ObservationsOnlyError: _Kind(403, "observations-only", "The stream accepts no sketches"),
    errors.MapsKeptError: _Kind(403, "maps-kept", "Only an admin key can change mappings"),
    refusals.ForeignPageError: _Kind(
        403, "foreign-page", "Pages of other sites may not send requests"
    ),
    refusals.ProxiedError: _Kind(403, "behind-a-proxy", "Behind a proxy this server needs keys"),
    errors.RevokedSourceError: _Kind(403, "revoked-source", "The source was revoked"),
    errors.UnknownStreamError: _Kind(404, "unknown-stream", "No such stream"),
    errors.UnknownMonitorError: _Kind(404, "unknown-monitor", "No such monitor"),
    errors.UnknownQuestionError: _Kind(404, "unknown-question", "No such saved query"),
    errors.UnknownFunctionError: _Kind(404, "unknown-function", "No such function"),
    errors.UnknownListError: _Kind(404, "unknown-list", "No such top-k list"),
    errors.UnknownKeyError: _Kind(404, "unknown-key", "No such key"),
    errors.UnknownIntervalError: _Kind(404, "unknown-interval", "No such interval"),
    errors.UnknownStandingError: _Kind(404, "unknown-withdrawal", "No such standing withdrawal"),
    errors.UnknownSourceError: _Kind(404, "unknown-source", "No such source"),
    library.IncompatibleSketchError: _Kind(
        409, "incompatible-sketch", "The sketch was built with other parameters"
    ),
    LeftError: _Kind(refusals.CLIENT_LEFT, "client-left", "The client left"),
    refusals.ClientLeftError: _Kind(refusals.CLIENT_LEFT, "client-left", "The client left"),
    library.ConflictingSketchError: _Kind(
        409, "conflicting-sketch", "The sketch contradicts another one"
    ),
    errors.IncompatibleStreamsError: _Kind(
        409, "incompatible-streams", "The streams cannot be joined"
    ),
    errors.CapacityTooSmallError: _Kind(
        409, "capacity-too-small", "The sketch is coarser than the stream"
    ),
    errors.IntervalConflictError: _Kind(
        409, "interval-conflict", "Numbers of this source are already used"
    ),
    errors.StreamConflictError: _Kind(
        409, "stream-exists", "The stream exists with other parameters"
    ),
    errors.StaleTokenError: _Kind(409, "stale-token", "The token belongs to a deleted stream"),
    errors.TokenBeyondError: _Kind(409, "unknown-token", "The journal has no such post"),
    errors.TooManyStreamsError: _Kind(409, "too-many-streams", "No capacity for another stream"),
    errors.TooManyStandingError: _Kind(
        409, "too-many-withdrawals", "No capacity for another standing withdrawal"
    ),
    errors.TooManyMonitorsError: _Kind(409, "too-many-monitors", "No capacity for another monitor"),
    errors.TooManyQuestionsError: _Kind(
        409, "too-many-questions", "No capacity for another saved query"
    ),
    errors.TooManyFunctionsError: _Kind(
        409, "too-many-functions", "No capacity for another function"
    ),
    errors.TooManyListsError: _Kind(409, "too-many-lists", "No capacity for another top-k list"),
    errors.ForeignSiteError: _Kind(409, "foreign-site", "The source is not a source of the list"),
    errors.KeyChangedError: _Kind(409, "key-changed", "Another request changed the key"),
    errors.TooManyRowsError: _Kind(413, "too-many-rows", "Too many observations"),
    refusals.UnsupportedMediaTypeError: _Kind(
        415, "unsupported-media-type", "The route does not accept this body"
    ),
    library.CorruptSketchError: _Kind(422, "corrupt-sketch", "The body is not a valid sketch"),
    errors.ClockAheadError: _Kind(422, "clock-ahead", "Times lie in the future"),
    library.ParameterError: _Kind(422, "invalid-parameter", "A parameter is outside its domain"),
    library.UnanswerableQueryError: _Kind(
        422, "unanswerable-query", "The sketch cannot compute this query"
    ),
    errors.UnanswerableQueriesError: _Kind(
        422, "unanswerable-query", "The sketch cannot compute this query"
    ),
    errors.UnsupportedAggregateError: _Kind(
        422, "unsupported-aggregate", "The stream's family does not support this query"
    ),
    library.DecaySketchError: _Kind(422, "refused", "The library rejects the request"),
    RequestValidationError: _Kind(422, "invalid-request", "The request is malformed"),
    errors.InvalidRequestError: _Kind(422, "invalid-request", "The request is malformed"),
    errors.NothingTakenError: _Kind(422, "nothing-taken", "Every observation was rejected"),
    errors.ClockEarlyError: _Kind(429, "clock-ahead", "The sketch's clock is too far ahead"),
    errors.RowsInFlightError: _Kind(429, "rows-in-flight", "Too many rows are in progress"),
    errors.RowsAskedError: _Kind(429, "rows-asked", "Too many rows are being read"),
    errors.TooMuchAskedError: _Kind(429, "too-much-asked", "Too many requests are running"),
    errors.BusyError: _Kind(429, "busy", "Too many posts wait to be written"),
    errors.IngestBusyError: _Kind(503, "busy", "Too many posts wait to be written"),
    errors.ClosingError: _Kind(503, "stopping", "The server is stopping"),
    errors.NotCaughtUpError: _Kind(503, "not-caught-up", "The post has not arrived here yet"),
    ReplayError: _Kind(
        503,
        "journal-unreadable",
        "The journal cannot be read",
        "the journal cannot be read; the server's log names the place",
    ),
    StorageError: _Kind(503, "journal-unavailable", "The journal is unreachable", _UNWRITTEN),
    sqlalchemy.exc.SQLAlchemyError: _Kind(
        503, "journal-unavailable", "The journal is unreachable", _UNWRITTEN
    ),
    library.CapacityError: _Kind(507, "no-capacity", "The stream is at its row limit"),
    errors.NoRoomError: _Kind(507, "no-room", "No capacity for this post's rows"),
    errors.TooManySourcesError: _Kind(507, "too-many-sources", "No capacity for another source"),
    errors.TooManyStrataError: _Kind(507, "too-many-strata", "No capacity for another stratum"),
}

_LONGEST_WORD = 40  # that is compared with others
_FEW_WORDS = 10  # up to this many known words are always listed

_TRANSIENT = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}

_SOURCE = re.compile(SOURCE)
# Rejections on these routes are counted by stream, source and reason.
_POSTS = {
    "/v1/streams/{name}/sketches",
    "/v1/streams/{name}/observations",
    "/v1/streams/{name}/lorawan",
    "/v1/streams/{name}/influx/api/v2/write",
    "/v1/streams/{name}/influx/write",
    "/v1/streams/{name}/influx/api/v3/write_lp",
    "/v1/streams/{name}/otlp/v1/metrics",
    "/v1/streams/{name}/prometheus/write",
    "/api/v2/write",
    "/api/v3/write_lp",
    "/write",
}
# Neither who sends it nor when is at fault; 403 where the source was revoked.
_OF_THE_POST = {
    HTTPStatus.FORBIDDEN,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.INSUFFICIENT_STORAGE,
}


class ProblemResponse(JSONResponse):
    """A problem as JSON. ASCII only, because the values it quotes may not be valid Unicode."""

    media_type = PROBLEM_JSON

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def problems(**reasons: str) -> dict[int | str, dict[str, Any]]:
    """Return the rejections for the description, such as ``problems(s404="no such stream")``."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        int(status[1:]): {"description": text, "content": {PROBLEM_JSON: {"schema": schema}}}
        for status, text in reasons.items()
    }


def install(app: FastAPI) -> None:
    """Make every error of ``app`` a problem."""
    for exception in (*TABLE, HTTPException, Exception):
        app.add_exception_handler(exception, _handle)


def answer_to(error: Exception) -> ProblemResponse:
    """Return the response to ``error``, for layers outside the routes."""
    if (kind := _kind_of(error)) is not None:
        return _known(error, kind)
    if isinstance(error, HTTPException):
        return plain_problem(error.status_code, str(error.detail), error.headers)
    return plain_problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal server error; the server's log has the details",
    )


def problem_of(error: ServiceError, beside: Mapping[str, Any]) -> ProblemResponse:
    """Return the problem for ``error``, with its kind's additional members."""
    kind = _kind_of(error)
    assert kind is not None, error
    return _known(error, kind, beside)


def plain_problem(
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
    beside: Mapping[str, Any] | None = None,
) -> ProblemResponse:
    """Return a problem that only its status describes, with optional members."""
    title = HTTPStatus(status).phrase
    problem = Problem(type="about:blank", title=title, status=status, detail=detail)
    return _respond(problem, headers, beside)


def _respond(
    problem: Problem,
    headers: Mapping[str, str] | None = None,
    beside: Mapping[str, Any] | None = None,
) -> ProblemResponse:
    content = dict(beside or {}) | problem.model_dump(exclude={"errors"})
    if problem.errors:
        content["errors"] = [_presentable_fault(fault) for fault in problem.errors]
    return ProblemResponse(content, problem.status, headers)


async def handled(request: Request, error: Exception) -> ProblemResponse:
    """Return FastAPI's response to ``error``, where a route raises it.

    Raises:
        Exception: the same, if it is unexpected.
    """
    if _kind_of(error) is None and not isinstance(error, HTTPException):
        raise error
    return await _handle(request, error)


async def _handle(request: Request, error: Exception) -> ProblemResponse:
    answer = answer_to(error)
    if getattr(request.scope.get("route"), "path", "") in _POSTS and request.method == "POST":
        _count_refusal(request, error, answer.status_code)
    elif isinstance(error, StorageError):  # of posts the journal itself says it
        _out_of_reach.say(logging.ERROR, "a request failed: %s", error)
    if answer.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        answer.headers["Allow"] = ", ".join(sorted(_methods_of(request)))
    return answer


def _count_refusal(request: Request, error: Exception, status: int) -> None:
    """Count a post that is rejected for its content, for its destination streams."""
    kind = _kind_of(error)
    if status not in _OF_THE_POST and not isinstance(error, errors.ClockEarlyError):
        return
    if kind is None and status == HTTPStatus.FORBIDDEN:
        return
    if isinstance(error, errors.PartialWriteError):
        return
    source = request.query_params.get("source", "")
    aggregator = request.app.state.aggregator
    for name in _streams_of(request):
        with suppress(errors.UnknownStreamError):
            stream = aggregator.stream(name)
            aggregator.refused(
                stream,
                source if _SOURCE.fullmatch(source) else "",
                f"http-{status}" if kind is None else kind.slug,
            )


def _streams_of(request: Request) -> set[str]:
    """Return the names of a post's destination streams."""
    name = request.path_params.get("name")
    if name is not None:
        return {name}
    given = (request.query_params.get(each, "") for each in ("bucket", "db"))
    return {name for names in given for name in names.split(",")}


def _methods_of(request: Request) -> set[str]:
    """Return the methods of every route with the path. The router returns only the first route's
    methods.
    """
    methods = {
        method
        for route in iter_route_contexts(request.app.routes)
        if route.path_regex.match(request.url.path)
        for method in route.methods or ()
    }
    return methods | {"HEAD"} if "GET" in methods else methods


def _kind_of(error: Exception) -> _Kind | None:
    return next((TABLE[cls] for cls in type(error).__mro__ if cls in TABLE), None)


def _known(
    error: Exception, kind: _Kind, beside: Mapping[str, Any] | None = None
) -> ProblemResponse:
    faults = list(islice(_faults(error), MOST_FAULTS))
    if isinstance(error, RequestValidationError):
        detail = "; ".join(f"{fault.field}: {fault.reason}" for fault in faults[:3])
        if (count := len(without_echoes(error.errors()))) > 3:
            detail += f"; and {count - 3} more"
    else:
        detail = kind.detail or str(error)
    return _respond(
        Problem(
            type=f"urn:decaysketch:problem:{kind.slug}",
            title=kind.title,
            status=kind.status,
            detail=shortened(detail, 1000),
            errors=faults or None,
        ),
        {"Retry-After": _retry_after(error)} if kind.status in _TRANSIENT else None,
        beside,
    )


def _retry_after(error: Exception) -> str:
    """Return the delay in seconds."""
    return str(error.wait_s if isinstance(error, errors.ClockEarlyError) else 1)


# ------------------------------------------------------------------------------- fields at fault


def _faults(error: Exception) -> Iterable[Fault]:
    if isinstance(error, ServiceError):
        return error.faults
    if isinstance(error, library.IncompatibleSketchError):
        return differences(error.fields, "differs from the stream's")
    if isinstance(error, RequestValidationError):
        return (_validation_fault(entry, error.body) for entry in without_echoes(error.errors()))
    return []


def _validation_fault(entry: Mapping[str, Any], body: Any) -> Fault:
    """Return a fault that pydantic found, in the terms of the request."""
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
            value = context["tag"]
            known = re.findall("'([^']*)'", context["expected_tags"])
            asked = meant(value) if context["discriminator"] == "'aggregate'" else None
            reason = _tag_expected(value, known, asked)
            if asked and (share := percentile(value)):
                reason = f"{reason[:-1]} with q {share}?"
        case "less_than_equal" | "less_than":
            reason += _share_meant(value, context.get("le", context.get("lt")))
    return Fault(field=_path(location, body, absent), reason=reason, value=value)


def _share_meant(given: Any, most: Any) -> str:
    """Return an addition for a share given in per cent."""
    per_cent = most == 1 and isinstance(given, int | float) and 2 <= given <= 100
    return f"; did you mean {given / 100:g}?" if per_cent else ""


def _tag_expected(given: str, known: list[str], asked: str | None) -> str:
    """Return the words to suggest for an unknown one: the most similar known word, or all known
    words.
    """
    near = get_close_matches(given, known, n=1) if len(given) <= _LONGEST_WORD else []
    near = [asked] if asked in known else near
    if near and len(known) > _FEW_WORDS:
        return f"there is no {given!r}; did you mean {near[0]!r}?"
    listed = f"expected one of {', '.join(map(repr, known))}"
    return f"{listed}; did you mean {near[0]!r}?" if near else listed


def _path(location: tuple[int | str, ...], body: Any, absent: bool) -> str:
    """Return a field path: ``("body", "queries", 0, "mean", "decay")`` -> ``"queries[0].decay"``.

    pydantic puts the tags of discriminated unions among the keys. A part that the body does not
    have is such a tag and is skipped, unless it is the last part and ``absent``: a missing key.
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
    content: dict[str, Any] = {"field": shortened(fault.field), "reason": fault.reason}
    for name in ("value", "expected"):
        if (value := getattr(fault, name)) is not None:
            content[name] = presentable(value)
    return content


def presentable(value: Any) -> Any:
    """Return any value in a short form that JSON supports."""
    if isinstance(value, int):
        return value if value.bit_length() <= 128 else shortened(str(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return shortened(reprlib.repr(value))
