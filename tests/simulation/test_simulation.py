"""The whole network under faults, over some hundred seeds; ``python -m quality.simulation`` runs
as many as one likes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.world import Outcome, World

BLOCK = 25


@pytest.mark.parametrize("first", range(0, 150, BLOCK))
def test_whatever_fails_what_must_hold_does(first: int) -> None:
    outcomes = []
    for seed in range(first, first + BLOCK):
        try:
            outcomes.append(World(seed).run())
        except Exception as error:
            error.add_note(f"python -m quality.simulation --first {seed} --seeds 1 --trace")
            raise
    # Something was at stake.
    assert _total(outcomes, "acknowledged") > 5 * BLOCK
    assert _total(outcomes, "tokens_checked") > 2 * BLOCK
    assert _total(outcomes, "restarts") > BLOCK // 4
    assert _total(outcomes, "given_up") > 0
    assert _total(outcomes, "compactions") > 0


def test_a_run_follows_from_its_seed() -> None:
    """... and from nothing else: not from addresses, hashes of text, or clocks."""
    seeds = range(3, 60, 20)
    here = [World(seed).run().trace for seed in seeds]
    assert here[0] == World(seeds[0]).run().trace
    program = (
        "import hashlib; from simulation.world import World\n"
        f"for seed in {list(seeds)}:\n"
        "    print(hashlib.sha256('\\n'.join(World(seed).run().trace).encode()).hexdigest())"
    )
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "tests")])
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # another one than here
    elsewhere = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    expected = [hashlib.sha256("\n".join(trace).encode()).hexdigest() for trace in here]
    assert elsewhere.split() == expected


def _total(outcomes: list[Outcome], name: str) -> int:
    return sum(getattr(outcome, name) for outcome in outcomes)
