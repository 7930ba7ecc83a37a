"""Configured questions, and the scrape that asks them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from service import OCTETS, PARAMS, posted, problem

from api.queries.configured import exposition
from api.service.group_labels import label_of_key
from decaysketch import DecaySketch, SketchParams

QUARTER = {"kind": "window", "width": 900}
COUNT: dict[str, Any] = {"query": {"aggregate": "count", "decay": QUARTER}}
QUESTIONS: dict[str, dict[str, Any]] = {
    "count_15m": COUNT,
    "value": {"query": {"aggregate": "quantile", "q": [0.5, 0.99], "decay": QUARTER}},
    "bins": {"query": {"aggregate": "histogram", "edges": [0, 5, 10], "decay": QUARTER}},
    "groups": {"query": {"aggregate": "group_by", "limit": 2, "decay": QUARTER}, "set": "slow"},
    "latest": {"query": {"aggregate": "last", "decay": QUARTER}, "set": "slow"},
    "nothing": {"query": {"aggregate": "mean", "decay": {"kind": "window", "width": 0}}},
}
URL = "/v1/streams/s/questions"


def fill(client: TestClient) -> int:
    """Observations of the last minutes; the time of the newest."""
    now = int(time.time()) - 5
    sketch = DecaySketch(PARAMS)
    sketch.update(
        [float(i % 10) for i in range(60)], 1, [now - i for i in range(60)], list(range(60))
    )
    body = sketch.to_bytes()
    posted(client.post("/v1/streams/s/sketches?source=a", content=body, headers=OCTETS))
    return now


def scraped(client: TestClient, more: str = "") -> dict[tuple[str, ...], float]:
    """By the name of the gauge, and its labels but for that of the stream."""
    answer = client.get(f"/v1/streams/s/prometheus{more}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.type == "gauge"
        for sample in family.samples:
            assert sample.timestamp is None
            labels = dict(sample.labels)
            assert labels.pop("stream") == "s"
            key = (sample.name, *(f"{name}={value}" for name, value in sorted(labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def define(client: TestClient) -> None:
    for name, question in QUESTIONS.items():
        assert client.put(f"{URL}/{name}", json=question).status_code == 201


def test_every_estimate_is_a_sample_of_five_gauges(stream: TestClient) -> None:
    fill(stream)
    define(stream)
    found = scraped(stream)
    count = ("aggregate=count", "query=count_15m")
    for end, value in {
        "": 60.0,
        "_lower": 60.0,
        "_upper": 60.0,
        "_stderr": 0.0,
        "_exact": 1.0,
    }.items():
        assert found[f"decaysketch_answer{end}", *count] == value
    assert found["decaysketch_answer", "aggregate=quantile", "q=0.5", "query=value"] == 4.0
    assert found["decaysketch_answer", "aggregate=histogram", "bin=5..10", "query=bins"] == 0.5
    assert found["decaysketch_answer", "aggregate=histogram", "bin=below", "query=bins"] == 0.0
    groups = [key for key in found if "query=groups" in key and key[0] == "decaysketch_answer"]
    assert {each[2] for each in groups} == {"of=count", "of=sum"}
    assert len(groups) == 4
    assert found["decaysketch_answer", "aggregate=last", "query=latest"] == 0.0  # the newest
    assert found["decaysketch_answer_questions",] == len(QUESTIONS)
    nothing = ("aggregate=mean", "query=nothing")
    assert math.isnan(found["decaysketch_answer", *nothing])
    assert found["decaysketch_answer_lower", *nothing] == -math.inf
    assert found["decaysketch_answer_upper", *nothing] == math.inf
    slow = scraped(stream, "?set=slow")
    assert {each for key in slow for each in key if each.startswith("query=")} == {
        "query=groups", "query=latest",
    }  # fmt: skip
    problem(stream.get("/v1/streams/s/prometheus?set=none"), 404, "unknown-question")


def test_no_two_keys_have_the_same_label() -> None:
    keys = [1, "1", '"1"', "1e3", 1000.0, "nan", "pump", '"', ("a", 1), ("a", "1")]
    labels = [label_of_key(key) for key in keys]
    assert len(set(labels)) == len(keys)
    assert (labels[0], labels[1], labels[6]) == ("1", '"1"', "pump")


def test_a_question_that_cannot_be_answered_blinds_nobody(client: TestClient) -> None:
    # Capacity 1 and a small universe: under some seed the coarsest level overflows as well.
    now = int(time.time()) - 5
    for seed in range(100):
        params = SketchParams(max_weight=1, id_bits=4, capacity=1, seed=seed, time_unit="s")
        sketch = DecaySketch(params)
        sketch.update(np.zeros(16), 1, now - 1000 * np.arange(16), np.arange(16))
        if sketch.stats().complete_since[-1] is not None:
            break
    client.put("/v1/streams/s", json={"params": params.to_dict()}).raise_for_status()
    everything = {"query": {"aggregate": "count", "decay": {"kind": "none"}}}
    for name, question in {"count_15m": COUNT, "all": everything}.items():
        client.put(f"{URL}/{name}", json=question).raise_for_status()
    assert ("decaysketch_answer", "aggregate=count", "query=all") in scraped(client)
    body = sketch.to_bytes()
    posted(client.post("/v1/streams/s/sketches?source=a", content=body, headers=OCTETS))
    after = scraped(client)
    assert after["decaysketch_answer_error", "query=all", "reason=unanswerable-query"] == 1.0
    assert after["decaysketch_answer", "aggregate=count", "query=count_15m"] == 1.0
    assert ("decaysketch_answer", "aggregate=count", "query=all") not in after
    assert client.put(f"{URL}/all", json=everything).status_code == 200  # it may be again


def test_errors_are_told_beside_answers() -> None:
    text = exposition('s"\\\n', [], [("a", "unanswerable-query")]).decode()
    (family,) = (
        each for each in text_string_to_metric_families(text) if each.name.endswith("_error")
    )
    (sample,) = family.samples
    assert sample.labels == {"stream": 's"\\\n', "query": "a", "reason": "unanswerable-query"}
    assert sample.value == 1.0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "query"),
        ({"query": {"aggregate": "count", "decay": QUARTER, "now": 5}}, "body"),
        ({"query": {"aggregate": "count", "decay": QUARTER, "times": [5]}}, "body"),
        ({"query": {"aggregate": "count", "decay": QUARTER, "name": "x"}}, "body"),
        ({"query": {"aggregate": "heavy_hitters", "phi": 0.0, "decay": QUARTER}}, "body"),
        ({"query": {"aggregate": "histogram", "edges": list(range(50)), "decay": QUARTER}}, "body"),
        ({"query": {"aggregate": "count"}}, "queries[0].decay"),
        (
            {"query": {"aggregate": "key_count", "keys": [1], "decay": QUARTER}},
            "queries[0].aggregate",
        ),
        ({**COUNT, "set": "a b"}, "set"),
        ({**COUNT, "more": 1}, "more"),
    ],
)
def test_what_could_never_be_scraped_is_refused(
    stream: TestClient, body: dict[str, Any], field: str
) -> None:
    kind = "unsupported-aggregate" if field.endswith("aggregate") else "invalid-request"
    refused = problem(stream.put(f"{URL}/q", json=body), 422, kind)
    assert refused["errors"][0]["field"] == field
    assert stream.get(URL).json() == {"questions": []}


def test_a_unit_without_a_clock_has_nothing_to_scrape(client: TestClient) -> None:
    params = PARAMS.to_dict() | {"time_unit": "ticks"}
    client.put("/v1/streams/s", json={"params": params}).raise_for_status()
    problem(client.put(f"{URL}/q", json=COUNT), 422, "invalid-request")


def test_they_are_kept_replaced_deleted_and_bounded(start: Callable[..., TestClient]) -> None:
    client = start(max_stream_questions=2)
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
    assert client.put(f"{URL}/a", json=COUNT).status_code == 201
    assert client.put(f"{URL}/a", json={**COUNT, "set": "other"}).status_code == 200
    assert client.put(f"{URL}/b", json=COUNT).status_code == 201
    full = problem(client.put(f"{URL}/c", json=COUNT), 409, "too-many-questions")
    assert full["detail"] == "stream 's' has 2 saved queries; expected at most 2"
    client = start()
    kept = client.get(URL).json()["questions"]
    assert [(each["name"], each["set"], each["query"]) for each in kept] == [
        ("a", "other", COUNT["query"]), ("b", "default", COUNT["query"]),
    ]  # fmt: skip
    assert client.delete(f"{URL}/a").status_code == 204
    problem(client.delete(f"{URL}/a"), 404, "unknown-question")
    client.delete("/v1/streams/s").raise_for_status()
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
    assert client.get(URL).json() == {"questions": []}
    assert scraped(client) == {("decaysketch_answer_questions",): 0.0}
