"""Rows as bit-packed columns, and back: lengths are checked, what is packed is not."""

from typing import Final

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]
_Bytes = bytes | npt.NDArray[np.uint8]

# Outcomes of scanning.
OK: Final[int]
PAST_END: Final[int]
WIDTH_TOO_LARGE: Final[int]
TOO_FEW_BITS: Final[int]

def pack_rows(
    times: _Int64Array,
    ids: _Int64Array,
    weights: _Int64Array,
    values: _Int64Array,
    floats: bool,
    divides: bool,
) -> bytes: ...
def scan_rows(
    data: _Bytes, start: int, stop: int, n: int, floats: bool
) -> tuple[tuple[int, int, int, int, int], int]: ...
def unpack_rows(
    data: _Bytes,
    start: int,
    stop: int,
    first_time: int,
    floats: bool,
    times: _Int64Array,
    ids: _Int64Array,
    weights: _Int64Array,
    values: _Int64Array,
) -> None: ...
def read_rows(
    data: _Bytes,
    start: int,
    stop: int,
    first_time: int,
    id_bits: int,
    max_weight: int,
    floats: bool,
    times: _Int64Array,
    ids: _Int64Array,
    weights: _Int64Array,
    values: _Int64Array,
) -> int: ...
def first_out_of_order(times: _Int64Array, ids: _Int64Array, weights: _Int64Array) -> int: ...
def pack_values(keys: npt.NDArray[np.int64], floats: bool) -> bytes: ...
def pack_each(
    keys: _Int64Array,
    offsets: _Int64Array,
    floats: bool,
    out: npt.NDArray[np.uint8],
    ends: _Int64Array,
) -> None: ...
def each_room(offsets: _Int64Array) -> int: ...
def front_code(
    texts: bytes,
    bounds: _Int64Array,
    numbers: _Int64Array,
    offsets: _Int64Array,
    ends: _Int64Array,
) -> bytes: ...
def append_each(
    part: npt.NDArray[np.uint8],
    starts: _Int64Array,
    stops: _Int64Array,
    out: npt.NDArray[np.uint8],
    at: _Int64Array,
) -> None: ...
def read_values(
    data: bytes, start: int, stop: int, floats: bool, keys: npt.NDArray[np.int64]
) -> int: ...
