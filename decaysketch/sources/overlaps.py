"""Overlaps of all source pairs, in one pass over the sources that heard each message.

A message that ``a`` and ``b`` both store counts for the pair at the coarser of their two own
levels, ``sum g max(u_a, u_b)`` with ``u = 1 / p``. This is the joint sample of the two alone, so a
dense third source does not degrade the pair's estimate. An interval needs the row moments, and also
the largest mass that one more row could add. This follows from the watermarks of the pair. A pair
that shares no row therefore has an upper bound above 0.

All rows must have weight 1. Their mass depends on the level alone.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError
from decaysketch.query.estimate import Estimate, inequality, part_interval
from decaysketch.query.sample import Fading, Observed, Sample, check_answerable
from decaysketch.sources import _native
from decaysketch.sources.joint import Joint

__all__ = ["MOST_SQUARE", "Overlaps", "overlaps_of", "union_sample", "unites"]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

MOST_SQUARE = 256
"""With more sources, only the pairs that share a row have memory."""

_FIRST_BITS, _MOST_BITS = 16, 21  # of the table of pairs: 64 bytes each
_PARTNERS = 24  # of a source, for which the first table has slots
_SALT = secrets.randbits(64) | 1
_EXACT, _SAMPLED, _VARIANCE, _SKEW, _CERTAIN, _ROWS, _LARGEST, _HIT = range(8)
_PART = 1 << 15  # times per step, so that temporary columns stay in cache
_HINGES = 0.15  # as in query/aggregates.py: a row with this share of the variance decides


class Overlaps(NamedTuple):
    """Amounts of source pairs, ``first <= second``. The pair of a source with itself has its own
    amount.

    Attributes:
        first, second: int64[pairs].
        cells: float64[pairs, 8], the amounts of ``matching.h``.
        joint: the joint sample that they are read from.
        fading: the decay weights of the query.
    """

    first: Int64Array
    second: Int64Array
    cells: Float64Array
    joint: Joint
    fading: Fading

    @property
    def values(self) -> Float64Array:
        """float64[pairs], over ``2^fading.magnitude``."""
        found: Float64Array = self.cells[:, _EXACT] + self.cells[:, _SAMPLED]
        return found

    def take(self, index: npt.NDArray[np.intp]) -> Overlaps:
        """Return some of the pairs."""
        return self._replace(
            first=self.first[index], second=self.second[index], cells=self.cells[index]
        )

    def estimates(self, confidence: float) -> list[Estimate]:
        """Return an estimate with its interval for each pair. About 10 us a pair."""
        cells, magnitude = self.cells, self.fading.magnitude
        missing, thinning = _steps(self)
        seen = cells[:, _HIT]
        # As in `query.count`: a hit larger than all that were seen makes them unequal.
        larger = np.where(missing > seen, missing, 0.0)
        step = np.maximum(missing, seen)
        unequal = inequality(cells[:, _SAMPLED], cells[:, _VARIANCE], cells[:, _SKEW], larger)
        interval = part_interval(
            cells[:, _EXACT], cells[:, _SAMPLED], cells[:, _VARIANCE], step, thinning,
            cells[:, _CERTAIN], confidence, unequal=unequal, seen=seen,
        )  # fmt: skip
        stderr = np.sqrt(np.maximum(cells[:, _VARIANCE], 0.5 * thinning * step * step))
        bias = self._collision_bias()
        few = (cells[:, _LARGEST] > _HINGES * cells[:, _VARIANCE]).tolist()
        ends = (np.atleast_1d(end).tolist() for end in (*interval, stderr, step))
        rows = cells[:, _ROWS].astype(np.int64).tolist()
        return [
            Estimate(
                value, lower if k > 0.0 else value, upper if k > 0.0 else value,
                error if k > 0.0 else 0.0, confidence, not k > 0.0, count, bias,
                ("few-rows",) if hinges else (),
            ).over(magnitude)
            for value, lower, upper, error, k, count, hinges in zip(*ends, rows, few, strict=True)
        ]  # fmt: skip

    def _collision_bias(self) -> float:
        """The bias of the source with most rows, for any decay."""
        largest = max(self.joint.match.states, key=len)
        ends = len(largest) - np.searchsorted(largest.times[::-1], largest.watermarks, side="right")
        units = 1.0 / largest.params.level_probabilities
        size = float(np.diff(ends, prepend=0) @ units)
        return size / 2.0 ** (largest.params.id_bits + 1)


def overlaps_of(
    joint: Joint, decay: Decay | None, now: int, outside: BoolArray | None = None
) -> Overlaps:
    """Return the amounts of every source pair in a joint sample. With more than :data:`MOST_SQUARE`
    sources, return only the pairs that share a row. With ``outside``, bool[messages], read only
    some of the messages.

    Raises:
        ParameterError: weights above 1, or more than 2^20 pairs share a row.
        UnanswerableQueryError: a source has discarded observations that the decay gives weight to.

    Complexity: O(rows + squared degrees), about 2 ns each.
    """
    params = joint.match.states[0].params
    if params.max_weight != 1:
        raise ParameterError(
            f"max_weight is {params.max_weight}; expected 1: the overlaps of all pairs are read "
            "from rows of weight 1. Ask for the count of one set, such as 'a & b'"
        )
    fading = _fading(joint, decay, now)
    count = len(joint.match.states)
    bits = 0
    if count > MOST_SQUARE:
        bits = min(max((_PARTNERS * count).bit_length(), _FIRST_BITS), _MOST_BITS)
    while True:
        slots = 1 << bits if bits else count * count
        cells, keys = _empty_cells(slots), np.zeros(slots, np.uint64)
        if _add(joint, fading, cells, keys, bits, outside):
            break
        if bits == _MOST_BITS:
            raise ParameterError(
                f"more than {1 << _MOST_BITS - 1} pairs of {count} sources share a message; name "
                "fewer sources"
            )
        bits = min(bits + 2, _MOST_BITS)
    if not bits:
        first, second = np.triu_indices(count)
        return Overlaps(first, second, cells[first * count + second], joint, fading)
    met = np.flatnonzero(keys)
    met = met[np.argsort(keys[met])]
    first, second = np.divmod(keys[met].astype(np.int64) - 1, count)
    return Overlaps(first, second, cells[met], joint, fading)


def _empty_cells(slots: int) -> Float64Array:
    """Return float64[slots, 8] of zeros, each in its own cache line."""
    size = slots * _native.AMOUNTS
    memory = np.zeros(size + _native.AMOUNTS)
    first = -memory.ctypes.data // memory.itemsize % _native.AMOUNTS
    return memory[first : first + size].reshape(slots, _native.AMOUNTS)


def _fading(joint: Joint, decay: Decay | None, now: int) -> Fading:
    """Return decay weights, scaled for the newest time that any source may know."""
    latest, marks = joint.match.latest, joint.watermarks
    if len(latest) and latest.max() > now:
        latest = latest[latest <= now]
    discarded = int(marks.max())
    known = [int(latest.max())] if len(latest) else []
    known += [min(discarded, now)] if discarded != NO_WATERMARK else []
    return check_answerable(_Marked(joint), decay, now, max(known, default=now))


class _Marked:
    """The input of the checks before a query. No row is read."""

    def __init__(self, joint: Joint) -> None:
        self.params = joint.match.states[0].params
        self.watermarks = joint.watermarks
        self.times = np.empty(0, np.int64)

    def __len__(self) -> int:
        return 0


def _add(
    joint: Joint, fading: Fading, cells: Float64Array, keys: npt.NDArray[np.uint64], bits: int,
    outside: BoolArray | None,
) -> bool:  # fmt: skip
    """Sum over messages. Return whether there was capacity for every pair."""
    match, count = joint.match, len(joint.match.states)
    units = 1.0 / match.states[0].params.level_probabilities
    decayed = _weights(fading, match.latest)
    if outside is not None:
        decayed[~outside] = 0.0
    if match.scattered:
        decayed[match.latest != match.earliest] = 0.0  # these come below
    pairs = (cells, keys, bits, count, _SALT)
    if match.histories is not None and not bits:
        _native.square(
            match.latest, match.levels, match.histories, decayed, units, joint.marks, cells
        )
    else:
        of = joint.incidences
        if not _native.overlaps(
            of.start, of.sources, of.bands, decayed, match.levels, units, *pairs
        ):
            return False
    return not match.scattered or _add_scattered(joint, fading, units, outside, pairs)


def _add_scattered(
    joint: Joint, fading: Fading, units: Float64Array, outside: BoolArray | None,
    pairs: tuple[Float64Array, npt.NDArray[np.uint64], int, int, int],
) -> bool:  # fmt: skip
    """Sum over messages whose duplicates differ in time."""
    match, found = joint.match, joint.incidences
    apart = match.latest != match.earliest
    loose = np.flatnonzero(apart if outside is None else apart & outside)
    sizes = match.degrees[loose].astype(np.int64)
    start = np.zeros(len(loose) + 1, np.int64)
    np.cumsum(sizes, out=start[1:])
    index = np.repeat(found.start[loose] - start[:-1], sizes) + np.arange(start[-1])
    times = found.times[index]
    return bool(
        _native.scattered_overlaps(
            start, found.sources[index], times, found.bands[index], _weights(fading, times),
            match.levels[loose], units, joint.marks, *pairs,
        )
    )  # fmt: skip


def _weights(fading: Fading, times: Int64Array) -> Float64Array:
    """Return decay weights, 0 for times later than the query."""
    decayed = np.empty(len(times))
    for first in range(0, len(times), _PART):
        some, to = times[first : first + _PART], decayed[first : first + _PART]
        counted = some <= fading.now
        if counted.all():
            to[:] = fading(some)
        else:
            to[:] = 0.0
            to[counted] = fading(some[counted])
    return decayed


def _steps(of: Overlaps) -> tuple[Float64Array, Float64Array]:
    """Return for each pair the largest mass of a row in the sampled bands that the decay reaches,
    and ``1 - p / 2`` of that band. See :meth:`~decaysketch.query.bands.Bands.largest_hit`.
    """
    fading, now = of.fading, of.fading.now
    marks = of.joint.marks
    p = of.joint.match.states[0].params.level_probabilities
    known = marks != NO_WATERMARK
    weights = np.zeros(marks.shape)
    weights[known] = fading(np.minimum(marks[known], now))
    step, thinning = np.zeros(len(of.first)), np.ones(len(of.first))
    before, newest = _pair(marks, of, 0), _pair(weights, of, 0)
    for level in range(1, marks.shape[1]):
        if not (before != NO_WATERMARK).any():
            break
        mark = _pair(marks, of, level)
        reached = (mark < before) & (mark < np.minimum(before, now))
        found = np.where(reached, newest / p[level], 0.0)
        thinning = np.where(found > step, 1.0 - 0.5 * p[level], thinning)
        step = np.maximum(step, found)
        before, newest = mark, _pair(weights, of, level)
    return step, thinning


def _pair(column: Any, of: Overlaps, level: int) -> Any:
    """Return the later mark, or the larger weight, of the two sources in each pair."""
    return np.maximum(column[of.first, level], column[of.second, level])


# ------------------------------------------------------------------------------------------- unions


def unites(joint: Joint) -> bool:
    """Return whether each row has one time, and a mass that its level alone decides."""
    return not joint.match.scattered and joint.match.states[0].params.max_weight == 1


def union_sample(joint: Joint, decay: Decay | None, now: int, like: Sample) -> Sample:
    """Return every message at the finest level at which a source that heard it is complete.

    A source with a finer level that heard the message would store it, so the inclusion probability
    of each seen row is known. Row by row the variance is never above that of the joint sample
    (Cohen and Kaplan 2009, discarded samples, here by time).

    Args:
        joint: a joint sample for which :func:`unites` holds.
        decay, now: of the query.
        like: the joint sample under them.
    """
    match, found, fading = joint.match, joint.incidences, _fading(joint, decay, now)
    params = match.states[0].params
    bands = np.zeros(0, np.int8)
    if len(match):
        bands = np.minimum.reduceat(found.bands, found.start[:-1])
    decayed = _weights(fading, match.latest)
    rows = np.flatnonzero(decayed > 0.0)
    rows = rows[np.lexsort((-match.latest[rows], bands[rows] > 0))]
    known = int(np.count_nonzero(bands[rows] == 0))
    decayed, units = decayed[rows], 1.0 / params.level_probabilities[bands[rows]]
    masses, ones = decayed * units, np.ones(len(rows), np.int64)
    alone = np.arange(len(match.states))
    own = Overlaps(alone, alone, np.zeros((0, _native.AMOUNTS)), joint, fading)
    steps, thinning = _steps(own)
    widest = int(steps.argmax())
    return replace(
        like, origin=None, redraw=None, later=None, hits_within=None, magnitude=fading.magnitude,
        observed=Observed(
            match.value_keys[rows], match.latest[rows], match.ids[rows], bands[rows], ones
        ),
        weights=ones, decayed=decayed, masses=masses, variances=masses * (masses - decayed),
        jumps=masses, exact_rows=known, known_rows=known, step=float(steps[widest]),
        thinning=float(thinning[widest]),
    )  # fmt: skip
