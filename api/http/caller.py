"""The caller of a request: its key, its request rate, its role and scope.

Its *rate* is a token bucket for each key, or for each address without one. A bucket holds at most
``burst`` tokens, gains ``rate_per_s`` and pays one for each request. The table is bounded: the
caller with the longest silence is forgotten, and begins again with a full bucket. Each process
counts for itself.

A route *requires* a role, and a scope that contains the named streams. The server rejects a stream
outside a key's scope (403) before it checks whether the stream exists. Without access, an unknown
stream and a foreign one look the same.

Influx clients send the key in another place. Clients for version 2 send a token (``Authorization:
Token ...``). Clients for version 1 send a name and a password, as Basic authentication or in the
query string (``u`` and ``p``). This server's key is the token or the password, for any name. The
server reads it there only on these paths. A browser adds Basic credentials by itself for any web
page. So the server checks the web page behind such a request, as it does where no key is needed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from api.access.keys import Caller, Role
from api.errors import TooManyStreamsError
from api.http.refusals import ClientLeftError, ForbiddenError
from api.service.aggregator import Aggregator
from api.service.threads import never

__all__ = [
    "INFLUX_PATH",
    "INFLUX_WRITES",
    "Administers",
    "Creates",
    "Rates",
    "Reads",
    "Requires",
    "UnauthenticatedError",
    "Writes",
    "address_of",
    "administers",
    "as_long_as_connected",
    "asker",
    "caller_of",
    "check_creation",
    "check_scope",
    "creates",
    "key_shown",
    "left_of",
    "reads",
    "reads_body_streams",
    "watches",
    "writes",
    "writes_buckets",
]

_CALLERS_KEPT = 10_000
_ADDRESSES_KEPT = 1_000


@dataclass
class _Bucket:
    tokens: float
    filled_at: float


class Rates:
    """Token buckets; O(1) time for each request, O(``kept``) memory.

    Args:
        rate_per_s: tokens gained in a second; 0: every request is allowed.
        burst: most tokens of a bucket.
        kept: most buckets.
    """

    def __init__(self, rate_per_s: float, burst: int, kept: int = _CALLERS_KEPT) -> None:
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._kept = kept
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, caller: str, now: float) -> float:
        """Pay one token and return 0, or return the seconds until there is one.

        Args:
            caller: the owner of the bucket.
            now: a clock that never goes back, in seconds.
        """
        if self.rate_per_s == 0:
            return 0.0
        bucket = self._buckets.get(caller)
        if bucket is None:
            if len(self._buckets) >= self._kept:
                self._buckets.popitem(last=False)
            bucket = self._buckets[caller] = _Bucket(float(self.burst), now)
        self._buckets.move_to_end(caller)
        gained = (now - bucket.filled_at) * self.rate_per_s
        bucket.tokens = min(bucket.tokens + gained, float(self.burst))
        bucket.filled_at = now
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return 0.0
        return (1 - bucket.tokens) / self.rate_per_s


@lru_cache(_ADDRESSES_KEPT)
def address_of(host: str) -> str:
    """Return the bucket of a client address: the address, or its /64 network of IPv6, where one
    machine may have every address.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def caller_of(request: Request) -> Caller | None:
    """Return the authenticated caller, or None if there is none."""
    caller: Caller | None = request.scope.get("state", {}).get("caller")
    return caller


def asker(request: Request) -> str:
    """Return the caller that a request is charged to: its key, or its address where it has no
    key.
    """
    caller = caller_of(request)
    if caller is not None and caller.prefix is not None:
        return f"key {caller.prefix}"
    return address_of("unknown" if request.client is None else request.client.host)


def left_of(request: HTTPConnection) -> Callable[[], bool]:
    """Return the function that tells whether a request's client has left. Costs a system call. See
    :meth:`~api.http.head_timeout.TimedProtocol.has_left`. On another server it returns False.
    """
    has_left: Callable[[], bool] = request.scope.get("state", {}).get("has_left", never)
    return has_left


@asynccontextmanager
async def as_long_as_connected(request: Request) -> AsyncIterator[None]:
    """Cancel the work in this context as soon as the client leaves. The body must have been read.

    Raises:
        ClientLeftError: the client has left.
    """
    task = asyncio.current_task()
    assert task is not None
    left = False

    async def watch() -> None:
        nonlocal left
        while (await request.receive())["type"] != "http.disconnect":
            pass
        left = True
        task.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if left and not task.uncancel():
            raise ClientLeftError from None
        raise
    finally:
        watching.cancel()


_BEARER = HTTPBearer(
    bearerFormat="ds_<prefix>_<secret>",
    description="A key for this server. Not required if the setting `auth` is off.",
)


def check_scope(caller: Caller, names: Iterable[str]) -> None:
    """Raise ForbiddenError if one of the streams is not in the scope of the caller's key."""
    for name in names:
        if not caller.sees(name):
            raise ForbiddenError(f"stream {name!r} is not in the scope of this key")


class Requires(SecurityBase):
    """A dependency: a caller that has this role and may access the request's streams. In the
    service description it declares that a key is required.

    Args:
        role: least role.
        body_streams: the body names streams, as ``streams``.
        buckets: the query string names streams, separated by commas, as one of these parameters.
        every_stream: the response covers every stream, so the scope must contain them all.
    """

    def __init__(
        self,
        role: Role,
        *,
        body_streams: bool = False,
        every_stream: bool = False,
        buckets: tuple[str, ...] = (),
    ) -> None:
        self.model = _BEARER
        self.scheme_name = "key"
        self.role = role
        self.body_streams = body_streams
        self.every_stream = every_stream
        self.buckets = buckets

    async def __call__(self, request: Request) -> Caller:
        caller = caller_of(request)
        if caller is None:
            raise UnauthenticatedError(request.url.path)
        if not caller.role.includes(self.role):
            raise ForbiddenError(
                f"this key has the role {caller.role}; the request needs the role {self.role}"
            )
        if self.every_stream and not caller.sees_all:
            raise ForbiddenError(
                "the response would contain every stream; the scope of this key is smaller"
            )
        check_scope(caller, await self._named(request))
        return caller

    async def _named(self, request: Request) -> Iterable[str]:
        if not self.body_streams:
            name = request.path_params.get("name")
            if name is not None:
                return [name]
            given = (request.query_params.getlist(each) for each in self.buckets)
            return {stream for texts in given for text in texts for stream in text.split(",")}
        try:
            body: Any = await request.json()  # of a JsonRoute, which reads it once
        except ValueError:  # no JSON, which the route refuses
            return ()
        streams = body.get("streams") if isinstance(body, dict) else None
        return (
            {each for each in streams if isinstance(each, str)} if isinstance(streams, list) else ()
        )


class _Creation(Requires):
    """Also checks that the key may have one more stream in its scope, unless this one exists.

    Two streams that are created at the same moment are not distinguished, so they may exceed the
    limit.
    """

    async def __call__(self, request: Request) -> Caller:
        caller = await super().__call__(request)
        check_creation(caller, request.app.state.aggregator, [request.path_params["name"]])
        return caller


def check_creation(caller: Caller, aggregator: Aggregator, names: Iterable[str]) -> None:
    """Check whether a key may create the streams of these names, unless they exist.

    Raises:
        ForbiddenError: one of them is not in its scope.
        TooManyStreamsError: with them its scope would have more than it may.
    """
    named = list(names)
    check_scope(caller, named)
    new = sum(not aggregator.knows(name) for name in named)
    if caller.max_streams is None or not new:
        return
    had = len(aggregator.streams_of(caller))
    if had + new > caller.max_streams:
        raise TooManyStreamsError(
            f"the scope of this key has {had} streams, and this request adds {new}; expected at "
            f"most {caller.max_streams}"
        )


reads = Requires(Role.READ)
reads_body_streams = Requires(Role.READ, body_streams=True)
watches = Requires(Role.READ, every_stream=True)
writes = Requires(Role.WRITE)
writes_buckets = Requires(Role.WRITE, buckets=("bucket", "db"))
creates = _Creation(Role.WRITE)
administers = Requires(Role.ADMIN)

Reads = Annotated[Caller, Depends(reads)]
Writes = Annotated[Caller, Depends(writes)]
Creates = Annotated[Caller, Depends(creates)]
Administers = Annotated[Caller, Depends(administers)]


_BELOW = r"(?:/v1/streams/[^/]+/influx)?"
INFLUX_WRITES = re.compile(rf"{_BELOW}/(?:api/v2/write|api/v3/write_lp|write)")
"""Paths that accept lines."""

INFLUX_PATH = re.compile(rf"{INFLUX_WRITES.pattern}|{_BELOW}/(?:query|ping|health)")

_MOST_PARAMETERS = 100


def key_shown(headers: Headers, query_string: bytes) -> tuple[str | None, bool]:
    """Return the key in a request to one of these paths, or None, and whether a browser might have
    added it by itself.
    """
    scheme, _, text = headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "token" | "bearer":
            return text.strip(), False
        case "basic":
            return _password(text.strip()), True
    if b"p=" not in query_string:
        return None, False
    try:
        given = parse_qs(query_string.decode("latin-1"), max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        return None, False
    return given.get("p", [None])[0], False


def _password(text: str) -> str | None:
    try:
        return base64.b64decode(text, validate=True).decode("utf-8").partition(":")[2]
    except (binascii.Error, ValueError):
        return None


class UnauthenticatedError(HTTPException):
    """The route needs a key, and the request has none that is valid.

    Args:
        path: the request's path. It determines how its clients send a key.
    """

    def __init__(self, path: str = "") -> None:
        shown = "Authorization: Bearer ds_..."
        if INFLUX_PATH.fullmatch(path):
            shown = "Authorization: Token ds_..., or as the password"
        super().__init__(
            HTTPStatus.UNAUTHORIZED,
            f"the request needs a valid key: {shown}",
            {"WWW-Authenticate": "Bearer"},
        )
