"""The bytes of a node: sketches save where a period has more rows than their capacity."""

from __future__ import annotations

import numpy as np

from quality.node_bytes import Receptions, measure, table


def test_long_periods_save_and_short_ones_do_not() -> None:
    rows = 3_000
    draw = np.random.default_rng(1)
    log = Receptions(
        np.arange(rows) % 2, np.arange(rows) * 1_000_000, np.arange(rows),
        draw.normal(20, 5, rows).round(1),
    )  # fmt: skip
    short, long = measure(log, 10), measure(log, 100_000)
    assert (long.messages, long.rows, short.messages) == (2, rows, 600)
    assert long.sketches[100] < long.sketches[1_000] < long.json
    assert 3 * long.sketches[100] < long.packed < long.json
    assert 0.5 * short.packed < short.sketches[100] < short.sketches[1_000]
    assert "of a node per day" in table({"drawn": log})
