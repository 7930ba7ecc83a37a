"""Data frames and pictures of group tables, time series and histograms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decaysketch.errors import ParameterError

from .test_subtraction import DECAY, SKETCH

TIMES = range(1_000, 4_000, 500)


def test_a_time_series_is_a_frame() -> None:
    table = SKETCH.over_time("mean", DECAY, times=TIMES, of="x")
    assert [each.value for each in table] == [
        SKETCH.mean(DECAY, now=now, of="x").value for now in TIMES
    ]
    frame = table.to_frame()
    assert str(frame["time"].dtype).startswith("datetime64")
    assert frame["value"].tolist() == [each.value for each in table]
    grouped = SKETCH.over_time("count", DECAY, times=TIMES, by="variant").to_frame()
    assert len(grouped) == 2 * len(TIMES)
    assert {"time", "variant", "small", "lower"} <= {*grouped.columns}
    several = SKETCH.over_time("quantile", DECAY, times=[3_000], q=[0.1, 0.9], of="x").to_frame()
    assert several["q"].tolist() == [0.1, 0.9]


def test_a_histogram_is_a_frame() -> None:
    histogram = SKETCH.histogram([0, 1, 2], DECAY, of="x")
    frame = histogram.to_frame()
    assert frame["low"].tolist() == [-np.inf, 0, 1, 2]
    assert frame["high"].tolist() == [0, 1, 2, np.inf]
    assert frame["value"].sum() == pytest.approx(1.0)


def test_pictures_show_every_interval() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    table = SKETCH.count(DECAY, by="hour(time) * 10 + time % 7", groups=5)
    axes = table.plot(most=4)
    bars = [each for each in axes.collections if len(each.get_segments()) == 1]
    spans = [tuple(each.get_segments()[0][:, 0]) for each in bars]
    assert spans == [(row.answer.lower, row.answer.upper) for row in list(table)[:4]]
    assert "more groups" in axes.get_xlabel()
    lines = SKETCH.over_time("mean", DECAY, times=TIMES, of="x", by="variant").plot()
    assert [each.get_text() for each in lines.get_legend().get_texts()] == ["B", "A"]
    assert len(lines.collections) == 2
    shares = SKETCH.histogram([0, 1, 2], DECAY, of="x").plot()
    assert len(shares.patches) == 2
    several: Any = SKETCH.quantile([0.1, 0.9], DECAY, of="x", by="variant")
    with pytest.raises(ParameterError, match="several estimates"):
        several.plot()
    matplotlib.pyplot.close("all")
