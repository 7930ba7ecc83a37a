"""A database in memory that fails as databases do, over virtual time.

What it promises is what ``api.journal.storage`` asks for. Committed states are immutable: a reading
transaction keeps the one it began with, a writing one works on its own and holds the head, for
which others wait in line. A commit is first written, then synced, then visible, and each takes
time.

- *power loss*: transactions end with an error; what was not synced is lost, or not, by chance;
- *a commit whose outcome is unknown*: an error although it happened, or although it did not;
- *a full disk*, *a broken connection*, *a partition* of one client, *slowness*, a *lag* of what
  one client hears;
- *a torn snapshot*: the body of one is damaged, never of two of one source.

``history`` is what an omniscient observer saw: every durable row and deletion, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.util import await_only, greenlet_spawn

from api.journal import changes
from api.journal.log import (
    Head,
    Interval,
    Post,
    PostKey,
    Revocation,
    SnapshotRow,
    SourceKey,
    StorageError,
    StreamRow,
)

__all__ = ["Client", "Database", "Event", "Faults", "State"]


_CHANGES = changes.metadata.tables["catalog_changes"]
_LONGEST_S = 0.3  # that one statement takes


@dataclass
class Faults:
    """How likely things go wrong, each time that they can. Times are seconds."""

    statement: float = 0.0  # the connection breaks
    commit_before: float = 0.0  # ... at the commit, which does not happen
    commit_after: float = 0.0  # ... at the commit, which happens
    torn_write_survives: float = 0.5  # written, not synced, when the power failed
    latency_s: float = 0.002
    sync_s: float = 0.004
    awaited: float = 0.5  # of the statements; the others are answered at once


@dataclass(frozen=True)
class State:
    """All tables; never changed."""

    head: Head = field(default_factory=Head)
    streams: dict[int, StreamRow] = field(default_factory=dict)
    revocations: dict[SourceKey, Revocation] = field(default_factory=dict)
    rows: dict[int, Post] = field(default_factory=dict)
    keys: dict[PostKey, int] = field(default_factory=dict)
    ledger: dict[SourceKey, tuple[tuple[Interval, bytes], ...]] = field(default_factory=dict)
    snapshots: dict[tuple[int, str, int], SnapshotRow] = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)  # of ``api.journal.changes``
    last_stream: int = 0
    proof: bytes = b""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that became durable."""

    kind: str  # row, source deleted, revoked, reinstated, stream created, stream deleted
    stream_id: int
    source: str = ""  # of a stream created: its name
    digest: bytes = b""  # of a stream created: its incarnation
    seq: int = 0
    time_s: float = 0.0


class Database:
    """See the module.

    Args:
        draw: the only source of chance.
        faults: may be changed while the run goes on.
    """

    def __init__(self, draw: Random, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.state = State()
        self.history: list[Event] = []
        self.commits = 0
        self.full = False
        self.up = True
        self.slowness = 1.0
        self._draw = draw
        self._open: set[Transaction] = set()
        self._holder: Transaction | None = None
        self._line: deque[tuple[Transaction, asyncio.Future[None]]] = deque()

    def client(self) -> Client:
        """A handle for one process."""
        return Client(self)

    def lose_power(self) -> None:
        """Every connection breaks; what was not synced may be lost."""
        self.up = False
        for each in self._in_order():
            survives = self._draw.random() < self.faults.torn_write_survives
            each.break_off(survives and each.phase == "syncing")

    def restore(self) -> None:
        """Power is back."""
        self.up = True

    def disconnect(self, client: Client) -> None:
        """A client's machine is gone. What it had asked to be committed may yet be."""
        for each in self._in_order():
            if each.client is client:
                asked = each.phase in ("writing", "syncing")
                each.break_off(asked and self._draw.random() < 0.5)

    def tear(self, source: SourceKey, newest: bool = True) -> bool:
        """Damage the newest snapshot of a source (or its oldest); False if one is damaged, there is
        none, or somebody writes."""
        copies = sorted(
            (each for each in self.state.snapshots.values() if _source_of(each) == source),
            key=lambda each: each.generation,
        )
        if self._holder is not None or not copies or not all(each.intact for each in copies):
            return False
        victim = copies[-1 if newest else 0]
        body = bytearray(victim.body)
        body[self._draw.randrange(len(body))] ^= 1 << self._draw.randrange(8)
        snapshots = dict(self.state.snapshots)
        snapshots[(*source, victim.generation)] = replace(victim, body=bytes(body))
        self.state = replace(self.state, snapshots=snapshots)
        return True

    def snapshot_sources(self) -> list[SourceKey]:
        """Sources that have snapshots, in order."""
        return sorted({_source_of(each) for each in self.state.snapshots.values()})

    # What transactions ask for.

    def begin(self, transaction: Transaction) -> None:
        self._open.add(transaction)

    def end(self, transaction: Transaction) -> None:
        self._open.discard(transaction)
        for index, (waiting, _turn) in enumerate(self._line):
            if waiting is transaction:
                del self._line[index]
                break
        if self._holder is transaction:
            self._holder = None
            self._next_in_line()

    async def hold(self, transaction: Transaction) -> None:
        """Wait for the head."""
        if self._holder is transaction:
            return
        if self._holder is not None or self._line:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append((transaction, turn))
            transaction.waits_for = turn
            try:
                await turn
            finally:
                transaction.waits_for = None
        else:
            self._holder = transaction

    def make_durable(self, transaction: Transaction) -> None:
        """What a transaction did takes place now, for everybody."""
        if transaction.base is self.state:
            self.state = transaction.state
        else:  # somebody else wrote in between, which only those who do not hold the head allow
            state = self.state
            for change, arguments in transaction.changes:
                state = change(state, *arguments)
            self.state = state
        self.commits += 1
        now_s = asyncio.get_running_loop().time()
        self.history += [replace(event, time_s=now_s) for event in transaction.events]

    async def pause(self, mean_s: float) -> None:
        """Take time."""
        length_s = self._draw.expovariate(1.0) * mean_s * self.slowness
        await asyncio.sleep(min(length_s, _LONGEST_S))

    def chance(self, probability: float) -> bool:
        """Whether something happens."""
        return probability > 0 and self._draw.random() < probability

    def _next_in_line(self) -> None:
        while self._line:
            transaction, turn = self._line.popleft()
            if not turn.done():
                self._holder = transaction
                turn.set_result(None)
                return

    def _in_order(self) -> list[Transaction]:
        return sorted(self._open, key=lambda each: each.number)


class Client:
    """The handle of one process: a ``Storage``."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.cut = False  # for good: the process is dead
        self.partitioned = False
        self.closed = False
        self.lag = 1.0  # how much longer it takes to hear what was read or committed

    async def read(self, statements: Any) -> Any:
        """A ``Reader``'s transaction."""
        async with self.steps() as step:
            return await step(statements)

    async def write(self, statements: Any, before: Callable[[], None] | None = None) -> Any:
        """A ``Writer``'s transaction."""
        if before is not None:
            before()
        async with self.steps(1.0) as step:
            return await step(statements)

    async def close(self) -> None:
        self.closed = True

    @asynccontextmanager
    async def steps(self, lag: float | None = None) -> AsyncIterator[Any]:
        """A transaction in steps: a ``Reader``'s, or with a lag of 1 a ``Writer``'s. A step is a
        function that waits for its statements, in a greenlet: there are no threads."""
        if self.closed:
            raise RuntimeError("the storage is used after it was closed")
        transaction = Transaction(self, self.lag if lag is None else lag)

        async def step(statements: Any) -> Any:
            return await greenlet_spawn(statements, transaction)

        try:
            await transaction.travel()
            yield step
            await transaction.commit()
        except BaseException:
            # Who gives up waiting for a commit does not take it back.
            asked = transaction.phase in ("writing", "syncing")
            transaction.break_off(asked and self.database.chance(0.5))
            raise


_transactions = iter(range(1 << 62))


class Transaction:
    """One transaction of either kind: a ``Writer``."""

    def __init__(self, client: Client, lag: float) -> None:
        self.client = client
        self.lag = lag
        self.phase = "open"  # then "writing", "syncing", "done", or "broken"
        self.base = self.state = State()
        self.changes: list[tuple[Any, tuple[Any, ...]]] = []
        self.events: list[Event] = []
        self.waits_for: asyncio.Future[None] | None = None
        self.number = next(_transactions)
        self._began = False
        self._database = client.database
        self._database.begin(self)

    # The life of a transaction.

    def step(self) -> None:
        """Wait until one statement has travelled to the database."""
        await_only(self.travel())

    async def travel(self) -> None:
        """One statement travels to the database."""
        database = self._database
        self._check()
        slow = self.lag * database.slowness > 1.0
        if slow or database.chance(database.faults.awaited):
            await database.pause(database.faults.latency_s * (self.lag if self._began else 1.0))
            self._check()
        if database.chance(database.faults.statement):
            self.break_off(False)
            raise StorageError("the connection broke")
        if not self._began:
            self._began = True
            self.base = self.state = database.state

    async def commit(self) -> None:
        """Write, sync, show."""
        database, faults = self._database, self._database.faults
        if not self.changes:
            self._check()
            self._finish("done")
            return
        await self.travel()
        if database.full:
            self.break_off(False)
            raise StorageError("no space left on the device")
        if database.chance(faults.commit_before):
            self.break_off(False)
            raise StorageError("the connection broke at the commit")
        self.phase = "writing"
        await database.pause(faults.latency_s)
        self._check()
        self.phase = "syncing"
        await database.pause(faults.sync_s)
        self._check()
        database.make_durable(self)
        self._finish("done")
        if database.chance(faults.commit_after):
            raise StorageError("the connection broke at the commit")
        await database.pause(faults.latency_s * self.client.lag)
        if self.client.cut or self.client.partitioned or not database.up:
            raise StorageError("the connection broke at the commit")

    def break_off(self, durable: bool) -> None:
        """End here, with what was done or without."""
        if self.phase in ("done", "broken"):
            return
        if durable:
            self._database.make_durable(self)
        self._finish("broken")
        if self.waits_for is not None and not self.waits_for.done():
            self.waits_for.set_exception(StorageError("the connection broke"))

    def _finish(self, phase: str) -> None:
        self.phase = phase
        self._database.end(self)

    def _check(self) -> None:
        client = self.client
        if client.cut or client.partitioned or not self._database.up:
            self.break_off(False)
            raise StorageError("the database cannot be reached")
        if self.phase == "broken":
            raise StorageError("the connection broke")

    def _change(self, change: Any, *arguments: Any) -> None:
        self.changes.append((change, arguments))
        self.state = change(self.state, *arguments)

    def _note(self, kind: str, stream_id: int, source: str = "", **more: Any) -> None:
        self.events.append(Event(kind, stream_id, source, **more))

    # Reading.

    def head(self) -> Head:
        self.step()
        return self.state.head

    def streams(self, ids: Collection[int] | None = None) -> list[StreamRow]:
        self.step()
        found = sorted(self.state.streams.items())
        return [row for number, row in found if ids is None or number in ids]

    def stream_named(self, name: str) -> StreamRow | None:
        self.step()
        return next((row for row in self.state.streams.values() if row.name == name), None)

    def revocations(self, ids: Collection[int] | None = None) -> list[Revocation]:
        self.step()
        found = self.state.revocations.values()
        return [each for each in found if ids is None or each.stream_id in ids]

    def select(
        self, query: sa.Select[*tuple[Any, ...]], values: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        self.step()
        assert query.get_final_froms() == [_CHANGES], query
        assert values is not None
        found = sorted(self.state.changed.items())
        return [
            SimpleNamespace(stream_id=stream_id)
            for number, stream_id in found
            if values["after"] < number <= values["upto"]
        ]

    def rows(self, after: int, upto: int, limit_bytes: int) -> list[Post]:
        self.step()
        found: list[Post] = []
        size = 0
        for seq in sorted(seq for seq in self.state.rows if after < seq <= upto):
            found.append(self.state.rows[seq])
            size += len(found[-1].body)
            if size >= limit_bytes:
                break
        return found

    def journaled_sources(self, upto: int) -> list[SourceKey]:
        self.step()
        rows = self.state.rows.values()
        return sorted({_source_of(row) for row in rows if row.seq <= upto})

    def snapshots(self, after: int) -> Iterator[list[SnapshotRow]]:
        self.step()
        found = [each for each in self.state.snapshots.values() if each.upto > after]
        found.sort(key=lambda each: (_source_of(each), -each.generation))
        for each in found:
            self.step()
            yield [each]

    # Writing.

    def lock_head(self) -> Head:
        self.step()
        await_only(self._database.hold(self))
        self._check()
        if not self.changes:
            self.base = self.state = self._database.state
        return self.state.head

    def execute(self, statement: sa.UpdateBase) -> int:
        self.step()
        assert getattr(statement, "table", None) is _CHANGES, statement
        values = statement.compile().params
        if isinstance(statement, sa.Insert):
            self._change(_insert_change, values["number"], values["stream_id"])
            return 1
        assert isinstance(statement, sa.Delete), statement
        (upto,) = values.values()
        count = sum(number <= upto for number in self.state.changed)
        self._change(_delete_changes, upto)
        return count

    def set_head(self, head: Head) -> None:
        self.step()
        self._change(_set, "head", head)

    def prove(self, body: bytes) -> None:
        self.step()
        self._change(_set, "proof", body)

    def known(self, keys: Collection[PostKey]) -> set[PostKey]:
        self.step()
        return {key for key in keys if key in self.state.keys}

    def overlapping(
        self, source: SourceKey, interval: Interval, limit: int
    ) -> list[tuple[Interval, bytes]]:
        self.step()
        entries = self.state.ledger.get(source, ())
        found = [
            (held, digest)
            for held, digest in entries
            if held.first < interval.next and interval.first < held.next
        ]
        return sorted(found, key=lambda entry: entry[0].first)[:limit]

    def insert_interval(self, post: Post) -> None:
        self.step()
        assert post.interval is not None
        entry = (post.interval, post.sent)
        self._change(_enter, (post.stream_id, post.source), entry)

    def delete_interval(self, source: SourceKey, interval: Interval) -> None:
        self.step()
        self._change(_release, source, interval)

    def insert_rows(self, rows: Sequence[Post]) -> None:
        self.step()
        # A process may append the same post again later, under another number.
        kept = tuple(replace(row, read=None, snapshot=None) for row in rows)
        self._change(_insert_rows, kept)
        for row in rows:
            self._note("row", row.stream_id, row.source, digest=row.digest, seq=row.seq)

    def insert_stream(self, stream: StreamRow) -> StreamRow:
        self.step()
        created = replace(stream, id=self.state.last_stream + 1)
        self._change(_insert_stream, created)
        self._note("stream created", created.id, created.name, digest=created.incarnation.encode())
        return created

    def replace_stream(self, stream: StreamRow) -> None:
        self.step()
        self._change(_replace_stream, stream)

    def delete_stream(self, stream_id: int) -> None:
        self.step()
        self._change(_delete_stream, stream_id)
        self._note("stream deleted", stream_id)

    def delete_source(self, source: SourceKey) -> None:
        self.step()
        self._change(_delete_source, source)
        self._note("source deleted", *source)

    def put_revocation(self, revocation: Revocation) -> None:
        self.step()
        source = revocation.stream_id, revocation.source
        self._change(_put_revocation, source, revocation)
        self._note("revoked" if revocation.active else "reinstated", *source)

    def newest_snapshot(self, source: SourceKey) -> SnapshotRow | None:
        self.step()
        copies = [each for each in self.state.snapshots.values() if _source_of(each) == source]
        return max(copies, key=lambda each: each.generation, default=None)

    def insert_snapshot(self, snapshot: SnapshotRow) -> None:
        self.step()
        key = snapshot.stream_id, snapshot.source, snapshot.generation
        if key in self.state.snapshots:
            self.break_off(False)
            raise StorageError(f"there is a snapshot {key}")
        self._change(_put, "snapshots", key, snapshot)

    def delete_snapshots(self, source: SourceKey, generations: tuple[int, int]) -> None:
        self.step()
        self._change(_delete_snapshots, source, generations)

    def delete_rows(self, source: SourceKey, upto: int) -> int:
        self.step()
        before = len(self.state.rows)
        self._change(_delete_rows, source, upto)
        return before - len(self.state.rows)


# Changes: from one state to the next.


def _set(state: State, name: str, value: Any) -> State:
    return replace(state, **{name: value})


def _put(state: State, table: str, key: Any, value: Any) -> State:
    return _set(state, table, {**getattr(state, table), key: value})


def _put_revocation(state: State, source: SourceKey, revocation: Revocation) -> State:
    _refer(state, source[0])
    return _put(state, "revocations", source, revocation)


def _refer(state: State, stream_id: int) -> None:
    if stream_id not in state.streams:
        raise StorageError(f"there is no stream {stream_id} to refer to")


def _enter(state: State, source: SourceKey, entry: tuple[Interval, bytes]) -> State:
    return _put(state, "ledger", source, (*state.ledger.get(source, ()), entry))


def _release(state: State, source: SourceKey, interval: Interval) -> State:
    kept = tuple(each for each in state.ledger.get(source, ()) if each[0] != interval)
    return _put(state, "ledger", source, kept)


def _insert_rows(state: State, rows: tuple[Post, ...]) -> State:
    for row in rows:
        _refer(state, row.stream_id)
    taken = [row.seq for row in rows if row.seq in state.rows]
    again = [row.seq for row in rows if _key_of(row) in state.keys]
    if taken or again:
        raise StorageError(f"numbers {taken} are taken, rows {again} are there already")
    return replace(
        state,
        rows={**state.rows, **{row.seq: row for row in rows}},
        keys={**state.keys, **{_key_of(row): row.seq for row in rows}},
    )


def _insert_change(state: State, number: int, stream_id: int) -> State:
    if number in state.changed:
        raise StorageError(f"there is a change {number}")
    return replace(state, changed={**state.changed, number: stream_id})


def _delete_changes(state: State, upto: int) -> State:
    kept = {number: each for number, each in state.changed.items() if number > upto}
    return replace(state, changed=kept)


def _insert_stream(state: State, stream: StreamRow) -> State:
    if any(each.name == stream.name for each in state.streams.values()):
        raise StorageError(f"there is a stream {stream.name!r}")
    return replace(state, streams={**state.streams, stream.id: stream}, last_stream=stream.id)


def _replace_stream(state: State, stream: StreamRow) -> State:
    _refer(state, stream.id)
    return replace(state, streams={**state.streams, stream.id: stream})


def _delete_stream(state: State, stream_id: int) -> State:
    for source in sorted({_source_of(each) for each in _of(state) if each.stream_id == stream_id}):
        state = _delete_source(state, source)
    return replace(
        state,
        streams={key: each for key, each in state.streams.items() if key != stream_id},
        revocations={key: each for key, each in state.revocations.items() if key[0] != stream_id},
        ledger={key: each for key, each in state.ledger.items() if key[0] != stream_id},
    )


def _delete_source(state: State, source: SourceKey) -> State:
    state = _delete_rows(state, source, state.head.last)
    return replace(
        state,
        snapshots={k: each for k, each in state.snapshots.items() if _source_of(each) != source},
        ledger={key: each for key, each in state.ledger.items() if key != source},
    )


def _delete_snapshots(state: State, source: SourceKey, generations: tuple[int, int]) -> State:
    low, high = generations
    kept = {
        key: each
        for key, each in state.snapshots.items()
        if not (_source_of(each) == source and low <= each.generation < high)
    }
    return replace(state, snapshots=kept)


def _delete_rows(state: State, source: SourceKey, upto: int) -> State:
    gone = {seq for seq, row in state.rows.items() if seq <= upto and _source_of(row) == source}
    if not gone:
        return state
    return replace(
        state,
        rows={seq: row for seq, row in state.rows.items() if seq not in gone},
        keys={key: seq for key, seq in state.keys.items() if seq not in gone},
    )


def _of(state: State) -> Iterator[Post | SnapshotRow]:
    yield from state.rows.values()
    yield from state.snapshots.values()


def _source_of(each: Post | SnapshotRow) -> SourceKey:
    return each.stream_id, each.source


def _key_of(row: Post) -> PostKey:
    return row.stream_id, row.source, row.digest
