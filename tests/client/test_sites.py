"""Sensors as sites of an aggregator that really runs: what is held back, and what makes it go."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from client.faults import PARAMS, Aggregator
from client.test_sensor import answered

from decaysketch import decay
from decaysketch.client import AsyncSensor, Sensor
from decaysketch.families import recipe_of
from decaysketch.monitor import Threshold

OPTIONS: dict[str, Any] = {
    "monitors": True, "flush_age_s": 3600.0, "flush_rows": 10**6, "trust_env": False,
    "backoff_s": 0.05, "max_backoff_s": 0.5, "timeout_s": 600.0,
}  # fmt: skip


def spec(above: float = 1000) -> dict[str, Any]:
    return Threshold("count", above=above, decay=decay.exponential(half_life=1_000_000)).to_dict()


def rows(first: int, count: int) -> tuple[list[float], int, list[int], list[int]]:
    ids = list(range(first, first + count))
    return [1.0] * count, 1, [int(time.time())] * count, ids


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def put(served: Aggregator, stream: str, **options: Any) -> None:
    path = f"/v1/streams/{stream}/monitors/m"
    assert served.client.put(path, json=spec(**options)).is_success


def state(served: Aggregator, stream: str) -> Any:
    return served.client.get(f"/v1/streams/{stream}/monitors/m").json()


def test_sites_hold_back_until_a_monitor_is_defined_and_then_as_much_as_they_may(
    served: Aggregator, tmp_path: Path
) -> None:
    served.create("sites", params=PARAMS.to_dict())
    with Sensor(served.url, "sites", "a", spool=tmp_path / "a", **OPTIONS) as sensor:
        sensor.update(*rows(0, 10))
        put(served, "sites")  # told by an event
        until(lambda: any(each.allowance > 20 for each in sensor.status().monitors))
        assert sensor.status().posts == 1
        until(lambda: state(served, "sites")["silent"] == [])
        sensor.update(*rows(10, 10))
        held = sensor.status().monitors[0]
        assert 9.9 < held.weight < 10.1
        assert sensor.status().posts == 1
        until(lambda: state(served, "sites")["state"] == "calm")
        sensor.update(*rows(20, 1000))
        until(lambda: state(served, "sites")["state"] == "firing")
        served.client.delete("/v1/streams/sites/monitors/m")
        until(lambda: sensor.status().monitors == ())


def test_async_sites_do_the_same(served: Aggregator, tmp_path: Path) -> None:
    served.create("async-sites", params=PARAMS.to_dict())

    async def run() -> None:
        async with AsyncSensor(
            served.url, "async-sites", "a", spool=tmp_path / "a", **OPTIONS
        ) as sensor:
            await asyncio.to_thread(put, served, "async-sites")

            def allowed() -> bool:
                return any(each.allowance > 0 for each in sensor.status().monitors)

            await asyncio.to_thread(until, allowed)
            sensor.update(*rows(0, 1100))
            await asyncio.to_thread(until, lambda: sensor.status().posts > 0)
        assert sensor.status().done

    asyncio.run(run())


def test_without_events_answers_tell(tmp_path: Path) -> None:
    asked: list[str] = []
    grant = {"monitor": "m", "inc": 0, "seq": 0, "epoch": 1, "serial": 1, "allowance": 5.0,
             "lease_s": 30.0, "spec": spec()}  # fmt: skip

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path.rpartition("/")[2])
        if asked[-1] == "events":
            return answered(429, {"detail": "no place"})
        if asked[-1] == "s":
            return answered(200, {"name": "s", **recipe_of(PARAMS).to_dict()})
        if asked[-1] == "reports":
            report = json.loads(request.content)
            told = grant | {"inc": report["inc"], "seq": report["seq"], "serial": report["seq"]}
            return answered(200, {"grants": [told], "gone": []})
        return answered(503, {})

    transport = httpx2.MockTransport(answer)
    with Sensor(
        "http://test", "s", "a", spool=tmp_path / "a", transport=transport, **OPTIONS
    ) as sensor:
        until(lambda: any(each.allowance == 5.0 for each in sensor.status().monitors))
        until(lambda: asked.count("events") >= 2)
        sensor.update(*rows(0, 5))
        assert "sketches" not in asked
        sensor.update(*rows(5, 1))
        until(lambda: "sketches" in asked)
        sensor.close(timeout_s=0.1)


@pytest.mark.parametrize("monitors", [False, True])
def test_only_a_site_keeps_a_card_of_monitors(tmp_path: Path, monitors: bool) -> None:
    sensor = Sensor(
        "http://test", "s", "a", spool=tmp_path, recipe=recipe_of(PARAMS), monitors=monitors
    )
    sensor.close()
    assert (tmp_path / "monitors.json").exists() is monitors
