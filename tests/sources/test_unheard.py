"""Messages that no source heard: models by hand, their intervals, and what is said with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from decaysketch.errors import ParameterError
from decaysketch.sources import unheard
from decaysketch.sources.unheard import Unheard, unheard_of


def cells(counts: dict[tuple[int, ...], int], mass: float = 1.0) -> tuple[Any, list[Any]]:
    """Rows of equal mass by history."""
    histories = [history for history, count in counts.items() for _ in range(count)]
    k = 1 + max(source for history in counts for source in history)
    rows = [
        np.array([row for row, history in enumerate(histories) if source in history], int)
        for source in range(k)
    ]
    return np.full(len(histories), mass), rows


def asked(counts: dict[tuple[int, ...], int], mass: float = 1.0) -> Unheard:
    return unheard_of(*cells(counts, mass), confidence=0.95)


def model(found: Unheard, name: str) -> Any:
    return next(each for each in found.models if each.name == name)


def test_two_sources_are_lincoln_and_petersen_and_chao_by_hand() -> None:
    found = asked({(0,): 30, (1,): 20, (0, 1): 60})
    assert model(found, "independent").value == pytest.approx(30 * 20 / 60)
    assert model(found, "chao").value == pytest.approx(0.5 * 50 * 49 / (2 * 61))
    assert [each.name for each in found.models] == ["independent", "chao"]
    assert found.heard == 110.0


def test_the_variance_of_lincoln_and_petersen_is_the_delta_method_by_hand() -> None:
    a, b, both = 30.0, 20.0, 60.0
    found = model(asked({(0,): 30, (1,): 20, (0, 1): 60}), "independent")
    variance = (b / both) ** 2 * a + (a / both) ** 2 * b + (a * b / both**2) ** 2 * both
    by = math.exp(1.959964 * math.sqrt(math.log1p(variance / found.value**2)))
    assert found.upper == pytest.approx(found.value * by, rel=1e-5)
    assert found.lower == pytest.approx(found.value / by, rel=1e-5)


def test_independent_sources_are_found_again_by_every_regression() -> None:
    """Cells that independent sources expect, so that the regression chooses no pair."""
    rates, n = (0.5, 0.4, 0.3), 10_000
    counts = {}
    for cell in range(1, 8):
        history = tuple(source for source in range(3) if cell >> source & 1)
        chance = np.prod([r if s in history else 1 - r for s, r in enumerate(rates)])
        counts[history] = round(n * chance)
    found = asked(counts)
    truth = n * 0.5 * 0.6 * 0.7
    assert model(found, "independent").value == pytest.approx(truth, rel=0.01)
    assert model(found, "log-linear").value == pytest.approx(truth, rel=0.01)


def test_two_sources_that_hear_alike_raise_the_regression() -> None:
    counts = {(0,): 100, (1,): 100, (0, 1): 800, (2,): 300, (0, 2): 60, (1, 2): 60, (0, 1, 2): 480}
    found = asked(counts)
    assert model(found, "log-linear").value > 2 * model(found, "independent").value


def test_intervals_hold_where_sources_are_independent() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        heard = rng.random((4000, 3)) < (0.3, 0.4, 0.5)
        truth = int((~heard.any(axis=1)).sum())
        kept = heard[(rng.random(4000) < 1 / 8) & heard.any(axis=1)]
        rows = [np.flatnonzero(kept[:, source]) for source in range(3)]
        found = unheard_of(np.full(len(kept), 8.0), rows, confidence=0.95)
        independent = model(found, "independent")
        held += independent.lower <= truth <= independent.upper
    assert held >= 184  # 190 expected


def test_more_than_six_sources_regress_those_that_hear_most() -> None:
    rng = np.random.default_rng(3)
    heard = rng.random((3000, 9)) < np.linspace(0.1, 0.3, 9)
    truth = int((~heard.any(axis=1)).sum())
    kept = heard[heard.any(axis=1)]
    rows = [np.flatnonzero(kept[:, source]) for source in range(9)]
    found = unheard_of(np.ones(len(kept)), rows, confidence=0.95)
    assert model(found, "independent").value == pytest.approx(truth, rel=0.15)
    assert model(found, "log-linear").value == pytest.approx(truth, rel=0.35)


def test_every_range_carries_its_assumption_and_further_caveats() -> None:
    plain = asked({(0,): 30, (1,): 20, (0, 1): 60})
    assert plain.caveats == ("assumes-independence",)
    assert plain.to_dict()["span"] == [plain.lower, plain.upper]
    rare = asked({(0,): 2, (1,): 2, (0, 1): 5000})
    assert rare.caveats == ("assumes-independence", "rare")
    assert rare.to_dict()["span"] is None
    assert rare.to_dict()["models"] == []
    assert rare.to_dict()["at_least"] == rare.at_least
    apart = asked({(0,): 30, (1,): 20})
    assert apart.caveats == ("assumes-independence", "no-overlap")
    assert apart.upper == math.inf
    assert apart.to_dict()["span"] == [apart.lower, None]


def test_one_source_is_refused() -> None:
    with pytest.raises(ParameterError, match="1 source; expected two or more"):
        unheard_of(np.ones(3), [np.arange(3)], confidence=0.95)


def test_the_log_linear_interval_covers_regressions_that_a_sample_cannot_rule_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sample selects fewer pairs than all rows: the interval of that regression alone misses."""
    rng = np.random.default_rng(7)
    n, rate = 30_000, 25.0
    a = rng.random(n) < 0.6
    b = rng.random(n) < np.where(a, 0.60, 0.52)
    c = rng.random(n) < np.where(b, 0.45, 0.38)
    heard = np.stack([a, b, c], axis=1)
    heard = heard[heard.any(axis=1)]

    def log_linear(rows: Any, mass: float) -> Any:
        some = heard[rows]
        each = [np.flatnonzero(column) for column in some.T]
        return unheard_of(np.full(len(some), mass), each, confidence=0.95).models[2]

    def held() -> int:
        draws = np.random.default_rng(8)
        found = [log_linear(draws.random(len(heard)) < 1 / rate, rate) for _ in range(60)]
        return sum(model.lower <= whole.value <= model.upper for model in found)

    whole = log_linear(slice(None), 1.0)
    assert held() >= 56
    window = unheard._window
    monkeypatch.setattr(unheard, "_window", lambda *given: window(*given)[:1])
    assert held() < 30
