"""Sites, a relay and a hub as processes, of which any is away or killed at any time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from service import NOW, OCTETS, PARAMS, build

import decaysketch
from decaysketch.client import Sensor

Server = Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]


def test_a_tree_whose_relay_and_hub_are_killed(
    tmp_path: Path, server: Server, free_port: int
) -> None:
    rows = np.linspace(10.0, 30.0, 300), 1, NOW - np.arange(300), np.arange(300)
    first = decaysketch.DecaySketch(PARAMS)
    first.update(*rows)
    given = [first, *(build(seed, first_id=200 * seed) for seed in range(1, 6))]
    options = (
        "--upstream", f"http://127.0.0.1:{free_port}", "--upstream-source", "valley",
        "--config", str(tmp_path / "relay.toml"),
    )  # fmt: skip
    (tmp_path / "relay.toml").write_text("upstream_flush_s = 0.1\n")

    def relay() -> AbstractContextManager[tuple[Any, httpx2.Client]]:
        return server(tmp_path / "relay.sqlite3", *options)

    def hub() -> AbstractContextManager[tuple[Any, httpx2.Client]]:
        return server(tmp_path / "hub.sqlite3", port=free_port)

    with relay() as (_, valley):  # there is no hub yet
        create(valley)
        url, spool = str(valley.base_url), tmp_path / "spool"
        with Sensor(url, "s", "north", spool=spool, timeout_s=600) as sensor:
            sensor.update(*rows)
        post(valley, given[1], "south")
        with hub() as (_, top):
            create(top)
            wait_for(top, given[:2])
        post(valley, given[2], "south")  # acknowledged while the hub is away; then it is killed
        post(valley, given[2], "north")
    with hub() as (_, top), relay() as (_, valley):
        wait_for(top, given[:3])
        post(valley, given[3], "south")
    with relay() as (_, valley):  # killed with that on its way, or there
        post(valley, given[4], "north")
    with hub() as (_, top), relay() as (_, valley):
        post(valley, given[5], "south")
        wait_for(top, given)
        (source,) = top.get("/v1/streams/s").json()["sources"]
        assert source["source"] == "valley"
        assert valley.get("/v1/streams/s/sketch").content == union(given)


def create(client: httpx2.Client) -> None:
    assert client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).status_code == 201


def post(client: httpx2.Client, sketch: Any, source: str) -> None:
    answer = client.post(
        "/v1/streams/s/sketches",
        params={"source": source}, content=sketch.to_bytes(), headers=OCTETS,
    )  # fmt: skip
    assert answer.status_code == 200, answer.text


def union(sketches: list[decaysketch.DecaySketch]) -> bytes:
    return decaysketch.merge(sketches).to_bytes()


def wait_for(hub: httpx2.Client, sketches: list[decaysketch.DecaySketch]) -> None:
    """Until it holds the union of these, as they are counted once."""
    expected, give_up = union(sketches), time.monotonic() + 600  # for what hangs
    while hub.get("/v1/streams/s/sketch").content != expected:
        assert time.monotonic() < give_up
        time.sleep(0.05)
