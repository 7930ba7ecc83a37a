"""What a request brings: sketches that may not be decoded yet.

Every hand-over to a thread and back waits for the interpreter's lock, for longer than most bodies
take to be decoded. So a body is left to the thread that commits it, which decodes, checks and
digests all that it commits together; only a large one is decoded by another thread before. What
must be known at once is how many rows there are, which the header tells.
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
    """A sketch that was decoded and checked, with the bytes it came as.

    Attributes:
        request: SHA-256 of what was sent, where the sketch was made of that here.
    """

    body: bytes
    sketch: Snapshot
    interval: Interval | None = None
    request: bytes | None = None
    digest: bytes = field(init=False)  # SHA-256 of the body

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", _digest(self.body))


class Draft:
    """The posts of one request, decoded when somebody asks for them. Used by one thread at a time.

    Args:
        read: decodes and checks them; raises what refuses the request.
        posts: how many they are.
        rows: of all of them.
        size: bytes of all of them.
        check: raises ServiceError if they may be journaled no more, under the catalog that was read
            last.
        beside: what else the transaction of the posts writes, once they are in it, none of them
            refused. It may be done again, should that transaction not end well.
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
        """Of sketches that are decoded."""
        rows = sum(len(each.sketch) for each in sketches)
        size = sum(len(each.body) for each in sketches)
        draft = cls(lambda: sketches, posts=len(sketches), rows=rows, size=size, check=check)
        draft.sketches()
        return draft

    @property
    def unread_rows(self) -> int:
        """Rows that are still to be decoded."""
        return self.rows if self._sketches is None else 0

    def sketches(self) -> Sequence[Incoming]:
        """They, decoded; at once from the second time on."""
        if self._sketches is None:
            self._sketches = self._read()
        return self._sketches


def _digest(body: bytes) -> bytes:
    """SHA-256. Of a long text ``hashlib`` lets go of the interpreter's lock; of a body of a few KB,
    to wait for it afterwards takes longer than the sum."""
    if len(body) > _SHORT_BYTES:
        return hashlib.sha256(body).digest()
    view, name = memoryview(body), hashlib.sha256()
    for begin in range(0, len(body), _PIECE_BYTES):
        name.update(view[begin : begin + _PIECE_BYTES])
    return name.digest()
