"""The kernels of many sketches at once over NumPy columns: lengths are checked, values are not."""

import numpy as np
import numpy.typing as npt

from decaysketch.minhit._native import Hash

_Int32Array = npt.NDArray[np.int32]
_Int64Array = npt.NDArray[np.int64]
_States = tuple[_Int64Array, _Int64Array, _Int64Array, _Int64Array]

RECORD_FIELDS: int

class Payloads:
    def __init__(self, keys: _Int64Array, ranks: list[_Int64Array | None]) -> None: ...

class ByKey:
    def __init__(
        self,
        hash: Hash,
        *,
        max_weight: int,
        capacity: int,
        levels: int,
        salt: int,
        far: tuple[int, int],
        records: bool = False,
    ) -> None: ...
    def take(
        self,
        codes: _Int32Array,
        values: _Int64Array,
        weights: _Int64Array,
        times: _Int64Array,
        ids: _Int64Array,
        to: _Int64Array,
        states: _States | None = None,
    ) -> int: ...
    def build(
        self,
        before: _States,
        records: _Int64Array,
        partitions: _Int64Array,
        shift: int,
        largest: int,
        after: _States,
        replaced: _Int64Array,
        payloads: Payloads | None = None,
    ) -> None: ...
    def write(
        self,
        states: _States,
        largest: int,
        times: _Int64Array,
        ids: _Int64Array,
        weights: _Int64Array,
        values: _Int64Array,
    ) -> None: ...

def count(records: _Int64Array, shift: int, counts: _Int64Array) -> None: ...
def scatter(records: _Int64Array, shift: int, positions: _Int64Array, to: _Int64Array) -> None: ...
