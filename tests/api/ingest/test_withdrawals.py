"""Withdrawals over HTTP: nothing that was withdrawn returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from databases import KINDS, new_database
from fastapi.testclient import TestClient
from service import LOCAL, OCTETS, posted

import decaysketch as ds
from api.app import create_app
from api.journal.log import StreamRow
from api.service.aggregator import Aggregator
from api.settings import Settings

URL = "/v1/streams/fleet"
T0 = 1_700_000_000
CREATION = {
    "id_bits": 40, "capacity": 500, "seed": 5, "revision": "rev",
    "columns": {"rev": "int64", "temp": "float64", "device": "text"},
}  # fmt: skip
PARAMS = ds.SketchParams.from_dict(CREATION)
ROWS = [
    {"time": T0 + k, "id": k, "columns": {"temp": 20.0 + k % 5, "device": f"d{k % 3}"}}
    for k in range(60)
]


def post(client: TestClient, rows: list[dict[str, Any]], source: str) -> Any:
    body = "\n".join(map(json.dumps, rows))
    headers = {"content-type": "application/x-ndjson"}
    return client.post(f"{URL}/observations?source={source}", content=body, headers=headers)


def count(client: TestClient, where: str) -> float:
    asked = {"queries": [{"aggregate": "count", "where": where, "decay": "none", "now": T0 + 99}]}
    (answer,) = client.post(f"{URL}/query", json=asked).json()["answers"]
    value: float = answer["estimate"]["value"]
    return value


def as_sketch(rows: list[dict[str, Any]]) -> bytes:
    made = ds.DecaySketch(PARAMS)
    columns = [row["columns"] for row in rows]
    made.update(columns, 1, [row["time"] for row in rows], [row["id"] for row in rows])
    return made.to_bytes()


def test_withdrawn_rows_do_not_return(start: Callable[..., TestClient]) -> None:
    client = start()
    assert client.put(URL, json={"params": CREATION}).status_code == 201
    assert post(client, ROWS, "a").json()["refusals"] == []
    answer = client.post(f"{URL}/withdrawals", json={"where": "device == 'd1'"}).json()
    assert answer["withdrawn"] == 20
    assert answer["token"]
    posted(client.post(f"{URL}/sketches?source=b", content=as_sketch(ROWS), headers=OCTETS))
    post(client, ROWS, "c")  # late duplicates, by another way
    for again in (False, True):
        client = start() if again else client
        assert count(client, "device == 'd1'") == 0.0
        assert count(client, "device != 'd1'") == 40.0
    correction = {"time": T0, "id": 0, "columns": {"rev": 1, "temp": 99.0, "device": "d0"}}
    post(client, [correction], "a")
    assert count(client, "temp == 99") == 1.0
    assert count(client, "device == 'd0'") == 20.0
    assert client.post(f"{URL}/withdrawals", json={"ids": [0, 3, 12345]}).json()["withdrawn"] == 2
    nothing = client.post(f"{URL}/withdrawals", json={"ids": [0]}).json()
    assert (nothing["withdrawn"], nothing["token"]) == (0, None)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_yet_to_come_are_withdrawn_while_a_condition_stands(kind: str, tmp_path: Path) -> None:
    """Two processes over one database. One accepts the condition, both withdraw. Every query finds
    what a sketch has that all rows were given to and then withdrawn from.
    """
    where, data = "device == 'd1'", new_database(kind, tmp_path).url
    later = [dict(row, id=row["id"] + 100) for row in ROWS]
    expected = ds.DecaySketch(PARAMS)
    for rows in (ROWS, later):
        expected.merge(ds.DecaySketch.from_bytes(as_sketch(rows)))
    expected.withdraw(where=where)
    with ExitStack() as running:
        first, second = (
            running.enter_context(TestClient(create_app(Settings(data=data)), base_url=LOCAL))
            for _ in range(2)
        )
        assert first.put(URL, json={"params": CREATION}).status_code == 201
        token = post(second, ROWS[:30], "a").json()["token"]
        asked = {"where": where, "for": "30d"}
        found = first.post(f"{URL}/withdrawals", json=asked).json()
        assert found["withdrawn"] == 10, token  # posted to the other process
        assert found["standing"]["where"] == where
        # The second process has not looked at the catalog since.
        body = {"content": as_sketch(ROWS[30:]), "headers": OCTETS}
        posted(second.post(f"{URL}/sketches?source=b&first=0&next=30", **body))
        posted(second.post(f"{URL}/sketches?source=b&first=0&next=30", **body))  # sent again
        answer = post(second, later, "c").json()
        assert answer["refusals"] == []
        for client in (first, second):
            after = {"Decaysketch-After": answer["token"]}
            blob = client.get(f"{URL}/sketch", headers=after).content
            assert ds.DecaySketch.from_bytes(blob) == expected
            listed = client.get(f"{URL}/withdrawals").json()["standing"]
            assert listed == [found["standing"]]
    with TestClient(create_app(Settings(data=data)), base_url=LOCAL) as client:
        assert client.delete(f"{URL}/withdrawals", params={"where": where}).status_code == 204
        assert client.delete(f"{URL}/withdrawals", params={"where": where}).status_code == 404
        again = [dict(row, id=row["id"] + 200) for row in ROWS]
        post(client, again, "c")
        assert count(client, where) == 20.0


def test_a_condition_stands_until_its_time(
    start: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = StreamRow(1, "s", "x", {}, 0, standing={"a": 10, "b": 20})
    assert [row.standing_at(now) for now in (9, 10, 20)] == [row.standing, {"b": 20}, {}]
    clock = [T0 * 1_000_000]
    served = partial(Aggregator, now_us=lambda: clock[0])
    monkeypatch.setattr("api.app.Aggregator", served)
    client, where = start(), "device == 'd1'"
    assert client.put(URL, json={"params": CREATION}).status_code == 201
    withdrawal = {"where": where, "for": "1h"}
    assert client.post(f"{URL}/withdrawals", json=withdrawal).json()["withdrawn"] == 0
    for after_us, stands, counted in ((-1, True, 0.0), (0, False, 20.0), (1, False, 40.0)):
        clock[0] = (T0 + 3600) * 1_000_000 + after_us
        assert bool(client.get(f"{URL}/withdrawals").json()["standing"]) == stands
        post(client, ROWS, "again")  # withdrawn before: duplicates stay withdrawn
        if not stands:
            new = 100 + 100 * after_us
            post(client, [dict(row, id=row["id"] + new) for row in ROWS], "new")
            ended = client.delete(f"{URL}/withdrawals", params={"where": where})
            assert ended.status_code == 404
        assert count(client, where) == counted


def test_bad_withdrawals_are_one_clear_error(
    stream: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stream.put(URL, json={"params": CREATION}).status_code == 201
    post(stream, ROWS, "a")
    for url, body, says in (
        (URL, {}, "expected ids or where"),
        (URL, {"ids": [1], "where": "device == 'a'"}, "expected ids or where"),
        (URL, {"where": "devise == 'a'"}, "devise"),
        ("/v1/streams/s", {"ids": [1]}, "no revision column"),
        ("/v1/streams/s", {"where": "v > 1", "for": "1d"}, "no revision column"),
        (URL, {"ids": [1], "for": "1d"}, "for needs where"),
        (URL, {"where": "age > 1", "for": "1d"}, "reads age"),
        (URL, {"where": "temp > 1", "for": "never"}, "for is"),
        (URL, {"where": "temp > 1", "for": "4000d"}, "3660d"),
    ):
        answer = stream.post(f"{url}/withdrawals", json=body)
        assert (answer.status_code, says in answer.text) == (422, True), answer.text
    monkeypatch.setattr("api.service.catalog.MOST_STANDING", 1)
    for status, where in ((200, "temp == -1"), (200, "temp == -1"), (409, "temp == -2")):
        answer = stream.post(f"{URL}/withdrawals", json={"where": where, "for": "1d"})
        assert answer.status_code == status
    assert answer.json()["type"].endswith(":too-many-withdrawals")
    rejected = post(stream, [{"time": T0, "id": 5, "columns": {"rev": 255}}], "a")
    assert [each["field"] for each in rejected.json()["refusals"]] == ["columns.rev"]
