"""Kernels over NumPy columns: lengths are checked, values are not."""

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]

IN_ORDER: int
REFUSED: int

class Limits:
    def __init__(self, *, max_weight: int, last_id: int, time_limit: int) -> None: ...

def read(
    limits: Limits,
    values: _Int64Array,
    float_values: bool,
    weights: _Int64Array | None,
    times: _Int64Array,
    ids: _Int64Array | None,
    keys: _Int64Array,
) -> int: ...
def climb(
    times: _Int64Array,
    keys: _Int64Array,
    held: int,
    row_times: _Int64Array,
    row_keys: _Int64Array,
    turned: bool,
    spare_times: _Int64Array,
    spare_keys: _Int64Array,
) -> int: ...
def thin(times: _Int64Array, keys: _Int64Array, held: int, newest: int, spans: int) -> int: ...
def end_of_span(time: int, newest: int, spans: int) -> int: ...
