"""The scale study in small: it measures each operation, and finds one that is not flat."""

from __future__ import annotations

from quality.scale import Cost, main, multiples


def test_every_operation_is_measured_at_every_size() -> None:
    assert main(["--sizes", "2", "4", "--repetitions", "2", "--flat", "1000000000000"]) == 0


def test_a_cost_that_grows_is_found() -> None:
    costs = {100: {"a": Cost(1.0, 2.0), "b": Cost(1.0, 1.0)}, 10: {"a": Cost(0.5, 0.5)}}
    assert multiples(costs) == {"a": (2.0, 4.0)}
