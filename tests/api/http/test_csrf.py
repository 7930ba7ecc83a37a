"""A server that asks for no key, and the pages and proxies that reach it on behalf of others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from service import NOW, OCTETS, PARAMS, build, posted, problem
from support.rows import for_each

from api.app import create_app
from api.routes import ROUTERS
from api.settings import Settings
from decaysketch.client.posting import Poster

OWN = "http://localhost"
QUERY = {"queries": [{"aggregate": "count", "decay": {"kind": "none"}, "now": NOW}]}
JSON = {"Content-Type": "application/json"}
REVOKE = "/v1/streams/s/sources/pump/revoke"

# What a browser says of a page elsewhere; the last two are of browsers without Sec-Fetch-Site.
FOREIGN = [
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Origin": "http://evil.example"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Origin": "http://localhost:3000"},
    {"Sec-Fetch-Site": "something new"},
    {"Sec-Fetch-Site": "none", "Origin": "http://evil.example"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
]
# What it says of the page of this server, and of its user; programs say nothing.
OWN_PAGE = [
    {},
    {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Origin": OWN},
    {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    {"Origin": OWN},
    {"Origin": "HTTP://LocalHost:80"},
]


@pytest.fixture
def holding(stream: TestClient) -> TestClient:
    """An open aggregator whose stream ``s`` holds a post of ``pump``."""
    sent = stream.post("/v1/streams/s/sketches?source=pump", content=build(1).to_bytes(),
                       headers=OCTETS)  # fmt: skip
    posted(sent)
    return stream


def held(client: TestClient) -> list[str]:
    """The sources of the stream, and those that are revoked."""
    state = client.get("/v1/streams/s").json()
    return [each["source"] for each in state["sources"]] + state["revoked"]


def requests_that_change(headers: dict[str, str]) -> list[tuple[str, str, dict[str, Any]]]:
    """One of each unsafe route, as a page could make it at best."""
    body = build(2).to_bytes()
    raw = {"observations": [{"time": 1, "id": 1}]}
    key = {"role": "read", "scope": ["*"]}
    curve = {"decay": {"kind": "none"}, "ages": {"stop": 1}}
    mappings = [
        {"format": "chirpstack", "value": "object.t"},
        {"format": "influx", "measurement": "m", "value": "f"},
        {"format": "otlp", "metric": "m"},
        {"format": "prometheus", "metric": "m"},
    ]
    params = {"params": PARAMS.to_dict(), "ingest": {"map": mappings}}
    line = {"content": b"m f=1 1700000000000000000", "headers": headers}
    empty = {"content": b"", "headers": {"content-type": "application/x-protobuf"} | headers}
    creation = {"content": b"q=CREATE+DATABASE+t", "headers": headers}
    monitor = {"kind": "threshold", "question": "count", "above": 9.0, "decay": "none"}
    question = {"query": {"aggregate": "count", "decay": {"kind": "none"}}}
    report = {"inc": 1, "seq": 1, "held": {}}
    topk = {"k": 1, "decay": "none"}
    word = {"site": "x", "inc": 1, "seq": 1, "as_of": 0, "asked": None, "base": None,
            "entries": [], "rest": 0}  # fmt: skip
    as_json = {"headers": JSON | headers}
    return [
        ("POST", REVOKE, as_json),
        ("POST", "/v1/streams/s/sources/pump/reinstate", as_json),
        ("POST", "/v1/streams/s/sketches?source=x",
         {"content": body, "headers": OCTETS | headers}),
        ("POST", "/v1/streams/s/observations?source=x", {"json": raw, **as_json}),
        ("POST", "/v1/streams/s/query", {"json": QUERY, **as_json}),
        ("POST", "/v1/query", {"json": QUERY | {"streams": ["s"]}, **as_json}),
        ("POST", "/v1/decays/curve", {"json": curve, **as_json}),
        ("POST", "/v1/keys", {"json": key, **as_json}),
        ("POST", "/v1/keys/zzzzzzzz/rotate", {"json": {}, **as_json}),
        ("DELETE", "/v1/keys/zzzzzzzz", {"headers": headers}),
        ("PUT", "/v1/streams/t", {"json": params, **as_json}),
        ("POST", "/v1/streams/t/lorawan?format=chirpstack&event=join", {"json": {}, **as_json}),
        ("POST", "/v1/streams/t/otlp/v1/metrics", {"json": {}, **as_json}),
        ("POST", "/v1/streams/t/prometheus/write", empty),
        ("POST", "/api/v2/write?bucket=t", line),
        ("POST", "/write?db=t", line),
        ("POST", "/api/v3/write_lp?db=t", line),
        ("POST", "/query", creation),
        ("POST", "/v1/streams/t/influx/api/v2/write", line),
        ("POST", "/v1/streams/t/influx/write", line),
        ("POST", "/v1/streams/t/influx/api/v3/write_lp", line),
        ("POST", "/v1/streams/t/influx/query", creation),
        ("PUT", "/v1/streams/s/monitors/m", {"json": monitor, **as_json}),
        ("POST", "/v1/streams/s/reports?source=x", {"json": report, **as_json}),
        ("DELETE", "/v1/streams/s/monitors/m", {"headers": headers}),
        ("PUT", "/v1/streams/s/questions/q", {"json": question, **as_json}),
        ("DELETE", "/v1/streams/s/questions/q", {"headers": headers}),
        ("POST", "/v1/streams/none/withdrawals", {"json": {"ids": [1]}, **as_json}),
        ("DELETE", "/v1/streams/none/withdrawals?where=x", {"headers": headers}),
        ("PUT", "/v1/streams/none/functions/f", {"json": {}, **as_json}),
        ("POST", "/v1/streams/s/functions/f/exchange?source=x", {
            "json": {"epoch": None, "messages": []}, **as_json,
        }),
        ("DELETE", "/v1/streams/s/functions/f", {"headers": headers}),
        ("PUT", "/v1/streams/s/topk/t", {"json": topk, **as_json}),
        ("POST", "/v1/streams/s/topk/t/posts?source=x", {"json": word, **as_json}),
        ("DELETE", "/v1/streams/s/topk/t", {"headers": headers}),
        ("DELETE", "/v1/streams/s/sources/pump/intervals?first=0&next=9", {"headers": headers}),
        ("DELETE", "/v1/streams/s", {"headers": headers}),
    ]  # fmt: skip


def test_every_unsafe_route_is_tried() -> None:
    unsafe = {
        (method, route.path)
        for router in ROUTERS
        for route in router.routes
        for method in route.methods - {"GET", "HEAD"}  # type: ignore[attr-defined]
    }
    assert len(requests_that_change({})) == len(unsafe)


@for_each("headers", FOREIGN)
def test_a_foreign_page_changes_nothing(holding: TestClient, headers: dict[str, str]) -> None:
    for method, path, sent in requests_that_change(headers):
        problem(holding.request(method, path, **sent), 403, "foreign-page")
    assert held(holding) == ["pump"]
    assert holding.get("/v1/keys").json() == {"keys": []}


@pytest.mark.parametrize("headers", OWN_PAGE, ids=str)
def test_the_own_page_and_programs_are_served(holding: TestClient, headers: dict[str, str]) -> None:
    for method, path, sent in requests_that_change(headers):
        answer = holding.request(method, path, **sent)
        assert answer.status_code < 300 or answer.status_code == 404, (path, answer.text)
    assert [each["name"] for each in holding.get("/v1/streams").json()["streams"]] == ["t"]


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8000", "http://localhost:8000", 204),
        ("[::1]:8000", "http://[::1]:8000", 204),
        ("127.0.0.1", "http://127.0.0.1:80", 204),
        ("localhost:8000", "http://localhost:3000", 403),
        ("localhost:8000", "http://localhost", 403),
        ("localhost:8000", "http://127.0.0.1:8000", 403),
        ("localhost:8000", "https://localhost:8000", 403),
        ("localhost:8000", "http://localhost:8000.evil.example", 403),
        ("localhost:8000", "", 403),
    ],
)
def test_an_origin_is_scheme_name_and_port(
    holding: TestClient, host: str, origin: str, status: int
) -> None:
    answer = holding.post(REVOKE, headers=JSON | {"Host": host, "Origin": origin})
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
)
@pytest.mark.parametrize("verb", ["revoke", "reinstate"])
def test_what_a_form_can_send_revokes_and_reinstates_nothing(
    holding: TestClient, content_type: str | None, verb: str
) -> None:
    """Even of a browser that tells nothing of the page."""
    headers = {} if content_type is None else {"Content-Type": content_type}
    if verb == "reinstate":
        assert holding.post(REVOKE, headers=JSON).status_code == 204
    before = held(holding), holding.get("/v1/streams/s").json()["revoked"]
    answer = holding.post(f"/v1/streams/s/sources/pump/{verb}", headers=headers)
    problem(answer, 415, "unsupported-media-type")
    assert (held(holding), holding.get("/v1/streams/s").json()["revoked"]) == before
    for body in (b"", b"{}"):
        path = f"/v1/streams/s/sources/pump/{verb}"
        again = holding.post(path, content=body, headers=JSON)
        assert again.status_code in (204, 404)  # the second time there is none to reinstate


def test_the_client_revokes_and_reinstates(holding: TestClient) -> None:
    Poster(holding, "s").clear("pump")  # type: ignore[arg-type]
    assert held(holding) == []


READING = [
    f"/v1/streams/s/query?request={{\"queries\":[{{\"aggregate\":\"count\",\"now\":{NOW},"
    '"decay":{"kind":"none"}}]}',
    "/v1/streams/s/live?request={}",
    "/v1/streams",
    "/metrics",
    "/",
    "/assets/app.js",
]  # fmt: skip


SITES = ("cross-site", "same-site")
KINDS = (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe"))


@for_each(
    "path, site, mode, dest",
    [(path, site, *kind) for path in READING for site in SITES for kind in KINDS],
)
def test_a_foreign_page_has_nothing_computed_and_takes_no_place(
    holding: TestClient, path: str, site: str, mode: str, dest: str
) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    problem(holding.get(path, headers=headers), 403, "foreign-page")
    assert holding.head(path, headers=headers).status_code == 403


@for_each("path", ["/", "/docs", "/v1/streams/s"])
def test_a_link_from_elsewhere_leads_here(holding: TestClient, path: str) -> None:
    link = {
        "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"
    }  # fmt: skip
    assert holding.get(path, headers=link).status_code == 200


@contextmanager
def serving(data: Path, **settings: Any) -> Iterator[TestClient]:
    app = create_app(Settings(data=str(data), **settings))
    with TestClient(app, base_url=OWN) as client:
        yield client


PROXIED = ["X-Forwarded-For", "X-Forwarded-Proto", "x-forwarded-host", "X-Forwarded-Anything",
           "X-Real-IP", "Forwarded", "Via"]  # fmt: skip


@pytest.mark.parametrize("auth", [None, "off"])
def test_a_proxy_in_front_of_an_open_server_opens_nothing(
    data: Path, caplog: pytest.LogCaptureFixture, auth: Any
) -> None:
    tried = [("GET", "/v1/streams"), ("PUT", "/v1/streams/s"), ("GET", "/")]
    with serving(data, auth=auth) as client:
        for header, (method, path) in itertools.product(PROXIED, tried):
            refused = client.request(method, path, headers={header: "1"})
            detail = problem(refused, 403, "behind-a-proxy")["detail"]
            assert "DECAYSKETCH_AUTH=keys" in detail, header
        assert client.get("/v1/streams").json() == {"streams": []}
    told = [each for each in caplog.records if "requests come through a proxy" in each.getMessage()]
    assert len(told) == 1


@pytest.fixture
def keyed(data: Path) -> Iterator[tuple[TestClient, str]]:
    """A server that wants keys, and one."""
    with serving(data) as client:
        key = client.post("/v1/keys", json={"role": "admin", "scope": ["*"]}).json()["key"]
    with serving(data, auth="keys") as client:
        yield client, key


@for_each("headers", [{"X-Forwarded-For": "192.0.2.7"}, {"Via": "1.1 caddy"}, *FOREIGN])
def test_with_keys_it_is_the_key_that_counts(
    keyed: tuple[TestClient, str], headers: dict[str, str]
) -> None:
    """No page of another site has one, and a proxy is what stands in front there."""
    client, key = keyed
    problem(client.get("/v1/streams", headers=headers), 401)
    own = headers | {"Authorization": f"Bearer {key}"}
    answer: Response = client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}, headers=own)
    assert answer.status_code == 201, answer.text
    assert client.delete("/v1/streams/s", headers=own).status_code == 204
