"""Scanners of protocol bodies, and numbers of byte strings. Offsets are checked here."""

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]

OTHER: int
FLOAT: int
INTEGER: int
SCANNED: int
FOREIGN: int
BROKEN: int

class Names:
    def __len__(self) -> int: ...
    def find(self, text: bytes, context: int = 0) -> int: ...
    def find_all(
        self, text: bytes, begins: _Int64Array, ends: _Int64Array, context: int = 0
    ) -> _Int64Array: ...
    def add(self, text: bytes, context: int = 0) -> int: ...

class Lines:
    at: int
    ends: int
    lines: _Int64Array
    repeats: npt.NDArray[np.uint8]
    fields: _Int64Array
    kinds: npt.NDArray[np.uint8]
    floats: npt.NDArray[np.float64]
    def __init__(self, text: bytes, at: int, end: int, *, precision: int, longest: int) -> None: ...
    def __len__(self) -> int: ...
    def shapes(self, text: bytes, known: Names, most: int) -> _Int64Array: ...

class Samples:
    at: int
    code: int
    labels: _Int64Array
    bodies: _Int64Array
    times: _Int64Array
    starts: _Int64Array
    values: npt.NDArray[np.float64]
    plain: npt.NDArray[np.bool_]
    def __init__(self, text: bytes, at: int, most: int, *, points: bool = False) -> None: ...
    def __len__(self) -> int: ...
