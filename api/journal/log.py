"""The journal: its rows as values, and the transactions that change it.

Times are microseconds since 1970 UTC. A transaction holds the head from its first statement on, and
is the same over every database (:mod:`api.journal.storage`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from api.errors import IntervalConflictError
from api.journal import changes
from decaysketch import Snapshot

if TYPE_CHECKING:
    from api.journal.storage import Writer

__all__ = [
    "AnotherDatabaseError",
    "CatalogChangedError",
    "Head",
    "Interval",
    "Outcome",
    "OvertakenError",
    "Post",
    "PostKey",
    "ReplayError",
    "Revocation",
    "SnapshotRow",
    "SourceKey",
    "StorageError",
    "StreamRow",
    "SupersededError",
    "Totals",
    "append",
    "change",
    "compact",
    "create",
    "delete",
    "reinstate",
    "release",
    "revoke",
]

SourceKey = tuple[int, str]  # id of a stream, name of a source
PostKey = tuple[int, str, bytes]  # and SHA-256 of a body

_SHORT_BYTES = 32 * 1024
_PIECE_BYTES = 2000  # up to 2,047 hashlib keeps the interpreter's lock
_OVERLAPS_NAMED = 10  # intervals that came before, in one refusal


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


@dataclass(slots=True)
class Post:
    """A sketch that a source sends to a stream, from the request to the journal and to memory.

    One thread at a time decodes it and computes its digest. Equal posts are equal in the journal.

    Attributes:
        seq: its number in the journal, once :func:`append` has appended it. 0: not yet. It is valid
            once the transaction has ended, since a failed transaction gives its numbers back.
        received_us: likewise, when it was received.
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
    interval: Interval | None = field(default=None, compare=False)
    request: bytes | None = field(default=None, compare=False)
    read: Callable[[bytes], Snapshot] | None = field(default=None, repr=False, compare=False)
    snapshot: Snapshot | None = field(default=None, repr=False, compare=False)
    seq: int = 0
    received_us: int = 0
    _digest: bytes = field(default=b"", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.snapshot is not None:
            self.rows = len(self.snapshot)

    def decode(self) -> Snapshot:
        """Return the decoded sketch, at once from the second call on. Computes the digest, too."""
        if not self._digest:
            self._digest = _sha256(self.body)
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
class Totals:
    """Totals of a source's journaled posts."""

    posts: int = 0
    posted_bytes: int = 0
    rows: int = 0
    last_received_us: int = 0

    def plus(self, post: Post) -> Totals:
        """Return the totals with one more post."""
        return Totals(
            self.posts + 1,
            self.posted_bytes + len(post.body),
            self.rows + post.rows,
            max(self.last_received_us, post.received_us),
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


# ------------------------------------------------------------------------------------ transactions


Outcome = Post | int | IntervalConflictError
"""The result for a post: the post itself, as a new row. Or, if the journal contained it already,
the number of a row at or after it. Or the reason why its numbers are rejected."""


def append(
    tx: Writer,
    posts: Sequence[Post],
    catalog: int,
    now_us: int,
    upto: int | None = None,
) -> list[Outcome]:
    """Append posts in order, each at most once.

    A post may declare the numbers that it contains from its source. The ledger keeps them until an
    operator releases them, and a source's intervals never overlap.

    Args:
        tx: a fresh transaction.
        posts: the posts, which were checked against a catalog.
        catalog: number of that catalog.
        now_us: time of receipt.
        upto: number of the last journal row when the service checked that the posts contradict no
            earlier row. None if these posts cannot contradict one.

    Returns:
        One outcome per post, also for a post whose interval is rejected.

    Raises:
        CatalogChangedError: the catalog has changed. The posts must be checked again.
        OvertakenError: the journal has a later row than ``upto``.
    """
    head = tx.lock_head()
    if head.catalog != catalog:
        raise CatalogChangedError
    if upto not in (None, head.last):
        raise OvertakenError
    known = tx.known({post.key for post in posts})
    results: list[Outcome] = []
    new: list[Post] = []
    last = head.last
    for post in posts:
        try:
            is_new = post.interval is None or _enter(tx, post)
        except IntervalConflictError as conflict:
            results.append(conflict)
            continue
        if post.key in known or (post.request is not None and not is_new):
            results.append(last)
            continue
        known.add(post.key)
        last += 1
        post.seq, post.received_us = last, now_us
        new.append(post)
        results.append(post)
    if new:
        tx.insert_rows(new)
        tx.set_head(replace(head, last=last))
    return results


def _enter(tx: Writer, post: Post) -> bool:
    """Enter a post's interval into the ledger, unless it is there with the same body. Return
    whether it is new.
    """
    assert post.interval is not None
    overlapping = tx.overlapping((post.stream_id, post.source), post.interval, _OVERLAPS_NAMED)
    if not overlapping:
        tx.insert_interval(post)
    elif overlapping != [(post.interval, post.sent)]:
        given = (post.interval.first, post.interval.next)
        found = [(interval.first, interval.next) for interval, _digest in overlapping]
        raise IntervalConflictError(post.source, given, found)
    return not overlapping


def compact(tx: Writer, known: Head, snapshots: Sequence[SnapshotRow]) -> int:
    """Write snapshots of some sources, and delete the rows that an older, intact snapshot contains.

    A snapshot is written next to the previous one. Only the rows that the *previous* one contains
    are deleted, once it was read back. So one torn source snapshot loses nothing, since the
    previous one and the later rows are there. A torn one is deleted itself.

    Args:
        tx: a fresh transaction.
        known: head at which the snapshots were made: each contains all rows of its source up to its
            ``upto``.
        snapshots: at most one per source. ``generation`` follows ``known``'s.

    Returns:
        The number of deleted rows.

    Raises:
        SupersededError: another compaction, or a catalog change, came in between.
    """
    head = tx.lock_head()
    if (head.generation, head.catalog) != (known.generation, known.catalog):
        raise SupersededError
    deleted, count = head.deleted, 0
    for snapshot in snapshots:
        source = snapshot.stream_id, snapshot.source
        previous = tx.newest_snapshot(source)
        if previous is not None and previous.intact:
            count += tx.delete_rows(source, previous.upto)
            tx.delete_snapshots(source, (0, previous.generation))
            deleted = max(deleted, previous.upto)
        elif previous is not None:
            tx.delete_snapshots(source, (previous.generation, previous.generation + 1))
        tx.insert_snapshot(snapshot)
    tx.set_head(replace(head, deleted=deleted, generation=head.generation + 1))
    return count


def create(tx: Writer, stream: StreamRow) -> StreamRow | None:
    """Add a stream. Return its row, or None if the name exists."""
    head = tx.lock_head()
    if tx.stream_named(stream.name) is not None:
        return None
    created = tx.insert_stream(stream)
    _count_change(tx, head, created.id)
    return created


def change(
    tx: Writer, stream_id: int, changed: Callable[[StreamRow], StreamRow]
) -> StreamRow | None:
    """Change the variable attributes of a stream, such as its mappings. Return its row, or None if
    there is no such stream.
    """
    head = tx.lock_head()
    for row in tx.streams([stream_id]):
        found = changed(row)
        tx.replace_stream(found)
        _count_change(tx, head, stream_id)
        return found
    return None


def delete(tx: Writer, stream_id: int) -> bool:
    """Delete a stream and all its content. Return False if there is none."""
    head = tx.lock_head()
    if not tx.streams([stream_id]):
        return False
    tx.delete_stream(stream_id)
    _count_change(tx, head, stream_id)
    return True


def revoke(tx: Writer, source: SourceKey) -> bool:
    """Delete all posts from a source, and reject it from now on. Return False if its stream is not
    there.
    """
    head = tx.lock_head()
    if not tx.streams([source[0]]):
        return False
    tx.delete_source(source)
    tx.put_revocation(Revocation(*source, number=head.catalog + 1, active=True))
    _count_change(tx, head, source[0])
    return True


def reinstate(tx: Writer, source: SourceKey) -> bool:
    """Admit a source again, empty. Return False if it was not revoked."""
    head = tx.lock_head()
    for each in tx.revocations([source[0]]):
        if each.source == source[1] and each.active:
            tx.put_revocation(replace(each, active=False))
            _count_change(tx, head, source[0])
            return True
    return False


def release(tx: Writer, source: SourceKey, interval: Interval) -> list[Interval] | None:
    """Remove a source's interval from the ledger, so that its numbers may be posted again. Its
    posts stay. Return None if it was there, else the intervals that share numbers with it.
    """
    tx.lock_head()
    found = [each for each, _digest in tx.overlapping(source, interval, _OVERLAPS_NAMED)]
    if found != [interval]:
        return found
    tx.delete_interval(source, interval)
    return None


def _count_change(tx: Writer, head: Head, stream_id: int) -> None:
    number = head.catalog + 1
    changes.record(tx, number, stream_id)
    tx.set_head(replace(head, catalog=number))
