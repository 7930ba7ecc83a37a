"""Family 1, many sketches written into one buffer and read from one: lengths are checked."""

import numpy as np
import numpy.typing as npt

from decaysketch.minhit._native import Hash

_Int64Array = npt.NDArray[np.int64]
_Bytes = bytes | npt.NDArray[np.uint8]

class Stream:
    def __init__(
        self, hash: Hash, *, max_weight: int, capacity: int, floats: bool, plausible: bool
    ) -> None: ...

def room(
    offsets: _Int64Array,
    times: _Int64Array,
    ids: _Int64Array,
    weights: _Int64Array,
    values: _Int64Array,
    mark_offsets: _Int64Array,
    marks: _Int64Array,
    *,
    prefix_bytes: int,
) -> int: ...
def encode(
    offsets: _Int64Array,
    times: _Int64Array,
    ids: _Int64Array,
    weights: _Int64Array,
    values: _Int64Array,
    mark_offsets: _Int64Array,
    marks: _Int64Array,
    *,
    prefix: _Bytes,
    floats: bool,
    out: npt.NDArray[np.uint8],
    out_offsets: _Int64Array,
) -> None: ...
def digest_inputs(
    offsets: _Int64Array,
    times: _Int64Array,
    ids: _Int64Array,
    weights: _Int64Array,
    values: _Int64Array,
    mark_offsets: _Int64Array,
    marks: _Int64Array,
    *,
    levels: int,
    out: _Int64Array,
) -> None: ...
def join_marks(
    keys: npt.NDArray[np.int32],
    mark_offsets: _Int64Array,
    marks: _Int64Array,
    joined: _Int64Array,
) -> None: ...
def read_heads(
    data: _Bytes,
    offsets: _Int64Array,
    *,
    prefix: _Bytes,
    top: int,
    rows: _Int64Array,
    first_times: _Int64Array,
    columns_at: _Int64Array,
    mark_offsets: _Int64Array,
    marks: _Int64Array,
) -> None: ...
def read_many(
    stream: Stream,
    data: _Bytes,
    offsets: _Int64Array,
    *,
    rows: _Int64Array,
    first_times: _Int64Array,
    columns_at: _Int64Array,
    mark_offsets: _Int64Array,
    marks: _Int64Array,
    times: _Int64Array,
    ids: _Int64Array,
    weights: _Int64Array,
    values: _Int64Array,
    out_offsets: _Int64Array,
) -> None: ...
def read(
    stream: Stream,
    data: _Bytes,
    start: int,
    stop: int,
    *,
    first_time: int,
    marks: _Int64Array,
    times: _Int64Array,
    ids: _Int64Array,
    weights: _Int64Array,
    values: _Int64Array,
    levels: npt.NDArray[np.int8],
) -> int: ...
