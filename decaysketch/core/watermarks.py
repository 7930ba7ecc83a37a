"""The watermark of a level: the sketch has discarded the level's observations up to this time."""

from __future__ import annotations

import numpy as np

__all__ = ["NO_WATERMARK"]

NO_WATERMARK = np.iinfo(np.int64).min  # nothing was discarded: earlier than every timestamp
