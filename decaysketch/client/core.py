"""The client's state machine, without network I/O.

A transport calls :meth:`Core.next_step`, performs the step, and reports the outcome to
:meth:`Core.settle`. It makes no decisions. :class:`~decaysketch.client.store.Store` keeps all
unacknowledged data. A failing disk stops new deltas, but not the delivery of existing ones, which
frees space.

For a source that participates in monitors, :class:`~decaysketch.client.monitor_source.Watch`
decides when to post or to report. Every post with the last sealed data is a report too. The
transport brings events to :meth:`Core.hear`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from decaysketch.client.delivery import (
    Answer,
    Backoff,
    Held,
    Later,
    Outcome,
    Paused,
    Refused,
    Taken,
    judge,
)
from decaysketch.client.errors import ClientError, SpoolInUseError, StreamUnknownError
from decaysketch.client.monitor_source import Watch
from decaysketch.client.policy import Policy
from decaysketch.client.spool import SpooledDelta
from decaysketch.client.status import Event, Status
from decaysketch.client.store import Store, differences
from decaysketch.client.trust import certificate_fault
from decaysketch.errors import DecaySketchError, ParameterError
from decaysketch.families import Recipe, recipe_from_dict
from decaysketch.monitor import Report

__all__ = ["Core", "Request", "Wait"]

_log = logging.getLogger("decaysketch.client")
_LEVELS = {"acknowledged": logging.DEBUG, "failed": logging.INFO}  # the others: warnings


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send.

    Attributes:
        delta: the delta to deliver, if any.
        report: the report to monitors, with the delta or alone. A request without both reads the
            stream or its events.
    """

    method: str
    path: str
    params: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    delta: SpooledDelta | None = None
    report: Report | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Request-specific headers."""
        if self.content is None:
            return {}
        if self.delta is None:
            return {"content-type": "application/json"}
        own = {"content-type": "application/octet-stream"}
        return own if self.report is None else own | self.report.headers()


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for this many seconds, or until woken. None: until woken."""

    seconds: float | None


class Core:
    """Everything in a client except the transport. Thread-safe.

    Attributes:
        wake: set by the transport, called when there is work.
        running: whether the transport sends.
        attempts: number of finished requests.
        watch: the monitor state of a participating source, or None.
    """

    def __init__(
        self,
        stream: str,
        source: str,
        spool: str | os.PathLike[str],
        policy: Policy,
        *,
        numbered: bool = False,
        recipe: Recipe | None = None,
        id_key: bytes | None = None,
        on_event: Callable[[Event], None] | None = None,
        monitors: bool = False,
        clock: Callable[[], float] = time.monotonic,
        randomness: random.Random | None = None,
    ) -> None:
        self.stream, self.source, self.policy = stream, source, policy
        self.wake: Callable[[], None] = lambda: None
        self.running = False
        self.attempts = 0
        self._id_key, self._on_event, self._clock = id_key, on_event, clock
        self._events: deque[Event] = deque()
        randomness = randomness or random.Random()
        self._backoff = Backoff(policy.backoff_s, policy.max_backoff_s, randomness)
        self._disk_backoff = Backoff(policy.backoff_s, policy.max_backoff_s, randomness)
        self._not_before = self._told_not_before = self._disk_not_before = 0.0
        self._found: Recipe | None = None  # of the stream, where it is not ours any more
        self._looked = False  # at the stream, and it is ours
        self._paused: str | None = None
        self._last_error: str | None = None
        self._last_token: str | None = None
        self._posts = self._posted_bytes = self._failed_bytes = 0
        self.store = Store(
            stream, source, spool, policy,
            numbered=numbered, recipe=recipe, id_key=id_key, clock=clock, note=self._note,
            draw_epoch=lambda: randomness.getrandbits(64),
        )  # fmt: skip
        self.watch: Watch | None = None
        if monitors:
            self.watch = Watch(
                self.store.spool, policy, self.store.aggregator_clock, clock=clock,
                randomness=randomness,
            )  # fmt: skip
            self.store.accepted, self.store.sealing = self.watch.accepted, self.watch.sealing
            try:
                self._begin_watch()
            except BaseException:
                self.store.close()
                raise
        self._follow_backoff = Backoff(policy.backoff_s, policy.max_backoff_s, randomness)
        self._tell_events()

    def _begin_watch(self) -> None:
        if self.watch is not None and self.known:
            self.watch.begin(self.store.recipe)

    @property
    def known(self) -> bool:
        """Whether the stream's sketch configuration is known."""
        return self.store.known

    @property
    def recipe(self) -> Recipe:
        """The stream's sketch configuration.

        Raises:
            StreamUnknownError: it is not known yet.
        """
        try:
            return self.store.recipe
        except StreamUnknownError as fault:
            why = f": {self._last_error}" if self._last_error else "; start the sensor first"
            raise StreamUnknownError(f"{fault}{why}") from None

    # -------------------------------------------------------------------------------- observations

    def update(self, arguments: dict[str, Any], *, named_by: str) -> int:
        """Add rows identified by "ids", "sequence" or "key". Return their number."""
        _ = self.recipe
        rows, wake = self.store.update(arguments, named_by=named_by)
        if wake:
            self.wake()
        return rows

    def advance(self, now: int) -> None:
        """Set the time. See ``advance`` of the sketch."""
        self.store.advance(now)
        self.wake()

    def sync(self) -> None:
        """Write everything to disk."""
        _ = self.recipe
        self.store.sync()

    def seal(self) -> int:
        """Make a delta from all rows that are in none. Return the seal's number."""
        return self.store.seal()

    # --------------------------------------------------------------------------------- the network

    def look(self) -> Request:
        """Request the stream's sketch configuration."""
        return Request("GET", f"/v1/streams/{quote(self.stream, safe='')}")

    def next_step(self) -> Request | Wait | None:
        """Return the next request, or how long to wait. None: the client is closed."""
        try:
            with self.store.files:
                return None if self.store.closed else self._next_step()
        finally:
            self._tell_events()

    def _next_step(self) -> Request | Wait:
        self._seal_what_is_due()
        waits = [self._seal_at()]
        wanted = None
        if self.watch is not None:
            if self.watch.unsaved:
                self._on_disk(self.watch.save)
            wanted = self.watch.due()
            waits.append(self.watch.wake_at() if wanted is None else None)
        if self.store.spool.deltas or wanted is not None:
            now = self._clock()
            if now < self._not_before:
                waits.append(self._not_before)
            elif not self._looked:
                return self.look()
            else:
                if wanted == "post" and not self.store.spool.deltas:
                    self._on_disk(self.store.seal)
                self._on_disk(lambda: self.store.waiting.merge(now, 1))
                if (found := self.store.waiting.next(now)) is not None:
                    return self._post(*found)
                if wanted == "renew" or (wanted == "post" and self._all_is_there):
                    return self._report(posting=wanted == "post")
                waits.append(self.store.waiting.next_held_at())
                if not self.store.packed:
                    waits.append(self._disk_not_before)
        until = min((moment for moment in waits if moment is not None), default=None)
        never = until is None or math.isinf(until)
        return Wait(None if until is None or never else max(until - self._clock(), 0.0))

    @property
    def _all_is_there(self) -> bool:
        """Return whether the aggregator has everything that was sealed."""
        return self.store.packed and not self.store.spool.deltas

    def _seal_at(self) -> float | None:
        due = self.store.due_at()
        return None if due is None else max(due, self._disk_not_before)

    def _seal_what_is_due(self) -> None:
        due = self.store.due_at()
        if due is not None and due <= self._clock():
            self._on_disk(self.store.seal)

    def _on_disk(self, work: Callable[[], object]) -> None:
        """Run a disk operation unless the disk failed a moment ago.

        A failure loses nothing: data that could not move stay where they were.
        """
        if self._clock() < self._disk_not_before:
            return
        try:
            work()
        except (OSError, SpoolInUseError) as fault:
            self._disk_not_before = self._clock() + self._disk_backoff.next_s()
            self._last_error = _disk_fault(fault)
            self._note("failed", self._last_error)
        else:
            self._disk_backoff.reset()

    def _post(self, chosen: SpooledDelta, blob: bytes) -> Request:
        params = {"source": self.source}
        if chosen.interval is not None:
            params |= {"first": str(chosen.interval.first), "next": str(chosen.interval.next)}
        report = None
        if self.watch is not None and self.store.packed and len(self.store.spool.deltas) == 1:
            report = self.watch.report(posting=True)
        return Request("POST", f"{self.look().path}/sketches", params, blob, chosen, report)

    def _report(self, *, posting: bool) -> Request:
        assert self.watch is not None, "a report is due to it"
        report = self.watch.report(posting=posting)
        content = json.dumps(report.to_dict(), separators=(",", ":")).encode()
        path = f"{self.look().path}/reports"
        return Request("POST", path, {"source": self.source}, content, report=report)

    def settle(self, request: Request, result: Answer | Exception) -> None:
        """Record the outcome of a request."""
        with self.store.files:
            self.attempts += 1
            if self.store.closed:
                return  # the next sensor repeats deltas acknowledged since
            try:
                if request.delta is not None:
                    self._settle_post(request.delta, request.report, result)
                elif request.report is not None:
                    self._settle_report(request.report, result)
                else:
                    self._settle_look(result)
            except (OSError, SpoolInUseError) as fault:
                self._fail(Later(_disk_fault(fault)))
            finally:
                if self.watch is not None and request.report is not None:
                    self.watch.failed(request.report)
        self._tell_events()

    def _settle_look(self, result: Answer | Exception) -> None:
        outcome = _outcome(result, {})
        if not isinstance(outcome, Taken):
            self._fail(outcome if isinstance(outcome, Later) else Paused(outcome.reason))
            return
        fields = outcome.fields
        form = {
            name: fields[name]
            for name in ("family", "params", "decay")
            if fields.get(name) is not None
        }
        try:
            found = recipe_from_dict(form, id_key=self._id_key)
            if not self.known:
                self.store.begin(found)
            if self.watch is not None and not self.watch.begun:
                self._begin_watch()
        except (DecaySketchError, TypeError, ValueError) as fault:
            self._fail(
                Later(f"the server's response about stream {self.stream!r} is invalid: {fault}")
            )
            return
        if fields_that_differ := differences(self.recipe, found):
            self._found = found
            listed = "; ".join(
                f"{name}: {a!r} -> {b!r}" for name, (a, b) in fields_that_differ.items()
            )
            self._fail(
                Paused(
                    f"stream {self.stream!r} was created again with other parameters ({listed}); "
                    "unsent data was built with the old ones and stays in the spool"
                )
            )
            return
        self._found, self._looked, self._paused = None, True, None
        clock = self.store.aggregator_clock
        clock.max_skew_s = _seconds(fields.get("max_clock_skew_s"))
        clock.max_lead_s = _seconds(fields.get("max_clock_lead_s"))
        self._hear(result)

    def _settle_post(
        self, delta: SpooledDelta, report: Report | None, result: Answer | Exception
    ) -> None:
        outcome = _outcome(result, {"stream": self.stream, "source": self.source})
        if isinstance(outcome, Taken):
            self.store.waiting.remove(delta)
            self._posts += 1
            self._posted_bytes += delta.size
            self._paused = self._last_error = None
            self._last_token = outcome.fields.get("token", self._last_token)
            self._succeeded(result)
            if report is not None:
                self._take_grants(report, outcome.fields)
            self._note("acknowledged", f"{delta.size} bytes", outcome.fields)
            return
        self._failed_bytes += delta.size
        if isinstance(outcome, Refused):
            self.store.waiting.reject(delta, outcome.problem)
            self._last_error = outcome.reason
            self._note("rejected", f"delta {delta.name}: {outcome.reason}", outcome.problem)
        elif isinstance(outcome, Held):
            self.store.waiting.hold(
                delta, self._clock(), too_long=outcome.too_long, after_s=outcome.after_s
            )
            self._last_error = outcome.reason
            self._hear(result)
            self._note("held", f"delta {delta.name}: {outcome.reason}")
        else:
            failures = self.store.waiting.failures
            failures[delta.number] = failures.get(delta.number, 0) + 1
            self._fail(outcome)

    def _settle_report(self, report: Report, result: Answer | Exception) -> None:
        outcome = _outcome(result, {})
        if isinstance(outcome, Taken):
            self._paused = self._last_error = None
            self._succeeded(result)
            self._take_grants(report, outcome.fields)
        else:
            self._fail(outcome if isinstance(outcome, Later) else Paused(outcome.reason))

    def _take_grants(self, report: Report, fields: Mapping[str, Any]) -> None:
        assert self.watch is not None, "a report was its"
        try:
            self.watch.answered(report, fields)
        except ParameterError as fault:
            self._doubt(f"a grant from the server is invalid: {fault}")

    def _doubt(self, what: str) -> None:
        self._last_error = what
        self._note("failed", what)

    def _succeeded(self, result: Answer | Exception) -> None:
        self._backoff.reset()
        self._not_before = self._told_not_before = 0.0
        self._hear(result)

    def _hear(self, result: Answer | Exception) -> None:
        if isinstance(result, Answer):
            self.store.aggregator_clock.hear(result.headers)

    def _fail(self, outcome: Later | Paused) -> None:
        now = self._clock()
        self._last_error = outcome.reason
        if isinstance(outcome, Paused):
            self._paused, self._looked = outcome.reason, False
            self._not_before = now + self.policy.max_backoff_s
            self._note("paused", outcome.reason)
        else:
            self._told_not_before = now + outcome.after_s
            self._not_before = now + max(self._backoff.next_s(), outcome.after_s)
            self._note("failed", outcome.reason)

    def stumbled(self, fault: Exception) -> Wait:
        """Record an unexpected error. Return the seconds to wait."""
        _log.error("%s/%s: the sender met an error", self.stream, self.source, exc_info=fault)
        with self.store.files:
            self._fail(Later(f"{type(fault).__name__}: {fault}"))
        self._tell_events()
        return Wait(self.retry_in_s)

    def hurry(self) -> None:
        """Retry at once, unless the server named a time."""
        self._not_before = self._told_not_before
        self.wake()

    def settled(self, seal: int) -> bool:
        """Return whether everything up to this seal is delivered, except held deltas."""
        return self.store.waiting.settled(seal)

    def adopt(self) -> int:
        """Continue with the stream's new parameters and move unsent data aside. Return the delta
        count.

        Raises:
            ClientError: the stream is not known to have changed.
        """
        with self.store.files:
            if self._found is None:
                raise ClientError(f"stream {self.stream!r} is not known to have other parameters")
            count = self.store.adopt(self._found)
            self._begin_watch()
            self._found = self._paused = None
            self._not_before = 0.0
        self.wake()
        return count

    # ---------------------------------------------------------------------------------- its events

    def follow(self) -> Request:
        """Request the events of the stream's monitors."""
        return Request("GET", f"{self.look().path}/events", {"source": self.source})

    def heard(self, kind: str, data: str) -> None:
        """Process an event. The sender performs any step that it requires."""
        assert self.watch is not None, "who is no site follows nothing"
        self._follow_backoff.reset()
        self.watch.follows(True)
        try:
            self.watch.hear(kind, data)
        except ParameterError as fault:
            with self.store.files:
                self._doubt(f"an event from the server is invalid: {fault}")
            self._tell_events()
        self.wake()

    def parted(self, why: str) -> float:
        """The event connection ended. Return the seconds until the next attempt."""
        assert self.watch is not None, "who is no site follows nothing"
        _log.debug("%s/%s: no events of monitors: %s", self.stream, self.source, why)
        self.watch.follows(False)
        self.wake()
        return self._follow_backoff.next_s()

    # ---------------------------------------------------------------------------------- its report

    @property
    def retry_in_s(self) -> float:
        """Seconds until a request may be sent."""
        return max(self._not_before - self._clock(), 0.0)

    @property
    def paused(self) -> str | None:
        """The reason why nothing is sent."""
        return self._paused

    def status(self) -> Status:
        """The current status."""
        store, spool = self.store, self.store.spool
        unsynced, synced = store.rows()
        deltas = tuple(spool.deltas)
        return Status(
            running=self.running,
            unsynced_rows=unsynced,
            synced_rows=synced,
            pending_deltas=len(deltas),
            pending_bytes=sum(delta.size for delta in deltas) + spool.log_size,
            spool_bytes=spool.size,
            held=len(store.waiting.held),
            rejected=spool.rejected,
            damaged=spool.damaged,
            paused=self._paused,
            last_error=self._last_error,
            last_token=self._last_token,
            posts=self._posts,
            posted_bytes=self._posted_bytes,
            failed_bytes=self._failed_bytes,
            next_number=store.next_number,
            repaired=store.repaired,
            reports=0 if self.watch is None else self.watch.reports,
            monitors=() if self.watch is None else self.watch.held(),
        )

    def close(self) -> None:
        """Seal all rows and release the spool."""
        self.store.close()

    def _note(self, kind: Any, detail: str, fields: dict[str, Any] | None = None) -> None:
        self._events.append(Event(kind, detail, fields))

    def _tell_events(self) -> None:
        """Call listeners outside of the locks, because they may read the status."""
        while True:
            try:
                event = self._events.popleft()
            except IndexError:  # empty, or another thread was first
                return
            level = _LEVELS.get(event.kind, logging.WARNING)
            _log.log(level, "%s/%s %s: %s", self.stream, self.source, event.kind, event.detail)
            if self._on_event is not None:
                try:
                    self._on_event(event)
                except Exception:
                    _log.exception("on_event failed; the sensor goes on")


def _outcome(result: Answer | Exception, expected: dict[str, str]) -> Outcome:
    if isinstance(result, Answer):
        return judge(result, expected)
    if reason := certificate_fault(result):
        return Paused(reason)
    return Later(f"{type(result).__name__}: {result}")


def _disk_fault(fault: Exception) -> str:
    return f"the spool cannot be written: {type(fault).__name__}: {fault}"


def _seconds(given: Any) -> float | None:
    return float(given) if isinstance(given, int | float) else None
