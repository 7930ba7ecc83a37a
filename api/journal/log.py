"""The transactions that change the database. Each holds the head from its first statement on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from api.errors import IntervalConflictError
from api.journal import changes
from api.journal.model import (
    CatalogChangedError,
    Head,
    Interval,
    OvertakenError,
    Post,
    Revocation,
    Row,
    SnapshotRow,
    SourceKey,
    StreamRow,
    SupersededError,
)
from api.journal.storage import Writer

__all__ = [
    "Outcome",
    "append",
    "change",
    "compact",
    "create",
    "delete",
    "reinstate",
    "release",
    "revoke",
]

_OVERLAPS_NAMED = 10  # intervals that came before, in one refusal


Outcome = Row | int | IntervalConflictError
"""The result for a post: its new row. Or, if the journal contained the post already, the number of
a row at or after it. Or the reason why its numbers are rejected."""


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
    rows: list[Row] = []
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
        row = Row(last, post.stream_id, post.source, post.digest, post.body, post.rows, now_us)
        rows.append(row)
        results.append(row)
    if rows:
        tx.insert_rows(rows)
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
