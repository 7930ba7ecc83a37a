"""Line protocol over HTTP: what clients of InfluxDB send and look for, and these themselves."""

from __future__ import annotations

import base64
import gzip
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from faults import FAULTS, faulty
from service import LOCAL, problem

from api.app import create_app
from api.errors import BusyError
from api.service import streams
from api.service.aggregator import Aggregator
from api.settings import Settings
from decaysketch.ingest.formats import mappings_of

T = 1_700_000_000_000_000_000
PARAMS = {"max_weight": 1, "id_bits": 48, "time_unit": "ms"}
TEMP = {"format": "influx", "measurement": "weather", "value": "temp", "drop_tags": ["host"]}
WRITE = "/api/v2/write?bucket=ward"


def put(client: TestClient, *maps: dict[str, Any], name: str = "ward", **headers: str) -> None:
    form = {"params": PARAMS} | ({"ingest": {"map": list(maps)}} if maps else {})
    answer = client.put(f"/v1/streams/{name}", json=form, headers=headers)
    assert answer.status_code in (200, 201), answer.text


def count(client: Any, name: str = "ward", **headers: str) -> float:
    query = {"aggregate": "count", "decay": "none", "now": T // 10**6 + 10**9}
    asked = {"queries": [query]}
    answer = client.post(f"/v1/streams/{name}/query", json=asked, headers=headers).json()
    found: float = answer["answers"][0]["estimate"]["value"]
    return found


def lines(first: int, last: int, host: str = "a") -> bytes:
    return b"\n".join(
        b"weather,site=ward,host=%b temp=%d %d" % (host.encode(), n % 7, T + n * 10**9)
        for n in range(first, last)
    )


@pytest.fixture
def ward(client: TestClient) -> TestClient:
    put(client, TEMP)
    return client


def told(answer: Any, status: int, kind: str | None) -> str:
    """The sentence of a problem, which these clients find as well."""
    found = problem(answer, status, kind)
    assert found["message"] == found["detail"]
    assert found["code"]
    return str(found["detail"])


@pytest.mark.parametrize(
    "path",
    [
        WRITE,
        "/write?db=ward",
        "/v1/streams/ward/influx/api/v2/write?bucket=other&org=any",
        "/v1/streams/ward/influx/write",
    ],
)
def test_lines_are_taken_once(ward: TestClient, path: str) -> None:
    for host in ("a", "b"):  # another collector of the same source
        answer = ward.post(path, content=lines(0, 50, host), headers={"content-type": "text/plain"})
        assert (answer.status_code, answer.content) == (204, b""), answer.text
    packed = gzip.compress(lines(40, 60))
    answer = ward.post(path, content=packed, headers={"content-encoding": "gzip"})
    assert answer.status_code == 204
    assert count(ward) == 60


def test_the_maps_of_a_stream_are_validated_once(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def counted(ingest: Any) -> Any:
        seen.append(ingest)
        return mappings_of(ingest)

    monkeypatch.setattr(streams, "mappings_of", counted)
    put(client, TEMP)
    for _ in range(3):
        assert client.post(WRITE, content=lines(0, 1)).status_code == 204
        assert client.get("/v1/streams/ward").json()["ingest"]
    put(client, TEMP | {"value": "hum"})
    assert client.post(WRITE, content=b"weather,site=ward hum=5 %d" % T).status_code == 204
    assert [each["map"][0]["value"] for each in seen] == ["temp", "hum"]


def warnings(client: TestClient) -> list[str]:
    found: list[str] = client.get("/v1/streams/ward").json()["warnings"]
    return found


def machines(*names: str, seconds: int = 50) -> bytes:
    return b"\n".join(
        b"weather,host=%b temp=%d %d" % (name.encode(), number, T + n * 10**9)
        for number, name in enumerate(names)
        for n in range(seconds)
    )


@pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
@pytest.mark.parametrize("bodies", ["one", "each"])
def test_machines_that_a_map_makes_one_are_told(ward: TestClient, bodies: str) -> None:
    """Telegraf's own cpu: `host` is the machine, and dropping it leaves the busiest of all."""
    names = [f"m{number}" for number in range(10)]
    for body in [machines(*names)] if bodies == "one" else [
        b"weather,host=%b temp=%d %d" % (name.encode(), number, T + 1)
        for number, name in enumerate(names)
    ]:  # fmt: skip
        assert ward.post(WRITE, content=body).status_code == 204
    lost = 450 if bodies == "one" else 9
    [said] = warnings(ward)
    assert said.startswith(f"{lost} observations have the id and the time of another one, and ano")
    assert f'disagreeing_total{{stream="ward"}} {lost}.0' in ward.get("/metrics").text
    put(ward, {**TEMP, "drop_tags": []})
    assert warnings(ward) == []
    assert ward.post(WRITE, content=machines(*names)).status_code == 204
    assert warnings(ward) == []


def test_what_disagrees_once_more_is_told_to_who_knows_the_stream(ward: TestClient) -> None:
    """The same body again changes nothing that the stream holds, and the count."""
    for value in (4, 3):
        ward.post(WRITE, content=b"weather temp=%d %d" % (value, T))
    known = {"if-none-match": ward.get("/v1/streams/ward").headers["etag"]}
    assert ward.get("/v1/streams/ward", headers=known).status_code == 304
    ward.post(WRITE, content=b"weather temp=3 %d" % T)
    [said] = ward.get("/v1/streams/ward", headers=known).json()["warnings"]
    assert said.startswith("2 observations have the id and the time")


def test_copies_and_polls_disagree_with_nobody(client: TestClient) -> None:
    put(client, TEMP)
    for host in ("a", "b", "a"):
        assert client.post(WRITE, content=lines(0, 50, host)).status_code == 204
    assert warnings(client) == []
    put(client, {**TEMP, "dedup": "10s"})  # two that poll one source never read quite the same
    assert client.post(WRITE, content=machines("a", "b")).status_code == 204
    assert warnings(client) == []


def test_what_is_sound_is_stored_also_where_the_rest_is_refused(ward: TestClient) -> None:
    body = lines(0, 3) + b'\nweather temp="x" 1\nweather temp=1\n' + b"weather temp=1 %d" % (4 * T)
    said = told(ward.post(WRITE, content=body), 400, "invalid-request")
    assert said.startswith("partial write: line 4 temp: is 'x'; expected a number; line 5 temp: ")
    assert "line 6 temp: time too far in the future" in said
    assert said.endswith("dropped=3")
    assert count(ward) == 3


def test_several_streams_read_what_their_maps_name(client: TestClient) -> None:
    put(client, TEMP)
    put(client, {**TEMP, "value": "hum"}, name="humidity")
    body = b"weather,host=a temp=1,hum=2 %d\nweather,host=a hum=3 %d" % (T, T + 10**9)
    assert client.post(WRITE + ",humidity", content=body).status_code == 204
    assert (count(client), count(client, "humidity")) == (1, 2)
    metrics = client.get("/metrics").text
    assert 'decaysketch_skipped_total{kind="no value",stream="ward"} 1.0' in metrics


@pytest.mark.parametrize(
    ("path", "status", "kind", "reason"),
    [
        ("/api/v2/write?bucket=none", 404, "unknown-stream", "no stream 'none'"),
        ("/api/v2/write", 400, "invalid-request", "bucket"),
        (WRITE + "&precision=years", 400, "invalid-request", "precision"),
        ("/api/v2/write?bucket=" + ",".join(f"s{n}" for n in range(21)), 400, "invalid-request",
         "21 streams"),
        ("/api/v2/write?bucket=bare", 400, "invalid-request", "format 'influx'"),
        ("/query?q=SELECT+1", 400, "invalid-request", "expected CREATE DATABASE"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_as_these_clients_know_it(
    ward: TestClient, path: str, status: int, kind: str, reason: str
) -> None:
    put(ward, name="bare")
    assert reason in told(ward.post(path, content=lines(0, 1)), status, kind)
    assert count(ward) == 0


def test_times_of_another_precision_are_refused_at_first(ward: TestClient) -> None:
    body = b"\n".join(b"weather temp=1 %d" % (T // 10**9 + n) for n in range(9))
    said = told(ward.post(WRITE, content=body), 400, "invalid-request")
    assert "times are probably not in ns" in said
    assert "another precision" in said
    assert ward.post(WRITE + "&precision=s", content=body).status_code == 204
    assert count(ward) == 9


@pytest.mark.parametrize("per_s", [10**3, 10**6, 10**9])
def test_a_time_of_a_finer_unit_is_told_which(ward: TestClient, per_s: int) -> None:
    unit = {10**3: "ms", 10**6: "us", 10**9: "ns"}[per_s]
    body = b"\n".join(b"weather temp=1 %d" % (T // 10**9 + n) for n in range(9))
    assert ward.post(WRITE + "&precision=s", content=body).status_code == 204
    off = b"weather temp=1 %d" % (T // 10**9 * per_s)
    said = told(ward.post(WRITE + "&precision=s", content=off), 400, "invalid-request")
    assert f"in {unit} it would be 2023-11-14 22:13:20 UTC; expected times in s" in said
    mixed = body + b"\n" + off
    said = told(ward.post(WRITE + "&precision=s", content=mixed), 400, "invalid-request")
    assert said == (
        f"partial write: line 10 temp: time beyond 64 bits; in {unit} it would be 2023-11-14 "
        "22:13:20 UTC, and this request says s; dropped=1"
    )


def test_a_clock_that_is_ahead_is_told_by_how_much(ward: TestClient) -> None:
    body = b"weather temp=1 %d" % (time.time() + 3600)
    said = told(ward.post(WRITE + "&precision=s", content=body), 400, "invalid-request")
    assert re.search(
        r"time too far in the future, (3[45]\d\d|3600) s ahead of this machine's clock; "
        r"at most 300 \(max_clock_skew_s\); dropped=1$",
        said,
    )


def test_times_of_another_precision_are_refused_where_dates_are_held(ward: TestClient) -> None:
    """A second collector without precision=s: its seconds would be nanoseconds of 1970, which in
    milliseconds are small numbers that no stream would doubt."""
    assert ward.post(WRITE, content=lines(0, 9)).status_code == 204
    body = b"\n".join(b"weather temp=1 %d" % (T // 10**9 + n) for n in range(9))
    said = told(ward.post(WRITE, content=body), 400, "invalid-request")
    assert "in s it would be 2023-11-14" in said
    assert "another precision" in said
    assert ward.post(WRITE, content=lines(9, 18) + b"\n" + body[:26]).status_code == 204
    assert count(ward) == 19  # one device without a clock holds up nobody
    assert ward.post(WRITE + "&check_units=false", content=body).status_code == 204
    assert count(ward) == 27


def test_who_writes_is_told_503_where_all_is_busy(
    ward: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: object, **__: object) -> None:
        raise BusyError

    monkeypatch.setattr(Aggregator, "post", busy)
    refused = ward.post(WRITE, content=lines(0, 1))
    told(refused, 503, "busy")
    assert refused.headers["Retry-After"] == "1"


def test_too_many_readings_are_413_which_some_clients_cut_in_halves(
    start: Callable[..., TestClient],
) -> None:
    client = start(max_rows=10)
    put(client, TEMP)
    told(client.post(WRITE, content=lines(0, 11)), 413, "too-many-rows")
    counted = 'decaysketch_refused_total{reason="too-many-rows",stream="ward"} 1.0'
    assert counted in client.get("/metrics").text
    assert client.post(WRITE, content=lines(0, 10)).status_code == 204


def test_each_stream_of_a_bucket_has_a_limit_of_its_own(start: Callable[..., TestClient]) -> None:
    client = start(max_rows=10)
    for name in ("ward", "hall"):
        put(client, TEMP, name=name)
    both = WRITE.replace("bucket=ward", "bucket=ward,hall")
    assert client.post(both, content=lines(0, 10)).status_code == 204
    told(client.post(both, content=lines(10, 21)), 413, "too-many-rows")
    for name in ("ward", "hall"):
        assert client.get(f"/v1/streams/{name}").json()["rows"] == 10


def test_lines_that_are_skipped_cost_what_others_do_and_are_counted_alike(
    start: Callable[..., TestClient],
) -> None:
    client = start(max_rows=10)
    for name in ("ward", "hall"):
        put(client, TEMP, name=name)
    both = WRITE.replace("bucket=ward", "bucket=ward,hall")
    assert both != WRITE
    assert client.post(WRITE, content=b"m f=1\n" * 100).status_code == 204
    refused = client.post(WRITE, content=b"m f=1\n" * 101)
    assert "the body has 101 lines or more; expected at most 100" in refused.text
    told(refused, 413, "too-many-rows")
    assert client.post(both, content=b"m f=1\n" * 50).status_code == 204
    told(client.post(both, content=b"m f=1\n" * 51), 413, "too-many-rows")


def test_a_body_is_bounded_by_its_inflated_length(start: Callable[..., TestClient]) -> None:
    client = start(max_inflated_bytes=100_000, max_body_bytes=50_000)
    put(client, TEMP)
    bomb = gzip.compress(b"\n" * 10**7)
    refused = client.post(WRITE, content=bomb, headers={"content-encoding": "gzip"})
    assert refused.status_code == 413
    assert refused.json()["code"] == "request too large"


def test_a_client_finds_somebody(client: TestClient) -> None:
    for below in ("", "/v1/streams/ward/influx"):
        assert client.get(f"{below}/ping").status_code == 204
        assert client.head(f"{below}/ping").status_code == 204
        assert client.get(f"{below}/health").json()["status"] == "pass"
        made = client.post(f"{below}/query", data={"q": 'CREATE DATABASE "ward"'})
        assert made.json() == {"results": [{"statement_id": 0}]}


# -------------------------------------------------------------------------------------------- keys


def basic(key: str) -> dict[str, str]:
    text = base64.b64encode(f"anybody:{key}".encode()).decode()
    return {"Authorization": f"Basic {text}"}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, str, str]]:
    """An aggregator that asks for keys: a key that writes to ``ward``, and one that reads it."""
    data = str(tmp_path_factory.mktemp("influx") / "aggregator.sqlite3")
    with TestClient(create_app(Settings(data=data)), base_url=LOCAL) as client:
        made = [
            client.post("/v1/keys", json={"role": role, "scope": ["ward*"]}).json()["key"]
            for role in ("write", "read")
        ]
        for name in ("ward", "yard"):
            put(client, TEMP, name=name)
    with TestClient(create_app(Settings(data=data)), base_url=LOCAL) as client:
        yield client, made[0], made[1]


def test_a_key_is_shown_in_each_of_their_ways(keyed: tuple[TestClient, str, str]) -> None:
    client, key, _ = keyed
    ways = [
        {"Authorization": f"Token {key}"},
        {"Authorization": f"Bearer {key}"},
        {"Authorization": f"token  {key}"},
        basic(key),
    ]
    for path in (WRITE, "/write?db=ward", "/v1/streams/ward/influx/write"):
        for headers in ways:
            assert client.post(path, content=lines(0, 1), headers=headers).status_code == 204
        more = "&" if "?" in path else "?"
        shown = f"{path}{more}u=me&p={key}"
        assert client.post(shown, content=lines(0, 1)).status_code == 204


def test_no_other_key_and_no_other_path_and_no_foreign_stream(
    keyed: tuple[TestClient, str, str], caplog: pytest.LogCaptureFixture
) -> None:
    client, key, reading = keyed
    for headers in ({}, {"Authorization": "Token x"}, {"Authorization": "Basic x"}, basic("x")):
        refused = problem(client.post(WRITE, content=lines(0, 1), headers=headers), 401)
        assert "a valid key: Authorization: Token ds_..., or as the password" in refused["detail"]
    told(client.post(WRITE, content=lines(0, 1), headers=basic(reading)), 403, None)
    for bucket in ("yard", "ward,yard", "none"):
        path = f"/api/v2/write?bucket={bucket}"
        said = told(client.post(path, content=lines(0, 1), headers=basic(key)), 403, None)
        assert "not in the scope" in said
    path = f"/api/v2/write?bucket=ward&bucket=yard&db=yard&p={key}"
    told(client.post(path, content=lines(0, 1)), 403, None)
    for headers in (basic(key), {"Authorization": f"Token {key}"}):
        refused = problem(client.get("/v1/streams/ward", headers=headers), 401)
        assert refused["detail"].endswith("valid key: Authorization: Bearer ds_...")
    problem(client.get(f"/v1/streams/ward?u=me&p={key}"), 401)
    assert key not in caplog.text


def test_a_browser_that_remembers_a_password_lets_no_foreign_page_write(
    keyed: tuple[TestClient, str, str],
) -> None:
    client, key, _ = keyed
    for header in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://elsewhere.example"}):
        refused = client.post(WRITE, content=lines(0, 1), headers=basic(key) | header)
        problem(refused, 403, "foreign-page")


# -------------------------------------------------------------------------------- their own clients


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
    one_server: Callable[..., AbstractContextManager[tuple[Any, Any]]],
) -> Iterator[Any]:
    data: Path = tmp_path_factory.mktemp("served") / "aggregator.sqlite3"
    with one_server(data) as (_process, client):
        yield client


def test_the_client_of_influxdb_2_writes_through_faults(served: Any) -> None:
    influxdb_client = pytest.importorskip("influxdb_client")
    put(served, TEMP, name="two")
    options = influxdb_client.WriteOptions(
        batch_size=40, flush_interval=100, retry_interval=100, max_retry_delay=1000,
        jitter_interval=0,
    )  # fmt: skip
    with (
        faulty(served.base_url.port, b"/write", FAULTS) as port,
        influxdb_client.InfluxDBClient(f"http://127.0.0.1:{port}", "no key", org="any") as client,
        client.write_api(options) as api,
    ):
        for n in range(100):
            point = influxdb_client.Point("weather").tag("host", f"h{n % 2}").field("temp", n)
            api.write("two", record=point.time(T + n * 10**9))
    assert count(served, "two") == 100


def test_the_client_of_influxdb_3_writes(served: Any) -> None:
    influxdb_client_3 = pytest.importorskip("influxdb_client_3")
    put(served, TEMP, name="three")
    url = f"http://127.0.0.1:{served.base_url.port}"
    for host in ("a", "b"):
        with influxdb_client_3.InfluxDBClient3(
            host=url, token="no key", database="three"
        ) as client:
            client.write(lines(0, 50, host).decode().split("\n"))
    assert count(served, "three") == 50


@pytest.mark.parametrize(
    "path", ["/api/v3/write_lp?db=ward", "/v1/streams/ward/influx/api/v3/write_lp?db=x"]
)
@pytest.mark.parametrize(
    ("precision", "unit"),
    [("auto", 1), ("auto", 10**3), ("auto", 10**6), ("auto", 10**9), ("second", 10**9),
     ("millisecond", 10**6), ("nanosecond", 1), ("ms", 10**6)],
)  # fmt: skip
def test_version_3_writes(ward: TestClient, path: str, precision: str, unit: int) -> None:
    body = b"weather,site=ward temp=21.5 %d\n" % (T // unit)
    assert ward.post(f"{path}&precision={precision}", content=body).status_code == 204
    assert ward.get("/v1/streams/ward").json()["newest"] == T // 10**6


def test_version_3_stores_all_or_none_where_it_is_asked_to(ward: TestClient) -> None:
    body = lines(0, 5) + b"\nweather temp=x 1"
    answer = ward.post("/api/v3/write_lp?db=ward&accept_partial=false", content=body)
    assert "nothing is stored" in told(answer, 400, "invalid-request")
    assert count(ward) == 0
    assert "partial write" in told(
        ward.post("/api/v3/write_lp?db=ward", content=body), 400, "invalid-request"
    )
    assert count(ward) == 5


def test_a_bucket_of_several_streams_has_what_each_has_alone(client: TestClient) -> None:
    names = [f"s{number}" for number in range(3)]
    for number, name in enumerate(names):
        put(client, TEMP | {"measurement": f"m{number}"}, name=name)
    body = b"\n".join(b"m%d,host=a temp=%d %d" % (n % 3, n, T + n) for n in range(30))
    path = f"/api/v2/write?bucket={','.join(names)}"
    assert client.post(path, content=body).status_code == 204
    assert [count(client, name) for name in names] == [10, 10, 10]
