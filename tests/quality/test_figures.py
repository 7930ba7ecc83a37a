"""Every figure in a tiny run, and what the figures are computed from."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import decaysketch as ds
from quality import sources
from quality.__main__ import main
from quality.figures import accuracy, catalogue, estimators
from quality.figures.decays import EXPONENTS, RATES, WIDTHS, PaperDecay
from quality.figures.sketches import KINDS, build
from quality.sources import PAPER_RATIOS, Source


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return sources.simulated(tmp_path_factory.mktemp("stream"), 20_000)


def run(folder: Path, *names: str) -> Path:
    """Write some figures, of few seeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "LOGS", {})
        patch.setattr(estimators, "CAPACITIES", (20, 100))
        patch.setattr("quality.figures.estimator_pages.CAPACITIES", (20, 100))
        options = ["--rows", "8000", "--seeds", "3", "--jobs", "1", "--out", str(folder)]
        assert main([*names, *options]) == 0
    return folder


def check(folder: Path, name: str) -> None:
    """A figure has a picture, its claims and its numbers."""
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / f"{name}.txt").read_text(encoding="utf-8")
    assert "Claims" in text
    assert any(word in text for word in (": holds", ": does not hold", ": open"))
    assert "nan" not in text
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        headings, *rows = csv.reader(file)
    assert rows
    assert all(len(row) == len(headings) for row in rows)


def test_every_figure_is_written(tmp_path: Path) -> None:
    run(tmp_path, "all")
    for name in catalogue.FIGURES:
        check(tmp_path, name)


def test_raw_errors_are_one_for_each_trial(tmp_path: Path) -> None:
    run(tmp_path, "figure-4.2")
    check(tmp_path, "figure-4.2")
    with (tmp_path / "figure-4.2.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(accuracy.DECAYS) * 3 * len(accuracy.FACTORS) * 3
    exact = [float(row["relative error"]) for row in rows if row["C"] == "60"]
    assert np.allclose(exact, 0, atol=1e-6)  # 24,000 rows hold all of 15,000 observations


def test_command_lists_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in catalogue.FIGURES)
    for wrong in (["figure-9"], ["all", "--seeds", "0"]):
        with pytest.raises(SystemExit):
            main(wrong)
        assert wrong[-1] in capsys.readouterr().err


@pytest.mark.parametrize("decay", [*RATES, *EXPONENTS, *WIDTHS], ids=lambda decay: decay.name)
def test_exact_weights_are_those_of_the_librarys_decays(decay: PaperDecay) -> None:
    """The formulas here in floating point, the library's exactly: they may part at a whole number
    alone, and there by one."""
    rng = np.random.default_rng(1)
    weights, ages = rng.integers(1, 1000, 20_000), rng.integers(0, 1500, 20_000)
    rounded = decay.weights(weights, ages, rounded=True)
    differ = rounded != decay.integral()(weights, ages)
    assert differ.mean() < 1e-3
    real = decay.weights(weights, ages, rounded=False)
    assert np.allclose(real, weights * decay.real()(ages), rtol=1e-12)
    assert (np.abs(real[differ] - np.round(real[differ])) < 1e-9).all()


def test_exact_answers_are_sums_over_distinct_observations(source: Source) -> None:
    columns = source.columns()
    seen = {row[3]: row for row in zip(*map(np.ndarray.tolist, columns[:4]), strict=True) if row[1]}
    total, chosen = Fraction(0), [Fraction(0)] * 3
    for value, weight, timestamp, _ in seen.values():
        decayed = weight // (source.now - timestamp + 1)
        total += decayed
        for i, limit in enumerate((2, 3, 4)):
            chosen[i] += decayed * (value >= limit * weight)
    answers = accuracy.exact_answers(source, accuracy.POLYNOMIAL, rounded=True)
    assert answers.tolist() == pytest.approx([float(total), *(float(c / total) for c in chosen)])
    assert source.predicates == PAPER_RATIOS
    assert (answers[1:] > 0.1).all()
    assert (answers[1:] < 0.6).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decay", accuracy.DECAYS, ids=lambda decay: decay.name)
def test_entries_count_a_row_once_for_each_level_that_holds_it(
    kind, decay: PaperDecay, source: Source
) -> None:
    sketch = build(kind, decay, source, 60, seed=3)
    state = sketch.state()
    params = state.params
    entries = 0
    for row in range(len(state)):
        for level in range(params.levels + 1):
            one = state.ids[row : row + 1], state.weights[row : row + 1]
            hit = ds.minhit.min_hits(params, *one, level)[0]
            if hit < 0:
                continue
            end = state.times[row]
            if kind == "integral":
                end += decay.integral().expiry_ages(one[1], np.array([hit]), params.max_weight)[0]
            entries += bool(end > state.watermarks[level])
    assert sketch.entries() == entries
    assert len(state) <= entries


@pytest.mark.parametrize("kind", KINDS)
def test_shrinking_gives_what_building_small_would_have(kind, source: Source) -> None:
    large = build(kind, accuracy.EXPONENTIAL, source, 2_000, seed=1)
    large.resize(100)
    small = build(kind, accuracy.EXPONENTIAL, source, 100, seed=1)
    assert large.state().digest() == small.state().digest()
    assert large.entries() == small.entries()


@pytest.mark.parametrize("weights", estimators.WEIGHTS)
def test_weights_follow_their_law(weights: str) -> None:
    column = estimators.weights_of(np.random.default_rng(1), weights, 5_000)
    assert column.dtype == np.int64
    assert column.min() >= 1
    low, high = {"1": (1, 1), "1..999": (450, 550), "999": (999, 999), "Pareto": (3, 9)}[weights]
    assert low <= column.mean() <= high
