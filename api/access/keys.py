"""What a key is: ``ds_<prefix>_<secret>``, and a role within a scope.

The prefix names the key, the secret of 256 random bits proves it. Only SHA-256 of the whole text is
kept. A slow hash is for what people choose: against 256 uniform bits no search gains from a fast
one, and a request costs microseconds.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

__all__ = [
    "ANYONE",
    "EVERY_STREAM",
    "SCOPE_ENTRY",
    "Caller",
    "KeyRow",
    "Role",
    "covers",
    "mint",
    "prefix_of",
    "rotate",
]

EVERY_STREAM = "*"
SCOPE_ENTRY = r"^[A-Za-z0-9._*?!\[\]-]{1,100}$"

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_FORM = re.compile(r"ds_([a-z2-7]{8})_[A-Za-z0-9_-]{43}", re.ASCII)
_WILD = re.compile(r"[*?\[]")


class Role(StrEnum):
    """What a key is for; each includes those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Whether this role may do what ``other`` may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, kw_only=True)
class KeyRow:
    """A key as it is kept. Times are microseconds since 1970.

    Args:
        prefix: names the key; not secret.
        digest: SHA-256 of the key.
        label: for people.
        role, scope: what it may do, and on which streams: names or globs, case matters.
        max_streams: it creates no stream while so many exist in its scope; None: any number.
        created_us, expires_us: valid from and until; None: for ever.
        previous_digest, previous_until_us: the secret before the last rotation, and how long it is
            still taken.
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
        """Whether ``token`` is this key, and valid at that time. In constant time of its secret."""
        digest = _digest(token)
        current = hmac.compare_digest(digest, self.digest)
        previous = hmac.compare_digest(digest, self.previous_digest or _NOTHING)
        if self.expires_us is not None and now_us >= self.expires_us:
            return False
        return current or (previous and now_us < (self.previous_until_us or 0))


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Whoever makes a request, once the key is recognised."""

    role: Role
    scope: tuple[str, ...]
    prefix: str | None = None
    max_streams: int | None = None

    def sees(self, stream: str) -> bool:
        """Whether a stream of this name is in scope."""
        return any(fnmatchcase(stream, entry) for entry in self.scope)

    @property
    def sees_all(self) -> bool:
        """Whether every stream there can be is in scope."""
        return EVERY_STREAM in self.scope


ANYONE = Caller(role=Role.ADMIN, scope=(EVERY_STREAM,))
"""Who asks where no key is needed."""


def mint(
    *,
    role: Role,
    scope: Iterable[str],
    now_us: int,
    label: str = "",
    expires_us: int | None = None,
    max_streams: int | None = None,
) -> tuple[KeyRow, str]:
    """A new key: what is kept of it, and the text, which is shown once and never again."""
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    token = _token(prefix)
    row = KeyRow(
        prefix=prefix,
        digest=_digest(token),
        label=label,
        role=role,
        scope=tuple(scope),
        created_us=now_us,
        expires_us=expires_us,
        max_streams=max_streams,
    )
    return row, token


def rotate(row: KeyRow, now_us: int, grace_us: int) -> tuple[KeyRow, str]:
    """The key with a new secret; the one it had is taken for ``grace_us`` more."""
    token = _token(row.prefix)
    changed = replace(
        row,
        digest=_digest(token),
        previous_digest=row.digest if grace_us else None,
        previous_until_us=now_us + grace_us if grace_us else None,
    )
    return changed, token


def prefix_of(token: str) -> str | None:
    """The prefix of a text that has the form of a key."""
    match = _FORM.fullmatch(token)
    return match[1] if match else None


def covers(scope: Iterable[str], entry: str) -> bool:
    """Whether every stream that ``entry`` matches is in ``scope``. May say no where it is so.

    A plain name is matched. Of two globs only those are compared where the outer one is a text
    followed by ``*``.
    """
    if not _WILD.search(entry):
        return any(fnmatchcase(entry, outer) for outer in scope)
    literal = _WILD.split(entry, maxsplit=1)[0]
    return any(
        entry == outer
        or (outer.endswith("*") and not _WILD.search(outer[:-1]) and literal.startswith(outer[:-1]))
        for outer in scope
    )


def _token(prefix: str) -> str:
    return f"ds_{prefix}_{secrets.token_urlsafe(32)}"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


_NOTHING = bytes(32)  # the digest of no text that anybody will find
