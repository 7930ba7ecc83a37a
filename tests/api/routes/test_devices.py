"""The devices of a stream: a view that every road feeds, what it tells, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from ingest.messages import chirpstack, stamp
from service import LOCAL, NOW, problem

import decaysketch as ds
from api.app import create_app
from api.settings import Settings

PARAMS = {"max_weight": 9, "id_bits": 40, "capacity": 100, "time_unit": "s"}
URL = "/v1/streams/ward"
READINGS = [
    {"id": ["t-1", 1], "time": NOW - 50, "value": 20.5, "weight": 3},
    {"id": ["t-2", 1], "time": NOW - 5_000, "value": 18.0},
    {"id": ["t-1", 2], "time": NOW - 10, "value": 21.0},
    {"id": ["t-3", 1], "time": NOW - 9_000, "value": None},
    {"id": ["t-2", 0], "time": NOW - 6_000, "value": 99.0},
]


def creation(**more: Any) -> dict[str, Any]:
    return {"params": PARAMS, "views": {"devices": {"id": 0, "capacity": 50}}} | more


def post(client: Any, rows: list[dict[str, Any]], source: str = "a") -> Any:
    return client.post(
        f"{URL}/observations", params={"source": source}, json={"observations": rows}
    )


def told(client: Any, **query: Any) -> dict[str, Any]:
    answer = client.get(f"{URL}/devices", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def listed(client: Any, **query: Any) -> list[tuple[Any, Any, int]]:
    found = told(client, **query)["devices"]
    return [(each["device"], each["value"], each["time"] - NOW) for each in found]


@pytest.fixture
def ward(client: TestClient) -> TestClient:
    assert client.put(URL, json=creation()).status_code == 201
    return client


def test_who_is_silent_active_and_what_each_said_last(ward: TestClient) -> None:
    for rows in (READINGS, READINGS[::-1], READINGS[:2]):
        assert post(ward, rows).status_code == 200
    found = told(ward)
    assert (found["held"], found["complete"], found["now"] - NOW) == (3, True, -10)
    assert (found["active"]["value"], found["silent"]["value"]) == (1, 2)
    assert listed(ward) == [("t-3", None, -9_000), ("t-2", 18.0, -5_000)]
    assert listed(ward, width="2h", now=str(NOW)) == [("t-3", None, -9_000)]
    assert listed(ward, listed="latest")[0] == ("t-1", 21.0, -10)
    some = told(ward, limit=1)
    assert (len(some["devices"]), some["more"]) == (1, True)
    query = {"aggregate": "count", "decay": "none"}
    answer = ward.post(f"{URL}.devices/query", json={"queries": [query]}).json()["answers"][0]
    assert answer["estimate"]["value"] == 3  # a view is a stream like any other
    state = ward.get(URL).json()
    assert state["views"] == ["ward.devices", "ward.devices.names"]
    of = [ward.get(f"/v1/streams/{each}").json()["view_of"] for each in state["views"]]
    assert of == [
        {"of": "ward", "id": [0], "names": False},
        {"of": "ward", "id": [0], "names": True},
    ]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"now": str(NOW - 11)}, f"now is {NOW - 11}, and the newest reading"),
        ({"now": "yesterday"}, "now is 'yesterday'"),
        ({"width": "soon"}, "width is 'soon'"),
        ({"width": "-5"}, "-5"),
        ({"width": "--5"}, "width is '--5'"),
        ({"now": "+-5"}, "now is '+-5'"),
        ({"limit": 0}, "limit"),
        ({"listed": "all"}, "listed"),
    ],
)
def test_what_cannot_be_told_is_refused(
    ward: TestClient, more: dict[str, Any], expected: str
) -> None:
    post(ward, READINGS)
    refused = ward.get(f"{URL}/devices", params=more)
    assert refused.status_code == 422
    assert expected in refused.text


def test_without_a_view_or_a_reading_it_is_said_what_to_do(client: TestClient) -> None:
    client.put(URL, json={"params": PARAMS})
    refused = problem(client.get(f"{URL}/devices"), 422, "invalid-request")
    assert '"views": {"devices": {"id": 0}}' in refused["detail"]
    assert client.put(URL, json=creation()).status_code == 200  # it is made later
    refused = problem(client.get(f"{URL}/devices"), 422, "invalid-request")
    assert "has no readings yet" in refused["detail"]
    post(client, READINGS)
    assert told(client)["held"] == 3
    other = creation(views={"devices": {"id": 1}})
    problem(client.put(URL, json=other), 409, "stream-exists")
    long = "a" * 90
    refused = problem(client.put(f"/v1/streams/{long}", json=creation()), 422, "invalid-request")
    assert "the name is too long" in refused["detail"]


def test_more_devices_than_the_capacity(ward: TestClient) -> None:
    rows = [{"id": [f"t-{n}", 1], "time": NOW - n, "value": 1.0} for n in range(300)]
    post(ward, rows)
    found = told(ward, listed="latest", width="30")
    assert (found["complete"], found["active"]["value"], found["active"]["exact"]) == (
        False, 31, True,
    )  # fmt: skip
    assert found["silent"]["lower"] < 269 < found["silent"]["upper"]
    assert "the longest silent" in ward.get(f"{URL}/devices").text


def test_ids_that_name_no_device_are_counted(ward: TestClient) -> None:
    post(ward, [*READINGS, {"id": 77, "time": NOW, "value": 1.0}])
    assert told(ward)["held"] == 3
    metrics = ward.get("/metrics").text
    assert 'decaysketch_skipped_total{kind="no-device",stream="ward.devices"} 1.0' in metrics


def test_several_parts_name_a_device_together(client: TestClient) -> None:
    client.put(URL, json=creation(views={"devices": {"id": [1, 0]}}))
    rows = [{"id": ["site", n % 3, n], "time": NOW - n, "value": float(n)} for n in range(9)]
    post(client, rows)
    assert listed(client, listed="latest") == [
        (f'[{n}, "site"]', float(n), -n) for n in range(3)
    ]  # fmt: skip


def test_a_source_that_is_revoked_leaves_the_view_as_well(ward: TestClient) -> None:
    post(ward, READINGS)
    post(ward, [{"id": ["t-9", 1], "time": NOW, "value": 1.0}], source="mallory")
    assert told(ward)["held"] == 4
    revoke = f"{URL}/sources/mallory/revoke"
    assert ward.post(revoke, json={}).status_code == 204
    assert told(ward)["held"] == 3
    again = post(ward, [{"id": ["t-9", 1], "time": NOW, "value": 1.0}], source="mallory")
    problem(again, 403, "revoked-source")
    assert ward.post(f"{URL}/sources/mallory/reinstate", json={}).status_code == 204
    post(ward, [{"id": ["t-9", 1], "time": NOW, "value": 1.0}], source="mallory")
    assert told(ward)["held"] == 4
    assert ward.delete(URL).status_code == 204
    assert ward.get("/v1/streams").json()["streams"] == []


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], TestClient]]:
    clients: list[TestClient] = []

    def make() -> TestClient:
        settings = Settings(data=str(tmp_path / "data.sqlite3"))
        clients.append(TestClient(create_app(settings), base_url=LOCAL))
        clients[-1].__enter__()
        return clients[-1]

    yield make
    for each in clients:
        each.__exit__(None, None, None)


def test_it_is_there_after_a_restart(start: Callable[[], TestClient]) -> None:
    first = start()
    first.put(URL, json=creation())
    post(first, READINGS)
    before = told(first)
    second = start()
    assert told(second) == before
    post(second, [{"id": ["t-4", 1], "time": NOW - 1, "value": 1.0}])
    assert told(second)["held"] == 4


ROADS: dict[str, tuple[dict[str, Any], Callable[[Any], Any], set[str]]] = {
    "lines": (
        {},
        lambda client: client.post(
            f"{URL}/observations?source=a",
            content=b"".join(
                b'{"id": ["t-%d", %d], "time": %d, "value": 1}\n' % (n % 2, n, NOW - n)
                for n in range(6)
            ),
            headers={"content-type": "application/x-ndjson"},
        ),
        {"t-0", "t-1"},
    ),
    "lorawan": (
        {"ingest": {"map": [{"format": "chirpstack", "value": "object.temperature"}]}},
        lambda client: client.post(
            f"{URL}/lorawan?format=chirpstack&event=up",
            json=chirpstack(time=stamp(NOW - 60)),
        ),
        {"70b3d54990001122"},
    ),
    "line protocol": (
        {"ingest": {"map": [{"format": "influx", "measurement": "temp", "value": "v"}]}},
        lambda client: client.post(
            f"{URL}/influx/api/v2/write?precision=s",
            content=f"temp,room=a v=1 {NOW - 5}\ntemp,room=b v=2 {NOW - 6}\n".encode(),
            headers={"content-type": "text/plain"},
        ),
        {"a", "b"},
    ),
}


@pytest.mark.parametrize("road", ROADS)
def test_every_road_feeds_it(client: TestClient, road: str) -> None:
    more, send, expected = ROADS[road]
    assert client.put(URL, json=creation(**more)).status_code == 201
    for _ in range(2):
        assert send(client).is_success
    names = {each["device"] for each in told(client, listed="latest")["devices"]}
    if road == "line protocol":  # a device is a series there
        assert len(names) == 2
        assert names == {f"temp,room={room}" for room in expected}
    elif road == "lorawan":
        assert len(names) == 1
        assert told(client, listed="latest")["devices"][0]["value"] == 21.5
    else:
        assert names == expected


def test_labels_are_last_words(client: TestClient) -> None:
    params = PARAMS | {"value_type": "label"}
    client.put(URL, json=creation(params=params))
    post(client, [{"id": ["door", n], "time": NOW - n, "value": f"s{n}"} for n in range(3)])
    assert listed(client, listed="latest") == [("door", "s0", 0)]


def test_secret_ids_keep_the_devices_secret_too(client: TestClient) -> None:
    client.put(URL, json=creation(secret_ids=True, bind_keys=True))
    post(client, READINGS)
    post(client, READINGS, source="b")
    found = told(client, listed="latest")
    assert found["held"] == 6  # of each source its own
    public = ds.observation_ids(["t-1"], params=ds.SketchParams(capacity=50))
    assert str(public[0]) not in {each["id"] for each in found["devices"]}
