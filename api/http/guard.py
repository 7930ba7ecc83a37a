"""Route requirements: a role, and a scope that contains the named streams.

The server rejects a stream outside a key's scope (403) before it checks whether the stream
exists. Without access, an unknown stream and a foreign one look the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase

from api.access.keys import Caller, Role
from api.errors import TooManyStreamsError
from api.http.caller import caller_of
from api.http.refusals import ForbiddenError, UnauthenticatedError
from api.service.aggregator import Aggregator

__all__ = [
    "Administers",
    "Creates",
    "Reads",
    "Requires",
    "Writes",
    "administers",
    "check_creation",
    "check_scope",
    "creates",
    "reads",
    "reads_body_streams",
    "watches",
    "writes",
    "writes_buckets",
]

_BEARER = HTTPBearer(
    bearerFormat="ds_<prefix>_<secret>",
    description="A key of this server. Not asked for where it runs with `auth` off.",
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
            raise ForbiddenError(f"this key has role {caller.role}; this needs {self.role}")
        if self.every_stream and not caller.sees_all:
            raise ForbiddenError("this tells of every stream; the scope of this key is smaller")
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
            f"the scope of this key has {had} streams, and this is {new} more; it may have "
            f"{caller.max_streams}"
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
