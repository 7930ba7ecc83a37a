"""The kernel of the batch engine over NumPy columns: lengths are checked, values are not."""

import numpy as np
import numpy.typing as npt

_Mask = npt.NDArray[np.uint8]

def count_by_key(
    codes: npt.NDArray[np.int32],
    missing: _Mask,
    fallback: _Mask,
    refused: _Mask,
    counts: npt.NDArray[np.int64],
) -> None: ...
