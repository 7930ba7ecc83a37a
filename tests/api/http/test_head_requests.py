"""HEAD is GET without the content, of every route and behind the same guards."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from service import NOW, OCTETS, build, posted, problem

from api.app import create_app
from api.settings import Settings

QUERY = f'{{"queries":[{{"aggregate":"count","now":{NOW},"decay":{{"kind":"none"}}}}]}}'
VIEWED = {"params": {"time_unit": "s"}, "views": {"devices": {"id": 0}}}
OF_ITSELF = {"x-request-id"}  # of each request another one
PATHS = {
    "/": "/",
    "/assets/{name:path}": "/assets/app.js",
    "/docs": "/docs",
    "/health": "/health",
    "/healthz": "/healthz",
    "/metrics": "/metrics",
    "/openapi.json": "/openapi.json",
    "/ping": "/ping",
    "/readyz": "/readyz",
    "/v1/caller": "/v1/caller",
    "/v1/families": "/v1/families",
    "/v1/keys": "/v1/keys",
    "/v1/monitors": "/v1/monitors",
    "/v1/service": "/v1/service",
    "/v1/streams": "/v1/streams",
    "/v1/streams/{name}": "/v1/streams/s",
    "/v1/streams/{name}/influx/health": "/v1/streams/s/influx/health",
    "/v1/streams/{name}/influx/ping": "/v1/streams/s/influx/ping",
    "/v1/streams/{name}/coverage": "/v1/streams/s/coverage",
    "/v1/streams/{name}/devices": "/v1/streams/ward/devices",
    "/v1/streams/{name}/events": "/v1/streams/s/events",
    "/v1/streams/{name}/monitors": "/v1/streams/s/monitors",
    "/v1/streams/{name}/monitors/{monitor}": "/v1/streams/s/monitors/m",
    "/v1/streams/{name}/monitors/{monitor}/history": "/v1/streams/s/monitors/m/history",
    "/v1/streams/{name}/functions": "/v1/streams/s/functions",
    "/v1/streams/{name}/functions/{function}": "/v1/streams/s/functions/f",
    "/v1/streams/{name}/topk": "/v1/streams/s/topk",
    "/v1/streams/{name}/topk/{topk}": "/v1/streams/s/topk/t",
    "/v1/streams/{name}/topk/{topk}/ask": "/v1/streams/s/topk/t/ask?source=a",
    "/v1/streams/{name}/sources": "/v1/streams/s/sources",
    "/v1/streams/{name}/withdrawals": "/v1/streams/s/withdrawals",
    "/v1/streams/{name}/live": f"/v1/streams/s/live?request={QUERY}",
    "/v1/streams/{name}/prometheus": "/v1/streams/s/prometheus",
    "/v1/streams/{name}/questions": "/v1/streams/s/questions",
    "/v1/streams/{name}/query": f"/v1/streams/s/query?request={QUERY}",
    "/v1/streams/{name}/sketch": "/v1/streams/s/sketch",
}
ENDLESS = ["/v1/streams/{name}/events", "/v1/streams/{name}/live"]
EMPTY = ["/ping", "/v1/streams/{name}/influx/ping"]
OF_THE_MOMENT = [
    "/metrics",
    "/v1/service",
    "/v1/streams/{name}/functions/{function}",
    "/v1/streams/{name}/monitors/{monitor}",
    "/v1/streams/{name}/monitors/{monitor}/history",
    "/v1/streams/{name}/sources",
    "/v1/streams/{name}/topk/{topk}",
    "/v1/streams/{name}/topk/{topk}/ask",
]


@pytest.fixture
def holding(stream: TestClient) -> TestClient:
    body = build(1).to_bytes()
    posted(stream.post("/v1/streams/s/sketches?source=a", content=body, headers=OCTETS))
    stream.put("/v1/streams/ward", json=VIEWED).raise_for_status()
    rows = {"observations": [{"id": ["t-1", 1], "time": NOW, "value": 1.0}]}
    stream.post("/v1/streams/ward/observations?source=a", json=rows).raise_for_status()
    stream.get("/v1/streams/s/sketch").raise_for_status()
    return stream


def test_every_route_of_get_is_tried(client: TestClient) -> None:
    routes = iter_route_contexts(client.app.routes)  # type: ignore[attr-defined]
    assert {each.path for each in routes if "GET" in (each.methods or ())} == PATHS.keys()


@pytest.mark.parametrize("path", sorted(PATHS.keys() - {*ENDLESS, *EMPTY, *OF_THE_MOMENT}))
def test_the_head_is_that_of_get(holding: TestClient, path: str) -> None:
    got, head = holding.get(PATHS[path]), holding.head(PATHS[path])
    assert (head.status_code, head.content) == (200, b"")
    assert got.content
    assert _headers(head) == _headers(got)
    assert int(head.headers["content-length"]) == len(got.content)
    if etag := got.headers.get("etag"):
        same = holding.head(PATHS[path], headers={"If-None-Match": etag})
        assert (same.status_code, same.headers["etag"]) == (304, etag)


def test_the_head_of_a_history_is_that_of_get(holding: TestClient) -> None:
    """Of a time before any state: later ones are of the moment."""
    monitor = {"kind": "threshold", "question": "count", "above": 9.0, "decay": "none"}
    holding.put("/v1/streams/s/monitors/m", json=monitor).raise_for_status()
    path = PATHS["/v1/streams/{name}/monitors/{monitor}/history"] + "?from=0&to=1"
    got, head = holding.get(path), holding.head(path)
    assert (got.status_code, head.status_code, head.content) == (200, 200, b"")
    assert _headers(head) == _headers(got)
    assert int(head.headers["content-length"]) == len(got.content)


def _headers(answer: Any) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in OF_ITSELF}


def test_an_answer_that_does_not_end_ends_with_its_head(holding: TestClient) -> None:
    for path in ENDLESS * 3:
        head = holding.head(PATHS[path])
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"].startswith("text/event-stream")
    app: Any = holding.app
    assert app.state.live_places.taken == 0  # every place was given back
    assert app.state.event_places.taken == 0


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2", 404),
        ("/v1/streams/nope", 404),
        ("/v1/streams/-/sketch", 422),
        ("/v1/streams/s/query", 422),
        ("/v1/query", 405),
    ],
)
def test_a_refusal_has_no_content_either(holding: TestClient, path: str, status: int) -> None:
    got, head = holding.get(path), holding.head(path)
    assert (head.status_code, head.content) == (status, b"")
    assert _headers(head) == _headers(got)


def test_who_may_not_read_may_not_ask_for_the_head(data: Path) -> None:
    settings = Settings(data=str(data), auth="keys")
    with TestClient(create_app(settings)) as client:
        for route, path in PATHS.items():
            is_open = (not route.startswith("/v1/") and route != "/metrics") or "influx" in route
            head = client.head(path)
            answered = 204 if route in EMPTY else 200
            assert head.status_code == (answered if is_open else 401), route
            assert head.content == b""


@pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
def test_it_is_allowed_where_get_is_and_counted_as_what_it_was(holding: TestClient) -> None:
    refused = holding.patch("/v1/streams/s")
    problem(refused, 405)
    assert refused.headers["allow"] == "DELETE, GET, HEAD, PUT"
    assert holding.head("/v1/streams/s").status_code == 200
    counted = 'method="HEAD",route="/v1/streams/{name}",status="200"'
    assert f"decaysketch_http_requests_total{{{counted}}} 1.0" in holding.get("/metrics").text


def test_over_a_connection_that_goes_on(
    data: Path, server: Callable[..., AbstractContextManager[tuple[Any, Any]]]
) -> None:
    """No byte of content is sent: it would be taken for the head of the next answer."""
    with server(data) as (_, client):
        port = client.base_url.port
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.settimeout(60)
            for path in ("/healthz", "/", "/v2", "/v1/query", "/v1/streams"):
                request = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
                connection.sendall(request.encode())
                received = b""
                while b"\r\n\r\n" not in received:
                    more = connection.recv(65536)
                    assert more, "the connection was closed"
                    received += more
                head, _, rest = received.partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 ")
                assert b"content-length: 0" not in head.lower()
                assert rest == b""


@pytest.mark.parametrize("path", ["/v1/streams/", "/v1/streams/s/", "/docs/", "/healthz/"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST"])
def test_no_address_is_made_of_the_host(stream: TestClient, path: str, method: str) -> None:
    """A trailing slash is another path; a redirect would lead to whatever ``Host`` says."""
    answer = stream.request(method, path, headers={"Host": "localhost"}, follow_redirects=False)
    assert answer.status_code == 404
    assert "location" not in answer.headers
