"""The two transports: what they put on the network, and what never waits for it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from client.faults import PARAMS, QUICK, batch

from decaysketch import DecaySketch
from decaysketch.client import AsyncSensor, ClientError, Sensor, StreamUnknownError
from decaysketch.errors import ParameterError
from decaysketch.families import recipe_of

LOOK = {"name": "s", "family": "decay", "params": PARAMS.to_dict(), "decay": None, "rows": 0}
TAKEN = {"stream": "s", "source": "a", "token": "s:1:1", "sketches": [{"rows": 50}]}


def sensor(spool: Path, answer: Any, kind: type = Sensor, **options: Any) -> Any:
    transport = httpx2.MockTransport(answer)
    return kind("http://there", "s", "a", spool=spool, transport=transport, **QUICK | options)


def answered(status: int, fields: Any, **headers: str) -> httpx2.Response:
    """An answer as it comes from a network: not read yet."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    stream = httpx2.ByteStream(json.dumps(fields).encode())
    return httpx2.Response(status, headers=named, stream=stream)


def usual(request: httpx2.Request) -> httpx2.Response:
    return answered(200, LOOK if request.method == "GET" else TAKEN)


def test_what_is_sent(tmp_path: Path) -> None:
    requests: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        request.read()
        requests.append(request)
        return usual(request)

    with sensor(tmp_path, answer, api_key="k-1") as one:
        assert one.recipe == recipe_of(PARAMS)
        assert one.update(*batch(0, "a")) == 50
        status = one.flush()
    assert (status.done, status.posts, status.last_token) == (True, 1, "s:1:1")
    expected = DecaySketch(PARAMS)
    expected.update(*batch(0, "a"))
    look, post = requests
    assert (look.method, look.url.path) == ("GET", "/v1/streams/s")
    assert (post.method, post.url.path) == ("POST", "/v1/streams/s/sketches")
    assert dict(post.url.params) == {"source": "a"}
    assert post.headers["content-type"] == "application/octet-stream"
    assert post.content == expected.to_bytes()
    assert {request.headers["authorization"] for request in requests} == {"Bearer k-1"}
    assert not any(
        path.read_bytes().find(b"k-1") >= 0 for path in tmp_path.iterdir() if path.is_file()
    )


def test_updates_and_syncs_do_not_wait_for_the_network(tmp_path: Path) -> None:
    """The server holds its answer back until everything was given."""
    given, asked = threading.Event(), threading.Event()

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            asked.set()
            assert given.wait(60)
        return usual(request)

    with sensor(tmp_path, answer) as one:
        one.update(*batch(0, "a"))
        assert asked.wait(60)
        for number in range(1, 20):
            one.update(*batch(number, "a"), durable=True)
        assert one.status().posts == 0
        given.set()
        assert one.flush(60).done


def test_updates_of_an_async_sensor_do_not_wait_either(tmp_path: Path) -> None:
    async def run() -> None:
        given, asked = asyncio.Event(), asyncio.Event()

        async def answer(request: httpx2.Request) -> httpx2.Response:
            if request.method == "POST":
                asked.set()
                await given.wait()
            return usual(request)

        async with sensor(tmp_path, answer, AsyncSensor) as one:
            one.update(*batch(0, "a"))
            await asked.wait()
            for number in range(1, 20):
                one.update(*batch(number, "a"))
                await one.sync()
            assert one.status().posts == 0
            given.set()
            assert (await one.flush(60)).done

    asyncio.run(run())


@pytest.mark.parametrize("status", [401, 403, 404])
def test_flush_returns_where_delivery_is_paused(tmp_path: Path, status: int) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return answered(status, {"detail": "not you"})

    options = {"recipe": recipe_of(PARAMS), "timeout_s": 60.0, "max_backoff_s": 60.0}
    one = sensor(tmp_path, answer, **options).start()
    one.update(*batch(0, "a"))
    for _ in range(2):
        found = one.flush()
        assert found.paused == f"{status}: not you"
        assert (found.done, found.pending_deltas) == (False, 1)
    one.close()

    async def run() -> None:
        async with sensor(tmp_path, answer, AsyncSensor, **options) as other:
            assert (await other.flush()).paused == f"{status}: not you"

    asyncio.run(run())


def test_flush_gives_up_in_time(tmp_path: Path) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return answered(503, {}, retry_after="3000")

    with sensor(tmp_path, answer, recipe=recipe_of(PARAMS)) as one:
        one.update(*batch(0, "a"))
        found = one.flush(0.05)
        assert (found.done, found.last_error) == (False, "503: no detail")


def test_stream_that_is_not_known(tmp_path: Path) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return answered(404, {"detail": "there is no stream 's'"})

    with (
        pytest.raises(StreamUnknownError, match="404: there is no stream 's'"),
        sensor(tmp_path, answer),
    ):
        pass

    async def run() -> None:
        async with sensor(tmp_path, answer, AsyncSensor):
            pass

    with pytest.raises(StreamUnknownError, match="404: there is no stream 's'"):
        asyncio.run(run())


def test_answers_without_an_end_are_cut_off(tmp_path: Path) -> None:
    class Endless(httpx2.SyncByteStream):
        def __iter__(self) -> Any:
            while True:
                yield b" " * 1_000_000

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=Endless())

    with (
        pytest.raises(StreamUnknownError, match=r"the answer is longer than|took too long"),
        sensor(tmp_path, answer),
    ):
        pass


def test_not_running(tmp_path: Path) -> None:
    one = sensor(tmp_path, usual)
    with pytest.raises(StreamUnknownError, match="start the sensor first"):
        one.update(*batch(0, "a"))
    with pytest.raises(ClientError, match="not running"):
        one.flush()
    one.start()
    assert one.close().done
    with pytest.raises(ClientError, match="closed"):
        one.update(*batch(0, "a"))
    with pytest.raises(ParameterError, match="timeout_s is 0"):
        sensor(tmp_path, usual, timeout_s=0)
    sensor(tmp_path, usual).close()  # nobody holds the spool


def test_library_does_not_need_the_client() -> None:
    program = "import sys, decaysketch; print('httpx2' in sys.modules, 'typer' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert found.stdout.split() == ["False", "False"]


def test_card_is_readable(tmp_path: Path) -> None:
    with sensor(tmp_path, usual):
        card = json.loads((tmp_path / "sensor.json").read_text())
    assert card["recipe"]["params"] == PARAMS.to_dict()
