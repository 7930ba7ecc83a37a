"""Mistakes that one could make in the aggregator, planted one at a time.

Each is a small change of the real classes. The simulation is worth something only if it finds every
one of them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from simulation import database

from api.errors import StaleTokenError
from api.journal import log
from api.journal.log import (
    CatalogChangedError,
    Head,
    Post,
    SnapshotRow,
    StorageError,
    SupersededError,
)
from api.journal.storage import Step, Writer
from api.service import compactor, follower
from api.service.aggregator import Aggregator
from api.service.committer import Committer, Receipt
from api.service.follower import Follower
from api.service.join_check import Accepted
from api.service.local_sources import Site, Sites
from api.service.streams import Stream
from decaysketch import DecaySketch, Snapshot
from decaysketch.core.watermarks import NO_WATERMARK

__all__ = ["FAULTS"]

Fault = Callable[[], AbstractContextManager[Any]]
FAULTS: dict[str, Fault] = {}


def _fault(name: str) -> Callable[[Callable[[], Iterator[None]]], Fault]:
    def plant(function: Callable[[], Iterator[None]]) -> Fault:
        FAULTS[name] = contextmanager(function)
        return FAULTS[name]

    return plant


@_fault("acknowledges before the commit")
def _early() -> Iterator[None]:
    async def write(self: Committer, batch: list[Receipt], trial: Any) -> list[Any]:
        for each in batch:
            each.prepare(trial, 0)
        posts = [post for each in batch if each.fault is None for post in each.posts]
        writing = self._storage.steps(1.0)
        step = await writing.__aenter__()
        try:
            append = partial(
                log.append, posts=posts, catalog=batch[0].catalog, now_us=self._now_us()
            )
            outcomes = await step(append)
        except BaseException as error:
            await writing.__aexit__(type(error), error, None)
            raise

        async def commit() -> None:
            with suppress(StorageError):
                await writing.__aexit__(None, None, None)

        asyncio.get_running_loop().create_task(commit())
        return outcomes

    with mock.patch.object(Committer, "_write", write):
        yield


@_fault("leaves out a row when it reads the journal")
def _left_out() -> Iterator[None]:
    decode = follower._decode_rows

    def decode_but_one(rows: Sequence[tuple[Stream, Post]]) -> list[Snapshot | None]:
        sketches = decode(rows)
        if len(sketches) >= 3:
            sketches[1] = None
        return sketches

    with mock.patch.object(follower, "_decode_rows", decode_but_one):
        yield


@_fault("trusts a sequence to become visible in order")
def _sequence() -> Iterator[None]:
    drawn: dict[int, int] = {}  # by database: numbers are drawn without holding the head

    def append(
        tx: Any, posts: Sequence[Post], catalog: int, now_us: int, last: int | None = None
    ) -> list[Any]:
        if tx.head().catalog != catalog:
            raise CatalogChangedError
        known = tx.known({post.key for post in posts})
        results: list[log.Outcome] = []
        new: list[Post] = []
        for post in posts:
            if post.key in known:
                results.append(tx.head().last)
                continue
            known.add(post.key)
            post.seq = drawn[id(tx._database)] = drawn.get(id(tx._database), 0) + 1
            post.received_us = now_us
            new.append(post)
            results.append(post)
        if new:
            tx.insert_rows(new)
            tx._change(_raise_last, new[-1].seq)
        return results

    with mock.patch.object(log, "append", append):
        yield


def _raise_last(state: database.State, seq: int) -> database.State:
    return replace(state, head=replace(state.head, last=max(state.head.last, seq)))


@_fault("compacts beside another one")
def _two_compactors() -> Iterator[None]:
    compact = log.compact

    def unchecked(tx: Writer, known: Head, snapshots: Sequence[SnapshotRow]) -> int:
        head = tx.lock_head()
        next_one = head.generation + 1
        return compact(tx, head, [replace(each, generation=next_one) for each in snapshots])

    with mock.patch.object(log, "compact", unchecked):
        yield


@_fault("reads no snapshots once it has begun")
def _missed_generation() -> Iterator[None]:
    read = Follower._read_snapshots

    async def at_the_start_only(self: Follower, step: Step) -> None:
        if self.cursor == 0:
            await read(self, step)

    with mock.patch.object(Follower, "_read_snapshots", at_the_start_only):
        yield


@_fault("forgets a watermark in a snapshot")
def _watermark() -> Iterator[None]:
    write = compactor._snapshot_row

    def forget(stream: Stream, *arguments: Any) -> SnapshotRow:
        row = write(stream, *arguments)
        if stream.name != "decay":
            return row
        (state,) = stream.recipe.decode(row.body).snapshot().states
        watermarks = np.array(state.watermarks)
        discarded = np.flatnonzero(watermarks != NO_WATERMARK)
        if len(discarded) == 0:
            return row
        watermarks[discarded[-1]] = NO_WATERMARK  # the coarsest level that has one
        body = DecaySketch.from_state([replace(state, watermarks=watermarks)]).to_bytes()
        return replace(row, body=body, digest=hashlib.sha256(body).digest())

    with mock.patch.object(compactor, "_snapshot_row", forget):
        yield


@_fault("deletes what only the new snapshot holds")
def _new_snapshot() -> Iterator[None]:
    def compact(tx: Writer, known: Head, snapshots: Sequence[SnapshotRow]) -> int:
        head = tx.lock_head()
        if (head.generation, head.catalog) != (known.generation, known.catalog):
            raise SupersededError
        deleted, count = head.deleted, 0
        for snapshot in snapshots:
            source = snapshot.stream_id, snapshot.source
            tx.delete_snapshots(source, (0, snapshot.generation))
            count += tx.delete_rows(source, snapshot.upto)
            deleted = max(deleted, snapshot.upto)
            tx.insert_snapshot(snapshot)
        tx.set_head(replace(head, deleted=deleted, generation=head.generation + 1))
        return count

    with mock.patch.object(log, "compact", compact):
        yield


@_fault("keeps own rows of a source that was revoked")
def _own_rows() -> Iterator[None]:
    read = Follower._read_catalog

    async def keep_own(self: Follower, step: Step, number: int) -> None:
        own = dict(self._own)
        await read(self, step, number)
        self._keep_own(own)

    with mock.patch.object(Follower, "_read_catalog", keep_own):
        yield


@_fault("does not check posts again when the catalog has changed")
def _unchecked_catalog() -> Iterator[None]:
    with mock.patch.object(Aggregator, "_check", return_value=None):
        yield


@_fault("calls a token stale without looking")
def _stale() -> Iterator[None]:
    reached = Aggregator.reached

    async def look_once(self: Aggregator, token: str, among: Any) -> None:
        name, incarnation, _number = token.split(":")
        if name in self._streams and self._streams[name].row.incarnation != incarnation:
            raise StaleTokenError(name)
        await reached(self, token, among)

    with mock.patch.object(Aggregator, "reached", look_once):
        yield


@_fault("does not wait for the post of a token")
def _no_wait() -> Iterator[None]:
    async def at_once(self: Follower, number: int) -> None:
        pass

    with mock.patch.object(Follower, "reached", at_once):
        yield


@_fault("keeps no ledger of numbers")
def _no_ledger() -> Iterator[None]:
    def take_any(tx: Writer, post: Post) -> bool:
        return True

    with mock.patch.object(log, "_enter", take_any):
        yield


@_fault("promises to keep what contradicts what is there")
def _no_trial() -> Iterator[None]:
    with mock.patch.object(Aggregator, "_trial", return_value=None):
        yield


@_fault("tries a join with less than the journal has")
def _overtaken() -> Iterator[None]:
    append = log.append

    def whatever_came(
        tx: Any, posts: Sequence[Post], catalog: int, now_us: int, last: int | None = None
    ) -> list[Any]:
        return append(tx, posts, catalog, now_us)

    with mock.patch.object(log, "append", whatever_came):
        yield


@_fault("forgets what contradicts once its source is dropped")
def _dropped() -> Iterator[None]:
    def keep(self: Accepted, source: str) -> tuple[Any, Any]:
        with self._lock:
            return [each.snapshot() for each in self._sources.values()], []

    with mock.patch.object(Accepted, "drop", keep):
        yield


@_fault("counts under the name that it had before it died")
def _one_name() -> Iterator[None]:
    begin = Sites.__init__

    def named(self: Sites, memory: Any) -> None:
        begin(self, memory)
        self._epoch = 7

    with mock.patch.object(Sites, "__init__", named):
        yield


@_fault("goes on from where it was when it does not know what was journaled")
def _goes_on() -> Iterator[None]:
    give_up = Sites._give_up

    def keep(self: Sites, site: Site) -> None:
        if not site.is_current:
            give_up(self, site)

    with mock.patch.object(Sites, "_give_up", keep):
        yield


@_fault("lets own rows stand that were read meanwhile")
def _own_twice() -> Iterator[None]:
    advance = Follower._advance

    async def read_rows(self: Follower, step: Step, last: int) -> None:
        while self.cursor < last:
            own = self._own.pop(self.cursor + 1, None)
            if own is not None:
                self._take(*own)
                advance(self, self.cursor + 1)
                continue
            upto = min(last, min(self._own, default=last + 1) - 1)
            rows = await step(partial(follower._rows_between, self.cursor, upto))
            wanted = [(self._stream(row.stream_id), row) for row in rows]
            sketches = await self._compute(follower._decode_rows, wanted)
            for row, sketch in zip(rows, sketches, strict=True):
                if sketch is not None:
                    self._take(row, sketch)
            advance(self, upto)

    with mock.patch.object(Follower, "_read_rows", read_rows):
        yield


@_fault("waits for no bound")
def _unbounded() -> Iterator[None]:
    made = Committer.__init__

    def without_bounds(self: Committer, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named | {"queue_posts": 10**9, "queue_bytes": 10**9})

    with mock.patch.object(Committer, "__init__", without_bounds):
        yield
