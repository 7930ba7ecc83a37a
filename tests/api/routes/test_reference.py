"""The page of the description: complete, and it loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import re

from fastapi.testclient import TestClient


def test_it_lists_every_operation(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    headings = re.findall(r"<h2><code>([A-Z]+) ([^<]+)</code></h2>", page.text)
    paths = client.get("/openapi.json").json()["paths"]
    assert headings == [
        (method.upper(), path) for path, operations in paths.items() for method in operations
    ]


def test_nothing_leaves_the_host(client: TestClient) -> None:
    page = client.get("/docs")
    assert "<script" not in page.text
    assert re.findall(r'(?:src|href|action)="([^"]*)"', page.text) == ["/openapi.json"]
    assert "http" not in re.sub(r"<[^>]*>", "", page.text).replace("httpx", "")
    (style,) = re.findall(r"<style>(.*?)</style>", page.text)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = page.headers["content-security-policy"]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"


def test_the_methods_of_a_path_are_told(client: TestClient) -> None:
    refused = client.patch("/v1/streams/s")
    assert refused.status_code == 405
    assert refused.headers["allow"] == "DELETE, GET, HEAD, PUT"
