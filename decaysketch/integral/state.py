"""The canonical state of an integral sketch: a stated function of its input.

The state is a function of the parameters, the decay ``f``, the set of rows seen, and the clock,
which is the latest time that the sketch received (``NO_CLOCK`` before the first). Rows with equal
(id, weight) are duplicates of one observation, represented by the latest: the maximum by
(timestamp, value). An observation with weight ``w`` represents the integers ``max_weight id + j``,
``0 <= j < f(w, 0)``, for a mixed id. ``T_i`` contains each observation with an integer that level
``i`` selects, and ``Delta_i`` is the first selected ``j``. At age ``x`` the integers
``j < f(w, x)`` are left, so that in ``T_i`` an observation with time ``t`` expires at

    expiry_i = t + min{x : f(w, x) <= Delta_i}

(Cormode, Tirthapura and Xu, definition 3.1 and lemma 3.5), or at 2^63 - 1 where that is later.
With the capacity ``tau``,

* ``watermarks[i]`` is the later of the clock and the largest ``E`` such that more than ``tau``
  observations in ``T_i`` expire at ``E`` or later.
* An observation is kept if and only if it expires later than ``watermarks[i]`` in some ``T_i``.

Then the observations in ``T_i`` that expire later than ``watermarks[i]`` are the paper's sample
``S_i``, with all ties at a cut discarded together, and each is stored once. ``T_{i+1}`` is a subset
of ``T_i`` in which everything expires no later. Hence watermarks do not rise with the level. The
levels that keep an observation need not be adjacent.

The clock is part of the state. A sketch may drop expired observations at any moment: no query at a
later time can detect it. If the sketch did so by a clock that it does not record (the paper's
algorithm 2), the state would depend on the arrival order. Two sketches that differ in the queries
they support would then count as equal.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.labels import Labels
from decaysketch.core.params import SketchParams
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay.integral import IntegralDecay

__all__ = ["NO_CLOCK", "IntegralState", "spec_of"]

Int64Array = npt.NDArray[np.int64]

NO_CLOCK = NO_WATERMARK  # earlier than every time


def spec_of(decay: IntegralDecay) -> bytes:
    """Return the JSON form of a decay. Sketches merge if it is equal. It identifies tables by
    digest.
    """
    return json.dumps(decay.to_dict(), sort_keys=True, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True, slots=True, eq=False)
class IntegralState:
    """Rows, watermarks and clock. Rows are ordered by time, then id, then weight, all descending.

    Attributes:
        params: parameters, with the capacity in force.
        decay: the sketch's decay.
        clock: the latest time that the sketch received, or ``NO_CLOCK``.
        value_keys: int64[n]; see :mod:`decaysketch.core.observations`.
        weights: int64[n], 1..max_weight.
        times: int64[n].
        ids: int64[n], as given (not mixed).
        watermarks: int64[M + 1], non-increasing, none before the clock. ``NO_CLOCK`` if there
            is no clock and nothing was discarded.
        labels: the rows' labels, if values are labels.

    All arrays are read-only.
    """

    params: SketchParams
    decay: IntegralDecay
    clock: int
    value_keys: Int64Array
    weights: Int64Array
    times: Int64Array
    ids: Int64Array
    watermarks: Int64Array
    labels: Labels | None = None

    def __post_init__(self) -> None:
        for name in ("value_keys", "weights", "times", "ids", "watermarks"):
            getattr(self, name).setflags(write=False)

    def __reduce__(self) -> tuple[type[IntegralState], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field) for field in self.__dataclass_fields__)

    def __len__(self) -> int:
        return len(self.times)

    def digest(self) -> str:
        """SHA-256 of parameters, decay, clock, watermarks and rows, in hex. It stays the same
        if the wire format changes.
        """
        digest = hashlib.sha256(self.params.fingerprint)
        digest.update(self.decay.steps(self.params.max_weight).digest)
        digest.update(spec_of(self.decay))
        digest.update(self.params.capacity.to_bytes(8, "little"))
        digest.update(self.clock.to_bytes(8, "little", signed=True))
        digest.update(len(self).to_bytes(8, "little"))
        for column in (self.watermarks, self.times, self.ids, self.weights, self.value_keys):
            digest.update(column.astype("<i8", copy=False).tobytes())
        return digest.hexdigest()
