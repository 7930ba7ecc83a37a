"""Every study of monitors in a tiny run, and that one of alerts sees what it is there to see."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from decaysketch.monitor import BudgetSite
from quality.monitor import alerts
from quality.monitor.__main__ import STUDIES, main

ROWS = 1_500

RUNS = {
    "alerts": (["--logs", "drawn", "--rows", str(ROWS), "--within", "0.1"], ["monitor-alerts"]),
    "faults": (["--seeds", "2"], ["monitor-faults"]),
    "function-faults": (["--seeds", "2"], ["function-faults"]),
    "replay": (
        ["--logs", "drawn", "--rows", "3000", "--sites", "2", "--lines", "p50", "--seconds", "6",
         "--life", "600", "--kills", "1", "--alerts", "1"],
        ["monitor-replay"],
    ),
    "selfjoin": (
        ["--streams", "zipf", "--events", "1000", "--window", "800", "--sites", "4", "--thetas",
         "0.3"],
        ["monitor-selfjoin-zipf"],
    ),
    "served": (
        ["--events", "300", "--window", "200", "--turn", "50", "--kills", "0", "--sites", "2",
         "--thetas", "--kinds", "0"],
        ["monitor-served"],
    ),
    "frequent": (
        ["--events", "1000", "--window", "800", "--sites", "4", "--thetas", "0.15"],
        ["monitor-frequent"],
    ),
    "topk": (["--logs", "zipf-1.5-16", "--rounds", "3"], ["monitor-topk"]),
}  # fmt: skip


def test_every_study_has_a_run() -> None:
    assert set(RUNS) == set(STUDIES)


@pytest.mark.parametrize("study", STUDIES)
def test_study_is_written(study: str, tmp_path: Path) -> None:
    options, names = RUNS[study]
    assert main([study, *options, "--out", str(tmp_path)]) in (0, 1)  # so little proves nothing
    for name in names:
        text = (tmp_path / f"{name}.txt").read_text(encoding="utf-8")
        with (tmp_path / f"{name}.csv").open(encoding="utf-8") as file:
            assert len(list(csv.reader(file))) > 1, text
        assert "Claims" in text


@pytest.mark.parametrize("line", alerts.LINES)
def test_budgets_are_right_after_every_delivery_and_send_little(line: str) -> None:
    found = alerts.measure("drawn", line, 0.1, "budgets", ROWS)
    assert (found.missed, found.false) == (0, 0)
    assert found.saved > 2
    assert found.lowest >= 0.9


def test_a_site_that_forgets_what_it_holds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BudgetSite, "observe", lambda self, *columns, **when: None)
    assert alerts.measure("drawn", "p50", 0.1, "budgets", ROWS).missed > 0


def test_a_hub_that_fires_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts._Budgets, "verdict", lambda self, now: "firing")
    assert alerts.measure("drawn", "p50", 0.1, "budgets", ROWS).false > 0


def test_timers_promise_nothing() -> None:
    found = alerts.measure("drawn", "p90", 0.1, "timer", ROWS)
    assert found.lowest < 0.9 or found.missed > 0
