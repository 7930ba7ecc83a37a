"""The kernels of the ECM-sketch's cells over NumPy columns, whose lengths are checked."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]
_UInt64Array = npt.NDArray[np.uint64]
_UInt32Array = npt.NDArray[np.uint32]
_Float64Array = npt.NDArray[np.float64]

MOST_ROWS: int  #: depth of a layer, at the most
LIMIT: int  #: of the number of ones

class Columns:
    def __init__(
        self, a: _UInt64Array, b: _UInt64Array, width: int, shift: int, hashed: bool
    ) -> None: ...

class Counters:
    def __init__(
        self, n: _Int64Array, times: _UInt32Array | _Int64Array, base: int, histogram: bool
    ) -> None: ...

class Lists:
    ranks: _Int64Array
    times: _Int64Array
    offsets: _Int64Array
    def __init__(self, ranks: _Int64Array, times: _Int64Array, offsets: _Int64Array) -> None: ...

def columns(of: Columns, words: _UInt64Array, out: _UInt32Array) -> None: ...
def minimum(of: Columns, grid: _Float64Array, words: _UInt64Array, out: _Float64Array) -> None: ...
def minimum_of_counts(
    of: Columns, grid: _Int64Array, words: _UInt64Array, out: _Int64Array
) -> None: ...
def total(weights: _Int64Array) -> int: ...
def heaviest(
    of: Columns, counters: Counters, words: _UInt64Array, weights: _Int64Array | None
) -> int: ...
def update(
    of: Columns,
    counters: Counters,
    words: _UInt64Array,
    times: _Int64Array,
    weights: _Int64Array | None,
    grouped: bool,
) -> None: ...
def grid(counters: Counters, start: int, lo: _Int64Array, hi: _Int64Array) -> None: ...
def values(
    counters: Counters, start: int, first: int, error: float, out: _Float64Array
) -> None: ...
def kept(n: _Int64Array, slots: int, histogram: bool, counts: _Int64Array) -> None: ...
def write(
    counters: Counters, ranks: _Int64Array, times: _Int64Array, offsets: _Int64Array
) -> None: ...
def restore(
    counters: Counters, times: _Int64Array, counts: _Int64Array, first: int, last: int
) -> bool: ...
def each(
    of: Columns,
    n: _Int64Array,
    lists: Lists,
    words: _UInt64Array,
    starts: _Int64Array,
    first: int,
    lo: _Int64Array,
    hi: _Int64Array,
) -> None: ...
def decayed(
    lists: Lists,
    weights: _Float64Array,
    now: int,
    first: int,
    oldest: float,
    lo: _Float64Array,
    hi: _Float64Array,
) -> None: ...
def compact(
    counters: Counters, sources: Sequence[tuple[_Int64Array, Lists, int | None, int]], steps: int
) -> None: ...

class Shape:
    layers: int
    cells: int
    def __init__(
        self,
        width: _Int64Array,
        depth: _Int64Array,
        slots: _Int64Array,
        histogram: bool,
        has_horizon: bool,
        arrivals: bool,
    ) -> None: ...

def pack_column(numbers: _UInt64Array) -> bytes: ...
def read_column(data: bytes, start: int, stop: int, numbers: _UInt64Array) -> int: ...
def measure_lane(
    shape: Shape, data: bytes, start: int, stop: int, most: int, room: _Int64Array
) -> tuple[int, int, int] | None: ...
def read_lane(
    shape: Shape,
    data: bytes,
    start: int,
    stop: int,
    first: int,
    last: int,
    edge: int,
    columns: _Int64Array,
) -> bool: ...
