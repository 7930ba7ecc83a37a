"""The database in memory: the transactions of the journal over it, as over the real ones, and what
it does when it fails."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from simulation.database import Client, Database, Faults
from simulation.loop import Loop
from transactions import reading, writing

from api.journal import log
from api.journal.log import Post, StorageError, StreamRow


def _tests_of_the_journal() -> ModuleType:
    path = Path(__file__).parents[1] / "api" / "journal" / "test_log.py"
    spec = importlib.util.spec_from_file_location("tests_of_the_journal", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_journal = _tests_of_the_journal()
# But that one damages a body by a statement in SQL; here ``tear`` does, further down.
_OTHERS = {"test_a_torn_snapshot_deletes_nothing_but_itself"}
globals().update(
    {
        name: each
        for name, each in vars(_journal).items()
        if name.startswith("test_") and name not in _OTHERS
    }
)
stream_id = _journal.stream_id

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def storage() -> Client:
    return Database(Random(1), Faults(latency_s=0.0, sync_s=0.0)).client()


# ------------------------------------------------------------------------------------- its failures

STREAM = StreamRow(0, "s", "made", {"family": "x"}, 0)


def post(number: int) -> Post:
    return Post(1, "a", b"body %d" % number, 1)


async def append(client: Client, number: int) -> None:
    async with writing(client) as tx:
        await tx.do(log.append, [post(number)], 1, 0)


async def numbers(client: Client) -> list[int]:
    async with reading(client) as tx:
        return [row.seq for row in await tx.rows(0, 2**62, 2**30)]


async def opened(seed: int = 1) -> tuple[Database, Client]:
    database = Database(Random(seed), Faults(latency_s=0.01, sync_s=0.05, awaited=1.0))
    client = database.client()
    async with writing(client) as tx:
        await tx.do(log.create, STREAM)
    return database, client


def test_what_returned_survives_a_loss_of_power_and_what_was_open_does_not() -> None:
    async def main() -> None:
        database, client = await opened()
        await append(client, 1)

        async def interrupted() -> None:
            async with writing(client) as tx:
                await tx.do(log.append, [post(2)], 1, 0)
                database.lose_power()
                with pytest.raises(StorageError, match="cannot be reached"):
                    await tx.head()
                database.restore()

        with pytest.raises(StorageError, match="broke"):
            await interrupted()
        assert await numbers(client) == [1]
        database.lose_power()
        with pytest.raises(StorageError, match="cannot be reached"):
            await append(client, 3)
        database.restore()
        await append(client, 4)
        assert await numbers(client) == [1, 2]

    Loop().run(main())


@pytest.mark.parametrize(("survives", "expected"), [(0.0, [1]), (1.0, [1, 2])])
def test_what_was_written_and_not_synced_is_lost_or_not(
    survives: float, expected: list[int]
) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        database, client = await opened()
        await append(client, 1)
        database.faults.torn_write_survives = survives
        writing = loop.create_task(append(client, 2))
        while not any(each.phase == "syncing" for each in database._open):
            await asyncio.sleep(0.001)
        database.lose_power()
        with pytest.raises(StorageError):
            await writing
        database.restore()
        return await numbers(client)

    assert Loop().run(main()) == expected


@pytest.mark.parametrize(("fault", "expected"), [("commit_before", [1]), ("commit_after", [1, 2])])
def test_a_commit_can_fail_before_it_happened_or_after(fault: str, expected: list[int]) -> None:
    async def main() -> list[int]:
        database, client = await opened()
        await append(client, 1)
        setattr(database.faults, fault, 1.0)
        with pytest.raises(StorageError, match="at the commit"):
            await append(client, 2)
        return await numbers(client)

    assert Loop().run(main()) == expected


def test_a_full_disk_refuses_until_there_is_room() -> None:
    async def main() -> list[int]:
        database, client = await opened()
        database.full = True
        with pytest.raises(StorageError, match="no space left"):
            await append(client, 1)
        database.full = False
        await append(client, 2)
        return await numbers(client)

    assert Loop().run(main()) == [1]


def test_the_head_is_held_in_turn_and_let_go_by_the_dead() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        database, _ = await opened()
        order: list[str] = []

        async def hold(client: Client, name: str) -> None:
            async with writing(client) as tx:
                await tx.lock_head()
                order.append(name)
                await asyncio.sleep(10)

        clients = {name: database.client() for name in "abc"}
        processes = {name: loop.process(name) for name in "abc"}
        for name, client in clients.items():
            processes[name].start(hold(client, name))
            await asyncio.sleep(1)
        assert order == ["a"]
        processes["b"].kill()  # waits in line
        database.disconnect(clients["b"])
        processes["a"].kill()  # holds the head
        database.disconnect(clients["a"])
        await asyncio.sleep(1)
        return order

    assert Loop().run(main()) == ["a", "c"]


def test_a_reader_goes_on_reading_what_was_there_when_it_began() -> None:
    async def main() -> None:
        _, client = await opened()
        await append(client, 1)
        async with reading(client) as tx:
            assert (await tx.head()).last == 1
            await append(client, 2)
            assert [row.seq for row in await tx.rows(0, 9, 1)] == [1]
        assert await numbers(client) == [1, 2]

    Loop().run(main())


def test_one_copy_of_a_snapshot_is_torn_and_never_two() -> None:
    async def main() -> None:
        database, client = await opened()
        write = _journal.merged
        assert not database.tear((1, "a"))
        for generation in range(2):
            async with writing(client) as tx:
                await tx.do(
                    log.compact, await tx.lock_head(), [write(1, generation + 1, generation)]
                )
        assert database.tear((1, "a"))
        assert not database.tear((1, "a"))
        async with reading(client) as rx:
            assert [each.intact for each in await rx.snapshots(-1)] == [False, True]

    Loop().run(main())


def test_history_tells_what_became_durable() -> None:
    async def main() -> None:
        database, client = await opened()
        await append(client, 1)
        database.faults.commit_before = 1.0
        with pytest.raises(StorageError):
            await append(client, 2)
        database.faults.commit_before = 0.0
        async with writing(client) as tx:
            await tx.do(log.revoke, (1, "a"))
        kinds = [event.kind for event in database.history]
        assert kinds == ["stream created", "row", "source deleted", "revoked"]

    Loop().run(main())
