"""The simulation finds every mistake that is planted in the aggregator, within 300 seeds."""

from __future__ import annotations

import pytest
from simulation.faults import FAULTS
from simulation.world import World

SEEDS = 300
BEGIN = {  # nothing shows it in the seeds before
    "calls a token stale without looking": 272,
    "promises to keep what contradicts what is there": 38,
    "goes on from where it was when it does not know what was journaled": 48,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    for seed in range(BEGIN.get(name, 0), SEEDS):
        with FAULTS[name]():
            try:
                World(seed).run()
            except Exception:
                break
    else:
        pytest.fail(f"an aggregator that {name} passes all of {SEEDS} seeds")
    World(seed).run()  # and it is the fault that is found
