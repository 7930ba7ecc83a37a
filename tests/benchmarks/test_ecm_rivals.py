"""Other ways to count keys count the same stream, and are asked the same."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import ecm_rivals, machine
from benchmarks.ecm_rivals import Events
from benchmarks.report import Section

EXACT = ("a deque for each key", "polars group-by")


@pytest.fixture(scope="module")
def events() -> Events:
    rng = np.random.default_rng(3)
    words = np.minimum(rng.zipf(1.3, 20_000), 400).astype(np.uint64)
    return Events(words, np.sort(rng.integers(1, 9_000, 20_000)), 4_000)


@pytest.fixture(scope="module")
def section(events: Events) -> Section:
    section = Section("Cells", "About them.")
    ecm_rivals.add(section, events, 1)
    return section


def test_the_truth_is_that_of_the_window(events: Events) -> None:
    keys, counts = events.exact(events.window)
    inside = events.words[events.times >= events.times[-1] - 4_000]
    assert counts.sum() == len(inside)
    assert counts[keys == 1] == (inside == 1).sum()
    assert events.exact(None)[1].sum() == 20_000
    assert len(events.head(5_000).words) == 5_000


def test_all_that_are_installed_are_in_both_tables(section: Section) -> None:
    rates, errors = section.tables
    skipped = {line.partition(":")[0] for line in section.skipped}
    expected = [r.name for r in ecm_rivals._RIVALS if r.package not in skipped]
    assert [row[0] for row in rates.rows] == [row[0] for row in errors.rows] == expected
    assert all(float(row[2]) > 0 and float(row[3]) > 0 for row in rates.rows)
    timeless = {"count-min", "frequent items"}
    assert all(("no window" in row[1]) == (row[0] in timeless) for row in rates.rows)
    timeless.add("ECMSketch, about all time")
    assert all((row[1] == "all time") == (row[0] in timeless) for row in errors.rows)


def test_exact_ones_are_exact_and_ours_is_near(section: Section) -> None:
    found = {row[0]: [float(cell) for cell in row[2:]] for row in section.tables[1].rows}
    for name in EXACT:
        if name in found:
            assert found[name] == [0.0, 0.0]
    for name in ("ECMSketch, batches", "ECMSketch, one by one"):
        assert 0.0 < found[name][0] < ecm_rivals.EPSILON / 5
    assert found["ECMSketch, batches"] == found["ECMSketch, one by one"]


def test_what_is_missing_is_said(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "installed", lambda name: None)
    section = Section("Cells", "About them.")
    ecm_rivals.add(section, events.head(2_000), 1)
    assert section.skipped == [
        "polars: not installed", "datasketches: not installed", "probstructs: not installed",
    ]  # fmt: skip
    assert len(section.tables[0].rows) == 4
    assert {c.rival for c in section.comparisons} == {"a deque for each key"}
