"""The kernels of the asynchronous samplers over NumPy columns, whose lengths are checked."""

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]
_UInt64Array = npt.NDArray[np.uint64]
_UInt32Array = npt.NDArray[np.uint32]
_UInt16Array = npt.NDArray[np.uint16]
_Int8Array = npt.NDArray[np.int8]

MAX_ROWS: int  #: that kernels can number
BUCKETS: int  #: of ages, in compaction

class Stream:
    def __init__(
        self,
        *,
        weighted: bool,
        lowest: int,
        highest: int,
        time_limit: int,
        levels: int,
        first_nested: int,
    ) -> None: ...

def element_keys(words: _UInt64Array, sequence: _UInt64Array, keys: _UInt64Array) -> None: ...
def top_levels(
    values: _Int64Array, keys: _UInt64Array, weighted: bool, levels: int, out: _Int8Array
) -> None: ...
def in_bounds(
    stream: Stream,
    values: _Int64Array,
    float_values: bool,
    times: _Int64Array,
    words: _UInt64Array,
    sequence: _UInt64Array | None,
    first_number: int,
) -> bool: ...
def admit(
    stream: Stream,
    values: _Int64Array,
    float_values: bool,
    times: _Int64Array,
    words: _UInt64Array,
    sequence: _UInt64Array | None,
    first_number: int,
    start: int,
    marks: _Int64Array,
    floor: int,
    to_values: _Int64Array,
    to_times: _Int64Array,
    to_keys: _UInt64Array,
    to_levels: _Int8Array,
    rows: int,
) -> tuple[int, int, int, int] | None: ...
def append(
    stream: Stream,
    values: _Int64Array,
    times: _Int64Array,
    keys: _UInt64Array,
    levels: _Int8Array,
    n: int,
    marks: _Int64Array,
    to_values: _Int64Array,
    to_times: _Int64Array,
    to_keys: _UInt64Array,
    to_levels: _Int8Array,
    rows: int,
) -> int: ...
def slots_for(rows: int) -> int: ...
def compact(
    stream: Stream,
    values: _Int64Array,
    times: _Int64Array,
    keys: _UInt64Array,
    levels: _Int8Array,
    n: int,
    capacity: int,
    spare: int,
    marks: _Int64Array,
    salts: tuple[int, int],
    ages: _UInt64Array,
    words: _UInt32Array,
    rows: _UInt32Array,
    buckets: _UInt16Array,
    counts: _UInt32Array,
    slots: _UInt32Array,
) -> tuple[int, bool]: ...
def arrange(
    values: _Int64Array,
    times: _Int64Array,
    keys: _UInt64Array,
    levels: _Int8Array,
    canonical: bool,
    weighted: bool,
    ages: _UInt64Array,
    words: _UInt32Array,
    to_values: _Int64Array,
    to_times: _Int64Array,
    to_keys: _UInt64Array,
    to_levels: _Int8Array,
) -> None: ...
