"""Small delivery logs with all that goes wrong with real ones, and where the real ones are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

REAL_LOGS = Path(__file__).resolve().parents[2] / "shared" / "data" / "deliveries"


def delivery_log(rows: int = 4_000, *, seed: int = 1, text_keys: bool = False) -> pa.Table:
    """Copies by several paths, late ones, missing values and missing event times.

    Copies of one message carry their own receiver's value, as a signal strength would be.
    """
    rng = np.random.default_rng(seed)
    messages = rows // 3
    message = rng.integers(0, messages, rows)
    source, number = message % 23, message // 23
    event = 1_700_000_000_000_000 + message * 1_000_000 + rng.integers(0, 3, rows) * 250
    arrival = event + rng.exponential(5e6, rows).astype(np.int64)
    path = rng.integers(0, 5, rows)
    value = np.round(rng.normal(20, 5, rows), 2)
    no_event, no_value = rng.random(rows) < 0.02, rng.random(rows) < 0.05
    order = np.argsort(arrival, kind="stable")
    table = pa.table(
        {
            "arrival_us": arrival,
            "event_us": pa.array(event, mask=no_event),
            "source": [f"node-{s}" for s in source] if text_keys else source.astype(np.int32),
            "msg": number.astype(np.int32),
            "path": [f"gw/{p}" for p in path] if text_keys else path.astype(np.int32),
            "value": pa.array(value, mask=no_value),
            "weight": 1 + message % 7,
            "note": ["not read by anybody"] * rows,
        }
    )
    return table.take(pa.array(order))


def real_log(name: str) -> Path:
    """Path of one of the real logs; skips the test where they are not on this machine."""
    path = REAL_LOGS / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"the real logs are not on this machine: {path}")
    return path
