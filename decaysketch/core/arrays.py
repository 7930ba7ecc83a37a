"""Arrays as kernels take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Column", "read_only"]

Column = npt.NDArray[Any]
"""A column with the type that fits its content."""


def read_only(column: Column) -> Column:
    """Return a contiguous view: one kernel signature, for any memory owner."""
    view = np.ascontiguousarray(column).view()
    view.setflags(write=False)
    return view
