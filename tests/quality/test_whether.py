"""The study of sizes measures what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quality.whether import row_of


def test_a_log_of_which_each_message_came_twice(tmp_path: Path) -> None:
    rows = np.arange(20_000) // 2
    table = pa.table({"event_us": rows, "source": rows % 7, "msg": rows, "value": rows / 8})
    pq.write_table(table, path := tmp_path / "log.parquet")
    distinct, deliveries, sizes = row_of(path, "event_us", ["source", "msg"], "value", "us")
    assert (distinct, deliveries) == (10_000, 20_000)
    every, once, ids, fine, coarse = sizes
    assert every > once
    assert ids == 80_000
    assert fine > coarse > 20_000
