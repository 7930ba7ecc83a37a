"""The simulated network misbehaves as promised, and does so reproducibly."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from demo.simulate import MAX_WEIGHT, Simulation, SimulationPlan, simulate

PLAN = SimulationPlan(seed=5, sensors=60, gateways=6, days=4)


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(PLAN)


def test_the_same_plan_gives_the_same_rows(simulation: Simulation) -> None:
    assert_frame_equal(simulate(PLAN).log, simulation.log)
    other = simulate(SimulationPlan(seed=6, sensors=60, gateways=6, days=4))
    assert not other.log.equals(simulation.log)


def test_the_log_has_the_shape_of_a_delivery_log(simulation: Simulation) -> None:
    assert simulation.log.schema == {
        "arrival_us": pl.Int64,
        "event_us": pl.Int64,
        "source": pl.Int32,
        "msg": pl.Int32,
        "path": pl.Int32,
        "value": pl.Float64,
        "weight": pl.Int32,
    }
    assert simulation.log["arrival_us"].is_sorted()
    assert simulation.log["weight"].is_between(1, MAX_WEIGHT).all()
    assert not simulation.log["value"].is_nan().any()


def test_copies_come_by_several_paths_with_stamps_that_disagree(simulation: Simulation) -> None:
    messages = simulation.log.group_by("source", "msg").agg(
        copies=pl.len(),
        paths=pl.col("path").n_unique(),
        stamps=pl.col("event_us").n_unique(),
        weights=pl.col("weight").n_unique(),
        values=pl.col("value").n_unique(),
    )
    assert messages["copies"].mean() > 2  # type: ignore[operator]
    assert (messages["paths"] > 1).mean() > 0.5  # type: ignore[operator]
    assert (messages["stamps"] > 1).mean() > 0.5  # type: ignore[operator]
    # Weight and value belong to the message, whoever relays it.
    assert messages["weights"].max() == 1
    assert messages["values"].max() == 1


def test_messages_are_lost_late_and_incomplete(simulation: Simulation) -> None:
    assert 0.9 < simulation.delivered / simulation.sent < 1
    assert 0.01 < simulation.late_share < 0.2
    nulls = simulation.log.null_count().row(0, named=True)
    rows = simulation.log.height
    assert 0.004 < nulls["value"] / rows < 0.02
    assert 0.001 < nulls["event_us"] / rows < 0.01
    event = simulation.log["event_us"].drop_nulls()
    assert (event.diff().drop_nulls() < 0).mean() > 0.01  # type: ignore[operator]


def test_steps_are_reported() -> None:
    seen: list[tuple[int, int]] = []
    plan = SimulationPlan(sensors=2, gateways=3, days=1)
    simulate(plan, on_step=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_an_empty_network_is_refused() -> None:
    with pytest.raises(ValueError, match="sensors=0"):
        SimulationPlan(sensors=0)
