"""The rows of the database, as values. Times are microseconds since 1970 UTC."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from decaysketch import Snapshot

__all__ = [
    "AnotherDatabaseError",
    "CatalogChangedError",
    "Head",
    "Interval",
    "OvertakenError",
    "Post",
    "PostKey",
    "ReplayError",
    "Revocation",
    "Row",
    "SnapshotRow",
    "SourceKey",
    "StorageError",
    "StreamRow",
    "SupersededError",
    "Totals",
]

SourceKey = tuple[int, str]  # id of a stream, name of a source
PostKey = tuple[int, str, bytes]  # and SHA-256 of a body

_SHORT_BYTES = 32 * 1024
_PIECE_BYTES = 2000  # up to 2,047 hashlib keeps the interpreter's lock


class StorageError(RuntimeError):
    """The database could not be read or written. The operation may or may not have happened.
    Repeating it is always right.
    """


class CatalogChangedError(Exception):
    """Streams or revocations have changed, and the writer does not know them. Nothing was
    written.
    """


class OvertakenError(Exception):
    """Other processes have written rows that must be checked first. Nothing was written."""


class ReplayError(RuntimeError):
    """The database has unreadable content, or is not the one that was read before. Continuing
    would lose data silently.
    """


class AnotherDatabaseError(ReplayError):
    """The same address leads to another database than the opened one, or to its earlier state: it
    was restored, or failed over to a lagging replica. A process with the first database's content
    may not read from it or write to it any more.
    """


class SupersededError(Exception):
    """Another process compacted, or changed the catalog, in between. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Head:
    """The one row that every writer locks while it writes.

    Attributes:
        last: number of the newest row of the journal ever committed.
        deleted: no row above this number was ever deleted by a compaction.
        generation: number of compactions.
        catalog: number of changes to streams and revocations.
    """

    last: int = 0
    deleted: int = 0
    generation: int = 0
    catalog: int = 0


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream as it was created.

    Attributes:
        id: never used twice, even if the stream is deleted and re-created.
        incarnation: a random word, another one when it is re-created.
        recipe: ``Recipe.to_dict()``.
        max_clock_skew_s: seconds that a time may lie ahead of this service's clock. None: any.
        id_key: secret key of the ids, where the stream holds one.
        bind_keys: whether the source is part of the keys of raw observations.
        ingest: the mappings of other formats to readings, as JSON. None: none. They may change
            while the stream exists.
        view: for a derived stream, its origin and derivation, as JSON.
        about: the texts ``unit`` and ``description`` that exist. They may change like mappings.
        from_level: the level from which on the stream has all observations of its sources. Lower
            ones are not read. 0: every observation.
        standing: conditions that withdraw the rows yet to come, each with the time until which it
            stands.
    """

    id: int
    name: str
    incarnation: str
    recipe: Mapping[str, Any]
    created_us: int
    max_clock_skew_s: float | None = None
    id_key: bytes | None = field(default=None, repr=False)
    bind_keys: bool = False
    ingest: Mapping[str, Any] | None = None
    view: Mapping[str, Any] | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    from_level: int = 0
    standing: Mapping[str, int] = field(default_factory=dict)

    def standing_at(self, now_us: int) -> dict[str, int]:
        """Return the standing conditions for withdrawals at a time.

        No matching row escapes. A condition changes the catalog, and the journal accepts a post
        only from a process that knows the latest catalog. The request that sets the condition
        withdraws the rows that the journal has by then. Each later row becomes a tombstone in the
        process that receives it, so the journal never contains its columns.
        """
        return {where: until for where, until in self.standing.items() if until > now_us}


@dataclass(frozen=True, slots=True)
class Revocation:
    """A source whose posts were dropped. While ``active`` it is rejected."""

    stream_id: int
    source: str
    number: int  # of the catalog, when it was revoked: tells one revocation from the next
    active: bool


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers ``first <= n < next`` of a source."""

    first: int
    next: int


@dataclass(eq=False, slots=True)
class Post:
    """A sketch that a source sends to a stream, from the request to the journal.

    One thread at a time decodes it and computes its digest.

    Attributes:
        rows: of the sketch. Before it is decoded, the size that its header declares, as rows.
        interval: the numbers of its source that it contains.
        request: SHA-256 of the request, where this process built the body from the request and from
            earlier content. Then the interval, which is required, shows whether it came before.
        read: decodes and checks the body. Raises the fault of the request.
        snapshot: the decoded sketch. None: not decoded yet.
    """

    stream_id: int
    source: str
    body: bytes = field(repr=False)
    rows: int = 0
    interval: Interval | None = None
    request: bytes | None = None
    read: Callable[[bytes], Snapshot] | None = field(default=None, repr=False)
    snapshot: Snapshot | None = field(default=None, repr=False)
    _digest: bytes = field(default=b"", init=False, repr=False)

    def __post_init__(self) -> None:
        if self.snapshot is not None:
            self.rows = len(self.snapshot)

    def decode(self) -> Snapshot:
        """Return the decoded sketch, at once from the second call on. Computes the digest, too."""
        self._digest = self.digest
        if self.snapshot is None:
            assert self.read is not None
            self.snapshot = self.read(self.body)
            self.rows = len(self.snapshot)
        return self.snapshot

    def withdraw(self, where: Sequence[str]) -> None:
        """Replace the rows that satisfy a condition by tombstones. The ledger keeps the sent body's
        digest.
        """
        before: Any = self.decode()
        found = before.without(where)
        if found is not before:
            self.request = self.sent
            self.snapshot, self.body, self.rows = found, found.to_bytes(), len(found)
            self._digest = _sha256(self.body)

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 of the body."""
        return self._digest or _sha256(self.body)

    @property
    def key(self) -> PostKey:
        """Return a key that identifies a repeated post."""
        return self.stream_id, self.source, self.digest

    @property
    def sent(self) -> bytes:
        """Return the SHA-256 of the sent bytes, for the ledger."""
        return self.request or self.digest


def _sha256(body: bytes) -> bytes:
    """Return the SHA-256. For a long text ``hashlib`` releases the interpreter's lock. For a body
    of a few KB, waiting for the lock afterwards takes longer than the sum.
    """
    if len(body) > _SHORT_BYTES:
        return hashlib.sha256(body).digest()
    view, name = memoryview(body), hashlib.sha256()
    for begin in range(0, len(body), _PIECE_BYTES):
        name.update(view[begin : begin + _PIECE_BYTES])
    return name.digest()


@dataclass(frozen=True, slots=True)
class Row:
    """One acknowledged post."""

    seq: int
    stream_id: int
    source: str
    digest: bytes
    body: bytes = field(repr=False)
    rows: int
    received_us: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a source's journaled posts."""

    posts: int = 0
    posted_bytes: int = 0
    rows: int = 0
    last_received_us: int = 0

    def plus(self, row: Row) -> Totals:
        """Return the totals with one more post."""
        return Totals(
            self.posts + 1,
            self.posted_bytes + len(row.body),
            self.rows + row.rows,
            max(self.last_received_us, row.received_us),
        )

    def replaced(self, before: Totals, after: Totals) -> Totals:
        """Return the totals after a later post of a source has replaced its content."""
        return Totals(
            self.posts + after.posts - before.posts,
            self.posted_bytes + after.posted_bytes - before.posted_bytes,
            self.rows + after.rows - before.rows,
            max(self.last_received_us, after.last_received_us),
        )


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """The merged sketch of all rows of a source with a number up to ``upto``."""

    stream_id: int
    source: str
    generation: int
    upto: int
    digest: bytes  # SHA-256 of the body
    body: bytes = field(repr=False)
    totals: Totals

    @property
    def intact(self) -> bool:
        """Return whether the body is unchanged since it was written."""
        return hashlib.sha256(self.body).digest() == self.digest
