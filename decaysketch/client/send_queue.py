"""Deltas that wait for acknowledgement: choose the next one, and merge them.

Waiting deltas are merged before they are sent. So a long absence costs no more bytes than one
sketch over all its data. Deltas with a sampler's own numbers are not merged: an interval is always
sent as its first bytes. A *held* delta is not merged either, and is retried separately: the
aggregator rejects it for now, or the disk cannot read it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decaysketch.client.delivery import HELD_S
from decaysketch.client.spool import Interval, Spool, SpooledDelta
from decaysketch.errors import DecaySketchError
from decaysketch.families import Recipe, merge

__all__ = ["Waiting"]


class Waiting:
    """A spool's deltas. Not thread-safe.

    Args:
        spool: stores them.
        max_post_bytes: they are merged up to this size.
        note: called for each event with kind and detail.
        before_leaving: called with a numbered delta's interval before its file is moved or deleted.
            The file name contains the numbers.

    Attributes:
        recipe: their sketch configuration. Set it first.
        failures: how often posting each delta failed.
        held: for each held delta, the time until which it is not tried.
        seals: the number of seals.
    """

    recipe: Recipe

    def __init__(
        self,
        spool: Spool,
        max_post_bytes: int,
        note: Callable[[Any, str], None],
        before_leaving: Callable[[Interval], None],
    ) -> None:
        self.failures: dict[int, int] = {}
        self.held: dict[int, float] = {}
        self.seals = 0
        self._seal_of = {delta.number: 0 for delta in spool.deltas}  # the first that is in it
        self._spool, self._max_post_bytes = spool, max_post_bytes
        self._note, self._before_leaving = note, before_leaving

    def add(self, blob: bytes, interval: Interval | None) -> None:
        """Store one more delta. It is on disk when this returns."""
        spooled = self._spool.add(blob, interval)
        self.seals += 1
        self._seal_of[spooled.number] = self.seals

    def settled(self, seal: int) -> bool:
        """Return whether no delta up to this seal waits, except held ones."""
        held = self.held
        return all(at > seal or number in held for number, at in tuple(self._seal_of.items()))

    # ----------------------------------------------------------------------------------- next delta

    def next(self, now: float) -> tuple[SpooledDelta, bytes] | None:
        """Return the delta to post now: the oldest with the fewest failures."""
        ready = [each for each in self._spool.deltas if self.held.get(each.number, now) <= now]
        for delta in sorted(ready, key=lambda d: (self.failures.get(d.number, 0), d.number)):
            if (read := self._read(delta, now)) is not None:
                return delta, read[0]
        return None

    def next_held_at(self) -> float | None:
        """Return when a held delta may be tried again."""
        return min(self.held.values(), default=None)

    def hold(
        self, delta: SpooledDelta, now: float, *, too_long: bool = False, after_s: float = 0.0
    ) -> None:
        """Retry it later, separately: after so many seconds, if the number is given."""
        self.held[delta.number] = now + (after_s or HELD_S)
        if too_long:
            self._max_post_bytes = min(self._max_post_bytes, max(delta.size // 2, 1))

    def _read(self, delta: SpooledDelta, now: float) -> tuple[bytes, Any] | None:
        """Return a delta's bytes and sketch. None if they cannot be read."""
        try:
            blob = self._spool.read(delta)
            return blob, self.recipe.decode(blob)
        except FileNotFoundError:
            self.remove(delta)
            self._note(
                "damaged", f"delta {delta.name} is missing: another program removed its file"
            )
        except OSError as fault:
            self.hold(delta, now)
            self._note("held", f"delta {delta.name}: the spool cannot be read: {fault}")
        except DecaySketchError as fault:
            self._leave(delta)
            self._spool.set_damaged(delta, str(fault))
            self._forget(delta)
            self._note("damaged", f"delta {delta.name} cannot be read: {fault}")
        return None

    # ----------------------------------------------------------------------------------- merging

    def merge(self, now: float, allowed: int) -> None:
        """Merge them if there are more than so many, as far as they fit into a post."""
        while len(parts := self._mergeable()) > allowed and self._merge_some(parts, now):
            continue

    def _mergeable(self) -> list[SpooledDelta]:
        deltas = self._spool.deltas
        return [each for each in deltas if each.interval is None and each.number not in self.held]

    def _merge_some(self, parts: list[SpooledDelta], now: float) -> bool:
        """Merge the smallest into one. Return False if no two fit into a post."""
        some, size = [], 0
        for delta in sorted(parts, key=lambda each: each.size):
            size += delta.size
            if size > self._max_post_bytes:
                break
            if (read := self._read(delta, now)) is not None:
                some.append((delta, read[1]))
        if len(some) < 2:
            return False
        merged = self._spool.add(merge([sketch for _, sketch in some]).to_bytes())
        self._seal_of[merged.number] = min(self._seal_of[part.number] for part, _ in some)
        for part, _ in some:
            self.remove(part)
        return True

    # ----------------------------------------------------------------------------------- leaving

    def remove(self, delta: SpooledDelta) -> None:
        """Remove a delta that was acknowledged, or is part of another one."""
        self._leave(delta)
        self._spool.remove(delta)
        self._forget(delta)

    def reject(self, delta: SpooledDelta, problem: dict[str, Any]) -> None:
        """Move a delta aside that will never be accepted."""
        self._leave(delta)
        self._spool.reject(delta, problem)
        self._forget(delta)

    def _leave(self, delta: SpooledDelta) -> None:
        if delta.interval is not None:
            self._before_leaving(delta.interval)

    def _forget(self, delta: SpooledDelta) -> None:
        for facts in (self._seal_of, self.failures, self.held):
            facts.pop(delta.number, None)
