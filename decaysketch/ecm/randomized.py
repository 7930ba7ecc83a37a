"""The paper's third sketch: Count-Min whose cells are randomized waves, keyed by ids.

It is here because the paper has it (ECM-RW: Papapetrou, Garofalakis and Deligiannakis, "Sketching
distributed sliding-window data streams", VLDB Journal 24, 2015, sections 4.2 and 5.2), and because
no counting cell has its guarantees: events may arrive in any order, repeatedly, in any
parts, and sketches merge without loss. **In production use a** :class:`~decaysketch.DecaySketch`.
It has the same guarantees, and serves every key from *one* sample, while this sketch keeps
``depth * width`` samples. It is smaller by two orders of magnitude at the same error.

*State*. An event is a key, an id and a time. Among duplicates, with equal key and id, the latest
counts. Each row gives an event a cell by its key. Each repetition of a row gives it a *level* by
its identity: l or more with probability 2^-l. For each cell and level l a repetition keeps the
``capacity`` latest events with level l or more, ties broken by identity, and a *mark*: the latest
time that was dropped. So the state is a function of the set of events. Shuffled, duplicated, split
and merged streams have exactly the state of the complete stream.

*Result*. The number of events in a window in a cell is ``2^l`` times the number kept with level l
or more, where l is the lowest level with its mark before the window: exact at level 0. The result
is the median over repetitions, then the minimum over rows. With probability ``1 - delta`` it is
within ``epsilon ||a||`` (theorem 3, with ``delta / (2 depth)`` for each cell, as the minimum is low
if any row is). There is no such guarantee for self-joins, and no guaranteed bound.

Departures:

* Identities are hashed, not positions.
* There are as many levels as 64 bits toss.
* A dropped event takes all events at its time with it, so a window is read from complete levels
  only.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.core import hashing
from decaysketch.core.hashing import derive, hash_keys
from decaysketch.core.observations import TIME_LIMIT, check_time, check_within, integer_column
from decaysketch.core.params import check_integer, check_time_unit
from decaysketch.core.row_check import TIMES
from decaysketch.core.special import ndtri
from decaysketch.core.view import Summarized
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Window
from decaysketch.ecm import sizing
from decaysketch.errors import (
    IncompatibleSketchError,
    ObservationError,
    ParameterError,
    UnanswerableQueryError,
)

__all__ = ["LEVELS", "RandomizedParams", "RandomizedSketch"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

Mode = Literal["practical", "proven"]

LEVELS = 48
MAX_CAPACITY = 1 << 20
MAX_COPIES = 1023

# Stream of derived words, next to the streams in ``core.hashing``, the samplers and the layers of
# cells. Never reuse one. Words 4 r and 4 r + 1 of it are multiplier and offset of row r, word
# 4 s + 2 is the key of the levels of sheet s.
PURPOSE_RANDOMIZED = 30

_C = 36  # of Gibbons and Tirthapura: capacity c / epsilon^2, copies c ln(1 / delta)
_MUL_1 = np.uint64(0x3C79AC492BA7B653)
_MUL_2 = np.uint64(0x1C69B3F74AC4AE35)
_HALF = np.uint64(32)


@dataclass(frozen=True)
class RandomizedParams:
    """Build parameters for a :class:`RandomizedSketch`. Sketches merge if they are equal.

    Args:
        width: cells per row, 1 to 65,535.
        depth: rows, 1 to 16.
        capacity: events kept per cell and level, 1 to 2^20.
        copies: repetitions of every row, for the median; odd, 1 to 1,023.
        seed: for hashes, 64 bits.
        time_unit: unit label for all times, 1 to 8 lower-case letters.

    Raises:
        ParameterError: a field is outside its domain.
    """

    kind: ClassVar[str] = "rw"

    width: int  # w
    depth: int  # d
    capacity: int  # tau
    copies: int = 1
    seed: int = 0
    time_unit: str = "s"

    def __post_init__(self) -> None:
        check_integer("width", self.width, 1, sizing.MAX_WIDTH)
        check_integer("depth", self.depth, 1, sizing.MAX_DEPTH)
        check_integer("capacity", self.capacity, 1, MAX_CAPACITY)
        check_integer("copies", self.copies, 1, MAX_COPIES)
        if self.copies % 2 == 0:
            raise ParameterError(f"copies is {self.copies}; expected an odd number, for a median")
        check_integer("seed", self.seed, 0, (1 << 64) - 1)
        check_time_unit(self.time_unit)

    @classmethod
    def for_accuracy(
        cls,
        epsilon: float,
        delta: float,
        *,
        mode: Mode = "practical",
        seed: int = 0,
        time_unit: str = "s",
    ) -> Self:
        """Return parameters by theorem 3: counts within ``epsilon ||a||`` with probability 1 -
        delta.

        Args:
            epsilon, delta: between 0 and 1.
            mode: "proven": capacity ``36 / epsilon^2`` and ``36 ln(1 / delta_sw)`` repetitions,
                with ``delta_sw = delta / (2 depth)``, by Chernoff's bound. "practical": one
                repetition, with the capacity ``2 z^2 / epsilon^2`` at which approximately normal
                errors are as rare (a level that is read has half a capacity or more).
            seed, time_unit: as in the class.

        Raises:
            ParameterError: an argument outside its domain, or too large a sketch.
        """
        if mode not in get_args(Mode):
            raise ParameterError(f"mode is {mode!r}; expected one of {', '.join(get_args(Mode))}")
        size = sizing.theorem_size(epsilon, delta)  # rejects numbers outside (0, 1)
        depth = math.ceil(-math.log(delta / 2.0) * (1.0 - 1e-9))
        low = delta / (2.0 * depth)
        copies = 1
        if mode == "proven":
            factor, copies = float(_C), math.ceil(_C * -math.log(low)) | 1
        else:
            factor = 2.0 * ndtri(1.0 - 0.5 * low) ** 2
        return cls(
            width=size.width,
            depth=depth,
            capacity=math.ceil(factor / epsilon**2 * (1.0 - 1e-9)),
            copies=copies,
            seed=seed,
            time_unit=time_unit,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {"kind": self.kind} | asdict(self)

    @cached_property
    def sheets(self) -> int:
        """Sheets: repetition c of row r is number ``c depth + r``."""
        return self.copies * self.depth

    def columns(self, row: int, words: UInt64Array) -> npt.NDArray[np.intp]:
        """Cells for key words in a row: intp[m] below ``width``. Multiply-add-shift on a mix."""
        a = np.uint64(derive(self.seed, PURPOSE_RANDOMIZED, 4 * row) | 1)
        b = np.uint64(derive(self.seed, PURPOSE_RANDOMIZED, 4 * row + 1))
        high = (_mix64(words) * a + b) >> _HALF
        return ((high * np.uint64(self.width)) >> _HALF).astype(np.intp)

    def levels(self, sheet: int, identities: UInt64Array) -> npt.NDArray[np.int8]:
        """Top level of events in a sheet: int8[m], the trailing zeros of mixed identities."""
        key = np.uint64(derive(self.seed, PURPOSE_RANDOMIZED, 4 * sheet + 2))
        mixed = _mix64(identities ^ key)
        lowest = (mixed & (~mixed + np.uint64(1))).astype(np.float64)  # a power of 2, or 0
        level = np.where(lowest > 0.0, np.log2(np.maximum(lowest, 1.0)), 64.0)
        return np.minimum(level, LEVELS - 1).astype(np.int8)

    def key_word(self, index: int) -> int:
        """The ``index``-th word under which keys and ids are hashed."""
        return derive(self.seed, hashing.PURPOSE_KEY, index)


class _Sheet(NamedTuple):
    """One repetition of a row: its events by cell, then latest first, and marks.

    Attributes:
        cells: intp[n].
        times: int64[n].
        identities: uint64[n].
        levels: int8[n], top level of each.
        marks: int64[width, LEVELS], the latest time dropped from a level. ``NO_WATERMARK``
            if none was.
    """

    cells: npt.NDArray[np.intp]
    times: Int64Array
    identities: UInt64Array
    levels: npt.NDArray[np.int8]
    marks: Int64Array

    @classmethod
    def empty(cls, width: int) -> _Sheet:
        return cls(
            np.empty(0, np.intp),
            np.empty(0, np.int64),
            np.empty(0, np.uint64),
            np.empty(0, np.int8),
            np.full((width, LEVELS), NO_WATERMARK),
        )

    def joined(self, other: _Sheet, capacity: int) -> _Sheet:
        """Join both sheets. O(n log n) in the sum of their rows."""
        cells = np.concatenate([self.cells, other.cells])
        times = np.concatenate([self.times, other.times])
        identities = np.concatenate([self.identities, other.identities])
        levels = np.concatenate([self.levels, other.levels])
        # Copies: an identity is of one key, so of one cell; the latest of its rows stays.
        order = np.lexsort((-times, identities))
        first = np.ones(len(order), bool)
        first[1:] = identities[order[1:]] != identities[order[:-1]]
        order = order[first]
        order = order[np.lexsort((~identities[order], -times[order], cells[order]))]
        cells, times = cells[order], times[order]
        identities, levels = identities[order], levels[order]
        marks = np.maximum(self.marks, other.marks)
        kept = np.zeros(len(order), bool)
        rows = np.arange(len(order))  # of level l or more, by cell, latest first
        for level in range(LEVELS):
            if not len(rows):
                break
            starts = np.searchsorted(cells[rows], cells[rows])
            rank = np.arange(len(rows)) - starts
            kept[rows] |= (rank < capacity) & (levels[rows] == level)
            over = rows[rank == capacity]  # the latest that this level has no room for
            marks[cells[over], level] = np.maximum(marks[cells[over], level], times[over])
            rows = rows[levels[rows] > level]
        return _Sheet(cells[kept], times[kept], identities[kept], levels[kept], marks)

    def equals(self, other: _Sheet) -> bool:
        """Whether all columns are equal. Tuple comparison does not work for arrays."""
        columns = (self.cells, self.times, self.identities, self.marks)
        others = (other.cells, other.times, other.identities, other.marks)
        return all(map(np.array_equal, columns, others))

    def counts(self, start: int, now: int) -> Float64Array:
        """Events in each cell from ``start`` to ``now``: float64[width]. NaN if no level is
        complete.
        """
        complete = self.marks < start
        lowest = complete.argmax(axis=1)
        inside = (self.times >= start) & (self.times <= now) & (self.levels >= lowest[self.cells])
        found = np.bincount(self.cells[inside], minlength=len(lowest))
        counts: Float64Array = np.ldexp(found.astype(np.float64), lowest)
        counts[~complete.any(axis=1)] = np.nan
        return counts


class RandomizedSketch(Summarized):
    """Key counts over windows, for events that may arrive in any order and more than once.

    See the module for its definition, and why a :class:`~decaysketch.DecaySketch` is nearly always
    the better choice. Merging is idempotent, commutative and associative.

    Attributes:
        params: the build parameters.
        clock: the latest time that it saw, None if there is none.

    Example:
        >>> from decaysketch.ecm.randomized import RandomizedParams, RandomizedSketch
        >>> sketch = RandomizedSketch(RandomizedParams(width=30, depth=3, capacity=100))
        >>> sketch.update(["ann", "bob", "ann"], [10, 11, 12], ids=[1, 1, 2])
        >>> sketch.update(["ann", "bob"], [12, 11], ids=[2, 1])  # again: nothing changes
        >>> sketch.counts(["ann", "bob", "eve"], 5).tolist()
        [2.0, 1.0, 0.0]
    """

    def __init__(self, params: RandomizedParams) -> None:
        self.params = params
        self.clock: int | None = None
        self._sheets = [_Sheet.empty(params.width) for _ in range(params.sheets)]

    def update(self, keys: Any, timestamps: npt.ArrayLike, ids: Any) -> None:
        """Add events, in any order. Duplicates of known ones change nothing.

        Args:
            keys: integers, text or bytes, one for each event, or a tuple of such columns.
            timestamps: integers in the stream's time unit, at most 2^62 in magnitude.
            ids: integers, text or bytes, which distinguish a key's events.

        Raises:
            ObservationError: columns with unequal lengths, or other types. Nothing was accepted.

        Complexity: O(n log n) in the stored and the new rows, for each sheet: pass
        large batches.
        """
        columns = keys if isinstance(keys, tuple) else (keys,)
        words = hash_keys(columns, self.params.key_word)
        identities = hash_keys((*columns, ids), self.params.key_word)
        times = integer_column("timestamps", timestamps)
        if len(times) != len(words):
            raise ObservationError(
                f"columns have unequal lengths: timestamps has {len(times)} rows, keys has "
                f"{len(words)}",
                column="timestamps",
            )
        check_within("timestamps", times, TIMES)
        if not len(times):
            return
        for s, sheet in enumerate(self._sheets):
            fresh = _Sheet.empty(self.params.width)._replace(
                cells=self.params.columns(s % self.params.depth, words),
                times=times,
                identities=identities,
                levels=self.params.levels(s, identities),
            )
            self._sheets[s] = sheet.joined(fresh, self.params.capacity)
        self._see(int(times.max()))

    def merge(self, *others: RandomizedSketch) -> None:
        """Merge all events that others saw, without loss. The state is that of one sketch with all
        events.

        Raises:
            IncompatibleSketchError: parameters differ. This sketch is unchanged.

        Complexity: O(n log n) in the rows of both, for each sheet.
        """
        for other in others:
            if other.params != self.params:
                differences = {
                    field.name: (ours, theirs)
                    for field in fields(self.params)
                    if (ours := getattr(self.params, field.name))
                    != (theirs := getattr(other.params, field.name))
                }
                raise IncompatibleSketchError(differences)
        for other in others:
            self._sheets = [
                mine.joined(theirs, self.params.capacity)
                for mine, theirs in zip(self._sheets, other._sheets, strict=True)
            ]
            if other.clock is not None:
                self._see(other.clock)

    def grid(self, window: float | Window, *, now: int | None = None) -> Float64Array:
        """Return each cell's events at ages from 0 to ``window``, inclusive: float64[depth, width].

        Args:
            window: its length in time units, or a window decay.
            now: time of the query. By default the latest time seen.

        Raises:
            ParameterError: an invalid window or ``now``.
            UnanswerableQueryError: the sketch has seen nothing yet and ``now`` is not given, or a
                cell has dropped events in the window at every level.

        Complexity: O(rows).
        """
        width = window.width if isinstance(window, Window) else window
        if isinstance(width, bool) or not isinstance(width, (int, float)) or not width >= 0:
            raise ParameterError(
                f"window is {window!r}; expected a window, of 0 or more: other decays are answered "
                "by a DecaySketch"
            )
        if now is None and self.clock is None:
            raise UnanswerableQueryError("now is None and nothing was seen yet; expected a time")
        at = check_time("now", self.clock if now is None else now)
        start = max(-TIME_LIMIT, at - math.floor(min(width, 2 * TIME_LIMIT)))
        sheets = np.array([sheet.counts(start, at) for sheet in self._sheets])
        if np.isnan(sheets).any():
            raise UnanswerableQueryError(
                f"window is {window!r}, of which a cell has dropped events at each of its {LEVELS} "
                f"levels; expected a shorter one, or a capacity above {self.params.capacity}"
            )
        shape = (self.params.copies, self.params.depth, self.params.width)
        medians: Float64Array = np.median(sheets.reshape(shape), axis=0)
        return medians

    def counts(self, keys: Any, window: float | Window, *, now: int | None = None) -> Float64Array:
        """Return each key's events at ages from 0 to ``window``: float64[m]; the minimum over rows.

        Arguments and errors as :meth:`grid`, and ``keys`` as :meth:`update`. O(rows + m depth).
        """
        columns = keys if isinstance(keys, tuple) else (keys,)
        words = hash_keys(columns, self.params.key_word)
        grid = self.grid(window, now=now)
        per_row = [row[self.params.columns(r, words)] for r, row in enumerate(grid)]
        least: Float64Array = np.min(per_row, axis=0)
        return least

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(column.nbytes for sheet in self._sheets for column in sheet)

    def __len__(self) -> int:
        """Number of stored events, each as often as sheets contain it."""
        return sum(len(sheet.times) for sheet in self._sheets)

    def copy(self) -> RandomizedSketch:
        """Return an independent sketch with the same state. Arrays are shared, because none is
        written to.
        """
        twin = RandomizedSketch(self.params)
        twin.clock, twin._sheets = self.clock, list(self._sheets)
        return twin

    def __eq__(self, other: object) -> bool:
        """Whether both have the same state under the same parameters."""
        if not isinstance(other, RandomizedSketch):
            return NotImplemented
        return (
            self.params == other.params
            and self.clock == other.clock
            and all(
                mine.equals(theirs)
                for mine, theirs in zip(self._sheets, other._sheets, strict=True)
            )
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def _see(self, time: int) -> None:
        self.clock = time if self.clock is None else max(self.clock, time)

    def _summary(self) -> dict[str, Any]:
        p = self.params
        return {
            "width": p.width,
            "depth": p.depth,
            "capacity": p.capacity,
            "copies": p.copies,
            "rows": len(self),
            "clock": self.clock,
        }


def _mix64(words: UInt64Array) -> UInt64Array:
    """:func:`decaysketch.core.hashing.mix64` of a column."""
    word = words ^ (words >> np.uint64(27))
    word = word * _MUL_1
    word ^= word >> np.uint64(33)
    word = word * _MUL_2
    mixed: UInt64Array = word ^ (word >> np.uint64(27))
    return mixed
