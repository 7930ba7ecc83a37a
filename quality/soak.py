"""``python -m quality.soak``: steady mixed posts of all protocols, for as long as is asked.

One aggregator is posted to at a low rate: sketches, observations as JSON, NDJSON and Arrow, line
protocol, OTLP, remote write, counters of a series stream and two LoRaWAN webhooks, each to a stream
whose sketches are small and fill early. One of them feeds derived streams. Small queries run next
to the posts. Every so often the resident memory and the size of the
database are printed. After the first quarter, in which sketches fill, the status is 1 if

- the median of memory in the last quarter is more than ``--growth`` above that in the second, or
- the database with its write-ahead log (which SQLite writes back from 64 MiB on) is larger than
  ``--database`` MiB at any time: compaction bounds it, or
- anything is answered 500, or a post is refused.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa

import decaysketch as ds
from quality.serving import Server

__all__ = ["PROTOCOLS", "main", "verdict"]

_PARAMS: dict[str, Any] = {"max_weight": 1, "id_bits": 40, "capacity": 500, "time_unit": "ms"}
_Body = tuple[str, bytes, str]  # path, body, media type


def _mapped(mapping: dict[str, Any]) -> dict[str, Any]:
    return {"ingest": {"map": [mapping]}}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _observations(number: int) -> _Body:
    rows = [{"value": n % 30, "time": _now_ms(), "id": number * 20 + n} for n in range(20)]
    body = json.dumps({"observations": rows}).encode()
    return "observations?source=a&verdicts=counts", body, "application/json"


def _lines(number: int) -> _Body:
    rows = (b'{"value":%d,"time":%d,"id":[%d,%d]}' % (n, _now_ms(), number, n) for n in range(20))
    return "observations?source=b&verdicts=counts", b"\n".join(rows), "application/x-ndjson"


def _influx(number: int) -> _Body:
    lines = (b"m,t=%d v=%d %d" % (n, number, time.time_ns()) for n in range(20))
    return "influx/write", b"\n".join(lines), "text/plain"


def _otlp(number: int) -> _Body:
    point = {"timeUnixNano": str(time.time_ns()), "asDouble": float(number)}
    metric = {"name": "m", "gauge": {"dataPoints": [point]}}
    body = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()
    return "otlp/v1/metrics", body, "application/json"


def _field(tag: int, content: bytes) -> bytes:
    return bytes([tag << 3 | 2, len(content)]) + content


def _varint(number: int) -> bytes:
    text = bytearray()
    while number > 0x7F:
        text.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*text, number])


def _remote_write(number: int) -> _Body:
    name = _field(1, _field(1, b"__name__") + _field(2, b"m"))
    sample = b"\x09" + struct.pack("<d", float(number)) + b"\x10" + _varint(_now_ms())
    return "prometheus/write", _field(1, name + _field(2, sample)), "application/x-protobuf"


def _lorawan(number: int) -> _Body:
    event = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "deviceInfo": {"devEui": "70b3d54990000001"}, "devAddr": "01ab0001",
        "fCnt": number, "object": {"t": number % 40},
    }  # fmt: skip
    return "lorawan?format=chirpstack", json.dumps(event).encode(), "application/json"


def _things_stack(number: int) -> _Body:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    message = {
        "end_device_ids": {"dev_eui": "70B3D57ED0000001", "device_id": "d", "dev_addr": "260B0001"},
        "received_at": now,
        "uplink_message": {"session_key_id": "AYfg==", "f_cnt": number, "received_at": now,
                           "decoded_payload": {"t": number % 40}},
    }  # fmt: skip
    return "lorawan?format=tts", json.dumps(message).encode(), "application/json"


def _columns(number: int) -> dict[str, Any]:
    return {"value": np.arange(20) % 9, "time": np.full(20, _now_ms()),
            "id": number * 20 + np.arange(20)}  # fmt: skip


def _arrow(number: int) -> _Body:
    table, sink = pa.table(_columns(number)), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    return "observations?source=d&verdicts=counts", body, "application/vnd.apache.arrow.stream"


def _sketch(number: int) -> _Body:
    sketch, columns = ds.DecaySketch(ds.SketchParams(**_PARAMS)), _columns(number)
    sketch.update(columns["value"], 1, columns["time"], columns["id"])
    return "sketches?source=e", sketch.to_bytes(), "application/octet-stream"


_SERIES = {"family": "series", "params": {"time_unit": "ms", "capacity": 500}}
_REMOTE = {"format": "prometheus", "metric": "m"}

#: How each protocol posts, and how its stream differs from the others.
PROTOCOLS: dict[str, tuple[Callable[[int], _Body], dict[str, Any]]] = {
    "json": (_observations, {}),
    "ndjson": (_lines, {"views": {"devices": {"id": 1, "capacity": 100}}}),
    "arrow": (_arrow, {}),
    "sketch": (_sketch, {}),
    "influx": (_influx, _mapped({"format": "influx", "measurement": "m", "value": "v"})),
    "otlp": (_otlp, _mapped({"format": "otlp", "metric": "m"})),
    "prometheus": (_remote_write, _mapped(_REMOTE)),
    "series": (_remote_write, _SERIES | _mapped(_REMOTE | {"kind": "counter"})),
    "chirpstack": (_lorawan, _mapped({"format": "chirpstack", "value": "object.t"})),
    "tts": (_things_stack, _mapped({"format": "tts", "value": "uplink_message.decoded_payload.t"})),
}


def _prepare(http: httpx2.Client) -> None:
    for name, (_, form) in PROTOCOLS.items():
        http.put(f"/v1/streams/{name}", json={"params": _PARAMS} | form).raise_for_status()


def _work(http: httpx2.Client, rate: float, end: float) -> Iterator[Counter[int]]:
    """Post and ask at a rate; statuses so far, again and again."""
    answers, draw = Counter[int](), random.Random(1)
    for number in itertools.count():
        if time.monotonic() > end:
            return
        name = draw.choice(list(PROTOCOLS))
        path, body, media = PROTOCOLS[name][0](number)
        answer = http.post(
            f"/v1/streams/{name}/{path}", content=body, headers={"Content-Type": media}
        )
        answers[answer.status_code] += 1
        if number % 10 == 0:
            aggregate = "increase" if name == "series" else "mean"
            ask = {"queries": [{"aggregate": aggregate, "decay": "window(1h)"}]}
            answers[http.post(f"/v1/streams/{name}/query", json=ask).status_code] += 1
        yield answers
        time.sleep(draw.expovariate(rate))


def verdict(
    memory: list[int], database: list[int], answers: Counter[int], growth: float, most: int
) -> list[str]:
    """What is wrong with a run: sizes in bytes, sampled evenly."""
    quarter = max(1, len(memory) // 4)
    early, late = median(memory[quarter : 2 * quarter] or memory), median(memory[-quarter:])
    faults = []
    if late > early * (1 + growth):
        faults.append(f"memory grew from {early / 2**20:.1f} to {late / 2**20:.1f} MiB")
    if max(database) > most:
        faults.append(f"the database reached {max(database) / 2**20:.1f} MiB")
    if bad := {status: count for status, count in answers.items() if status >= 400}:
        faults.append(f"answered {bad}")
    return faults


def main(arguments: list[str] | None = None) -> int:
    """Run the study; the status."""
    parser = argparse.ArgumentParser(prog="python -m quality.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=20.0, help="posts a second")
    parser.add_argument("--growth", type=float, default=0.05)
    parser.add_argument(
        "--database", type=float, default=128.0, help="MiB, write-ahead log included"
    )
    options = parser.parse_args(arguments)
    memory, database, answers = list[int](), list[int](), Counter[int]()
    with tempfile.TemporaryDirectory(prefix="decaysketch-soak-") as folder:
        data = Path(folder) / "a.sqlite3"
        environment = {
            "DECAYSKETCH_DATA": str(data), "DECAYSKETCH_COMPACT_ROWS": "500",
            "DECAYSKETCH_LOG_LEVEL": "warning",
        }  # fmt: skip
        server = Server(Path(folder), environment)
        server.start()
        every_s = options.minutes * 60 / 40
        begun = time.monotonic()
        try:
            with httpx2.Client(base_url=server.url, trust_env=False, timeout=300) as http:
                _prepare(http)
                for answers in _work(http, options.rate, begun + 60 * options.minutes):
                    if time.monotonic() - begun >= len(memory) * every_s:
                        memory.append(server.resident_bytes())
                        parts = (Path(f"{data}{end}") for end in ("", "-wal"))
                        database.append(sum(each.stat().st_size for each in parts if each.exists()))
                        print(
                            f"{(time.monotonic() - begun) / 60:6.1f} min {memory[-1] / 2**20:7.1f} "
                            f"MiB, database {database[-1] / 2**20:6.1f} MiB, {dict(answers)}",
                            flush=True,
                        )
        finally:
            server.kill()
    faults = verdict(memory, database, answers, options.growth, int(options.database * 2**20))
    for fault in faults:
        print(f"FAULT {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
