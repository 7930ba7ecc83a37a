"""Rows and parameters that engines are given."""

from __future__ import annotations

from typing import Any

import numpy as np

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.families import recipe_of

PARAMS = ds.SketchParams(max_weight=10, id_bits=48, capacity=500, seed=3, time_unit="s")
FIXED = recipe_of(PARAMS, ds.decay.integral.exponential(half_life=60))
SUMS = SumParams(max_sum=10**6, capacity=500, max_window=10_000, seed=1)
MEDIANS = MedianParams(max_count=10**6, capacity=500, max_window=10_000, seed=1)
SECRET = ds.SketchParams(max_weight=1, id_bits=48, capacity=500, id_key=b"sixteen secret b")
NOW = 1_100
ROWS = 100


def columns() -> dict[str, Any]:
    row = np.arange(ROWS)
    return {
        "values": row * 1.5,
        "weights": 1 + row % 4,
        "timestamps": 1_000 + row,
        "ids": ds.observation_ids(row % 3, row, params=PARAMS),
    }
