"""The monitors of this process: grants in the transactions of posts, and what can be said, anew.

**Grants** are made where a report arrives, from the rows of the accounts and the latest reading
of the stream, which may be a little old: that costs reports, no promise, because what a site may
hold is charged whatever was read. As long as nothing was read, nothing may be held back.

**States** are found out again when the stream has grown, and every second, since values fall and
leases end without a post. The order is what makes them true: first the accounts and the head of the
journal, of one moment; then everything up to that head is waited for; then the sketch is taken. It
holds what the sites had posted by that moment, and what they had not is charged.

Every process over the database does so. Who finds that something else is to be said writes it by
compare-and-set on the version of the row, together with the alert for the outbox: of several
processes one does.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from api.errors import UnknownMonitorError
from api.journal.model import StorageError
from api.journal.storage import Storage, Writer
from api.logs import Seldom
from api.monitors import alerts, outbox, store
from api.monitors.defining import refused
from api.monitors.looks import Looks
from api.monitors.mailboxes import Mailboxes
from api.monitors.outbox import Outbox
from api.monitors.store import MonitorRow
from api.monitors.webhooks import Webhooks
from api.service.aggregator import Aggregator
from api.service.clock import now_in
from api.service.streams import Stream
from api.settings import Settings
from decaysketch import Snapshot
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.errors import DecaySketchError, UnanswerableQueryError
from decaysketch.monitor import (
    Account,
    Answer,
    Expected,
    Grant,
    Monitor,
    Reading,
    Report,
    Spec,
    State,
    Threshold,
    spec_from_dict,
)

__all__ = ["MOST_SITES", "Monitors", "Reporting", "Watched", "definition", "summary"]

_log = logging.getLogger(__name__)

MOST_SITES = 1000
"""Of one monitor: where there are more, none is granted anything, and its state is uncertain until
it lists those that matter. A grant looks at the account of every site, while writers wait."""

_LOOK_S = 0.2  # whether a stream has grown
_EVERY_S = 1.0  # a state is found out again
_STALE_S = 10.0  # a state that could not be found out for so long is none
_RECALL_S = 1.0  # between two recalls of one monitor
_UNREAD = Reading.of(math.nan)


@dataclass(frozen=True, slots=True)
class Watched:
    """A monitor and what was found out last.

    Attributes:
        accounts: of every site that it takes, by source.
        state: None while it is not found out.
    """

    row: MonitorRow
    monitor: Monitor
    accounts: Mapping[str, Account]
    state: State | None = None


class _Granting(NamedTuple):
    """The answer to a report, and whom to ask for what it would have needed."""

    answer: Answer
    stream: str
    recalls: Sequence[tuple[MonitorRow, Sequence[str]]]


class Reporting:
    """A report on its way: answered in a transaction, which may be tried again.

    Args:
        grant: makes the grants, and writes them.
        recall: told of whom they would have needed, once they are on stable storage.
    """

    def __init__(
        self,
        grant: Callable[[Writer], Coroutine[Any, Any, _Granting]],
        recall: Callable[[_Granting], None],
    ) -> None:
        self._grant = grant
        self._recall = recall
        self._granting: _Granting | None = None

    async def write(self, tx: Writer) -> None:
        """Make the grants in a transaction that holds the head."""
        self._granting = await self._grant(tx)

    def answer(self) -> Answer:
        """What to answer, once that transaction has ended well. On the event loop."""
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
        self._known: dict[tuple[int, int], Monitor] = {}  # by id and epoch
        self._readings: dict[int, Reading] = {}  # by id
        self._watched: dict[tuple[int, str], Watched] = {}
        self._generations: dict[int, int] = {}  # of the streams, when they were read last
        self._current_s = -math.inf
        self._recalled_s: dict[int, float] = {}
        self._looks = Looks(self._look, _LOOK_S)
        self._failing = Seldom(_log)

    # ------------------------------------------------------------------------------- definitions

    def read_spec(self, stream: Stream, form: object) -> Spec:
        """A spec that a stream can be watched by.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain, or the family
                of the stream does not answer it.
            InvalidRequestError: its webhook is not allowed, it lists more than MOST_SITES, or the
                server has no clock of the stream's unit.
        """
        params = stream.recipe.params
        spec = spec_from_dict(form, time_unit=params.time_unit)
        Monitor.of("monitor", 0, _threshold(spec), stream.recipe)
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
        """Define a monitor, or another one under its name; whether it is new. The same spec again
        changes nothing.

        Raises:
            TooManyMonitorsError: there are as many as may be.
            UnknownStreamError: the stream was deleted since.
            StorageError: it may or may not have happened.
        """
        now_us = self._aggregator.now_us()

        async def define(tx: Writer) -> tuple[MonitorRow, bool]:
            return await store.define(
                tx, (stream.id, stream.name), name, spec.to_dict(), now_us=now_us,
                of_stream=self._settings.max_stream_monitors, in_all=self._settings.max_monitors,
            )  # fmt: skip

        _, new = await self._storage.write(define)
        await self.look()
        return self.watched(stream, name), new

    async def remove(self, stream: Stream, name: str) -> None:
        """Delete a monitor.

        Raises:
            UnknownMonitorError: there is none.
        """
        if not await self._storage.write(lambda tx: store.remove(tx, stream.id, name)):
            raise UnknownMonitorError(stream.name, name)
        await self.look()

    def watched(self, stream: Stream, name: str) -> Watched:
        """What was found out last.

        Raises:
            UnknownMonitorError: this process knows of none of this name.
        """
        try:
            return self._as_of_now(self._watched[stream.id, name])
        except KeyError:
            raise UnknownMonitorError(stream.name, name) from None

    async def find(self, stream: Stream, name: str) -> Watched:
        """The same, even if another process has only just defined it.

        Raises:
            UnknownMonitorError: there is none.
            StorageError: this process knows of none, and cannot look.
        """
        if (stream.id, name) not in self._watched:
            await self._looks.later()
        return self.watched(stream, name)

    def of_stream(self, stream: Stream) -> list[Watched]:
        """Those of a stream, in order of name."""
        mine = [each for each in self._watched.values() if each.row.stream_id == stream.id]
        return sorted(map(self._as_of_now, mine), key=lambda each: each.row.name)

    def every(self) -> list[tuple[str, Watched]]:
        """All of them, each with the name of its stream, in order of names."""
        found = [
            (stream.name, self._as_of_now(watched))
            for (stream_id, _), watched in self._watched.items()
            if (stream := self._aggregator.stream_by_id(stream_id)) is not None
        ]
        return sorted(found, key=lambda each: (each[0], each[1].row.name))

    def _as_of_now(self, watched: Watched) -> Watched:
        """Without its state, where that was not found out for too long: leases end meanwhile."""
        age_s = asyncio.get_running_loop().time() - self._current_s
        return watched if age_s < _STALE_S else replace(watched, state=None)

    def expected(self, watched: Watched) -> Expected:
        """What the monitor will cost in reports: by the rates that the sites had, or where nothing
        is known of these, as if each had its share of what the stream holds."""
        rates = [each.rate for each in watched.accounts.values() if each.inc >= 0]
        if not rates:
            reading = self._readings.get(watched.row.id, _UNREAD)
            weight = reading.weight or reading.value
            sites = len(watched.accounts)
            known = math.isfinite(weight) and weight > 0.0
            rates = [weight / sites] * sites if sites and known else []
        return watched.monitor.expected(rates)

    # ------------------------------------------------------------------------------------ grants

    def reporting(self, stream: Stream, source: str, report: Report, rows: int) -> Reporting:
        """A report that comes with a post, which is answered in the transaction of that.

        Args:
            stream, source: whose it is.
            report: what it says.
            rows: of the post.
        """

        async def grant(tx: Writer) -> _Granting:
            return await self._grant(tx, stream, source, report, rows)

        return Reporting(grant, self._recall_all)

    async def report(self, stream: Stream, source: str, report: Report) -> Answer:
        """The answer to a report that comes without a post.

        Raises:
            RevokedSourceError: the source is refused.
            StorageError: its grants may or may not have been written; to report again is right.
        """
        stream.admit(source)
        reporting = self.reporting(stream, source, report, 0)

        async def grant(tx: Writer) -> None:
            await tx.lock_head()
            await reporting.write(tx)

        await self._storage.write(grant)
        return reporting.answer()

    async def _grant(
        self, tx: Writer, stream: Stream, source: str, report: Report, rows: int
    ) -> _Granting:
        found = await store.of_stream(tx, stream.id)
        accounts = await store.accounts_of(tx, [row.id for row in found])
        now_s = self._aggregator.now_us() / 1e6
        grants: list[Grant] = []
        recalls: list[tuple[MonitorRow, Sequence[str]]] = []
        for row in found:
            try:
                monitor = self._monitor(row, stream)
            except DecaySketchError:
                _log.exception("monitor %r of stream %r cannot be read", row.name, stream.name)
                continue
            sites = _sites(stream, monitor, accounts[row.id], source)
            if len(sites) > MOST_SITES:
                continue
            reading = self._readings.get(row.id, _UNREAD)
            granted = monitor.grant(sites, source, report, reading, now=now_s, rows=rows)
            if granted is None:
                continue
            await store.put_account(tx, row.id, source, granted.account)
            grants.append(granted.grant)
            if granted.recall:
                recalls.append((row, granted.recall))
        taking = {row.name for row in found if _takes(row, source)}
        gone = tuple(name for name in report.held if name not in taking)
        return _Granting(Answer(tuple(grants), gone), stream.name, recalls)

    def _recall_all(self, granting: _Granting) -> None:
        for row, sources in granting.recalls:
            self._recall(row, granting.stream, sources)

    # ------------------------------------------------------------------------------------ states

    async def watch(self) -> None:
        """Find out what is to be said, once: of streams that have grown, and of all each second."""
        await asyncio.sleep(_LOOK_S)
        due = self._looks.age_s >= _EVERY_S
        if not due and not any(map(self._has_grown, list(self._generations))):
            return
        try:
            await self.look()
        except StorageError as error:
            self._failing.say(logging.ERROR, "monitors are not looked at: %s", error)
        else:
            self._failing.over()

    def _has_grown(self, stream_id: int) -> bool:
        stream = self._aggregator.stream_by_id(stream_id)
        return stream is not None and stream.generation != self._generations[stream_id]

    async def look(self) -> None:
        """Read all monitors and find out what is to be said of each.

        Raises:
            StorageError: the database is out of reach.
        """
        await self._looks.now()

    async def _look(self) -> None:
        async with self._storage.reading() as rx:
            head = await rx.head()
            rows = await store.every(rx)
            accounts = await store.accounts_of(rx, [row.id for row in rows])
        before = dict(self._watched)
        if rows:
            await self._aggregator.taken(head)
        for row in rows:
            if (stream := self._aggregator.stream_by_id(row.stream_id)) is None:
                continue  # created or deleted at this moment, elsewhere
            await self._look_at(row, stream, accounts[row.id])
        present = {(row.stream_id, row.name) for row in rows}
        for key in self._watched.keys() - present:
            del self._watched[key]
        self._forget(before)
        self._current_s = asyncio.get_running_loop().time()

    async def _look_at(
        self, row: MonitorRow, stream: Stream, accounts: Mapping[str, Account]
    ) -> None:
        try:
            monitor = self._monitor(row, stream)
            sites = _sites(stream, monitor, accounts)
            old = self._watched.get((stream.id, row.name))
            watched = Watched(row, monitor, sites)
            if old is None or old.row.epoch != row.epoch:
                self._watched[stream.id, row.name] = watched
            self._generations[stream.id] = stream.generation
            now_us = self._aggregator.now_us()
            snapshot = await self._aggregator.compute(stream.snapshot)
            compute = self._aggregator.compute_of(len(snapshot))
            reading = await compute(_read, monitor, stream, snapshot, now_us)
        except DecaySketchError as error:
            self._failing.say(
                logging.ERROR, "monitor %r of stream %r: %s", row.name, stream.name, error
            )
            if (old := self._watched.get((stream.id, row.name))) is not None:
                self._watched[stream.id, row.name] = replace(old, state=None)
            return
        self._readings[row.id] = reading or _UNREAD
        state = _state(monitor, sites, reading, now_us / 1e6)
        row = await self._say(row, stream, monitor, state, now_us)
        self._watched[stream.id, row.name] = replace(watched, row=row, state=state)
        self._tell(stream, self._watched[stream.id, row.name], state)

    async def _say(
        self, row: MonitorRow, stream: Stream, monitor: Monitor, state: State, now_us: int
    ) -> MonitorRow:
        """Write what has become of the state and the alert; the row from now on."""
        spec = monitor.spec
        alert = row.alert.step(
            state.verdict, now_us / 1e6, for_s=spec.for_s, keep_firing_s=spec.keep_firing_s
        )
        if alert == row.alert and state.verdict == row.state:
            return row
        since_us = row.since_us if state.verdict == row.state else now_us
        turned = (alert.phase == "firing") != (row.alert.phase == "firing")
        url = spec.webhook if turned else None
        sequence = row.sequence + (url is not None)
        identity = f"{stream.row.incarnation}.{row.id}"

        async def say(tx: Writer) -> tuple[bool, int]:
            if not await store.move(
                tx, row, state=state.verdict, since_us=since_us, alert=alert, sequence=sequence
            ):
                return False, 0
            if url is None:
                return True, 0
            body = alerts.message(
                identity, sequence, stream.name, row.name, row.alert, alert, state
            )
            put = outbox.Alert(identity, sequence, url, body)
            return True, await outbox.insert(tx, put, now_us)

        said, given_up = await self._storage.write(say)
        for _ in range(given_up):
            self._aggregator.observer.webhook_failed(given_up=True)
        if not said:
            return row  # somebody else was first; the next look reads what he has written
        if url is not None:
            self._outbox.wake()
        return replace(
            row, state=state.verdict, since_us=since_us, alert=alert, sequence=sequence,
            version=row.version + 1,
        )  # fmt: skip

    def _tell(self, stream: Stream, watched: Watched, state: State) -> None:
        row = watched.row
        bounds = state.lower, state.upper, state.threshold
        self._aggregator.observer.watched(
            stream.name, row.name, state.verdict, bounds, len(state.silent)
        )
        if state.recall:
            self._recall(row, stream.name, state.recall)
        self.mailboxes.to_people(stream.id, "state", row.name, summary(watched))

    def _recall(self, row: MonitorRow, stream: str, sources: Iterable[str]) -> None:
        """Ask sites to post now. That may be lost: their leases end."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._recalled_s.get(row.id, -math.inf) < _RECALL_S:
            return
        self._recalled_s[row.id] = now_s
        self._aggregator.observer.recalled(stream)
        data = {"monitor": row.name, "epoch": row.epoch}
        self.mailboxes.to_sites(row.stream_id, "recall", row.name, data, frozenset(sources))

    def _forget(self, before: Mapping[tuple[int, str], Watched]) -> None:
        """Tell of what was defined since, or is no more, and keep nothing of the latter."""
        for key, watched in self._watched.items():
            old = before.get(key)
            if old is None or old.row.epoch != watched.row.epoch:
                row = watched.row
                self.mailboxes.to_sites(
                    key[0], "define", row.name, definition(row), row.spec.get("sites")
                )
        for key in before:
            if key not in self._watched:
                self.mailboxes.to_sites(key[0], "gone", key[1], {"monitor": key[1]})
                self.mailboxes.to_people(key[0], "gone", key[1], {"monitor": key[1]})
                if (stream := self._aggregator.stream_by_id(key[0])) is not None:
                    self._aggregator.observer.unwatched(stream.name, key[1])
        present = {each.row.id: each.row.epoch for each in self._watched.values()}
        streams = {each.row.stream_id for each in self._watched.values()}
        for of in (self._readings, self._recalled_s):
            for number in of.keys() - present.keys():
                del of[number]
        for number in self._generations.keys() - streams:
            del self._generations[number]
        for known in [k for k in list(self._known) if present.get(k[0]) != k[1]]:
            self._known.pop(known, None)

    def _monitor(self, row: MonitorRow, stream: Stream) -> Monitor:
        """On any thread."""
        key = row.id, row.epoch
        if key not in self._known:
            spec = _threshold(spec_from_dict(row.spec))
            self._known[key] = Monitor.of(row.name, row.epoch, spec, stream.recipe)
        return self._known[key]


def _takes(row: MonitorRow, source: str) -> bool:
    """Whether a source is one of the sites of a monitor."""
    listed = row.spec.get("sites")
    return listed is None or source in listed


def definition(row: MonitorRow) -> dict[str, Any]:
    """What a site has to know of a monitor."""
    return {"monitor": row.name, "epoch": row.epoch, "spec": dict(row.spec)}


def summary(watched: Watched) -> dict[str, Any]:
    """What is said of a monitor, without its sites."""
    row, state = watched.row, watched.state
    said: dict[str, Any] = {"monitor": row.name, "epoch": row.epoch}
    said |= {"state": "uncertain", "reason": None} if state is None else state.to_dict()
    said |= {"since": row.since_us / 1e6, "alert": row.alert.to_dict()}
    return said


def _threshold(spec: Spec) -> Threshold:
    if not isinstance(spec, Threshold):
        raise refused("kind", "this server watches thresholds alone", spec.kind, "threshold")
    return spec


def _sites(
    stream: Stream, monitor: Monitor, accounts: Mapping[str, Account], *more: str
) -> dict[str, Account]:
    """Accounts of all sites that a monitor takes: those that it lists, or every source that has
    posted or reported; none that was revoked."""
    revoked = set(stream.revoked)
    listed = monitor.spec.sites
    names = {*stream.source_names, *accounts, *more} if listed is None else set(listed)
    return {name: accounts.get(name, Account()) for name in names - revoked}


def _read(monitor: Monitor, stream: Stream, snapshot: Snapshot, now_us: int) -> Reading | None:
    """What the sketch says now; None where it has discarded what is asked. On a thread."""
    now = now_in(stream.recipe.params.time_unit, now_us * 1000)
    assert now is not None
    if snapshot.clock is not None:
        now = max(now, snapshot.clock)
    try:
        return monitor.read(snapshot.at(monitor.spec.decay, min(now, TIME_LIMIT)))
    except UnanswerableQueryError:
        return None


def _state(
    monitor: Monitor, sites: Mapping[str, Account], reading: Reading | None, now_s: float
) -> State:
    if reading is not None:
        return monitor.state(sites, reading, now_s)
    unread = monitor.state(sites, _UNREAD, now_s)
    return replace(
        unread, verdict="uncertain", reason="sketch", value=None, lower=None, upper=None, recall=()
    )
