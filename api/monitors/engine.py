"""The monitors of this process: grants in the transactions of posts, and states.

**Sources that take part** have reported (:func:`_sites`). Only these may hold rows back. A monitor
without such sources has the state that a plain query with its interval gives.

**Grants** are made where a report arrives, from the accounts and the stream's latest reading. An
old reading costs reports and breaks no promise, because a site is charged with everything that it
may hold. As long as nothing was read, nothing may be held back.

**States** are found out again when the stream has grown, and when time alone may have changed them
(:mod:`~api.monitors.schedule`). Their truth rests on the order: first the accounts and the
journal's head at one moment, then everything up to that head, then the sketch. The sketch has all
rows that sites had posted by that moment, and their other rows are charged. One query for all
versions shows which rows another process has changed. Only these are read, and only due monitors
are evaluated, for at most about half the time.

Every process over the database does so. A process that finds another state writes it by
compare-and-set on the row's version, together with a history row and the alert for the outbox. One
process succeeds.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from api.errors import UnknownMonitorError
from api.journal.log import Head, StorageError
from api.journal.storage import Reader, Storage, Writer
from api.logs import Seldom
from api.monitors import changes, history, store
from api.monitors.changes import Change, Named
from api.monitors.coalesced_reads import Looks
from api.monitors.defining import refused
from api.monitors.evaluation import LONGEST_S, SHORTEST_S, UNREAD, Evaluation, Task, evaluate
from api.monitors.event_fanout import Mailboxes
from api.monitors.history import Entry, Retention
from api.monitors.outbox import Outbox
from api.monitors.schedule import Schedule
from api.monitors.store import MonitorRow
from api.monitors.webhooks import Webhooks
from api.service.aggregator import Aggregator
from api.service.streams import Stream
from api.settings import Settings
from decaysketch.core.time_units import now_in
from decaysketch.errors import DecaySketchError
from decaysketch.monitor import (
    Account,
    Answer,
    Expected,
    Grant,
    GroupsRead,
    Monitor,
    Reading,
    Report,
    Spec,
    State,
    Threshold,
    explain,
    explain_groups,
    spec_from_dict,
)

__all__ = [
    "MOST_SITES",
    "Monitors",
    "Reporting",
    "Watched",
    "definition",
    "explained",
    "group_counts",
    "summary",
]

_log = logging.getLogger(__name__)

MOST_SITES = 1000
"""Maximum sources that take part in one monitor. If there are more, none receives a grant, and the
state is uncertain until the monitor lists the relevant sources. A grant reads every site's account,
while writers wait."""

_LOOK_S = 0.2  # whether a stream has grown
_EVERY_S = 1.0  # interval of reads for changes by other processes
_STALE_S = 10.0  # an older state is reported as unknown
_LEAST_S = 0.05
_RECALL_S = 1.0  # between two recalls of one monitor


@dataclass(frozen=True, slots=True)
class Watched:
    """A monitor and its last evaluation.

    Attributes:
        accounts: one for each source that takes part, by name.
        unit: the stream's time unit.
        state: None until it is evaluated.
        at_us: when it was, in microseconds since 1970 UTC.
        read: of a monitor with ``by``: its groups. None until it is evaluated.
        fault: why it cannot be evaluated. None if it can.
    """

    row: MonitorRow
    monitor: Monitor
    accounts: Mapping[str, Account]
    unit: str
    state: State | None = None
    at_us: int | None = None
    read: GroupsRead | None = None
    fault: str | None = None


class _Granting(NamedTuple):
    """The response to a report, and the sites to recall for it."""

    answer: Answer
    stream: str
    recalls: Sequence[tuple[MonitorRow, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class _Found:
    """The database content for one evaluation, as of one moment."""

    head: Head
    changed: Sequence[MonitorRow]
    gone: Set[int]
    due: Set[int]
    accounts: Mapping[int, Mapping[str, Account]]


class Reporting:
    """A report under way: answered in a transaction, which may be tried again.

    Args:
        grant: makes the grants, and writes them.
        recall: receives the sites to recall, once the grants are on stable storage.
    """

    def __init__(
        self,
        grant: Callable[[Writer], _Granting],
        recall: Callable[[_Granting], None],
    ) -> None:
        self._grant = grant
        self._recall = recall
        self._granting: _Granting | None = None

    def write(self, tx: Writer) -> None:
        """Make the grants in a transaction that holds the head."""
        self._granting = self._grant(tx)

    def answer(self) -> Answer:
        """Return the response, once that transaction has succeeded. On the event loop."""
        assert self._granting is not None
        self._recall(self._granting)
        return self._granting.answer


class Monitors:
    """The monitors of all streams, as one process sees them.

    Args:
        aggregator: of the streams.
        storage: the same database.
        outbox: where alerts wait.
        webhooks: where they may be sent.
        settings: limits.
    """

    def __init__(
        self,
        aggregator: Aggregator,
        storage: Storage,
        outbox: Outbox,
        webhooks: Webhooks,
        settings: Settings,
    ) -> None:
        self._aggregator = aggregator
        self._storage = storage
        self._outbox = outbox
        self._webhooks = webhooks
        self._settings = settings
        self.mailboxes = Mailboxes()
        self._retention = Retention(settings.monitor_history, int(settings.monitor_history_s * 1e6))
        self._known: dict[tuple[int, int], Monitor] = {}  # by id and epoch
        self._readings: dict[int, Reading] = {}  # by id
        self._rows: dict[int, MonitorRow] = {}  # by id, as they were read last
        self._watched: dict[tuple[int, str], Watched] = {}
        self._of_stream: dict[int, set[int]] = defaultdict(set)  # ids, by that of their stream
        self._generations: dict[int, int] = {}  # of the streams, when they were read last
        self._schedule = Schedule()
        self._ahead_s: dict[int, float] = {}  # by id: so far ahead a state was the same
        self._took_s = 0.0
        self._told_s = -math.inf  # those who follow, of every monitor
        self._current_s = -math.inf
        self._recalled_s: dict[int, float] = {}
        self._looks = Looks("monitors", self._look, _LOOK_S)
        self._unreadable = Seldom(_log)

    # ------------------------------------------------------------------------------- definitions

    def read_spec(self, stream: Stream, form: object) -> Spec:
        """Return a spec that is valid for a stream.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain, or the family
                of the stream does not answer it.
            InvalidRequestError: its webhook is not allowed, it lists more than MOST_SITES, or the
                server has no clock of the stream's unit.
        """
        params = stream.recipe.params
        spec = spec_from_dict(form, time_unit=params.time_unit)
        Monitor.of("monitor", 0, _threshold(spec), stream.recipe)
        if level := stream.row.from_level:
            raise refused("from_level", "the stream lacks messages, so query a set", level, 0)
        if now_in(params.time_unit, 0) is None:
            raise refused("time_unit", "the server has no clock of it", params.time_unit)
        if spec.webhook is not None:
            try:
                self._webhooks.check(spec.webhook)
            except ValueError as error:
                raise refused("webhook", str(error), spec.webhook) from None
        if spec.sites is not None and len(spec.sites) > MOST_SITES:
            raise refused("sites", "too many", len(spec.sites), MOST_SITES)
        return spec

    async def define(self, stream: Stream, name: str, spec: Spec) -> tuple[Watched, bool]:
        """Define a monitor, or redefine the one with its name. Return whether it is new. The same
        spec again changes nothing.

        Raises:
            TooManyMonitorsError: there are as many as may be.
            UnknownStreamError: the stream was deleted since.
            StorageError: it may or may not have happened.
        """
        now_us = self._aggregator.now_us()

        def define(tx: Writer) -> tuple[MonitorRow, bool]:
            return store.define(
                tx, (stream.id, stream.name), name, spec.to_dict(), now_us=now_us,
                of_stream=self._settings.max_stream_monitors, in_all=self._settings.max_monitors,
            )  # fmt: skip

        _, new = await self._storage.write(define)
        await self._looks.now()
        return self.watched(stream, name), new

    async def remove(self, stream: Stream, name: str) -> None:
        """Delete a monitor.

        Raises:
            UnknownMonitorError: there is none.
        """
        if not await self._storage.write(lambda tx: store.remove(tx, stream.id, name)):
            raise UnknownMonitorError(stream.name, name)
        await self._looks.now()

    def watched(self, stream: Stream, name: str) -> Watched:
        """Return the last evaluation.

        Raises:
            UnknownMonitorError: this process knows of none of this name.
        """
        try:
            return self._as_of_now(self._watched[stream.id, name])
        except KeyError:
            raise UnknownMonitorError(stream.name, name) from None

    async def find(self, stream: Stream, name: str) -> Watched:
        """Return the same, even if another process has only just defined it.

        Raises:
            UnknownMonitorError: there is none.
            StorageError: this process knows of none, and cannot read the database.
        """
        if (stream.id, name) not in self._watched:
            await self._looks.later()
        await self.refresh(stream)
        return self.watched(stream, name)

    async def refresh(self, stream: Stream) -> None:
        """Evaluate a stream's monitors whose states are older than a second. If the database is
        unreachable, the states stay as they are."""
        now_us = self._aggregator.now_us()
        keys = [(stream.id, self._rows[n].name) for n in self._of_stream.get(stream.id, ())]
        mine = [self._watched[key] for key in keys if key in self._watched]
        old = [each.row.id for each in mine if now_us - (each.at_us or 0) > _EVERY_S * 1e6]
        for number in old:
            self._schedule.put(number, -math.inf)
        if old:
            with suppress(StorageError):
                await self._looks.later()

    async def history(
        self,
        stream: Stream,
        name: str,
        begin_us: int,
        end_us: int,
        limit: int,
        group: str | None = None,
    ) -> tuple[list[Entry], bool]:
        """Return states that began before ``end_us`` and ended after ``begin_us``, and whether no
        older one was cut off. ``group``: the key of a group whose states are returned.

        Raises:
            UnknownMonitorError: there is none.
            StorageError: the database is out of reach.
        """
        oldest_us = self._aggregator.now_us() - self._retention.age_us
        begin_us = max(begin_us, oldest_us)

        def read(rx: Reader) -> tuple[list[Entry], bool]:
            row = next((r for r in store.of_stream(rx, stream.id) if r.name == name), None)
            if row is None:
                raise UnknownMonitorError(stream.name, name)
            return history.read(rx, row.id, begin_us, end_us, limit, group)

        return await self._storage.read(read)

    def of_stream(self, stream: Stream) -> list[Watched]:
        """Return the monitors of a stream, in order of name."""
        keys = ((stream.id, self._rows[n].name) for n in self._of_stream.get(stream.id, ()))
        mine = [self._watched[key] for key in keys if key in self._watched]
        return sorted(map(self._as_of_now, mine), key=lambda each: each.row.name)

    def definitions(self, stream: Stream, source: str) -> list[dict[str, Any]]:
        """Return the definitions for a site, in order of name. A monitor that is known but not yet
        evaluated is among them: the event about it went to those who followed by then.
        """
        rows = sorted(
            (self._rows[n] for n in self._of_stream.get(stream.id, ())), key=lambda row: row.name
        )
        return [definition(row) for row in rows if _takes(row, source)]

    def every(self) -> list[tuple[str, Watched]]:
        """Return all monitors, each with the name of its stream, in order of names."""
        found = [
            (stream.name, self._as_of_now(watched))
            for (stream_id, _), watched in self._watched.items()
            if (stream := self._aggregator.stream_by_id(stream_id)) is not None
        ]
        return sorted(found, key=lambda each: (each[0], each[1].row.name))

    def _as_of_now(self, watched: Watched) -> Watched:
        """Return a monitor without its state, where the evaluation is too old: leases end
        meanwhile.
        """
        age_s = asyncio.get_running_loop().time() - self._current_s
        return watched if age_s < _STALE_S else replace(watched, state=None)

    def expected(self, watched: Watched) -> Expected:
        """Return the monitor's expected cost in reports: by the known rates of the sites. Without
        rates, as if each site had its share of the stream's content.
        """
        rates = [each.rate for each in watched.accounts.values() if each.inc >= 0]
        if not rates:
            reading = self._readings.get(watched.row.id, UNREAD)
            weight = reading.weight or reading.value
            sites = len(watched.accounts)
            known = math.isfinite(weight) and weight > 0.0
            rates = [weight / sites] * sites if sites and known else []
        return watched.monitor.expected(rates)

    # ------------------------------------------------------------------------------------ grants

    def reporting(self, stream: Stream, source: str, report: Report, rows: int) -> Reporting:
        """Return a report that comes with a post. The transaction of the post also answers it.

        Args:
            stream, source: the destination and sender.
            report: its content.
            rows: of the post.
        """

        def grant(tx: Writer) -> _Granting:
            return self._grant(tx, stream, source, report, rows)

        return Reporting(grant, self._recall_all)

    async def report(self, stream: Stream, source: str, report: Report) -> Answer:
        """Return the response to a report that comes without a post.

        Raises:
            RevokedSourceError: the source is revoked.
            StorageError: its grants may or may not have been written. Report again.
        """
        stream.admit(source)
        reporting = self.reporting(stream, source, report, 0)

        def grant(tx: Writer) -> None:
            tx.lock_head()
            reporting.write(tx)

        await self._storage.write(grant)
        return reporting.answer()

    def _grant(
        self, tx: Writer, stream: Stream, source: str, report: Report, rows: int
    ) -> _Granting:
        found = store.of_stream(tx, stream.id)
        accounts = store.accounts_of(tx, [row.id for row in found])
        now_s = self._aggregator.now_us() / 1e6
        taking = _reported(accounts.values()) | {source}
        grants: list[Grant] = []
        recalls: list[tuple[MonitorRow, Sequence[str]]] = []
        for row in found:
            try:
                monitor = self._monitor(row, stream)
            except DecaySketchError:
                _log.exception("monitor %r of stream %r cannot be read", row.name, stream.name)
                continue
            sites = _sites(stream, monitor, accounts[row.id], taking)
            if len(sites) > MOST_SITES:
                continue
            reading = self._readings.get(row.id, UNREAD)
            granted = monitor.grant(sites, source, report, reading, now=now_s, rows=rows)
            if granted is None:
                continue
            store.put_account(tx, row.id, source, granted.account)
            grants.append(granted.grant)
            if granted.recall:
                recalls.append((row, granted.recall))
        watching = {row.name for row in found if _takes(row, source)}
        gone = tuple(name for name in report.held if name not in watching)
        return _Granting(Answer(tuple(grants), gone), stream.name, recalls)

    def _recall_all(self, granting: _Granting) -> None:
        for row, sources in granting.recalls:
            self._recall(row, granting.stream, sources)

    # ------------------------------------------------------------------------------------ states

    async def watch(self) -> None:
        """Evaluate, once, monitors that are due and those whose stream has grown."""
        await asyncio.sleep(min(max(_LOOK_S, self._took_s), _EVERY_S))
        now = asyncio.get_running_loop().time()
        late = self._looks.age_s >= _EVERY_S
        if not late and not self._schedule.is_due(now) and not any(self._grown()):
            return
        await self._looks.watch()

    def _grown(self) -> Iterable[int]:
        """Return the streams that have changed since their evaluation, by id."""
        for stream_id, generation in self._generations.items():
            stream = self._aggregator.stream_by_id(stream_id)
            if stream is not None and stream.generation != generation:
                yield stream_id

    async def look(self) -> None:
        """Read all monitors and evaluate each.

        Raises:
            StorageError: the database is out of reach.
        """
        for number in self._rows:
            self._schedule.put(number, -math.inf)
        await self._looks.now()

    async def _look(self) -> None:
        """Evaluate all due monitors. O(monitors) for versions, and a query for each due one."""
        began = asyncio.get_running_loop().time()
        due = self._due(began)
        try:
            found = await self._storage.read(partial(self._read, due))
        except StorageError:
            for number in due:
                self._schedule.put(number, -math.inf)
            raise
        head, accounts = found.head, found.accounts
        self._adopt(found.changed, found.gone)
        for row in found.changed:
            self._schedule.put(row.id, began + _EVERY_S)
        streams = {self._rows[number].stream_id for number in found.due}
        if found.due:
            await self._aggregator.taken(head)
        for stream_id in streams:
            numbers = sorted(found.due & self._of_stream[stream_id])
            await self._look_at(stream_id, numbers, accounts)
        self._current_s = asyncio.get_running_loop().time()
        self._took_s = self._current_s - began

    def _due(self, now: float) -> set[int]:
        due = self._schedule.due(now) & self._rows.keys()
        for stream_id in self._grown():
            for number in self._of_stream[stream_id]:
                self._ahead_s.pop(number, None)
                due.add(number)
        if now >= self._told_s + _EVERY_S:
            self._told_s = now
            for stream_id in self.mailboxes.followed & self._of_stream.keys():
                due |= self._of_stream[stream_id]
        for number in due:  # after success or failure, evaluate it again
            self._schedule.put(number, now + _EVERY_S)
        return due

    def _read(self, due: Set[int], rx: Reader) -> _Found:
        """Read changed rows, and the accounts that an evaluation of the due monitors needs. It runs
        on a thread, and nothing changes the rows during the call.
        """
        head = rx.head()
        changed, gone = self._changed(rx)
        rows = self._rows | {row.id: row for row in changed}
        due = (due | {row.id for row in changed}) - gone
        streams = {rows[number].stream_id for number in due}
        mine = [n for n, row in rows.items() if row.stream_id in streams and n not in gone]
        return _Found(head, changed, gone, due, store.accounts_of(rx, mine))

    def _changed(self, rx: Reader) -> tuple[list[MonitorRow], Set[int]]:
        """Return the new or changed rows, and the deleted ids."""
        present = store.versions(rx)
        changed = [
            number
            for number, found in present.items()
            if number not in self._rows
            or found != (self._rows[number].epoch, self._rows[number].version)
        ]
        return store.some(rx, changed), self._rows.keys() - present.keys()

    def _adopt(self, changed: Iterable[MonitorRow], gone: Iterable[int]) -> None:
        """Accept changed rows, and forget monitors that are gone."""
        for number in gone:
            self._forget(self._rows.pop(number))
        for row in changed:
            old = self._rows.get(row.id)
            self._rows[row.id] = row
            self._of_stream[row.stream_id].add(row.id)
            self._schedule.put(row.id, -math.inf)
            if old is None or old.epoch != row.epoch:
                self._ahead_s.pop(row.id, None)
                self._known.pop((row.id, -1 if old is None else old.epoch), None)
                self._readings.pop(row.id, None)
                self._watched.pop((row.stream_id, row.name), None)
                self.mailboxes.to_sites(
                    row.stream_id, "define", row.name, definition(row), row.spec.get("sites")
                )

    async def _look_at(
        self, stream_id: int, numbers: Sequence[int], accounts: Mapping[int, Mapping[str, Account]]
    ) -> None:
        """Evaluate monitors on one stream."""
        stream = self._aggregator.stream_by_id(stream_id)
        if stream is None:
            return  # created or deleted at this moment, elsewhere
        self._generations[stream_id] = stream.generation
        taking = _reported(accounts[each] for each in self._of_stream[stream_id])
        chosen: list[tuple[MonitorRow, Task]] = []
        for number in numbers:
            row = self._rows[number]
            try:
                monitor = self._monitor(row, stream)
            except DecaySketchError as error:
                self._not_read(stream, row, error)
                continue
            sites = _sites(stream, monitor, accounts[number], taking)
            unit = stream.recipe.params.time_unit
            self._watched.setdefault((stream_id, row.name), Watched(row, monitor, sites, unit))
            ahead_s = 2.0 * self._ahead_s.get(number, 0.0)
            chosen.append((row, Task(monitor, sites, ahead_s, tuple(row.groups))))
        if not chosen:
            return
        now_us = self._aggregator.now_us()
        snapshot = await self._aggregator.compute(stream.snapshot)
        compute = self._aggregator.compute_of(len(snapshot) * len(chosen))
        found = await compute(evaluate, [task for _, task in chosen], snapshot, now_us)
        for (row, task), evaluation in zip(chosen, found, strict=True):
            await self._evaluated(stream, row, task, evaluation, now_us)

    async def _evaluated(
        self, stream: Stream, row: MonitorRow, task: Task, evaluation: Evaluation, now_us: int
    ) -> None:
        """Write and report an evaluation, and schedule the next one."""
        state = evaluation.state
        if state is None:
            self._not_read(stream, row, evaluation.error)
            return
        self._readings[row.id] = evaluation.reading
        unit, read = stream.recipe.params.time_unit, evaluation.groups
        named = Named(stream.name, stream.row.incarnation, unit)
        if read is None:
            change = changes.plain(row, named, task.monitor, state, now_us)
        else:
            change = changes.grouped(row, named, task.monitor, read, now_us)
        if change is not None:
            row = await self._write(change, now_us)
        if row.id not in self._rows:
            return  # deleted by another request
        self._rows[row.id] = row
        if read is not None:
            state = changes.overall(task.monitor, row.groups, read)
        watched = Watched(row, task.monitor, task.sites, unit, state, now_us, read)
        self._watched[stream.id, row.name] = watched
        self._tell(stream, watched, state)
        self._ahead_s[row.id] = min(max(evaluation.holds_s, SHORTEST_S), LONGEST_S)
        holds_s = SHORTEST_S if task.sites else evaluation.holds_s
        at_s = min(holds_s, _turns_s(row, task.monitor, now_us / 1e6))
        self._schedule.put(row.id, asyncio.get_running_loop().time() + max(at_s, _LEAST_S))

    def _not_read(self, stream: Stream, row: MonitorRow, error: Exception | None) -> None:
        """Record that a monitor that cannot be evaluated has no state."""
        self._unreadable.say(
            logging.ERROR, "monitor %r of stream %r: %s", row.name, stream.name, error
        )
        if (old := self._watched.get((stream.id, row.name))) is not None:
            fault = None if error is None else str(error)
            self._watched[stream.id, row.name] = replace(old, state=None, read=None, fault=fault)

    async def _write(self, change: Change, now_us: int) -> MonitorRow:
        """Write a change. Return the row that is in force."""
        given_up = await self._storage.write(
            lambda tx: changes.write(tx, change, now_us, self._retention)
        )
        if given_up is None:
            return change.before  # another process was first; the next round reads the new row
        for _ in range(given_up):
            self._aggregator.observer.webhook_failed(given_up=True)
        if change.messages:
            self._outbox.wake()
        return change.after

    def _tell(self, stream: Stream, watched: Watched, state: State) -> None:
        row = watched.row
        bounds = state.lower, state.upper, state.threshold
        verdict, phase = state.verdict, row.alert.phase
        self._aggregator.observer.watched(
            stream.name, row.name, (verdict, phase), bounds, len(state.silent)
        )
        if state.recall:
            self._recall(row, stream.name, state.recall)
        self.mailboxes.to_people(stream.id, "state", row.name, summary(watched))

    def _recall(self, row: MonitorRow, stream: str, sources: Iterable[str]) -> None:
        """Ask sites to post now. The request may be lost: their leases end."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._recalled_s.get(row.id, -math.inf) < _RECALL_S:
            return
        self._recalled_s[row.id] = now_s
        self._aggregator.observer.recalled(stream)
        data = {"monitor": row.name, "epoch": row.epoch}
        self.mailboxes.to_sites(row.stream_id, "recall", row.name, data, frozenset(sources))

    def _forget(self, row: MonitorRow) -> None:
        """Drop everything about a deleted monitor, and notify followers."""
        key = row.stream_id, row.name
        for told in (self.mailboxes.to_sites, self.mailboxes.to_people):
            told(row.stream_id, "gone", row.name, {"monitor": row.name})
        if (stream := self._aggregator.stream_by_id(row.stream_id)) is not None:
            self._aggregator.observer.unwatched(stream.name, row.name)
        if key in self._watched and self._watched[key].row.id == row.id:
            del self._watched[key]
        self._known.pop((row.id, row.epoch), None)
        self._schedule.drop(row.id)
        for of in (self._readings, self._recalled_s, self._ahead_s):
            of.pop(row.id, None)
        mine = self._of_stream[row.stream_id]
        mine.discard(row.id)
        if not mine:
            del self._of_stream[row.stream_id]
            self._generations.pop(row.stream_id, None)

    def _monitor(self, row: MonitorRow, stream: Stream) -> Monitor:
        """Return a monitor. On any thread."""
        key = row.id, row.epoch
        if key not in self._known:
            spec = _threshold(spec_from_dict(row.spec))
            self._known[key] = Monitor.of(row.name, row.epoch, spec, stream.recipe)
        return self._known[key]


def _takes(row: MonitorRow, source: str) -> bool:
    """Return whether a source is one of the sites of a monitor."""
    listed = row.spec.get("sites")
    return listed is None or source in listed


def definition(row: MonitorRow) -> dict[str, Any]:
    """Return the part of a monitor that a site has to know."""
    return {"monitor": row.name, "epoch": row.epoch, "spec": dict(row.spec)}


def summary(watched: Watched) -> dict[str, Any]:
    """Return the description of a monitor, without its sites."""
    row, state = watched.row, watched.state
    said: dict[str, Any] = {"monitor": row.name, "epoch": row.epoch}
    said |= {"state": "uncertain", "reason": None} if state is None else state.to_dict()
    said |= {"since": row.since_us / 1e6, "alert": row.alert.to_dict()}
    said |= {"explanation": explained(watched), "sources": len(watched.accounts)}
    if row.grouped:
        said["groups"] = group_counts(watched)
    return said


def group_counts(watched: Watched) -> dict[str, int]:
    """Return the number of groups in each state, and of those without a state."""
    groups, read = watched.row.groups, watched.read or GroupsRead()
    states = Counter(group.state for group in groups.values())
    counts = {name: states[name] for name in ("firing", "uncertain", "calm")}
    untracked, firing = read.untracked(groups)
    return counts | {"untracked": untracked, "untracked_firing": firing}


def explained(watched: Watched) -> str:
    """Return the state in one sentence."""
    if watched.state is None:
        if watched.fault is not None:
            return f"The server cannot evaluate the monitor: {watched.fault}."
        return "The server has not evaluated the monitor yet."
    if watched.read is not None:
        return explain_groups(watched.monitor.spec, watched.row.groups, watched.read)
    return explain(watched.monitor.spec, watched.state, watched.unit)


def _threshold(spec: Spec) -> Threshold:
    if not isinstance(spec, Threshold):
        raise refused("kind", "this server only monitors thresholds", spec.kind, "threshold")
    return spec


def _reported(accounts: Iterable[Mapping[str, Account]]) -> set[str]:
    """Return sources that have reported to any monitor here."""
    return {source for each in accounts for source, account in each.items() if account.inc >= 0}


def _sites(
    stream: Stream, monitor: Monitor, accounts: Mapping[str, Account], taking: Set[str]
) -> dict[str, Account]:
    """The accounts for all sources that take part in a monitor and are not revoked.

    A source takes part once it has reported to a monitor on the stream. All others post their rows,
    so the server has them and there is nothing to allow for. A source that the spec lists and the
    server never heard from is expected to take part. With an empty list no source takes part.

    Args:
        accounts: the monitor's.
        taking: sources that have reported to any monitor on the stream.
    """
    names, listed = set(taking), monitor.spec.sites
    if listed is not None:
        unheard = set(listed) - set(stream.source_names)
        names = (names & set(listed)) | unheard
    return {name: accounts.get(name, Account()) for name in names - set(stream.revoked)}


def _turns_s(row: MonitorRow, monitor: Monitor, now_s: float) -> float:
    """Return in how many seconds time alone changes an alert: ``for_s`` and ``keep_firing_s``. Or
    drops a group.
    """
    spec = monitor.spec
    found = [math.inf]
    for alert in [group.alert for group in row.groups.values()] or [row.alert]:
        if alert.phase == "pending":
            found.append(alert.since + spec.for_s - now_s)
        if alert.phase == "firing" and alert.cleared is not None:
            found.append(alert.cleared + spec.keep_firing_s - now_s)
    gone = [group.gone for group in row.groups.values() if group.gone is not None]
    return min(*found, *(at + spec.group_retention_s - now_s for at in gone), math.inf)
