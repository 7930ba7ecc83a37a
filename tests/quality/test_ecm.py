"""Every study of the ECM-sketch in a tiny run, and what they measure by."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from quality.ecm import accuracy, cells, logs, promises, ranges, sites
from quality.ecm.__main__ import STUDIES, main
from quality.ecm.logs import Log

EVENTS = 20_000


def small(_folder: Path) -> Log:
    rng = np.random.default_rng(5)
    keys = np.minimum(rng.zipf(1.4, EVENTS), 500) - 1
    return Log("small", "drawn", "seconds", keys, np.sort(rng.integers(0, 50_000, EVENTS)), 20_000)


@pytest.fixture(scope="module")
def log() -> Log:
    return small(Path())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch:
        known = {"small": small, "absent": lambda folder: None}
        patch.setattr(logs, "LOGS", known)
        patch.setattr("quality.ecm.__main__.LOGS", known)
        patch.setattr(accuracy.produce, "__defaults__", ((0.15, 0.3),))
        patch.setattr(sites.produce_figure_6, "__defaults__", ((0.15, 0.3),))
        patch.setattr(sites.produce_figure_7, "__defaults__", ((2, 5),))
        patch.setattr(promises.produce, "__defaults__", ((0.15,),))
        patch.setattr(ranges.produce, "__defaults__", (("spiky", "delays"), (0.15,)))
        status = main(
            ["all", "--windows", "5000", "--trees", "60", "--seeds", "2", "--logs", "small",
             "absent", "--out", str(folder)]
        )  # fmt: skip
    assert status in (0, 1)  # two seeds prove nothing
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "ecm-cells",
        "ecm-heavy-hitters",
        "ecm-figure-5-small",
        "ecm-figure-6-small",
        "ecm-figure-7-small",
        "ecm-promises",
        "ecm-ranges",
        "ecm-which-sketch",
    ],
)
def test_study_is_written(name: str, written: Path) -> None:
    assert (written / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    text = (written / f"{name}.txt").read_text(encoding="utf-8")
    assert "Claims" in text
    assert "nan" not in text
    assert not list(written.glob("*absent*"))
    with (written / f"{name}.csv").open(encoding="utf-8") as file:
        headings, *rows = csv.reader(file)
    assert rows
    assert all(len(row) == len(headings) for row in rows)


def test_rates_are_written(written: Path) -> None:
    text = (written / "ecm-table-3.txt").read_text(encoding="utf-8")
    assert "small, randomized waves" in text
    assert "inf" not in text.split("Rates")[1]


def test_sure_things_hold_in_the_smallest_run(written: Path) -> None:
    for name in ("ecm-cells", "ecm-promises", "ecm-ranges"):
        text = (written / f"{name}.txt").read_text(encoding="utf-8")
        assert "sure ends that were broken: 0.0; claimed at most 0: holds" in text


def test_a_trial_of_cells_finds_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = cells.trial("steady", "wave", 3, 1)
    assert (sound.broken, sound.loose, sound.misplaced) == (0, 0, 0)
    assert 0 < sound.worst < 1
    monkeypatch.setattr(
        cells.Cells, "grid", lambda self, start: (self.n, np.zeros_like(self.n) + 1)
    )
    wrong = cells.trial("steady", "wave", 3, 1)
    assert wrong.broken > 50
    assert wrong.loose > 50


def test_errors_of_an_exact_sketch_are_none(log: Log) -> None:
    """More cells and slots than there are keys and events in any window, so hardly an error."""
    params = accuracy.ECMParams(width=60_000, depth=4, slots=16, lanes=1)
    found = accuracy.point_errors(accuracy.build(log, params), log, "minimum")
    assert found.mean < 1e-3
    assert accuracy.join_errors(accuracy.build(log, params), log, "minimum").largest < 0.05


def test_ways_of_one_network_see_the_same_events(log: Log) -> None:
    found = sites.measure(log, "wave", 0.15, "point", 5, 1)
    assert {m.way for m in found} == {"one site", "sum", "flat", "tree"}
    by = {m.way: m for m in found if m.estimator == "minimum"}
    assert by["one site"].network == 0
    assert by["sum"].network == by["flat"].network < by["tree"].network
    assert 0 == by["sum"].slack < by["flat"].slack < by["tree"].slack
    assert all(m.error < 0.15 for m in found)


def test_exact_counts_are_those_of_the_window(log: Log) -> None:
    for window in log.windows:
        inside = log.times >= log.now - window
        assert (log.exact(window) == np.bincount(log.keys[inside], minlength=500)).all()
    assert log.windows == (1_000, 10_000, 20_000)  # 100 seconds hold fewer than 100 events
    assert log.head(5_000).window < 10_000
    assert log.head(5_000).now == log.times[4_999]


def test_the_stand_in_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_ZIPF_EVENTS", 10_000)
    one, two = (logs.load("zipf") for _ in range(2))
    assert one is not None
    assert two is not None
    assert (one.keys == two.keys).all()
    assert (np.diff(one.times) >= 0).all()
    shares = np.bincount(one.keys) / 10_000
    assert shares[0] == pytest.approx(1 / np.sum(1 / np.arange(1, 90_001)), rel=0.1)


def test_command_lists_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in STUDIES)
    for wrong in (["figure-9"], ["all", "--seeds", "1"], ["cells", "--windows", "7"]):
        with pytest.raises(SystemExit):
            main(wrong)
        assert wrong[-1] in capsys.readouterr().err
