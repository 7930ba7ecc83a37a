"""Frequent items of all sites, by budgets and by the geometric method, looked at at each step."""

from __future__ import annotations

import pytest

from quality.monitor.frequent import METHODS, measure


@pytest.mark.parametrize("sites", [3, 9], ids=["asked at once", "with bounds"])
@pytest.mark.parametrize("method", METHODS)
def test_none_is_missed_and_none_is_false(method: str, sites: int) -> None:
    found = measure(method, events=1_200, window=400, sites=sites, phi=0.02, theta=0.2)
    assert found.steps > 1_000
    assert found.frequent > 0
    assert (found.missed, found.false) == (0, 0)
