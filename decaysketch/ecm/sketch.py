"""ECMSketch: recent counts per key, from one source, under any decay that you choose at query time.

Contents
    For each lane (:mod:`decaysketch.ecm.reorder`) and layer (``params.layers``), a Count-Min sketch
    with cells that know time: the number of ones that each cell saw, and the times of some. See
    ``state.py``.
Guarantees
    A count never exceeds its ``sure_upper``, without exception. With probability ``1 - delta``
    over the choice of the hashes the paper's estimate is off by less than ``epsilon`` of the total
    (Lemma 3), for every window, and for every decay that does not rise with the age. Intervals
    follow from the spread of other cells; see ``docs/ecm.md``. Events in order, or within
    ``hold`` of it, give a state that is a function of their multiset. Later events change
    no other result.
Duplicates
    The sketch recognises no duplicates: an event that arrives twice counts twice. Posting a *state*
    twice is harmless (:mod:`decaysketch.ecm.collection`).
Paper
    Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window data streams",
    VLDB Journal 24, 2015. Departures: cells whose lists follow from counts, decays in addition to
    windows, other estimates than the minimum, disorder. Each is described in the module that makes
    it.
Limits
    A sketch is not safe to use from two threads at once. Its snapshots are.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.contract.sketch import Held
from decaysketch.core.hashing import MAX_KEY_BYTES
from decaysketch.core.observations import TIME_LIMIT, check_time, check_within, integer_column
from decaysketch.core.params import check_integer
from decaysketch.core.plausible_times import told
from decaysketch.core.row_check import TIMES, Limit
from decaysketch.core.time_units import Instant, in_units
from decaysketch.ecm import wire
from decaysketch.ecm.cells import Cells
from decaysketch.ecm.key_queries import AskedOfCells
from decaysketch.ecm.params import ECMParams
from decaysketch.ecm.reorder import Events, lane_bounds
from decaysketch.ecm.snapshot import ECMSnapshot
from decaysketch.ecm.state import ECMState, Lane, Source
from decaysketch.errors import CorruptSketchError, ObservationError, ParameterError
from decaysketch.query.keys import is_key

__all__ = [
    "ENOUGH",
    "ECMSketch",
    "ECMStats",
    "Late",
    "check_identity",
    "check_sum",
    "fits",
    "new_epoch",
    "plain_kind",
    "read_events",
]

Late = Literal["refuse", "now"]
Int64Array = npt.NDArray[np.int64]

_MAX_SEEN = wire.MAX_COUNT
ENOUGH = 512  # single events, folded in together
_SETTLE = 1 << 14  # buffered events before they are sorted
_MANY_ONES = np.ones(1 << 14, np.int64)
_MANY_ONES.setflags(write=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ECMStats:
    """Counts of accepted and stored events.

    Attributes:
        seen: weight of all counted events.
        too_late: weight of rejected events, which were older than every lane.
        moved: the part of ``seen`` that was counted at a lane's time instead.
        held: number of buffered events.
        lanes: for each, the time of its last event and the weight that it saw.
        clock: the latest time seen or received, or None.
        nbytes: memory in bytes.
    """

    seen: int
    too_late: int
    moved: int
    held: int
    lanes: tuple[tuple[int, int], ...]
    clock: int | None
    nbytes: int


class ECMSketch(Held, AskedOfCells):
    """Decayed counts, joins and heavy hitters for the keys that one source sees.

    Args:
        params: build parameters. All sources in a stream share them.
        source: name of the source, a text with up to 255 bytes or a number below 2^64.
        epoch: 64 bits that are new whenever a source starts without its state. By default the
            seconds since 1970 in the upper 40 bits, the others random. Set it if the same
            input must give the same bytes: in tests, and in jobs that may run again.

    Raises:
        ParameterError: another kind of parameters, or an invalid name or epoch.

    Example:
        >>> import decaysketch as ds
        >>> from decaysketch.ecm import ECMParams, ECMSketch
        >>> sketch = ECMSketch(ECMParams(width=55, depth=3, slots=10), source="tap-1", epoch=1)
        >>> sketch.update(["ada", "bob", "ada"], [100, 160, 190])
        >>> sketch.key_count("ada", ds.decay.window(60)).sure_upper
        1.0
        >>> sketch.key_total(ds.decay.window(100))
        Estimate(3, exact, 1 rows, now=190)
    """

    def __init__(self, params: ECMParams, *, source: Source = 0, epoch: int | None = None) -> None:
        if not isinstance(params, ECMParams):
            raise ParameterError(f"params are {params!r}; an ECMSketch takes ECMParams")
        epoch = new_epoch() if epoch is None else epoch
        check_identity(source, epoch)
        self._params = params
        self._source = source
        self._epoch = epoch
        self._clock: int | None = None
        self._lanes: list[tuple[Cells, ...]] = []
        self._seen = self._too_late = self._moved = 0
        self._merges, self._slack = 0, 0.0
        self._held: list[Events] = []  # in the order in which they came
        self._young = 0  # of them, those that came since they were put in order
        self._waiting = 0  # the others
        self._single_keys: list[Any] = []
        self._single_times: list[int] = []
        self._single_weights: list[int] = []

    # ----------------------------------------------------------------------------------- properties

    @property
    def params(self) -> ECMParams:
        return self._params

    @property
    def source(self) -> Source:
        """Name of the source that it counts for."""
        return self._source

    @property
    def epoch(self) -> int:
        """The source's epoch."""
        return self._epoch

    @property
    def clock(self) -> int | None:
        self._flush()
        return self._clock

    @property
    def seen(self) -> int:
        """Weight of all counted events, including buffered ones."""
        self._flush()
        return self._seen

    @property
    def too_late(self) -> int:
        """Weight of the rejected events, which were older than every lane."""
        self._flush()
        return self._too_late

    @property
    def moved(self) -> int:
        """Weight of the events that were counted at a lane's time instead of their own."""
        self._flush()
        return self._moved

    @property
    def nbytes(self) -> int:
        """Memory for cells and buffered events, in bytes. A snapshot comes on top."""
        cells = sum(each.nbytes for lane in self._lanes for each in lane)
        return cells + sum(24 * len(events) for events in self._held)

    def stats(self) -> ECMStats:
        """Counts of accepted and stored events. O(lanes)."""
        self._flush()
        lanes = tuple((_time_of(lane), lane[0].seen) for lane in self._lanes)
        return ECMStats(
            seen=self._seen, too_late=self._too_late, moved=self._moved,
            held=sum(map(len, self._held)), lanes=lanes, clock=self._clock, nbytes=self.nbytes,
        )  # fmt: skip

    def _summary(self) -> dict[str, Any]:
        stats, params = self.stats(), self._params
        fields: dict[str, Any] = {"source": self._source, "seen": f"{stats.seen:,}"}
        if stats.too_late:
            fields["too_late"] = f"{stats.too_late:,}"
        fields["cells"] = f"{params.depth} x {params.width}"
        fields["slots"] = params.slots
        fields["kind"] = params.kind
        fields["lanes"] = len(stats.lanes)
        if stats.clock is not None:
            fields["clock"] = told(params.time_unit, stats.clock)
        fields["seed"] = params.seed
        return fields

    # --------------------------------------------------------------------------------------- update

    def update(
        self,
        keys: Any,
        timestamps: npt.ArrayLike | None = None,
        weights: npt.ArrayLike = 1,
        *,
        late: Late = "refuse",
    ) -> None:
        """Count events: columns, or one event as a key and a plain time.

        Columns count as if they arrived in time order. :mod:`decaysketch.ecm.reorder` describes
        late events, and how late they may be.

        Args:
            keys: one key (an integer, a text, bytes, or a tuple of these), or a list or an array of
                keys with one type, or a tuple of such columns. With ``key_bits`` integers below
                ``2^key_bits``.
            timestamps: integers in the stream's ``time_unit``, at most 2^62 in magnitude. With
                ``clock="arrivals"`` None: events are numbered on arrival.
            weights: integers >= 0, this number of ones each. A weight of 0 is no event. One number
                serves all events. With ``clock="arrivals"`` 1.
            late: the handling of events that are older than every lane. "refuse" (default) counts
                them in ``too_late``, which widens upper bounds. "now" counts them at the time of
                the oldest lane, and their weight, in ``moved``, widens lower bounds.

        Raises:
            ObservationError: the first row that is out of bounds, or columns with unequal lengths
                or a wrong type, or weights that sum to 2^62. Nothing in the batch was accepted.
            ParameterError: another ``late``, or times if arrivals are counted.

        Complexity: O(depth) for each event and layer, for any weight.
        """
        if late not in get_args(Late):
            raise ParameterError(f"late is {late!r}; expected one of {', '.join(get_args(Late))}")
        if self._gather(keys, timestamps, weights, late):
            return
        self._flush()
        events = self._validated(keys, timestamps, weights)
        if len(events):
            self.take(events, late)

    def _gather(self, keys: Any, time: Any, weight: Any, late: Late) -> bool:
        """Buffer a single plain event that is in order. Return False, with nothing accepted, for
        others.

        Counting a run of events in order one by one is the same as counting it in a batch.
        """
        times = self._single_times
        if (
            type(time) is not int
            or type(weight) is not int
            or late != "refuse"
            or self._params.clock != "time"
            or type(keys) is not (type(self._single_keys[0]) if times else plain_kind(keys))
            or not -TIME_LIMIT <= time <= TIME_LIMIT
            or not (0 < weight < 1 << 32 and self._seen < 1 << 61)
            or (times and time < times[-1])
            or not fits(self._params, keys)
        ):
            return False
        self._single_keys.append(keys)
        times.append(time)
        self._single_weights.append(weight)
        if len(times) >= ENOUGH:
            self._flush()
        self._changed()
        return True

    def _flush(self) -> None:
        """Count the single events gathered so far. Each was validated on arrival."""
        if not self._single_times:
            return
        events = self._validated(self._single_keys, self._single_times, self._single_weights)
        self._single_keys, self._single_times, self._single_weights = [], [], []
        self.take(events)

    def _validated(self, keys: Any, timestamps: Any, weights: Any) -> Events:
        """Event columns in time order, none with weight 0."""
        given = read_events(self._params, keys, timestamps, weights, self._seen)
        events = given.by_time()
        ends = events.times[:: max(len(given) - 1, 1)]
        if not -TIME_LIMIT <= ends.min(initial=0) <= ends.max(initial=0) <= TIME_LIMIT:
            check_within("timestamps", given.times, TIMES)
        check_sum(self._seen + self._too_late, events.weights)
        return events.counted()

    # --------------------------------------------------------------------------- holding, and lanes

    def take(self, events: Events, late: Late = "refuse") -> None:
        """Buffer or count events: at least one, in time order, validated, none
        with weight 0; see :mod:`decaysketch.ecm.reorder`.
        """
        hold, before = self._params.hold, self._clock
        newest = int(events.times[-1])
        self._clock = newest if before is None else max(before, newest)
        self._seen += events.weight
        self._changed()
        if not hold:
            self._place(events, late)
            return
        if before is not None and events.times[0] < before - hold:
            overdue = int(np.searchsorted(events.times, before - hold))
            self._settle(before - hold)
            self._place(events.part(slice(overdue)), late)
            events = events.part(slice(overdue, None))
        self._held.append(events)
        self._young += len(events)
        if self._young >= max(_SETTLE, self._waiting):
            self._settle(self._clock - hold)

    def _settle(self, edge: int) -> None:
        """Sort the buffered events, and count those before ``edge``."""
        held = Events.joined(self._held)
        if self._young:
            held = held.canonical()
        ready = int(np.searchsorted(held.times, edge))
        self._held = [held.part(slice(ready, None))] if ready < len(held) else []
        self._young, self._waiting = 0, len(held) - ready
        if ready:
            self._place(held.part(slice(ready)), "refuse")

    def _place(self, events: Events, late: Late) -> None:
        """Count events in time order, each in its lane."""
        stop = len(events)
        for lane, start in zip(
            self._lanes, lane_bounds(events.times, list(map(_time_of, self._lanes))), strict=True
        ):
            self._feed(lane, events.part(slice(start, stop)))
            stop = start
        if not stop:
            return
        rest = events.part(slice(stop))
        if len(self._lanes) < self._params.lanes:
            params = self._params
            self._lanes.append(
                tuple(Cells(layer, params.kind, params.seed) for layer in params.layers)
            )
            self._feed(self._lanes[-1], rest)
        elif late == "refuse":
            self._seen -= rest.weight
            self._too_late += rest.weight
        else:
            self._moved += rest.weight
            at = np.full(len(rest), _time_of(self._lanes[-1]), np.int64)
            self._feed(self._lanes[-1], replace(rest, times=at))

    @staticmethod
    def _feed(lane: tuple[Cells, ...], events: Events) -> None:
        if not len(events):
            return
        weights = None if events.unit or events.weights.max() == 1 else events.weights
        for cells in lane:
            cells.update(events.words, events.times, weights)

    def advance(self, now: Instant) -> None:
        """Set the clock. Events that it makes older than ``hold`` are sorted and counted. It never
        falls.

        Raises:
            ParameterError: not a time, or a time if arrivals are counted.
        """
        now = check_time("now", in_units(now, self.params.time_unit))
        if self._params.clock == "arrivals":
            raise ParameterError(f"now is {now} and clock is 'arrivals'; only events advance that")
        self._flush()
        if self._clock is None or now > self._clock:
            self._clock = now
            self._changed()

    # ------------------------------------------------------------------------------ state and bytes

    def _is_like(self, other: object) -> bool:
        return type(other) is type(self)

    def snapshot(self) -> ECMSnapshot:
        """The current contents, immutable. Any thread may read it. O(cells) after a change, else
        O(1).
        """
        found = super().snapshot()
        assert isinstance(found, ECMSnapshot)
        return found

    def state(self) -> ECMState:
        """The current contents as defined in :mod:`decaysketch.ecm.state`."""
        state: ECMState = self.snapshot().held
        return state

    def _freeze(self) -> ECMSnapshot:
        return ECMSnapshot(self._state(), type(self).from_state)

    def _state(self) -> ECMState:
        params, clock = self._params, self._clock
        if self._held and clock is not None:
            self._settle(clock - params.hold)
        edge = None
        if params.horizon is not None and clock is not None:
            edge = max(clock - params.horizon, -TIME_LIMIT)
        return ECMState(
            params=params,
            source=self._source,
            epoch=self._epoch,
            clock=clock,
            lanes=tuple(
                Lane(params, edge, cells=tuple(cells.copy() for cells in lane))
                for lane in self._lanes
            ),
            held=Events.joined(self._held),
            too_late=self._too_late,
            moved=self._moved,
            merges=self._merges,
            slack=self._slack,
        )

    @classmethod
    def from_state(cls, state: ECMState) -> Self:
        """Return a sketch that continues from a state. O(times)."""
        sketch = cls(state.params, source=state.source, epoch=state.epoch)
        sketch._clock = state.clock
        sketch._lanes = [tuple(cells.copy() for cells in lane.cells) for lane in state.lanes]
        sketch._seen, sketch._too_late, sketch._moved = state.seen, state.too_late, state.moved
        sketch._merges, sketch._slack = state.merges, state.slack
        sketch._held, sketch._waiting = ([state.held] if len(state.held) else []), len(state.held)
        return sketch

    @classmethod
    def from_bytes(
        cls, blob: bytes | bytearray | memoryview, *, params: ECMParams | None = None
    ) -> Self:
        """Return a sketch that continues from another sketch's bytes.

        Raises:
            CorruptSketchError, IncompatibleSketchError: see :func:`decaysketch.ecm.wire.decode`;
                also if the bytes contain another number of entries than one.
        """
        found = wire.decode(blob, params=params)
        if len(found.entries) != 1 or found.told is not None:
            raise CorruptSketchError(
                f"{len(found.entries)} entries; a sketch is one, ECMCollection reads several"
            )
        return cls.from_state(found.entries[0])

    def accepts(self, events: Events) -> npt.NDArray[np.bool_]:
        """bool[m]: for events in any order, whether :meth:`take` would count or buffer them,
        and not reject them as too late. Changes nothing. O(cells + m log m).
        """
        self._flush()
        after = self.copy()
        hold, clock = self._params.hold, self._clock
        judged = np.ones(len(events), np.bool_)
        if hold and clock is not None:
            judged = events.times < clock - hold
            after._settle(clock - hold)
        if len(after._lanes) < self._params.lanes:
            return np.ones(len(events), np.bool_)
        return ~(judged & (events.times < _time_of(after._lanes[-1])))


def new_epoch() -> int:
    """64 bits: the seconds since 1970 in the upper 40, the others random."""
    return (int(time.time()) & (1 << 40) - 1) << 24 | secrets.randbits(24)


def check_identity(source: object, epoch: object) -> None:
    """Reject an invalid source or epoch.

    Raises:
        ParameterError: naming it.
    """
    if isinstance(source, str):
        if not 1 <= len(source.encode("utf-8", "surrogatepass")) <= wire.MAX_SOURCE_BYTES:
            raise ParameterError(
                f"source is {source!r}; expected 1 to {wire.MAX_SOURCE_BYTES} bytes of text"
            )
        try:
            source.encode()
        except UnicodeEncodeError:
            raise ParameterError(f"source is {source!r}; expected text that has UTF-8") from None
    elif isinstance(source, bool) or not isinstance(source, int) or not 0 <= source < 1 << 64:
        raise ParameterError(f"source is {source!r}; expected a text, or a number below 2^64")
    check_integer("epoch", epoch, 0, (1 << 64) - 1)


def read_events(
    params: ECMParams, keys: Any, timestamps: Any, weights: Any, seen: int = 0
) -> Events:
    """Return event columns as given, with weights from 0. Times are not checked yet.

    Args:
        params: the stream's parameters.
        keys, timestamps, weights: see :meth:`ECMSketch.update`.
        seen: number of earlier arrivals, if arrivals are counted.

    Raises:
        ObservationError, ParameterError: see :meth:`ECMSketch.update`.
    """
    arrivals = params.clock == "arrivals"
    if arrivals is not (timestamps is None):
        raise ParameterError(
            f"timestamps are {'given' if arrivals else 'None'} and clock is "
            f"{params.clock!r}; expected {'none' if arrivals else 'one for each key'}"
        )
    words = params.words_of([keys] if is_key(keys) else keys)
    if timestamps is None:
        times = np.arange(seen + 1, seen + 1 + len(words), dtype=np.int64)
    else:
        times = integer_column("timestamps", timestamps)
    unit = type(weights) is int and weights == 1
    each = _ones(len(words)) if unit else integer_column("weights", weights)
    if each.shape == (1,) and len(words) != 1 and np.ndim(weights) == 0:
        each = np.full(len(words), each[0], np.int64)
    for name, column in (("timestamps", times), ("weights", each)):
        if len(column) != len(words):
            raise ObservationError(
                f"columns have unequal lengths: {name} has {len(column)} rows, keys has "
                f"{len(words)}",
                column=name,
            )
    if not unit:
        most = 1 if arrivals else _MAX_SEEN
        check_within("weights", each, Limit.named(1 if arrivals else 0, most, "2^62 - 1"))
    return Events(words, times, each, unit)


def check_sum(seen: int, weights: Int64Array) -> None:
    """Reject weights that would bring the sum to 2^62."""
    if seen + int(weights.max(initial=0)) * len(weights) <= _MAX_SEEN:
        return
    total = seen + sum(weights.tolist())
    if total > _MAX_SEEN:
        raise ObservationError(
            f"weights sum up to {total}; expected less than 2^62", column="weights"
        )


def _time_of(lane: tuple[Cells, ...]) -> int:
    """Time of its last event."""
    clock = lane[0].clock
    assert clock is not None, "a lane has seen something"
    return clock


def _ones(count: int) -> Int64Array:
    """Weights of 1, read-only."""
    return _MANY_ONES[:count] if count <= len(_MANY_ONES) else np.ones(count, np.int64)


def fits(params: ECMParams, key: Any) -> bool:
    """Whether a single key with a plain type can be counted."""
    bits = params.key_bits
    if type(key) is int:
        return -(1 << 63) <= key < 1 << 63 if bits is None else 0 <= key < 1 << min(bits, 63)
    return bits is None and len(key) <= MAX_KEY_BYTES // 4  # a character has 4 bytes at most


def plain_kind(key: Any) -> type[Any] | None:
    """The type of a single key that may be buffered. None for all others."""
    kind = type(key)
    return kind if kind in (int, str, bytes) else None
