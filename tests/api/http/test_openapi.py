"""The description: complete, consistent, and its examples work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI
from fastapi.testclient import TestClient

ROOT = Path(__file__).parents[3]


@pytest.fixture
def description(client: TestClient) -> dict[str, Any]:
    content: dict[str, Any] = client.get("/openapi.json").json()
    return content


def operations(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


def test_the_description_is_openapi(description: dict[str, Any]) -> None:
    assert description["openapi"].startswith("3.1")
    OpenAPI.model_validate(description)


def test_every_reference_leads_somewhere_and_every_schema_is_used(
    description: dict[str, Any],
) -> None:
    defined = {f"#/components/schemas/{name}" for name in description["components"]["schemas"]}
    assert set(references(description)) == defined


def test_every_operation_is_described(description: dict[str, Any]) -> None:
    seen = []
    for _, path, operation in operations(description):
        seen.append(operation["operationId"])
        assert operation["summary"], path
        assert operation["description"], path
        assert operation["tags"], path
        for status, response in operation["responses"].items():
            if status >= "400":
                others = {"application/x-protobuf"} if path.endswith("/otlp/v1/metrics") else set()
                assert response["content"].keys() == {"application/problem+json", *others}, path
    assert sorted(seen) == [
        "create_database",
        "delete_function",
        "delete_key",
        "delete_monitor",
        "delete_question",
        "delete_stream",
        "delete_topk",
        "end_withdrawal",
        "get_caller",
        "get_coverage",
        "get_events",
        "get_families",
        "get_function",
        "get_history",
        "get_live",
        "get_monitor",
        "get_prometheus",
        "get_query",
        "get_service",
        "get_sketch",
        "get_stream",
        "get_topk",
        "get_topk_ask",
        "health",
        "healthz",
        "list_all_monitors",
        "list_devices",
        "list_functions",
        "list_keys",
        "list_monitors",
        "list_questions",
        "list_sources",
        "list_streams",
        "list_topk",
        "list_withdrawals",
        "metrics",
        "ping",
        "post_curve",
        "post_exchange",
        "post_group_query",
        "post_key",
        "post_lorawan",
        "post_metrics",
        "post_observations",
        "post_query",
        "post_report",
        "post_sketches",
        "post_topk",
        "put_function",
        "put_monitor",
        "put_question",
        "put_stream",
        "put_topk",
        "readyz",
        "reinstate_source",
        "release_interval",
        "revoke_source",
        "rotate_key",
        "withdraw",
        "write_lines",
        "write_lines_3",
        "write_lines_as_to_a_database",
        "write_lines_of_bucket",
        "write_lines_of_database",
        "write_lines_of_database_3",
        "write_samples",
    ]


def test_every_route_is_in_the_short_description(description: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    for method, path, _ in operations(description):
        assert re.search(rf"`{method.upper()} {re.escape(path)}[`\[?]", text), (method, path)


def test_the_examples_work(client: TestClient, description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    creations = schemas["StreamCreation"]["examples"]
    (query,) = schemas["QueryRequest"]["examples"]
    families = [None, "integral", "sum", "median", "ecm", "extremes", "series"]
    assert [each.get("family") for each in creations] == families
    for name, creation in zip(("ward-7", "i", "s", "m", "k", "e", "r"), creations, strict=True):
        assert client.put(f"/v1/streams/{name}", json=creation).status_code == 201
    answers = client.post("/v1/streams/ward-7/query", json=query).json()["answers"]
    assert [each["aggregate"] for each in answers] == [
        each["aggregate"] for each in query["queries"]
    ]


def test_the_page_is_served(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert "text/html" in page.headers["content-type"]
