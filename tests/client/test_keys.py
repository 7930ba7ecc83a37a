"""A sensor that counts events of keys: it is a site, and what it sends is the whole state."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from client.faults import Aggregator
from client.test_core import EAGER, Server, core, deliver

from decaysketch import decay
from decaysketch.client import ClientError, Sensor
from decaysketch.client.core import Core
from decaysketch.ecm import ECMCollection, ECMParams
from decaysketch.families import recipe_of

PARAMS = ECMParams(width=40, depth=3, slots=5, time_unit="tick", seed=6, capacity=64)
RECIPE = recipe_of(PARAMS)
ALL = decay.window(10**6)


def count(one: Core, keys: list[str], time: int) -> int:
    times = list(range(time, time + len(keys)))
    return one.update({"keys": keys, "timestamps": times, "weights": 1}, named_by="key")


def totals(collection: Any) -> list[float]:
    """Of each epoch, in order of size."""
    return sorted(state.seen for state in collection.entries.values())


@pytest.fixture
def server() -> Server:
    return Server(RECIPE)


def test_each_delta_takes_the_place_of_the_one_before(tmp_path: Path, server: Server) -> None:
    one = core(tmp_path, recipe=RECIPE)
    expected = ECMCollection(PARAMS)
    for turn in range(5):
        count(one, ["a", "b", "a"], 10 * turn)
        if turn % 2:
            one.sync()
        one.seal()
        deliver(one, server)
    ((name, epoch),) = server.merged().entries
    assert name == "a"
    for turn in range(5):
        expected.update(["a", "b", "a"], range(10 * turn, 10 * turn + 3), source="a", epoch=epoch)
    assert server.merged() == expected
    assert RECIPE.decode(server.bodies[-1]) == expected  # the whole of it
    assert one.status().done


def test_what_waits_is_one_state(tmp_path: Path, server: Server) -> None:
    one = core(tmp_path, replace(EAGER, max_post_bytes=1 << 20), recipe=RECIPE)
    for turn in range(40):
        count(one, ["a"], turn)
        one.seal()
    deliver(one, server)
    assert len(server.bodies) <= 16
    assert totals(server.merged()) == [40]


def test_a_process_that_was_killed_lost_nothing_of_what_was_synced(
    tmp_path: Path, server: Server
) -> None:
    one = core(tmp_path, recipe=RECIPE, randomness=random.Random(1))
    count(one, ["a", "b"], 0)
    one.seal()
    count(one, ["c"], 5)
    one.sync()
    count(one, ["lost"], 7)  # in memory alone
    one.store.spool.close()
    again = core(tmp_path, recipe=None, randomness=random.Random(2))
    count(again, ["d", "d"], 9)
    again.seal()
    deliver(again, server)
    assert totals(server.merged()) == [2, 3]  # of two epochs
    assert server.merged().key_count("d", ALL, now=20).value == 2
    assert server.merged().key_count("lost", ALL, now=20).value == 0


def test_it_is_fed_in_its_own_way(tmp_path: Path) -> None:
    one = core(tmp_path / "keys", recipe=RECIPE)
    with pytest.raises(ClientError, match="of family 'ecm'; feed it by update_keys"):
        one.update({"values": 1, "weights": 1, "timestamps": 1, "ids": 1}, named_by="ids")
    other = core(tmp_path / "ids")
    with pytest.raises(ClientError, match="of family 'decay'; feed it by update"):
        count(other, ["a"], 1)


def test_sensors_of_one_aggregator(tmp_path: Path, served: Aggregator) -> None:
    served.create("keys", family="ecm", params=PARAMS.to_dict())
    for run in range(2):  # the second run of a sensor has its spool, and no state
        for source in ("north", "south"):
            spool = tmp_path / source
            with Sensor(served.url, "keys", source, spool=spool, timeout_s=600) as sensor:
                for turn in range(3):
                    time = 100 * run + 10 * turn
                    sensor.update_keys(["a", source], [time, time + 1], durable=turn == 1)
                    sensor.flush()
                sensor.update_keys(("a", "b"), 100 * run + 50)
    held = ECMCollection.from_bytes(served.sketch("keys"))
    assert {name for name, _ in held.entries} == {"north", "south"}
    assert totals(held) == [7, 7, 7, 7]
    assert held.key_count("a", ALL, now=200).value == pytest.approx(12, abs=1)
    assert held.key_count([("a", "b")], ALL, now=200)[0].value == pytest.approx(4, abs=1)
