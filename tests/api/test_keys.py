"""Keys: what is kept, what is recognised and for how long, and who may manage whose."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doorway import doorway
from fastapi.testclient import TestClient
from service import problem
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from typer.testing import CliRunner

from api.access import ring as rings
from api.access.cli import keys as commands
from api.access.keys import Caller, KeyRow, Role, covers, mint, prefix_of, rotate
from api.access.ring import KeyRing
from api.access.store import SqlKeyStore

FORM = "ds_aaaaaaaa_"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "keys.sqlite3"


@pytest.fixture
def client(data: Path) -> Iterator[TestClient]:
    with TestClient(doorway(data, auth="keys")) as client:
        yield client


def run(data: Path, *arguments: str) -> str:
    """What the command line writes; it succeeds."""
    result = CliRunner().invoke(commands, [*arguments, "--data", str(data)])
    assert result.exit_code == 0, result.output
    return result.stdout


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def admin(client: TestClient, data: Path) -> dict[str, str]:
    return bearer(run(data, "mint", "--role", "admin", "--label", "first").strip())


def make(client: TestClient, as_whom: dict[str, str], **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/keys", json=fields, headers=as_whom)
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


# ------------------------------------------------------------------------------------------- a key


def test_the_form_and_what_is_kept_of_it() -> None:
    row, token = mint(role=Role.READ, scope=["a"], now_us=5)
    assert re.fullmatch(r"ds_[a-z2-7]{8}_[A-Za-z0-9_-]{43}", token)
    assert prefix_of(token) == row.prefix == token[3:11]
    assert row.digest == hashlib.sha256(token.encode()).digest()
    assert token[12:] not in repr(row)
    assert len({mint(role=Role.READ, scope=["a"], now_us=5)[1] for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ds_",
        "x",
        "ds_aaaaaaaa_" + "A" * 42,
        "ds_aaaaaaaa_" + "A" * 44,
        "ds_AAAAAAAA_" + "A" * 43,
    ],
)
def test_what_has_not_the_form_has_no_prefix(text: str) -> None:
    assert prefix_of(text) is None


def test_expiry_and_rotation_at_their_very_moments() -> None:
    row, token = mint(role=Role.READ, scope=["*"], now_us=0, expires_us=100)
    assert row.proves(token, 99)
    assert not row.proves(token, 100)
    assert not row.proves(token[:-1] + ("A" if token[-1] != "A" else "B"), 50)
    turned, second = rotate(row, now_us=10, grace_us=20)
    assert turned.prefix == row.prefix
    assert second != token
    assert turned.proves(second, 10)
    assert turned.proves(token, 29)
    assert not turned.proves(token, 30)
    assert not turned.proves(second, 100)
    at_once, third = rotate(turned, now_us=12, grace_us=0)
    assert [at_once.proves(each, 12) for each in (token, second, third)] == [False, False, True]


def test_roles_are_ordered() -> None:
    assert [[one.includes(other) for other in Role] for one in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


@pytest.mark.parametrize(
    ("scope", "entry", "covered"),
    [
        (["*"], "*", True),
        (["*"], "a-[xy]?", True),
        (["ward-*"], "ward-7", True),
        (["ward-*"], "ward-7-*", True),
        (["ward-*"], "ward-*", True),
        (["ward-*"], "ward*", False),
        (["ward-*"], "*", False),
        (["ward-*"], "Ward-7", False),
        (["ward-?"], "ward-7", True),
        (["ward-?"], "ward-?", True),
        (["ward-?"], "ward-*", False),
        (["ward-?*"], "ward-*", False),
        (["a", "b-*"], "b-1", True),
        (["a"], "a*", False),
        ([], "a", False),
    ],
)
def test_a_scope_within_a_scope(scope: list[str], entry: str, covered: bool) -> None:
    assert covers(scope, entry) is covered


def test_case_matters() -> None:
    assert [
        Caller(role=Role.READ, scope=("ward-*",)).sees(name) for name in ("ward-1", "WARD-1")
    ] == [
        True,
        False,
    ]


# ------------------------------------------------------------------------------------ recognising


class MemoryStore:
    """A store that can be out of reach."""

    def __init__(self, *rows: KeyRow) -> None:
        self.rows = list(rows)
        self.broken = False
        self.reads = 0

    async def all(self) -> list[KeyRow]:
        self.reads += 1
        if self.broken:
            raise OperationalError("select", {}, Exception("out of reach"))
        return list(self.rows)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(rings.time, "monotonic", lambda: now[0])
    return now


def test_a_revoked_key_is_refused_within_two_seconds(clock: list[float]) -> None:
    row, token = mint(role=Role.WRITE, scope=["a"], now_us=0)
    store = MemoryStore(row)
    ring = KeyRing(store, required=True)  # type: ignore[arg-type]

    async def scenario() -> None:
        caller = await ring.recognise(token)
        assert caller == Caller(role=Role.WRITE, scope=("a",), prefix=row.prefix)
        store.rows.clear()
        clock[0] += 1.9
        assert await ring.recognise(token) is not None
        assert store.reads == 1
        clock[0] += 0.2
        assert await ring.recognise(token) is None
        assert store.reads == 2

    asyncio.run(scenario())


def test_an_outage_is_bridged_for_a_minute_and_no_longer(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    row, token = mint(role=Role.READ, scope=["a"], now_us=0)
    store = MemoryStore(row)
    ring = KeyRing(store, required=True)  # type: ignore[arg-type]

    async def scenario() -> None:
        await ring.recognise(token)
        store.broken = True
        clock[0] += 59
        assert await ring.recognise(token) is not None
        assert await ring.recognise(token) is not None
        assert store.reads == 2  # not tried again at once
        clock[0] += 2
        with pytest.raises(OperationalError):
            await ring.recognise(token)
        store.broken = False
        assert await ring.recognise(token) is not None

    asyncio.run(scenario())
    assert caplog.text.count("could not be read again") == 1


def test_unknown_prefixes_and_no_keys_are_nobody(clock: list[float]) -> None:
    row, token = mint(role=Role.READ, scope=["a"], now_us=0)
    ring = KeyRing(MemoryStore(row), required=True)  # type: ignore[arg-type]
    stranger = mint(role=Role.READ, scope=["a"], now_us=0)[1]

    async def scenario() -> None:
        for given in (None, "", "x", stranger, token[:-1], token + "A", token.upper()):
            assert await ring.recognise(given) is None

    asyncio.run(scenario())


def test_the_store_keeps_every_field(data: Path) -> None:
    row, _ = mint(
        role=Role.WRITE, scope=["a", "b-*"], now_us=7, label="x", expires_us=9, max_streams=3
    )
    turned, _ = rotate(row, 8, 1)

    async def scenario() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{data}")
        store = SqlKeyStore(engine)
        await store.create()
        await store.create()
        await store.put(row)
        assert await store.all() == [row]
        assert await store.replace(turned)
        assert await store.all() == [turned]
        assert await store.delete(row.prefix)
        assert not await store.delete(row.prefix)
        assert not await store.replace(turned), "a revoked key came back"
        assert await store.all() == []
        await engine.dispose()

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------- over HTTP


def test_a_key_from_making_to_revoking(
    client: TestClient, admin: dict[str, str], data: Path
) -> None:
    made = make(client, admin, role="read", scope=["own-*"], label="reader", expires_in_s=3600)
    assert made["role"] == "read"
    assert made["last_used"] is None
    reader = bearer(made["key"])
    assert client.get("/v1/streams/own-1", headers=reader).json()["role"] == "read"

    (first, listed) = client.get("/v1/keys", headers=admin).json()["keys"]
    assert (first["label"], first["role"], first["scope"]) == ("first", "admin", ["*"])
    assert listed["last_used"] is not None
    assert listed == {k: v for k, v in made.items() if k != "key"} | {
        "last_used": listed["last_used"]
    }

    turned = client.post(f"/v1/keys/{made['prefix']}/rotate", json={"grace_s": 60}, headers=admin)
    again = bearer(turned.json()["key"])
    assert turned.json()["previous_secret_until"] is not None
    for each in (reader, again):
        assert client.get("/v1/streams/own-1", headers=each).status_code == 200
    client.post(f"/v1/keys/{made['prefix']}/rotate", json={"grace_s": 0}, headers=admin)
    for each in (reader, again):
        refused = client.get("/v1/streams/own-1", headers=each)
        problem(refused, 401)
        assert refused.headers["WWW-Authenticate"] == "Bearer"

    assert client.delete(f"/v1/keys/{made['prefix']}", headers=admin).status_code == 204
    problem(client.delete(f"/v1/keys/{made['prefix']}", headers=admin), 404, "unknown-key")
    assert len(client.get("/v1/keys", headers=admin).json()["keys"]) == 1


def test_no_secret_is_on_disk(client: TestClient, admin: dict[str, str], data: Path) -> None:
    secret = admin["Authorization"].removeprefix("Bearer ")[12:]
    client.get("/v1/keys", headers=admin)
    for file in data.parent.iterdir():
        assert secret.encode() not in file.read_bytes()


def test_an_admin_of_some_streams_manages_within_them(
    client: TestClient, admin: dict[str, str]
) -> None:
    ward = make(client, admin, role="admin", scope=["ward-*"])
    other = make(client, admin, role="read", scope=["tap-1"])
    as_ward = bearer(ward["key"])
    within = make(client, as_ward, role="admin", scope=["ward-7"])
    for scope in (["*"], ["tap-1"], ["ward-1", "tap-1"], ["war*"]):
        problem(
            client.post("/v1/keys", json={"role": "read", "scope": scope}, headers=as_ward), 403
        )
    listed = client.get("/v1/keys", headers=as_ward).json()["keys"]
    assert [each["prefix"] for each in listed] == [ward["prefix"], within["prefix"]]
    unknown = client.delete("/v1/keys/zzzzzzzz", headers=as_ward)
    foreign = client.delete(f"/v1/keys/{other['prefix']}", headers=as_ward)
    assert problem(foreign, 404, "unknown-key") | {"detail": ""} == (
        problem(unknown, 404, "unknown-key") | {"detail": ""}
    )
    rotated = client.post(f"/v1/keys/{other['prefix']}/rotate", json={}, headers=as_ward)
    problem(rotated, 404, "unknown-key")


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"role": "root", "scope": ["*"]}, "role"),
        ({"role": "read", "scope": []}, "scope"),
        ({"role": "read", "scope": ["a b"]}, "scope[0]"),
        ({"role": "read", "scope": ["a"] * 101}, "scope"),
        ({"role": "read"}, "scope"),
        ({"role": "read", "scope": ["*"], "expires_in_s": 0}, "expires_in_s"),
        ({"role": "read", "scope": ["*"], "expires_in_s": 10**12}, "expires_in_s"),
        ({"role": "read", "scope": ["*"], "label": "x" * 201}, "label"),
        ({"role": "admin", "scope": ["*"], "max_streams": 3}, "body"),
        ({"role": "read", "scope": ["*"], "digest": "x"}, "digest"),
    ],
)
def test_outside_the_domain(
    client: TestClient, admin: dict[str, str], fields: dict[str, Any], at_fault: str
) -> None:
    content = problem(client.post("/v1/keys", json=fields, headers=admin), 422, "invalid-request")
    assert [fault["field"] for fault in content["errors"]] == [at_fault]


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "Bearer ds_aaaaaaaa_" + "A" * 43,
        "Bearer \xff\xfe",
    ],
)
def test_without_a_key_that_is_valid(client: TestClient, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    response = client.get("/v1/streams/own-1", headers=headers)  # type: ignore[arg-type]
    problem(response, 401)
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert client.get("/healthz", headers=headers).status_code == 200  # type: ignore[arg-type]


# ------------------------------------------------------------------------- whether keys are needed


@pytest.mark.parametrize(
    ("host", "auth", "minted", "required"),
    [
        ("127.0.0.1", None, False, False),
        ("127.0.0.1", None, True, True),
        ("127.0.0.1", "keys", False, True),
        ("127.0.0.1", "off", True, False),
        ("::1", None, False, False),
        ("0.0.0.0", None, False, True),
        ("0.0.0.0", None, True, True),
        ("0.0.0.0", "off", False, False),
    ],
)
def test_where_a_key_is_needed(
    data: Path,
    host: str,
    auth: Any,
    minted: bool,
    required: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if minted:
        run(data, "mint", "--role", "read")
    with TestClient(doorway(data, host=host, auth=auth)) as client:
        assert client.get("/v1/streams/x").status_code == (401 if required else 200)
    assert ("no key is asked for" in caplog.text) is not required
    assert ("there is no key yet" in caplog.text) is (required and not minted)


# -------------------------------------------------------------------------------- the command line


def test_the_command_line(data: Path) -> None:
    token = run(data, "mint", "--role", "write", "--scope", "a-*", "--scope", "b", "--label", "gw")
    prefix = prefix_of(token.strip())
    assert prefix is not None
    assert prefix in run(data, "list")
    heading, line = run(data, "list").splitlines()
    assert heading.split() == ["prefix", "role", "created", "expires", "scope", "label"]
    assert line.split()[:2] == [prefix, "write"]
    assert line.split()[-3:] == ["a-*", "b", "gw"]
    assert token.strip()[12:] not in line
    second = run(data, "rotate", prefix, "--grace-s", "0").strip()
    assert prefix_of(second) == prefix
    with sqlite3.connect(data) as database:
        ((digest, scope),) = database.execute("SELECT digest, scope FROM access_keys").fetchall()
    database.close()
    assert digest == hashlib.sha256(second.encode()).digest()
    assert json.loads(scope) == ["a-*", "b"]
    run(data, "revoke", prefix)
    assert len(run(data, "list").splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["revoke", "zzzzzzzz"],
        ["rotate", "zzzzzzzz"],
        ["mint", "--role", "root"],
        ["mint", "--role", "read", "--scope", "a b"],
        ["mint", "--role", "admin", "--max-streams", "1"],
        ["mint", "--role", "read", "--label", "x" * 201],
        ["mint"],
    ],
)
def test_a_command_outside_its_domain(data: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(commands, [*arguments, "--data", str(data)])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
