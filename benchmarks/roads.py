"""``python -m benchmarks.roads``: rows a second that one worker takes of other formats' bodies.

Posts of line protocol, of OTLP and of Prometheus remote write, and of NDJSON beside them, go
through the whole application in this process: guard, parser, ids, checks, sketch, journal. Beside
that stand the parser alone and, as the floor, another parser of the format, in C, which does
nothing with what it reads: of OTLP and remote write protobuf's own. Processor time of the process,
all of its threads; the best of some rounds, each with bodies of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cramjam
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from api.app import create_app
from api.settings import Settings
from benchmarks import machine
from benchmarks.write_requests import messages, version_1
from decaysketch.ingest import otlp, remote_write
from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.line_protocol import parse

__all__ = ["main"]

_ROWS, _BODIES, _ROUNDS = 5_000, 20, 3
_BEGIN_S = 1_700_000_000
_MAP = {"format": "influx", "measurement": "weather", "value": "temp", "drop_tags": ["host"]}
_METRIC = {"format": "otlp", "metric": "temp"}
_SAMPLES = {"format": "prometheus", "metric": "temp", "drop_labels": ["replica"]}
_PROTOBUF = {"content-type": "application/x-protobuf"}
_SNAPPY = _PROTOBUF | {"content-encoding": "snappy"}
_LINES = {"content-type": "text/plain"}
_NDJSON = {"content-type": "application/x-ndjson"}


def _lines(number: int) -> bytes:
    """Lines of 200 series, as Telegraf writes them."""
    begin = _BEGIN_S * 10**9 + number * _ROWS * 10**6
    return b"\n".join(
        b"weather,host=gw%d,room=r%d,site=ward temp=%d.%d,hum=%di %d"
        % (row % 2, row % 100, row % 40, row % 10, row % 100, begin + row * 10**6)
        for row in range(_ROWS)
    )


def _ndjson(number: int) -> bytes:
    begin = _BEGIN_S * 1000 + number * _ROWS
    rows = (
        {
            "id": f"r{row % 200}/{begin + row}",
            "time": begin + row,
            "value": row % 40 + row % 10 / 10,
        }
        for row in range(_ROWS)
    )
    return b"\n".join(json.dumps(row).encode() for row in rows)


def _metrics(number: int) -> bytes:
    """A gauge of 200 series."""
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    group.resource.attributes.add(key="service.name").value.string_value = "ward"
    metric = group.scope_metrics.add().metrics.add(name="temp")
    begin = _BEGIN_S * 10**9 + number * _ROWS * 10**6
    for row in range(_ROWS):
        point = metric.gauge.data_points.add(
            time_unix_nano=begin + row * 10**6, as_double=row % 40 + row % 10 / 10
        )
        for key, text in (("room", f"r{row % 100}"), ("gateway", f"gw{row % 2}")):
            point.attributes.add(key=key).value.string_value = text
    return bytes(request.SerializeToString())


def _samples(number: int) -> bytes:
    """Of 200 series, as servers write them: each sample with all labels."""
    begin = _BEGIN_S * 1000 + number * _ROWS
    return version_1(
        (
            {"__name__": "temp", "job": "node", "room": f"r{row % 100}", "replica": "ab"[row % 2]},
            [(row % 40 + row % 10 / 10, begin + row)],
        )
        for row in range(_ROWS)
    )


def _blocks(number: int) -> bytes:
    return bytes(cramjam.snappy.compress_raw(_samples(number)))


def _rate(take: Callable[[bytes], Any], make: Callable[[int], bytes]) -> float:
    """Rows for each second of processor time."""
    seconds = []
    for turn in range(_ROUNDS):
        bodies = [make(turn * _BODIES + number) for number in range(_BODIES)]
        begin = time.process_time()
        for body in bodies:
            take(body)
        seconds.append(time.process_time() - begin)
    return _BODIES * _ROWS / min(seconds)


def main() -> None:
    """Print the rates."""
    import line_protocol_parser as witness

    print(*machine.describe(), sep="\n")
    for name in ("line-protocol-parser", "fastapi", "pydantic"):
        print(f"{name} {machine.installed(name)}")
    maps: Any = Mappings.model_validate({"map": [_MAP]}).map
    floor = _rate(lambda body: [*map(witness.parse_line, body.decode().split("\n"))], _lines)
    alone = _rate(lambda body: parse(body, maps), _lines)
    read: Any = Mappings.model_validate({"map": [_METRIC]}).map
    metrics_floor = _rate(ExportMetricsServiceRequest.FromString, _metrics)
    metrics_alone = _rate(lambda body: otlp.parse(body, read), _metrics)
    wanted: Any = Mappings.model_validate({"map": [_SAMPLES]}).map
    samples_floor = _rate(messages()["WriteRequest"].FromString, _samples)
    samples_alone = _rate(lambda body: remote_write.parse(body, wanted), _samples)
    with TemporaryDirectory() as folder:
        settings = Settings(data=str(Path(folder) / "roads.sqlite3"))
        with TestClient(create_app(settings), base_url="http://localhost") as client:
            form = {
                "params": {"max_weight": 1, "time_unit": "ms"},
                "ingest": {"map": [_MAP, _METRIC, _SAMPLES]},
            }
            for name in ("lines", "metrics", "ndjson", "samples"):
                client.put(f"/v1/streams/{name}", json=form).raise_for_status()

            def post(path: str, headers: dict[str, str]) -> Callable[[bytes], Any]:
                return lambda body: client.post(
                    path, content=body, headers=headers
                ).raise_for_status()

            whole = _rate(post("/api/v2/write?bucket=lines", _LINES), _lines)
            path = "/v1/streams/ndjson/observations?source=s&verdicts=counts"
            beside = _rate(post(path, _NDJSON), _ndjson)
            metrics = _rate(post("/v1/streams/metrics/otlp/v1/metrics", _PROTOBUF), _metrics)
            samples = _rate(post("/v1/streams/samples/prometheus/write", _SNAPPY), _blocks)
    for what, rate, of in (
        ("floor of line protocol: line-protocol-parser, line by line", floor, floor),
        ("our parser alone", alone, floor),
        ("posts of line protocol, the whole way", whole, floor),
        ("floor of OTLP: protobuf", metrics_floor, metrics_floor),
        ("our parser with it", metrics_alone, metrics_floor),
        ("posts of OTLP, the whole way", metrics, metrics_floor),
        ("floor of remote write: protobuf", samples_floor, samples_floor),
        ("our parser alone", samples_alone, samples_floor),
        ("posts of remote write, the whole way", samples, samples_floor),
        ("posts of NDJSON, the whole way", beside, beside),
    ):
        print(f"{what}: {rate:,.0f} rows a second of processor time, {rate / of:.2f} of the floor")


if __name__ == "__main__":
    main()
