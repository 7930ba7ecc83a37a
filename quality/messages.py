"""``python -m quality.messages``: what bodies that no client wrote do to their readers.

Sound messages of every format are changed at random: values of the document are replaced by ones
that are hostile (or moved, or repeated), or bytes of the text are; of line protocol, which has no
documents, parts of lines are put together in other ways. Each must become readings,
refusals and skips without an error, and then rows of a stream, or refusals of rows. Other bodies of
requests are in :mod:`quality.bodies`: observations, time series for a stream that stores series,
and queries. Printed are the outcomes and the ten bodies that took longest, with seconds of a
processor and peak memory. The status is 1 if anything raised, or one of the ten is above
``--seconds`` or ``--mebibytes``. The
seed and the number of a message make it again.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any, Final, NamedTuple

from decaysketch.core.params import SketchParams
from decaysketch.families import recipe_of
from decaysketch.ingest import line_protocol, otlp, remote_write
from decaysketch.ingest.columns import Form, check, points_to_columns, to_columns
from decaysketch.ingest.documents import Message
from decaysketch.ingest.formats import Mappings, parse_message
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import UnreadableError
from quality.bodies import KINDS, SERIES, Kind, columns_kind, series_kind
from quality.damage import damage

__all__ = ["FORMATS", "MAPS", "SOUND", "changed", "main", "outcome", "study"]

_WORST: Final = 10  # messages that are told of
_NANOSECONDS: Final = "1700000000000000000"
_ATTRIBUTES: Final = [
    {"key": "a", "value": {"stringValue": "1"}},
    {"key": "b", "value": {"arrayValue": {"values": [{"intValue": "1"}, {"boolValue": True}]}}},
]
_GAUGE: Final = [
    {"timeUnixNano": _NANOSECONDS, "asDouble": 2.0, "attributes": _ATTRIBUTES},
    {"timeUnixNano": _NANOSECONDS, "asInt": "4"},
]
_SUM: Final = [{"timeUnixNano": _NANOSECONDS, "asInt": "6", "attributes": _ATTRIBUTES[:1]}]
_HISTOGRAM: Final = [
    {
        "timeUnixNano": _NANOSECONDS, "count": "9", "sum": 1.0, "min": 0.0, "max": 16.0,
        "explicitBounds": [4.0, 12.0], "bucketCounts": ["2", "7", "0"], "attributes": _ATTRIBUTES,
    }
]  # fmt: skip
_METRICS: Final = [
    {"name": "m", "gauge": {"dataPoints": _GAUGE}},
    {"name": "m", "sum": {"aggregationTemporality": 1, "dataPoints": _SUM}},
    {"name": "m", "histogram": {"aggregationTemporality": 1, "dataPoints": _HISTOGRAM}},
]
_STAMP: Final = "2026-01-31T12:00:00Z"
SOUND: Final[Mapping[str, dict[str, Any]]] = {
    "chirpstack": {
        "time": _STAMP,
        "deviceInfo": {"devEui": "70b3d54990000001", "applicationName": "ward"},
        "devAddr": "01ab0001",
        "fCnt": 7,
        "object": {"t": 21.5, "gps": {"alt": 120.5}, "n": 4},
        "rxInfo": [{"gatewayId": "gw1", "rssi": -90, "gwTime": _STAMP}, {"gatewayId": "gw2"}],
    },
    "json": {
        "w": "5,5",
        "seq": 1.5,
        "ts": "1700000000000",
        "n": "2",
        "pm_2.5": 3,
        "at": "2026-01-31T12:00",
        "rows": [{"v": 1, "k": "a"}, {"v": None}],
        "text": '{"x": [1, "2"]}',
        "named": {"a": 1, "b": 2},
    },
    "otlp": {
        "resourceMetrics": [
            {
                "resource": {"attributes": [{"key": "r", "value": {"stringValue": "x"}}]},
                "scopeMetrics": [{"metrics": _METRICS}],
            }
        ]
    },
    "tts": {
        "end_device_ids": {"dev_eui": "70B3D57ED0000001", "device_id": "d", "dev_addr": "260B0001"},
        "received_at": _STAMP,
        "uplink_message": {
            "session_key_id": "AYfg==",
            "f_cnt": 7,
            "decoded_payload": {"t": 21.5},
            "rx_metadata": [{"gateway_ids": {"gateway_id": "g"}, "rssi": -80, "time": _STAMP}],
            "received_at": _STAMP,
        },
    },
}
_JSON: Final[dict[str, Any]] = {
    "format": "json",
    "id": ["seq"],
    "time": "ts",
    "time_unit": "ms",
    "has": ["$.seq"],
}
MAPS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "chirpstack": [
        {"value": "object.t", "where": {"deviceInfo.applicationName": ["ward", "yard"]}},
        {"value": "object.gps.alt", "reset": "30d", "weight": "object.n", "scale": 0.1},
        {"value": "rssi", "each": "rxInfo", "id": ["$lorawan", "gatewayId"], "missing": [-90, ""]},
    ],
    "json": [
        {**_JSON, "value": "w", "weight": "n", "decimal": ",", "thousands": "."},
        {
            **_JSON,
            "value": "v",
            "each": "rows",
            "id": ["$.seq"],
            "time": "$.ts",
            "field": "",
            "where": {"@.k": ["a", 1]},
            "texts": {"x": 1, "": None},
        },
        {
            **_JSON,
            "value": "text.x[1]",
            "has": ["$.seq", "text.x"],
            "time": "at",
            "time_unit": None,
            "time_zone": "Europe/Berlin",
        },
        {**_JSON, "value": "@", "each": "named", "id": ["@key"], "time": "$.ts"},
        {**_JSON, "value": '["pm_2.5"]', "check_units": False},
    ],
    "text": [
        {"id": ["topic[1]"], "time": "arrival", "where": {"$": ["21.5", "ON", "1,5", "9" * 500]}},
        {
            "id": ["topic[1]"],
            "time": "arrival",
            "texts": {"ON": 1},
            "decimal": ",",
            "where": {"$": ["7", "ON", "1,5", "-1e3", ""]},
        },
    ],
    "tts": [
        {"value": "uplink_message.decoded_payload.t"},
        {"value": "rssi", "each": "uplink_message.rx_metadata", "id": ["$lorawan", "rssi"]},
    ],
    "influx": [
        {"measurement": "m", "value": "f", "drop_tags": ["host"], "weight": "n"},
        {"measurement": "m", "value": "g", "where": {"a b": "1"}, "missing": [-1.0], "scale": 0.1},
        {"measurement": "m", "value": "f", "id_tags": ["t"], "id_fields": ["seq"], "dedup": "10s"},
        {"measurement": "w,x", "value": "f"},
    ],
    "otlp": [
        {"metric": "m", "where": {"a": "1"}, "drop_attributes": ["host"]},
        {"metric": "m", "resource_keys": ["r"], "dedup": "10s", "scale": 0.5},
    ],
    "prometheus": [
        {"metric": "m", "where": {"a": "1"}, "drop_labels": ["replica"]},
        {"metric": "m", "dedup": "10s", "scale": 0.5},
    ],
}
FORMATS: Final = tuple(MAPS)
_LINE_PARTS: Final = (
    b"m", b"w\\,x", b",host=h", b",a\\ b=1", b",t=\xc3\xa9", b" ", b"f=1.5", b"f=2i", b"g=-1",
    b"n=3i", b"seq=7", b'seq="a b"', b"f=t", b",", b"=", b"\n", b"\r\n", b"#", b'"', b"\\", b"\\\\",
    b"1", b"1700000000000000000", b"-1", b"9" * 19, b"9" * 40, b"\xff", b"\0", b"1e999", b"0x1",
    b"nan", b"a" * 5000,
)  # fmt: skip
# A series with a sample of 2.0, at 1.7e12 ms.
_SAMPLES: Final = bytes.fromhex(
    "0a290a0d0a085f5f6e616d655f5f12016d0a060a016112013112100900000000000000401080d095ffbc31"
)
# The same in version 2.
_SYMBOLS: Final = bytes.fromhex("220022085f5f6e616d655f5f22016d220161220131")
_REFERRED: Final = bytes.fromhex("2a180a040102030412100900000000000000401080d095ffbc31")
_SAMPLE_PARTS: Final = (b"\x0a", b"\x12", b"\x22\x00", b"\xff", b"\x80", b"m", b"\x00")
_LINE: Final = b"m,host=h,a\\ b=1,t=a f=3,g=20i,n=3i,seq=7 1700000000000000000"
_HOSTILE: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 1.5, 1e308, -0.0, float("nan"), float("inf"), 1 << 53, (1 << 53) + 1,
    1 << 63, -(1 << 63), 1 << 64, 10**400, "", "x", "\0", "\ud800", "a" * 70_000, "9" * 5000,
    "9999-12-31T23:59:59.999999999Z", "0001-01-01T00:00:00+14:00", "2026-13-01T00:00:00Z", [], {},
    [[]], {"": {}}, [1] * 1001,
)  # fmt: skip
_TOKENS: Final = (b"{", b"}", b"[", b"]", b",", b'"', b":", b"\\u", b"\xff", b"1e999", b"NaN")


def changed(draw: random.Random, format: str) -> bytes:
    """A sound message of a format, changed in some places."""
    if format == "influx":
        return _changed_lines(draw)
    if format == "prometheus":
        return _changed_samples(draw)
    if format == "text":
        return _changed_text(draw)
    document = deepcopy(SOUND[format])
    for _ in range(draw.randint(0, 3)):
        _change(draw, document)
    text = json.dumps(document).encode()
    if format == "otlp" and draw.random() < 0.7:  # in its other encoding, where it has one
        text = in_protobuf(text) or text
    body = bytearray(text)
    for _ in range(draw.choice((0, 0, 0, 1, 1, 2, 8))):
        damage(draw, body, [bytes(body)], _TOKENS)
    if draw.random() < 0.001:
        return draw.choice((b"[", b'{"a":', b'"', b"9")) * draw.randrange(200_000)
    return bytes(body)


def _changed_text(draw: random.Random) -> bytes:
    """A payload that is one value, or nearly one."""
    body = bytearray(
        draw.choice((b"21.5", b"ON", b"1,5", b"", b"-1e3", b"\xef\xbb\xbf7", b"9" * 500))
    )
    for _ in range(draw.choice((0, 0, 1, 2, 8))):
        damage(draw, body, [b"21.5"], _TOKENS)
    return bytes(body)


def _changed_lines(draw: random.Random) -> bytes:
    """Lines, some of them sound."""
    if draw.random() < 0.001:
        return draw.choice(_LINE_PARTS)[:8] * draw.randrange(100_000)
    lines = []
    for _ in range(draw.randint(1, 4)):
        line = bytearray(_LINE)
        for _ in range(draw.choice((0, 0, 1, 2))):
            damage(draw, line, [_LINE], _LINE_PARTS)
        if draw.random() < 0.2:
            line[:] = b"".join(draw.choices(_LINE_PARTS, k=draw.randrange(12)))
        lines.append(bytes(line))
    return b"\n".join(lines)


def _changed_samples(draw: random.Random) -> bytes:
    """A remote write, of version 1 or, told by how it begins, of version 2."""
    many = draw.randint(1, 3)
    body = bytearray(draw.choice((_SAMPLES * many, _SYMBOLS + _REFERRED * many)))
    for _ in range(draw.choice((0, 0, 1, 2, 8))):
        damage(draw, body, [_SAMPLES], _SAMPLE_PARTS)
    if draw.random() < 0.001:
        return draw.choice((b"\x0a\x00", b"\x08\x01", b"\x0a\x02\x0a\x00")) * draw.randrange(50_000)
    return bytes(body)


def _change(draw: random.Random, document: dict[str, Any]) -> None:
    """Replace a value of a document, take it away, or put it elsewhere."""
    holders = list(_holders(document))
    holder, key = draw.choice(holders)
    way = draw.random()
    if way < 0.15:
        del holder[key]
    elif way < 0.3:
        other, at = draw.choice(holders)
        holder[key] = deepcopy(other[at])
    else:
        holder[key] = deepcopy(draw.choice(_HOSTILE))
    if not document:
        document["time"] = None


def _holders(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a document: what holds it, and under which name or number."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list) and len(value[key]) < 100:
            yield from _holders(value[key])


_FORMS: Final = [
    Form(
        recipe_of(SketchParams(max_weight=10, id_bits=40, time_unit="ms", value_type=kind)),
        "s",
        2_000_000_000_000,
        10_000,
    )
    for kind in ("float64", "int64")
]
_PREPARED: Final[Mapping[str, Any]] = {
    format: Mappings.model_validate({"map": [{"format": format} | each for each in maps]}).map
    for format, maps in MAPS.items()
}


def outcome(body: bytes, format: str) -> str:
    """What became of a message: a word. Every row is taken or refused.

    Raises:
        Exception: whatever must not be raised.
    """
    if format in ("influx", "otlp", "prometheus"):
        try:
            points = _points(body, format, _PREPARED[format])
        except UnreadableError:
            return "refused"
        parsed, readings = points.told, len(points)
    else:
        points = None
        parsed = parse_message(Message(body, "a/event/up", 1), format, _PREPARED[format])
        readings = len(parsed.readings)
    refused = 0
    for form in _FORMS:
        given = (
            to_columns(parsed.readings, form) if points is None else points_to_columns(points, form)
        )
        batch = check(given, form)
        assert len(batch.columns.ids) + len(batch.refusals) == readings
        refused += len(batch.refusals)
    if parsed.refusals or refused:
        return "partly refused" if readings else "refused"
    return "taken" if readings else "skipped"


def _points(body: bytes, format: str, maps: Any) -> Points:
    if format == "influx":
        return line_protocol.parse(body, maps)
    if format == "prometheus":
        version = 2 if body.startswith(_SYMBOLS[:2]) else 1
        return remote_write.parse(body, maps, version=version, most=10_000)
    as_json = body.lstrip()[:1] in (b"{", b"[", b'"', b"9")
    return otlp.parse(body, maps, as_json=as_json, max_weight=10, most=10_000)


_KINDS: Final[Mapping[str, Kind]] = {
    **{
        each: Kind(partial(changed, format=each), partial(outcome, format=each)) for each in FORMATS
    },
    **{f"series-{each}": series_kind(each, changed, _points) for each in SERIES},
    **{f"columns-{each}": columns_kind(each, changed, _points) for each in FORMATS},
    **KINDS,
}
"""Every kind of body, by name."""


def in_protobuf(text: bytes) -> bytes | None:
    """An export of metrics as JSON has it in protobuf; None: it is none."""
    from google.protobuf import json_format
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

    request = metrics_service_pb2.ExportMetricsServiceRequest()
    try:
        json_format.Parse(text, request, ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError):
        return None
    return bytes(request.SerializeToString())


class Cost(NamedTuple):
    """What a body took to be read and checked."""

    seconds: float  # of a processor
    number: int
    size: int


def peak_bytes(body: bytes, kind: str) -> int:
    """Most memory that a body takes, in addition to its own bytes."""
    tracemalloc.start()
    try:
        with suppress(Exception):
            _KINDS[kind].outcome(body)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _body(seed: int, kind: str, number: int) -> bytes:
    return _KINDS[kind].changed(random.Random(f"{seed} {kind} {number}"))


def study(kind: str, messages: int, seed: int) -> tuple[Counter[str], list[Cost], list[str]]:
    """Outcomes of so many bodies, the costliest, and what was raised."""
    outcomes: Counter[str] = Counter()
    worst: list[Cost] = []
    faults: list[str] = []
    read = _KINDS[kind].outcome
    read(_body(seed, kind, 0))  # whatever is loaded late
    for number in range(messages):
        body = _body(seed, kind, number)
        begin = time.process_time()
        try:
            outcomes[read(body)] += 1
        except Exception as fault:  # which is what is looked for
            faults.append(f"{kind} {number} of seed {seed}: {fault!r:.200}")
        cost = Cost(time.process_time() - begin, number, len(body))
        if len(worst) < _WORST:
            heapq.heappush(worst, cost)
        else:
            heapq.heappushpop(worst, cost)
    return outcomes, sorted(worst, reverse=True), faults


def main(arguments: list[str]) -> int:
    """Run the study; the status."""
    options = argparse.ArgumentParser(prog="quality.messages", description=__doc__)
    options.add_argument("--messages", type=int, default=100_000, help="of each format")
    options.add_argument("--formats", nargs="+", choices=_KINDS, default=list(_KINDS))
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seconds", type=float, default=1.0, help="of a processor, for a body")
    options.add_argument("--mebibytes", type=float, default=64.0, help="most memory of a body")
    chosen = options.parse_args(arguments)
    faults: list[str] = []
    for format in chosen.formats:
        outcomes, worst, raised = study(format, chosen.messages, chosen.seed)
        faults += raised
        print(f"{format}: {dict(outcomes)}; the {_WORST} that take longest:")
        for seconds, number, size in worst:
            peak = peak_bytes(_body(chosen.seed, format, number), format)
            told = f"{number}, {size} bytes: {seconds * 1e3:.1f} ms, {peak / 2**20:.2f} MiB"
            print(f"  {told}")
            if seconds > chosen.seconds or peak > chosen.mebibytes * 2**20:
                faults.append(f"{format} {told}")
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
