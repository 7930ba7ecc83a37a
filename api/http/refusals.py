"""Rejections by HTTP itself, before the service: bodies, encodings, keys, rates and origins.

Most are HTTPExceptions, with their own status and no further problem kind. They may be raised where
a body is read, and every body reader lets them through. Three name the header at fault. Their kinds
are in the table (:mod:`api.http.problems`).
"""

from __future__ import annotations

import math
from http import HTTPStatus

from starlette.exceptions import HTTPException

from api.errors import Fault, ServiceError

__all__ = [
    "CLIENT_LEFT",
    "BodiesInFlightError",
    "BodyTooLargeError",
    "ClientLeftError",
    "CorruptEncodingError",
    "ForbiddenError",
    "ForeignPageError",
    "ProxiedError",
    "ResponsesInFlightError",
    "SlowBodyError",
    "TooManyLiveClientsError",
    "TooManyRequestsError",
    "UnsupportedEncodingError",
    "UnsupportedMediaTypeError",
    "shortened",
]


CLIENT_LEFT = 499
"""Status for a request after its client left. Only the log and the metrics show it."""


class ClientLeftError(HTTPException):
    """The client closed the connection before its body was complete."""

    def __init__(self) -> None:
        super().__init__(CLIENT_LEFT, "the client left before its body was complete")


class TooManyLiveClientsError(HTTPException):
    """The count of open live connections is at its limit."""

    def __init__(self, most: int, retry_s: int, *, of_key: bool = False) -> None:
        whose = "of this key " if of_key else ""
        super().__init__(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"{most} live connections {whose}are open, the maximum",
            {"Retry-After": str(retry_s)},
        )


class UnsupportedMediaTypeError(ServiceError):
    """The route does not accept the body's media type or encoding."""

    def __init__(self, field: str, given: str | None, expected: str) -> None:
        super().__init__(
            f"{field} is {given!r}; expected {expected}"
            if given
            else f"{field} is missing; expected {expected}",
            [Fault(field=field, reason="not supported", value=given, expected=expected)],
        )


class BodyTooLargeError(HTTPException):
    """The body exceeds the limit. It is an HTTPException, because code that reads bodies does not
    convert such an exception to another one.
    """

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body is longer than {limit_bytes} bytes, the limit of this server",
        )


class ForbiddenError(HTTPException):
    """The key is valid, but not for this request."""

    def __init__(self, detail: str) -> None:
        super().__init__(HTTPStatus.FORBIDDEN, detail)


class TooManyRequestsError(HTTPException):
    """The caller exceeds its request rate."""

    def __init__(self, rate_per_s: float, wait_s: float) -> None:
        super().__init__(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"more than {rate_per_s:g} requests per second",
            {"Retry-After": str(math.ceil(wait_s))},
        )


class BodiesInFlightError(HTTPException):
    """All concurrent request bodies exceed this process's limit."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"request bodies in progress use up too much of {limit_bytes} bytes "
            "(max_inflight_bytes), for this key or in total; the server stored nothing, send the "
            "request again later",
            {"Retry-After": "1"},
        )


class ResponsesInFlightError(HTTPException):
    """The responses being sent exceed this process's limit."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"unread responses use up {limit_bytes} bytes (max_response_bytes), for this key or "
            "in total; read them, then repeat the request",
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
    """The server does not support the body's content encoding."""

    def __init__(self, given: str) -> None:
        super().__init__(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"content-encoding is {shortened(given)!r}; expected one of gzip, zstd, identity",
        )


class CorruptEncodingError(HTTPException):
    """The body does not match its content encoding."""

    def __init__(self, encoding: str, reason: str) -> None:
        super().__init__(
            HTTPStatus.UNPROCESSABLE_ENTITY, f"the body is not valid {encoding}: {reason}"
        )


class ForeignPageError(ServiceError):
    """A web page from another origin sends the request, and no key protects the server."""

    def __init__(self, header: str, value: str) -> None:
        super().__init__(
            f"{header} is {shortened(value)!r}: the request is from a page of another site, and "
            "without keys this server accepts requests only from its own dashboard and from "
            "programs",
            [Fault(field=header, reason="of another site", value=value)],
        )


class ProxiedError(ServiceError):
    """A proxy forwards a request, and no key protects the server."""

    def __init__(self, header: str) -> None:
        super().__init__(
            f"the request has the header {shortened(header)!r}: a proxy forwarded it, and this "
            "server requires no key, so anybody who can connect to the proxy could read, post and "
            "delete; set DECAYSKETCH_AUTH=keys and create keys with `python -m api keys mint`",
            [Fault(field=header, reason="only a proxy sends it")],
        )


def shortened(text: str, limit: int = 200) -> str:
    """Return the beginning of a text that may be long."""
    return text if len(text) <= limit else f"{text[:limit]}..."
