"""Keys: callers' permissions, by stream."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, Field

from api.access.keys import (
    LABEL,
    LABEL_LENGTH,
    SCOPE_ENTRIES,
    SCOPE_ENTRY,
    Caller,
    KeyCache,
    KeyFieldError,
    KeyRow,
    Role,
    covers,
    mint,
    now_us,
    rotate,
)
from api.errors import (
    Fault,
    InvalidRequestError,
    KeyChangedError,
    UnknownKeyError,
)
from api.http.caller import Administers, Reads
from api.http.json_body import JsonRoute, asked_in_body, body_described, json_only
from api.http.problems import problems
from api.http.refusals import ForbiddenError
from api.routes.common import utc
from api.schemas import RequestModel

__all__ = ["router"]

router = APIRouter(route_class=JsonRoute, tags=["keys"])

_YEAR_S = 365 * 86_400

Prefix = Annotated[
    str, Path(pattern="^[a-z2-7]{8}$", description="The eight characters after `ds_`.")
]
ScopeEntry = Annotated[str, Field(pattern=SCOPE_ENTRY)]


async def _cache(request: Request) -> KeyCache:
    cache: KeyCache = request.app.state.keys
    return cache


TheKeys = Annotated[KeyCache, Depends(_cache)]


class KeyCreation(RequestModel):
    """A new key."""

    role: Role = Field(
        strict=False, description="`read` < `write` < `admin`. Each role includes the earlier ones."
    )
    scope: list[ScopeEntry] = Field(
        min_length=1,
        max_length=SCOPE_ENTRIES,
        description="Stream names or globs: `*`, `?`, `[a-z]`. `*` alone is every stream.",
        examples=[["ward-*"]],
    )
    label: str = Field(
        default="",
        max_length=LABEL_LENGTH,
        pattern=LABEL,
        description="A label for people, without control characters.",
    )
    expires_in_s: int | None = Field(
        default=None, ge=1, le=100 * _YEAR_S, description="Lifetime in seconds. Null: no expiry."
    )
    max_streams: int | None = Field(
        default=None,
        ge=0,
        le=1 << 32,
        description="Stream limit: the key cannot create a stream while its scope has this many. "
        "Null: no limit. Not allowed for the role `admin`, which can create other "
        "keys.",
    )


class KeyRotation(RequestModel):
    """Options for a key's new secret."""

    grace_s: int = Field(
        default=3600,
        ge=0,
        le=30 * 86_400,
        description="Time for which the old secret stays valid. Use 0 if it was stolen.",
    )


class KeyState(BaseModel):
    """A key without its secret. The server does not store secrets."""

    prefix: str
    label: str
    role: Role
    scope: list[str]
    max_streams: int | None
    created: datetime
    expires: datetime | None
    previous_secret_until: datetime | None = Field(
        description="After a rotation: the time until which the old secret is valid."
    )
    last_used: datetime | None = Field(
        description="Last use since the start of the responding process."
    )


class NewKey(KeyState):
    """A key with its secret. The server shows the secret once."""

    key: str = Field(description="Store it now. The server does not show it again.")


class KeyList(BaseModel):
    """Keys with a scope within the caller's, ordered by creation."""

    keys: list[KeyState]


@router.post(
    "/v1/keys",
    summary="Create a key",
    status_code=HTTPStatus.CREATED,
    dependencies=[Depends(json_only)],
    responses=problems(
        s413="The body is too long.",
        s415="The body is not JSON.",
        s422="A field is outside its domain.",
    ),
    openapi_extra=body_described(KeyCreation),
)
async def post_key(
    caller: Administers,
    creation: Annotated[KeyCreation, Depends(asked_in_body(KeyCreation))],
    cache: TheKeys,
) -> NewKey:
    """The new scope must lie within the scope of the caller's key."""
    for entry in creation.scope:
        if not covers(caller.scope, entry):
            raise ForbiddenError(f"scope {entry!r} is not within the scope of this key")
    now = now_us()
    try:
        row, token = mint(
            role=creation.role,
            scope=creation.scope,
            label=creation.label,
            now_us=now,
            expires_us=_after(now, creation.expires_in_s),
            max_streams=creation.max_streams,
        )
    except KeyFieldError as error:
        fault = Fault(field=error.field, reason=error.reason, value=error.value)
        raise InvalidRequestError(str(error), [fault]) from None
    await cache.store.put(row)
    await cache.reload()
    return NewKey(key=token, **_fields(row, cache))


@router.get("/v1/keys", summary="List the keys")
async def list_keys(caller: Administers, cache: TheKeys) -> KeyList:
    """The list contains no secrets."""
    rows = [row for row in await cache.rows() if _manages(caller, row)]
    return KeyList(keys=[KeyState(**_fields(row, cache)) for row in rows])


class CallerState(BaseModel):
    """The caller's role and scope."""

    prefix: str | None = Field(description="Prefix of its key. Null if the server requires no key.")
    role: Role
    scope: list[str]


@router.get("/v1/caller", summary="Get the caller's permissions")
async def get_caller(caller: Reads) -> CallerState:
    """The role and the scope of the request's key, or of all callers if the server requires no
    key.
    """
    return CallerState(prefix=caller.prefix, role=caller.role, scope=list(caller.scope))


@router.delete(
    "/v1/keys/{prefix}",
    summary="Revoke a key",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such key, or its scope is not within the scope of the caller's key.",
        s422="The prefix is not eight characters.",
    ),
)
async def delete_key(prefix: Prefix, caller: Administers, cache: TheKeys) -> None:
    """This process rejects the key from now on, and every other replica within two seconds."""
    await _managed(prefix, caller, cache)
    await cache.store.delete(prefix)
    await cache.reload()


@router.post(
    "/v1/keys/{prefix}/rotate",
    summary="Give a key a new secret",
    dependencies=[Depends(json_only)],
    responses=problems(
        s404="No such key, or its scope is not within the scope of the caller's key.",
        s409="Another request changed or revoked the key at the same time.",
        s413="The body is too long.",
        s415="The body is not JSON.",
        s422="The prefix or the time is outside its domain.",
    ),
    openapi_extra=body_described(KeyRotation),
)
async def rotate_key(
    prefix: Prefix,
    caller: Administers,
    rotation: Annotated[KeyRotation, Depends(asked_in_body(KeyRotation))],
    cache: TheKeys,
) -> NewKey:
    """Role, scope and expiry stay. The secret before the last rotation becomes invalid."""
    row = await _managed(prefix, caller, cache)
    changed, token = rotate(row, now_us(), rotation.grace_s * 1_000_000)
    if not await cache.store.replace(row, changed):
        raise KeyChangedError(prefix)
    await cache.reload()
    return NewKey(key=token, **_fields(changed, cache))


def _manages(caller: Caller, row: KeyRow) -> bool:
    return all(covers(caller.scope, entry) for entry in row.scope)


async def _managed(prefix: str, caller: Caller, cache: KeyCache) -> KeyRow:
    for row in await cache.rows():
        if row.prefix == prefix and _manages(caller, row):
            return row
    raise UnknownKeyError(prefix)


def _fields(row: KeyRow, cache: KeyCache) -> dict[str, Any]:
    return {
        "prefix": row.prefix,
        "label": row.label,
        "role": row.role,
        "scope": list(row.scope),
        "max_streams": row.max_streams,
        "created": _utc(row.created_us),
        "expires": _utc(row.expires_us),
        "previous_secret_until": _utc(row.previous_until_us),
        "last_used": _utc(cache.last_used_us(row.prefix)),
    }


def _utc(time_us: int | None) -> datetime | None:
    return None if time_us is None else utc(time_us)


def _after(now: int, seconds: int | None) -> int | None:
    return None if seconds is None else now + seconds * 1_000_000
