"""Keys: what is kept, what is recognised and for how long, and who may manage whose."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sqlite3
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from databases import Database, database, new_database, postgres_server
from doorway import doorway
from fastapi.testclient import TestClient
from service import LOCAL, problem
from sqlalchemy import Connection
from support.rows import for_each
from typer.testing import CliRunner

from api.access import keys as access_keys
from api.access.keys import (
    ANYONE,
    Caller,
    KeyCache,
    KeyRow,
    Role,
    covers,
    mint,
    now_us,
    prefix_of,
    rotate,
)
from api.access.store import SqlKeyStore
from api.journal.log import StorageError
from api.operations.keys import keys as commands

__all__ = ["database"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "keys.sqlite3"


@pytest.fixture
def client(data: Path) -> Iterator[TestClient]:
    with TestClient(doorway(data, auth="keys"), base_url=LOCAL) as client:
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


@for_each(
    "scope, entry, covered",
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
    """A store that can be out of reach, or silent."""

    def __init__(self, *rows: KeyRow) -> None:
        self.rows = list(rows)
        self.broken = False
        self.reads = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def all(self) -> list[KeyRow]:
        self.reads += 1
        if self.broken:
            raise StorageError("out of reach")
        rows = list(self.rows)
        await self.answers.wait()
        return rows


def cache_of(store: MemoryStore, *, required: bool = True) -> KeyCache:
    return KeyCache(store, required=required)  # type: ignore[arg-type]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the cache takes for the time since some moment; only the test moves it."""
    now = [1000.0]
    stopped = SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns)
    monkeypatch.setattr(access_keys, "time", stopped)
    return now


def test_a_revoked_key_is_refused_within_two_seconds(clock: list[float]) -> None:
    row, token = mint(role=Role.WRITE, scope=["a"], now_us=0)
    store = MemoryStore(row)
    cache = cache_of(store)

    async def scenario() -> None:
        caller = await cache.recognise(token)
        assert caller == Caller(role=Role.WRITE, scope=("a",), prefix=row.prefix, digest=row.digest)
        store.rows.clear()
        clock[0] += 1.9
        assert await cache.recognise(token) is not None
        assert store.reads == 1
        clock[0] += 0.2
        assert await cache.recognise(token) is None
        assert store.reads == 2

    asyncio.run(scenario())


def test_an_outage_is_bridged_for_a_minute_and_no_longer(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    row, token = mint(role=Role.READ, scope=["a"], now_us=0)
    store = MemoryStore(row)
    cache = cache_of(store)

    async def scenario() -> None:
        await cache.recognise(token)
        store.broken = True
        clock[0] += 59
        assert await cache.recognise(token) is not None
        assert await cache.recognise(token) is not None
        assert store.reads == 2  # not tried again at once
        clock[0] += 2
        for _ in range(3):
            with pytest.raises(StorageError):
                await cache.recognise(token)
        assert store.reads == 3
        store.broken = False
        clock[0] += access_keys.STALE_S
        assert await cache.recognise(token) is not None

    asyncio.run(scenario())
    assert caplog.text.count("could not be read again") == 1


def test_a_silent_database_holds_nobody_up(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one request waits for it the others go on with the keys known; once those are too old
    every one of them ends together with the first, whatever their number."""
    monkeypatch.setattr(access_keys, "READ_S", 0.2)
    row, token = mint(role=Role.READ, scope=["a"], now_us=0)
    store = MemoryStore(row)
    cache = cache_of(store)

    async def scenario() -> None:
        await cache.recognise(token)
        store.answers.clear()
        clock[0] += 3
        waiting = asyncio.create_task(cache.recognise(token))
        while store.reads < 2:
            await asyncio.sleep(0)
        for _ in range(100):
            assert await cache.recognise(token) is not None
        assert not waiting.done()
        assert await waiting is not None
        clock[0] += access_keys.OUTAGE_S
        refused = await asyncio.gather(
            *(cache.recognise(token) for _ in range(100)), return_exceptions=True
        )
        assert [type(each) for each in refused] == [StorageError] * 100
        assert store.reads == 3
        store.answers.set()
        clock[0] += access_keys.STALE_S
        assert await cache.recognise(token) is not None

    asyncio.run(scenario())


def test_a_reading_that_began_before_a_key_was_revoked_does_not_bring_it_back(
    clock: list[float],
) -> None:
    row, token = mint(role=Role.READ, scope=["a"], now_us=0)
    store = MemoryStore(row)
    cache = cache_of(store)

    async def scenario() -> None:
        store.answers.clear()
        earlier = asyncio.create_task(cache.recognise(token))
        while store.reads < 1:
            await asyncio.sleep(0)
        store.rows.clear()
        after_revoking = asyncio.create_task(cache.reload())
        for _ in range(5):
            await asyncio.sleep(0)
        store.answers.set()
        await asyncio.gather(earlier, after_revoking)
        assert await cache.recognise(token) is None

    asyncio.run(scenario())


def _rotate_without_grace(row: KeyRow) -> KeyRow:
    return rotate(row, now_us(), 0)[0]


@pytest.mark.parametrize(
    ("stream", "change", "expected"),
    [
        ("ward-1", lambda row: row, True),
        ("tap-1", lambda row: row, False),
        ("ward-1", lambda row: None, False),
        ("ward-1", _rotate_without_grace, False),
        ("ward-1", lambda row: rotate(row, now_us(), 60_000_000)[0], True),
        ("ward-1", lambda row: replace(row, expires_us=1), False),
        ("ward-1", lambda row: replace(row, scope=("tap-*",)), False),
    ],
    ids=["as it was", "other stream", "revoked", "rotated", "grace", "expired", "other scope"],
)
def test_whether_a_caller_may_still_see_a_stream(
    clock: list[float], stream: str, change: Callable[[KeyRow], KeyRow | None], expected: bool
) -> None:
    row, token = mint(role=Role.READ, scope=["ward-*"], now_us=0)
    store = MemoryStore(row)
    cache = cache_of(store)

    async def scenario() -> bool:
        caller = await cache.recognise(token)
        assert caller is not None
        changed = change(row)
        store.rows[:] = [] if changed is None else [changed]
        clock[0] += access_keys.STALE_S
        return await cache.still(caller, stream)

    assert asyncio.run(scenario()) is expected


def test_whoever_asks_where_no_key_is_needed_may_still(clock: list[float]) -> None:
    assert asyncio.run(cache_of(MemoryStore(), required=False).still(ANYONE, "s"))
    assert not asyncio.run(cache_of(MemoryStore(), required=True).still(ANYONE, "s"))


def test_nobody_may_still_once_the_keys_cannot_be_read(clock: list[float]) -> None:
    row, token = mint(role=Role.READ, scope=["*"], now_us=0)
    store = MemoryStore(row)
    cache = cache_of(store)

    async def scenario() -> None:
        caller = await cache.recognise(token)
        assert caller is not None
        store.broken = True
        clock[0] += access_keys.OUTAGE_S - 1
        assert await cache.still(caller, "s")
        clock[0] += access_keys.STALE_S
        assert not await cache.still(caller, "s")

    asyncio.run(scenario())


def test_unknown_prefixes_and_no_keys_are_nobody(clock: list[float]) -> None:
    row, token = mint(role=Role.READ, scope=["a"], now_us=0)
    cache = cache_of(MemoryStore(row))
    stranger = mint(role=Role.READ, scope=["a"], now_us=0)[1]

    async def scenario() -> None:
        for given in (None, "", "x", stranger, token[:-1], token + "A", token.upper()):
            assert await cache.recognise(given) is None

    asyncio.run(scenario())


def with_store(url: str, act: Callable[[SqlKeyStore], Awaitable[Any]]) -> Any:
    """What ``act`` gives for a store over an empty table."""

    async def run() -> Any:
        store = SqlKeyStore(url)
        try:
            await store.create()
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(run())


def test_the_store_keeps_every_field(database: Database) -> None:
    row, _ = mint(
        role=Role.WRITE, scope=["a", "b-*"], now_us=7, label="x", expires_us=9, max_streams=3
    )
    turned, _ = rotate(row, 8, 1)

    async def scenario(store: SqlKeyStore) -> None:
        await store.create()
        await store.put(row)
        assert await store.all() == [row]
        assert await store.replace(row, turned)
        assert await store.all() == [turned]
        assert await store.delete(row.prefix)
        assert not await store.delete(row.prefix)
        assert not await store.replace(turned, row), "a revoked key came back"
        assert await store.all() == []

    with_store(database.url, scenario)


def test_of_two_rotations_at_the_same_time_one_is_told(database: Database) -> None:
    """Else the secret that one of them was given would be none."""
    row, _ = mint(role=Role.WRITE, scope=["a"], now_us=7)
    turned = [rotate(row, 8, 0)[0] for _ in range(2)]

    async def scenario(store: SqlKeyStore) -> None:
        await store.put(row)
        done = await asyncio.gather(*(store.replace(row, each) for each in turned))
        assert sorted(done) == [False, True]
        assert await store.all() == [turned[done.index(True)]]

    with_store(database.url, scenario)


def test_several_processes_make_the_table_at_the_same_time(database: Database) -> None:
    async def scenario() -> None:
        stores = [SqlKeyStore(database.url) for _ in range(8)]
        try:
            await asyncio.gather(*(store.create() for store in stores))
        finally:
            for store in stores:
                await store.close()

    asyncio.run(scenario())


def test_keys_are_as_safe_on_disk_as_posts(data: Path) -> None:
    """SQLite must not write its log back by itself: beside a commit that can lose what was
    committed, in versions that are about."""

    async def scenario(store: SqlKeyStore) -> list[Any]:
        names = ("wal_autocheckpoint", "synchronous", "journal_mode")

        def read(connection: Connection) -> list[Any]:
            return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

        return await store._threads.write(read) + await store._threads.read(read)

    assert with_store(f"sqlite:///{data}", scenario) == [0, 2, "wal"] * 2


def test_a_new_database_is_for_its_owner_alone(data: Path) -> None:
    async def scenario(store: SqlKeyStore) -> None:
        await store.put(mint(role=Role.READ, scope=["a"], now_us=7)[0])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data.parent.iterdir()}
        assert modes == {f"{data.name}{end}": 0o600 for end in ("", "-wal", "-shm")}

    earlier = os.umask(0)
    try:
        with_store(f"sqlite:///{data}", scenario)
    finally:
        os.umask(earlier)


def test_a_database_that_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is given up on in time, and connected to anew."""
    monkeypatch.setattr(access_keys, "READ_S", 300.0)  # however slow the machine is
    database = new_database("postgresql", tmp_path)
    row, token = mint(role=Role.READ, scope=["a"], now_us=7)

    async def scenario(store: SqlKeyStore) -> None:
        await store.put(row)
        cache = KeyCache(store, required=True)
        await cache.reload()
        with postgres_server().paused():
            monkeypatch.setattr(access_keys, "READ_S", 0.5)
            with pytest.raises(StorageError, match=r"not read within 0\.5 s"):
                async with asyncio.timeout(300):
                    await cache.reload()
            monkeypatch.setattr(access_keys, "READ_S", 300.0)
        await cache.reload()
        assert await cache.recognise(token) is not None

    with_store(database.url, scenario)


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


def test_of_two_rotations_over_http_one_is_told(
    client: TestClient, admin: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(client, admin, role="read", scope=["*"])
    store: Any = client.app.state.keys.store  # type: ignore[attr-defined]
    replace_now = store.replace

    async def replace_late(row: KeyRow, other: KeyRow) -> bool:
        assert await replace_now(row, rotate(row, now_us(), 0)[0])
        changed: bool = await replace_now(row, other)
        return changed

    monkeypatch.setattr(store, "replace", replace_late)
    refused = client.post(f"/v1/keys/{made['prefix']}/rotate", json={}, headers=admin)
    problem(refused, 409, "key-changed")


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
        ({"role": "read", "scope": ["*"], "label": "a\nb"}, "label"),
        ({"role": "read", "scope": ["*"], "label": "\x9b2J"}, "label"),
        ({"role": "admin", "scope": ["*"], "max_streams": 3}, "max_streams"),
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
    with TestClient(doorway(data, host=host, auth=auth), base_url=LOCAL) as client:
        assert client.get("/v1/streams/x").status_code == (401 if required else 200)
    assert ("requests need no key" in caplog.text) is not required
    assert ("there is none yet" in caplog.text) is (required and not minted)


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
        ["mint", "--role", "read", "--label", "a\x1b[2Jb"],
        ["mint"],
    ],
)
def test_a_command_outside_its_domain(data: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(commands, [*arguments, "--data", str(data)])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
