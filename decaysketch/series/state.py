"""The canonical state: a defined function of the set of ingested rows.

A row is (entity, weight, series, time, start, value). The sketch samples the *entity* (device,
instance). A *series* is a sequence of its readings, and by default both are the same. Weights are
powers of two. A *start* is the time at which a counter began to count, if the producer reported it.

Identity
    A row is identified by (entity, weight, series, cell), where the cell is
    ``floor(time / resolution)``. Among rows with equal identity the largest by (time, start, value)
    stays, where no start and no value are the least.
Levels
    An entity with weight ``w`` and 64-bit hash U is in level i if ``U < w 2^(64 - i)``, with
    probability ``p_i = min(1, w 2^-i)``, for i = 0..40. Levels are nested. A row has its entity's
    top level.
Attributes
    If the stream declares attributes, a series is named by its id and its attributes together
    (``attributes.py``), and the state contains the attributes for every series with rows.
Watermarks
    ``marks[i]`` is the largest T such that more than ``capacity`` rows at level i or above have
    time >= T, and none if there is no such T.
State
    The rows later than the watermark at their level. From there on they are *all* rows of their
    entities, so neighbours stay neighbours.

Merging is the union, the larger watermark per level, and the same cut again. Let S(A) be the
state for A, and ``M_i`` the larger of two watermarks. A row in A at level l >= i later than
``M_i`` is later than ``m_i(A) >= m_l(A)``, so it is in S(A). Hence the identities at level i or
above later than ``M_i`` are complete in S(A) and S(B) together, and so is the latest duplicate for
each. The number of identities with time >= T does not fall when rows are added, so the union's
watermark is at least ``M_i``, and counting the rows later than ``M_i`` finds it if it is larger.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decaysketch.core.records import Records
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.series._native import NO_START
from decaysketch.series.params import SeriesParams

__all__ = ["NO_START", "SeriesState"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SeriesState:
    """The rows by (entity, weight, series, time), all ascending.

    Attributes:
        params: parameters, with the capacity in force.
        entities, weights, ids: int64[n], the series is the id.
        times: int64[n].
        starts: int64[n], ``NO_START`` if there is none.
        value_keys: int64[n], see :mod:`decaysketch.core.observations`.
        levels: int8[n], of the entity.
        watermarks: int64[41], ``NO_WATERMARK`` if nothing was discarded.
        attributes: a canonical row for each series, in series order, if the stream has attributes.

    All arrays are read-only.
    """

    params: SeriesParams
    entities: Int64Array
    weights: Int64Array
    ids: Int64Array
    times: Int64Array
    starts: Int64Array
    value_keys: Int64Array
    levels: npt.NDArray[np.int8]
    watermarks: Int64Array
    attributes: Records | None = None

    def __post_init__(self) -> None:
        for column in (*self.columns, self.watermarks):
            column.setflags(write=False)
        self.levels.setflags(write=False)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def columns(self) -> tuple[Int64Array, ...]:
        """The int64 columns, in the order of their names above."""
        return (
            self.entities, self.weights, self.ids, self.times, self.starts, self.value_keys
        )  # fmt: skip

    @property
    def clock(self) -> int:
        """A sample of series has no clock."""
        return NO_WATERMARK

    @property
    def begins(self) -> npt.NDArray[np.bool_]:
        """bool[n]: whether a row is the first in its series."""
        found = np.ones(len(self), np.bool_)
        for column in (self.entities, self.weights, self.ids):
            if len(self) > 1:
                found[1:] &= column[1:] == column[:-1]
        found[1:] = ~found[1:]
        return found

    def of_series(self, chosen: npt.NDArray[np.bool_]) -> SeriesState:
        """Return the state restricted to some series. O(rows).

        Args:
            chosen: bool[series].
        """
        rows = chosen[np.cumsum(self.begins) - 1]
        attributes = None if self.attributes is None else self.attributes[chosen]
        return SeriesState(
            self.params, self.entities[rows], self.weights[rows], self.ids[rows], self.times[rows],
            self.starts[rows], self.value_keys[rows], self.levels[rows], self.watermarks,
            attributes,
        )  # fmt: skip

    def digest(self) -> str:
        """SHA-256 of the state, in hex."""
        found = hashlib.sha256(b"decaysketch series 1")
        found.update(self.params.fingerprint)
        found.update(self.params.capacity.to_bytes(8, "little"))
        for column in (self.watermarks, *self.columns):
            found.update(np.ascontiguousarray(column, "<i8").tobytes())
        if self.attributes is not None:
            for part in self.attributes.digest_parts():
                found.update(part)
        return found.hexdigest()
