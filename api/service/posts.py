"""A request's posts, from the queue to the receipt.

Every hand-over to a thread and back waits for the interpreter's lock, for longer than it takes to
decode most bodies. So the thread that commits a body also decodes it. It decodes, checks and
digests everything that it commits together. Only a large body is decoded by another thread before.
The server needs to know the number of rows at once, and the header contains it.

A request may post to several streams: all streams in a bucket, and the derived streams of each. One
transaction contains them all, so after a crash a stream and its derived streams have the same rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api.errors import IntervalConflictError
from api.journal.log import Outcome
from api.journal.model import Post, Row
from api.journal.storage import Writer
from api.service.budget import Hold
from api.service.join_check import Trial
from api.service.streams import Stream

__all__ = ["Receipt", "rows_of", "size_of"]

_BULK_POSTS, _BULK_BYTES = 16, 1 << 20  # of a request that waits next to the others


@dataclass(eq=False, slots=True)
class Receipt:
    """The posts from one request: in one transaction, all or none.

    One thread at a time decodes them.

    Attributes:
        parts: the posts by stream, each at least one.
        hold: covers their rows until the transaction has ended.
        caller: the key's owner, if there is one.
        check: raises ServiceError if the posts may no longer be journaled, under the catalog that
            was read last.
        beside: further writes in the same transaction, once it contains all posts and rejected
            none. It may run again if that transaction fails.
        catalog: the catalog number that the posts were checked against.
        outcomes: one for each post, once the transaction has ended.
        fault: the reason why the posts could not be decoded or joined.
    """

    parts: Mapping[Stream, Sequence[Post]]
    hold: Hold | None = None
    caller: str | None = None
    check: Callable[[], None] = lambda: None
    beside: Callable[[Writer], Coroutine[Any, Any, None]] | None = None
    catalog: int = 0
    outcomes: Sequence[Outcome] = ()
    fault: Exception | None = None
    done: asyncio.Future[None] | None = field(default=None, repr=False)

    @property
    def posts(self) -> list[Post]:
        """Return all posts, in the transaction's order."""
        return [post for posts in self.parts.values() for post in posts]

    @property
    def size(self) -> int:
        """Return the total size in bytes."""
        return sum(map(size_of, self.parts.values()))

    @property
    def rows(self) -> int:
        """Return the total number of rows."""
        return sum(map(rows_of, self.parts.values()))

    @property
    def unread_rows(self) -> int:
        """Return how many rows are still to be decoded."""
        return sum(post.rows for post in self.posts if post.snapshot is None)

    @property
    def bulk(self) -> bool:
        """Return whether the request has many posts, or many bytes."""
        return len(self.posts) >= _BULK_POSTS or self.size >= _BULK_BYTES

    def prepare(self, trial: Trial | None) -> None:
        """Decode all posts, if not done before, and try whether they can be joined with the present
        content. Otherwise set ``fault``. Runs on a thread.
        """
        if self.fault is not None:
            return
        try:
            for post in self.posts:
                post.decode()
            if trial is not None:
                trial.take(self.posts)
        except Exception as fault:
            self.fault = fault

    @property
    def waits(self) -> bool:
        """Return whether the request still waits for its result."""
        return self.done is not None and not self.done.done()

    def fail(self, error: Exception) -> None:
        """Raise an error to the request, if it still waits."""
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)

    def succeed(self) -> None:
        """Return to the request, if it still waits."""
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def journaled(self) -> Iterator[tuple[Stream, list[tuple[Post, Row]]]]:
        """Yield each stream with its posts that the journal did not contain."""
        outcomes = iter(self.outcomes)
        for stream, posts in self.parts.items():
            pairs = zip(posts, outcomes, strict=False)
            yield stream, [(post, row) for post, row in pairs if isinstance(row, Row)]

    def last_row(self) -> int:
        """Return the number of the last new journal row, or 0 if there is none."""
        return max((each.seq for each in self.outcomes if isinstance(each, Row)), default=0)

    @property
    def token(self) -> str:
        """Return the first stream's token. A process that has read up to it has all posts."""
        stream = next(iter(self.parts))
        last = max(_number(each) for each in self.outcomes)
        return f"{stream.name}:{stream.row.incarnation}:{last}"

    @property
    def duplicates(self) -> list[bool]:
        """Return for each post to the first stream whether the journal contained it before."""
        posts = next(iter(self.parts.values()))
        return [not isinstance(each, Row) for each in self.outcomes[: len(posts)]]


def _number(outcome: Outcome) -> int:
    assert not isinstance(outcome, IntervalConflictError)
    return outcome.seq if isinstance(outcome, Row) else outcome


def rows_of(posts: Sequence[Post]) -> int:
    """Return the total number of rows."""
    return sum(post.rows for post in posts)


def size_of(posts: Sequence[Post]) -> int:
    """Return the total size in bytes."""
    return sum(len(post.body) for post in posts)
