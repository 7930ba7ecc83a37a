"""Kernels over NumPy columns: lengths are checked, values are not."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]
_Codes = npt.NDArray[np.uint32]
_Bag = Sequence[npt.NDArray[Any]]

TOP: int
NO_START: int

class Catalog:
    entities: _Int64Array
    series: _Int64Array
    shifts: npt.NDArray[np.int8]
    levels: npt.NDArray[np.int8]

    def __init__(self, first: int, second: int, salt: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def reserve(self, more: int) -> None: ...
    def keep(self, chosen: npt.NDArray[np.bool_]) -> None: ...
    def enter(
        self, entities: _Int64Array, shifts: npt.NDArray[np.int8], series: _Int64Array
    ) -> _Codes: ...

class Batch:
    def __init__(
        self,
        values: _Int64Array,
        float_bits: bool,
        weights: _Int64Array | None,
        times: _Int64Array,
        series: _Int64Array,
        entities: _Int64Array | None = None,
        starts: _Int64Array | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def check(self, max_weight: int, id_limit: int, time_limit: int) -> bool: ...

def admit(
    catalog: Catalog, batch: Batch, first: int, last: int, marks: _Int64Array, bag: _Bag, held: int
) -> int: ...
def append(
    other: _Bag, rows: int, codes: _Codes, marks: _Int64Array, bag: _Bag, held: int
) -> int: ...
def compact(
    bag: _Bag,
    rows: int,
    series: int,
    resolution: int,
    marks: _Int64Array,
    capacity: int,
    keys: npt.NDArray[np.uint64],
    words: _Codes,
    out: _Bag,
) -> int: ...
def arrange(codes: _Codes, ranks: _Int64Array) -> _Int64Array: ...
def settle(
    keys: _Int64Array, times: _Int64Array, begins: npt.NDArray[np.uint8], guard: int
) -> _Int64Array: ...
