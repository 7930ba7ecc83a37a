"""Kernels over the rows of a sample by group: lengths are checked, values are not."""

import numpy as np
import numpy.typing as npt

_Float64Array = npt.NDArray[np.float64]
_Int64Array = npt.NDArray[np.int64]

def largest(group: _Int64Array, column: _Float64Array, groups: int) -> _Float64Array: ...
def extremes(
    group: _Int64Array, column: _Float64Array, groups: int
) -> tuple[_Float64Array, _Float64Array]: ...

class Rows:
    def __init__(
        self,
        group: _Int64Array,
        masses: _Float64Array,
        variances: _Float64Array,
        jumps: _Float64Array,
        decayed: _Float64Array,
        exact: int,
        groups: int,
    ) -> None: ...
    def moments(self, x: _Float64Array) -> _Float64Array: ...
    def residuals(
        self, x: _Float64Array, center: _Float64Array, share: _Float64Array, rest: float
    ) -> _Float64Array: ...
    def terms(self, x: _Float64Array) -> tuple[_Float64Array, _Float64Array]: ...
    def sizes(
        self, function: _Float64Array, weights: _Int64Array | None = None
    ) -> _Float64Array: ...
    def contrast(
        self, a: _Float64Array, b: _Float64Array, ratio: _Float64Array
    ) -> tuple[_Float64Array, _Float64Array, _Float64Array, _Float64Array]: ...

def rank(
    group: _Int64Array,
    values: _Int64Array,
    floats: bool,
    masses: _Float64Array,
    variances: _Float64Array,
    exact: int,
    weight: _Float64Array,
    starts: _Int64Array,
) -> tuple[_Int64Array, _Float64Array, _Float64Array, _Float64Array]: ...
def reach(
    starts: _Int64Array,
    exact: _Float64Array,
    sampled: _Float64Array,
    some: _Int64Array,
    wanted: _Float64Array,
) -> _Int64Array: ...
