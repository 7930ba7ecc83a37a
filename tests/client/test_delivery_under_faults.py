"""What a stream holds after every fault that a device, a network and a server are capable of.

Whatever happened, the merged sketch has the bytes of one that was fed each observation once.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from client.faults import (
    BATCHES,
    FAULTS,
    PARAMS,
    QUICK,
    ROWS,
    SUM,
    Aggregator,
    Proxy,
    at_random,
    batch,
    run_async_sensor,
    run_numbering_sensor,
    run_sensor,
    whole,
    whole_sum,
)

from decaysketch import DecaySketch
from decaysketch.client import AsyncSensor, Event, Sensor
from decaysketch.families import recipe_of

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["client.faults"])


def run_and_kill(target: Callable[..., None], *arguments: Any, seed: int, kills: int) -> int:
    """Start a process, kill it at a random moment, start it again, and let the last one finish.

    Returns:
        How many were killed while they ran.
    """
    draw, killed = random.Random(seed), 0
    for _ in range(kills):
        process = CONTEXT.Process(target=target, args=arguments)
        process.start()
        process.join(draw.uniform(0.05, 0.5))
        if process.is_alive():
            process.kill()
            killed += 1
        process.join()
        if process.exitcode == 0:
            return killed
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    process.join(600)
    assert process.exitcode == 0
    return killed


@pytest.mark.parametrize("run", [run_sensor, run_async_sensor])
def test_killed_devices_behind_a_bad_network(
    served: Aggregator, tmp_path: Path, run: Callable[..., None]
) -> None:
    stream = run.__name__
    served.create(stream, params=PARAMS.to_dict())
    with Proxy(served.port, at_random(1, 0.4)) as proxy:

        def device(source: str) -> None:
            spool, progress = tmp_path / source, tmp_path / f"{source}.progress"
            arguments = (proxy.url, stream, source, spool, progress)
            assert run_and_kill(run, *arguments, seed=ord(source), kills=4) >= 1
            assert not list((spool / "deltas").iterdir())
            assert not list((spool / "rejected").iterdir())

        with ThreadPoolExecutor() as devices:
            list(devices.map(device, ("a", "b")))
        assert sum(count for fault, count in proxy.seen.items() if fault) >= 5
    assert served.sketch(stream) == whole(("a", "b")).to_bytes()
    query = {"aggregate": "count", "decay": {"kind": "none"}, "now": 10**6}
    answer = served.client.post(f"/v1/streams/{stream}/query", json={"queries": [query]}).json()
    [estimate] = [each["estimate"] for each in answer["answers"]]
    assert estimate["lower"] <= 2 * BATCHES * ROWS <= estimate["upper"]


def test_killed_devices_that_number_their_elements(served: Aggregator, tmp_path: Path) -> None:
    served.create("sums", family="sum", params=SUM.to_dict())
    elements, spool = tmp_path / "elements", tmp_path / "spool"
    elements.write_text("1500")
    with Proxy(served.port, at_random(2, 0.4)) as proxy:
        killed = run_and_kill(
            run_numbering_sensor, proxy.url, "sums", "tap-7", spool, elements, seed=3, kills=4
        )
    assert killed >= 1
    assert not list((spool / "rejected").iterdir())
    assert served.sketch("sums") == whole_sum("tap-7", 1500).to_bytes()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_each_fault_alone(served: Aggregator, tmp_path: Path, asynchronous: bool) -> None:
    """The question for the stream meets it first, then twice the post, which is sent again.

    All of them at once, each with a sensor, a network and a stream of its own. On a slow machine
    more may fail than was made to.
    """
    kind = "async" if asynchronous else "sync"
    for fault in FAULTS:
        served.create(f"{kind}-{fault.replace(' ', '-')}", params=PARAMS.to_dict())

    def meet(number: int, fault: str) -> None:
        faults = iter([fault, None, fault, fault])
        stream, events = f"{kind}-{fault.replace(' ', '-')}", []

        def note(event: Event, events: list[str] = events) -> None:
            events.append(event.kind)

        def choose(faults: Iterator[str | None] = faults) -> str | None:
            return next(faults, None)

        options = QUICK | {"spool": tmp_path / stream, "recipe": recipe_of(PARAMS)}
        with Proxy(served.port, choose) as proxy:
            if asynchronous:
                asyncio.run(_post_async(proxy.url, stream, number, on_event=note, **options))
            else:
                with Sensor(proxy.url, stream, "a", on_event=note, **options) as sensor:
                    sensor.update(*batch(number, "a"))
                    assert sensor.flush(300).done
            assert proxy.seen[fault] == 3
        assert events[:3] == ["failed"] * 3
        assert set(events[3:-1]) <= {"failed"}
        assert events[-1] == "acknowledged"
        expected = DecaySketch(PARAMS)
        expected.update(*batch(number, "a"))
        assert served.sketch(stream) == expected.to_bytes()

    with ThreadPoolExecutor(len(FAULTS)) as sensors:
        list(sensors.map(meet, range(len(FAULTS)), FAULTS))


async def _post_async(url: str, stream: str, number: int, **options: Any) -> None:
    async with AsyncSensor(url, stream, "a", **options) as sensor:
        sensor.update(*batch(number, "a"))
        assert (await sensor.flush(300)).done


def test_server_killed_and_started_again(served: Aggregator, tmp_path: Path) -> None:
    """For both kinds of sensor at once, which feed on while it is away."""
    served.create("restarted", params=PARAMS.to_dict())

    async def feed() -> None:
        async with AsyncSensor(
            served.url, "restarted", "b", spool=tmp_path / "b", **QUICK
        ) as other:
            with Sensor(served.url, "restarted", "a", spool=tmp_path / "a", **QUICK) as sensor:
                for number in range(BATCHES):
                    sensor.update(*batch(number, "a"))
                    other.update(*batch(number, "b"))
                    await asyncio.sleep(0.02)
                    if number == 20:
                        served.kill()
                while other.status().last_error is None:  # it notices, however slow the machine
                    await asyncio.sleep(0.02)
                assert not other.status().done
                await asyncio.to_thread(served.start)
                assert (await asyncio.to_thread(sensor.flush, 300)).done
                assert (await other.flush(300)).done

    asyncio.run(feed())
    assert served.sketch("restarted") == whole(("a", "b")).to_bytes()


def test_starts_without_the_server_once_it_knew_it(served: Aggregator, tmp_path: Path) -> None:
    served.create("away", params=PARAMS.to_dict())
    with Sensor(served.url, "away", "a", spool=tmp_path / "a", **QUICK) as sensor:
        sensor.update(*batch(0, "a"))
    served.kill()
    with Sensor(served.url, "away", "a", spool=tmp_path / "a", **QUICK) as sensor:
        sensor.update(*batch(1, "a"), durable=True)
        assert not sensor.flush(0.2).done
    served.start()
    with Sensor(served.url, "away", "a", spool=tmp_path / "a", **QUICK) as sensor:
        status = sensor.flush(300)
    assert status.done
    query = {"aggregate": "count", "decay": {"kind": "none"}, "now": 10**6}
    request = {"queries": [query], "after": status.last_token}  # sees what was posted
    answer = served.client.post("/v1/streams/away/query", json=request)
    assert answer.json()["answers"][0]["estimate"]["value"] == 2 * ROWS
    assert served.sketch("away") == whole(("a",), 2).to_bytes()
