"""One fault on every protocol: each is read alike, or rejected with a remedy, and never silently.

One application in this process serves all cases. Each case has a stream of its own.
"""

from __future__ import annotations

import io
import itertools
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import cramjam
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from ingest.messages import chirpstack, stamp, tts
from ingest.test_otlp import gauge, point, request
from service import LOCAL

from api.app import create_app
from api.settings import Settings
from benchmarks.write_requests import version_1
from quality.messages import in_protobuf

NOW = int(time.time()) // 60 * 60 * 1000  # ms
DAY = 86_400_000
_names = (f"s{number}" for number in itertools.count())


class Row(NamedTuple):
    """A reading: the number in its device, its time in ms, and its value."""

    number: int
    time: Any
    value: Any


class Body(NamedTuple):
    """A request for the stream ``{}``."""

    path: str
    content: bytes
    media: str
    coding: str = "identity"


def _json(rows: list[Row]) -> Body:
    given = [{"id": ["d", r.number], "time": r.time, "value": r.value} for r in rows]
    content = json.dumps({"observations": given}).encode()
    return Body("/v1/streams/{}/observations?source=a", content, "application/json")


def _ndjson(rows: list[Row]) -> Body:
    content = b"\n".join(
        json.dumps({"id": ["d", r.number], "time": r.time, "value": r.value}).encode() for r in rows
    )
    return Body("/v1/streams/{}/observations?source=a", content, "application/x-ndjson")


def _arrow(rows: list[Row]) -> Body:
    columns = {
        "id": pa.array([f"d{r.number}" for r in rows]).dictionary_encode(),
        "time": pa.array([r.time for r in rows]),
        "value": pa.array([r.value for r in rows]),
    }
    if pa.types.is_string(columns["value"].type):
        columns["value"] = columns["value"].cast(pa.string_view())
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    media = "application/vnd.apache.arrow.stream"
    return Body("/v1/streams/{}/observations?source=a", sink.getvalue(), media)


def _lines(path: str) -> Callable[[list[Row]], Body]:
    def lines(rows: list[Row]) -> Body:
        text = "\n".join(f"m,d=d{r.number} v={_field(r.value)} {r.time}" for r in rows)
        return Body(path, text.encode(), "text/plain")

    return lines


def _field(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _metrics(rows: list[Row]) -> dict[str, Any]:
    points = [point(r.value, r.time * 10**6, n={"stringValue": f"d{r.number}"}) for r in rows]
    return request(gauge(*points, name="m"))


def _otlp_json(rows: list[Row]) -> Body:
    content = json.dumps(_metrics(rows)).encode()
    return Body("/v1/streams/{}/otlp/v1/metrics", content, "application/json")


def _otlp(rows: list[Row]) -> Body:
    content = in_protobuf(json.dumps(_metrics(rows)).encode())
    assert content is not None
    return Body("/v1/streams/{}/otlp/v1/metrics", content, "application/x-protobuf")


def _samples(rows: list[Row]) -> Body:
    series = [({"__name__": "m", "d": f"d{r.number}"}, [(r.value, r.time)]) for r in rows]
    content = bytes(cramjam.snappy.compress_raw(version_1(series)))
    return Body("/v1/streams/{}/prometheus/write", content, "application/x-protobuf", "snappy")


def _uplink(rows: list[Row]) -> Body:
    (row,) = rows
    at = row.time / 1000
    content = json.dumps(chirpstack(row.number + 1, at, object={"v": row.value})).encode()
    path = "/v1/streams/{}/lorawan?format=chirpstack&event=up"
    return Body(path, content, "application/json")


def _things(rows: list[Row]) -> Body:
    (row,) = rows
    message = tts(row.number + 1, row.time / 1000, decoded_payload={"v": row.value})
    path = "/v1/streams/{}/lorawan?format=tts"
    return Body(path, json.dumps(message).encode(), "application/json")


PROTOCOLS: dict[str, Callable[[list[Row]], Body]] = {
    "json": _json,
    "ndjson": _ndjson,
    "arrow": _arrow,
    "line v1": _lines("/write?db={}&precision=ms"),
    "line v2": _lines("/api/v2/write?bucket={}&precision=ms"),
    "line v3": _lines("/api/v3/write_lp?db={}&precision=ms"),
    "otlp json": _otlp_json,
    "otlp": _otlp,
    "remote write": _samples,
    "chirpstack": _uplink,
    "tts": _things,
}
FRAMES = ("chirpstack", "tts")  # one reading a message
TEXTS = tuple(set(PROTOCOLS) - {"arrow", "otlp", "remote write"})


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    data = tmp_path_factory.mktemp("protocols") / "data.sqlite3"
    with TestClient(create_app(Settings(data=str(data))), base_url=LOCAL) as client:
        yield client


MAPS = [
    {"format": "chirpstack", "value": "object.v"},
    {"format": "tts", "value": "uplink_message.decoded_payload.v"},
    {"format": "influx", "measurement": "m", "value": "v"},
    {"format": "otlp", "metric": "m"},
    {"format": "prometheus", "metric": "m"},
]


class Stream:
    """A new stream with a mapping for each protocol."""

    def __init__(self, client: TestClient) -> None:
        self.client, self.name = client, next(_names)
        form = {"params": {"time_unit": "ms", "capacity": 1000}, "ingest": {"map": MAPS}}
        assert client.put(self.path, json=form).status_code == 201

    @property
    def path(self) -> str:
        return f"/v1/streams/{self.name}"

    def send(self, body: Body, more: str = "", mark: bytes = b"") -> str:
        """Post a body. Return everything that the sender and the operator learn, as text."""
        headers = {"content-type": body.media} | (
            {} if body.coding == "identity" else {"content-encoding": body.coding}
        )
        answer = self.client.post(
            body.path.format(self.name) + more, content=mark + body.content, headers=headers
        )
        assert answer.status_code < 500, answer.text
        self.accepted = answer.status_code < 300
        warnings = self.client.get(self.path).json()["warnings"]
        return " ".join([answer.content.decode("utf-8", "replace"), *warnings])

    def total(self) -> float:
        query = {"aggregate": "total", "decay": "none"}
        answer = self.client.post(f"{self.path}/query", json={"queries": [query]})
        found: float = answer.json()["answers"][0]["estimate"]["value"]
        return found

    @property
    def newest(self) -> int | None:
        found: int | None = self.client.get(self.path).json()["newest"]
        return found


@pytest.fixture
def stream(client: TestClient) -> Stream:
    return Stream(client)


@pytest.mark.parametrize("protocol", sorted(TEXTS))
def test_a_byte_order_mark_is_no_part_of_a_body(stream: Stream, protocol: str) -> None:
    stream.send(PROTOCOLS[protocol]([Row(0, NOW, 21.5)]), mark=b"\xef\xbb\xbf")
    assert (stream.accepted, stream.total()) == (True, 21.5)


@pytest.mark.parametrize("protocol", sorted(set(PROTOCOLS) - set(FRAMES)))
def test_seconds_as_milliseconds_are_rejected_and_the_remedies_work(
    stream: Stream, protocol: str
) -> None:
    """OTLP has nanoseconds, so that its times are a thousandth as well."""
    make = PROTOCOLS[protocol]
    said = stream.send(make([Row(0, NOW // 1000, 21.5)]))
    assert not stream.accepted
    assert "it would be 20" in said
    assert stream.newest is None
    assert ("another precision" in said) == protocol.startswith("line")  # others have none
    stream.send(make([Row(0, NOW, 21.5)]))
    assert (stream.accepted, stream.newest) == (True, NOW)
    assert "check_units=false" in said
    more = "&check_units=false" if "?" in make([]).path else "?check_units=false"
    other = Stream(stream.client)
    other.send(make([Row(0, NOW // 1000, 21.5)]), more)
    assert (other.accepted, other.total()) == (True, 21.5)


@pytest.mark.parametrize("protocol", ["json", "ndjson", "arrow"])
def test_a_time_without_a_zone_is_reported_and_time_zone_reads_it(
    stream: Stream, protocol: str
) -> None:
    local = datetime(2026, 1, 31, 12)
    given: Any = local if protocol == "arrow" else local.isoformat()
    body = PROTOCOLS[protocol]([Row(0, given, 21.5)])
    assert "time_zone" in stream.send(body)
    other = Stream(stream.client)
    assert "time_zone" not in other.send(body, "&time_zone=Europe/Berlin")
    assert other.newest == int(datetime(2026, 1, 31, 11, tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize("protocol", ["json", "ndjson", "arrow"])
def test_a_time_that_clocks_skip_is_rejected_by_name(stream: Stream, protocol: str) -> None:
    local = datetime(2026, 3, 29, 2, 30)
    given: Any = local if protocol == "arrow" else local.isoformat()
    said = stream.send(PROTOCOLS[protocol]([Row(0, given, 21.5)]), "&time_zone=Europe/Berlin")
    assert not stream.accepted
    assert "clocks in Europe/Berlin skip" in said


@pytest.mark.parametrize("protocol", sorted(set(PROTOCOLS) - {"remote write"}))
def test_a_number_in_quotes_is_read_or_rejected_as_one(stream: Stream, protocol: str) -> None:
    """Mappings of messages read it, and protobuf's JSON has 64-bit numbers in quotes."""
    said = stream.send(PROTOCOLS[protocol]([Row(0, NOW, "21.5")]))
    if protocol in ("chirpstack", "tts", "otlp", "otlp json"):
        assert (stream.accepted, stream.total()) == (True, 21.5)
        return
    assert not stream.accepted
    reason = {"json": "a number in quotes", "ndjson": "a number in quotes", "arrow": "string_view"}
    assert reason.get(protocol, "is '21.5'; expected a number") in said


@pytest.mark.parametrize("year", [1970, 1980])
@pytest.mark.parametrize("protocol", sorted(set(PROTOCOLS) - set(FRAMES)))
def test_a_device_whose_clock_is_wrong_is_counted(stream: Stream, protocol: str, year: int) -> None:
    odd = int(datetime(year, 1, 6, tzinfo=UTC).timestamp()) * 1000
    said = stream.send(PROTOCOLS[protocol]([Row(0, NOW, 21.5), Row(1, odd, 2.5)]))
    assert (stream.accepted, stream.total()) == (True, 24.0)
    assert "1 reading outside the years 1990 to 2100" in said


@pytest.mark.parametrize(
    "clock",
    ["0001-01-01T00:00:00Z", "0000-00-00T00:00:00Z", "1970-01-01T00:00:07Z",
     "1980-01-06T00:00:00Z", "2000-01-01T00:00:00Z", "2012-01-01T00:00:10Z", "soon"],
)  # fmt: skip
@pytest.mark.parametrize("protocol", FRAMES)
def test_a_gateway_whose_clock_is_wrong_dates_no_uplink(
    stream: Stream, protocol: str, clock: str
) -> None:
    now = stamp(NOW / 1000)
    if protocol == "chirpstack":
        heard: Any = [{"gatewayId": "odd", "gwTime": clock}, {"gatewayId": "g2", "gwTime": now}]
        message = chirpstack(1, NOW / 1000, object={"v": 21.5}, rxInfo=heard)
    else:
        heard = [{"gateway_ids": {"gateway_id": "odd"}, "time": clock},
                 {"gateway_ids": {"gateway_id": "g2"}, "time": now}]  # fmt: skip
        message = tts(1, NOW / 1000, decoded_payload={"v": 21.5}, rx_metadata=heard)
    path = PROTOCOLS[protocol]([Row(0, NOW, 1)]).path
    said = stream.send(Body(path, json.dumps(message).encode(), "application/json"))
    assert (stream.accepted, stream.total(), stream.newest) == (True, 21.5, NOW)
    assert "'odd'" in said


@pytest.mark.parametrize("protocol", ["json", "ndjson", "arrow", *FRAMES])
def test_a_reading_that_replaces_another_one_is_reported(stream: Stream, protocol: str) -> None:
    """Ids of the other protocols contain the time."""
    make = PROTOCOLS[protocol]
    assert "replaced" not in stream.send(make([Row(0, NOW - 9 * DAY, 21.5)]))
    said = stream.send(make([Row(0, NOW, 22.5)]))
    assert "1 reading was replaced by a later one with the same id" in said
    assert protocol not in FRAMES or "`reset`" in said
    if protocol not in FRAMES:  # all of them in one body
        other = Stream(stream.client)
        said = other.send(make([Row(0, NOW - 9 * DAY, 21.5), Row(0, NOW, 22.5)]))
        assert "1 reading was replaced" in said


@pytest.mark.parametrize("protocol", ["otlp", "otlp json"])
@pytest.mark.parametrize("dedup", [None, "10s"])
def test_replicas_that_nothing_distinguishes_are_reported(
    client: TestClient, protocol: str, dedup: str | None
) -> None:
    """Also by the fast reader, which plain numbers take."""
    stream = Stream(client)
    maps = [{"format": "otlp", "metric": "m"} | ({} if dedup is None else {"dedup": dedup})]
    form = {"params": {"time_unit": "ms", "capacity": 1000}, "ingest": {"map": maps}}
    assert client.put(stream.path, json=form).status_code == 200
    metrics = _metrics([Row(0, NOW, 21.5)])
    name = {"key": "k8s.pod.name", "value": {"stringValue": "shop-1"}}
    metrics["resourceMetrics"][0]["resource"]["attributes"].append(name)
    content = json.dumps(metrics).encode()
    if protocol == "otlp":
        content = in_protobuf(content) or b""
    body = PROTOCOLS[protocol]([Row(0, NOW, 1.0)])
    assert "set k8s.pod.name on each replica" in stream.send(body._replace(content=content))


@pytest.mark.parametrize("protocol", ["line v2", "otlp", "remote write", "chirpstack"])
def test_the_remedy_for_a_missing_mapping_keeps_the_others(stream: Stream, protocol: str) -> None:
    """PUT replaces all mappings, which the message says where there are some."""
    params = stream.client.get(stream.path).json()["params"]
    params = {name: params[name] for name in ("time_unit", "capacity")}

    def put(maps: list[dict[str, Any]]) -> None:
        form = {"params": params, "ingest": {"map": maps}}
        assert stream.client.put(stream.path, json=form).status_code == 200

    put([{"format": "json", "value": "v", "id": ["n"], "time": "arrival"}])
    body = PROTOCOLS[protocol]([Row(0, NOW, 21.5)])
    said = stream.send(body)
    assert not stream.accepted
    assert '\\"params\\"' in said or '"params"' in said
    assert "its other mappings (1): PUT replaces all" in said
    put([*stream.client.get(stream.path).json()["ingest"]["map"], *MAPS])
    stream.send(body)
    assert (stream.accepted, stream.total()) == (True, 21.5)
