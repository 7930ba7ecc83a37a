"""Observations that stand in place of another source's are counted, source by source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from families import CASES
from fastapi.testclient import TestClient
from service import NOW, OCTETS, posted

from api.service import source_stats
from api.service.aggregator import Limits
from api.settings import Settings

pytestmark = pytest.mark.usefixtures("data")  # a new aggregator for each test


@pytest.fixture(autouse=True)
def _counted_by_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "of", partial(_at_length, Limits.of))


def _at_length(of: Callable[[Settings], Limits], settings: Settings) -> Limits:
    return replace(of(settings), replacing_every_s=None)


def count(client: TestClient) -> dict[str, Any]:
    """What is said of each source, once they were counted."""
    assert client.portal is not None
    client.portal.call(client.app.state.aggregator.count_replacing)  # type: ignore[attr-defined]
    unasked = client.get("/v1/streams/s").json()["sources"]
    assert {each["replacing_rows"] for each in unasked} <= {None}  # it depends on the moment
    sources = client.get("/v1/streams/s?replacing=true").json()["sources"]
    return {each["source"]: each["replacing_rows"] for each in sources}


def metric(client: TestClient) -> list[str]:
    lines = client.get("/metrics").text.splitlines()
    return [line for line in lines if line.startswith("decaysketch_replacing_rows{")]


def post(client: TestClient, source: str, sketch: Any) -> None:
    answer = client.post(
        "/v1/streams/s/sketches",
        params={"source": source},
        content=sketch.to_bytes(),
        headers=OCTETS,
    )
    posted(answer)
    taken(client, answer)


def taken(client: TestClient, answer: Any) -> None:
    """Wait until the stream holds it."""
    headers = {"decaysketch-after": answer.json()["token"]}
    assert client.get("/v1/streams/s/sketch", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "family",
    [
        name
        for name, case in CASES.items()
        if case.family.input.joined and case.family.input.named_by != "key"
    ],
)  # of which no row is one that another could stand for
def test_who_replaces_what_another_has_posted_is_seen(client: TestClient, family: str) -> None:
    """Ten observations by two paths; of three the second source stamps a later time."""
    assert client.put("/v1/streams/s", json=CASES[family].creation).status_code == 201
    build = CASES[family].fed
    times, values = np.full(10, NOW - 100), np.arange(1, 11)
    later = times.copy()
    later[:3] += 50
    post(client, "gateway-1", build(values, times))
    assert count(client) == {"gateway-1": 0}
    post(client, "gateway-2", build(values, times))
    assert count(client) == {"gateway-1": 0, "gateway-2": 0}
    post(client, "mallory", build(values, later))
    assert count(client) == {"gateway-1": 0, "gateway-2": 0, "mallory": 3}
    assert metric(client) == ['decaysketch_replacing_rows{stream="s"} 3.0']
    assert client.post("/v1/streams/s/sources/mallory/revoke", json={}).status_code == 204
    assert count(client) == {"gateway-1": 0, "gateway-2": 0}
    assert metric(client) == ['decaysketch_replacing_rows{stream="s"} 0.0']


def test_a_larger_value_at_the_same_time_replaces_as_well(stream: TestClient) -> None:
    build = CASES["decay"].fed
    times = np.full(10, NOW - 100)
    post(stream, "gateway-1", build(np.full(10, 20.0), times))
    post(stream, "mallory", build(np.full(4, 99.0), times[:4]))
    post(stream, "meek", build(np.full(5, 1.0), times[:5]))
    assert count(stream) == {"gateway-1": 1, "mallory": 4, "meek": 0}


def test_raw_observations_count_as_sketches_do(stream: TestClient) -> None:
    for source, late in (("t-7", 0), ("mallory", 10)):
        rows = [{"time": NOW - 60 + late, "id": ["t-7", number]} for number in range(5)]
        answer = stream.post(
            "/v1/streams/s/observations", params={"source": source}, json={"observations": rows}
        )
        assert answer.json()["retained"] == 5
        taken(stream, answer)
    assert count(stream) == {"mallory": 5, "t-7": 0}


def test_what_was_replaced_is_back_when_the_source_is_revoked(stream: TestClient) -> None:
    def honest() -> Any:
        query = {"aggregate": "count", "decay": {"kind": "window", "width": 60}, "now": NOW - 30}
        answer = stream.post("/v1/streams/s/query", json={"queries": [query]}).json()
        return answer["answers"][0]["estimate"]["value"]

    build = CASES["decay"].fed
    post(stream, "t-7", build(np.ones(10), np.full(10, NOW - 60)))
    post(stream, "mallory", build(np.ones(10), np.full(10, NOW)))
    assert honest() == 0
    assert count(stream) == {"mallory": 10, "t-7": 0}
    assert stream.post("/v1/streams/s/sources/mallory/revoke", json={}).status_code == 204
    assert honest() == 10


def test_more_rows_than_are_counted_are_said_to_be_unknown(
    stream: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_stats, "MOST_ROWS", 15)
    for number, source in enumerate(("a", "b")):
        post(stream, source, CASES["decay"].fed(np.ones(10), np.full(10, NOW - number)))
    assert count(stream) == {"a": None, "b": None}
    assert metric(stream) == []


def test_what_has_not_changed_is_not_counted_again(
    stream: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    whole = source_stats._replacing

    def noted(stream: Any) -> Any:
        counted.append(stream.name)
        return whole(stream)

    monkeypatch.setattr(source_stats, "_replacing", noted)
    for _ in range(3):
        count(stream)
    assert len(counted) == 1
    post(stream, "a", CASES["decay"].fed(np.ones(10), np.full(10, NOW)))
    for _ in range(3):
        count(stream)
    assert len(counted) == 2


def test_a_count_that_fails_is_logged_and_ends_nothing(
    stream: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Any) -> Any:
        raise MemoryError("none left")

    monkeypatch.setattr(source_stats, "_replacing", fail)
    post(stream, "a", CASES["decay"].fed(np.ones(10), np.full(10, NOW)))
    assert count(stream) == {"a": None}
    assert "cannot count the rows that sources of 's' replace" in caplog.text
    assert stream.get("/readyz").status_code == 200
