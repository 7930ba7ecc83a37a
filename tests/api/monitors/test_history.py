"""The history of states is bounded, ends with the present state, and goes with its monitor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from databases import KINDS, Database, new_database
from transactions import reading

from api.journal.log import StreamRow
from api.journal.sql import SqlStorage
from api.monitors import history, store
from api.monitors.evaluation import LONGEST_S, SHORTEST_S, Task, evaluate
from api.monitors.history import Retention
from api.monitors.schedule import Schedule
from decaysketch import DecaySketch, SketchParams
from decaysketch.families import recipe_of
from decaysketch.monitor import Alert, Monitor, State, Threshold

pytestmark = pytest.mark.anyio

SECOND = 10**6
CALM = State("calm", None, 1.0, 1.0, 1.0, 5.0, 0.0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return new_database(request.param, tmp_path)


async def filled(storage: SqlStorage, times: list[int], kept: Retention) -> int:
    """A monitor whose state has begun at these times; its id."""

    def fill(tx: Any) -> int:
        stream = tx.insert_stream(_stream())
        spec = {"kind": "threshold", "question": "count", "above": 5.0}
        row, _ = store.define(tx, (stream.id, "s"), "m", spec, now_us=0, of_stream=2, in_all=2)
        for at_us in times:
            history.insert(tx, row.id, Alert(), at_us, (CALM, "It is calm."), kept)
        return row.id

    return await storage.write(fill)


def _stream() -> Any:
    return StreamRow(0, "s", "i", recipe_of(SketchParams(time_unit="s")).to_dict(), 0)


async def read(storage: SqlStorage, number: int, begin: int, end: int, most: int) -> Any:
    async with reading(storage) as rx:
        found, complete = await rx.do(history.read, number, begin, end, most)
    return [(each.at_us, each.until_us) for each in found], complete


async def test_a_history_has_no_more_states_than_are_retained(database: Database) -> None:
    storage = await SqlStorage.open(database.url)
    try:
        number = await filled(storage, list(range(1, 8)), Retention(3, 10**15))
        assert await read(storage, number, 0, 99, 10) == ([(5, 6), (6, 7), (7, None)], True)
        assert await read(storage, number, 0, 99, 2) == ([(6, 7), (7, None)], False)
        assert await read(storage, number, 6, 7, 10) == ([(6, 7)], True)
        assert await read(storage, number, 99, 100, 10) == ([(7, None)], True)
        assert await read(storage, number, 0, 5, 10) == ([], True)
    finally:
        await storage.close()


async def test_states_that_ended_long_ago_are_dropped_and_the_present_one_is_not(
    database: Database,
) -> None:
    storage = await SqlStorage.open(database.url)
    try:
        number = await filled(storage, [10, 20, 30, 100], Retention(99, 50))
        # At 100 the states from before 50 are old; that of 30 was in force at 50.
        assert await read(storage, number, 0, 999, 10) == ([(30, 100), (100, None)], True)
    finally:
        await storage.close()


def test_a_schedule_gives_each_monitor_once_by_its_newest_time() -> None:
    schedule = Schedule()
    for number, at in ((1, 5.0), (2, 1.0), (1, 2.0), (3, 9.0), (4, 1.0)):
        schedule.put(number, at)
    schedule.drop(4)
    assert not schedule.is_due(0.5)
    assert schedule.due(4.0) == {1, 2}
    assert schedule.due(8.0) == set()
    assert schedule.due(9.0) == {3}


@pytest.mark.parametrize(
    ("spec", "at_s", "holds_s"),
    [
        # 100 rows of time 1000: the count halves every 10 s, and is 50 at 1010.
        ({"question": "count", "above": 50}, 1000, (5, 10)),
        ({"question": "count", "above": 50}, 1011, (LONGEST_S, LONGEST_S)),
        ({"question": "count", "below": 50}, 1009, (SHORTEST_S, SHORTEST_S)),
        ({"question": "mean", "above": 50}, 1000, (LONGEST_S, LONGEST_S)),
        ({"question": "mean", "above": 50}, 999, (SHORTEST_S, SHORTEST_S)),
        ({"question": "mean", "above": 50, "decay": "window(1h)"}, 1000, (SHORTEST_S, SHORTEST_S)),
    ],
)
def test_a_state_holds_until_time_alone_may_change_it(
    spec: dict[str, Any], at_s: int, holds_s: tuple[float, float]
) -> None:
    params = SketchParams(time_unit="s", value_type="float64")
    sketch = DecaySketch(params)
    sketch.update(list(range(100)), 1, [1000] * 100, range(100))
    form = {"decay": "exponential(half_life=10s)"} | spec
    monitor = Monitor.of("m", 1, Threshold.from_dict(form, time_unit="s"), recipe_of(params))
    snapshot = sketch.snapshot()
    (found,) = evaluate([Task(monitor, {}, LONGEST_S)], snapshot, at_s * SECOND)
    assert found.state is not None
    assert holds_s[0] <= found.holds_s <= holds_s[1]
    later_us = int((at_s + found.holds_s) * SECOND)
    (later,) = evaluate([Task(monitor, {})], snapshot, later_us)
    if found.holds_s > SHORTEST_S:
        assert later.state is not None
        assert later.state.verdict == found.state.verdict
