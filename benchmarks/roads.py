"""``python -m benchmarks.roads``: rows a second that one worker accepts of each message protocol.

Line protocol, OTLP and Prometheus remote write, with 200 series and with 5,000 hosts of which each
has one sample in a body, as collectors send them, and NDJSON. Posts go through the complete
application in this process: guard, parser, ids, checks, sketch, journal. Line protocol and remote
write are posted to a stream of single values and to one with columns. Each protocol is printed
with its parser alone and, as the floor, another parser of the format, in C, which does nothing with
the result: of OTLP and remote write protobuf's own. The last lines compare a bucket of ten streams
with one stream that reads the same lines.

Processor time of the process, all of its threads: the best of some rounds, each with bodies of its
own. Rounds of all cases take turns, so that a busy machine slows all of them alike. For a look,
``--rounds 2 --bodies 5`` takes a fifth of the time, and ``--only columns`` selects cases by name.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
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

_ROWS, _BODIES, _ROUNDS, _TEN = 5_000, 10, 5, 10
_SERIES, _HOSTS = 200, 5_000
_BEGIN_S = 1_700_000_000
_MAP = {"format": "influx", "measurement": "weather", "value": "temp", "drop_tags": ["agent"]}
_METRIC = {"format": "otlp", "metric": "temp"}
_SAMPLES = {"format": "prometheus", "metric": "temp", "drop_labels": ["replica"]}
_COLUMNS = {"temp": "float64", "hum": "float64", "host": "text", "room": "text", "site": "text",
            "value": "float64", "metric": "text", "instance": "text", "job": "text"}  # fmt: skip
_LINE_COLUMNS = {"format": "influx", "columns": "*", "drop_tags": ["agent"]}
_SAMPLE_COLUMNS = {"format": "prometheus", "columns": "*", "drop_labels": ["replica"]}
_PROTOBUF = {"content-type": "application/x-protobuf"}
_SNAPPY = _PROTOBUF | {"content-encoding": "snappy"}
_LINES = {"content-type": "text/plain"}
_NDJSON = {"content-type": "application/x-ndjson"}

Take = Callable[[bytes], Any]
Make = Callable[[int], bytes]


def _host(row: int, series: int) -> str:
    return f"node-{row % series:05d}.example.com"


def _lines(number: int, series: int = _SERIES, measurements: int = 1) -> bytes:
    """Lines as Telegraf writes them."""
    begin = (_BEGIN_S + 10 * number) * 10**9
    return b"\n".join(
        b"weather%b,host=%b,room=r%d,site=ward temp=%d.%d,hum=%di %d"
        % (
            b"" if measurements == 1 else b"%d" % (row % measurements),
            _host(row, series).encode(),
            row % 100, row % 40, row % 10, row % 100, begin + row * 10**6,
        )
        for row in range(_ROWS)
    )  # fmt: skip


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


def _metrics(number: int, series: int = _SERIES) -> bytes:
    """A gauge."""
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    group.resource.attributes.add(key="service.name").value.string_value = "ward"
    metric = group.scope_metrics.add().metrics.add(name="temp")
    begin = (_BEGIN_S + 10 * number) * 10**9
    for row in range(_ROWS):
        point = metric.gauge.data_points.add(
            time_unix_nano=begin + row * 10**6, as_double=row % 40 + row % 10 / 10
        )
        for key, text in (("room", f"r{row % 100}"), ("host", _host(row, series))):
            point.attributes.add(key=key).value.string_value = text
    return bytes(request.SerializeToString())


def _samples(number: int, series: int = _SERIES) -> bytes:
    """As servers write them: each sample with all labels."""
    begin = (_BEGIN_S + 10 * number) * 1000
    return version_1(
        (
            {
                "__name__": "temp",
                "instance": f"{_host(row, series)}:9100",
                "job": "node",
                "replica": "ab"[number % 2],
                "room": f"r{row % 100}",
            },
            [(row % 40 + row % 10 / 10, begin + row)],
        )
        for row in range(_ROWS)
    )


def _blocks(number: int, series: int = _SERIES) -> bytes:
    return bytes(cramjam.snappy.compress_raw(_samples(number, series)))


def _rates(cases: dict[str, tuple[Take, Make]], rounds: int, several: int) -> dict[str, float]:
    """Rows for each second of processor time, of each case; rounds take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds):
        for name, (take, make) in cases.items():
            bodies = [make(turn * several + number) for number in range(several)]
            begin = time.process_time()
            for body in bodies:
                take(body)
            seconds[name].append(time.process_time() - begin)
    return {name: several * _ROWS / min(each) for name, each in seconds.items()}


def _alone() -> dict[str, tuple[Take, Make]]:
    """Parsers alone, and those of others."""
    import line_protocol_parser as witness

    def maps(given: dict[str, Any]) -> Any:
        return next(iter(Mappings.model_validate({"map": [given]}).series.values()))

    lines, metrics, samples = maps(_MAP), maps(_METRIC), maps(_SAMPLES)
    floors: dict[str, tuple[Take, Callable[..., bytes]]] = {
        "floor of line protocol: line-protocol-parser, line by line": (
            lambda body: [*map(witness.parse_line, body.decode().split("\n"))], _lines,
        ),
        "parser of line protocol alone": (lambda body: parse(body, lines), _lines),
        "floor of OTLP: protobuf": (ExportMetricsServiceRequest.FromString, _metrics),
        "parser of OTLP with it": (lambda body: otlp.parse(body, metrics), _metrics),
        "floor of remote write: protobuf": (messages()["WriteRequest"].FromString, _samples),
        "parser of remote write alone": (lambda body: remote_write.parse(body, samples), _samples),
    }  # fmt: skip
    return {
        f"{name}, {series} series": (take, partial(make, series=series))
        for name, (take, make) in floors.items()
        for series in (_SERIES, _HOSTS)
    }


def _posts(client: TestClient) -> dict[str, tuple[Take, Make]]:
    """Posts, the complete way."""

    def create(name: str, *maps: dict[str, Any], columns: dict[str, str] | None = None) -> str:
        params: dict[str, Any] = {"max_weight": 1, "time_unit": "ms"}
        if columns is not None:
            params["columns"] = columns
        form = {"params": params, "ingest": {"map": maps}}
        client.put(f"/v1/streams/{name}", json=form).raise_for_status()
        return name

    def post(path: str, headers: dict[str, str]) -> Take:
        return lambda body: client.post(path, content=body, headers=headers).raise_for_status()

    cases: dict[str, tuple[Take, Make]] = {}
    for series in (_SERIES, _HOSTS):
        name = create(f"s{series}", _MAP, _METRIC, _SAMPLES)
        ways: dict[str, tuple[Take, Callable[..., bytes]]] = {
            "line protocol": (post(f"/api/v2/write?bucket={name}", _LINES), _lines),
            "OTLP": (post(f"/v1/streams/{name}/otlp/v1/metrics", _PROTOBUF), _metrics),
            "remote write": (post(f"/v1/streams/{name}/prometheus/write", _SNAPPY), _blocks),
        }
        for way, (take, make) in ways.items():
            cases[f"posts of {way}, {series} series"] = take, partial(make, series=series)
        fleet = create(f"c{series}", _LINE_COLUMNS, _SAMPLE_COLUMNS, columns=_COLUMNS)
        lines = post(f"/api/v2/write?bucket={fleet}", _LINES)
        samples = post(f"/v1/streams/{fleet}/prometheus/write", _SNAPPY)
        cases[f"posts of line protocol with columns, {series} series"] = (
            lines,
            partial(_lines, series=series),
        )
        cases[f"posts of remote write with columns, {series} series"] = (
            samples,
            partial(_blocks, series=series),
        )
    ten = [_MAP | {"measurement": f"weather{number}"} for number in range(_TEN)]
    names = [create(f"ten{number}", each) for number, each in enumerate(ten)]
    mixed = partial(_lines, series=_HOSTS, measurements=_TEN)
    one = post(f"/api/v2/write?bucket={create('all', *ten)}", _LINES)
    cases["posts of lines of ten measurements to one stream"] = one, mixed
    each = post(f"/api/v2/write?bucket={','.join(names)}", _LINES)
    cases["posts of the same lines to ten streams, one measurement each"] = each, mixed
    create("ndjson", _MAP)
    path = "/v1/streams/ndjson/observations?source=s&verdicts=counts"
    cases["posts of NDJSON"] = post(path, _NDJSON), _ndjson
    return cases


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the rates."""
    options = argparse.ArgumentParser(prog="benchmarks.roads", description=__doc__)
    options.add_argument("--rounds", type=int, default=_ROUNDS)
    options.add_argument("--bodies", type=int, default=_BODIES, help="of a round")
    options.add_argument("--only", default="", help="words in the name of a case")
    chosen = options.parse_args(arguments)
    print(*machine.describe(), sep="\n")
    for name in ("line-protocol-parser", "fastapi", "pydantic"):
        print(f"{name} {machine.installed(name)}")
    with TemporaryDirectory() as folder:
        settings = Settings(data=str(Path(folder) / "roads.sqlite3"))
        with TestClient(create_app(settings), base_url="http://localhost") as client:
            cases = {
                name: case for name, case in (_alone() | _posts(client)).items()
                if chosen.only in name
            }  # fmt: skip
            for name, rate in _rates(cases, chosen.rounds, chosen.bodies).items():
                print(f"{name}: {rate:,.0f} rows a second of processor time")


if __name__ == "__main__":
    main()
