"""Samples of Prometheus over HTTP, and a pair of real servers that write them."""

from __future__ import annotations

import gzip
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import cramjam
import pytest
from fastapi.testclient import TestClient
from faults import faulty
from service import problem
from support.debian import program

from api.errors import BusyError, InvalidRequestError
from api.http.refusals import BodyTooLargeError
from api.routes import remote_write
from api.service.aggregator import Aggregator
from benchmarks.write_requests import STALE, version_1, version_2
from quality.damage import damage

PARAMS = {"max_weight": 1, "id_bits": 48, "time_unit": "ms"}
TEMP = {"format": "prometheus", "metric": "temp", "drop_labels": ["replica"]}
URL = "/v1/streams/ward/prometheus/write"
T = 1_700_000_000_000
WRITTEN = "X-Prometheus-Remote-Write-Samples-Written"
PROTOBUF = "application/x-protobuf"
SNAPPY = {"content-type": PROTOBUF, "content-encoding": "snappy"}
FIRST = SNAPPY | {"content-type": f"{PROTOBUF}; proto=prometheus.WriteRequest"}
SECOND = SNAPPY | {"content-type": f'{PROTOBUF};proto="io.prometheus.write.v2.Request"'}


def series(count: int, **labels: str) -> list[Any]:
    given = {"__name__": "temp", "room": "r1"} | labels
    return [(given, [(float(n), T + n) for n in range(count)])]


def packed(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


def put(client: Any, *maps: dict[str, Any]) -> None:
    form = {"params": PARAMS, "ingest": {"map": list(maps)}}
    assert client.put("/v1/streams/ward", json=form).status_code in (200, 201)


def count(client: Any) -> float:
    query = {"aggregate": "count", "decay": "none", "now": T + 10**12}
    answer = client.post("/v1/streams/ward/query", json={"queries": [query]}).json()
    found: float = answer["answers"][0]["estimate"]["value"]
    return found


@pytest.fixture
def ward(client: TestClient) -> TestClient:
    put(client, TEMP)
    return client


def test_both_versions_are_taken_once(ward: TestClient) -> None:
    for body, headers in (
        (version_1(series(30, replica="a")), SNAPPY),
        (version_1(series(30, replica="b")), FIRST),
        (version_2(series(40)), SECOND),
    ):
        answer = ward.post(URL, content=packed(body), headers=headers)
        assert answer.status_code == 204, answer.text
    for coding, sent in (("identity", body), ("gzip", gzip.compress(body))):
        again = ward.post(URL, content=sent, headers=SECOND | {"content-encoding": coding})
        assert again.status_code == 204
    assert answer.headers[WRITTEN] == "40"
    assert answer.headers["X-Prometheus-Remote-Write-Histograms-Written"] == "0"
    assert count(ward) == 40


def test_what_is_skipped_counts_as_written(ward: TestClient) -> None:
    body = version_1([*series(3), *series(2, __name__="up"), ({"__name__": "temp"}, [(STALE, T)])])
    answer = ward.post(URL, content=packed(body), headers=SNAPPY)
    assert (answer.status_code, answer.headers[WRITTEN]) == (204, "6")


def test_what_is_sound_is_stored_also_where_the_rest_is_refused(ward: TestClient) -> None:
    body = version_1([*series(3), ({"__name__": "temp"}, [(1.0, 4 * T), (float("inf"), T)])])
    answer = ward.post(URL, content=packed(body), headers=SNAPPY)
    assert answer.headers[WRITTEN] == "3"
    said = problem(answer, 400, "invalid-request")
    assert "time too far in the future" in said["message"]
    assert said["message"].endswith("2 rejected, 3 written")
    assert count(ward) == 3


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff\xff\xff\xff\x0f", SNAPPY, 413),
        (packed(b"\0" * 5_000_000), SNAPPY, 413),
        (b"\x05\0\0\0\0\0\0", SNAPPY, 400),
        (b"", SNAPPY, 400),
        (packed(b"\x0a\xff"), SNAPPY, 400),
        (packed(b""), SNAPPY | {"content-type": "text/plain"}, 415),
        (packed(b""), SNAPPY | {"content-encoding": "br"}, 415),
        (packed(version_2(series(3))), SNAPPY, 400),
        (packed(version_1(series(3))), SECOND, 400),
        (packed(version_1(series(3))), SNAPPY | {"content-type": f"{PROTOBUF};proto=other"}, 415),
    ],
)
def test_what_cannot_be_read_is_refused(
    ward: TestClient, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert ward.post(URL, content=body, headers=headers).status_code == status
    assert count(ward) == 0


@pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
def test_what_is_refused_is_counted_once(ward: TestClient) -> None:
    body = version_1([*series(3), ({"__name__": "temp"}, [(float("inf"), T)])])
    for sent in (packed(body), b"\xff", packed(b"\0" * 5_000_000)):
        assert ward.post(URL, content=sent, headers=SNAPPY).status_code in (400, 413)
    counted = [
        line
        for line in ward.get("/metrics").text.splitlines()
        if line.startswith("decaysketch_refused_total")
    ]
    assert sorted(counted) == [
        f'decaysketch_refused_total{{reason="{reason}",stream="ward"}} 1.0'
        for reason in ("http-413", "invalid-request", "series")
    ]


def test_no_block_raises_anything_else() -> None:
    sound = packed(version_1(series(20)))
    for seed in range(2000):
        body, draw = bytearray(sound), random.Random(seed)
        for _ in range(draw.randint(1, 3)):
            damage(draw, body, [sound])
        with suppress(InvalidRequestError, BodyTooLargeError):
            remote_write._plain(bytes(body), 1 << 20)


def test_snappy_is_for_this_route_alone(ward: TestClient) -> None:
    path = "/v1/streams/ward/observations?source=s"
    headers = SNAPPY | {"content-type": "application/x-ndjson"}
    assert "snappy" in ward.post(path, content=b"\x00", headers=headers).json()["detail"]


def test_who_writes_is_told_503_where_all_is_busy(
    ward: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: object, **__: object) -> None:
        raise BusyError

    monkeypatch.setattr(Aggregator, "post", busy)
    refused = ward.post(URL, content=packed(version_1(series(1))), headers=SNAPPY)
    problem(refused, 503, "busy")
    assert refused.headers["Retry-After"] == "1"


_CONFIGURATION = """
global: {{scrape_interval: 1s, external_labels: {{replica: {replica}}}}}
scrape_configs:
- job_name: itself
  metrics_path: /healthz
  static_configs: [{{targets: ['127.0.0.1:{target}'], labels: {{room: r{number}}}}}]
  relabel_configs: [{{source_labels: [room], target_label: instance}}]
remote_write:
- url: http://127.0.0.1:{port}{url}?source={replica}
  write_relabel_configs: [{{source_labels: [__name__], regex: up, action: keep}}]
  queue_config: {{batch_send_deadline: 300ms, min_backoff: 100ms, max_backoff: 1s}}
"""


@contextmanager
def _prometheus(
    binary: str, folder: Path, replica: str, port: int, target: int
) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir()
    configuration = folder / "prometheus.yml"
    configuration.write_text(
        _CONFIGURATION.format(replica=replica, port=port, target=target, url=URL, number=1)
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [binary, f"--config.file={configuration}", f"--storage.tsdb.path={folder}/data",
             "--web.listen-address=127.0.0.1:0"],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def test_a_pair_of_servers_writes_each_interval_once_through_faults(
    tmp_path: Path,
    one_server: Callable[..., AbstractContextManager[tuple[Any, Any]]],
) -> None:
    """The two scrape at moments of their own; copies are by series and interval."""
    binary = program(("prometheus",), ("prometheus",))
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    whole = {"format": "prometheus", "metric": "up"}
    with one_server(tmp_path / "aggregator.sqlite3") as (_process, client):
        put(client, whole | {"drop_labels": ["replica"], "dedup": "1s"})
        began = time.time()
        with (
            faulty(client.base_url.port, b"/prometheus/write", [busy, b"", busy]) as port,
            _prometheus(binary, tmp_path / "a", "a", port, client.base_url.port),
            _prometheus(binary, tmp_path / "b", "b", port, client.base_url.port),
        ):
            # Of one series there is one reading a second, whoever has written it, and not two. So
            # both come to write about the same seconds.
            while True:
                found = count(client)
                a, b = _taken(client, "a"), _taken(client, "b")
                if min(a, b) >= 3 and found <= a + b - 2:
                    break
                assert time.time() - began < 600  # for what hangs
                time.sleep(0.2)
        seconds = time.time() - began + 2
        assert 3 <= count(client) <= seconds


def _taken(client: Any, source: str) -> int:
    """Rows that a source has posted."""
    sources = client.get("/v1/streams/ward").json()["sources"]
    return sum(each["posted_rows"] for each in sources if each["source"] == source)
