"""Queries: answers are the library's own; what cannot be asked or answered says so."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from service import LOCAL, NOW, OCTETS, PARAMS, build, problem

import decaysketch
from api.app import create_app
from api.settings import Settings
from decaysketch import DecaySketch, Estimate, SketchParams, decay

DECAYS: list[dict[str, Any]] = [
    {"kind": "none"},
    {"kind": "window", "width": 600},
    {"kind": "window", "width": 600.5},
    {"kind": "exponential", "half_life": 300},
    {"kind": "exponential", "rate": 0.01},
    {"kind": "polynomial", "exponent": 1.5},
    {"kind": "polynomial", "exponent": 2, "scale": 120},
    {"kind": "piecewise", "steps": [[60, 1], [600, 0.25]]},
    {"kind": "piecewise", "steps": [[60, 1.5], [600, 0.25]], "beyond": 0.1},
    {"kind": "expression", "text": "1/(1+log(1+x/60))"},
    {"kind": "expression", "text": "w * where(x <= 600, 1 - x/1200, 0)"},
]
WINDOW: dict[str, Any] = {"kind": "window", "width": 600}

Ask = Callable[..., Response]


@pytest.fixture
def sketches(stream: TestClient) -> dict[str, DecaySketch]:
    """Sketches of the three sources that were posted."""
    built = {name: build(seed, 300, first_id=200 * seed) for seed, name in enumerate("abc")}
    for name, sketch in built.items():
        stream.post(
            "/v1/streams/s/sketches",
            params={"source": name},
            content=sketch.to_bytes(),
            headers=OCTETS,
        )
    return built


@pytest.fixture
def merged(sketches: dict[str, DecaySketch]) -> DecaySketch:
    return decaysketch.merge(sketches.values())


@pytest.fixture
def ask(stream: TestClient) -> Ask:
    def ask_them(*queries: Any, **fields: Any) -> Response:
        return stream.post("/v1/streams/s/query", json={"queries": queries, **fields})

    return ask_them


def same(given: dict[str, Any], expected: Estimate) -> bool:
    return given == expected.to_dict()


@pytest.mark.parametrize("fields", DECAYS, ids=lambda fields: "-".join(map(str, fields.values())))
def test_every_decay(ask: Ask, merged: DecaySketch, fields: dict[str, Any]) -> None:
    chosen = decay.from_dict(fields)
    response = ask(
        *(
            {"aggregate": name, "decay": fields, "now": now}
            for now in (NOW, NOW - 1_000)
            for name in ("sum", "count", "total", "mean", "variance")
        )
    ).json()
    assert response["stream"] == "s"
    assert response["digest"] == merged.digest()
    expected = [
        (name, now, getattr(merged, name)(chosen, now=now))
        for now in (NOW, NOW - 1_000)
        for name in ("sum", "count", "total", "mean", "variance")
    ]
    for given, (name, now, estimate) in zip(response["answers"], expected, strict=True):
        assert (given["aggregate"], given["now"]) == (name, now)
        assert same(given["estimate"], estimate)


def test_a_single_quantile_and_the_heaviest_groups(ask: Ask, merged: DecaySketch) -> None:
    common = {"decay": WINDOW, "now": NOW}
    median, groups = ask(
        {"aggregate": "quantile", "q": 0.5, **common},
        {"aggregate": "group_by", "limit": 3, **common},
    ).json()["answers"]
    (quantile,) = median["quantiles"]
    assert quantile["q"] == 0.5
    assert same(quantile["estimate"], merged.median(decay.window(600), now=NOW))
    heaviest = merged.group_by(decay.window(600), now=NOW)
    assert groups["total_groups"] == len(heaviest) > 3
    assert [each["value"] for each in groups["groups"]] == [each.value for each in heaviest[:3]]


def test_integer_values_stay_integers(client: TestClient) -> None:
    params = SketchParams(max_weight=1, value_type="int64", time_unit="frames")
    big, now = 2**53 + 1, 2**61
    sketch = DecaySketch(params)
    sketch.update(np.array([big, big, 5]), 1, np.array([now, now - 1, now - 2]), np.arange(3))
    client.put("/v1/streams/s", json={"params": params.to_dict()})
    client.post(
        "/v1/streams/s/sketches", params={"source": "a"}, content=sketch.to_bytes(), headers=OCTETS
    )
    # As a double this width would be one longer, and take the third observation in.
    query = {"aggregate": "group_by", "decay": {"kind": "window", "width": 1}, "now": now}
    ranks = [
        {"aggregate": "rank", "v": v, "decay": {"kind": "none"}, "now": now}
        for v in (big - 1, big, 5.5, -(10**300), 10**300)
    ]
    answers = client.post("/v1/streams/s/query", json={"queries": [query, *ranks]}).json()[
        "answers"
    ]
    (group,) = answers[0]["groups"]
    assert (group["value"], group["count"]["value"]) == (big, 2)
    shares = [answer["estimate"]["value"] for answer in answers[1:]]
    assert shares == pytest.approx([1 / 3, 1, 1 / 3, 0, 1])


def test_some_sources_only(
    ask: Ask, sketches: dict[str, DecaySketch], merged: DecaySketch, stream: TestClient
) -> None:
    query = {"aggregate": "sum", "decay": WINDOW, "now": NOW}
    for chosen in ("a", "ab", "ca", "abc", "aab"):
        expected = decaysketch.merge([sketches[name] for name in set(chosen)])
        response = ask(query, sources=list(chosen)).json()
        assert response["digest"] == expected.digest()
        assert same(response["answers"][0]["estimate"], expected.sum(decay.window(600), now=NOW))
    late = build(9, first_id=900)
    stream.post(
        "/v1/streams/s/sketches", params={"source": "a"}, content=late.to_bytes(), headers=OCTETS
    )
    assert ask(query, sources=["a"]).json()["digest"] == (sketches["a"] | late).digest()
    content = problem(ask(query, sources=["a", "nope"]), 404, "unknown-source")
    assert [fault["value"] for fault in content["errors"]] == ["nope"]


def test_more_joins_than_are_kept(
    ask: Ask, sketches: dict[str, DecaySketch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.service.streams._JOINS_KEPT", 3)
    query = {"aggregate": "count", "decay": WINDOW, "now": NOW}
    for _ in range(2):
        for chosen in ("a", "b", "c", "ab", "ac", "bc", "abc"):
            expected = decaysketch.merge([sketches[name] for name in chosen])
            assert ask(query, sources=list(chosen)).json()["digest"] == expected.digest()


def test_asking_changes_nothing(ask: Ask, stream: TestClient, merged: DecaySketch) -> None:
    before = stream.get("/v1/streams/s").json()
    for now in (NOW, 0, NOW + 10**9):
        ask(
            *({"aggregate": "mean", "decay": fields, "now": now} for fields in DECAYS),
            {"aggregate": "group_by", "decay": {"kind": "none"}, "now": now},
        )
    assert stream.get("/v1/streams/s").json() == before
    assert stream.get("/v1/streams/s/sketch").content == merged.to_bytes()


def test_an_empty_stream_has_no_mean_and_no_infinity(ask: Ask) -> None:
    response = ask(
        {"aggregate": "count", "decay": WINDOW, "now": NOW},
        {"aggregate": "mean", "decay": WINDOW, "now": NOW},
        {"aggregate": "quantile", "q": 0.5, "decay": WINDOW, "now": NOW},
        {"aggregate": "heavy_hitters", "phi": 0.1, "decay": WINDOW, "now": NOW},
        {"aggregate": "count", "decay": WINDOW, "now": -(2**62)},
    )
    for constant in ("NaN", "Infinity"):
        assert constant not in response.text
    count, mean, median, hitters, long_ago = response.json()["answers"]
    assert count["estimate"]["value"] == long_ago["estimate"]["value"] == 0
    assert count["estimate"]["exact"] is True
    assert mean["estimate"]["value"] is None
    assert median["quantiles"][0]["estimate"]["value"] is None
    assert hitters["heavy_hitters"] == []


def test_what_was_discarded_is_not_answered_with_zero(client: TestClient) -> None:
    # Capacity 1 and a small universe: under some seed the coarsest level overflows as well.
    for seed in range(100):
        params = SketchParams(max_weight=1, id_bits=4, capacity=1, seed=seed)
        sketch = DecaySketch(params)
        sketch.update(np.zeros(16), 1, np.arange(16), np.arange(16))
        oldest = sketch.stats().complete_since[-1]
        if oldest is not None:
            break
    assert oldest is not None
    client.put("/v1/streams/s", json={"params": params.to_dict()})
    client.post(
        "/v1/streams/s/sketches", params={"source": "a"}, content=sketch.to_bytes(), headers=OCTETS
    )
    recent = {"aggregate": "count", "decay": {"kind": "window", "width": 0}, "now": 15}
    everything = {"aggregate": "count", "decay": {"kind": "none"}, "now": 15}
    past = {"aggregate": "mean", "decay": {"kind": "none"}, "now": oldest}
    queries = [recent, everything, recent, everything, past]
    refused = client.post("/v1/streams/s/query", json={"queries": queries})
    content = problem(refused, 422, "unanswerable-query")
    assert [fault["field"] for fault in content["errors"]] == [
        "queries[1]",
        "queries[3]",
        "queries[4]",
    ]
    assert "3 of 5" in content["detail"]
    assert str(oldest) in content["detail"]
    answered = client.post("/v1/streams/s/query", json={"queries": [recent]})
    assert answered.status_code == 200


# ------------------------------------------------------------------------------ malformed requests


def test_a_decay_may_be_a_text_in_place_of_fields(ask: Ask, merged: DecaySketch) -> None:
    chosen = [decay.from_dict(fields) for fields in DECAYS]
    asked = [{"aggregate": "sum", "decay": fields, "now": NOW} for fields in DECAYS]
    first = ask(*asked)
    for spell in (str, lambda each: json.dumps(each.to_dict())):
        spelled = [
            query | {"decay": spell(each)} for query, each in zip(asked, chosen, strict=True)
        ]
        again = ask(*spelled)
        assert again.json() == first.json()
        assert again.headers["etag"] == first.headers["etag"]
    for text, expected in (("window(10min)", 600), ("window(500ms)", 0.5)):
        answer = ask({"aggregate": "sum", "decay": text, "now": NOW}).json()["answers"][0]
        assert same(answer["estimate"], merged.sum(decay.window(expected), now=NOW))


def test_a_decay_is_read_once_and_written_once(
    ask: Ask, merged: DecaySketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def counted(name: str, of: Callable[[decay.Decay], Any]) -> Callable[[decay.Decay], Any]:
        def call(self: decay.Decay) -> Any:
            done.append(name)
            return of(self)

        return call

    for name in ("__post_init__", "__repr__", "to_dict"):
        monkeypatch.setattr(decay.Window, name, counted(name, getattr(decay.Window, name)))
    for chosen in ({"kind": "window", "width": 601}, "window(603)"):
        done.clear()
        assert ask({"aggregate": "sum", "decay": chosen, "now": NOW}).status_code == 200
        assert done == ["__post_init__", "__repr__"]


def test_texts_of_decays_count_as_expressions_where_they_are(
    start: Callable[..., TestClient],
) -> None:
    client = start(max_expressions=2)
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})

    def ask(*texts: Any) -> Response:
        asked = [{"aggregate": "sum", "now": NOW, "decay": text} for text in texts]
        return client.post("/v1/streams/s/query", json={"queries": asked})

    named = [f"window({k}min)" for k in range(5)]
    assert ask(*named, "exp(-x)", 'expression("exp(-x/2)")').status_code == 200
    for third in ('{"kind": "none"}', "exp(-x/3)", {"kind": "expression", "text": "1"}):
        refused = ask(*named, "exp(-x)", 'expression("exp(-x/2)")', third)
        (fault,) = problem(refused, 422, "invalid-request")["errors"]
        assert "3 different expressions" in fault["reason"]


def with_decay(**fields: Any) -> dict[str, Any]:
    return {"aggregate": "sum", "now": 1, "decay": fields}


GOOD: dict[str, Any] = {"aggregate": "sum", "decay": {"kind": "none"}, "now": 1}


@pytest.mark.parametrize(
    ("query", "field", "named"),
    [
        ({}, "aggregate", "missing"),
        ({"aggregate": "mode"}, "aggregate", "'quantile'"),
        ({"aggregate": 7}, "aggregate", "'quantile'"),
        ("sum", "", "valid dictionary"),
        (None, "", "valid dictionary"),
        ({"aggregate": "sum", "now": 1}, "decay", "missing"),
        (GOOD | {"decay": None}, "decay", "missing"),
        (GOOD | {"decay": 5}, "decay", "valid dictionary"),
        (GOOD | {"decay": ""}, "decay", "at least 1"),
        (GOOD | {"decay": "x" * 2001}, "decay", "at most 2000"),
        (GOOD | {"decay": "window(-1)"}, "decay", "width is -1; expected"),
        (GOOD | {"decay": "window(1 parsec)"}, "decay", "'parsec' at character 9; expected"),
        (GOOD | {"decay": "window(1min"}, "decay", "its end at character 11; expected"),
        (GOOD | {"decay": "1 - x"}, "decay", "expected a weight >= 0"),
        (GOOD | {"decay": '{"kind": "halving"}'}, "decay", "kind is 'halving'"),
        (with_decay(), "decay.kind", "missing"),
        (with_decay(kind="gaussian"), "decay.kind", "'polynomial'"),
        (with_decay(kind="window"), "decay.width", "missing"),
        (with_decay(kind="window", width=-1), "decay", "width is -1; expected"),
        (with_decay(kind="window", width="60"), "decay", "width is '60'; expected a length"),
        (with_decay(kind="window", width=True), "decay.width", "finite number"),
        (with_decay(kind="window", width=float("nan")), "decay.width", "finite number"),
        (with_decay(kind="window", width=float("inf")), "decay.width", "finite number"),
        (with_decay(kind="window", width=10**400), "decay.width", "finite number"),
        (with_decay(kind="window", width=1, window=2), "decay.window", "not permitted"),
        (with_decay(kind="exponential"), "decay", "expected one of them"),
        (with_decay(kind="exponential", rate=1, half_life=1), "decay", "expected one of them"),
        (with_decay(kind="exponential", rate=0), "decay", "rate is 0; expected"),
        (with_decay(kind="exponential", half_life=-3), "decay", "half_life is -3"),
        (with_decay(kind="polynomial", scale=3), "decay.exponent", "missing"),
        (with_decay(kind="polynomial", exponent=1, scale=0), "decay", "scale is 0"),
        (with_decay(kind="piecewise", steps=[]), "decay.steps", "at least 1"),
        (with_decay(kind="piecewise", steps=[[1]]), "decay.steps[0]", "at least 2"),
        (with_decay(kind="piecewise", steps=[[1, "x"]]), "decay", "steps[0] weight is 'x'"),
        (with_decay(kind="piecewise", steps=[[2, 1], [1, 1]]), "decay", "steps[1] age is 1"),
        (with_decay(kind="piecewise", steps=[[1, 1], [2, 2]]), "decay", "steps[1] weight is 2"),
        (with_decay(kind="piecewise", steps=[[1, 1]], beyond=2), "decay", "beyond is 2"),
        (with_decay(kind="expression"), "decay.text", "missing"),
        (with_decay(kind="expression", text=1), "decay.text", "valid string"),
        (with_decay(kind="expression", text=""), "decay.text", "at least 1"),
        (with_decay(kind="expression", text="1+" * 300), "decay.text", "at most 500"),
        (with_decay(kind="expression", text="x"), "decay", "rises to"),
        (with_decay(kind="expression", text="1 - x"), "decay", "expected a weight >= 0"),
        (with_decay(kind="expression", text="w**2"), "decay", "not found to be w * g(x)"),
        (with_decay(kind="expression", text="9**9**9**9"), "decay", "expected at most 256"),
        (with_decay(kind="expression", text="exit()"), "decay", "'exit' at character 0"),
        (with_decay(kind="expression", text="x.real"), "decay", "'real' at character 2"),
        (with_decay(kind="expression", text="\x00"), "decay", "at character 0"),
        (GOOD | {"now": 1.0}, "now", "valid integer"),
        (GOOD | {"now": "1"}, "now", "is '1'; expected an integer of the stream's unit"),
        (GOOD | {"now": float("nan")}, "now", "valid integer"),
        (GOOD | {"now": 2**62 + 1}, "now", str(2**62)),
        (GOOD | {"now": -(2**62) - 1}, "now", str(2**62)),
        (GOOD | {"now": 10**30}, "now", str(2**62)),
        (GOOD | {"confidence": 0}, "confidence", "greater than 0"),
        (GOOD | {"confidence": 1}, "confidence", "less than 1"),
        (GOOD | {"confidence": float("nan")}, "confidence", "finite number"),
        (GOOD | {"q": 0.5}, "q", "not permitted"),
        (GOOD | {"aggregate": "quantile"}, "q", "missing"),
        (GOOD | {"aggregate": "quantile", "q": 1.5}, "q[0]", "less than or equal to 1"),
        (GOOD | {"aggregate": "quantile", "q": [0.5, -1]}, "q[1]", "greater than or equal to 0"),
        (GOOD | {"aggregate": "quantile", "q": []}, "q", "at least 1"),
        (GOOD | {"aggregate": "quantile", "q": "0.5"}, "q", "valid list"),
        (GOOD | {"aggregate": "quantile", "q": True}, "q[0]", "valid number"),
        (GOOD | {"aggregate": "rank"}, "v", "missing"),
        (GOOD | {"aggregate": "rank", "v": None}, "v", "finite number"),
        (GOOD | {"aggregate": "rank", "v": float("-inf")}, "v", "finite number"),
        (GOOD | {"aggregate": "heavy_hitters", "phi": -0.1}, "phi", "greater than or equal to 0"),
        (GOOD | {"aggregate": "heavy_hitters", "phi": 1}, "phi", "less than 1"),
        (GOOD | {"aggregate": "group_by", "limit": 0}, "limit", "greater than or equal to 1"),
        (GOOD | {"aggregate": "group_by", "limit": 2.5}, "limit", "valid integer"),
        (GOOD | {"aggregate": "selectivity"}, "", "at_least, at_most or both"),
        (GOOD | {"aggregate": "heavy_hitters", "phi": 0.1, "limit": 0}, "limit", "or equal to 1"),
        (GOOD | {"colour": "red"}, "colour", "not permitted"),
    ],
)
def test_malformed_queries(stream: TestClient, query: Any, field: str, named: str) -> None:
    text = json.dumps({"queries": [GOOD, query]})  # json, unlike the client, writes NaN
    refused = stream.post(
        "/v1/streams/s/query", content=text, headers={"content-type": "application/json"}
    )
    content = problem(refused, 422, "invalid-request")
    (fault,) = content["errors"]
    assert fault["field"] == f"queries[1].{field}".removesuffix(".")
    assert named in fault["reason"]
    assert fault["field"] in content["detail"]
    for constant in ("NaN,", "NaN}", "Infinity"):
        assert constant not in refused.text


@pytest.mark.parametrize(
    ("text", "field", "named"),
    [
        ('{"queries": [', "body", "not JSON"),
        ("", "body", "missing"),
        ("null", "body", "dictionary"),
        ("[]", "body", "dictionary"),
        ("{}", "queries", "missing"),
        ('{"queries": []}', "queries", "at least 1"),
        ('{"queries": {}}', "queries", "valid list"),
        ('{"query": {}}', "queries", "missing"),
        ('{"queries": [GOOD], "sources": []}', "sources", "at least 1"),
        ('{"queries": [GOOD], "sources": [""]}', "sources[0]", "pattern"),
        ('{"queries": [GOOD], "sources": ["\\ud800"]}', "sources[0]", "unicode"),
        ('{"queries": [GOOD], "sources": "a"}', "sources", "valid list"),
        ('{"queries": [GOOD], "now": 1}', "now", "not permitted"),
    ],
)
def test_malformed_requests(stream: TestClient, text: str, field: str, named: str) -> None:
    refused = stream.post(
        "/v1/streams/s/query",
        content=text.replace("GOOD", json.dumps(GOOD)),
        headers={"content-type": "application/json"},
    )
    fault = problem(refused, 422, "invalid-request")["errors"][0]
    assert fault["field"] == field
    assert named in fault["reason"]


@pytest.mark.parametrize(
    "body",
    [b"\xff", b'{"queries": "\xff"}', b"[" * 100_000, b'{"queries": ' + b"9" * 5_000 + b"}"],
)
@pytest.mark.parametrize("path", ["/v1/streams/s/query", "/v1/query"])
def test_what_no_parser_reads(stream: TestClient, path: str, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    content = problem(stream.post(path, content=body, headers=headers), 422, "invalid-request")
    assert content["errors"][0]["field"] == "body"
    assert "not JSON" in content["errors"][0]["reason"]


def test_other_media_types(stream: TestClient) -> None:
    for headers in ({"content-type": "text/plain"}, {"content-type": "application/jsonx"}, {}):
        refused = stream.post(
            "/v1/streams/s/query", content=json.dumps({"queries": [GOOD]}), headers=headers
        )
        problem(refused, 415, "unsupported-media-type")


def test_long_values_are_shortened(stream: TestClient) -> None:
    query = GOOD | {"now": "x" * 50_000, "decay": {"kind": "y" * 50_000}}
    refused = stream.post("/v1/streams/s/query", json={"queries": [query, ["z"] * 25_000]})
    problem(refused, 422, "invalid-request")
    assert len(refused.content) < 5_000


def test_many_faults_are_counted_and_some_listed(stream: TestClient) -> None:
    refused = stream.post("/v1/streams/s/query", json={"queries": [{"aggregate": "sum"}] * 300})
    content = problem(refused, 422, "invalid-request")
    assert len(content["errors"]) == 100
    assert "and 297 more" in content["detail"]


def test_too_many_expressions(stream: TestClient, sketches: dict[str, DecaySketch]) -> None:
    def ask(texts: list[str]) -> Response:
        queries = [GOOD | {"decay": {"kind": "expression", "text": text}} for text in texts]
        return stream.post("/v1/streams/s/query", json={"queries": queries})

    texts = [f"exp(-x/{k})" for k in range(1, 34)]
    assert ask(texts[:32] * 2).status_code == 200
    (fault,) = problem(ask(texts), 422, "invalid-request")["errors"]
    assert "33 different expressions in one request; expected at most 32" in fault["reason"]


WITH_STEPS = with_decay(kind="piecewise", steps=[[age, 1] for age in range(1000)])
MANY_UNKNOWN = {f"f{k}": 0 for k in range(5_000)}


@pytest.mark.parametrize(
    ("fields", "field", "named"),
    [
        ({"queries": [GOOD] * 2001}, "queries", "at most 2000"),
        ({"queries": [0] * 80_000}, "queries", "at most 2000"),
        ({"queries": [GOOD], "sources": ["a"] * 1001}, "sources", "at most 1000"),
        ({"queries": [GOOD | {"now": None, "times": [1] * 10_001}]}, "queries[0].times", "10000"),
        ({"queries": [with_decay(kind="piecewise", steps=[[1, 1]] * 1001)]},
         "queries[0].decay.steps", "at most 1000"),
        ({"queries": [WITH_STEPS] * 6}, "queries", "6000 steps of decays"),
        ({"queries": [GOOD]} | MANY_UNKNOWN, "body", "has 5001 fields"),
        ({"queries": [GOOD | MANY_UNKNOWN]}, "queries[0]", "has 5003 fields"),
    ],
)  # fmt: skip
def test_lists_are_bounded(
    stream: TestClient, fields: dict[str, Any], field: str, named: str
) -> None:
    refused = stream.post("/v1/streams/s/query", json=fields)
    faults = problem(refused, 422, "invalid-request")["errors"]
    assert len(faults) <= 100
    assert len(refused.content) < 50_000
    (found,) = [each for each in faults if each["field"] == field]
    assert named in found["reason"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"queries": [GOOD], "sources": [1] * 900}, "sources[0]"),
        ({"queries": [GOOD | {"now": None, "times": ["1"] * 9_000}]}, "queries[0].times[0]"),
        ({"queries": [GOOD | {"aggregate": "quantile", "q": [2] * 900}]}, "queries[0].q[0]"),
        ({"queries": [with_decay(kind="piecewise", steps=["x"] * 900)]},
         "queries[0].decay.steps[0]"),
    ],
)  # fmt: skip
def test_a_list_is_left_at_its_first_fault(
    stream: TestClient, fields: dict[str, Any], field: str
) -> None:
    content = problem(stream.post("/v1/streams/s/query", json=fields), 422, "invalid-request")
    assert [fault["field"] for fault in content["errors"]] == [field]


def test_unknown_sources_are_counted_and_some_listed(stream: TestClient) -> None:
    sources = [f"s{k:03}" for k in range(700)]
    body = {"queries": [GOOD], "sources": sources}
    content = problem(stream.post("/v1/streams/s/query", json=body), 404, "unknown-source")
    assert "700 of the requested sources" in content["detail"]
    assert [fault["value"] for fault in content["errors"]] == sources[:100]


def test_long_bodies_that_are_refused_hold_up_nobody(data: Path) -> None:
    room = 256 * 2**10 - 100
    texts = [
        b'{"queries":[' + b",".join([each] * (room // (len(each) + 1))) + b"]}"
        for each in (
            b"1234",
            b'{"a":1}',
            b'{"aggregate":"count","decay":{"kind":"window","width":3}}',
            json.dumps(WITH_STEPS, separators=(",", ":")).encode(),
            b'{"aggregate":"count","now":1,"times":[' + b",".join([b'""'] * 9_000) + b"]}",
        )
    ]
    waited: list[float] = []
    took: list[float] = []

    async def whole() -> None:
        app = create_app(Settings(data=str(data)))
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url=LOCAL) as client,
        ):
            await client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})

            async def post(text: bytes) -> Response:
                headers = {"content-type": "application/json"}
                return await client.post("/v1/streams/s/query", content=text, headers=headers)

            first = time.process_time()
            posts = [asyncio.create_task(post(text)) for text in texts * 8]
            while not all(each.done() for each in posts):
                begun = time.thread_time()  # of the event loop
                assert (await client.get("/healthz")).status_code == 200
                waited.append(time.thread_time() - begun)
                await asyncio.sleep(0.01)
            took.append(time.process_time() - first)
            for each in posts:
                problem(each.result(), 422, "invalid-request")

    asyncio.run(whole())
    assert len(waited) > 3
    assert max(waited) < took[0] / 2  # the bodies were read beside what was answered


def test_too_many_queries(start: Callable[..., TestClient]) -> None:
    client = start(max_queries=3)
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    assert client.post("/v1/streams/s/query", json={"queries": [GOOD] * 3}).status_code == 200
    refused = client.post("/v1/streams/s/query", json={"queries": [GOOD] * 4})
    detail = problem(refused, 422, "invalid-request")["detail"]
    assert "4" in detail
    assert "3" in detail


def test_an_unknown_stream(client: TestClient) -> None:
    problem(client.post("/v1/streams/nope/query", json={"queries": [GOOD]}), 404, "unknown-stream")


def test_an_answer_says_how_its_decay_was_verified(ask: Ask, merged: DecaySketch) -> None:
    texts = ("exp(-x/60)", "(2 + x)/(1 + x)")
    queries = [
        {"aggregate": name, "decay": {"kind": "expression", "text": text}, "now": NOW, **fields}
        for text in texts
        for name, fields in (("mean", {}), ("quantile", {"q": [0.5]}), ("group_by", {"limit": 1}))
    ]
    answers = ask(*queries).json()["answers"]
    assert [each["verified"] for each in answers] == ["proof"] * 3 + ["grid"] * 3
    looked_at = merged.mean(decay.expression(texts[1]), now=NOW)
    assert "decay-on-grid" in looked_at.caveats
    assert answers[3]["estimate"] == looked_at.to_dict()


def test_the_mean_of_a_stream_that_fell_silent_is_answered_at_any_time(
    ask: Ask, merged: DecaySketch
) -> None:
    fading = {"kind": "exponential", "half_life": 1}
    for later in (600, 1_100, 100_000):
        queries = [
            {"aggregate": name, "decay": fading, "now": NOW + later}
            for name in ("sum", "mean", "variance", "median")
        ]
        response = ask(*queries)
        assert response.status_code == 200
        total, mean, *_ = response.json()["answers"]
        law = decay.exponential(half_life=1)
        assert same(mean["estimate"], merged.mean(law, now=NOW + later))
        if later > 1_075:
            assert total["estimate"]["caveats"] == ["faded"]
