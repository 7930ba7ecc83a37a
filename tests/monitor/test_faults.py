"""Promises over a network that fails, and mistakes that the promises find."""

from __future__ import annotations

import pytest

from quality.monitor.faults import first_breach
from quality.monitor.network import PLANTED, run


@pytest.mark.parametrize("seed", range(20))
def test_promises_are_kept(seed: int) -> None:
    assert run(seed).breaches == ()


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_mistake_is_found(planted: str) -> None:
    assert first_breach(planted) is not None
