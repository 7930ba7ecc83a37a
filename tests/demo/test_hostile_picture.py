"""What one wrong clock, an empty window or a lone row must not do to figures and scores."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from matplotlib.figure import Figure

from demo import picture
from demo.clocks import Clock
from demo.exact import Distribution
from demo.picture import Track, draw
from demo.questions import Cell, Decay
from demo.report import number
from demo.scores import Answer, Reading, Truth, score, score_by_aggregate, truths

DAY_US = 86_400_000_000
START_US = 1_740_960_000_000_000
TIMES = [START_US + k * DAY_US // 20 for k in range(60)]
CLOCKS = [
    Clock(f"roof $_{k}$ [x]", 100 - k, 0, 936.0 * DAY_US, 937 * DAY_US, None, suspect=not k)
    for k in range(15)
]


def drawn(path: Path, exact: list[float], monkeypatch: pytest.MonkeyPatch) -> Figure:
    """The figure of counts that are ``exact``, with a band of 2 around them."""
    figures: list[Figure] = []

    class Kept(Figure):
        def __init__(self, *args: object, **named: object) -> None:
            super().__init__(*args, **named)  # type: ignore[arg-type]
            figures.append(self)

    monkeypatch.setattr(picture, "Figure", Kept)
    track = Track(
        "window 1 d", exact, [e - 2 for e in exact], [e + 2 for e in exact], exact,
        [3 * e + 300 for e in exact],
    )  # fmt: skip
    draw(
        path, title="A title", subtitle="a subtitle", value_label="value", times_us=TIMES,
        window=track, faded=track, quantiles=[track], clocks=CLOCKS,
        cut="Cut off: 12 messages up to 936 d before all others.",
    )  # fmt: skip
    [figure] = figures
    return figure


def texts(figure: Figure) -> list[str]:
    found = [text.get_text() for text in figure.texts]
    for axes in figure.axes:
        found += [axes.get_title(loc="left"), *(text.get_text() for text in axes.texts)]
    return found


def test_errors_are_relative_only_where_a_message_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count of 0.001 beside a naive one of 300 would be +30,000,000 %."""
    exact = [0.001] * 20 + [100.0] * 40
    figure = drawn(tmp_path / "few.png", exact, monkeypatch)
    panel = figure.axes[3]
    assert panel.get_ylim()[1] < 5
    assert "counting every copy: +500 %; at 20 of 60 times less than one" in panel.get_title("left")
    plotted = [np.asarray(line.get_ydata(), dtype=float) for line in panel.lines]
    assert max(np.nanmax(np.abs(each)) for each in plotted) < 5


def test_errors_are_differences_where_there_is_mostly_nothing_to_divide_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = drawn(tmp_path / "none.png", [0.001] * 40 + [100.0] * 20, monkeypatch)
    panel = figure.axes[3]
    assert panel.get_title(loc="left").startswith("Error of both counts")
    assert panel.get_ylabel() == "sketch less exact, messages"
    assert "%" not in panel.get_title(loc="left")


def test_an_axis_ends_where_a_few_points_would_flatten_the_others_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = drawn(tmp_path / "far.png", [10.0] * 59 + [1e9], monkeypatch)
    axes = figure.axes[0]
    assert axes.get_ylim()[1] < 1_000
    assert "4 points lie beyond the axis" in texts(figure)
    ordinary = drawn(tmp_path / "near.png", [float(k) for k in range(60)], monkeypatch)
    assert not [text for text in texts(ordinary) if "points lie beyond" in text]


def test_what_was_cut_and_the_clocks_are_said_in_the_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clocks.png"
    said = texts(drawn(path, [100.0] * 60, monkeypatch))
    assert "Cut off: 12 messages up to 936 d before all others." in said
    assert any("3 more, none of them worse" in text for text in said)
    assert sum("936 d / 937 d" in text for text in said) == 12
    assert image.imread(path).shape[0] > 9.2 * 150


def answer(truth: Truth, value: float, lower: float, upper: float) -> Answer:
    return Answer(
        cell=Cell(Decay("none"), 0), aggregate="count",
        reading=Reading(value, lower, upper, exact=False), truth=truth, naive=300.0,
    )  # fmt: skip


def test_scores_divide_by_nothing_that_is_almost_0() -> None:
    ordinary = answer(Truth(100.0, 100.0, 1.0), 110.0, 90.0, 120.0)
    faint = answer(Truth(1e-9, 1e-9, 1.0), 0.5, 0.0, 2.0)
    assert (ordinary.relative, faint.relative) == (True, False)
    assert faint.difference == pytest.approx(0.5)
    assert math.isnan(faint.error)
    result = score("count", [ordinary, faint, replace(faint, reading=Reading(3, 2, 4, False))])
    assert (result.answers, result.holding, result.indivisible) == (3, 2, 2)
    assert result.worst == pytest.approx(0.1)
    assert result.naive_error == pytest.approx(2.0)
    assert result.mean_width == pytest.approx(0.3)
    nothing = score_by_aggregate([faint])[-1]
    assert (nothing.indivisible, number(nothing.worst)) == (1, "nan")


def test_a_mean_near_0_is_held_against_the_values_magnitude() -> None:
    values = np.array([-10.0, 10.01])
    both = Distribution(values, np.ones(2), np.ones(2), 0.0, 0.0)
    found = truths(both, weighted=False)
    for name in ("mean", "total"):
        assert abs(found[name].value) < found[name].floor
    assert found["q0.9"].floor < 10
    assert found["count"].floor == 1
