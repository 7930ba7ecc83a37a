"""Ranges of times and two moments compared, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from service import NOW, OCTETS, build, posted, problem

from decaysketch.decay import window

SKETCH = build(1)
QUARTER = {"kind": "window", "width": 900}


@pytest.fixture
def holding(stream: TestClient) -> TestClient:
    body = SKETCH.to_bytes()
    posted(stream.post("/v1/streams/s/sketches?source=a", content=body, headers=OCTETS))
    return stream


def asked(client: TestClient, *queries: dict[str, Any]) -> Any:
    return client.post("/v1/streams/s/query", json={"queries": list(queries)})


def test_answers_are_those_of_the_library(holding: TestClient) -> None:
    compared = {"aggregate": "mean", "decay": QUARTER, "now": NOW}
    answers = asked(
        holding,
        compared | {"versus": {"ago": 1_000}},
        compared | {"versus": {"now": NOW - 1_000, "decay": "window(15min)"}},
        {"aggregate": "count", "decay": QUARTER, "now": NOW, "versus": {"ago": 9}, "how": "ratio"},
        {
            "aggregate": "rank",
            "v": 20,
            "decay": QUARTER,
            "times": [NOW - 9, NOW],
            "versus": {"ago": 900},
        },
        {"aggregate": "rate", "from": NOW - 1_000, "to": NOW},
        {"aggregate": "quantile", "q": 0.5, "from": NOW - 1_000, "to": NOW},
    ).json()["answers"]
    now, then = (window(900), NOW), (window(900), NOW - 1_000)
    mean = SKETCH.compare("mean", now=now, then=then).to_dict()
    assert answers[0]["estimate"] == answers[1]["estimate"] == mean
    assert isinstance(mean["changed"], bool)
    ratio = SKETCH.compare("count", now=now, then=(window(900), NOW - 9), how="ratio")
    assert answers[2]["estimate"] == ratio.to_dict()
    for point, at in zip(answers[3]["points"], (NOW - 9, NOW), strict=True):
        moments = {"now": (window(900), at), "then": (window(900), at - 900)}
        assert point["estimate"] == SKETCH.compare("rank", value=20, **moments).to_dict()
    of = SKETCH.between(NOW - 1_000, NOW)
    assert answers[4]["estimate"] == of.rate().to_dict()
    assert answers[5]["quantiles"][0]["estimate"] == of.quantile(0.5).to_dict()


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_a_text_says_its_own_unit(client: TestClient, unit: str) -> None:
    """An integer is in the stream's: of milliseconds 3600 are 3.6 s, which compares an hour with
    itself, nearly."""
    second = {"s": 1, "ms": 1000}[unit]
    client.put("/v1/streams/t", json={"params": {"time_unit": unit}})
    rows = [
        {"value": value, "time": (NOW - age) * second, "id": value}
        for value, age in ((10, 4000), (30, 100))
    ]
    taken = client.post("/v1/streams/t/observations?source=a", json={"observations": rows})
    assert taken.json()["retained"] == 2, taken.text
    query = {"aggregate": "mean", "decay": "window(30min)", "now": NOW * second}
    queries = [query | {"versus": {"ago": ago}} for ago in ("1h", "60min", 3600 * second)]
    answers = client.post("/v1/streams/t/query", json={"queries": queries}).json()["answers"]
    assert [each["estimate"]["value"] for each in answers] == [20.0, 20.0, 20.0]


def test_a_moment_may_be_a_date_with_its_zone(holding: TestClient) -> None:
    date, then = "1970-01-02T04:46:40+01:00", "1970-01-02T03:30:00Z"  # NOW and 1,000 s before
    query = {"aggregate": "mean", "decay": QUARTER}
    pairs = [
        (query | {"now": NOW}, query | {"now": date}),
        (
            query | {"now": NOW, "versus": {"now": NOW - 1_000}},
            query | {"now": date, "versus": {"now": then}},
        ),
        (
            {"aggregate": "quantile", "q": 0.5, "from": NOW - 1_000, "to": NOW},
            {"aggregate": "quantile", "q": 0.5, "from": then, "to": date},
        ),
        ({"aggregate": "rate", "from": 5, "to": NOW}, {"aggregate": "rate", "from": 5, "to": date}),
    ]
    for numbers, dates in pairs:
        first, second = (asked(holding, each).json()["answers"] for each in (numbers, dates))
        assert first == second


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            {"decay": QUARTER, "now": "1970-01-02T04:46:40"},
            "queries[0].now: now is 1970-01-02T04:46:40, which has no",
        ),
        (
            {"decay": QUARTER, "now": "now"},
            "queries[0].now: now is 'now'; expected an integer of the",
        ),
        ({"decay": QUARTER, "now": 5, "versus": {"now": "x"}}, "queries[0].versus.now: now is 'x'"),
        ({"from": "1970-01-02T00:00Z"}, "give both from and to"),
        (
            {"from": "1970-01-02T00:00Z", "to": 5},
            "queries[0].from: from is '1970-01-02T00:00Z' and to is 5",
        ),
        (
            {"from": "1970-01-02T00:00Z", "to": True},
            "queries[0].to: Input should be a valid integer",
        ),
    ],
)
def test_what_is_no_date_is_refused(holding: TestClient, query: dict[str, Any], said: str) -> None:
    refused = asked(holding, {"aggregate": "mean"} | query)
    assert said in problem(refused, 422, "invalid-request")["detail"]


def test_a_log_of_the_past_that_is_asked_without_a_time_is_warned_of(client: TestClient) -> None:
    past, second = 1_696_258_885, 1000
    client.put("/v1/streams/t", json={"params": {"time_unit": "ms"}})
    rows = [{"value": 20.5, "time": past * second, "id": 1}]
    taken = client.post("/v1/streams/t/observations?source=a", json={"observations": rows})
    assert taken.json()["retained"] == 1, taken.text

    def warned(**query: Any) -> list[str]:
        queries = [{"aggregate": "mean"} | query]
        found = client.post("/v1/streams/t/query", json={"queries": queries}).json()["warnings"]
        assert isinstance(found, list)
        return found

    for decay in ("window(30d)", "exponential(half_life=6h)"):
        [said] = warned(decay=decay)
        assert said.startswith("the newest observation is of 1696258885000 ms (2023-10-02 15:01:25")
        assert said.endswith('for old data, set "now": 1696258885000')
        assert warned(decay=decay, now=past * second) == []
    assert warned(decay="none") == warned(decay="window(10000d)") == []
    assert warned(decay="polynomial(1, scale=30d)") == []


@pytest.mark.parametrize(
    ("ago", "said"),
    [
        ("an hour", "versus.ago: ago is 'an hour'; expected a length of time such as '90s'"),
        ("1.5s", "versus.ago: ago is '1.5s', 1.5 s; expected a whole number of s"),
        ("3600", "versus.ago: ago is '3600'; expected a length of time such as '90s'"),
        ("999999999999999w", "expected a whole number of s, at most 2^62"),
        (-1, "greater than or equal to 0"),
        (1.5, "valid integer"),
        (True, "valid integer"),
    ],
)
def test_what_is_no_length_of_time_is_refused(holding: TestClient, ago: Any, said: str) -> None:
    query = {"aggregate": "mean", "decay": QUARTER, "now": NOW, "versus": {"ago": ago}}
    refused = asked(holding, query)
    assert said in problem(refused, 422, "invalid-request")["detail"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"aggregate": "median", "versus": {"ago": 5}}, "Compare the rank of a fixed value"),
        ({"aggregate": "mean", "versus": {}}, "give now, ago or where"),
        ({"aggregate": "mean", "versus": {"ago": 5, "now": 5}}, "give now, ago or where"),
        ({"aggregate": "mean", "how": "ratio"}, "how needs versus, which is missing"),
        ({"aggregate": "mean", "versus": {"ago": 5, "decay": "nonsense("}}, "versus.decay"),
        ({"aggregate": "mean", "from": 5, "to": 9}, "omit decay, now"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    holding: TestClient, query: dict[str, Any], said: str
) -> None:
    refused = asked(holding, {"decay": QUARTER, "now": NOW} | query)
    assert said in problem(refused, 422, "invalid-request")["detail"]


@pytest.mark.parametrize(
    "ends", [{"from": 5}, {"to": 5}, {"from": 9, "to": 9}, {"from": 1, "to": True}]
)
def test_a_range_has_two_ends(holding: TestClient, ends: dict[str, Any]) -> None:
    refused = asked(holding, {"aggregate": "mean", **ends})
    assert "expected two times, rising" in problem(refused, 422, "invalid-request")["detail"]


def test_a_change_can_be_scraped(holding: TestClient) -> None:
    query = {"aggregate": "mean", "decay": QUARTER, "versus": {"ago": "1h"}}
    url = "/v1/streams/s/questions/change_1h"
    assert holding.put(url, json={"query": query}).status_code == 201
    nonsense = query | {"versus": {"ago": "an hour"}}
    assert holding.put("/v1/streams/s/questions/x", json={"query": nonsense}).status_code == 422
    assert 'query="change_1h"' in holding.get("/v1/streams/s/prometheus").text
