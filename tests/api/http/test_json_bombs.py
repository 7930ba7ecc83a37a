"""Short JSON that would become much: weighed, not parsed; and what is parsed holds up nobody."""

from __future__ import annotations

import gzip
import json
import random
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from service import NOW, build, posted, problem
from support.rows import for_each

from api.http import decompression
from api.http.caller import Requires
from api.http.json_body import MOST_PARTS, JsonRoute, TooManyPartsError, parse
from api.ingest import json_rows
from api.ingest.json_weight import parts
from decaysketch import SketchParams
from decaysketch.families import recipe_of
from decaysketch.ingest.columns import Form

MIB = 1 << 20
JSON_ROUTES = [
    ("POST", "/v1/query"),
    ("POST", "/v1/streams/s/query"),
    ("POST", "/v1/decays/curve"),
    ("POST", "/v1/keys"),
    ("POST", "/v1/keys/zzzzzzzz/rotate"),
    ("PUT", "/v1/streams/s"),
    ("PUT", "/v1/streams/s/monitors/m"),
    ("PUT", "/v1/streams/s/questions/q"),
    ("POST", "/v1/streams/s/reports?source=a"),
    ("PUT", "/v1/streams/s/functions/f"),
    ("POST", "/v1/streams/s/functions/f/exchange?source=a"),
    ("PUT", "/v1/streams/s/topk/t"),
    ("POST", "/v1/streams/s/topk/t/posts?source=a"),
]
MEDIA = ["application/json", "application/problem+json", "application/octet-stream",
         "application/x-ndjson"]  # fmt: skip


def filled(unit: bytes, size: int, head: bytes = b"[", tail: bytes = b"0]") -> bytes:
    """An array of so many bytes, of the same unit again and again."""
    return head + unit * ((size - len(head) - len(tail)) // len(unit)) + tail


@cache
def compressed() -> bytes:
    """Few KB that become 4 MiB."""
    draw = random.Random(1)
    units = b"".join(b"{}," * 900 + b"%d," % draw.getrandbits(60) for _ in range(1545))
    plain = b'{"queries":[' + units + b"0]}"
    body = gzip.compress(plain)
    assert len(plain) > 3.9 * MIB
    # Not what is told from a bomb by that.
    assert decompression.RATIO > len(plain) / len(body) > 100
    return body


@for_each("method, path, media_type", [(*to, kind) for to in JSON_ROUTES for kind in MEDIA])
def test_a_few_kb_of_gzip_are_refused_before_they_are_4_mib(
    client: TestClient, method: str, path: str, media_type: str
) -> None:
    """Whatever they say to be."""
    body = compressed()
    headers = {"content-type": media_type, "content-encoding": "gzip"}
    tracemalloc.start()
    try:
        answer = client.request(method, path, content=body, headers=headers)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if answer.status_code != 415:  # which is told before any of it is read
        assert "longer than 262144 bytes" in problem(answer, 413)["detail"]
    assert answer.status_code == 413 or media_type != "application/json"
    assert peak < 4 * MIB


@pytest.fixture
def lenient(start: Callable[..., TestClient]) -> TestClient:
    """Whose operator lets bodies be long."""
    return start(max_query_bytes=4 * MIB)


UNITS = [b"{},", b"[],", b"[[[]]],", b'{"a":[]},', b"1,", b'"",']


@for_each("method, path, unit", [(*to, unit) for to in JSON_ROUTES for unit in UNITS])
def test_a_body_of_very_many_parts_is_not_parsed(
    lenient: TestClient, method: str, path: str, unit: bytes
) -> None:
    body = filled(unit, 4 * MIB)
    tracemalloc.start()
    try:
        answer = lenient.request(
            method, path, content=body, headers={"content-type": "application/json"}
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "brackets and commas; expected at most 100000" in problem(answer, 413)["detail"]
    assert peak < 8 * 4 * MIB  # the body, a few times


QUERY: dict[str, Any] = {
    "aggregate": "selectivity", "at_least": -1.2345678901234567, "at_most": 12345678.901234567,
    "decay": {"kind": "polynomial", "exponent": 1.5, "scale": 60000000},
    "now": NOW, "confidence": 0.95, "combine": "average",
}  # fmt: skip


def test_a_thousand_queries_of_every_field_fit(stream: TestClient) -> None:
    posted(
        stream.post("/v1/streams/s/sketches?source=a", content=build(1).to_bytes(),
                    headers={"content-type": "application/octet-stream"})
    )  # fmt: skip
    queries = [QUERY | {"at_least": -1.0 - k / 1000} for k in range(1000)]
    body = {"queries": queries}
    assert len(json.dumps(body)) > 200_000
    answer = stream.post("/v1/streams/s/query", json=body)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["answers"]) == 1000


@pytest.mark.parametrize("path", ["/v1/query", "/v1/streams/s/query"])
def test_a_body_is_parsed_once_and_not_on_the_event_loop(
    stream: TestClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    parsed_on: list[int] = []
    loop_thread: list[int] = []
    loads = json.loads

    def watched(text: Any, *arguments: Any, **options: Any) -> Any:
        if len(text) > 20_000:
            parsed_on.append(threading.get_ident())
        return loads(text, *arguments, **options)

    async def look() -> int:
        loop_thread.append(threading.get_ident())
        return 0

    stream.app.get("/look")(look)  # type: ignore[attr-defined]
    assert stream.get("/look").status_code == 200
    monkeypatch.setattr(json, "loads", watched)
    fields = {"queries": [QUERY | {"at_least": -k} for k in range(1, 200)]}
    content = json.dumps(fields | ({"streams": ["s"]} if path == "/v1/query" else {}))
    answer = stream.post(path, content=content, headers={"content-type": "application/json"})
    monkeypatch.undo()
    assert answer.status_code == 200, answer.text
    assert len(parsed_on) == 1
    assert parsed_on != loop_thread


def test_every_route_that_takes_json_weighs_it(client: TestClient) -> None:
    found = set()
    for route in iter_route_contexts(client.app.routes):  # type: ignore[attr-defined]
        dependant = getattr(route, "dependant", None)
        if dependant is None:
            continue
        described = getattr(route, "openapi_extra", None) or {}
        content = described.get("requestBody", {}).get("content", {}).keys()
        takes_json = bool(dependant.body_params) or content == {"application/json"}
        if takes_json or any(guard.body_streams for guard in _guards(dependant)):
            assert isinstance(getattr(route, "original_route", route), JsonRoute), route.path
            found.add(route.path)
    assert len(found) >= len(JSON_ROUTES)


def _guards(dependant: Any) -> Iterator[Requires]:
    if isinstance(dependant.call, Requires):
        yield dependant.call
    for each in dependant.dependencies:
        yield from _guards(each)


UNREADABLE = [
    (b"[" * 1500 + b"]" * 1500, "too deeply nested, or a number is too long"),
    (b'{"a":' * 1500 + b"1" + b"}" * 1500, "too deeply nested, or a number is too long"),
    (b"9" * 5000, "too deeply nested, or a number is too long"),
    (b"\xff", "not UTF-8"),
    ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    (b'{"a"', "Expecting ':' delimiter"),
]


@for_each("method, path, text, reason", [(*to, *row) for to in JSON_ROUTES for row in UNREADABLE])
def test_what_cannot_be_parsed_is_told_alike_everywhere(
    client: TestClient, method: str, path: str, text: bytes, reason: str
) -> None:
    headers = {"content-type": "application/json"}
    answer = client.request(method, path, content=text, headers=headers)
    (fault,) = problem(answer, 422, "invalid-request")["errors"]
    assert (fault["field"], reason in fault["reason"]) == ("body", True)


# ---------------------------------------------------------------------------------------- weighing

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab,[{"\\\n', max_size=8),
    lambda children: st.lists(children) | st.dictionaries(st.text('a,["\\', max_size=4), children),
    max_leaves=20,
)


def weight(value: Any) -> int:
    """Brackets and commas of a value's JSON."""
    if isinstance(value, (list, dict)):
        children = list(value.values()) if isinstance(value, dict) else value
        return 1 + max(0, len(children) - 1) + sum(map(weight, children))
    return 0


@given(value=values, ascii_only=st.booleans())
def test_parts_are_those_outside_of_texts(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parts(text, 0) == weight(value)
    assert parts(text, len(text)) >= weight(value)
    assert parse(text) == value
    if weight(value):
        with pytest.raises(TooManyPartsError):
            parse(text, weight(value) - 1)
    assert parse(text, weight(value)) == value


@given(text=st.binary(max_size=200))
def test_whatever_the_bytes_are_no_value_is_missed(text: bytes) -> None:
    try:
        value = parse(text)
    except json.JSONDecodeError:
        return
    assert parts(text, 0) >= weight(value)


@pytest.mark.parametrize("unit", [b'\\"', b'"', b'"\\', b"\\", b'","', b'\\\\"'])
def test_texts_without_an_end_are_weighed_in_one_pass(unit: bytes) -> None:
    """Twice over, and a quadratic time would be hours."""
    body = b'["' + unit * (8 * MIB // len(unit)) + b"["
    assert parts(body, 0) <= len(body)


def test_texts_full_of_commas_count_nothing() -> None:
    text = json.dumps({"text": "," * (2 * MOST_PARTS)}).encode()
    assert parse(text) == json.loads(text)


# ---------------------------------------------------------------------------------------- lines

PARAMS = SketchParams(max_weight=99, id_bits=40, capacity=200)
FORM = Form(recipe_of(PARAMS), "gateway-3", None, 100_000)


@pytest.mark.parametrize(
    "line",
    [b"[" * 600, b"[" * 300 + b"]" * 300, b'{"a":' * 100, b"[" + b"{}," * 200 + b"{}]",
     b'{"time":1,"id":[' + b"1," * 300 + b"1]}"],
    ids=["open", "closed", "objects", "wide", "a long id"],
)  # fmt: skip
def test_lines_that_are_nested_or_wide_are_not_parsed(
    monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    def parser(_text: str) -> Any:
        raise AssertionError("it is parsed")

    monkeypatch.setattr(json_rows, "parse", parser)
    raw = json_rows.read_lines((line + b"\n") * 3, FORM)
    assert (raw.rows, len(raw.refusals)) == (3, 3)
    assert "brackets and commas; expected at most 64" in raw.refusals[0].reason


@pytest.mark.parametrize(
    "line",
    [b"[" * 300 + b"]" * 300, b"[" * 30 + b"]" * 30, b'["ab","cd",["ef",{}],[[]],{},{}]',
     b'{"time":1,"id":1,"more":[[],[],{},{}]}'],
    ids=["deep", "less deep", "array", "unknown field"],
)  # fmt: skip
def test_refused_lines_take_little_more_memory_than_they_are_long(line: bytes) -> None:
    body = (line + b"\n") * (MIB // 4 // len(line))
    tracemalloc.start()
    try:
        raw = json_rows.read_lines(body, FORM)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(raw.refusals) == raw.rows
    assert peak < 14 * len(body)


def test_an_observation_of_every_field_is_far_from_the_bound() -> None:
    line = json.dumps({"value": 1.5, "weight": 3, "time": 9, "id": ["[{,", "a", 7, 'x"[,']})
    raw = json_rows.read_lines(line.encode(), FORM)
    assert (len(raw.positions), raw.refusals) == (1, [])
    assert parts(line.encode(), 0) * 4 < json_rows.MAX_LINE_PARTS
