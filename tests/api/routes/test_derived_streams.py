"""Derived streams: within the scope of the key, within its number, and never in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service import NOW, problem

from api.access.keys import Role, mint
from api.ingest import building
from api.journal import log
from api.journal.log import StorageError

Start = Callable[..., TestClient]
FORM = {"params": {"max_weight": 1, "id_bits": 40, "capacity": 100, "time_unit": "s"}}
VIEWS = FORM | {"views": {"devices": {"id": 0}}}


@pytest.fixture
def keyed(start: Start) -> TestClient:
    client = start(auth="keys")
    client.headers["authorization"] = f"Bearer {key(client, '*')}"
    return client


def key(client: TestClient, scope: str, **options: Any) -> str:
    row, token = mint(role=Role.WRITE, scope=[scope], now_us=0, **options)
    cache = client.app.state.keys  # type: ignore[attr-defined]
    client.portal.call(cache.store.put, row)  # type: ignore[union-attr]
    client.portal.call(cache.reload)  # type: ignore[union-attr]
    return token


def names(client: TestClient) -> list[str]:
    return [each["name"] for each in client.get("/v1/streams").json()["streams"]]


@pytest.mark.parametrize("there", [False, True])
def test_a_derived_stream_out_of_scope_is_refused_alike(keyed: TestClient, there: bool) -> None:
    """Whether a foreign stream has its name or not, and of that nothing is told."""
    if there:
        foreign = {"params": {"seed": 424242, "capacity": 55, "time_unit": "ms"}}
        assert keyed.put("/v1/streams/ward.devices", json=foreign).status_code == 201
    before = names(keyed)
    header = {"authorization": f"Bearer {key(keyed, 'ward')}"}
    answer = keyed.put("/v1/streams/ward", json=VIEWS, headers=header)
    assert problem(answer, 403)["detail"] == "stream 'ward.devices' is not in the scope of this key"
    assert names(keyed) == before


def test_derived_streams_count_among_those_that_a_key_may_have(keyed: TestClient) -> None:
    token = key(keyed, "w*", max_streams=2)
    header = {"authorization": f"Bearer {token}"}
    problem(keyed.put("/v1/streams/w1", json=VIEWS, headers=header), 409, "too-many-streams")
    assert names(keyed) == []
    assert keyed.put("/v1/streams/w1", json=FORM, headers=header).status_code == 201
    header = {"authorization": f"Bearer {key(keyed, 'w*', max_streams=3)}"}
    assert keyed.put("/v1/streams/w1", json=VIEWS, headers=header).status_code == 200
    assert keyed.put("/v1/streams/w1", json=VIEWS, headers=header).status_code == 200
    assert names(keyed) == ["w1", "w1.devices", "w1.devices.names"]
    problem(keyed.put("/v1/streams/w2", json=FORM, headers=header), 409, "too-many-streams")


def post(client: TestClient, first: int, last: int, source: str = "a") -> Any:
    rows = [{"value": 1, "time": NOW, "id": [f"device-{n:07}", 1]} for n in range(first, last)]
    url = f"/v1/streams/v/observations?source={source}&verdicts=counts"
    return client.post(url, json={"observations": rows})


def test_a_full_derived_stream_refuses_nothing_and_says_so(start: Start) -> None:
    views = FORM | {"views": {"devices": {"id": 0, "capacity": 3_000}}}
    form = views | {"params": FORM["params"] | {"capacity": 5_000}}
    assert start().put("/v1/streams/v", json=form).status_code == 201
    client = start(max_sketch_rows=12_000)  # too few for what is there by now
    for begin in range(0, 4_000, 500):
        answer = post(client, begin, begin + 500)
        assert answer.status_code == 200, answer.text
        assert answer.json()["retained"] == 500
    assert post(client, 9_000, 9_001, "b").status_code == 200
    full = client.get("/v1/streams/v.devices.names").json()
    assert "were not accepted" in full["warnings"][-1]
    assert "max_sketch_rows" in full["warnings"][-1]
    assert client.get("/v1/streams/v").json()["warnings"] == []
    counted = [line for line in client.get("/metrics").text.splitlines() if "no-room" in line]
    assert any('"v.devices.names"' in line for line in counted)
    devices = client.get("/v1/streams/v/devices?listed=latest").json()
    assert devices["missed"] == 0  # of readings, which are numbers


def test_a_capacity_that_cannot_fit_is_refused_and_creates_nothing(start: Start) -> None:
    client = start()
    form = FORM | {"views": {"devices": {"id": 0, "capacity": 1 << 20}}}
    found = problem(client.put("/v1/streams/v", json=form), 422, "invalid-request")
    (fault,) = found["errors"]
    assert fault["field"] == "views.devices.capacity"
    assert names(client) == []
    fitting = int(fault["expected"].rpartition(" ")[2])
    form = FORM | {"views": {"devices": {"id": 0, "capacity": fitting}}}
    assert client.put("/v1/streams/v", json=form).status_code == 201


def test_the_division_into_steps_changes_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without a device, and devices in several steps, among them."""
    client, found = start(), []
    keys = [7 if n % 5 == 4 else [f"device-{n % 9}", n] for n in range(50)]
    rows = [{"value": n, "time": NOW - n, "id": key} for n, key in enumerate(keys)]
    for name, step in (("a", 1 << 12), ("b", 3), ("c", 1)):
        monkeypatch.setattr(building, "_ROWS_A_STEP", step)
        client.put(f"/v1/streams/{name}", json=VIEWS).raise_for_status()
        path = f"/v1/streams/{name}/observations?source=s"
        client.post(path, json={"observations": rows}).raise_for_status()
        states = [client.get(f"/v1/streams/{name}.devices{end}/sketch") for end in ("", ".names")]
        found.append([each.raise_for_status().content for each in states])
    assert found[0] == found[1] == found[2]


def test_a_request_is_one_transaction(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """For derived streams and for all streams in a bucket. If it fails, none has a part of it."""
    client, append = start(), log.append
    mapping = {"format": "influx", "measurement": "m", "value": "v"}
    names = [f"{name}{end}" for name in "vw" for end in ("", ".devices", ".devices.names")]
    for name in "vw":
        form = VIEWS | {"ingest": {"map": [mapping]}}
        assert client.put(f"/v1/streams/{name}", json=form).status_code == 201
    transactions: list[int] = []

    def failing(tx: Any, posts: Any, *rest: Any) -> Any:
        outcomes = append(tx, posts, *rest)
        transactions.append(len({post.stream_id for post in posts}))
        if len(transactions) % 2:
            raise StorageError("the disk is full")
        return outcomes

    monkeypatch.setattr(log, "append", failing)
    aggregator = client.app.state.aggregator  # type: ignore[attr-defined]
    requests = (
        (3, lambda: post(client, 0, 5)),
        (6, lambda: client.post("/write?db=v,w", content=b"m,host=a v=1 1700000000000000000")),
    )
    for streams, send in requests:
        transactions.clear()
        before = [aggregator.stream(name).totals().posts for name in names]
        assert send().status_code == 503
        assert [aggregator.stream(name).totals().posts for name in names] == before
        assert send().is_success
        added = sum(aggregator.stream(name).totals().posts for name in names) - sum(before)
        assert (added, transactions) == (streams, [streams, streams])
