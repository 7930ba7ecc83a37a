"""The last reading of each device: silent devices, active devices, and their values.

An observation sample does not contain this: a discarded observation leaves no trace of its device.
A sketch with *devices* as its only ids does. There the latest duplicate represents an observation
(``querytime/state.py``), so a row is a device's last reading. Duplicates, disorder and any merge
tree change nothing. With no more devices than the capacity, it is a complete table, and exact. With
more, it is a device sample. Counts and means are then estimates, and it discards the longest silent
devices first.

It knows the last readings at the time of its newest one, and nothing about earlier times. A device
that sent readings yesterday and today was not silent yesterday, but no row shows that. So queries
for an earlier time are not answered.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.contract.snapshot import Snapshot
from decaysketch.core.labels import label_of, values_of
from decaysketch.core.observations import observation_ids
from decaysketch.core.params import SketchParams
from decaysketch.core.time_units import Instant, duration, in_units
from decaysketch.decay import Decay, none, window
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.query.estimate import Estimate
from decaysketch.querytime.sketch import DecaySketch
from decaysketch.querytime.snapshot import QueryTimeSnapshot

__all__ = ["Device", "Devices"]

Int64Array = npt.NDArray[np.int64]
Key = str | int | bytes | tuple[str | int | bytes, ...]


class Device(NamedTuple):
    """A device's last reading.

    Attributes:
        name: name of the device. None if names are not stored.
        id: the hash of its name.
        value: None if it was missing.
        time: time of the reading.
    """

    name: str | None
    id: int
    value: float | int | str | None
    time: int


class Devices:
    """The last readings of devices, at the time of the newest one.

    Args:
        readings: a :class:`~decaysketch.DecaySketch`, or its snapshot, with weights 1 and devices
            as
            ids: ``observation_ids(device, params=)``.
        names: the same with labels: its values are the device names. None: devices have no names.

    Raises:
        ParameterError: a sketch of another family, with other weights, or with several hash
            functions.

    Example:
        >>> import decaysketch as ds
        >>> params = ds.SketchParams(capacity=1000, time_unit="s")
        >>> readings = ds.DecaySketch(params)
        >>> keys = ["t-1", "t-2", "t-1"]  # t-1 spoke twice
        >>> ids = ds.observation_ids(keys, params=params)
        >>> readings.update([20.5, 19.0, 21.0], 1, [100, 160, 3700], ids)
        >>> devices = ds.Devices(readings)
        >>> devices.last("t-1")
        Device(name='t-1', id=..., value=21.0, time=3700)
        >>> devices.active("1h", now=3800).value
        1.0
        >>> devices.silent("1h", now=3800)[0].time
        160
    """

    def __init__(
        self, readings: DecaySketch | Snapshot, names: DecaySketch | Snapshot | None = None
    ) -> None:
        self._readings = _table(readings, "readings")
        self._names = None if names is None else _table(names, "names")
        if self._names is not None and self._names.params.value_type != "label":
            raise ParameterError(
                f"names are of value_type {self._names.params.value_type!r}; expected 'label'"
            )

    @staticmethod
    def name_of(device: Key) -> str:
        """Return a device as text: a text unchanged, bytes in hex, everything else as JSON."""
        return label_of(device)

    @property
    def params(self) -> SketchParams:
        """Parameters of the readings."""
        return self._readings.params

    def __len__(self) -> int:
        """Number of stored devices."""
        return len(self._readings)

    @property
    def newest(self) -> int | None:
        """Time of the newest reading. Queries for earlier times are not answered. None if there
        is none.
        """
        return self._readings.newest

    @property
    def complete_since(self) -> int | None:
        """Every device with a reading later than this is stored. None: every device is."""
        return self._readings.complete_since[0]

    # ----------------------------------------------------------------------------------- one device

    def last(self, device: Key) -> Device | None:
        """Return a device's last reading, or None if it never sent one. O(log n), once O(n log n).

        Raises:
            UnanswerableQueryError: it is not stored, and may have been discarded.
        """
        parts = device if isinstance(device, tuple) else (device,)
        wanted = int(observation_ids(*([part] for part in parts), params=self.params)[0])
        ids, rows = self._by_id
        place = int(ids.searchsorted(wanted))
        if place < len(ids) and ids[place] == wanted:
            (found,) = self._devices(rows[place : place + 1])
            return found._replace(name=self.name_of(device))
        if self.complete_since is None:
            return None
        raise UnanswerableQueryError(
            f"{self.name_of(device)!r} has no stored reading: it never sent one, or none since "
            f"time {self.complete_since} ({self.params.time_unit}), and the sketch has discarded "
            "devices up to that time, because there are more than its capacity of "
            f"{self.params.capacity}"
        )

    # ---------------------------------------------------------------------------------- all of them

    def active(
        self, width: Any, now: Instant | None = None, *, confidence: float = 0.95
    ) -> Estimate:
        """Return how many distinct devices sent a reading within a time. Exact if no device with
        such a reading was discarded.

        Args:
            width: in the stream's unit, or as ``"1h"``.
            now: the newest reading's time, or later.
            confidence: confidence of the interval.

        Raises:
            UnanswerableQueryError: ``now`` is earlier, or the window reaches back further than the
                stored sample.
        """
        decay = window(self._width(width))
        found: Estimate = self._view(decay, now).ask("count", confidence=confidence)
        return found

    def silent_count(
        self, width: Any, now: Instant | None = None, *, confidence: float = 0.95
    ) -> Estimate:
        """Return how many devices sent no reading within a time, but did before.

        Raises:
            UnanswerableQueryError: as :meth:`active`, or devices were discarded without a trace.
        """
        at, before = self._at(now), window(self._width(width))
        pair = self._readings.against((none(), at), (before, at))
        return pair.ask("count", confidence=confidence)

    def mean(
        self,
        width: Any | None = None,
        now: Instant | None = None,
        *,
        confidence: float = 0.95,
    ) -> Estimate:
        """Return the mean over last values: for devices with a reading within a time, or for all.

        Raises:
            UnanswerableQueryError: as :meth:`active`.
            ParameterError: the values are labels.
        """
        decay = none() if width is None else window(self._width(width))
        found: Estimate = self._view(decay, now).ask("mean", confidence=confidence)
        return found

    def silent(
        self, width: Any, now: Instant | None = None, *, limit: int | None = None
    ) -> list[Device]:
        """Return the devices without a reading within a time, the longest silent first.

        Args:
            width: in the stream's unit, or as ``"1h"``.
            now: the newest reading's time, or later.
            limit: maximum number of devices.

        Raises:
            UnanswerableQueryError: ``now`` is earlier, or devices were discarded. Discarded devices
                are the longest silent ones. :meth:`silent_count` then returns how many there are.

        Complexity: O(n + limit).
        """
        since = self._at(now) - int(self._width(width))
        if self.complete_since is not None:
            raise UnanswerableQueryError(
                "the sketch has discarded devices with a last reading at time "
                f"{self.complete_since} ({self.params.time_unit}) or before, the longest silent "
                f"ones, because there are more devices than its capacity, {self.params.capacity}; "
                "silent_count estimates how many are silent"
            )
        times = self._readings.states[0].times  # latest first
        first = len(times) - int(times[::-1].searchsorted(since, side="left"))
        return self._devices(np.arange(len(times) - 1, first - 1, -1)[:limit])

    def listed(self, limit: int | None = None) -> list[Device]:
        """Return the stored devices, latest reading first."""
        return self._devices(np.arange(len(self))[:limit])

    # -------------------------------------------------------------------------------------- reading

    def _width(self, width: Any) -> float:
        return float(duration(width, self.params.time_unit, name="width"))

    def _at(self, now: Instant | None) -> int:
        """Return a time that a query may have."""
        at = self._readings.latest if now is None else in_units(now, self.params.time_unit)
        if self.newest is not None and at < self.newest:
            raise UnanswerableQueryError(
                f"now is {at}, and the newest reading is of time {self.newest} "
                f"({self.params.time_unit}); expected that or a later time, because only the last "
                "reading of a device is stored"
            )
        return int(at)

    def _view(self, decay: Decay, now: Instant | None) -> Any:
        return self._readings.at(decay, self._at(now))

    @cached_property
    def _by_id(self) -> tuple[Int64Array, npt.NDArray[np.intp]]:
        return _sorted_ids(self._readings)

    @cached_property
    def _names_by_id(self) -> tuple[Int64Array, npt.NDArray[np.intp]]:
        assert self._names is not None
        return _sorted_ids(self._names)

    def _devices(self, rows: npt.NDArray[np.intp]) -> list[Device]:
        """Return the devices in some rows. Only these rows are decoded."""
        state = self._readings.states[0]
        ids = state.ids[rows]
        values, times = _values(self._readings, rows), state.times[rows].tolist()
        found = zip(self._names_of(ids), ids.tolist(), values, times, strict=True)
        return [Device(*each) for each in found]

    def _names_of(self, ids: Int64Array) -> list[str | None]:
        names: list[str | None] = [None] * len(ids)
        if self._names is None or not len(self._names):
            return names
        known, rows = self._names_by_id
        places = known.searchsorted(ids)
        held = np.flatnonzero(known[places.clip(max=len(known) - 1)] == ids)
        for place, name in zip(held, _values(self._names, rows[places[held]]), strict=True):
            names[place] = name
        return names


def _sorted_ids(table: QueryTimeSnapshot) -> tuple[Int64Array, npt.NDArray[np.intp]]:
    """Return ids in order, and the row of each."""
    ids = table.states[0].ids
    order = ids.argsort()
    return ids[order], order


def _values(table: QueryTimeSnapshot, rows: npt.NDArray[np.intp]) -> list[Any]:
    """Return row values, None where missing."""
    keys = table.states[0].value_keys[rows]
    values, missing = values_of(keys, table.params.value_type, table.labels)
    return [None if none else value for value, none in zip(values.tolist(), missing, strict=True)]


def _table(held: DecaySketch | Snapshot, what: str) -> QueryTimeSnapshot:
    snapshot = held.snapshot() if isinstance(held, DecaySketch) else held
    if not isinstance(snapshot, QueryTimeSnapshot):
        raise ParameterError(f"{what} are a {type(held).__name__}; expected a DecaySketch")
    params = snapshot.params
    if params.max_weight != 1 or params.copies != 1:
        raise ParameterError(
            f"{what} have max_weight {params.max_weight} and copies {params.copies}; expected 1 "
            "and 1: a device is one observation"
        )
    return snapshot
