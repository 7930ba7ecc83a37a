"""Bodies of requests that no client wrote, beside the messages of :mod:`quality.messages`.

Observations as JSON, NDJSON and Arrow, time series for a stream of the family ``series``, every
format in a stream with columns, and queries with filters, columns, weights and groups. Each kind
changes sound bodies at random, and reads the result as the server does.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from api.errors import ServiceError
from api.ingest.building import READERS
from decaysketch import DecaySketch, SketchParams
from decaysketch.core.column_types import read_column_types
from decaysketch.errors import DecaySketchError
from decaysketch.families import recipe_from_dict, recipe_of
from decaysketch.ingest.columns import Batch, Form, check, points_to_columns, to_columns
from decaysketch.ingest.documents import DocumentMap, Message
from decaysketch.ingest.formats import Mappings, check_suits, parse_message
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import UnreadableError, finished
from decaysketch.query.query_syntax import query_of
from quality.damage import damage

__all__ = ["KINDS", "Kind"]

_LATEST, _ROWS, _NOW = 2_000_000_000_000, 10_000, 1_700_000_000
_ROW: Final = [{"value": i % 7, "weight": 1 + i % 9, "time": 100 + i, "id": i} for i in range(9)]
_KEYED: Final = [row | {"id": ["device", row["id"], "x"], "value": 0.5} for row in _ROW]
_NAMED: Final = [row | {"time": "2026-01-31T12:00:00Z", "value": "-1e3"} for row in _ROW]
_TOKENS: Final = (b"{", b"}", b"[", b"]", b",", b'"', b"\\ud800", b"\xff", b"1e999", b"NaN",
                  b"9" * 40, b"\n", b'"id":[]', b'"time":"2026-02-30T00:00:00+24:00"')  # fmt: skip


class Kind(NamedTuple):
    """A kind of body.

    Attributes:
        changed: draws a body.
        outcome: reads it, and returns a word. It raises nothing but faults of the reader.
    """

    changed: Callable[[random.Random], bytes]
    outcome: Callable[[bytes], str]


def _damaged(
    draw: random.Random, body: bytes, others: list[bytes], tokens: tuple[bytes, ...]
) -> bytes:
    changed = bytearray(body)
    for _ in range(draw.choice((0, 0, 1, 1, 2, 8))):
        damage(draw, changed, others, tokens)
    return bytes(changed)


# ------------------------------------------------------------------------------------ observations


def _rows(draw: random.Random, *, lines: bool) -> bytes:
    rows = draw.choice((_ROW, _KEYED, _NAMED))[: draw.randint(1, 9)]
    if lines:
        body = b"\n".join(json.dumps(row).encode() for row in rows)
    else:
        body = json.dumps({"observations": rows}).encode()
    if draw.random() < 0.001:
        return body + draw.choice((b"\n[", b'\n{"id":[', b"\n{}", b"\n9")) * draw.randrange(50_000)
    return _damaged(draw, body, [body], _TOKENS)


@cache
def _tables() -> list[bytes]:
    found = []
    for rows in (_ROW, _KEYED, _NAMED):
        plain = [row | {"id": str(row["id"])} for row in rows] if rows is _KEYED else rows
        table = pa.Table.from_pylist(plain)
        if rows is _NAMED:
            table = table.set_column(0, "value", table["value"].dictionary_encode())
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
        found.append(sink.getvalue().to_pybytes())
    return found


def _arrow(draw: random.Random) -> bytes:
    return _damaged(draw, draw.choice(_tables()), _tables(), ())


def _form(kind: Literal["float64", "int64", "label"]) -> Form:
    params = SketchParams(max_weight=10, id_bits=40, time_unit="ms", value_type=kind)
    return Form(recipe_of(params), "s", _LATEST, _ROWS)


_FORMS: Final = [_form("float64"), _form("int64"), _form("label")]


def _read(media_type: str, body: bytes) -> str:
    accepted = refused = 0
    for form in _FORMS:
        try:
            found = READERS[media_type](body, form)
            raw = found if isinstance(found, Batch) else finished(found)
        except (ServiceError, DecaySketchError):
            continue
        batch = check(raw, form)
        assert len(batch.columns.ids) + len(batch.refusals) == batch.rows
        accepted += len(batch.columns.ids)
        refused += len(batch.refusals)
    return _word(accepted, refused)


def _word(accepted: int, refused: int) -> str:
    if not accepted:
        return "refused"
    return "partly refused" if refused else "taken"


# ------------------------------------------------------------------------------------- time series


_COUNTERS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "influx": [
        {"measurement": "m", "value": "f", "kind": "counter", "drop_tags": ["host"]},
        {"measurement": "w,x", "value": "f", "kind": "gauge"},
    ],
    "otlp": [{"metric": "m", "kind": "counter", "resource_keys": ["r"]}],
    "prometheus": [
        {"metric": "m", "kind": "counter", "drop_labels": ["replica"]},
        {"metric": "n", "kind": "gauge"},
    ],
}


@cache
def _series(format: str) -> tuple[Any, Form]:
    maps = [{"format": format} | each for each in _COUNTERS[format]]
    params = {"time_unit": "ms", "capacity": 100}
    recipe = recipe_from_dict({"family": "series", "params": params})
    return Mappings.model_validate({"map": maps}).map, Form(recipe, "s", _LATEST, _ROWS)


def _read_series(format: str, parse: Callable[[bytes, str, Any], Points], body: bytes) -> str:
    maps, form = _series(format)
    try:
        points = parse(body, format, maps)
    except UnreadableError:
        return "refused"
    batch = check(points_to_columns(points, form), form)
    assert len(batch.columns.ids) + len(batch.refusals) == len(points)
    return _word(len(batch.columns.ids), len(batch.refusals) + points.told.refusals)


def series_kind(
    format: str,
    changed: Callable[[random.Random, str], bytes],
    parse: Callable[[bytes, str, Any], Points],
) -> Kind:
    """Return the kind of a format of time series, in a stream that stores series."""
    return Kind(lambda draw: changed(draw, format), partial(_read_series, format, parse))


# ----------------------------------------------------------------------------------------- columns


_COLUMNS: Final = {"t": "float64", "f": "float64", "n": "int64", "a": "text", "open": "bool",
                   "value": "float64", "metric": "text", "gps.alt": "float64"}  # fmt: skip
_JSON: Final[dict[str, Any]] = {"id": ["seq"], "time": "ts", "time_unit": "ms"}
_FILLING: Final[Mapping[str, list[dict[str, Any]]]] = {
    "influx": [
        {"columns": "*", "drop_tags": ["host"]},
        {"measurement": "w,x", "columns": {"t": "f", "a": "measurement", "n": "g"}, "dedup": "10s"},
    ],
    "otlp": [{"columns": "*", "drop_attributes": ["host"], "resource_keys": ["r"]}],
    "prometheus": [{"columns": "*", "drop_labels": ["replica"], "missing": [2.0]}],
    "chirpstack": [
        {"columns": {"*": "object.*", "a": "deviceInfo.applicationName"}, "reset": "30d"},
        {"columns": {"n": "rssi", "a": "gatewayId"}, "each": "rxInfo",
         "id": ["$lorawan", "gatewayId"]},
    ],
    "tts": [{"columns": "uplink_message.decoded_payload.*", "missing": ["", 7]}],
    "json": [
        {**_JSON, "columns": "*", "texts": {"ON": 1}, "decimal": ",", "thousands": "."},
        {**_JSON, "columns": {"f": "@.v", "a": "@.k", "*": "named.*"}, "each": "rows",
         "id": ["$.seq", "@key"], "time": "$.ts"},
    ],
    "text": [{"columns": {"f": "$", "a": "topic[1]"}, "id": ["topic"], "time": "arrival"}],
}  # fmt: skip
SERIES: Final = ("influx", "otlp", "prometheus")


@cache
def _filling(format: str) -> tuple[Mappings, Form]:
    maps = [{"format": format} | each for each in _FILLING[format]]
    types = read_column_types(_COLUMNS)
    params = SketchParams(max_weight=10, id_bits=40, time_unit="ms", capacity=100, columns=types)
    mappings, recipe = Mappings.model_validate({"map": maps}), recipe_of(params)
    check_suits(mappings, recipe)
    return mappings, Form(recipe, "s", _LATEST, _ROWS)


def _read_columns(format: str, parse: Callable[[bytes, str, Any], Points], body: bytes) -> str:
    mappings, form = _filling(format)
    refused = 0
    if format in SERIES:
        try:
            points = parse(body, format, mappings.indexes(form.columns)[format])
        except UnreadableError:
            return "refused"
        refused = points.told.refusals
        raw: Batch = points_to_columns(points, form)
    else:
        maps = [each for each in mappings.map if isinstance(each, DocumentMap)]
        parsed = parse_message(Message(body, "a/event/up", 1), format, maps)
        raw, refused = to_columns(parsed.readings, form), parsed.refusals
    batch = check(raw, form)
    assert len(batch.columns.ids) + len(batch.refusals) == raw.rows
    assert len(raw.dropped) <= _MOST_DROPPED
    DecaySketch(form.params).update(*batch.columns)
    return _word(len(batch.columns.ids), len(batch.refusals) + refused)


_MOST_DROPPED = 50  # names and reasons of a body


def columns_kind(
    format: str,
    changed: Callable[[random.Random, str], bytes],
    parse: Callable[[bytes, str, Any], Points],
) -> Kind:
    """Return the kind of a format in a stream with columns."""
    return Kind(lambda draw: changed(draw, format), partial(_read_columns, format, parse))


# ----------------------------------------------------------------------------------------- queries


_QUERIES: Final = (
    "mean(v * 2) by hour(time) where v > 3 and w < 5 weight exp(-v)",
    "count by v // 4, minute(time) limit 10 order key",
    "quantile(0.5) where not (v == 1 or v in (2, 3)) and abs(v) <= 4",
    "total(if(v > 2, v, -v)) where time % 60 < 30 weight 1 + w",
)
_WORDS: Final = tuple(
    word.encode()
    for word in (
        " where ", " by ", " weight ", " and ", " or ", " not ", " in ", "(", ")", "v", "w", "time",
        "**", "//", "%", "*", "+", "-", "<", "==", ",", "exp(", "log(", "hour(", "floor(", "if(",
        "1e308", "0", "9" * 30, "'", "\\", "\u00e9", "None", "__class__", ".", "[", "1/0", "v**v",
    )
)  # fmt: skip


def _query(draw: random.Random) -> bytes:
    body = draw.choice(_QUERIES).encode()
    if draw.random() < 0.001:
        return b"count where " + draw.choice((b"(", b"not ", b"-", b"v+", b"2**")) * 5_000
    if draw.random() < 0.2:
        body = b"count where " + b"".join(draw.choices(_WORDS, k=draw.randrange(1, 60)))
    return _damaged(draw, body, [body], _WORDS)


@cache
def _view() -> Any:
    params = SketchParams(max_weight=99, id_bits=40, capacity=2_000, value_type="float64")
    sketch, draw, rows = DecaySketch(params), np.random.default_rng(1), 20_000
    times = _NOW - draw.integers(0, 5_000, rows)
    sketch.update(draw.normal(5, 3, rows), draw.integers(1, 100, rows), times, np.arange(rows))
    return sketch.at("exponential(half_life=10min)", _NOW)


def _ask(body: bytes) -> str:
    try:
        text = body.decode()
        question, arguments, modifiers = query_of(text)
        _view().modified(modifiers).ask(question, **arguments)
    except (DecaySketchError, UnicodeDecodeError):
        return "refused"
    return "taken"


#: Kinds of bodies by name; :mod:`quality.messages` adds those of time series.
KINDS: Final[dict[str, Kind]] = {
    "rows-json": Kind(partial(_rows, lines=False), partial(_read, "application/json")),
    "rows-ndjson": Kind(partial(_rows, lines=True), partial(_read, "application/x-ndjson")),
    "rows-arrow": Kind(_arrow, partial(_read, "application/vnd.apache.arrow.stream")),
    "queries": Kind(_query, _ask),
}
