"""The soak study in small, and what it finds."""

from __future__ import annotations

from collections import Counter

import pytest

from quality.soak import main, verdict


def test_all_protocols_are_taken() -> None:
    assert main(["--minutes", "0.1", "--rate", "200", "--growth", "10"]) == 0


@pytest.mark.parametrize(
    ("memory", "database", "answers", "fault"),
    [
        ([100] * 8, [5], {200: 9}, ""),
        ([100] * 4 + [100, 120, 120, 120], [5], {200: 9}, "memory grew"),
        ([500, 500, 100, 100, 100, 100, 100, 100], [5], {200: 9}, ""),
        ([100] * 8, [5, 200, 5], {200: 9}, "the database reached"),
        ([100] * 8, [5], {200: 9, 500: 1}, "answered {500: 1}"),
    ],
)
def test_a_run_that_is_not_steady_is_found(
    memory: list[int], database: list[int], answers: dict[int, int], fault: str
) -> None:
    (*found,) = verdict(memory, database, Counter(answers), 0.1, 100)
    assert [each.startswith(fault) for each in found] == [True] * bool(fault)
