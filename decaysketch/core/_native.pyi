"""What all families share, over NumPy columns: lengths are checked, values are not."""

from typing import Any

import numpy as np
import numpy.typing as npt

_Int8Array = npt.NDArray[np.int8]
_Int32Array = npt.NDArray[np.int32]
_Int64Array = npt.NDArray[np.int64]
_UInt8Array = npt.NDArray[np.uint8]
_UInt64Array = npt.NDArray[np.uint64]
_Copies = tuple[_Int64Array, _Int64Array, _Int64Array, _Int64Array]

class SingleRows:
    def __init__(self, *, floats: bool, max_weight: int, last_id: int, time_limit: int) -> None: ...
    def __len__(self) -> int: ...
    def clear(self) -> None: ...
    def take(self, value: Any, weight: Any, timestamp: Any, id: Any) -> int: ...
    def columns(self) -> tuple[npt.NDArray[Any], ...]: ...

def number_keys(
    keys: _Int64Array,
    start: int,
    slots: _Int64Array,
    salt: int,
    distinct: _Int64Array,
    count: int,
    codes: _Int32Array,
) -> tuple[int, int]: ...
def fill_table(
    slots: _Int64Array, salt: int, distinct: _Int64Array, count: int, left_out: int
) -> None: ...
def hash_integers(keys: _UInt64Array, word: int, hashes: _UInt64Array) -> None: ...
def hash_encoded(
    data: _UInt8Array, offsets: _Int64Array, word: int, hashes: _UInt64Array
) -> None: ...
def hash_objects(
    keys: list[Any], kind: type, most: int, word: int, hashes: _UInt64Array
) -> int: ...
def absorb(rows: _UInt64Array, hashes: _UInt64Array) -> None: ...
def value_keys(
    values: Any,
    weights: Any,
    times: Any,
    ids: Any,
    *,
    floats: bool,
    max_weight: int,
    id_limit: int,
) -> _Int64Array | None: ...
def are_within(column: Any, low: int, high: int) -> bool | None: ...

class Offered:
    @property
    def known(self) -> int: ...
    @property
    def repeats(self) -> bool: ...
    def __init__(
        self,
        first: _Int64Array,
        second: _Int64Array,
        times: _Int64Array,
        values: _Int64Array,
        *,
        salts: tuple[int, int],
    ) -> None: ...
    def judge_by_marks(
        self,
        levels: _Int8Array,
        state: _Copies,
        state_levels: _Int8Array,
        marks: _Int64Array,
        capacity: int,
    ) -> _Int8Array: ...
    def judge_by_states(self, before: _Copies, after: _Copies) -> _Int8Array: ...
