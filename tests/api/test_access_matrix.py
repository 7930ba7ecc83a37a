"""Every route x every role x streams in and out of scope. A route without a rule fails."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from httpx2 import Response
from service import PARAMS, problem
from support.rows import for_each

from api.access.keys import Role, mint
from api.access.store import SqlKeyStore
from api.app import create_app
from api.http.caller import Requires
from api.settings import Settings
from decaysketch.ecm import ECMParams

# What each route is for. "open": for whoever asks; "all": a reader of every stream.
RULES = {
    "GET /": "open",
    "GET /assets/{name:path}": "open",
    "GET /docs": "open",
    "GET /health": "open",
    "GET /healthz": "open",
    "GET /metrics": "all",
    "GET /openapi.json": "open",
    "GET /ping": "open",
    "GET /readyz": "open",
    "POST /api/v2/write": "write",
    "POST /api/v3/write_lp": "write",
    "POST /query": "write",
    "POST /write": "write",
    "GET /v1/caller": "read",
    "GET /v1/keys": "admin",
    "POST /v1/keys": "admin",
    "DELETE /v1/keys/{prefix}": "admin",
    "POST /v1/keys/{prefix}/rotate": "admin",
    "POST /v1/decays/curve": "read",
    "GET /v1/families": "read",
    "GET /v1/streams/{name}/coverage": "read",
    "GET /v1/streams/{name}/devices": "read",
    "GET /v1/monitors": "read",
    "POST /v1/query": "read",
    "GET /v1/service": "all",
    "GET /v1/streams": "read",
    "GET /v1/streams/{name}": "read",
    "PUT /v1/streams/{name}": "write",
    "DELETE /v1/streams/{name}": "admin",
    "GET /v1/streams/{name}/events": "read",
    "GET /v1/streams/{name}/live": "read",
    "GET /v1/streams/{name}/monitors": "read",
    "POST /v1/streams/{name}/reports": "write",
    "DELETE /v1/streams/{name}/monitors/{monitor}": "admin",
    "GET /v1/streams/{name}/monitors/{monitor}": "read",
    "PUT /v1/streams/{name}/monitors/{monitor}": "admin",
    "GET /v1/streams/{name}/monitors/{monitor}/history": "read",
    "GET /v1/streams/{name}/functions": "read",
    "DELETE /v1/streams/{name}/functions/{function}": "admin",
    "GET /v1/streams/{name}/functions/{function}": "read",
    "PUT /v1/streams/{name}/functions/{function}": "admin",
    "POST /v1/streams/{name}/functions/{function}/exchange": "write",
    "GET /v1/streams/{name}/topk": "read",
    "DELETE /v1/streams/{name}/topk/{topk}": "admin",
    "GET /v1/streams/{name}/topk/{topk}": "read",
    "PUT /v1/streams/{name}/topk/{topk}": "admin",
    "GET /v1/streams/{name}/topk/{topk}/ask": "read",
    "POST /v1/streams/{name}/topk/{topk}/posts": "write",
    "POST /v1/streams/{name}/observations": "write",
    "POST /v1/streams/{name}/lorawan": "write",
    "POST /v1/streams/{name}/otlp/v1/metrics": "write",
    "POST /v1/streams/{name}/prometheus/write": "write",
    "GET /v1/streams/{name}/influx/health": "open",
    "GET /v1/streams/{name}/influx/ping": "open",
    "POST /v1/streams/{name}/influx/query": "write",
    "POST /v1/streams/{name}/influx/write": "write",
    "POST /v1/streams/{name}/influx/api/v2/write": "write",
    "POST /v1/streams/{name}/influx/api/v3/write_lp": "write",
    "GET /v1/streams/{name}/prometheus": "read",
    "GET /v1/streams/{name}/query": "read",
    "GET /v1/streams/{name}/questions": "read",
    "DELETE /v1/streams/{name}/questions/{question}": "admin",
    "PUT /v1/streams/{name}/questions/{question}": "admin",
    "POST /v1/streams/{name}/query": "read",
    "GET /v1/streams/{name}/sketch": "read",
    "POST /v1/streams/{name}/sketches": "write",
    "GET /v1/streams/{name}/sources": "read",
    "DELETE /v1/streams/{name}/withdrawals": "admin",
    "GET /v1/streams/{name}/withdrawals": "admin",
    "POST /v1/streams/{name}/withdrawals": "admin",
    "DELETE /v1/streams/{name}/sources/{source:path}/intervals": "admin",
    "POST /v1/streams/{name}/sources/{source:path}/reinstate": "admin",
    "POST /v1/streams/{name}/sources/{source:path}/revoke": "admin",
}
#: Posts with parameters that are nothing out of the ordinary are not looked at by FastAPI.
PLAIN = [
    "POST /v1/streams/{name}/observations?source=s",
    "POST /v1/streams/{name}/sketches?source=s",
]
GUARDED = sorted([*PLAIN, *(route for route, rule in RULES.items() if rule != "open")])
OWN, OWN_UNKNOWN, FOREIGN, UNKNOWN = "own-1", "own-2", "other-1", "other-2"


def guards(dependant: Any) -> Iterator[Requires]:
    if isinstance(dependant.call, Requires):
        yield dependant.call
    for each in dependant.dependencies:
        yield from guards(each)


@pytest.fixture(scope="module")
def tokens() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def client(
    tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str]
) -> Iterator[TestClient]:
    """An aggregator with a key of each role, of the streams ``own-*`` and of all."""
    data = tmp_path_factory.mktemp("matrix") / "aggregator.sqlite3"
    tokens.update(asyncio.run(_mint_all(data)))
    settings = Settings(data=str(data), host="0.0.0.0")
    with TestClient(create_app(settings)) as client:
        for name in (OWN, FOREIGN):
            created = client.put(
                f"/v1/streams/{name}",
                json={"params": PARAMS.to_dict()},
                headers=bearer(tokens["write *"]),
            )
            assert created.status_code == 201, created.text
        yield client


async def _mint_all(data: Path) -> dict[str, str]:
    store = SqlKeyStore(f"sqlite:///{data}")
    await store.create()
    tokens = {}
    now_us = time.time_ns() // 1000
    for role in Role:
        for scope in ("own-*", "*"):
            row, tokens[f"{role} {scope}"] = mint(role=role, scope=[scope], now_us=now_us)
            await store.put(row)
    row, tokens["expired"] = mint(
        role=Role.ADMIN, scope=["*"], now_us=now_us - 2, expires_us=now_us - 1
    )
    await store.put(row)
    await store.close()
    return tokens


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def request(client: TestClient, route: str, stream: str, headers: dict[str, str]) -> Response:
    """A request that names ``stream`` wherever it can, and is sound as far as guards look."""
    method, path = route.split()
    path = path.replace(":path}", "}")
    if path.startswith("/v1/keys"):
        path = path.replace("{prefix}", "zzzzzzzz")
    path = path.replace("{name}", stream).replace("{source}", "s").replace("{monitor}", "m")
    path = path.replace("{question}", "q")
    path = path.replace("{topk}", "t").replace("{function}", "f")
    if path.endswith("/events"):
        path += "?source="  # refused, once it is let in: the answer does not end
    body = {"streams": [stream], "queries": []} if path == "/v1/query" else {}
    sent = {} if method in ("GET", "DELETE") else {"json": body}
    answer: Response = client.request(method, path, headers=headers, **sent)
    return answer


def named(route: str) -> bool:
    """Whether the route names streams."""
    return "{name}" in route or route == "POST /v1/query"


def test_every_route_has_a_rule_and_the_guard_of_it(client: TestClient) -> None:
    found = {}
    for route in iter_route_contexts(client.app.routes):  # type: ignore[attr-defined]
        dependant = getattr(route, "dependant", None)
        asked = {} if dependant is None else {(g.role, g.every_stream) for g in guards(dependant)}
        assert len(asked) <= 1, route.path
        rule = "open"
        for role, every_stream in asked:
            rule = "all" if every_stream else role.value
        for method in set(route.methods or ()) - {"HEAD"}:
            found[f"{method} {route.path}"] = rule
    assert found == RULES


@for_each("route", GUARDED)
def test_nobody_gets_in_without_a_key_that_is_valid(
    client: TestClient, tokens: dict[str, str], route: str
) -> None:
    wrong = tokens["admin *"][:-1] + ("A" if tokens["admin *"][-1] != "A" else "B")
    for headers in ({}, bearer(wrong), bearer(tokens["expired"]), {"Authorization": "Basic eDp5"}):
        for stream in (OWN, UNKNOWN):
            refused = request(client, route, stream, headers)
            problem(refused, 401)
            assert refused.headers["WWW-Authenticate"] == "Bearer"


@for_each("route, role", [(route, role) for route in GUARDED for role in Role])
def test_the_matrix(client: TestClient, tokens: dict[str, str], route: str, role: Role) -> None:
    rule = RULES[route.partition("?")[0]]
    may = role.includes(Role.READ if rule == "all" else Role(rule))
    everything, own = (bearer(tokens[f"{role} {scope}"]) for scope in ("*", "own-*"))
    seen = {
        stream: request(client, route, stream, own)
        for stream in (OWN, OWN_UNKNOWN, FOREIGN, UNKNOWN)
    }
    for stream, answer in seen.items():
        in_scope = rule != "all" and (not named(route) or stream.startswith("own-"))
        _expect(answer, may and in_scope)
    for stream in (OWN, UNKNOWN):
        _expect(request(client, route, stream, everything), may)
    foreign, unknown = seen[FOREIGN], seen[UNKNOWN]
    if named(route):
        assert foreign.text.replace(FOREIGN, "") == unknown.text.replace(UNKNOWN, "")


@for_each("route", PLAIN)
def test_both_roads_let_in_the_same(client: TestClient, tokens: dict[str, str], route: str) -> None:
    by_fastapi = route.replace("source=s", "source=%73")
    for headers in ({}, {"Authorization": "Basic eDp5"}, *map(bearer, tokens.values())):
        for stream in (OWN, OWN_UNKNOWN, FOREIGN, UNKNOWN):
            plain, careful = (
                request(client, road, stream, headers) for road in (route, by_fastapi)
            )
            assert (plain.status_code, plain.text) == (careful.status_code, careful.text)
            for answer in (plain, careful):
                del answer.headers["X-Request-Id"]
            assert plain.headers.multi_items() == careful.headers.multi_items()


def _expect(answer: Response, admitted: bool) -> None:
    if admitted:
        assert answer.status_code not in (401, 403), answer.text
        assert answer.status_code < 500, answer.text
    else:
        problem(answer, 403)


@for_each("route", sorted(RULES.keys() - set(GUARDED)))
def test_what_is_open_needs_no_key(client: TestClient, route: str) -> None:
    path = route.split()[1].replace("{name:path}", "style.css")
    assert client.get(path).is_success


def test_a_list_has_what_the_caller_may_see(client: TestClient, tokens: dict[str, str]) -> None:
    for name in ("own-list", "other-list"):
        created = client.put(
            f"/v1/streams/{name}",
            json={"params": PARAMS.to_dict()},
            headers=bearer(tokens["write *"]),
        )
        assert created.status_code == 201
    for scope, seen in (("own-*", ["own-list"]), ("*", ["other-list", "own-list"])):
        listed = client.get("/v1/streams", headers=bearer(tokens[f"read {scope}"])).json()
        names = [each["name"] for each in listed["streams"]]
        assert [name for name in names if name.endswith("-list")] == seen


def test_a_join_is_refused_if_one_of_its_streams_is_out_of_scope(
    client: TestClient, tokens: dict[str, str]
) -> None:
    body = {"streams": [OWN, FOREIGN], "queries": [{"aggregate": "count", "now": 1}]}
    refused = client.post("/v1/query", json=body, headers=bearer(tokens["read own-*"]))
    assert FOREIGN in problem(refused, 403)["detail"]


@pytest.mark.parametrize("stream", [FOREIGN, UNKNOWN])
def test_a_token_of_another_stream_tells_nothing_of_it(
    client: TestClient, tokens: dict[str, str], stream: str
) -> None:
    own = bearer(tokens["read own-*"])
    query = {"aggregate": "count", "now": 1, "decay": {"kind": "none"}}
    after = f"{stream}:0123456789abcdef:1"
    client.put(
        "/v1/streams/own-3", json={"params": PARAMS.to_dict()}, headers=bearer(tokens["write *"])
    )
    asked = [
        client.post(
            "/v1/streams/own-3/query", json={"queries": [query], "after": after}, headers=own
        ),
        client.post(
            "/v1/streams/own-3/query",
            json={"queries": [query]},
            headers=own | {"Decaysketch-After": after},
        ),
        client.get("/v1/streams/own-3/sketch", headers=own | {"Decaysketch-After": after}),
    ]
    assert [answer.status_code for answer in asked] == [422, 422, 422]


def test_a_key_creates_no_more_streams_than_it_may(
    client: TestClient, tokens: dict[str, str]
) -> None:
    made = client.post(
        "/v1/keys",
        json={"role": "write", "scope": ["few-*"], "max_streams": 2},
        headers=bearer(tokens["admin *"]),
    )
    few = bearer(made.json()["key"])
    params = {"params": PARAMS.to_dict()}
    for name, status in (("few-1", 201), ("few-2", 201), ("few-3", 409), ("few-2", 200)):
        answer = client.put(f"/v1/streams/{name}", json=params, headers=few)
        assert answer.status_code == status, answer.text
    problem(client.put("/v1/streams/few-3", json=params, headers=few), 409, "too-many-streams")
    removed = client.delete("/v1/streams/few-1", headers=bearer(tokens["admin *"]))
    assert removed.status_code == 204
    assert client.put("/v1/streams/few-3", json=params, headers=few).status_code == 201


def test_maps_of_a_stream_that_is_there_are_replaced_by_its_admin_alone(
    client: TestClient, tokens: dict[str, str]
) -> None:
    path, params = "/v1/streams/own-maps", {**PARAMS.to_dict(), "time_unit": "ms"}

    def put(role: str, value: str | None) -> Response:
        maps = {"map": [{"format": "json", "value": value, "id": ["i"], "time": "t"}]}
        body = {"params": params} | ({} if value is None else {"ingest": maps})
        answer: Response = client.put(path, json=body, headers=bearer(tokens[f"{role} own-*"]))
        return answer

    def values() -> list[str]:
        state = client.get(path, headers=bearer(tokens["read own-*"])).json()
        return [each["value"] for each in state["ingest"]["map"]]

    assert put("write", "a").status_code == 201
    assert put("write", "a").status_code == put("write", None).status_code == 200
    assert "own-maps" in problem(put("write", "b"), 403, "maps-kept")["detail"]
    assert values() == ["a"]
    assert put("admin", "b").status_code == 200
    assert values() == ["b"]


@pytest.mark.parametrize("way", ["POST", "GET", "live", "group"])
@pytest.mark.parametrize(
    ("aggregate", "other"),
    [
        *(("inner_product", other) for other in (FOREIGN, UNKNOWN, OWN)),
        ("time_slope", FOREIGN),
    ],
)
def test_a_stream_is_compared_with_those_in_the_scope_alone(
    client: TestClient, tokens: dict[str, str], way: str, aggregate: str, other: str
) -> None:
    query = {"aggregate": aggregate, "other": other, "decay": {"kind": "none"}, "now": 1}
    body: dict[str, Any] = {"queries": [query]}
    headers, path = bearer(tokens["read own-*"]), f"/v1/streams/{OWN}"
    if way == "POST":
        answer = client.post(f"{path}/query", json=body, headers=headers)
    elif way == "group":
        answer = client.post("/v1/query", json=body | {"streams": [OWN]}, headers=headers)
    else:
        route = "live" if way == "live" else "query"
        answer = client.get(
            f"{path}/{route}", params={"request": json.dumps(body)}, headers=headers
        )
    if other == OWN:  # gone by now, or of a family that does not answer this
        assert answer.status_code in (404, 422)
    else:
        assert f"stream {other!r}" in problem(answer, 403)["detail"]


def test_a_question_about_a_foreign_stream_is_listed_without_its_text(
    client: TestClient, tokens: dict[str, str]
) -> None:
    params = ECMParams(width=80, depth=3, slots=6).to_dict()
    everybody, mine = (bearer(tokens[name]) for name in ("admin *", "read own-*"))
    for name in ("own-keys", "other-keys"):
        form = {"family": "ecm", "params": params}
        client.put(f"/v1/streams/{name}", json=form, headers=everybody).raise_for_status()
    url, decay = "/v1/streams/own-keys/questions", {"kind": "window", "width": 60}
    foreign = {"aggregate": "inner_product", "other": "other-keys", "decay": decay}
    own = {"aggregate": "key_total", "decay": decay}
    for name, query in {"a": foreign, "b": own}.items():
        answer = client.put(f"{url}/{name}", json={"query": query}, headers=everybody)
        assert (answer.status_code, answer.json()["query"]) == (201, query)
    for headers, listed in ((everybody, [foreign, own]), (mine, [None, own])):
        questions = client.get(url, headers=headers).json()["questions"]
        assert [each["query"] for each in questions] == listed
    assert "other-keys" not in client.get(url.replace("questions", "prometheus"), headers=mine).text
