"""Posts of sketches and observations: one code path, which FastAPI describes and does not run."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from service import LOCAL, NOW, OCTETS, PARAMS, build
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import Receive, Scope, Send

from api.app import create_app
from api.routes.observations import ObservationParameters
from api.routes.sketches import SketchParameters
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
def test_a_post_passes_no_code_of_fastapi(
    client: TestClient, by_fastapi: list[str], kind: str, status: int, body: bytes,
    headers: dict[str, str], more: str,
) -> None:  # fmt: skip
    path = f"/v1/streams/s/{kind}"
    plain, encoded = (
        client.post(f"{path}?source={source}{more}", content=body, headers=headers)
        for source in ("p", "%71")
    )
    assert plain.status_code == status, plain.text
    assert said(plain, "p") == said(encoded, "q")
    assert by_fastapi == []


@pytest.mark.parametrize(
    ("stream", "source", "status"), [("none", "p", 404), ("s", "r", 403), ("secret", "p", 403)]
)
@pytest.mark.parametrize("kind", ["sketches", "observations"])
def test_a_stream_may_reject_a_source(
    client: TestClient, kind: str, stream: str, source: str, status: int
) -> None:
    body, headers = (BODY, OCTETS) if kind == "sketches" else (ROWS, LINES)
    path = f"/v1/streams/{stream}/{kind}"
    answer = client.post(f"{path}?source={source}", content=body, headers=headers)
    expected = 200 if (stream, kind) == ("secret", "observations") else status
    assert answer.status_code == expected, answer.text


@pytest.mark.parametrize(
    ("target", "status", "fields"),
    [
        ("s/sketches?source=%70", 200, []),
        ("s/sketches?source=p&first=1", 422, ["next"]),
        ("s/sketches?source=p&next=1", 422, ["first"]),
        ("s/sketches?source=p&first=x&next=-1", 422, ["first", "next"]),
        ("s/sketches?source=p&source=q", 200, []),
        ("s/sketches?source=", 422, ["source"]),
        ("s/sketches", 422, ["source"]),
        ("-s/sketches", 422, ["name", "source"]),
        ("s/observations?source=p&verdicts=odd", 422, ["verdicts"]),
        ("s/observations?source=p&check_units=maybe", 422, ["check_units"]),
        ("s/observations?source=p&time_zone=" + "x" * 101, 422, ["time_zone"]),
        ("s/sketches/?source=p", 404, []),
    ],
)
def test_parameters_are_read_by_the_model_that_is_described(
    client: TestClient, target: str, status: int, fields: list[str]
) -> None:
    answer = client.post(f"/v1/streams/{target}", content=BODY, headers=OCTETS)
    assert answer.status_code == status, answer.text
    faults = answer.json().get("errors", [])
    assert [fault["field"].rpartition(".")[2] for fault in faults] == fields


@pytest.mark.parametrize("kind", ["sketches", "observations"])
def test_every_parameter_of_the_model_is_described(client: TestClient, kind: str) -> None:
    operation = client.get("/openapi.json").json()["paths"][f"/v1/streams/{{name}}/{kind}"]["post"]
    model = {"sketches": SketchParameters, "observations": ObservationParameters}[kind]
    described = {each["name"] for each in operation["parameters"]} - {"name"}
    assert described == set(model.model_json_schema(by_alias=True)["properties"])


@pytest.mark.parametrize("kind", ["sketches", "observations"])
def test_the_route_below_another_path_has_the_same_handler(
    client: TestClient, by_fastapi: list[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The framework routes a request if the application is mounted below a path."""
    body, headers = (BODY, OCTETS) if kind == "sketches" else (ROWS, LINES)
    path = f"/v1/streams/s/{kind}?source="
    sources = ("p", "")
    plain = [client.post(path + each, content=body, headers=headers) for each in sources]
    monkeypatch.setattr(client._transport, "root_path", "/below")
    below = [client.post(path + each, content=body, headers=headers) for each in sources]
    for answers in (plain, below):
        assert [each.status_code for each in answers] == [200, 422]
    assert said(plain[1], "p") == said(below[1], "p")
    assert len(by_fastapi) == 2


def test_rejections_are_counted(client: TestClient) -> None:
    def counted() -> float:
        for line in client.get("/metrics").text.splitlines():
            if line.startswith("decaysketch_refused_total") and "corrupt-sketch" in line:
                return float(line.split()[-1])
        return 0.0

    for source in ("p", "%71"):
        before = counted()
        client.post(f"/v1/streams/s/sketches?source={source}", content=b"x", headers=OCTETS)
        assert counted() == before + 1


def test_an_internal_error_has_no_details(
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
