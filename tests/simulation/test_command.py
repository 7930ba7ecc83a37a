"""``python -m quality.simulation``."""

from __future__ import annotations

import pytest
from simulation.faults import FAULTS
from simulation.world import Plan

from quality.simulation import _seeds, main


def test_seeds_that_hold_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--first", "40"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("3 seeds, 0 failed, ")
    assert second.startswith("acknowledged ")


def test_seeds_with_a_kind_are_chosen() -> None:
    seeds = _seeds(40, 3, "series")
    assert all("series" in Plan.of_seed(seed).kinds for seed in seeds)
    assert len(set(seeds)) == 3


def test_a_seed_that_fails_is_named_with_the_command_that_runs_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with FAULTS["deletes what only the new snapshot holds"]():
        status = main(["--seeds", "2"])  # the first one fails
    printed = capsys.readouterr().out
    assert status == 1
    seed = printed.partition("seed ")[2].partition(":")[0]
    assert f"\n  python -m quality.simulation --first {seed} --seeds 1 --trace\n" in printed

    with FAULTS["deletes what only the new snapshot holds"]():
        main(["--seeds", "1", "--first", seed, "--trace"])
    trace = capsys.readouterr().out
    assert "replica-0  serves" in trace
    assert f"seed {seed}: " in trace


def test_what_cannot_be_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seeds", "0"])
    assert "--seeds is 0; expected 1 or more" in capsys.readouterr().err
