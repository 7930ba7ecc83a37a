"""Posting sketches: to the real aggregator, and to a network that misbehaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from delivery_logs import delivery_log

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.batch import ColumnMapping, sketches_by_key
from decaysketch.families import Recipe, recipe_of
from spark_jobs.console import JobError
from spark_jobs.publish import Publisher, source_name
from spark_jobs.tables import StoredSketch

MAPPING = ColumnMapping(
    time="event_us", fallback_time="arrival_us", ids=("source", "msg"), value="value"
)
PARAMS = ds.SketchParams(max_weight=1, capacity=200, time_unit="us")


def stored() -> list[StoredSketch]:
    found = sketches_by_key(delivery_log(900), PARAMS, MAPPING, ["path"])
    return [StoredSketch(key, 0, s.to_bytes(), s.digest()) for key, s in found.items()]


class TestWithTheAggregator:
    def test_sources_arrive_and_arriving_again_changes_nothing(self, tmp_path: Path) -> None:
        from fastapi.testclient import TestClient

        from api.app import create_app
        from api.settings import Settings

        app = create_app(Settings(data=str(tmp_path / "aggregator.sqlite3")))
        with TestClient(app, base_url="http://localhost") as client:
            publisher = Publisher(client, "ward-7")
            publisher.create_stream(recipe_of(PARAMS))
            publisher.create_stream(recipe_of(PARAMS))
            receipts = publisher.post_all(stored())
            assert all(receipt.new for receipt in receipts)
            first = client.get("/v1/streams/ward-7/sketch").content
            again = publisher.post_all(stored())
            assert not any(receipt.new for receipt in again)
            assert client.get("/v1/streams/ward-7/sketch").content == first
            assert first == sketches_by_key(delivery_log(900), PARAMS, MAPPING)[()].to_bytes()
            with pytest.raises(JobError, match=r"refused: 409: .*seed"):
                publisher.create_stream(recipe_of(replace(PARAMS, seed=1)))

    @pytest.mark.parametrize(
        ("recipe", "value"),
        [
            (recipe_of(PARAMS, ds.decay.integral.exponential(half_life=60_000_000)), "value"),
            (recipe_of(SumParams(max_sum=1_000, capacity=50, time_unit="us")), "weight"),
            (recipe_of(MedianParams(max_count=1_000, capacity=50, time_unit="us")), "value"),
        ],
        ids=["integral", "sum", "median"],
    )
    def test_any_family(self, tmp_path: Path, recipe: Recipe[Any], value: str) -> None:
        from fastapi.testclient import TestClient

        from api.app import create_app
        from api.settings import Settings

        mapping = replace(MAPPING, value=value, source="source", sequence="msg")
        found = sketches_by_key(delivery_log(900), recipe, mapping, ["path"])
        stored = [StoredSketch(key, 0, s.to_bytes(), s.digest()) for key, s in found.items()]
        app = create_app(Settings(data=str(tmp_path / "aggregator.sqlite3")))
        with TestClient(app, base_url="http://localhost") as client:
            publisher = Publisher(client, "ward-7")
            publisher.create_stream(recipe)
            assert all(receipt.new for receipt in publisher.post_all(stored))
            assert not any(receipt.new for receipt in publisher.post_all(stored))
            whole = sketches_by_key(delivery_log(900), recipe, mapping)[()].to_bytes()
            assert client.get("/v1/streams/ward-7/sketch").content == whole
            with pytest.raises(JobError, match=r"refused: 409: "):
                publisher.create_stream(recipe_of(PARAMS))


class Network:
    """Answers requests from a script: statuses, or exceptions to raise."""

    def __init__(self, *script: int | Exception) -> None:
        self.script = list(script)
        self.requests: list[httpx2.Request] = []
        self.waits: list[float] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        answer = {"sketches": [{"duplicate": False}], "detail": "a reason"}
        return httpx2.Response(step, json=answer)

    def publisher(self, attempts: int = 4) -> Publisher:
        client = httpx2.Client(
            transport=httpx2.MockTransport(self), base_url="http://aggregator.test"
        )
        return Publisher(client, "a stream", attempts=attempts, wait=self.waits.append)


class TestWithABadNetwork:
    def test_what_may_pass_is_tried_again(self) -> None:
        network = Network(503, httpx2.ReadTimeout("late"), 429, 200)
        receipt = network.publisher().post("gateway 1/2", b"sketch")
        assert (receipt.source, receipt.size, receipt.new) == ("gateway 1/2", 6, True)
        assert network.waits == sorted(network.waits)
        assert len(network.waits) == 3
        [url] = {str(request.url) for request in network.requests}
        assert url.startswith("http://aggregator.test/v1/streams/a%20stream/sketches?source=")
        assert network.requests[-1].url.params["source"] == "gateway 1/2"
        assert network.requests[-1].headers["content-type"] == "application/octet-stream"
        assert network.requests[-1].content == b"sketch"

    def test_a_refusal_is_final_and_says_why(self) -> None:
        network = Network(422)
        with pytest.raises(JobError, match="was refused: 422: a reason"):
            network.publisher().post("a", b"")
        assert len(network.requests) == 1

    def test_patience_ends(self) -> None:
        network = Network(*[httpx2.ConnectError("nobody there")] * 4)
        with pytest.raises(JobError, match="failed 4 times: ConnectError: nobody there"):
            network.publisher().post("a", b"")


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ((), "all"),
        ((7,), "7"),
        (("gw/1", 2), "gw%2F1/2"),
        (("gw", "1/2"), "gw/1%2F2"),
        ((b"\x01\xff",), "01ff"),
    ],
)
def test_every_key_has_a_name_of_its_own(key: tuple[object, ...], name: str) -> None:
    assert source_name(key) == name


def test_a_null_cannot_name_a_source() -> None:
    with pytest.raises(JobError, match="null"):
        source_name((1, None))
