"""The exact answers of the demonstration, against the definition in plain Python."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from demo.exact import every_copy, latest_copies
from demo.questions import Cell, Decay
from demo.reading import read_log
from demo.scores import truths

DECAYS = [
    Decay("none"),
    Decay("window", 0),
    Decay("window", 7),
    Decay("exponential", 5),
    Decay("polynomial", 3, exponent=1.5),
]


def small_log(seed: int, rows: int = 60) -> pl.DataFrame:
    """Few keys, few times, few values: every kind of tie and of disagreement between copies."""
    rng = np.random.default_rng(seed)
    event = rng.integers(0, 20, rows)
    return pl.DataFrame(
        {
            "arrival_us": np.sort(rng.integers(0, 25, rows)),
            "event_us": pl.Series(event).set(pl.Series(rng.random(rows) < 0.15), None),
            "source": rng.integers(0, 3, rows),
            "msg": rng.integers(0, 5, rows),
            "path": rng.integers(0, 2, rows),
            "value": pl.Series(rng.integers(-2, 4, rows) + 0.125).set(
                pl.Series(rng.random(rows) < 0.3), None
            ),
            "weight": rng.integers(0, 4, rows),
        }
    )


def by_definition(log: pl.DataFrame) -> list[tuple[int, int, float | None]]:
    """(time, weight, value) of every message exactly once."""
    best: dict[tuple[int, int, int], tuple[int, float]] = {}
    for row in log.iter_rows(named=True):
        time = row["arrival_us"] if row["event_us"] is None else row["event_us"]
        value = -math.inf if row["value"] is None else row["value"]
        key = (row["source"], row["msg"], row["weight"])
        if row["weight"] > 0:
            best[key] = max(best.get(key, (time, value)), (time, value))
    return [(t, k[2], None if v == -math.inf else v) for k, (t, v) in best.items()]


def decayed(decay: Decay, age: int) -> float:
    match decay.kind:
        case "none":
            return 1.0
        case "window":
            return 1.0 if age <= decay.length_us else 0.0
        case "exponential":
            return float(0.5 ** (age / decay.length_us))
        case "polynomial":
            return float((1 + age / decay.length_us) ** -decay.exponent)


def answers_by_definition(
    observations: list[tuple[int, int, float | None]], decay: Decay, now: int
) -> dict[str, float]:
    faded = [(decayed(decay, now - t), w, v) for t, w, v in observations if t <= now]
    answers = {
        "count": math.fsum(g for g, _, _ in faded),
        "sum": math.fsum(g * w for g, w, _ in faded),
        "total": math.fsum(g * v for g, _, v in faded if v is not None),
    }
    present = sorted((v, g * w) for g, w, v in faded if v is not None and g > 0)
    whole = math.fsum(g for _, g in present)
    if whole > 0:
        answers["mean"] = math.fsum(v * g for v, g in present) / whole
        for q in (0.1, 0.5, 0.9):
            reached = 0.0
            for v, g in present:
                reached += g
                if reached >= q * whole * (1 - 1e-12):
                    answers[f"q{q:g}"] = v
                    break
    return {name: answer for name, answer in answers.items() if answer != 0}


@pytest.mark.parametrize("seed", range(40))
def test_answers_equal_the_definition(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    small_log(seed).write_parquet(path)
    log = read_log(path).rows
    exact = latest_copies(log)
    expected_rows = by_definition(log)
    assert len(exact) == len(expected_rows)
    for decay in DECAYS:
        for now in (0, 6, 13, 30):
            found = truths(exact.at(Cell(decay, now)), weighted=True)
            expected = answers_by_definition(expected_rows, decay, now)
            assert {n: t.value for n, t in found.items()} == pytest.approx(expected, rel=1e-12)


def test_naive_counts_every_copy() -> None:
    log = small_log(1).with_columns(time=pl.coalesce("event_us", "arrival_us"))
    distribution = every_copy(log).at(Cell(Decay("none"), 100))
    assert distribution.count == log.filter(pl.col("weight") > 0).height
    assert distribution.sum == log["weight"].sum()


def test_copies_of_another_weight_are_other_observations() -> None:
    log = pl.DataFrame({"source": [1, 1, 1], "msg": [1, 1, 1], "weight": [2, 3, 3]}).with_columns(
        time=pl.Series([5, 6, 7]), value=pl.Series([1.0, 2.0, 3.0])
    )
    distribution = latest_copies(log).at(Cell(Decay("none"), 10))
    assert distribution.count == 2
    assert distribution.sum == 5
    assert distribution.total == 4.0


def test_the_latest_copy_counts_even_if_it_lies_after_now() -> None:
    log = pl.DataFrame({"source": [1, 1], "msg": [1, 1], "weight": [1, 1]}).with_columns(
        time=pl.Series([5, 9]), value=pl.Series([1.0, 2.0])
    )
    assert latest_copies(log).at(Cell(Decay("none"), 6)).count == 0


def test_a_missing_value_yields_to_any_value_of_the_same_time() -> None:
    log = pl.DataFrame({"source": [1, 1, 2], "msg": [1, 1, 1], "weight": [1, 1, 1]}).with_columns(
        time=pl.Series([5, 5, 5]), value=pl.Series([None, -9.0, None], dtype=pl.Float64)
    )
    distribution = latest_copies(log).at(Cell(Decay("none"), 6))
    assert distribution.count == 2
    assert distribution.missing_count == 1
    assert distribution.total == -9.0


def test_quantile_at_a_tie_names_both_neighbours() -> None:
    log = pl.DataFrame({"source": [1, 2], "msg": [1, 1], "weight": [1, 1]}).with_columns(
        time=pl.Series([5, 5]), value=pl.Series([1.0, 2.0])
    )
    distribution = latest_copies(log).at(Cell(Decay("none"), 6))
    assert distribution.quantile(0.5) == (1.0, 2.0)
    assert distribution.quantile(0.49) == (1.0, 1.0)
    assert distribution.share_of(2.0) == 0.5


def test_a_log_without_weights_weighs_one_and_a_strange_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    small_log(3).drop("weight").write_parquet(path)
    assert read_log(path).rows["weight"].unique().to_list() == [1]
    small_log(3).drop("msg", "path").write_parquet(path)
    with pytest.raises(ValueError, match=r"lacks the column 'msg'; it has arrival_us"):
        read_log(path)


def test_nan_is_refused() -> None:
    log = pl.DataFrame({"source": [1], "msg": [1], "weight": [1], "time": [1]}).with_columns(
        value=pl.Series([math.nan])
    )
    with pytest.raises(ValueError, match="NaN"):
        latest_copies(log)
