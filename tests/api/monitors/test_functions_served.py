"""Functions across sources in the aggregator: in process, and in two processes with a kill."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi.testclient import TestClient

import decaysketch as ds
from decaysketch.client import Sensor
from decaysketch.client.functions import FunctionSensor
from decaysketch.client.posting import PostRefusedError
from decaysketch.ecm import ECMParams, ECMSketch
from decaysketch.monitor.function_costs import Costs

from .receiver import receiving

Server = Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]

PARAMS = ECMParams(width=30, depth=2, slots=8, key_bits=20, time_unit="s", horizon=86_400)
STREAM = {"family": "ecm", "params": PARAMS.to_dict()}
PATH = "/v1/streams/s/functions/"
WINDOW = {"decay": "window(1h)", "theta": 0.2, "sites": ["a", "b"]}
SKEW = {"kind": "self_join", **WINDOW}
ITEMS = {"kind": "frequent", "threshold": 100, **WINDOW}
HANGS_S = 1_800  # only what hangs takes so long


def sensor(client: Any, function: str, source: str) -> FunctionSensor:
    return FunctionSensor(client, "s", function, source, ECMSketch(PARAMS, source=source))


def truth(sensors: list[FunctionSensor], now: int) -> float:
    decay = ds.decay.window(3_600)
    grids = [each._sketches[0].grid(decay, now=now).leaf.value for each in sensors]
    return float((np.sum(grids, axis=0) ** 2).sum(axis=1).min())


def test_results_are_within_theta_and_survive_a_restart(start: Callable[..., TestClient]) -> None:
    client = start()
    assert client.put("/v1/streams/s", json=STREAM).status_code == 201
    for name, spec in (("skew", SKEW), ("items", ITEMS)):
        assert client.put(PATH + name, json=spec).status_code == 201
        assert client.put(PATH + name, json=spec).status_code == 200
    rng, now = np.random.default_rng(2), 1_000_000
    sensors = {
        name: [sensor(client, name, source) for source in "ab"] for name in ("skew", "items")
    }
    for turn in range(6):
        now += 300
        for of_name in sensors.values():
            for each in of_name:
                keys = np.where(rng.random(60) < 0.4, 7, rng.integers(0, 500, 60))
                each.update(keys.astype(np.uint64), np.sort(now - rng.integers(0, 200, 60)))
        for _ in range(3):
            for of_name in sensors.values():
                for each in of_name:
                    assert each.step(now, poll=True)
        skew, items = (client.get(PATH + name).json()["found"] for name in ("skew", "items"))
        assert skew["certain"], skew
        f = truth(sensors["skew"], now)
        assert abs(skew["value"] - f) <= 0.2 * f * (1 + 1e-9)
        assert skew["low"] <= f * (1 + 1e-9)
        if turn >= 3:
            assert items["frequent"] == [7]
        if turn == 2:  # the state is that of the database
            client = start()
            assert client.get(PATH + "skew").json()["found"]["value"] == skew["value"]
            for of_name in sensors.values():
                for each in of_name:
                    each._client = client
    listed = client.get("/v1/streams/s/functions").json()["functions"]
    assert [each["function"] for each in listed] == ["items", "skew"]
    assert skew["messages"] < skew["arrivals"] == 720

    # Another definition begins a new epoch, and sources follow it.
    assert client.put(PATH + "skew", json=SKEW | {"theta": 0.1}).status_code == 200
    assert client.get(PATH + "skew").json()["found"]["value"] is None
    for _ in range(5):
        for each in sensors["skew"]:
            each.step(now, poll=True)
    found = client.get(PATH + "skew").json()["found"]
    assert found["certain"]
    assert sensors["skew"][0].spec is not None
    assert sensors["skew"][0].spec.theta == 0.1

    with pytest.raises(PostRefusedError, match="expected one of the 2 sites"):
        sensor(client, "skew", "c").step(now)
    assert client.delete(PATH + "skew").status_code == 204
    with pytest.raises(PostRefusedError):
        sensors["skew"][0].step(now, poll=True)
    assert client.delete(PATH + "skew").status_code == 404


def test_definitions_that_the_stream_does_not_support(start: Callable[..., TestClient]) -> None:
    client = start()
    hashed = ECMParams(width=30, depth=2, slots=8, time_unit="s")
    values = ds.SketchParams(max_weight=1, id_bits=40)
    streams = {
        "s": STREAM,
        "h": {"family": "ecm", "params": hashed.to_dict()},
        "v": {"params": values.to_dict()},
    }
    for name, form in streams.items():
        assert client.put(f"/v1/streams/{name}", json=form).status_code == 201
    for stream, spec, message in (
        ("v", SKEW, "does not count keys"),
        ("h", ITEMS, "integer keys"),
        ("s", SKEW | {"theta": 2}, "theta"),
        ("s", SKEW | {"sites": [f"s{k}" for k in range(300)]}, "sites"),
        ("s", [], "a function"),
    ):
        refused = client.put(f"/v1/streams/{stream}/functions/f", json=spec)
        assert refused.status_code == 422, refused.text
        assert message in refused.text
    for number in range(4):
        assert client.put(f"{PATH}f{number}", json=SKEW).status_code == 201
    assert client.put(f"{PATH}f4", json=SKEW).status_code == 409
    for body, message in (
        ({"epoch": None}, "messages of an exchange is missing"),
        ({"epoch": None, "messages": [{}]}, "expected their epoch"),
        ({"epoch": -1, "messages": []}, "epoch is -1"),
    ):
        refused = client.post(f"{PATH}f0/exchange?source=a", json=body)
        assert refused.status_code == 422
        assert message in refused.text


KINDS: dict[str, dict[str, Any]] = {
    "skew": SKEW,
    "items": ITEMS,
    "common": {"kind": "inner_product", "other": "t-common", **WINDOW},
}


@pytest.mark.parametrize("name", KINDS)
def test_sources_post_where_messages_cost_more(
    name: str, start: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A self-join begins with messages, and its sources change to posts. Others begin with posts.
    costs = partial(Costs, fewest=20, posts=name != "skew", pauses=1)
    monkeypatch.setattr("decaysketch.monitor.functions.Costs", costs)
    client, now, stream = start(), int(time.time()), f"s-{name}"
    path, spec = f"/v1/streams/{stream}/functions/{name}", KINDS[name] | {"threshold": 20}
    for each in (stream, f"t-{name}"):
        assert client.put(f"/v1/streams/{each}", json=STREAM).status_code == 201
    assert client.put(path, json=spec).status_code == 201
    sensors = [
        FunctionSensor(
            client, stream, name, source, ECMSketch(PARAMS, source=source),
            other=ECMSketch(PARAMS, source=source) if name == "common" else None,
        )
        for source in "ab"
    ]  # fmt: skip

    def found(*keys: int) -> Any:
        for each in sensors:
            if keys:
                for of in range(len(each._sketches)):
                    each.update(np.array(keys, np.uint64), np.full(len(keys), now), of=of)
            each._exchanged_s = -math.inf  # as if a quarter of the lease was over
            assert each.step(now, poll=True)
        return client.get(path).json()["found"]

    for turn in range(20):  # one event in a step: it costs several messages
        if found(turn)["posts"]:
            break
    state = found(*[7] * 30)
    assert state["posts"]
    assert not state["costly"]
    assert state["certain"], state
    if name == "items":
        assert state["frequent"] == [7]
    else:
        counters = [
            np.sum(
                [each._sketches[of].grid(spec["decay"], now=now).leaf.value for each in sensors], 0
            )
            for of in (0, -1)
        ]
        truth = float((counters[0] * counters[1]).sum(axis=1).min())
        assert (state["value"], state["low"], state["high"]) == (truth, truth, truth)
    found(*[7] * 200)  # after so many arrivals messages are tried again
    for _ in range(4):
        state = found()
    assert state["certain"], state
    assert not state["posts"]


def test_alerts_and_metrics(start: Callable[..., TestClient]) -> None:
    with receiving() as receiver:
        client, now = start(
            webhook_origins=receiver.origin, webhook_networks="127.0.0.0/8",
            webhook_secret="s" * 32,
        ), int(time.time())  # fmt: skip
        assert client.put("/v1/streams/s", json=STREAM).status_code == 201
        elsewhere = client.put(PATH + "items", json=ITEMS | {"webhook": "http://other.example/x"})
        assert elsewhere.status_code == 422
        assert "webhook" in elsewhere.text
        for name, spec in (("items", ITEMS), ("skew", SKEW | {"threshold": 30_000})):
            put = client.put(PATH + name, json=spec | {"webhook": receiver.url, "sites": ["a"]})
            assert put.status_code == 201
        sensors = [sensor(client, name, "a") for name in ("items", "skew")]

        def settled(at: int, messages: int) -> list[dict[str, Any]]:
            for each in sensors:
                for _ in range(4):
                    assert each.step(at, poll=True)
            while len(sent := receiver.sent()) < messages:
                time.sleep(0.02)
            return sent

        for each in sensors:
            each.update(
                np.repeat(np.array([5, 9, 1], np.uint64), [150, 130, 20]), np.full(300, now)
            )
        fired = settled(now, 3)
        by_key = {each["groupLabels"].get("key"): each for each in fired}
        assert by_key.keys() == {"5", "9", None}
        assert {each["status"] for each in fired} == {"firing"}
        said = by_key["5"]["commonAnnotations"]["description"]
        assert said == "key 5 is frequent over 1 sources: the threshold is 100, within 20%"
        metrics = client.get("/metrics").text
        labels = '{function="items",kind="frequent",stream="s"}'
        for name, value in (("frequent_keys", 2), ("certain", 1), ("arrivals_total", 300)):
            assert f"decaysketch_function_{name}{labels} {value}.0" in metrics
        ended = settled(now + 4_000, 6)[3:]  # the window is over
        assert {each["status"] for each in ended} == {"resolved"}
        assert {each["id"] for each in ended} == {each["id"] for each in fired}
        assert {each["sequence"] for each in ended} == {2}


def test_two_processes_and_a_kill(server: Server, tmp_path: Path) -> None:
    data, now = tmp_path / "data.sqlite3", int(time.time())
    with ExitStack() as stack:
        process, one = stack.enter_context(server(data))
        _, other = stack.enter_context(server(data))
        assert one.put("/v1/streams/s", json=STREAM).status_code == 201
        assert one.put(PATH + "skew", json=SKEW).status_code == 201
        sensors = [sensor(one, "skew", "a"), sensor(other, "skew", "b")]

        def settled(client: httpx2.Client) -> Any:
            hangs_at = time.monotonic() + HANGS_S
            while True:
                for each in sensors:
                    each.step(now, poll=True)
                found = client.get(PATH + "skew").json()["found"]
                if found["certain"]:
                    f = truth(sensors, now)
                    assert abs(found["value"] - f) <= 0.2 * f * (1 + 1e-9)
                    return found
                assert time.monotonic() < hangs_at, found
                time.sleep(0.05)

        for each in sensors:
            each.update(np.arange(50, dtype=np.uint64) % 9, np.full(50, now))
        before = settled(other)
        process.kill()
        process.wait()
        assert not sensors[0].step(now, poll=True)
        _, again = stack.enter_context(server(data))
        assert again.get(PATH + "skew").json()["found"]["value"] == before["value"]
        sensors[0]._client = again
        sensors[0].update(np.full(400, 3, np.uint64), np.full(400, now))
        assert settled(again)["value"] > 2 * before["value"]

        # Where the aggregator asks for posts, a sensor of the source sends them.
        assert again.put(PATH + "posted", json=SKEW | {"sites": ["a"]}).status_code == 201
        own = stack.enter_context(
            Sensor(str(again.base_url), "s", "a", spool=tmp_path / "a", flush_age_s=3_600)
        )
        with pytest.raises(ds.ParameterError, match="sensors has 2 entries"):
            FunctionSensor(again, "s", "posted", "a", ECMSketch(PARAMS), sensors=[own, own])
        site = FunctionSensor(
            again, "s", "posted", "a", ECMSketch(PARAMS, source="a"), sensors=[own]
        )
        assert site.step(now)
        epoch = again.get(PATH + "posted").json()["epoch"]
        costly = {"epoch": epoch, "messages": [], "posts": 2_000}
        exchange = again.post(f"{PATH}posted/exchange", params={"source": "a"}, json=costly)
        assert exchange.json()["posts"]
        site.update(np.arange(30, dtype=np.uint64) % 4, np.full(30, now))
        hangs_at = time.monotonic() + HANGS_S
        while True:
            site.step(now, poll=True)
            if (found := again.get(PATH + "posted").json()["found"])["certain"]:
                break
            assert time.monotonic() < hangs_at, found
            time.sleep(0.05)
        assert found["posts"]
        assert found["value"] == truth([site], now) > 0
        assert site.settled
