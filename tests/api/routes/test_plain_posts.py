"""Plain posts are answered before FastAPI looks at them: as it would have answered them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from httpx2 import Response
from service import LOCAL, NOW, OCTETS, PARAMS, build
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import Receive, Scope, Send

from api.app import create_app
from api.routes import observations, sketches
from api.settings import Settings

LINES = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}
BODY = build(1).to_bytes()
ROWS = b'{"value": 1.5, "time": %d, "id": 1}\n{"value": 2, "time": %d, "id": 2}' % (NOW, NOW)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    data = tmp_path_factory.mktemp("plain") / "aggregator.sqlite3"
    settings = Settings(data=str(data), max_post_rows=5_000, max_body_bytes=100_000)
    with TestClient(create_app(settings), base_url=LOCAL) as client:
        for name, more in (("s", {}), ("secret", {"secret_ids": True})):
            body = {"params": PARAMS.to_dict(), **more}
            assert client.put(f"/v1/streams/{name}", json=body).status_code == 201
        for source in "rs":
            revoked = client.post(f"/v1/streams/s/sources/{source}/revoke", headers=JSON)
            assert revoked.status_code == 204
        yield client


@pytest.fixture
def by_fastapi(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries of requests that FastAPI was handed."""
    seen: list[str] = []
    inner = ServerErrorMiddleware.__call__

    async def noting(
        self: ServerErrorMiddleware, scope: Scope, receive: Receive, send: Send
    ) -> None:
        seen.append(scope["query_string"].decode())
        await inner(self, scope, receive, send)

    monkeypatch.setattr(ServerErrorMiddleware, "__call__", noting)
    return seen


def said(answer: Response, source: str) -> tuple[Any, ...]:
    """All of an answer but what is of this one post."""
    headers = dict(answer.headers)
    assert headers.pop("x-request-id")
    text = answer.text.replace(f'"source":"{source}"', '"source":"."')
    text = text.replace(f"source {source!r}", "source .")
    text, numbers = re.subn(r"(:[0-9a-f]{16}):[0-9]+", r"\1", text)
    if numbers:  # as many digits, or more
        del headers["content-length"]
    return answer.status_code, text, headers


SKETCHES = [
    (200, BODY, OCTETS, ""),
    (200, BODY, OCTETS, "&odd=1"),
    (200, BODY, OCTETS | {"x-request-id": "mine"}, ""),
    (200, BODY, {"content-type": "Application/Octet-Stream; a=b"}, ""),
    (200, gzip.compress(BODY), OCTETS | {"content-encoding": "gzip"}, ""),
    (200, len(BODY).to_bytes(4, "little") + BODY,
     {"content-type": "application/vnd.decaysketch.sketches"}, ""),
    (409, build(1, params=replace(PARAMS, seed=PARAMS.seed + 1)).to_bytes(), OCTETS, ""),
    (413, bytes(100_001), OCTETS, ""),
    (415, BODY, {}, ""),
    (415, BODY, JSON, ""),
    (415, BODY, OCTETS | {"content-encoding": "br"}, ""),
    (422, b"", OCTETS, ""),
    (422, b"rubbish", OCTETS, ""),
    (422, BODY[:-1] + bytes([BODY[-1] ^ 1]), OCTETS, ""),
    (422, BODY, OCTETS | {"content-encoding": "gzip"}, ""),
    (422, BODY, OCTETS | {"decaysketch-site": "x"}, ""),
    (403, BODY, OCTETS | {"origin": "http://elsewhere"}, ""),
    (403, BODY, OCTETS | {"via": "1.1 proxy"}, ""),
    (421, BODY, OCTETS | {"host": "elsewhere"}, ""),
]  # fmt: skip
OBSERVATIONS = [
    (200, ROWS, LINES, ""),
    (200, ROWS, LINES, "&verdicts=counts"),
    (200, ROWS, LINES, "&verdicts=rows&odd=1"),
    (200, json.dumps({"observations": []}).encode(), JSON, ""),
    (200, ROWS + b'\n{"value": "x", "time": 1, "id": "\xc3\xa9"}', LINES, ""),
    (413, ROWS * 2_000, LINES, ""),
    (415, ROWS, OCTETS, ""),
    (422, b'{"value": "x", "time": 1, "id": 1}', LINES, ""),
    (422, b"{", JSON, ""),
]


@pytest.mark.parametrize(
    ("kind", "status", "body", "headers", "more"),
    [("sketches", *case) for case in SKETCHES] + [("observations", *case) for case in OBSERVATIONS],
)
def test_both_roads_give_the_same_answer(
    client: TestClient, by_fastapi: list[str], kind: str, status: int, body: bytes,
    headers: dict[str, str], more: str,
) -> None:  # fmt: skip
    path = f"/v1/streams/s/{kind}"
    plain, careful = (
        client.post(f"{path}?source={source}{more}", content=body, headers=headers)
        for source in ("p", "%71")
    )
    assert plain.status_code == status, plain.text
    assert said(plain, "p") == said(careful, "q")
    assert by_fastapi in ([f"source=%71{more}"], [])  # or a door was shut before both


@pytest.mark.parametrize(
    ("stream", "source", "status"), [("none", "p", 404), ("s", "r", 403), ("secret", "p", 403)]
)
@pytest.mark.parametrize("kind", ["sketches", "observations"])
def test_both_roads_refuse_the_same(
    client: TestClient, kind: str, stream: str, source: str, status: int
) -> None:
    other = {"p": "q", "r": "s"}[source]
    body, headers = (BODY, OCTETS) if kind == "sketches" else (ROWS, LINES)
    path = f"/v1/streams/{stream}/{kind}"
    plain = client.post(f"{path}?source={source}", content=body, headers=headers)
    careful = client.post(f"{path}?source=%{ord(other):x}", content=body, headers=headers)
    if (stream, kind) == ("secret", "observations"):
        status = 200
    assert plain.status_code == status, plain.text
    assert said(plain, source) == said(careful, other)


@pytest.mark.parametrize(
    "target",
    [
        "s/sketches?source=%70",
        "s/sketches?source=p&first=1",
        "s/sketches?source=p&next=1",
        "s/sketches?source=p&source=q",
        "s/sketches?source=",
        "s/sketches",
        "s/observations?source=p&verdicts=odd",
        "s/observations?source=p&odd=1&verdicts=rows",
        "s/observations?source=p&verdicts=rows&verdicts=rows",
        "-s/sketches?source=p",
        "s/sketches/?source=p",
    ],
)
def test_what_is_not_plain_is_left_to_fastapi(
    client: TestClient, by_fastapi: list[str], target: str
) -> None:
    client.post(f"/v1/streams/{target}", content=BODY, headers=OCTETS)
    assert len(by_fastapi) == 1


@pytest.mark.parametrize("kind", ["sketches", "observations"])
def test_no_parameter_that_a_route_knows_is_passed_over(client: TestClient, kind: str) -> None:
    assert isinstance(client.app, FastAPI)
    path = f"/v1/streams/{{name}}/{kind}"
    (route,) = (
        each
        for each in iter_route_contexts(client.app.routes)
        if each.path == path and "POST" in (each.methods or ())
    )
    known = {each.alias for each in route.dependant.query_params}
    assert known >= {"source", "first", "next"}
    plain = {"sketches": sketches, "observations": observations}[kind].PLAIN.query
    for name in known - {"verdicts"}:
        assert plain.fullmatch(b"source=p&%b=1" % name.encode()) is None, name
    assert plain.fullmatch(b"source=p&odd=1")


def test_refusals_are_counted_on_both_roads(client: TestClient) -> None:
    def counted() -> float:
        for line in client.get("/metrics").text.splitlines():
            if line.startswith("decaysketch_refused_total") and "corrupt-sketch" in line:
                return float(line.split()[-1])
        return 0.0

    for source in ("p", "%71"):
        before = counted()
        client.post(f"/v1/streams/s/sketches?source={source}", content=b"x", headers=OCTETS)
        assert counted() == before + 1


def test_an_error_of_our_own_is_told_on_both_roads(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: object, name: str) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr("api.service.aggregator.Aggregator.find", fail)
    quiet = TestClient(client.app, base_url=LOCAL, raise_server_exceptions=False)
    answers = [
        quiet.post(f"/v1/streams/s/sketches?source={source}", content=BODY, headers=OCTETS)
        for source in ("p", "%71")
    ]
    assert answers[0].status_code == 500
    assert "secret" not in answers[0].text
    assert said(answers[0], "p") == said(answers[1], "q")
