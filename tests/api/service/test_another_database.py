"""A database that is replaced under a running process: noticed at the next look, and from then on
nothing is read from it, written to it or compacted."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from databases import KINDS, Database, database, new_database
from fastapi.testclient import TestClient
from service import LOCAL, OCTETS, PARAMS, build, problem

from api.app import create_app
from api.journal.log import AnotherDatabaseError
from api.operations.backup import backup, restore
from api.settings import Settings

pytestmark = pytest.mark.usefixtures("data")  # a new aggregator for each test

__all__ = ["database"]

UNREADABLE = "journal-unreadable"


def settings_of(database: Database) -> Settings:
    return Settings(data=database.url, poll_ms=20)


def post(client: TestClient, seed: int) -> httpx2.Response:
    return client.post(
        "/v1/streams/s/sketches",
        params={"source": "a"},
        content=build(seed, first_id=30 * seed).to_bytes(),
        headers=OCTETS,
    )


def serving(database: Database) -> TestClient:
    return TestClient(create_app(settings_of(database)), base_url=LOCAL)


def checks(client: TestClient) -> dict[str, bool | str]:
    found: dict[str, bool | str] = client.get("/readyz").json()["checks"]
    return found


def wait_until_unready(client: TestClient) -> None:
    deadline = time.monotonic() + 1800
    while checks(client)["same_database"] is True:  # an answer is kept for a second
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_given_up(client: TestClient) -> None:
    """Not ready, and nothing is written."""
    wait_until_unready(client)
    assert client.get("/readyz").status_code == 503
    for seed in (7, 8):
        problem(post(client, seed), 503, UNREADABLE)
    problem(client.put("/v1/streams/t", json={"params": PARAMS.to_dict()}), 503, UNREADABLE)
    problem(client.delete("/v1/streams/s"), 503, UNREADABLE)
    assert client.portal is not None
    with pytest.raises(AnotherDatabaseError, match="restart it"):
        client.portal.call(client.app.state.aggregator.compact)  # type: ignore[attr-defined]


def rows_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM journal").fetchall()
    return int(count)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A backup with one post; whoever reads it finds it as far as a process that has read one."""
    path, other = tmp_path / "backup", new_database("sqlite", tmp_path)
    with serving(other) as client:
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
        post(client, 1).raise_for_status()
    backup(settings_of(other).database_url, path)
    return path


def put_back(kept: Path, file: Path) -> None:
    """As one does who follows the guide, but for stopping the process: away with the old file, and
    a new one is filled."""
    for old in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        old.unlink(missing_ok=True)
    restore(kept, f"sqlite:///{file}")


def moved_over(kept: Path, file: Path) -> None:
    copied = shutil.copy(kept, file.with_suffix(".new"))
    os.replace(copied, file)  # noqa: PTH105


def removed(_kept: Path, file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("replace", [put_back, moved_over, removed])
def test_a_file_that_is_replaced_is_noticed(
    replace: Callable[[Path, Path], None],
    kept: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "aggregator.sqlite3"
    with serving(Database("sqlite", f"sqlite:///{file}")) as client:
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
        post(client, 1).raise_for_status()
        merged = client.get("/v1/streams/s/sketch").content
        replace(kept, file)
        problem(post(client, 2), 503, UNREADABLE)  # at once: it would be gone with the old file
        is_given_up(client)
        assert client.get("/v1/streams/s/sketch").content == merged
    assert "the database changed under this process" in caplog.text
    if replace is removed:
        assert not file.exists()
    else:
        assert rows_of(file) == 1
        with serving(Database("sqlite", f"sqlite:///{file}")) as client:
            post(client, 2).raise_for_status()
            assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("kind", KINDS)
def test_a_restore_into_a_database_that_a_process_has_open_is_noticed(
    kind: str, kept: Path, tmp_path: Path
) -> None:
    """It was empty, as a restore demands: nothing in it has gone back."""
    database = new_database(kind, tmp_path)
    with serving(database) as client:
        assert client.get("/readyz").status_code == 200
        restore(kept, settings_of(database).database_url)
        is_given_up(client)
    ((rows,),) = database.execute("SELECT count(*) FROM journal")
    assert rows == 1


def test_every_restore_and_every_backup_is_a_database_of_its_own(
    database: Database, kept: Path, tmp_path: Path
) -> None:
    def identity(of: Database) -> str:
        ((found,),) = of.execute("SELECT identity FROM instance")
        return str(found)

    with serving(database):
        pass
    found = {identity(database)}
    with serving(database):
        assert {identity(database)} == found
    url = settings_of(database).database_url
    for number in range(2):
        backup(url, tmp_path / f"backup{number}")
        found.add(identity(Database("sqlite", f"sqlite:///{tmp_path / f'backup{number}'}")))
        restore(tmp_path / f"backup{number}", url)
        found.add(identity(database))
    assert len(found) == 5


def test_a_database_that_went_back_stays_given_up(tmp_path: Path) -> None:
    """A fail-over to a copy that lagged has the same identity; what is posted next may bring it to
    where the first one was."""
    database = new_database("sqlite", tmp_path)
    with serving(database) as client:
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
        for seed in range(3):
            post(client, seed).raise_for_status()
        database.execute("DELETE FROM journal WHERE seq = 3")
        database.execute("UPDATE head SET last = 2")
        wait_until_unready(client)
        database.execute("UPDATE head SET last = 10")
        is_given_up(client)


def test_a_database_of_a_release_before_gets_an_identity(tmp_path: Path) -> None:
    database = new_database("sqlite", tmp_path)
    with serving(database) as client:
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
        post(client, 1).raise_for_status()
    database.execute("DROP TABLE instance")
    with serving(database) as client:
        post(client, 2).raise_for_status()
        assert client.get("/readyz").status_code == 200
        assert len(client.get("/v1/streams/s").json()) > 0
    ((identity,),) = database.execute("SELECT identity FROM instance")
    assert len(identity) == 32
