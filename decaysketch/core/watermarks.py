"""The watermark of a level: the time up to which observations were discarded there."""

from __future__ import annotations

import numpy as np

__all__ = ["NO_WATERMARK"]

NO_WATERMARK = np.iinfo(np.int64).min  # nothing was: earlier than every timestamp
