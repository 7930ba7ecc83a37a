"""The kernels of the range hash over NumPy columns: lengths are checked, values are not."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]
_Int8Array = npt.NDArray[np.int8]

class Hash:
    def __init__(
        self,
        *,
        id_bits: int,
        mix: Sequence[int],
        multiplier: int,
        start_multiplier: int,
        offset: int,
        prime: int,
        top: int,
        steps: _Int64Array,
        chain: Sequence[tuple[int, int, int]],
    ) -> None: ...

def top_levels(hash: Hash, ids: _Int64Array, weights: _Int64Array, levels: _Int8Array) -> None: ...
def minimum_hashes(
    hash: Hash, ids: _Int64Array, weights: _Int64Array, minima: _Int64Array
) -> None: ...
def range_samples(
    hash: Hash, ids: _Int64Array, weights: _Int64Array, levels: _Int8Array, hits: _Int64Array
) -> None: ...
def min_hits(
    hash: Hash, ids: _Int64Array, weights: _Int64Array, levels: _Int8Array, positions: _Int64Array
) -> None: ...
def min_hits_all_levels(
    hash: Hash, ids: _Int64Array, weights: _Int64Array, positions: _Int64Array
) -> None: ...
