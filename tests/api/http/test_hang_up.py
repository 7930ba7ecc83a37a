"""A client that leaves in the middle of its body: no route fails, and the log stays short."""

from __future__ import annotations

import gzip
import itertools
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service import PARAMS
from starlette.types import Message

from api.http.refusals import CLIENT_LEFT

_MAPS = [
    {"format": "influx", "measurement": "m", "value": "v"},
    {"format": "otlp", "metric": "m"},
    {"format": "prometheus", "metric": "m"},
    {"format": "chirpstack", "value": "object.t"},
]
_GIVEN = {"name": "s", "source": "a", "bucket": "s", "db": "s", "format": "chirpstack"}
_GZIPPED = 3 * gzip.compress(b"{" * 1000)  # each part is inflated by itself
_BODY_IGNORED = {
    "/v1/streams/{name}/sources/{source}/revoke",
    "/v1/streams/{name}/sources/{source}/reinstate",
}


def _requests(document: dict[str, Any]) -> Iterator[tuple[str, str, str, str, str]]:
    """Every operation that accepts a body: template, method, path, query and media type."""
    for template, operations in document["paths"].items():
        for method, operation in operations.items():
            required = {each["name"] for each in operation.get("parameters", ())
                        if each["in"] == "query" and each.get("required")}  # fmt: skip
            query = "&".join(f"{name}={_GIVEN.get(name, 'x')}" for name in sorted(required))
            path = re.sub(r"{(\w+)}", lambda name: _GIVEN.get(name[1], "x"), template)
            for media in operation.get("requestBody", {}).get("content", ()):
                yield template, method.upper(), path, query, media


def _hang_up(
    client: TestClient,
    method: str,
    path: str,
    query: str,
    media: str,
    coding: bytes,
    body: bytes,
    state: dict[str, Any],
) -> list[int]:
    """Statuses of the responses to a request whose client leaves after some bytes of the body."""
    messages: list[Message] = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": body, "more_body": not state},
    ]
    statuses: list[int] = []
    headers = [
        (b"host", b"localhost"),
        (b"content-type", media.encode()),
        (b"content-length", b"1000"),
    ]
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": headers + [(b"content-encoding", coding)] * bool(coding),
        "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 80), "state": state,
    }  # fmt: skip

    async def receive() -> Message:
        return messages.pop() if len(messages) > 1 else messages[0]

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    assert client.portal is not None
    client.portal.call(client.app, scope, receive, send)  # raises what leaves the application
    return statuses


@pytest.mark.parametrize(
    ("coding", "body", "is_inflated"),
    [(b"", b"{", False), (b"gzip", _GZIPPED[:15], False), (b"gzip", _GZIPPED, True)],
    ids=["plain", "gzip", "inflated"],
)
def test_no_route_fails_where_the_client_leaves(
    stream: TestClient,
    coding: bytes,
    body: bytes,
    is_inflated: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before the body has arrived, or while it is inflated."""
    form = {"params": PARAMS.to_dict(), "ingest": {"map": _MAPS}}
    assert stream.put("/v1/streams/s", json=form).status_code == 200
    requests = list(_requests(stream.get("/openapi.json").json()))
    assert len(requests) > 20
    with caplog.at_level(logging.WARNING):
        for template, *request in requests:
            looks = itertools.chain([False, False], itertools.repeat(True))
            state = {"has_left": looks.__next__} if is_inflated else {}
            statuses = _hang_up(stream, *request, coding, body, state)
            if template not in _BODY_IGNORED:
                assert statuses == [CLIENT_LEFT], (template, statuses)
                assert next(looks) == is_inflated, template  # two parts were inflated
    assert not caplog.records
    metrics = stream.get("/metrics").text
    assert not re.search(r'decaysketch_http_requests_total{[^}]*status="5', metrics)
