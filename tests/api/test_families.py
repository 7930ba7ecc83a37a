"""Streams of every family: created, posted to, merged, asked, and the same after a restart."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from families import CASES, FIXED, MEDIAN, SUM, WINDOW, Case, same
from fastapi.testclient import TestClient
from service import NOW, OCTETS, PARAMS, build, posted, problem

import decaysketch
from api.service.follower import ReplayError
from decaysketch import IntegralDecaySketch, SketchParams
from decaysketch.asyncwindow import MedianSampler, SumSampler
from decaysketch.decay import integral

Client = TestClient | httpx2.Client
QUERY = "/v1/streams/s/query"


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def create(client: Client, case: Case, name: str = "s") -> Any:
    return client.put(f"/v1/streams/{name}", json=case.creation)


def post(client: Client, sketch: Any, source: str = "a", name: str = "s", **fields: Any) -> Any:
    return client.post(
        f"/v1/streams/{name}/sketches",
        params={"source": source, **fields},
        content=sketch if isinstance(sketch, bytes) else sketch.to_bytes(),
        headers=OCTETS,
    )


def everything(client: Client, case: Case) -> tuple[Any, ...]:
    return (
        client.get("/v1/streams").json(),
        client.get("/v1/streams/s").json(),
        client.get("/v1/streams/s/sketch").content,
        client.post(QUERY, json=case.query()).json(),
    )


# --------------------------------------------------------------------------------- what is promised


def test_a_sensor_reads_what_to_build(client: TestClient, case: Case) -> None:
    created = create(client, case)
    assert created.status_code == 201
    read = client.get("/v1/streams/s").json()
    assert created.json() == read
    assert read["family"] == case.name
    assert read["params"] == case.creation["params"]
    assert read["decay"] == case.creation.get("decay")
    assert case.family.params.from_dict(read["params"]).fingerprint.hex() == read["fingerprint"]
    assert create(client, case).status_code == 200
    assert [each["family"] for each in client.get("/v1/streams").json()["streams"]] == [case.name]


def test_answers_are_the_library_s(client: TestClient, case: Case) -> None:
    create(client, case)
    sketches = [case.build(seed, 100 * seed) for seed in range(4)]
    for seed, sketch in enumerate(sketches):
        taken = posted(post(client, sketch, "abab"[seed]))
        assert (taken["rows"], taken["duplicate"]) == (len(sketch), False)
    merged = case.join(sketches)
    state = client.get("/v1/streams/s").json()
    assert (state["digest"], state["rows"]) == (merged.digest(), len(merged))
    assert state["clock"] == getattr(merged, "clock", None)
    stats = merged.stats()
    levels = stats.complete_since
    assert state["watermarks"] == list(levels)
    assert client.get("/v1/streams/s/sketch").content == merged.to_bytes()
    one = client.get("/v1/streams/s/sketch", params={"source": "b"}).content
    assert one == case.join(sketches[1::2]).to_bytes()
    response = client.post(QUERY, json=case.query()).json()
    assert response["digest"] == merged.digest()
    assert same(response["answers"], case.expected(merged))
    some = client.post(QUERY, json=case.query() | {"sources": ["a"]}).json()
    assert same(some["answers"], case.expected(case.join(sketches[::2])))


def test_order_repetition_and_restarts_change_nothing(
    start: Callable[..., TestClient], case: Case
) -> None:
    sketches = [case.build(seed, 150 * seed) for seed in range(5)]
    merged = case.join(sketches)
    client = start()
    create(client, case)
    for sketch in sketches:
        assert posted(post(client, sketch))["duplicate"] is False
    before = everything(client, case)
    assert before[2] == merged.to_bytes()
    assert same(before[3]["answers"], case.expected(merged))
    client = start()
    assert everything(client, case) == before
    for sketch in random.Random(0).sample(sketches * 2, 10):
        assert posted(post(client, sketch))["duplicate"] is True
    assert everything(client, case) == before
    create(client, case, "t")
    for sketch in random.Random(1).sample(sketches * 2, 10):
        post(client, sketch, name="t")
    assert client.get("/v1/streams/t/sketch").content == before[2]
    client.post(QUERY, json=case.query(NOW + 10**6))  # asking changes nothing either
    before = everything(client, case)
    client = start()
    assert everything(client, case) == before


def test_a_late_observation_disturbs_nothing(client: TestClient, case: Case) -> None:
    """It comes in beside what is kept, and a window that it is not in has the same answer."""
    create(client, case)

    def post_of(times: Any, first: int) -> None:
        sketch = case.fed(np.full(len(times), 90), times, weight=90, first=first)
        assert posted(post(client, sketch))["duplicate"] is False

    def ask() -> dict[str, Any]:
        asked = ("count", "key_total", "max", "series_count")
        counted = next(name for name in asked if name in case.family.questions)
        query = {"aggregate": counted, "now": NOW}
        if case.chooses:
            query["decay"] = {"kind": "window", "width": 50}
        (answer,) = client.post(QUERY, json={"queries": [query]}).json()["answers"]
        estimate: dict[str, Any] = answer["estimate"]
        assert estimate["exact"] is True
        return estimate

    post_of(NOW - np.arange(40), 0)
    before = ask()
    post_of(np.array([NOW - 4_900]), 1_000)
    if case.name not in ("ecm", "extremes"):  # which keep times, and what no later row rules out
        assert client.get("/v1/streams/s").json()["rows"] == 41
    late = 0.0 if case.chooses else float(FIXED(90, 4_900)) / 90
    assert ask()["value"] == pytest.approx(before["value"] + late, rel=1e-12)


# ----------------------------------------------------------------------------------------- refusals


def test_sketches_of_another_family_are_refused(client: TestClient, case: Case) -> None:
    create(client, case)
    post(client, case.build(0, 0))
    before = everything(client, case)
    for name, other in CASES.items():
        if name == case.name:
            continue
        content = problem(post(client, other.build(1, 0)), 409, "incompatible-sketch")
        assert content["errors"] == [
            {
                "field": "family",
                "reason": "differs from the stream's",
                "value": name,
                "expected": case.name,
            }
        ]
    for body in (b"", case.build(1, 0).to_bytes()[:-1], b"DSKT" + bytes(40)):
        problem(post(client, body), 422, "corrupt-sketch")
    assert everything(client, case) == before


@pytest.mark.parametrize(
    ("name", "sketch", "field"),
    [
        ("integral", IntegralDecaySketch(PARAMS, integral.window(60)), "decay"),
        ("integral", IntegralDecaySketch(replace(PARAMS, seed=1), FIXED), "seed"),
        ("sum", SumSampler(replace(SUM, max_window=60)), "max_window"),
        ("median", MedianSampler(replace(MEDIAN, value_type="int64")), "value_type"),
    ],
)
def test_other_parameters_are_refused(
    client: TestClient, name: str, sketch: Any, field: str
) -> None:
    case = CASES[name]
    create(client, case)
    before = everything(client, case)
    content = problem(post(client, sketch), 409, "incompatible-sketch")
    assert [fault["field"] for fault in content["errors"]] == [field]
    assert everything(client, case) == before


def test_a_smaller_capacity_is_refused(client: TestClient, case: Case) -> None:
    create(client, case)
    small = case.build(0, 0)
    small.resize(5)
    problem(post(client, small), 409, "capacity-too-small")
    assert client.get("/v1/streams/s").json()["posts"] == 0


def test_an_aggregate_that_the_family_does_not_have(client: TestClient) -> None:
    for name, known, aggregate in (
        (
            "sum",
            "correlation, count, covariance, last, rate, ratio, regression, selectivity, sum",
            {"aggregate": "quantile", "q": 0.5},
        ),
        (
            "sum",
            "correlation, count, covariance, last, rate, ratio, regression, selectivity, sum",
            {"aggregate": "median"},
        ),
        ("median", "mean, median, quantile", {"aggregate": "sum"}),
        ("integral", "rank, ratio, regression, selectivity, share, stddev", {"aggregate": "rate"}),
    ):
        create(client, CASES[name], name)
        count: dict[str, Any] = {"aggregate": "count", "now": NOW}
        if CASES[name].chooses:
            count["decay"] = WINDOW.to_dict()
        asked = {"queries": [count, count | aggregate]}
        refused = client.post(f"/v1/streams/{name}/query", json=asked)
        content = problem(refused, 422, "unsupported-aggregate")
        for text in (repr(name), repr(aggregate["aggregate"]), known, "queries[1]"):
            assert text in content["detail"]
        (fault,) = content["errors"]
        assert fault["field"] == "queries[1].aggregate"
        assert fault["value"] == aggregate["aggregate"]


def test_a_fixed_decay_is_not_asked_for(client: TestClient) -> None:
    case = CASES["integral"]
    create(client, case)
    sketch = case.build(0, 0)
    post(client, sketch)
    query = {"aggregate": "sum", "now": NOW}
    same = {"kind": "exponential", "half_life": 900}
    answers = client.post(QUERY, json={"queries": [query, query | {"decay": same}]}).json()
    assert [each["estimate"] for each in answers["answers"]] == [sketch.sum(now=NOW).to_dict()] * 2
    again = client.post(
        QUERY, json={"queries": [query | {"decay": "exponential(half_life=15min)"}]}
    )
    assert again.json()["answers"] == answers["answers"][:1]
    for other in ({"kind": "exponential", "half_life": 901}, "exponential(half_life=901)"):
        refused = client.post(QUERY, json={"queries": [query, query | {"decay": other}]})
        (fault,) = problem(refused, 422, "invalid-request")["errors"]
        assert fault["field"] == "queries[1].decay"
        assert "901" in fault["value"]
        assert "900" in fault["expected"]
    refused = client.post(QUERY, json={"queries": [query | {"decay": "window(1 parsec)"}]})
    (fault,) = problem(refused, 422, "invalid-request")["errors"]
    assert "'parsec' at character 9" in fault["reason"]


def test_times_before_the_clock_are_not_answered(client: TestClient) -> None:
    case = CASES["integral"]
    create(client, case)
    sketch = case.build(0, 0)
    post(client, sketch)
    query = {"aggregate": "sum", "now": sketch.clock}
    assert client.post(QUERY, json={"queries": [query]}).status_code == 200
    refused = client.post(QUERY, json={"queries": [query, query | {"now": sketch.clock - 1}]})
    content = problem(refused, 422, "unanswerable-query")
    assert [fault["field"] for fault in content["errors"]] == ["queries[1]"]


@pytest.mark.parametrize("name", ["sum", "median"])
def test_a_decay_that_reaches_too_far(client: TestClient, name: str) -> None:
    create(client, CASES[name])
    fits = {"aggregate": "count", "decay": {"kind": "window", "width": 5_000}, "now": NOW}
    assert client.post(QUERY, json={"queries": [fits]}).status_code == 200
    for decay in ({"kind": "window", "width": 5_001}, {"kind": "none"}):
        refused = client.post(QUERY, json={"queries": [fits, fits | {"decay": decay}]})
        (fault,) = problem(refused, 422, "invalid-request")["errors"]
        assert fault["field"] == "queries[1].decay"
        assert "max_window = 5000" in fault["reason"]


def test_a_stream_of_another_family_exists(client: TestClient, case: Case) -> None:
    create(client, case)
    for name, other in CASES.items():
        if name != case.name:
            content = problem(create(client, other), 409, "stream-exists")
            (fault,) = content["errors"]
            assert (fault["field"], fault["value"], fault["expected"]) == (
                "family",
                name,
                case.name,
            )


def test_a_stream_of_another_decay_exists(client: TestClient) -> None:
    case = CASES["integral"]
    create(client, case)
    other = case.creation | {"decay": {"kind": "halving", "period": 60}}
    content = problem(client.put("/v1/streams/s", json=other), 409, "stream-exists")
    assert [fault["field"] for fault in content["errors"]] == ["decay"]


def test_a_fixed_decay_may_be_a_text(client: TestClient) -> None:
    body = {"family": "integral", "params": P, "decay": "exponential(half_life=15min)"}
    kept = {"kind": "exponential", "half_life": 900}
    assert client.put("/v1/streams/s", json=body).json()["decay"] == kept
    for again in (body, body | {"decay": kept}):
        assert client.put("/v1/streams/s", json=again).status_code == 200
    units = P | {"time_unit": "ms"}
    created = client.put("/v1/streams/ms", json=body | {"params": units}).json()
    assert created["decay"] == {"kind": "exponential", "half_life": 900_000}


P = {"max_weight": 9}
S = {"max_sum": 100, "capacity": 10}


@pytest.mark.parametrize(
    ("body", "field", "named"),
    [
        ({"family": "later", "params": P}, "family", "'integral'"),
        ({"family": None, "params": P}, "family", "'integral'"),
        ({"family": "decay", "params": P, "decay": {}}, "body", "family is 'decay'"),
        ({"params": P, "decay": {"kind": "none"}}, "body", "family is 'decay'"),
        ({"family": "sum", "params": S, "decay": {}}, "body", "family is 'sum'"),
        ({"family": "integral", "params": P}, "decay", "missing"),
        ({"family": "integral", "params": P, "decay": 5}, "decay", "valid dictionary"),
        ({"family": "integral", "params": P, "decay": ""}, "decay", "at least 1"),
        ({"family": "integral", "decay": {"kind": "halving"}}, "params", "missing"),
        ({"family": "sum", "params": {"capacity": 1}}, "params.max_sum", "missing"),
        ({"family": "sum", "params": S | {"max_sum": 0}}, "params", "max_sum is 0"),
        ({"family": "sum", "params": S | {"kind": "median"}}, "params.kind", "'sum'"),
        ({"family": "sum", "params": S | {"max_window": -1}}, "params", "max_window is -1"),
        ({"family": "median", "params": S}, "params.max_count", "missing"),
    ],
)
def test_creations_outside_their_domain(
    client: TestClient, body: Any, field: str, named: str
) -> None:
    content = problem(client.put("/v1/streams/s", json=body), 422, "invalid-request")
    fault = content["errors"][0]
    assert fault["field"] == field
    assert named in fault["reason"]
    assert client.get("/v1/streams").json() == {"streams": []}


@pytest.mark.parametrize(
    ("params", "decay", "named"),
    [
        (P, {}, "kind is None"),
        (P, {"kind": ["window"]}, "kind is ['window']"),
        (P, {"kind": "none"}, "kind is 'none'"),
        (P, "none", "kind is 'none'"),
        (P, "window(1", "the decay has its end at character 8; expected a comma or )"),
        (P, "window(1ms)", "width is Fraction(1, 1000)"),
        (P, "eval(w)", "'eval' at character 0; expected one of w, x"),
        (P, {"kind": "window", "width": -1}, "width is -1"),
        (P, {"kind": "window", "width": 1, "colour": 2}, "'colour'"),
        (P, {"kind": "exponential", "rate": "x"}, "rate is 'x'"),
        (P, {"kind": "exponential", "rate": [1]}, "rate is [1]"),
        (P, {"kind": "polynomial", "exponent": 1, "scale": 0.5}, "scale is 0.5"),
        (P, {"kind": "polynomial", "exponent": 1e-9}, "age"),
        (P, {"kind": "expression", "text": 5}, "type int"),
        (P, {"kind": "expression", "text": "x"}, "x"),
        (P, {"kind": "table", "digest": "00"}, "named by its digest"),
        (P | {"copies": 3}, {"kind": "halving"}, "copies is 3"),
    ],
)
def test_decays_outside_their_domain(
    client: TestClient, params: Any, decay: Any, named: str
) -> None:
    body = {"family": "integral", "params": params, "decay": decay}
    content = problem(client.put("/v1/streams/s", json=body), 422, "invalid-parameter")
    assert named in content["detail"]
    assert client.get("/v1/streams").json() == {"streams": []}


def test_fixed_decays_that_are_no_plain_numbers(start: Callable[..., TestClient]) -> None:
    decays = {
        "a": {"kind": "polynomial", "exponent": "1/3", "scale": 60},
        "b": {"kind": "expression", "text": "max(-2*x + w, 0)", "max_weight": 9},
        "c": {"kind": "halving", "period": 2},
    }
    client = start()
    for name, decay in decays.items():
        body = {"family": "integral", "params": P, "decay": decay}
        assert client.put(f"/v1/streams/{name}", json=body).status_code == 201
        sketch = IntegralDecaySketch(SketchParams(max_weight=9), integral.from_dict(decay))
        sketch.update([1.0], 9, 100, 1)
        assert posted(post(client, sketch, name=name))["duplicate"] is False
    for running in (client, start):
        client = running if isinstance(running, TestClient) else running()
        for name, decay in decays.items():
            read = client.get(f"/v1/streams/{name}").json()
            assert read["decay"] == decay
            held = client.get(f"/v1/streams/{name}/sketch").content
            theirs = integral.from_dict(read["decay"])
            found = IntegralDecaySketch.from_bytes(held, decay=theirs)
            query = {"aggregate": "sum", "now": 102}
            answers = client.post(f"/v1/streams/{name}/query", json={"queries": [query]}).json()
            assert answers["answers"][0]["estimate"] == found.sum(now=102).to_dict()


# ----------------------------------------------------------------------------------------- journals


def test_a_family_of_a_later_release_stops_the_start(
    start: Callable[..., TestClient], data: Path
) -> None:
    client = start()
    create(client, CASES["sum"])
    client.__exit__()
    with sqlite3.connect(data) as database:
        database.execute("update streams set recipe = replace(recipe, '\"sum\"', '\"later\"')")
    database.close()
    with pytest.raises(ReplayError, match="a stream cannot be opened: family is 'later'"):
        start()


# ------------------------------------------------------------------------------------ new questions


def test_several_hash_functions_by_the_median(client: TestClient) -> None:
    params = replace(PARAMS, copies=3, capacity=40)
    client.put("/v1/streams/s", json={"params": params.to_dict()})
    sketch = build(1, 1_000, params=params)
    post(client, sketch)
    chosen = decaysketch.decay.exponential(half_life=900)
    common = {"decay": {"kind": "exponential", "half_life": 900}, "now": NOW}
    asked = [
        {"aggregate": "sum"},
        {"aggregate": "quantile", "q": [0.2, 0.9]},
        {"aggregate": "heavy_hitters", "phi": 0.05},
    ]
    for combine in ("average", "median"):
        queries = [each | common | {"combine": combine} for each in asked]
        answers = client.post(QUERY, json={"queries": queries}).json()["answers"]
        total, quantiles, hitters = answers
        fields: dict[str, Any] = {"now": NOW, "combine": combine}
        assert total["estimate"] == sketch.sum(chosen, **fields).to_dict()
        expected = [each.to_dict() for each in sketch.quantile([0.2, 0.9], chosen, **fields)]
        assert [each["estimate"] for each in quantiles["quantiles"]] == expected
        found = [each["frequency"] for each in hitters["heavy_hitters"]]
        assert found == [
            each.frequency.to_dict() for each in sketch.heavy_hitters(0.05, chosen, **fields)
        ]
    refused = client.post(QUERY, json={"queries": [asked[0] | common | {"combine": "mode"}]})
    (fault,) = problem(refused, 422, "invalid-request")["errors"]
    assert fault["field"] == "queries[0].combine"


def test_selectivity_of_integers_beyond_64_bits(client: TestClient) -> None:
    create(client, CASES["sum"])
    sampler = CASES["sum"].build(0, 0)
    post(client, sampler)
    common = {"aggregate": "selectivity", "decay": WINDOW.to_dict(), "now": NOW}
    bounds = [{"at_most": 10**30}, {"at_least": 10**30}, {"at_least": -(10**30), "at_most": 0.5}]
    answers = client.post(QUERY, json={"queries": [common | each for each in bounds]}).json()
    assert [each["estimate"]["value"] for each in answers["answers"]] == [1, 0, 0]
