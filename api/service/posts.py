"""The content of a request: sketches that may not be decoded yet.

Every hand-over to a thread and back waits for the interpreter's lock, for longer than it takes to
decode most bodies. So the thread that commits a body also decodes it. It decodes, checks and
digests everything that it commits together. Only a large body is decoded by another thread before.
The server needs to know the number of rows at once, and the header contains it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from api.journal.model import Interval
from api.journal.storage import Writer
from decaysketch import Snapshot

__all__ = ["Draft", "Incoming"]

_SHORT_BYTES = 32 * 1024
_PIECE_BYTES = 2000  # up to 2,047 it keeps the lock


@dataclass(frozen=True, slots=True)
class Incoming:
    """A sketch that was decoded and checked, with its encoded bytes.

    Attributes:
        request: SHA-256 of the request, where this process built the sketch from it.
    """

    body: bytes
    sketch: Snapshot
    interval: Interval | None = None
    request: bytes | None = None
    digest: bytes = field(init=False)  # SHA-256 of the body

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", _digest(self.body))


class Draft:
    """The posts of one request, decoded on demand. Used by one thread at a time.

    Args:
        read: decodes and checks them; raises the fault of the request.
        posts: number of posts.
        rows: of all posts.
        size: bytes of all posts.
        check: raises ServiceError if they may no longer be journaled, under the catalog that was
            read last.
        beside: further writes in the same transaction, once it contains all posts and rejected
            none. It may run again if that transaction fails.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[Incoming]],
        *,
        posts: int,
        rows: int,
        size: int,
        check: Callable[[], None] = lambda: None,
        beside: Callable[[Writer], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._read = read
        self._sketches: Sequence[Incoming] | None = None
        self.posts = posts
        self.rows = rows
        self.size = size
        self.check = check
        self.beside = beside

    @classmethod
    def of(cls, *sketches: Incoming, check: Callable[[], None] = lambda: None) -> Self:
        """Return a draft of decoded sketches."""
        rows = sum(len(each.sketch) for each in sketches)
        size = sum(len(each.body) for each in sketches)
        draft = cls(lambda: sketches, posts=len(sketches), rows=rows, size=size, check=check)
        draft.sketches()
        return draft

    @property
    def unread_rows(self) -> int:
        """Return the number of rows still to be decoded."""
        return self.rows if self._sketches is None else 0

    def sketches(self) -> Sequence[Incoming]:
        """Return the decoded sketches, at once from the second call on."""
        if self._sketches is None:
            self._sketches = self._read()
        return self._sketches


def _digest(body: bytes) -> bytes:
    """Return the SHA-256. For a long text ``hashlib`` releases the interpreter's lock. For a body
    of a few KB, waiting for the lock afterwards takes longer than the sum.
    """
    if len(body) > _SHORT_BYTES:
        return hashlib.sha256(body).digest()
    view, name = memoryview(body), hashlib.sha256()
    for begin in range(0, len(body), _PIECE_BYTES):
        name.update(view[begin : begin + _PIECE_BYTES])
    return name.digest()
