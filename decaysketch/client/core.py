"""What a sensor does, without doing any input or output over a network.

Three places hold what was given and is not acknowledged, each a :class:`Delta`:

``fresh``   in memory alone; ``update`` fills it
``open``    on disk, in the log; ``sync`` moves what is fresh there
deltas      files, each ready to be posted; ``seal`` makes one of all that is fresh and open

A transport asks :meth:`Core.next_step` what to do, does it, and tells :meth:`Core.settle` what came
of it; it decides nothing. Deltas that wait are merged before they are sent, so that a long absence
costs no more bytes than the sketch of all of it has. What a sampler numbered itself is not: its
interval is sent as the bytes that it first was.

Two locks, taken in this order: that of the files is held while the disk works, that of the memory
for moments only, so that an update never waits for a disk or a network.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np

from decaysketch.client.delivery import Answer, Backoff, Later, Paused, Refused, Taken, judge
from decaysketch.client.delta import Delta
from decaysketch.client.errors import ClientError, SpoolFullError, StreamUnknownError
from decaysketch.client.spool import LogRecord, Spool, SpooledDelta
from decaysketch.client.status import Event, Status
from decaysketch.errors import DecaySketchError, ParameterError
from decaysketch.families import Recipe, merge, recipe_from_dict

__all__ = ["Core", "Policy", "Request", "Wait"]

_log = logging.getLogger("decaysketch.client")
_LEVELS = {"acknowledged": logging.DEBUG, "failed": logging.INFO}  # the others: warnings
_FIRST_GUESS_BYTES = 16.0  # of a row in a delta, until there was one
_WAITING_DELTAS = 16  # more than these are merged even when nothing can be sent


@dataclass(frozen=True, kw_only=True)
class Policy:
    """When to make deltas, and how hard to try; see :class:`decaysketch.client.Sensor`."""

    flush_rows: int = 10_000
    flush_bytes: int = 256 * 1024
    flush_age_s: float = 10.0
    max_spool_bytes: int = 256 * 1024 * 1024
    max_post_bytes: int = 8 * 1024 * 1024
    backoff_s: float = 0.5
    max_backoff_s: float = 60.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ParameterError(f"{name} is {value!r}; expected more than 0")


@dataclass(frozen=True, slots=True)
class Request:
    """Something to be sent; ``delta`` is what it delivers, None where it asks for the stream."""

    method: str
    path: str
    params: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    delta: SpooledDelta | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for so many seconds, or until woken; None: until woken."""

    seconds: float | None


class Core:
    """All of a sensor but its transport. Thread-safe."""

    def __init__(
        self,
        stream: str,
        source: str,
        spool: str | os.PathLike[str],
        policy: Policy,
        *,
        numbered: bool = False,
        recipe: Recipe[Any] | None = None,
        id_key: bytes | None = None,
        on_event: Callable[[Event], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        randomness: random.Random | None = None,
    ) -> None:
        self.stream, self.source, self.policy, self.numbered = stream, source, policy, numbered
        self.wake: Callable[[], None] = lambda: None  # the transport's
        self._id_key, self._on_event, self._clock = id_key, on_event, clock
        self._files, self._memory = threading.Lock(), threading.Lock()
        self._events: deque[Event] = deque()
        self._closed = False
        self.attempts = 0  # requests that were settled
        self._backoff = Backoff(
            policy.backoff_s, policy.max_backoff_s, randomness or random.Random()
        )
        self._not_before = self._told_not_before = self._disk_not_before = 0.0
        self._recipe: Recipe[Any] | None = None
        self._found: Recipe[Any] | None = None  # of the stream, where it is not ours any more
        self._looked = False  # at the stream, and it is ours
        self._paused: str | None = None
        self._last_error: str | None = None
        self._last_token: str | None = None
        self._posts = self._posted_bytes = self._failed_bytes = 0
        self._failures: dict[int, int] = {}
        self._seals = 0
        self._seal_of: dict[int, int] = {}  # by delta: the first seal that is in it
        self._bytes_per_row = _FIRST_GUESS_BYTES
        self._open: Delta | None = None
        self._late: Delta | None = None  # fresh no more, and not yet on disk
        self._oldest: float | None = None  # when the first of what is not sealed was given
        self._spool = Spool(spool)
        try:
            self._read_card(recipe)
        except BaseException:
            self._spool.close()
            raise
        self._tell_events()

    def _read_card(self, recipe: Recipe[Any] | None) -> None:
        card = self._spool.read_card()
        self._next = 0
        if card is not None:
            for name in ("stream", "source", "numbered"):
                if card.get(name) != getattr(self, name):
                    raise ClientError(
                        f"spool {self._spool.directory} is of {name} {card.get(name)!r}; expected "
                        f"{getattr(self, name)!r}: give each sensor a spool of its own"
                    )
            self._next = int(card.get("next_number") or 0)
            kept = recipe_from_dict(card["recipe"], id_key=self._id_key)
            if recipe is not None and (fields := _differences(kept, recipe)):
                raise ClientError(
                    f"spool {self._spool.directory} was filled with another recipe: {fields}"
                )
            recipe = kept
        if recipe is not None:
            self._begin(recipe)

    def _begin(self, recipe: Recipe[Any]) -> None:
        """Build by this recipe from now on; what an earlier process left is made deltas."""
        if self.numbered and recipe.family not in ("sum", "median"):
            raise ClientError(
                f"stream {self.stream!r} is of family {recipe.family!r}; numbered is True, which "
                "is for the families sum and median: observations have ids instead"
            )
        self._recipe = recipe
        for delta in self._spool.deltas:
            self._seal_of[delta.number] = 0
            if delta.interval is not None:
                self._next = max(self._next, delta.interval.next)
        self._write_card()
        for part in self._recovered():
            self._add_delta(part)
        self._spool.clear_log()
        self._fresh = self._empty()

    def _recovered(self) -> list[Delta]:
        """What the log holds, and no delta does."""
        records, broken = self._spool.read_log()
        if broken:
            self._note("damaged", "the end of the spool's log was unreadable; it is in damaged/")
        parts: list[Delta] = []
        for record in records:
            if record.interval is not None and record.interval.first < self._next:
                continue
            try:
                sketch = self.recipe.decode(record.blob)
            except DecaySketchError as fault:
                self._spool.keep_damaged(record.blob, str(fault))
                self._note("damaged", f"a record of the spool's log was no sketch: {fault}")
                continue
            first, end = record.interval or (None, None)
            part = Delta(sketch, len(sketch), True, first, end)
            if parts and parts[-1].next == part.first:
                joined = Delta.join([parts.pop(), part])
                assert joined is not None
                part = joined
            parts.append(part)
        return [part for part in parts if part.interval is None or part.rows]

    def _write_card(self) -> None:
        self._spool.write_card(
            {
                "stream": self.stream,
                "source": self.source,
                "numbered": self.numbered,
                "recipe": self.recipe.to_dict(),
                "next_number": self._next if self.numbered else None,
            }
        )

    def _empty(self) -> Delta:
        return Delta.empty(self.recipe, self.source, self._next if self.numbered else None)

    @property
    def known(self) -> bool:
        """Whether it is known what the stream is built with."""
        return self._recipe is not None

    @property
    def recipe(self) -> Recipe[Any]:
        """What the stream is built with.

        Raises:
            StreamUnknownError: it is not known yet.
        """
        if self._recipe is None:
            why = f": {self._last_error}" if self._last_error else "; start the sensor first"
            raise StreamUnknownError(
                f"it is not known what stream {self.stream!r} is built with{why}"
            )
        return self._recipe

    # ------------------------------------------------------------------------------- what is given

    def update(self, arguments: dict[str, Any], *, elements: bool) -> int:
        """Feed rows; their number."""
        recipe = self.recipe
        self._check_not_closed()
        sampler = recipe.family in ("sum", "median")
        if sampler != elements:
            raise ClientError(
                f"stream {self.stream!r} is of family {recipe.family!r}; feed it by "
                f"{'update_elements' if sampler else 'update'}"
            )
        if elements:
            numbered = arguments.get("sequence") is None
            if numbered != self.numbered:
                raise ClientError(
                    f"sequence is {'missing' if numbered else 'given'}; expected it exactly where "
                    f"the sensor does not number elements itself (numbered is {self.numbered})"
                )
            if not numbered:
                arguments["source"] = self.source
        if self._spool.size >= self.policy.max_spool_bytes:
            raise SpoolFullError(
                f"the spool holds {self._spool.size} bytes; expected less than "
                f"{self.policy.max_spool_bytes} (max_spool_bytes): nothing of the update was taken"
            )
        with self._memory:
            fresh = self._fresh
            fresh.sketch.update(**arguments)
            rows = int(np.size(arguments["timestamps"]))
            fresh.rows += rows
            fresh.told = fresh.told or arguments.get("now") is not None
            if fresh.next is not None:
                fresh.next = self._next = fresh.sketch.next_number
            if self._oldest is None:
                self._oldest = self._clock()
                wake = True
            else:
                wake = self._is_large()
        if wake:
            self.wake()
        return rows

    def advance(self, now: int) -> None:
        """Tell the time; see ``advance`` of the sketch."""
        self._check_not_closed()
        if self.recipe.family == "decay":
            raise ClientError(f"stream {self.stream!r} is of family 'decay', which has no clock")
        with self._memory:
            self._fresh.sketch.advance(now)
            self._fresh.told = True
            if self._oldest is None:
                self._oldest = self._clock()
        self.wake()

    def _unsealed_rows(self) -> int:
        parts = (self._open, self._late, self._fresh)
        return sum(part.rows for part in parts if part is not None)

    def _is_large(self) -> bool:
        rows = self._unsealed_rows()
        return (
            rows >= self.policy.flush_rows or rows * self._bytes_per_row >= self.policy.flush_bytes
        )

    # --------------------------------------------------------------------------------- on the disk

    def sync(self) -> None:
        """Have all that was given on disk."""
        with self._files:
            self._check_not_closed()
            self._take_fresh()
            if self._late is not None:
                blob = self._late.sketch.to_bytes()
                self._spool.append(LogRecord(blob, self._late.interval))
                self._open, self._late = Delta.join([self._open, self._late]), None

    def _take_fresh(self) -> None:
        with self._memory:
            self._late = Delta.join([self._late, self._fresh])
            self._fresh = self._empty()

    def seal(self) -> int:
        """Make a delta of all that is not in one; the number of this seal."""
        with self._files:
            self._check_not_closed()
            self._seal()
            return self._seals

    def _check_not_closed(self) -> None:
        if self._closed:
            raise ClientError("the sensor is closed")

    def _seal(self) -> None:
        self._take_fresh()
        delta = Delta.join([self._open, self._late])
        if delta:
            self._add_delta(delta)
            self._open = self._late = None
            with self._memory:
                self._oldest = self._clock() if self._fresh.rows or self._fresh.told else None
            self._spool.clear_log()
            self._merge_waiting(_WAITING_DELTAS)

    def _add_delta(self, delta: Delta) -> None:
        blob = delta.sketch.to_bytes()
        spooled = self._spool.add(blob, delta.interval)
        self._seals += 1
        self._seal_of[spooled.number] = self._seals
        self._bytes_per_row = max(len(blob) / max(delta.rows, 1), 0.01)
        if delta.interval is not None:
            self._next = max(self._next, delta.interval.next)
            self._write_card()

    def _merge_waiting(self, allowed: int) -> None:
        """Merge waiting deltas if there are more than so many, as far as they fit into a post."""
        if self.numbered or len(self._spool.deltas) <= allowed:
            return
        while self._merge_some():
            continue

    def _merge_some(self) -> bool:
        """Merge the smallest deltas into one; False if no two fit into a post."""
        some, size = [], 0
        for spooled in sorted(self._spool.deltas, key=lambda each: each.size):
            size += spooled.size
            if size > self.policy.max_post_bytes:
                break
            if (sketch := self._decode(self._spool.read(spooled), spooled)) is not None:
                some.append((spooled, sketch))
        if len(some) < 2:
            return False
        merged = self._spool.add(merge([sketch for _, sketch in some]).to_bytes())
        self._seal_of[merged.number] = min(self._seal_of[part.number] for part, _ in some)
        for part, _ in some:
            self._remove(part)
        return True

    def _decode(self, blob: bytes, spooled: SpooledDelta) -> Any:
        """The sketch of a delta; None where it is none, and set aside."""
        try:
            return self.recipe.decode(blob)
        except DecaySketchError as fault:
            self._spool.set_damaged(spooled, str(fault))
            self._forget(spooled)
            self._note("damaged", f"delta {spooled.name} cannot be read: {fault}")
            return None

    def _remove(self, spooled: SpooledDelta) -> None:
        self._spool.remove(spooled)
        self._forget(spooled)

    def _forget(self, spooled: SpooledDelta) -> None:
        self._seal_of.pop(spooled.number, None)
        self._failures.pop(spooled.number, None)

    # --------------------------------------------------------------------------------- the network

    def look(self) -> Request:
        """Ask what the stream is built with."""
        return Request("GET", f"/v1/streams/{quote(self.stream, safe='')}")

    def next_step(self) -> Request | Wait | None:
        """What to send now, or how long there is nothing to send; None: it is closed."""
        try:
            with self._files:
                if self._closed:
                    return None
                try:
                    return self._next_step()
                except OSError as fault:
                    self._fail_on_disk(fault)
                    return Wait(self._disk_not_before - self._clock())
        finally:
            self._tell_events()

    def _next_step(self) -> Request | Wait:
        now = self._clock()
        if now < self._disk_not_before:
            return Wait(self._disk_not_before - now)
        with self._memory:
            oldest, large = self._oldest, self._is_large()
        until_old = None if oldest is None else oldest + self.policy.flush_age_s - now
        if until_old is not None and (until_old <= 0 or large):
            self._seal()
            until_old = None
        if not self._spool.deltas:
            return Wait(until_old)
        until_allowed = self._not_before - now
        if until_allowed > 0:
            return Wait(until_allowed if until_old is None else min(until_allowed, until_old))
        if not self._looked:
            return self.look()
        self._merge_waiting(1)
        while self._spool.deltas:
            chosen = min(
                self._spool.deltas,
                key=lambda each: (self._failures.get(each.number, 0), each.number),
            )
            blob = self._spool.read(chosen)
            if self._decode(blob, chosen) is not None:
                return self._post(chosen, blob)
        return Wait(until_old)

    def _post(self, chosen: SpooledDelta, blob: bytes) -> Request:
        params = {"source": self.source}
        if chosen.interval is not None:
            params |= {"first": str(chosen.interval.first), "next": str(chosen.interval.next)}
        return Request("POST", f"{self.look().path}/sketches", params, blob, chosen)

    def settle(self, request: Request, result: Answer | Exception) -> None:
        """Take note of what came of a request."""
        with self._files:
            self.attempts += 1
            try:
                if self._closed:
                    return  # what was acknowledged meanwhile is sent once more, by the next sensor
                if request.delta is None:
                    self._settle_look(result)
                else:
                    self._settle_post(request.delta, result)
            except OSError as fault:
                self._fail_on_disk(fault)
        self._tell_events()

    def _settle_look(self, result: Answer | Exception) -> None:
        outcome = _outcome(result, {})
        if not isinstance(outcome, Taken):
            if isinstance(outcome, Refused):
                outcome = Paused(outcome.reason)
            self._fail(outcome)
            return
        form = {
            name: outcome.fields[name]
            for name in ("family", "params", "decay")
            if outcome.fields.get(name) is not None
        }
        try:
            found = recipe_from_dict(form, id_key=self._id_key)
            if self._recipe is None:
                self._begin(found)
        except (DecaySketchError, TypeError) as fault:
            self._fail(
                Later(f"what the server says of stream {self.stream!r} is not usable: {fault}")
            )
            return
        if differences := _differences(self.recipe, found):
            self._found = found
            listed = "; ".join(f"{name}: {a!r} -> {b!r}" for name, (a, b) in differences.items())
            self._fail(
                Paused(
                    f"stream {self.stream!r} was created again with other parameters ({listed}); "
                    "what was not sent was built with the old ones and stays in the spool"
                )
            )
            return
        self._found, self._looked, self._paused = None, True, None

    def _settle_post(self, delta: SpooledDelta, result: Answer | Exception) -> None:
        outcome = _outcome(result, {"stream": self.stream, "source": self.source})
        if isinstance(outcome, Taken):
            self._remove(delta)
            self._posts += 1
            self._posted_bytes += delta.size
            self._paused = self._last_error = None
            self._last_token = outcome.fields.get("token", self._last_token)
            self._backoff.reset()
            self._not_before = self._told_not_before = 0.0
            self._note("acknowledged", f"{delta.size} bytes", outcome.fields)
            return
        self._failed_bytes += delta.size
        if isinstance(outcome, Refused):
            self._spool.reject(delta, outcome.problem)
            self._forget(delta)
            self._last_error = outcome.reason
            self._note("rejected", f"delta {delta.name}: {outcome.reason}", outcome.problem)
            return
        self._failures[delta.number] = self._failures.get(delta.number, 0) + 1
        self._fail(outcome)

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

    def _fail_on_disk(self, fault: OSError) -> None:
        """Nothing is lost: what could not be moved is where it was."""
        self._fail(Later(f"the spool cannot be written: {type(fault).__name__}: {fault}"))
        self._disk_not_before = self._not_before

    def hurry(self) -> None:
        """Try again at once, unless the server named a time."""
        self._not_before = self._told_not_before
        self.wake()

    def settled(self, seal: int) -> bool:
        """Whether nothing waits that was sealed up to this seal."""
        return all(number > seal for number in tuple(self._seal_of.values()))

    def adopt(self) -> int:
        """Build by what the stream is now; what was not sent is set aside. How many deltas.

        Raises:
            ClientError: the stream is not known to be another one.
        """
        with self._files:
            if self._found is None:
                raise ClientError(f"stream {self.stream!r} is not known to have other parameters")
            self._seal()
            note = {"status": None, "detail": "built with parameters that the stream had before"}
            left = list(self._spool.deltas)
            for delta in left:
                self._spool.reject(delta, note)
                self._forget(delta)
            with self._memory:
                self._recipe, self._found, self._paused = self._found, None, None
                self._fresh = self._empty()
            self._write_card()
            self._not_before = 0.0
        self.wake()
        return len(left)

    # ---------------------------------------------------------------------------------- its report

    @property
    def retry_in_s(self) -> float:
        """Seconds until something may be sent."""
        return max(self._not_before - self._clock(), 0.0)

    @property
    def paused(self) -> str | None:
        """Why nothing is sent."""
        return self._paused

    def status(self) -> Status:
        """How things stand."""
        with self._memory:
            fresh = self._fresh.rows if self.known else 0
            late = 0 if self._late is None else self._late.rows
            synced = 0 if self._open is None else self._open.rows
        deltas = tuple(self._spool.deltas)
        return Status(
            unsynced_rows=fresh + late,
            synced_rows=synced,
            pending_deltas=len(deltas),
            pending_bytes=sum(delta.size for delta in deltas) + self._spool.log_size,
            spool_bytes=self._spool.size,
            rejected=self._spool.rejected,
            damaged=self._spool.damaged,
            paused=self._paused,
            last_error=self._last_error,
            last_token=self._last_token,
            posts=self._posts,
            posted_bytes=self._posted_bytes,
            failed_bytes=self._failed_bytes,
            next_number=self._next if self.numbered else None,
        )

    def close(self) -> None:
        """Seal what there is and let the spool go."""
        with self._files:
            if self._closed:
                return
            self._closed = True
            try:
                if self.known:
                    self._seal()
            finally:
                self._spool.close()

    def _note(self, kind: Any, detail: str, fields: dict[str, Any] | None = None) -> None:
        self._events.append(Event(kind, detail, fields))

    def _tell_events(self) -> None:
        """Outside of the locks: whoever listens may ask for the status."""
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


def _outcome(result: Answer | Exception, expected: dict[str, str]) -> Any:
    if isinstance(result, Answer):
        return judge(result, expected)
    return Later(f"{type(result).__name__}: {result}")


def _differences(ours: Recipe[Any], theirs: Recipe[Any]) -> dict[str, tuple[Any, Any]]:
    """What keeps sketches of ours out of a stream of theirs: a smaller capacity as well."""
    fields = ours.differences(theirs)
    if not fields and ours.params.capacity < theirs.params.capacity:
        fields["capacity"] = (ours.params.capacity, theirs.params.capacity)
    return fields
