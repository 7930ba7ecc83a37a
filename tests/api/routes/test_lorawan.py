"""Webhooks of ChirpStack and The Things Stack, as they are posted, and the maps of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from ingest.messages import T0, chirpstack, stamp, tts
from service import problem

from api.errors import BusyError
from api.service.aggregator import Aggregator

PARAMS = {"max_weight": 1, "id_bits": 48, "time_unit": "ms"}
TEMPERATURE = {"format": "chirpstack", "value": "object.temperature"}
THINGS = {"format": "tts", "value": "uplink_message.decoded_payload.t"}
UP = "/v1/streams/ward/lorawan?format=chirpstack&event=up"
TTS = "/v1/streams/ward/lorawan?format=tts"


def put(client: TestClient, *maps: dict[str, Any], name: str = "ward", **more: Any) -> Any:
    ingest = {"ingest": {"map": list(maps)}} if maps else {}
    return client.put(f"/v1/streams/{name}", json={"params": PARAMS, **ingest, **more})


def values(client: TestClient, name: str = "ward") -> tuple[float, float]:
    """How many readings there are, and their sum."""
    queries = [{"aggregate": name, "decay": "none", "now": T0 * 1000 + 10**8}
               for name in ("count", "total")]  # fmt: skip
    answers = client.post(f"/v1/streams/{name}/query", json={"queries": queries}).json()["answers"]
    return answers[0]["estimate"]["value"], answers[1]["estimate"]["value"]


@pytest.fixture
def ward(client: TestClient) -> TestClient:
    assert put(client, TEMPERATURE, THINGS).status_code == 201
    return client


def test_an_uplink_is_counted_once_however_often_it_comes(ward: TestClient) -> None:
    first = ward.post(UP, json=chirpstack())
    assert first.status_code == 200, first.text
    told = first.json()
    assert (told["rows"], told["retained"], told["source"]) == (1, 1, "chirpstack")
    assert told["token"]
    late = chirpstack(deduplicationId="another", rxInfo=[{"gatewayId": "gw9"}])
    assert ward.post(f"{UP}&source=second", json=late).json()["rows"] == 1
    rejoined = chirpstack(devAddr="02CD0001", object={"temperature": 1.5})
    assert ward.post(UP, json=rejoined).json()["retained"] == 1
    assert ward.post(TTS, json=tts(0)).json()["retained"] == 1
    assert values(ward) == (3.0, 21.5 + 1.5 + 21.5)


@pytest.mark.parametrize(
    ("path", "body", "skipped"),
    [
        (UP.replace("=up", "=join"), {}, {"event": 1}),
        (UP, chirpstack(object={"humidity": 50}), {"no value": 1}),
        (TTS, {"join_accept": {}}, {"event": 1}),
        (TTS, tts(simulated=True), {"simulated": 1}),
    ],
)
def test_what_is_no_reading_of_the_stream_is_skipped(
    ward: TestClient, path: str, body: dict[str, Any], skipped: dict[str, int]
) -> None:
    answer = ward.post(path, json=body)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["skipped"], told["rows"], told["token"]) == (skipped, 0, None)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"not json", "message: not JSON"),
        (b'{"a":' * 20_000, "20000 brackets and commas; expected at most 10000"),
        (b"\xff", "message: not JSON"),
    ],
)
def test_what_cannot_be_read_is_refused(ward: TestClient, body: bytes, reason: str) -> None:
    refused = ward.post(UP, content=body, headers={"content-type": "application/json"})
    assert reason in problem(refused, 422, "nothing-taken")["detail"]
    assert values(ward)[0] == 0.0


def test_an_uplink_that_is_wrong_is_refused_with_its_place(ward: TestClient) -> None:
    ahead = chirpstack(time=stamp(4_000_000_000))
    refused = problem(ward.post(UP, json=ahead), 422, "nothing-taken")
    assert refused["errors"][0]["field"] == "object.temperature"
    assert "too far in the future" in refused["detail"]
    refused = problem(ward.post(TTS, json=tts(decoded_payload={"t": "ok"})), 422, "nothing-taken")
    assert "is 'ok'; expected a number" in refused["detail"]


def test_of_several_maps_what_is_sound_is_taken(client: TestClient) -> None:
    assert put(client, TEMPERATURE, {**TEMPERATURE, "value": "object.open2"}).status_code == 201
    told = client.post(UP, json=chirpstack(object={"temperature": 2, "open2": "x"})).json()
    assert told["rows"] == 1
    [refused] = told["refused"]
    assert refused.startswith("object.open2: is 'x'; expected a number; `decimal`, `texts`")


def test_a_stream_without_a_map_says_what_to_do(client: TestClient) -> None:
    assert put(client, THINGS).status_code == 201
    refused = problem(client.post(UP, json=chirpstack()), 422, "invalid-request")
    assert "no mapping with the format 'chirpstack'" in refused["detail"]
    assert '"ingest": {"map": [{"format": "chirpstack"' in refused["detail"]


def test_who_posts_is_told_503_where_all_is_busy(
    ward: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: object, **__: object) -> None:
        raise BusyError

    monkeypatch.setattr(Aggregator, "post", busy)
    refused = ward.post(UP, json=chirpstack())
    problem(refused, 503, "busy")
    assert refused.headers["Retry-After"] == "1"


def test_maps_take_the_place_of_those_before_and_outlive_a_restart(
    start: Callable[..., TestClient],
) -> None:
    client = start()
    assert put(client, TEMPERATURE).status_code == 201
    assert put(client).status_code == 200  # says nothing of maps, changes none
    assert client.post(UP, json=chirpstack()).json()["rows"] == 1
    assert put(client, THINGS).status_code == 200
    problem(client.post(UP, json=chirpstack()), 422, "invalid-request")
    client = start()
    state = client.get("/v1/streams/ward").json()
    assert [each["format"] for each in state["ingest"]["map"]] == ["tts"]
    assert client.post(TTS, json=tts()).json()["rows"] == 1
    assert values(client) == (2.0, 43.0)


@pytest.mark.parametrize(
    ("creation", "reason"),
    [
        ({"ingest": {"map": []}}, "at least 1 item"),
        ({"ingest": {"map": [TEMPERATURE | {"stream": "x"}]}}, "map[0].stream is 'x'"),
        ({"ingest": {"map": [TEMPERATURE | {"topics": ["a/+"]}]}}, "map[0].topics"),
        ({"ingest": {"map": [TEMPERATURE | {"value": "a..b"}]}}, "path is 'a..b'"),
        (
            {"ingest": {"map": [TEMPERATURE]}, "params": PARAMS | {"time_unit": "ticks"}},
            "has no wall clock",
        ),
        ({"family": "ecm", "ingest": {"map": [TEMPERATURE]}, "params": {}}, "ingest"),
    ],
)
def test_a_creation_with_maps_that_mean_nothing_is_refused(
    client: TestClient, creation: dict[str, Any], reason: str
) -> None:
    refused = client.put("/v1/streams/ward", json={"params": PARAMS} | creation)
    assert refused.status_code == 422, refused.text
    assert reason in refused.text.replace("\\u0027", "'")
    assert client.get("/v1/streams/ward").status_code == 404


def test_a_message_asks_for_no_more_room_than_its_maps_have_readings(
    start: Callable[..., TestClient],
) -> None:
    client = start(max_post_rows=500)
    assert put(client, TEMPERATURE).status_code == 201
    assert client.post(UP, json=chirpstack()).status_code == 200
    array = {"format": "chirpstack", "each": "object.all", "value": "t", "id": ["$lorawan", "n"]}
    put(client, array)
    readings = [{"t": 1, "n": n} for n in range(501)]
    answer = client.post(UP, json=chirpstack(object={"all": readings[:500]}))
    assert answer.status_code == 200, answer.text
    assert answer.json()["rows"] == 500
    problem(client.post(UP, json=chirpstack(object={"all": readings})), 413, "too-many-rows")
