"""The tree of the example: two sites, a relay and a hub, which has every message once."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from demo.relays import simulated
from quality.relays import measure

RUN = Path(__file__).parents[2] / "deploy" / "relay" / "run"


def test_the_example_says_what_crossed_and_that_the_hub_is_right() -> None:
    done = subprocess.run(
        [str(RUN), "--messages", "600", "--rounds", "3", "--flush-s", "0.2"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    wires = dict(re.findall(r"^([a-z][a-z ]+[a-z]) +[\d,]+ +([\d,]+)$", done.stdout, re.MULTILINE))
    below = sum(int(wires[f"gateways to {site}"].replace(",", "")) for site in ("north", "south"))
    assert 0 < int(wires["valley to hub"].replace(",", "")) < below / 2
    assert "the hub says 300 (exact), true are 300" in done.stdout
    assert "a sketch of every message once: yes" in done.stdout


def test_each_wire_carries_less_than_those_below_it() -> None:
    found = measure(simulated(2000), 10)  # which compares the hub with the union
    assert found.relay < 0.8 * found.sites
    assert found.sites < 0.8 * found.gateways
