"""Kernels for the times that no row shows: lengths are checked, values are not."""

import numpy as np
import numpy.typing as npt

_Float64Array = npt.NDArray[np.float64]
_Int64Array = npt.NDArray[np.int64]

def divided(
    times: _Int64Array,
    values: _Float64Array,
    hits: _Float64Array,
    grid: _Int64Array,
    least: _Float64Array,
) -> tuple[_Int64Array, _Float64Array, _Float64Array, _Int64Array, _Int64Array]: ...
def widths(
    times: _Int64Array, first: _Int64Array, last: _Int64Array, seen: _Float64Array
) -> _Float64Array: ...
