"""A sensor's observations, until they are in a delta on disk.

Three places contain unacknowledged data:

``fresh``   in memory alone: ``update`` fills it
``open``    on disk, in the log: ``sync`` moves fresh data there
``waiting`` files, each ready to be posted: ``seal`` makes one from all fresh and open data

Sampler numbers: ``_next`` is assigned next, and belongs to the memory. ``_sealed`` comes after the
last number in a delta, and belongs to the files. Log records below it are in a delta. Delta names
contain it, and ``sensor.json`` is updated to it before a delta is removed.

In a family that counts rows for a site, the sensor is the site. Every process begins an epoch. The
fresh data are that epoch's state, and so are the log records and the deltas, each with more rows
than the one before. Counts from an earlier process stay under its epoch.

There are two locks, acquired in this order: the file lock is held while the disk works, and the
memory lock for moments only. So an update never waits for a disk or a network.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from decaysketch.client.clock import AggregatorClock
from decaysketch.client.delta import Delta
from decaysketch.client.errors import ClientError, SpoolFullError, StreamUnknownError
from decaysketch.client.policy import Policy
from decaysketch.client.send_queue import Waiting
from decaysketch.client.spool import Interval, LogRecord, Spool
from decaysketch.core.params import Differences
from decaysketch.core.plausible_times import doubt
from decaysketch.errors import DecaySketchError, TimeUnitWarning
from decaysketch.families import FAMILIES, Recipe, decode, recipe_from_dict, recipe_of

__all__ = ["Store", "differences", "recipe_in"]

_FIRST_GUESS_BYTES = 16.0  # of a row in a delta, until there was one
_FED_BY = {"ids": "update", "sequence": "update_elements", "key": "update_keys"}
_OF_SERIES = ("entities", "starts", "attributes")
_WAITING_DELTAS = 16  # more than these are merged even when nothing can be sent


class Store:
    """A sensor's memory and disk. Thread-safe.

    Args:
        stream, source, spool, policy, numbered, recipe, id_key: see
            :class:`decaysketch.client.Sensor`.
        clock: returns steady seconds.
        draw_epoch: draws 64 bits.
        note: called for each event with kind and detail.

    Attributes:
        files: the file lock. A caller that uses ``waiting`` holds it.
        waiting: deltas to be posted.
        aggregator_clock: used to reject times that lie ahead.
        repaired: damage found on disk, and how it was repaired.
        packed: whether all data in the last seal are in deltas, or gone from them.
        accepted: called with every accepted update's arguments, before the next update. It returns
            whether to notify the sender.
        sealing: called when the data accepted so far go into deltas.
    """

    def __init__(
        self,
        stream: str,
        source: str,
        spool: str | os.PathLike[str],
        policy: Policy,
        *,
        numbered: bool,
        recipe: Recipe | None,
        id_key: bytes | None,
        clock: Callable[[], float],
        draw_epoch: Callable[[], int],
        note: Callable[[Any, str], None],
    ) -> None:
        self.stream, self.source, self.policy, self.numbered = stream, source, policy, numbered
        self.files, self._memory = threading.RLock(), threading.RLock()
        self.aggregator_clock = AggregatorClock(clock)
        self.closed, self.packed = False, True
        self.accepted: Callable[[dict[str, Any]], bool] = lambda _: False
        self.sealing: Callable[[], None] = lambda: None
        self._clock, self._note, self._draw_epoch = clock, note, draw_epoch
        self._epoch = 0  # of a site
        self._recipe: Recipe | None = None
        self._bytes_per_row = _FIRST_GUESS_BYTES
        self._open: Delta | None = None
        self._late: Delta | None = None  # closed for new rows, not yet on disk
        self._oldest: float | None = None  # arrival of the oldest row that is not sealed
        self._next = self._sealed = self._carded = 0  # _carded: _sealed in sensor.json
        self.repaired: tuple[str, ...] = ()
        self._unit_warned = False  # whether the warning about an unlikely time unit was given
        self.spool = Spool(spool, self._mended)
        try:
            self.waiting = Waiting(self.spool, policy.max_post_bytes, note, self._keep_numbers)
            self._read_card(recipe, id_key)
        except BaseException:
            self.spool.close()
            raise

    # ---------------------------------------------------------------------------------- beginning

    def _mended(self, what: str) -> None:
        self.repaired += (what,)
        self._note("damaged", what)

    def _read_card(self, recipe: Recipe | None, id_key: bytes | None) -> None:
        before = len(self.repaired)
        card = self.spool.read_card()
        if card is not None:
            for name in ("stream", "source", "numbered"):
                if card.get(name) != getattr(self, name):
                    raise ClientError(
                        f"spool {self.spool.directory} is of {name} {card.get(name)!r}; expected "
                        f"{getattr(self, name)!r}: give each sensor its own spool"
                    )
            self._sealed = int(card.get("next_number") or 0)
            kept = recipe_from_dict(card["recipe"], id_key=id_key)
            if recipe is not None and (fields := differences(kept, recipe)):
                raise ClientError(
                    f"spool {self.spool.directory} was filled with another sketch configuration: "
                    f"{fields}"
                )
            recipe = kept
        elif len(self.repaired) > before or self.spool.deltas or self.spool.log_size:
            recipe = self._without_card(recipe, id_key)
        if recipe is not None:
            self.begin(recipe)

    def _without_card(self, recipe: Recipe | None, id_key: bytes | None) -> Recipe | None:
        """Return the known facts about a spool that has lost its card and the copy."""
        where = "given by the program"
        if recipe is None:
            recipe, where = recipe_in(self.spool, id_key), "read from the sketches that wait"
        if recipe is None:
            where = "asked of the server"
        numbers = (
            "; numbers continue after the deltas and the log, and if these are missing, the "
            "server rejects numbers that it has received before"
            if self.numbered
            else ""
        )
        self._mended(
            f"the spool's metadata cannot be read: stream and source are {self.stream!r} and "
            f"{self.source!r}, as given; the stream's parameters are {where}{numbers}"
        )
        return recipe

    def begin(self, recipe: Recipe) -> None:
        """Build with this sketch configuration from now on. Data from an earlier process become
        deltas.

        Raises:
            ClientError: its family does not have numbered elements.
            ParameterError: its family's sketches must not be sent again.
            OSError: the disk failed. Nothing has begun.
        """
        _check_sendable(recipe)
        if self.numbered and not _has_elements(recipe):
            numbered = [name for name, f in FAMILIES.items() if f.input.named_by == "sequence"]
            raise ClientError(
                f"stream {self.stream!r} is of family {recipe.family!r}; numbered is True, which "
                f"is for the families {' and '.join(numbered)}: observations have ids instead"
            )
        self.waiting.recipe = recipe
        for delta in self.spool.deltas:
            if delta.interval is not None:
                self._sealed = max(self._sealed, delta.interval.next)
        for part in self._recovered(recipe):
            self._add_delta(part)
        self.spool.clear_log()
        self._write_card(recipe)
        self._next = self._sealed
        self._fresh = self._begun(recipe)
        self._recipe = recipe

    def _recovered(self, recipe: Recipe) -> list[Delta]:
        """Return the data that the log contains, and no delta."""
        records, gaps = self.spool.read_log()
        for gap in gaps:
            self._mended(
                f"{gap.end - gap.start} bytes of the spool's log, from byte {gap.start}, were "
                "unreadable; they are in damaged/, and the later records are kept"
            )
        parts: list[Delta] = []
        expected = self._sealed
        for record in records:
            if record.interval is not None and record.interval.first < self._sealed:
                continue
            try:
                sketch = recipe.decode(record.blob)
            except DecaySketchError as fault:
                self.spool.keep_damaged(record.blob, str(fault), record.interval)
                self._mended(f"a record of the spool's log was no sketch: {fault}")
                continue
            first, end = record.interval or (None, None)
            if first is not None and end is not None:
                if first > expected:
                    self._mended(
                        f"the numbers {expected} to {first - 1} are in no readable record; later "
                        "numbers are kept"
                    )
                expected = end
            part = Delta(sketch, len(sketch), True, first, end)
            if parts and parts[-1].next == part.first:
                joined = Delta.join([parts.pop(), part])
                assert joined is not None
                part = joined
            parts.append(part)
        return [part for part in parts if part.interval is None or part.rows]

    def _write_card(self, recipe: Recipe) -> None:
        self.spool.write_card(
            {
                "stream": self.stream,
                "source": self.source,
                "numbered": self.numbered,
                "recipe": recipe.to_dict(),
                "next_number": self._sealed if self.numbered else None,
            }
        )
        self._carded = self._sealed

    def _keep_numbers(self, interval: Interval) -> None:
        if self._carded < interval.next:
            self._write_card(self.waiting.recipe)

    def _begun(self, recipe: Recipe) -> Delta:
        """Return an empty sketch. A site begins an epoch."""
        if recipe.kind.input.sited:
            self._epoch = self._draw_epoch()
        return self._empty(recipe)

    def _empty(self, recipe: Recipe) -> Delta:
        return Delta.empty(recipe, self.source, self._next if self.numbered else None)

    @property
    def known(self) -> bool:
        """Whether the stream's sketch configuration is known."""
        return self._recipe is not None

    @property
    def recipe(self) -> Recipe:
        """The stream's sketch configuration.

        Raises:
            StreamUnknownError: it is not known yet.
        """
        if self._recipe is None:
            raise StreamUnknownError(f"the parameters of stream {self.stream!r} are unknown")
        return self._recipe

    # -------------------------------------------------------------------------------- observations

    def update(self, arguments: dict[str, Any], *, named_by: str) -> tuple[int, bool]:
        """Feed rows, in a family with such row names. Return their number, and whether to notify
        the sender.
        """
        self.check_not_closed()
        self._check_room()
        with self._memory:
            recipe = self.recipe
            self._check_form(recipe, arguments, named_by)
            self.aggregator_clock.check(arguments, recipe.params.time_unit)
            if isinstance(now := arguments.get("now"), int):
                now = self.aggregator_clock.to_tell(now, recipe.params.time_unit)
                arguments = arguments | {"now": now}
            fresh = self._fresh
            self._warn_of_unit(arguments, recipe.params.time_unit)
            fresh.sketch.update(**arguments)
            rows = int(np.size(arguments["timestamps"]))
            fresh.rows += rows
            fresh.told = fresh.told or arguments.get("now") is not None
            if fresh.next is not None:
                fresh.next = self._next = fresh.sketch.next_number
            wake = self.accepted(arguments)
            if self._oldest is None:
                self._oldest = self._clock()
                return rows, True
            return rows, wake or self._is_large()

    def _warn_of_unit(self, arguments: dict[str, Any], unit: str) -> None:
        """Warn once that times are unlikely in the stream's unit."""
        if self._unit_warned:
            return
        times = np.asarray(arguments["timestamps"])
        if not times.size or times.dtype.kind not in "iu":
            return
        found = doubt(unit, int(times.min()), int(times.max()))
        if found is not None:
            self._unit_warned = True
            warnings.warn(
                f"stream {self.stream!r}: the times are probably not in {unit}: {found}",
                TimeUnitWarning, stacklevel=6,
            )  # fmt: skip

    def _check_room(self) -> None:
        limit = self.policy.max_spool_bytes
        if self.spool.size < limit:
            return
        with self.files:
            self.spool.measure_set_aside()
        if (size := self.spool.size) >= limit:
            raise SpoolFullError(
                f"the spool holds {size} bytes; expected less than {limit} (max_spool_bytes): the "
                "update was rejected"
            )

    def _check_form(self, recipe: Recipe, arguments: dict[str, Any], named_by: str) -> None:
        if recipe.kind.input.named_by != named_by:
            raise ClientError(
                f"stream {self.stream!r} is of family {recipe.family!r}; feed it by "
                f"{_FED_BY[recipe.kind.input.named_by]}"
            )
        given = [name for name in _OF_SERIES if name in arguments]
        if given and not recipe.kind.input.series:
            raise ClientError(
                f"{given[0]} is given, and stream {self.stream!r} is of family {recipe.family!r}; "
                "expected it only in the family 'series'"
            )
        if recipe.kind.input.sited:
            arguments |= {"source": self.source, "epoch": self._epoch}
        if named_by == "sequence":
            numbered = arguments.get("sequence") is None
            if numbered != self.numbered:
                raise ClientError(
                    f"sequence is {'missing' if numbered else 'given'}; expected it only if the "
                    f"sensor does not number elements itself (numbered is {self.numbered})"
                )
            if not numbered:
                arguments["source"] = self.source

    def advance(self, now: int) -> None:
        """Advance the clock. See the sketch's ``advance``."""
        self.check_not_closed()
        with self._memory:
            recipe = self.recipe
            if not recipe.kind.input.clock:
                raise ClientError(
                    f"stream {self.stream!r} is of family {recipe.family!r}, which has no clock"
                )
            self.aggregator_clock.check({"now": now}, recipe.params.time_unit)
            if isinstance(now, int):  # the sketch rejects all others
                now = self.aggregator_clock.to_tell(now, recipe.params.time_unit)
            self._fresh.sketch.advance(now)
            self._fresh.told = True
            if self._oldest is None:
                self._oldest = self._clock()

    def due_at(self) -> float | None:
        """Return when to seal the data that are not in a delta. None if there are none."""
        with self._memory:
            if self._oldest is None:
                return None
            return self._oldest + (0.0 if self._is_large() else self.policy.flush_age_s)

    def _is_large(self) -> bool:
        parts = (self._open, self._late, self._fresh)
        rows = sum(part.rows for part in parts if part is not None)
        return (
            rows >= self.policy.flush_rows or rows * self._bytes_per_row >= self.policy.flush_bytes
        )

    def rows(self) -> tuple[int, int]:
        """Return the number of observations in memory alone, and in the log."""
        if not self.known:
            return 0, 0
        with self._memory:
            late = 0 if self._late is None else self._late.rows
            return self._fresh.rows + late, 0 if self._open is None else self._open.rows

    @property
    def next_number(self) -> int | None:
        """Number of the next element, if the sensor numbers them."""
        return self._next if self.numbered else None

    # --------------------------------------------------------------------------------- on the disk

    def sync(self) -> None:
        """Write all accepted data to disk."""
        with self.files:
            self.check_not_closed()
            self._take_fresh()
            if self._late is not None:
                blob = self._late.sketch.to_bytes()
                self.spool.append(LogRecord(blob, self._late.interval))
                with self._memory:
                    self._open, self._late = Delta.join([self._open, self._late]), None

    def _take_fresh(self) -> None:
        with self._memory:
            fresh, recipe = self._fresh, self.recipe
            self._late = Delta.join([self._late, fresh])
            self._fresh = fresh.onward() if recipe.kind.input.sited else self._empty(recipe)

    def seal(self) -> int:
        """Make a delta from all data that are not in one. Return this seal's number."""
        with self.files:
            self.check_not_closed()
            self._seal()
            return self.waiting.seals

    def _seal(self) -> None:
        with self._memory:
            self.packed = False
            self.sealing()
            self._take_fresh()
        delta = Delta.join([self._open, self._late])
        if delta:
            self._add_delta(delta)
        with self._memory:
            if delta:
                self._open = self._late = None
            self.packed = True
            self._oldest = self._clock() if self._fresh.rows or self._fresh.told else None
        if delta:
            self.spool.clear_log()
            self.waiting.merge(self._clock(), _WAITING_DELTAS)

    def _add_delta(self, delta: Delta) -> None:
        blob = delta.sketch.to_bytes()
        self.waiting.add(blob, delta.interval)
        if not self.waiting.recipe.kind.input.sited:  # of which a row adds next to nothing
            self._bytes_per_row = max(len(blob) / max(delta.rows, 1), 0.01)
        if delta.interval is not None:
            self._sealed = max(self._sealed, delta.interval.next)

    def adopt(self, recipe: Recipe) -> int:
        """Build with another sketch configuration, and move unsent data aside. Return the number of
        deltas.

        Updates wait meanwhile, so each belongs completely to one configuration.

        Raises:
            ParameterError: its family's sketches must not be sent again. Nothing has changed.
            OSError: the disk failed. The remaining data are moved aside when they are met.
        """
        _check_sendable(recipe)
        note = {"status": None, "detail": "built with parameters that the stream had before"}
        with self.files:
            with self._memory:
                self.check_not_closed()
                self._seal()
                self._write_card(recipe)
                self._recipe = self.waiting.recipe = recipe
                self._fresh = self._begun(recipe)
            left = list(self.spool.deltas)
            for delta in left:
                self.waiting.reject(delta, note)
        return len(left)

    def check_not_closed(self) -> None:
        """Raise ClientError if it is closed."""
        if self.closed:
            raise ClientError("the sensor is closed")

    def close(self) -> None:
        """Seal all data and release the spool."""
        with self.files:
            if self.closed:
                return
            self.closed = True
            try:
                if self.known:
                    self._seal()
            finally:
                self.spool.close()


def recipe_in(spool: Spool, id_key: bytes | None) -> Recipe | None:
    """Return the stream's sketch configuration from the newest sketch in a spool that contains
    it.
    """
    for blob in _blobs(spool):
        try:
            sketch = decode(blob, id_key=id_key)
        except DecaySketchError:
            continue  # damaged, or of a decay that is a table; it is met again where it is sent
        return recipe_of(sketch)
    return None


def _check_sendable(recipe: Recipe) -> None:
    recipe.kind.check_deliverable("an aggregator that is sent a delta again")


def _has_elements(recipe: Recipe) -> bool:
    """Return whether its rows are elements that their source has numbered."""
    return recipe.kind.input.named_by == "sequence"


def _blobs(spool: Spool) -> Iterator[bytes]:
    for delta in reversed(spool.deltas):
        with suppress(OSError):
            yield spool.read(delta)
    for record in reversed(spool.peek_log()):
        yield record.blob


def differences(ours: Recipe, theirs: Recipe) -> Differences:
    """Return the differences that keep our sketches out of their stream. A smaller capacity is
    one.
    """
    fields = ours.differences(theirs)
    if not fields and ours.params.capacity < theirs.params.capacity:
        fields["capacity"] = (ours.params.capacity, theirs.params.capacity)
    return fields
