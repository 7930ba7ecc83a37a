"""The kernels of the integral sketch over NumPy columns: lengths are checked, values are not."""

import numpy as np
import numpy.typing as npt

from decaysketch.minhit._native import Hash

_Int64Array = npt.NDArray[np.int64]

STEP_BITS: int
ADMITTED_ROWS: int
ADMITTED_EVENTS: int

class Decay:
    def __init__(
        self,
        *,
        ages: _Int64Array,
        numerators: _Int64Array,
        denominators: _Int64Array,
        values: _Int64Array | None,
        rounded: npt.NDArray[np.float64],
        guesses: npt.NDArray[np.int32],
        offsets: _Int64Array,
        shift: int,
        first: int,
        halvings: int,
        wide: bool,
        losses: _Int64Array | None = None,
        caps: _Int64Array | None = None,
    ) -> None: ...

class Room:
    def __init__(
        self,
        values: _Int64Array,
        weights: _Int64Array,
        times: _Int64Array,
        ids: _Int64Array,
        first: _Int64Array,
        events: npt.NDArray[np.uint32],
        rows: int = 0,
        event_count: int = 0,
        before: Room | None = None,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def event_count(self) -> int: ...

class Batch:
    def __init__(
        self,
        values: _Int64Array | npt.NDArray[np.float64],
        weights: _Int64Array,
        times: _Int64Array,
        ids: _Int64Array,
    ) -> None: ...
    def __len__(self) -> int: ...
    def check(self, max_weight: int, id_limit: int) -> int: ...

def admit(
    hash: Hash,
    decay: Decay,
    to: Room,
    marks: _Int64Array,
    clock: int,
    batch: Batch,
    start: int,
) -> tuple[int, int]: ...
def compact(
    decay: Decay,
    room: Room,
    marks: _Int64Array,
    max_weight: int,
    capacity: int,
    salt: int,
    fates: npt.NDArray[np.uint8],
    slots: npt.NDArray[np.uint32],
    entries: npt.NDArray[np.uint64],
    far_other: int,
    far_any: int,
) -> int: ...
def append_alive(decay: Decay, room: Room, marks: _Int64Array, to: Room) -> None: ...
def held_by_level(
    decay: Decay, room: Room, marks: _Int64Array, later: _Int64Array, tied: _Int64Array
) -> None: ...
def stratum(
    decay: Decay,
    weights: _Int64Array,
    times: _Int64Array,
    until: int,
    seen: _Int64Array,
    rows: _Int64Array,
    lows: _Int64Array,
    highs: _Int64Array,
) -> int: ...
