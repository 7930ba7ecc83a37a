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
from decaysketch.client import (
    AsyncSensor,
    ClientError,
    Sensor,
    SpoolInUseError,
    StreamUnknownError,
)
from decaysketch.errors import ParameterError, TimeUnitWarning
from decaysketch.families import recipe_of
from decaysketch.series import SeriesParams, SeriesSketch

LOOK = {"name": "s", "family": "decay", "params": PARAMS.to_dict(), "decay": None, "rows": 0}
TAKEN = {"stream": "s", "source": "a", "token": "s:1:1", "sketches": [{"rows": 50}]}


def sensor(spool: Path, answer: Any, kind: type = Sensor, **options: Any) -> Any:
    chosen = QUICK | {"timeout_s": 300.0} | options  # for programs that hang
    transport = httpx2.MockTransport(answer)
    return kind("http://there", "s", "a", spool=spool, transport=transport, **chosen)


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

    with sensor(tmp_path, answer, recipe=recipe_of(PARAMS), timeout_s=0.2) as one:
        one.update(*batch(0, "a"))
        while (found := one.flush(0.05)).last_error is None:  # its one request is not over
            pass
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


@pytest.mark.parametrize("kind", [Sensor, AsyncSensor])
def test_server_that_cannot_be_reached_is_asked_once(tmp_path: Path, kind: type) -> None:
    """Whoever starts a sensor for the first time learns at once that the address is wrong."""
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        raise httpx2.ConnectError("nobody there")

    one = sensor(tmp_path, answer, kind, timeout_s=600.0)
    with pytest.raises(StreamUnknownError, match="ConnectError: nobody there"):
        one.start() if kind is Sensor else asyncio.run(one.start())
    assert asked == ["GET"]
    one._core.close()


def test_start_is_back_in_time_whatever_blocks(tmp_path: Path) -> None:
    """The look-up of a name has no time-out of its own."""
    released = threading.Event()

    def blocking(request: httpx2.Request) -> httpx2.Response:
        released.wait(600)
        raise httpx2.ConnectError("no such name")

    one = sensor(tmp_path / "a", blocking, timeout_s=0.2)
    with pytest.raises(StreamUnknownError, match=r"timeout: no response within 0\.2 s"):
        one.start()
    released.set()
    one.close()

    async def run() -> None:
        async def waiting(request: httpx2.Request) -> httpx2.Response:
            await asyncio.Event().wait()
            raise AssertionError

        async with sensor(tmp_path / "b", waiting, AsyncSensor, timeout_s=0.2):
            pass

    with pytest.raises(StreamUnknownError, match=r"timeout: no response within 0\.2 s"):
        asyncio.run(run())


@pytest.mark.parametrize("kind", [Sensor, AsyncSensor])
def test_recipe_in_the_spool_needs_no_server(tmp_path: Path, kind: type) -> None:
    sensor(tmp_path, usual, recipe=recipe_of(PARAMS)).close()

    def unreachable(request: httpx2.Request) -> httpx2.Response:
        raise AssertionError("asked")

    one = sensor(tmp_path, unreachable, kind)
    assert one.recipe == recipe_of(PARAMS)
    one._core.close()


def test_answers_without_an_end_are_cut_off(tmp_path: Path) -> None:
    class Endless(httpx2.SyncByteStream):
        def __iter__(self) -> Any:
            while True:
                yield b" " * 1_000_000

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=Endless())

    with (
        pytest.raises(
            StreamUnknownError, match=r"the response is longer than|timeout|took too long"
        ),
        sensor(tmp_path, answer, timeout_s=1.0),
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


def test_times_of_another_unit_are_warned_of_once(tmp_path: Path) -> None:
    with sensor(tmp_path, usual) as one:
        values, weights, times, ids = batch(0, "a")
        with pytest.warns(TimeUnitWarning, match="stream 's': .* in ms it would be 2023") as said:
            one.update(values, weights, times + 1_700_000_000_000, ids)
        assert len(said) == 1
        assert said[0].filename == __file__
        assert one.update(values, weights, times + 1_700_000_000_000, ids) == len(ids)


def test_sender_outlives_whatever_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of the transport that is none of HTTP, and one that nobody foresaw."""

    def answers() -> Any:
        failures = iter([httpx2.InvalidURL("odd"), RuntimeError("stream")])

        def answer(request: httpx2.Request) -> httpx2.Response:
            for failure in failures:
                raise failure
            return usual(request)

        return answer

    def failing_once(one: Any) -> None:
        settle, failed = one._core.settle, iter([True])

        def odd(*arguments: Any) -> None:
            if next(failed, False):
                raise ZeroDivisionError("odd")
            settle(*arguments)

        monkeypatch.setattr(one._core, "settle", odd)

    options: dict[str, Any] = {"recipe": recipe_of(PARAMS)}
    with sensor(tmp_path / "a", answers(), **options) as one:
        failing_once(one)
        one.update(*batch(0, "a"))
        assert one.flush(60).done
        assert one.status().running
    assert not one.status().running

    async def run() -> None:
        async with sensor(tmp_path / "b", answers(), AsyncSensor, **options) as other:
            failing_once(other)
            other.update(*batch(0, "a"))
            assert (await other.flush(60)).done
            assert other.status().running
        assert not other.status().running

    asyncio.run(run())
    assert caplog.text.count("the sender met an error") == 2


def test_listener_may_close(tmp_path: Path) -> None:
    closed = threading.Event()

    def listener(event: Any) -> None:
        with pytest.raises(ClientError, match="called in on_event"):
            one.flush()
        one.close()
        closed.set()

    one = sensor(tmp_path, usual, on_event=listener).start()
    one.update(*batch(0, "a"))
    assert closed.wait(60)
    one.close()
    assert not one.status().running


@pytest.mark.parametrize("kind", [Sensor, AsyncSensor])
def test_two_may_close_at_the_same_time(tmp_path: Path, kind: type) -> None:
    async def run() -> None:
        one = sensor(tmp_path, usual, kind)
        await one.start() if kind is AsyncSensor else one.start()
        one._core.close()  # the other one has come that far
        status = await one.close() if kind is AsyncSensor else one.close()
        assert not status.running

    asyncio.run(run())


def test_updates_after_the_loop_has_ended(tmp_path: Path) -> None:
    """They are in memory, and the status says that nobody sends."""
    loop = asyncio.new_event_loop()

    async def start() -> AsyncSensor:
        one: AsyncSensor = sensor(tmp_path, usual, AsyncSensor)
        return await one.start()

    one = loop.run_until_complete(start())
    task = one._task
    assert task is not None
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    assert one.update(*batch(0, "a")) == 50
    assert (one.status().running, one.status().unsynced_rows) == (False, 50)
    asyncio.run(one._client.aclose())
    one._core.close()


def test_http_client_is_closed_though_the_task_was_cancelled(tmp_path: Path) -> None:
    async def run() -> None:
        one = sensor(tmp_path, usual, AsyncSensor)
        await one.start()
        one._task.cancel()
        await asyncio.wait([one._task])
        with pytest.raises(asyncio.CancelledError):
            await one.close()
        assert one._client.is_closed

    asyncio.run(run())


def test_no_client_is_made_where_the_spool_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> None:
        raise ZeroDivisionError("no client")

    one = sensor(tmp_path, usual)
    with monkeypatch.context() as patch:
        patch.setattr(Sensor, "_make_client", staticmethod(fail))
        with pytest.raises(SpoolInUseError):
            sensor(tmp_path, usual)
        one.close()
        with pytest.raises(ZeroDivisionError):
            sensor(tmp_path, usual)
    sensor(tmp_path, usual).close()  # and the spool was let go


def test_labels_are_sent_as_any_values(tmp_path: Path) -> None:
    params = PARAMS.__class__(id_bits=40, capacity=50, value_type="label")
    bodies: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return answered(200, {**LOOK, "params": params.to_dict()})
        bodies.append(request.read())
        return answered(200, {**TAKEN, "sketches": [{"rows": 3}]})

    with sensor(tmp_path, answer) as one:
        assert one.update(["E42", None, "E7"], 1, [1, 2, 3], [1, 2, 3]) == 3
        one.flush()
    expected = DecaySketch(params)
    expected.update(["E42", None, "E7"], 1, [1, 2, 3], [1, 2, 3])
    assert [DecaySketch.from_bytes(body, params=params) for body in bodies] == [expected]


SERIES = SeriesParams(attributes="job", capacity=50)
COUNTERS: Any = ([7.0, 9.0], 1, [10, 20], [1, 2])
COLUMNS: Any = {"entities": [5, 5], "starts": [3, 4], "attributes": {"job": ["api", None]}}


@pytest.mark.parametrize("kind", [Sensor, AsyncSensor])
def test_series_are_sent_with_starts_entities_and_attributes(tmp_path: Path, kind: type) -> None:
    bodies: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return answered(200, {**LOOK, "family": "series", "params": SERIES.to_dict()})
        bodies.append(request.read())
        return answered(200, {**TAKEN, "sketches": [{"rows": 2}]})

    async def send() -> None:
        async with sensor(tmp_path, answer, kind) as one:
            one.update(*COUNTERS, **COLUMNS)

    if kind is AsyncSensor:
        asyncio.run(send())
    else:
        with sensor(tmp_path, answer) as one:
            one.update(*COUNTERS, **COLUMNS, durable=True)
    expected = SeriesSketch(SERIES)
    expected.update(*COUNTERS, **COLUMNS)
    assert [SeriesSketch.from_bytes(body, params=SERIES) for body in bodies] == [expected]


def test_series_columns_are_rejected_where_there_are_no_series(tmp_path: Path) -> None:
    with sensor(tmp_path, usual) as one:
        for name, column in COLUMNS.items():
            with pytest.raises(ClientError, match=f"{name} is given, .* family 'decay'"):
                one.update(*COUNTERS, **{name: column})
        with pytest.raises(TypeError, match="entity"):
            one.update(*COUNTERS, entity=[5, 5])
        assert one.status().unsynced_rows == 0
