from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_Float64 = npt.NDArray[np.float64]
_Int8 = npt.NDArray[np.int8]
_Int32 = npt.NDArray[np.int32]
_Int64 = npt.NDArray[np.int64]
_UInt64 = npt.NDArray[np.uint64]

AMOUNTS: int

class Heard:
    count: int
    rows: int
    def __init__(self, columns: Iterable[tuple[_Int64, _Int64, _Int64, _Int64, _Int8]]) -> None: ...

def match(
    heard: Heard, salt: int, max_weight: int, in_order: bool
) -> tuple[tuple[_Int64, _Int64 | None, _Int64, _Int8, _Int32, _UInt64 | None], _Int32, bool]: ...
def lags(heard: Heard, latest: _Int64, groups: _Int32) -> tuple[_Int64, _Int64]: ...
def values(heard: Heard, latest: _Int64, groups: _Int32) -> _Int64: ...
def latest_first(times: _Int64, levels: _Int8, marks: _Int64) -> _Int64: ...
def misses(groups: _Int32, offsets: _Int64, degrees: _Int32, rows: _Int64) -> _Int64: ...
def gather(
    heard: Heard, marks: _Int64, groups: _Int32, start: _Int64, timed: bool
) -> tuple[_Int32, _Int64, _Int8]: ...
def square(
    latest: _Int64,
    levels: _Int8,
    histories: _UInt64,
    decayed: _Float64,
    units: _Float64,
    marks: _Int64,
    cells: _Float64,
) -> None: ...
def overlaps(
    start: _Int64,
    sources: _Int32,
    bands: _Int8,
    decayed: _Float64,
    levels: _Int8,
    units: _Float64,
    cells: _Float64,
    keys: _UInt64,
    bits: int,
    count: int,
    salt: int,
) -> bool: ...
def scattered_overlaps(
    start: _Int64,
    sources: _Int32,
    times: _Int64,
    bands: _Int8,
    decayed: _Float64,
    levels: _Int8,
    units: _Float64,
    marks: _Int64,
    cells: _Float64,
    keys: _UInt64,
    bits: int,
    count: int,
    salt: int,
) -> bool: ...
