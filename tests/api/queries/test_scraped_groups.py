"""Configured queries with groups: labels for each group, and a bound on how many."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

ROWS = [{"value": number, "time": 1_000 * number, "id": number, "weight": 1 + number % 2}
        for number in range(1, 51)]  # fmt: skip


@pytest.fixture
def holding(client: TestClient) -> TestClient:
    client.put("/v1/streams/g", json={"params": {"time_unit": "ms", "max_weight": 2}})
    posted = client.post("/v1/streams/g/observations?source=a", json={"observations": ROWS})
    assert posted.status_code == 200, posted.text
    return client


def put(client: TestClient, query: dict[str, Any]) -> Any:
    return client.put("/v1/streams/g/questions/q", json={"query": query})


def test_each_group_is_a_sample_with_its_keys_as_labels(holding: TestClient) -> None:
    query = {"ask": "count() by w, v > 10 where v > 1", "decay": "none"}
    configured = put(holding, query)
    assert configured.status_code == 201, configured.text
    text = holding.get("/v1/streams/g/prometheus").text
    found = re.findall(r"^decaysketch_answer\{([^}]*)\} (\S+)$", text, re.MULTILINE)
    labels = [dict(re.findall(r'(\w+)="([^"]*)"', each)) for each, _ in found]
    assert {(each["w"], each["v_10"]) for each in labels} == {
        ("1", "true"), ("1", "false"), ("2", "true"), ("2", "false"),
    }  # fmt: skip
    assert sum(float(value) for _, value in found) == 49.0
    assert re.search(r"^decaysketch_answer_unseen\{.*\} 0.0$", text, re.MULTILINE)


def test_twenty_groups_are_listed_unless_it_says_how_many(holding: TestClient) -> None:
    query = {"aggregate": "count", "by": ["v"], "decay": "none"}
    assert put(holding, query).status_code == 201
    text = holding.get("/v1/streams/g/prometheus").text
    assert len(re.findall(r"^decaysketch_answer\{", text, re.MULTILINE)) == 20
    assert put(holding, query | {"groups": 30}).status_code == 200
    text = holding.get("/v1/streams/g/prometheus").text
    assert len(re.findall(r"^decaysketch_answer\{", text, re.MULTILINE)) == 30
    refused = put(holding, query | {"groups": 101})
    assert refused.status_code == 422
    assert "fewer groups" in refused.text


def test_what_could_not_be_answered_is_rejected_when_it_is_configured(holding: TestClient) -> None:
    refused = put(holding, {"aggregate": "mean", "where": "x > 1", "decay": "none"})
    assert refused.status_code == 422
    assert "'x' at character 0" in refused.text
