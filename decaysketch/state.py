"""The canonical state of a sketch: a stated function of its parameters and its observations.

Let ``T_i`` be the distinct observations with an integer selected at level ``i`` (an observation's
top level is the largest such ``i``), where copies with equal (id, weight) are one observation,
represented by the latest: the maximum by (timestamp, value). With the capacity ``tau``,

* ``watermarks[i]`` is the largest time ``T`` such that more than ``tau`` observations of top level
  >= ``i`` have time >= ``T``; ``NO_WATERMARK`` where there is none: nothing was discarded.
* An observation of top level ``l`` is kept if and only if its time exceeds ``watermarks[l]``.

Then the rows of top level >= ``i`` later than ``watermarks[i]`` are exactly the sample ``S_i`` of
the paper (Cormode, Tirthapura and Xu, section 4.1, with all ties at a cut discarded together), and
each row is stored once. Being a function of the *set* of copies seen, the state does not depend on
order, duplication, batching or the tree in which sketches were merged.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.params import SketchParams

__all__ = ["NO_WATERMARK", "SketchState"]

Int64Array = npt.NDArray[np.int64]

NO_WATERMARK = np.iinfo(np.int64).min  # earlier than every timestamp


@dataclass(frozen=True, slots=True, eq=False)
class SketchState:
    """Rows and watermarks in canonical order: time, then id, then weight, all descending.

    Attributes:
        params: parameters, of which the capacity is the one in force.
        value_keys: int64[n]; see :mod:`decaysketch.observations`.
        weights: int64[n], 1..max_weight.
        times: int64[n].
        ids: int64[n], as given (not mixed).
        levels: int8[n], the top level of each row.
        watermarks: int64[M + 1], non-increasing; ``NO_WATERMARK`` where nothing was discarded.

    All arrays are read-only.
    """

    params: SketchParams
    value_keys: Int64Array
    weights: Int64Array
    times: Int64Array
    ids: Int64Array
    levels: npt.NDArray[np.int8]
    watermarks: Int64Array

    def __post_init__(self) -> None:
        for name in ("value_keys", "weights", "times", "ids", "levels", "watermarks"):
            getattr(self, name).setflags(write=False)

    def __reduce__(self) -> tuple[type[SketchState], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field) for field in self.__dataclass_fields__)

    def __len__(self) -> int:
        return len(self.times)

    def digest(self) -> str:
        """SHA-256 of parameters, watermarks and rows, in hex; outlives versions of the wire."""
        digest = hashlib.sha256(self.params.fingerprint)
        digest.update(self.params.capacity.to_bytes(8, "little"))
        digest.update(len(self).to_bytes(8, "little"))
        for column in (self.watermarks, self.times, self.ids, self.weights, self.value_keys):
            digest.update(column.astype("<i8", copy=False).tobytes())
        return digest.hexdigest()
