"""Arrays as kernels take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["read_only"]


def read_only(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A contiguous view: one kernel signature, whoever owns the memory."""
    view = np.ascontiguousarray(column).view()
    view.setflags(write=False)
    return view
