"""The layers that a request passes before the routes.

- ``Entrance``: recognises the caller and counts its requests. It rejects an unknown caller's body
  with its first bytes. Where no key is needed, neither a web page from another origin nor a proxy
  gets in.
- ``Body``: a body arrives within its time and is inflated within its bounds. The routes see the
  plain bytes and never more than is allowed.
- ``DirectPosts``: passes a request for one of the two busiest routes to its handler, before the
  framework's own routing.

:func:`install` adds the first two, and those that a response passes (:mod:`api.http.responses`). A
body's rejection is raised where the body is read. So it does not affect a route that reads no body,
and an unknown path stays a 404.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from email.message import Message as HeaderText
from functools import lru_cache, partial
from http import HTTPStatus
from inspect import signature
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import schemas
from api.access.keys import KeyCache
from api.errors import ServiceError
from api.http import decompression, refusals
from api.http.caller import (
    INFLUX_PATH,
    INFLUX_WRITES,
    Rates,
    UnauthenticatedError,
    address_of,
    key_shown,
    left_of,
    writes,
)
from api.http.foreign_pages import check_page
from api.http.problems import answer_to, handled
from api.http.responses import Envelope, HeadRequests, Responses, header_of
from api.journal.log import StorageError
from api.service.budget import Shares
from api.settings import Settings

__all__ = [
    "Body",
    "DirectPosts",
    "DirectRoute",
    "Entrance",
    "direct",
    "install",
    "proxy_header",
    "require_media_type",
    "says_nothing",
    "stand_outside",
]

_OF_PROXIES = frozenset({"forwarded", "via", "x-real-ip"})
_OF_PROGRAMS = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"authorization",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"user-agent",
        b"x-request-id",
    }
)


_log = logging.getLogger("api.access")

# Bodies that are read as they are, and of which routes.
_BULK_TYPES = {
    "application/octet-stream",
    "application/vnd.apache.arrow.stream",
    "application/vnd.decaysketch.sketches",
    "application/x-ndjson",
}
_BULK_PATH = re.compile(
    r"/v1/streams/[^/]+/(?:sketches|observations|otlp/v1/metrics|prometheus/write)"
)
# The route decompresses these bodies itself. A snappy block states its length first.
_SNAPPY_PATH = re.compile(r"/v1/streams/[^/]+/prometheus/write")
_WITHOUT_BODY = {"GET"}  # and HEAD, which is GET by now
_UNCOUNTED = {"/healthz", "/readyz"}
_PORT = re.compile(r":[0-9]*$")
_RESERVE = 8  # this part of the bodies in flight is for short ones alone
_SHORT_BYTES = 16 << 10
_TEXTS_KEPT = 256  # values of headers that were read before: nearly every request has the same


def stand_outside(app: FastAPI, layer: Callable[[ASGIApp], ASGIApp]) -> None:
    """Put a layer before ``app`` and all its present layers, including the framework's.
    (``add_middleware`` puts it behind some of these.)
    """
    build = app.build_middleware_stack
    app.build_middleware_stack = lambda: layer(build())  # type: ignore[method-assign]


def install(app: FastAPI, settings: Settings) -> None:
    """Put all these layers before ``app``."""
    stand_outside(
        app,
        partial(
            Body,
            limit_bytes=settings.max_body_bytes,
            inflated_bytes=settings.max_inflated_bytes,
            json_bytes=settings.max_json_bytes,
            inflight_bytes=settings.max_inflight_bytes,
            timeout_s=settings.read_timeout_s,
            query_bytes=settings.max_query_bytes,
        ),
    )
    stand_outside(app, partial(Responses, limit_bytes=settings.max_response_bytes))
    stand_outside(
        app,
        partial(
            Entrance,
            rates=Rates(settings.rate_per_s, settings.rate_burst),
            local_names_only=settings.auth is None and settings.listens_on_loopback,
        ),
    )
    for layer in (Envelope, HeadRequests):
        stand_outside(app, layer)


class Entrance:
    """Sets ``scope["state"]["caller"]``: the caller, or None. Limits its request rate.

    Args:
        app: the next layer. ``app.state.keys`` recognises callers.
        rates: request rates per key, and per address without a key.
        local_names_only: on a loopback server that needs no key, a request must call it by this
            machine's name. A web page that points its own name at 127.0.0.1 could otherwise read
            the responses.
    """

    def __init__(self, app: ASGIApp, rates: Rates, *, local_names_only: bool) -> None:
        self.app = app
        self.rates = rates
        self.local_names_only = local_names_only
        self._said_proxied = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            await self._admit(scope)
        except (HTTPException, StorageError, ServiceError) as error:
            await answer_to(error)(scope, receive, send)
            return

        async def receive_from_the_known() -> Message:
            message = await receive()
            if scope["state"]["caller"] is None and (
                message.get("body") or message.get("more_body")
            ):
                raise UnauthenticatedError(scope["path"])
            return message

        await self.app(scope, receive_from_the_known, send)

    async def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        keys: KeyCache = scope["app"].state.keys
        client = scope["client"][0] if scope.get("client") else "unknown"
        if not keys.required:
            self._check_way(scope, headers)
        caller = await keys.recognise(self._key_shown(scope, headers))
        scope.setdefault("state", {})["caller"] = caller
        if scope["path"] in _UNCOUNTED:
            return
        prefix = None if caller is None else caller.prefix
        bucket = f"key {prefix}" if prefix else address_of(client)
        if wait_s := self.rates.wait_s(bucket, time.monotonic()):
            raise refusals.TooManyRequestsError(self.rates.rate_per_s, wait_s)

    def _key_shown(self, scope: Scope, headers: Headers) -> str | None:
        """Raise ForeignPageError for a browser request on behalf of a web page from another
        origin.
        """
        if INFLUX_PATH.fullmatch(scope["path"]) is None:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else None
        key, by_browser = key_shown(headers, scope["query_string"])
        if by_browser:
            check_page(scope, headers)
        return key

    def _check_way(self, scope: Scope, headers: Headers) -> None:
        """Check, where no key is needed, the name by which the client called the server, and
        intermediaries.

        Raises:
            HTTPException: the name does not belong to this machine.
            ProxiedError: a proxy forwards the request.
            ForeignPageError: a web page from another origin sends the request.
        """
        if self.local_names_only:
            # For every client, because a header may have named it.
            name = headers.get("host", "")
            if not _is_local(_PORT.sub("", name)):
                raise HTTPException(
                    HTTPStatus.MISDIRECTED_REQUEST, f"this server has no name {name[:100]!r}"
                )
        if says_nothing(scope["headers"]):
            return
        if (header := proxy_header(headers)) is not None:
            if not self._said_proxied:
                self._said_proxied = True
                _log.warning(
                    "requests come through a proxy (header %r), and the server requires no keys, "
                    "so it rejects them; set DECAYSKETCH_AUTH=keys",
                    header[:100],
                )
            raise refusals.ProxiedError(header)
        check_page(scope, headers)


class Body:
    """Bounds the body in bytes as sent, in bytes as inflated, and in time. Bounds all requests'
    bodies together in bytes. Each key has a share in that bound (:mod:`api.service.budget`). Short
    bodies have a separate reserve, regardless of long bodies.

    A declared length is trusted. Without one, the bytes are counted as they come. This layer stores
    at most one server chunk and one piece of ``decompression.PIECE_BYTES``. Bytes given to a route
    count until its request has ended. A body that is alone is never too much, for any
    ``inflight_bytes``.

    A body in GET or HEAD has no meaning and no route reads it. It is forwarded unchanged.

    Args:
        app: the next layer.
        limit_bytes: most bytes as sent.
        inflated_bytes: most bytes once inflated.
        json_bytes: most bytes, inflated, of observations without a bulk media type.
        inflight_bytes: most bytes, inflated, for all concurrent bodies.
        timeout_s: from the first read to the last byte.
        query_bytes: most bytes, inflated, for a body to any other route, with any media type.
    """

    def __init__(
        self,
        app: ASGIApp,
        limit_bytes: int,
        inflated_bytes: int,
        json_bytes: int,
        inflight_bytes: int,
        timeout_s: float,
        query_bytes: int,
    ) -> None:
        self.app = app
        self.limit_bytes = limit_bytes
        self.inflated_bytes = inflated_bytes
        self.json_bytes = json_bytes
        self.inflight_bytes = inflight_bytes
        self.timeout_s = timeout_s
        self.query_bytes = query_bytes
        reserve = inflight_bytes // _RESERVE
        self._long, self._short = Shares(inflight_bytes - reserve), Shares(reserve)

    @property
    def held_bytes(self) -> int:
        """Return the total bytes in all present bodies."""
        return self._long.taken + self._short.taken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY:
            await self.app(scope, receive, send)
            return
        coding, media, declared = _of_body(scope["headers"])
        plain = coding in ("", "identity")
        if coding == "snappy" and _SNAPPY_PATH.fullmatch(scope["path"]):
            plain = True
        inflated_bytes = self._most_inflated(scope["path"], media)
        limit_bytes = min(self.limit_bytes, inflated_bytes) if plain else self.limit_bytes
        if not plain:
            # Routes receive the plain body.
            headers = MutableHeaders(scope=scope)
            del headers["content-encoding"]
            del headers["content-length"]
        sent = _Sent(receive, limit_bytes, self.timeout_s)
        pieces: AsyncIterator[bytes] | None = None
        received = False
        caller = getattr(scope.get("state", {}).get("caller"), "prefix", None)
        has_left = left_of(HTTPConnection(scope))
        own = {self._long: 0, self._short: 0}

        def begin() -> None:
            nonlocal pieces
            if not plain and coding not in decompression.CODINGS:
                raise refusals.UnsupportedEncodingError(coding)
            if declared.isdecimal() and int(declared) > limit_bytes:
                raise refusals.BodyTooLargeError(limit_bytes)
            if not plain:
                pieces = decompression.inflate(sent.chunks(), coding, inflated_bytes)

        def hold(piece: bytes) -> None:
            size = len(piece)
            shares = self._long
            if not shares.fits(caller, size, own[shares]):
                shares = self._short
                is_short = sum(own.values()) + size <= _SHORT_BYTES
                if not is_short or not shares.fits(caller, size, own[shares]):
                    raise refusals.BodiesInFlightError(self.inflight_bytes)
            own[shares] += size
            shares.change(caller, size)

        async def receive_within_bounds() -> Message:
            nonlocal received
            if received:
                return await receive()
            if not sent.begun:
                begin()
            message = await (sent.next() if pieces is None else _next(pieces, has_left))
            received = not message["more_body"]
            if message["body"]:
                hold(message["body"])
            return message

        try:
            await self.app(scope, receive_within_bounds, send)
        finally:
            for shares, size in own.items():
                if size:
                    shares.change(caller, -size)

    def _most_inflated(self, path: str, content_type: str) -> int:
        """Return the limit in bytes. The sender chooses the media type: it raises the limit only
        where such bodies are accepted.
        """
        if INFLUX_WRITES.fullmatch(path):
            return self.inflated_bytes  # lines, with any Content-Type
        if not _BULK_PATH.fullmatch(path):
            return min(self.query_bytes, self.json_bytes, self.inflated_bytes)
        if _media_type(content_type) in _BULK_TYPES:
            return self.inflated_bytes
        return min(self.json_bytes, self.inflated_bytes)


def _of_body(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, str, str]:
    """Return the codings, the media type and the declared length, each empty if not given."""
    codings = b",".join(value for name, value in headers if name == b"content-encoding")
    media, length = (header_of(headers, each) for each in (b"content-type", b"content-length"))
    return codings.decode("latin-1").strip().lower(), media or "", length or ""


class _Sent:
    """One request's body as it was sent, bounded in bytes and in time.

    Args:
        receive: the server's function.
        limit_bytes: most bytes.
        timeout_s: from the first read to the last byte.
    """

    def __init__(self, receive: Receive, limit_bytes: int, timeout_s: float) -> None:
        self._receive = receive
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_s
        self._taken_bytes = 0
        self._deadline: float | None = None

    @property
    def begun(self) -> bool:
        """Return whether any part of it was read."""
        return self._deadline is not None

    async def next(self) -> Message:
        """Return the next chunk.

        Raises:
            ClientLeftError: the client left before the last one.
            SlowBodyError, BodyTooLargeError: a limit is exceeded.
        """
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise refusals.SlowBodyError(self._timeout_s) from None
        if message["type"] == "http.disconnect":
            raise refusals.ClientLeftError
        message.setdefault("body", b"")
        message.setdefault("more_body", False)
        self._taken_bytes += len(message["body"])
        if self._taken_bytes > self._limit_bytes:
            raise refusals.BodyTooLargeError(self._limit_bytes)
        return message

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all chunks. Raises the errors of :meth:`next`."""
        more = True
        while more:
            message = await self.next()
            more = message["more_body"]
            if message["body"]:
                yield message["body"]


async def _next(pieces: AsyncIterator[bytes], has_left: Callable[[], bool]) -> Message:
    """Return the next piece of an inflated body as the server would return it.

    Raises:
        ClientLeftError: no client waits for the response.
    """
    if has_left():
        raise refusals.ClientLeftError
    piece = await anext(pieces, None)
    return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}


@lru_cache(_TEXTS_KEPT)
def _media_type(content_type: str) -> str:
    text = HeaderText()
    text["content-type"] = content_type
    return text.get_content_type() if content_type else ""


@lru_cache(_TEXTS_KEPT)
def _is_local(name: str) -> bool:
    """Return whether a name, as in a URL, belongs to this machine and cannot be assigned by
    others.
    """
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def says_nothing(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether neither a page nor a proxy can have sent these headers. True if all are
    headers that programs send.
    """
    return all(name in _OF_PROGRAMS for name, _ in headers)


def proxy_header(headers: Headers) -> str | None:
    """Return the name of the first header that only a proxy adds, or None."""
    return next(
        (name for name in headers if name in _OF_PROXIES or name.startswith("x-forwarded-")), None
    )


# ------------------------------------------------------------------------------ the busiest routes


def require_media_type(request: Request, *expected: str) -> str:
    """The media type of the body, one of the given.

    Raises:
        UnsupportedMediaTypeError: none of them.
    """
    given = request.headers.get("content-type")
    media = None if given is None else given.partition(";")[0].strip().lower()
    if media is None or media not in expected:
        raise refusals.UnsupportedMediaTypeError("content-type", given, " or ".join(expected))
    return media


def direct(endpoint: Callable[..., Awaitable[Response]]) -> Callable[[Request], Any]:
    """Return a handler that reads an endpoint's parameters by their pydantic model.

    FastAPI's own work for a request takes as long as a small post.

    Args:
        endpoint: has the stream's name, ``parameters`` and the request.
    """
    model: type[BaseModel] = get_type_hints(endpoint)["parameters"]

    async def handle(request: Request) -> Response:
        await writes(request)
        faults: list[dict[str, Any]] = []
        name, parameters = request.path_params["name"], None
        try:
            _NAME.validate_python(name)
        except ValidationError as error:
            faults += _located(error, "path", "name")
        try:
            query = request.scope["query_string"].decode("latin-1")
            parameters = model.model_validate(dict(parse_qsl(query, keep_blank_values=True)))
        except ValidationError as error:
            faults += _located(error, "query")
        if faults:
            raise RequestValidationError(faults)
        return await endpoint(name, parameters, request)

    return handle


_NAME: TypeAdapter[str] = TypeAdapter(schemas.StreamName)


def _located(error: ValidationError, *where: str) -> list[dict[str, Any]]:
    """Return faults as FastAPI locates them."""
    faults = error.errors(include_url=False)
    return [{**fault, "loc": (*where, *fault["loc"])} for fault in faults]


class DirectRoute(APIRoute):
    """A route that FastAPI describes by its signature, and :func:`direct` handles if it has
    ``parameters``.
    """

    @property
    def is_direct(self) -> bool:
        """Return whether FastAPI only describes it."""
        return "parameters" in signature(self.endpoint).parameters

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return direct(self.endpoint) if self.is_direct else super().get_route_handler()


class DirectPosts:
    """Handles the two busiest routes before the framework routes a request. ``app`` handles all
    other requests.

    A request to them came through the same layers as every other. FastAPI's
    route has the same handler, so there is one code path. A rejection comes from the same table of
    problems.

    Args:
        app: the next layer.
        routes: by the last part of their path, below a stream.
    """

    def __init__(self, app: ASGIApp, routes: Mapping[str, APIRoute]) -> None:
        self.app = app
        self._routes = routes
        self._handlers = {name: direct(route.endpoint) for name, route in routes.items()}
        self._path = re.compile(rf"/v1/streams/([^/]+)/({'|'.join(routes)})")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = None
        if scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path"):
            path = self._path.fullmatch(scope["path"])
        if path is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = self._routes[path[2]]  # for the log line, and the count of rejections
        scope["path_params"] = {"name": path[1]}
        request = Request(scope, receive)
        try:
            response = await self._handlers[path[2]](request)
        except Exception as error:
            response = await handled(request, error)
        await response(scope, receive, send)
