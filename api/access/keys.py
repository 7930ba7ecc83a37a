"""Keys: ``ds_<prefix>_<secret>``, with a role within a scope, and the keys in memory.

The prefix names the key, the secret with 256 random bits proves it. The server stores only the
SHA-256 of the complete text. A slow hash protects secrets that people choose. Against 256 uniform
bits no search gains from a fast hash, and a request costs microseconds.

:class:`KeyCache` is at most two seconds behind the store. A key that any replica revokes is
rejected by every replica within ``STALE_S``. While the database cannot be read the known keys are
accepted for ``OUTAGE_S`` more, then every request is rejected (503): a revocation is never out of
effect for longer. One request at a time reads the keys and gives up after ``READ_S``. No request
waits for it as long as the known keys may be accepted.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Protocol

from api.journal.log import StorageError
from api.logs import Seldom

__all__ = [
    "ANYONE",
    "EVERY_STREAM",
    "LABEL",
    "LABEL_LENGTH",
    "OUTAGE_S",
    "READ_S",
    "SCOPE_ENTRIES",
    "SCOPE_ENTRY",
    "STALE_S",
    "Caller",
    "KeyCache",
    "KeyFieldError",
    "KeyRow",
    "KeyStore",
    "Role",
    "covers",
    "mint",
    "now_us",
    "prefix_of",
    "rotate",
]

EVERY_STREAM = "*"
SCOPE_ENTRY = r"^[A-Za-z0-9._*?!\[\]-]{1,100}$"
SCOPE_ENTRIES = 100
LABEL = r"^[^\x00-\x1f\x7f-\x9f]*$"
LABEL_LENGTH = 200

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_FORM = re.compile(r"ds_([a-z2-7]{8})_[A-Za-z0-9_-]{43}", re.ASCII)
_WILD = re.compile(r"[*?\[]")


class KeyFieldError(ValueError):
    """A requested key cannot be made: the field at fault, and the reason."""

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field
        self.value = value
        self.reason = reason


class Role(StrEnum):
    """A key's purpose. Each role includes the roles before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Return whether this role may do everything that ``other`` may."""
        return _RANK[self] >= _RANK[other]


_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, kw_only=True)
class KeyRow:
    """A key as it is stored. Times are microseconds since 1970.

    Args:
        prefix: names the key. It is not secret.
        digest: the key's SHA-256.
        label: for people.
        role, scope: its permissions, and their streams: names or globs, case matters.
        max_streams: it creates no stream while so many exist in its scope. None: any number.
        created_us, expires_us: valid from and until. None: for ever.
        previous_digest, previous_until_us: the secret before the last rotation, and how long it is
            still accepted.
    """

    prefix: str
    digest: bytes
    label: str
    role: Role
    scope: tuple[str, ...]
    created_us: int
    expires_us: int | None = None
    max_streams: int | None = None
    previous_digest: bytes | None = None
    previous_until_us: int | None = None

    def proves(self, token: str, now_us: int) -> bool:
        """Return whether ``token`` is this key, and valid at that time. In constant time of its
        secret.
        """
        return self.accepts(_digest(token), now_us)

    def caller(self, token: str) -> Caller:
        """Return the caller that sends this key as ``token``."""
        return Caller(
            role=self.role,
            scope=self.scope,
            prefix=self.prefix,
            digest=_digest(token),
            max_streams=self.max_streams,
        )

    def sees(self, stream: str) -> bool:
        """Return whether a stream with this name is in scope."""
        return _matches(stream, self.scope)

    def accepts(self, digest: bytes, now_us: int) -> bool:
        """Return whether the text with this digest is this key, and valid at that time."""
        current = hmac.compare_digest(digest, self.digest)
        previous = hmac.compare_digest(digest, self.previous_digest or _NOTHING)
        if self.expires_us is not None and now_us >= self.expires_us:
            return False
        return current or (previous and now_us < (self.previous_until_us or 0))


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The sender of a request with a recognised key. ``digest`` belongs to the sent text."""

    role: Role
    scope: tuple[str, ...]
    prefix: str | None = None
    digest: bytes | None = field(default=None, repr=False)
    max_streams: int | None = None

    def sees(self, stream: str) -> bool:
        """Return whether a stream with this name is in scope."""
        return _matches(stream, self.scope)

    @property
    def sees_all(self) -> bool:
        """Return whether every possible stream is in scope."""
        return EVERY_STREAM in self.scope


ANYONE = Caller(role=Role.ADMIN, scope=(EVERY_STREAM,))
"""The caller if no key is needed."""


def mint(
    *,
    role: Role,
    scope: Iterable[str],
    now_us: int,
    label: str = "",
    expires_us: int | None = None,
    max_streams: int | None = None,
) -> tuple[KeyRow, str]:
    """Return a new key: the row to store, and the text, which is shown once and never again.

    Raises:
        KeyFieldError: an entry of the scope is no name and no glob, the scope or the label is too
            long, the label has control characters, or an admin is to be limited.
    """
    scope = tuple(scope)
    if len(scope) > SCOPE_ENTRIES:
        raise KeyFieldError(
            "scope", len(scope), f"has {len(scope)} entries; expected at most {SCOPE_ENTRIES}"
        )
    for entry in scope:
        if not re.fullmatch(SCOPE_ENTRY, entry):
            raise KeyFieldError("scope", entry, f"{entry!r} is not a stream name or glob")
    if len(label) > LABEL_LENGTH:
        raise KeyFieldError(
            "label", label, f"has {len(label)} characters; expected at most {LABEL_LENGTH}"
        )
    if not re.fullmatch(LABEL, label):
        raise KeyFieldError("label", label, f"{label!r} has control characters")
    if role is Role.ADMIN and max_streams is not None:
        raise KeyFieldError(
            "max_streams",
            max_streams,
            "is not allowed for the role admin, which can create other keys",
        )
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    token = _token(prefix)
    row = KeyRow(
        prefix=prefix,
        digest=_digest(token),
        label=label,
        role=role,
        scope=scope,
        created_us=now_us,
        expires_us=expires_us,
        max_streams=max_streams,
    )
    return row, token


def rotate(row: KeyRow, now_us: int, grace_us: int) -> tuple[KeyRow, str]:
    """Return the key with a new secret. The server accepts the previous one for another
    ``grace_us`` microseconds.
    """
    token = _token(row.prefix)
    changed = replace(
        row,
        digest=_digest(token),
        previous_digest=row.digest if grace_us else None,
        previous_until_us=now_us + grace_us if grace_us else None,
    )
    return changed, token


def now_us() -> int:
    """Return the clock for key expiry: microseconds since 1970."""
    return time.time_ns() // 1000


def prefix_of(token: str) -> str | None:
    """Return the prefix of a text that has the form of a key."""
    match = _FORM.fullmatch(token)
    return match[1] if match else None


def covers(scope: Iterable[str], entry: str) -> bool:
    """Return whether every stream that ``entry`` matches is in ``scope``. False is possible where
    it is.

    A plain name is matched. Two globs are compared only where the outer one is a text followed by
    ``*``.
    """
    if not _WILD.search(entry):
        return _matches(entry, scope)
    literal = _WILD.split(entry, maxsplit=1)[0]
    return any(
        entry == outer
        or (outer.endswith("*") and not _WILD.search(outer[:-1]) and literal.startswith(outer[:-1]))
        for outer in scope
    )


def _matches(stream: str, scope: Iterable[str]) -> bool:
    return any(fnmatchcase(stream, entry) for entry in scope)


def _token(prefix: str) -> str:
    return f"ds_{prefix}_{secrets.token_urlsafe(32)}"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


_NOTHING = bytes(32)  # the digest of no text that anybody will find


STALE_S = 2.0
OUTAGE_S = 60.0
READ_S = 5.0

_log = logging.getLogger("api.access")

_NO_KEY, _ = mint(role=Role.READ, scope=(), now_us=0, expires_us=0)


class KeyStore(Protocol):
    """Keys that outlive the process and are shared by every replica.

    Each method raises StorageError if the database fails.
    """

    async def all(self) -> list[KeyRow]:
        """Return every key, in order of creation."""

    async def put(self, row: KeyRow) -> None:
        """Add a key with a new prefix."""

    async def replace(self, row: KeyRow, other: KeyRow) -> bool:
        """Replace ``row`` with ``other``. Return False if ``row`` has another secret by now, or
        is deleted.
        """

    async def delete(self, prefix: str) -> bool:
        """Remove a key. Return False if there is none."""


class KeyCache:
    """Recognises callers by the keys in memory.

    Args:
        store: where the keys are.
        required: whether a request needs a key; if not, everyone may do everything.
    """

    def __init__(self, store: KeyStore, *, required: bool) -> None:
        self.store = store
        self.required = required
        self._rows: dict[str, KeyRow] = {}
        self._read_at = self._tried_at = float("-inf")
        self._reading = asyncio.Lock()
        self._last_used_us: dict[str, int] = {}
        self._failing = Seldom(_log)

    async def recognise(self, token: str | None) -> Caller | None:
        """Return the caller that this key proves, or None if it proves none or there is no key.

        An unknown prefix takes as long as a known one with the wrong secret.

        Raises:
            StorageError: the keys could not be read for longer than ``OUTAGE_S``.
        """
        if not self.required:
            return ANYONE
        prefix = None if token is None else prefix_of(token)
        if token is None or prefix is None:
            return None
        await self._refresh()
        now = now_us()
        row = self._rows.get(prefix, _NO_KEY)
        if not row.proves(token, now):
            return None
        self._last_used_us[prefix] = now
        return row.caller(token)

    async def still(self, caller: Caller, stream: str) -> bool:
        """Return whether the recognised key is still valid and permits the stream. It is not where
        the keys could not be read for longer than ``OUTAGE_S``.
        """
        if caller.prefix is None or caller.digest is None:
            return not self.required
        try:
            await self._refresh()
        except StorageError:
            return False
        row = self._rows.get(caller.prefix, _NO_KEY)
        return row.accepts(caller.digest, now_us()) and row.sees(stream)

    async def rows(self) -> list[KeyRow]:
        """Return every key, as the store has them now."""
        await self.reload()
        return list(self._rows.values())

    def last_used_us(self, prefix: str) -> int | None:
        """Return when this process last recognised the key. It is not written to disk."""
        return self._last_used_us.get(prefix)

    async def reload(self) -> None:
        """Read the keys again, now. The result includes all that the store had before this call."""
        async with self._reading:
            await self._read()

    async def _refresh(self) -> None:
        if self._is_fresh_enough() and (self._was_just_tried() or self._reading.locked()):
            return
        async with self._reading:
            if self._was_just_tried():
                if self._is_fresh_enough():
                    return
                raise StorageError("reading the keys has just failed")
            try:
                await self._read()
            except StorageError as error:
                self._failing.say(logging.ERROR, "the keys could not be read again: %s", error)
                if not self._is_fresh_enough():
                    raise
            else:
                self._failing.over()

    async def _read(self) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(READ_S):
                rows = await self.store.all()
        except (TimeoutError, StorageError) as error:
            self._tried_at = time.monotonic()
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"the keys were not read within {READ_S:g} s") from None
        self._tried_at = time.monotonic()
        self._rows = {row.prefix: row for row in rows}
        self._read_at = began
        self._last_used_us = {
            prefix: used for prefix, used in self._last_used_us.items() if prefix in self._rows
        }

    def _was_just_tried(self) -> bool:
        return time.monotonic() - self._tried_at < STALE_S

    def _is_fresh_enough(self) -> bool:
        return time.monotonic() - self._read_at < OUTAGE_S
