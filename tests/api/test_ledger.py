"""Posts that say which numbers of their source they hold: each number is taken once."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from families import CASES, SUM, Case
from fastapi.testclient import TestClient
from service import NOW, OCTETS, posted, problem
from transactions import reading, writing

import decaysketch
from api.errors import IntervalConflictError
from api.ingest.checks import UNSHOWN
from api.journal import log
from api.journal.log import Head, Interval, Post, StorageError, StreamRow
from api.journal.sql import SqlStorage
from decaysketch.asyncwindow import SumSampler

CASE: Case = CASES["sum"]
Client = TestClient | httpx2.Client


@pytest.fixture
def numbered(client: TestClient) -> TestClient:
    """An aggregator with a stream of sums."""
    assert client.put("/v1/streams/s", json=CASE.creation).status_code == 201
    return client


def post(client: Client, sketch: Any, source: str = "tap-7", **interval: Any) -> Any:
    return client.post(
        "/v1/streams/s/sketches",
        params={"source": source, **interval},
        content=sketch.to_bytes(),
        headers=OCTETS,
    )


def everything(client: Client) -> tuple[Any, ...]:
    return (
        client.get("/v1/streams/s").json(),
        client.get("/v1/streams/s/sketch").content,
        client.post("/v1/streams/s/query", json=CASE.query()).json(),
    )


def ledger(data: Path) -> list[Any]:
    with sqlite3.connect(data) as database:
        query = "select source, first, next from ledger order by source, first"
        rows = database.execute(query).fetchall()
    database.close()
    return rows


def test_intervals_that_do_not_meet_are_taken_in_any_order(
    numbered: TestClient, data: Path
) -> None:
    sketches = [CASE.build(k, 200 * k) for k in range(4)]
    for k in (2, 0, 3, 1):
        taken = posted(post(numbered, sketches[k], first=200 * k, next=200 * k + 200))
        assert taken["interval"] == {"first": 200 * k, "next": 200 * k + 200}
        assert taken["duplicate"] is False
    assert everything(numbered)[1] == CASE.join(sketches).to_bytes()
    assert ledger(data) == [("tap-7", 200 * k, 200 * k + 200) for k in range(4)]


def test_a_replay_is_acknowledged_and_counts_nothing(
    start: Callable[..., TestClient], data: Path
) -> None:
    client = start()
    client.put("/v1/streams/s", json=CASE.creation)
    sketch = CASE.build(0, 0)
    post(client, sketch, first=0, next=200)
    before = everything(client)
    for running in (client, start):
        client = running if isinstance(running, TestClient) else running()
        for _ in range(2):
            assert posted(post(client, sketch, first=0, next=200))["duplicate"] is True
        assert everything(client) == before
    assert ledger(data) == [("tap-7", 0, 200)]


@pytest.mark.parametrize(
    ("first", "after"),
    [(100, 300), (0, 400), (50, 150), (199, 200), (0, 199), (1, 200), (150, 900)],
)
def test_a_partial_overlap_is_refused(
    numbered: TestClient, data: Path, first: int, after: int
) -> None:
    sketch = CASE.build(0, 0)
    post(numbered, sketch, first=0, next=200)
    before = everything(numbered)
    for other in (CASE.build(1, first), sketch):
        content = problem(post(numbered, other, first=first, next=after), 409, "interval-conflict")
        for text in (f"[{first}, {after})", "[0, 200)", "'tap-7'"):
            assert text in content["detail"]
        (fault,) = content["errors"]
        assert (fault["field"], fault["value"]) == ("interval", f"[{first}, {after})")
        assert "[0, 200)" in fault["reason"]
    assert everything(numbered) == before
    assert ledger(data) == [("tap-7", 0, 200)]


def test_every_interval_in_the_way_is_named(numbered: TestClient) -> None:
    for k in range(5):
        post(numbered, CASE.build(k, 200 * k), first=200 * k, next=200 * k + 200)
    content = problem(
        post(numbered, CASE.build(9, 0), first=250, next=1_000), 409, "interval-conflict"
    )
    assert [fault["reason"].rpartition(": ")[2] for fault in content["errors"]] == [
        f"[{200 * k}, {200 * k + 200})" for k in range(1, 5)
    ]
    assert "[200, 400), [400, 600), [600, 800), [800, 1000)" in content["detail"]


def test_numbers_that_are_used_again_for_other_elements(numbered: TestClient) -> None:
    """A source that lost its place and starts again at 0. Merged, the new elements would take the
    names of the old ones: those of equal value would vanish."""
    ones, later = (SumSampler(SUM, source="tap-7") for _ in range(2))
    ones.update([1] * 50, [NOW - 60] * 50)
    later.update([1] * 50, [NOW] * 50)
    window = decaysketch.decay.window(100)
    assert (ones | later).sum(window, now=NOW).value == 50  # of 100
    post(numbered, ones, first=0, next=50)
    before = everything(numbered)
    content = problem(post(numbered, later, first=0, next=50), 409, "interval-conflict")
    assert "with other bytes" in content["detail"]
    assert everything(numbered) == before


def test_elements_that_are_named_again(numbered: TestClient) -> None:
    """A replay by a sampler under another name: merged, everything would count twice."""
    ones, again = (SumSampler(SUM, source=name) for name in ("tap-7", "tap-7 restarted"))
    for sampler in (ones, again):
        sampler.update([1] * 50, [NOW] * 50)
    assert (ones | again).sum(decaysketch.decay.window(100), now=NOW).value == 100  # of 50
    post(numbered, ones, first=0, next=50)
    before = everything(numbered)
    problem(post(numbered, again, first=0, next=50), 409, "interval-conflict")
    assert everything(numbered) == before


def test_each_source_and_each_stream_has_its_own_numbers(numbered: TestClient, data: Path) -> None:
    numbered.put("/v1/streams/t", json=CASE.creation)
    for source in ("a", "b"):
        sampler = SumSampler(SUM, source=source)
        sampler.update([5] * 10, [NOW] * 10)
        assert posted(post(numbered, sampler, source, first=0, next=10))["duplicate"] is False
    other = numbered.post(
        "/v1/streams/t/sketches",
        params={"source": "a", "first": 5, "next": 15},
        content=CASE.build(3, 5).to_bytes(),
        headers=OCTETS,
    )
    assert other.status_code == 200
    assert ledger(data) == [("a", 0, 10), ("a", 5, 15), ("b", 0, 10)]


def test_equal_bytes_may_be_of_two_intervals(numbered: TestClient, data: Path) -> None:
    """As where nothing of them was left to keep."""
    empty = SumSampler(SUM)
    for first in (0, 10):
        assert post(numbered, empty, first=first, next=first + 10).status_code == 200
    assert ledger(data) == [("tap-7", 0, 10), ("tap-7", 10, 20)]
    assert numbered.get("/v1/streams/s").json()["posts"] == 1


def test_a_post_without_an_interval_is_not_in_the_ledger(numbered: TestClient, data: Path) -> None:
    sketch = CASE.build(0, 0)
    assert posted(post(numbered, sketch))["interval"] is None
    assert ledger(data) == []
    said = posted(post(numbered, sketch, first=0, next=200))  # it may still say so later
    assert said["duplicate"] is True
    assert ledger(data) == [("tap-7", 0, 200)]
    assert posted(post(numbered, sketch))["duplicate"] is True


def test_what_is_refused_for_another_reason_takes_no_numbers(
    numbered: TestClient, data: Path
) -> None:
    small = CASE.build(0, 0)
    small.resize(5)
    for sketch, status in ((CASES["median"].build(0, 0), 409), (small, 409)):
        assert post(numbered, sketch, first=0, next=200).status_code == status
    assert ledger(data) == []


@pytest.mark.parametrize(
    ("interval", "field", "named"),
    [
        ({"first": 0}, "next", "missing, beside first"),
        ({"next": 5}, "first", "missing, beside next"),
        ({"first": 5, "next": 5}, "next", "more than first, 5"),
        ({"first": 6, "next": 5}, "next", "more than first, 6"),
        ({"first": -1, "next": 5}, "first", "greater than or equal to 0"),
        ({"first": 0, "next": 2**63}, "next", "less than or equal to"),
        ({"first": "x", "next": 5}, "first", "valid integer"),
        ({"first": 0.5, "next": 5}, "first", "valid integer"),
    ],
)
def test_intervals_outside_their_domain(
    numbered: TestClient, data: Path, interval: dict[str, Any], field: str, named: str
) -> None:
    content = problem(post(numbered, CASE.build(0, 0), **interval), 422, "invalid-request")
    (fault,) = content["errors"]
    assert fault["field"] == field
    assert named in fault["reason"]
    assert ledger(data) == []


def test_the_largest_numbers(numbered: TestClient, data: Path) -> None:
    post(numbered, CASE.build(0, 0), first=2**63 - 2, next=2**63 - 1)
    assert ledger(data) == [("tap-7", 2**63 - 2, 2**63 - 1)]


# ----------------------------------------------------------------------- taken off, and released


def release(client: Client, first: Any = None, after: Any = None, source: str = "tap-7") -> Any:
    given = {"first": first, "next": after}
    return client.delete(
        f"/v1/streams/s/sources/{source}/intervals",
        params={name: number for name, number in given.items() if number is not None},
    )


def test_one_post_does_not_take_a_source_off_for_ever(numbered: TestClient, data: Path) -> None:
    everything_else = SumSampler(SUM)
    content = problem(
        post(numbered, everything_else, first=10, next=2**63 - 1), 422, "invalid-request"
    )
    (fault,) = content["errors"]
    assert (fault["field"], fault["value"]) == ("next", 2**63 - 1)
    assert fault["expected"] == f"at most {10 + 2**32}"
    assert "max_interval" in content["detail"]
    assert ledger(data) == []
    assert posted(post(numbered, CASE.build(0, 10), first=10, next=210))["duplicate"] is False


def test_an_interval_is_of_about_as_many_numbers_as_a_sketch_that_discarded_nothing_shows(
    numbered: TestClient, data: Path
) -> None:
    """With a clock there is no telling: all may have expired by it."""
    shown = SumSampler(SUM, source="tap-7")
    shown.update([1, 2, 3], [NOW] * 3)
    for sampler, rows in ((SumSampler(SUM), 0), (shown, 3)):
        most = rows + UNSHOWN
        refused = post(numbered, sampler, first=5, next=5 + most + 1)
        content = problem(refused, 422, "invalid-request")
        assert f"{rows} rows and no watermark" in content["detail"]
        assert content["errors"][0]["expected"] == f"at most {5 + most}"
    assert ledger(data) == []
    assert post(numbered, shown, first=5, next=5 + 3 + UNSHOWN).status_code == 200
    told = SumSampler(SUM)
    told.advance(NOW)
    assert post(numbered, told, "tap-8", first=0, next=2**32).status_code == 200


def test_how_long_an_interval_may_be_is_a_setting(
    start: Callable[..., TestClient], data: Path
) -> None:
    client = start(max_interval=200)
    client.put("/v1/streams/s", json=CASE.creation)
    sketch = CASE.build(0, 0)
    problem(post(client, sketch, first=0, next=201), 422, "invalid-request")
    assert posted(post(client, sketch, first=0, next=200))["duplicate"] is False


def test_an_interval_that_was_released_is_free_again(
    start: Callable[..., TestClient], data: Path
) -> None:
    """What was posted under it stays; and a restart changes nothing."""
    client = start()
    client.put("/v1/streams/s", json=CASE.creation)
    taken_off = SumSampler(SUM)
    taken_off.advance(NOW)
    post(client, CASE.build(0, 0), first=0, next=200)
    post(client, taken_off, first=200, next=10**9)
    before = everything(client)
    problem(post(client, CASE.build(1, 200), first=200, next=400), 409, "interval-conflict")
    assert release(client, 200, 10**9).status_code == 204
    assert everything(client) == before
    assert ledger(data) == [("tap-7", 0, 200)]
    client = start()
    assert posted(post(client, CASE.build(1, 200), first=200, next=400))["duplicate"] is False
    assert posted(post(client, CASE.build(0, 0), first=0, next=200))["duplicate"] is True
    assert (
        everything(client)[1]
        == CASE.join([CASE.build(0, 0), CASE.build(1, 200), taken_off]).to_bytes()
    )


def test_the_same_bytes_may_come_again_after_a_release(numbered: TestClient, data: Path) -> None:
    sketch = CASE.build(0, 0)
    post(numbered, sketch, first=0, next=200)
    assert release(numbered, 0, 200).status_code == 204
    assert posted(post(numbered, sketch, first=0, next=200))["duplicate"] is True
    assert ledger(data) == [("tap-7", 0, 200)]
    assert numbered.get("/v1/streams/s").json()["posts"] == 1


def test_only_what_was_acknowledged_as_one_interval_is_released(
    numbered: TestClient, data: Path
) -> None:
    for source in ("tap-7", "a/b"):
        sampler = SumSampler(SUM, source=source)
        for first in (0, 10):
            sampler.update([5] * 10, [NOW] * 10)
            assert post(numbered, sampler, source, first=first, next=first + 10).is_success
    held = ledger(data)
    for first, after, named in ((0, 20, "[0, 10), [10, 20)"), (0, 9, "[0, 10)"), (30, 40, "none")):
        content = problem(release(numbered, first, after), 404, "unknown-interval")
        assert content["detail"].endswith(f"intervals overlap it: {named}")
    problem(release(numbered, 0, 10, "nobody"), 404, "unknown-interval")
    assert (
        numbered.delete("/v1/streams/none/sources/a/intervals", params={"first": 0, "next": 1})
        .json()["type"]
        .endswith("unknown-stream")
    )
    for first, after in ((None, None), (0, None), (None, 10), (10, 10), (-1, 10), (0, 2**63)):
        problem(release(numbered, first, after), 422, "invalid-request")
    assert ledger(data) == held
    assert release(numbered, 0, 10, "a/b").status_code == 204
    assert ledger(data) == [each for each in held if each != ("a/b", 0, 10)]


# ------------------------------------------------------------------------------ all or nothing


def test_an_interval_and_its_body_are_on_disk_together(
    numbered: TestClient, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise StorageError("disk full")

    before = everything(numbered)
    with monkeypatch.context() as patch:
        patch.setattr("api.journal.sql._FileWriter.insert_rows", fail)  # between the two
        problem(post(numbered, CASE.build(0, 0), first=0, next=200), 503, "journal-unavailable")
    assert ledger(data) == []
    assert everything(numbered) == before
    assert posted(post(numbered, CASE.build(1, 0), first=0, next=200))["duplicate"] is False


def test_many_threads_one_interval(numbered: TestClient, data: Path) -> None:
    """Other bodies for the same numbers, at the same time: one is taken, wholly."""
    for first in range(0, 1_000, 200):
        sketches = [CASE.build(k, first) for k in range(6)]
        ready = threading.Barrier(len(sketches))
        taken: list[Any] = [None] * len(sketches)

        def send(k: int, first: int = first, sketches: Any = sketches, ready: Any = ready,
                 taken: Any = taken) -> None:  # fmt: skip
            ready.wait()
            taken[k] = post(numbered, sketches[k], first=first + 10 * k, next=first + 10 * k + 200)

        before = decaysketch.asyncwindow.SumSampler.from_bytes(everything(numbered)[1])
        threads = [threading.Thread(target=send, args=(k,)) for k in range(len(sketches))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(each.status_code for each in taken) in ([200] + [409] * 5, [409] * 6)
        won = [sketches[k] for k, each in enumerate(taken) if each.status_code == 200]
        assert everything(numbered)[1] == CASE.join([before, *won]).to_bytes()
    for (_, _, end), (_, begin, _) in itertools.pairwise(ledger(data)):
        assert end <= begin


def test_many_threads_one_body(numbered: TestClient, data: Path) -> None:
    sketch = CASE.build(0, 0)
    ready = threading.Barrier(6)
    duplicates: list[bool] = []

    def send() -> None:
        ready.wait()
        duplicates.append(posted(post(numbered, sketch, first=0, next=200))["duplicate"])

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(duplicates) == [False] + [True] * 5
    assert everything(numbered)[1] == sketch.to_bytes()
    assert ledger(data) == [("tap-7", 0, 200)]


def test_several_writers_of_one_file(data: Path) -> None:
    """Not only one process is held off: the file itself is."""
    asyncio.run(_write_from_several(data))


async def _write_from_several(data: Path) -> None:
    journals = [await SqlStorage.open(f"sqlite:///{data}") for _ in range(4)]
    row = StreamRow(0, "s", "x", CASE.creation, 0)
    async with writing(journals[0]) as tx:
        stream = await tx.do(log.create, row)
    assert stream is not None
    taken = 0

    async def append(number: int) -> None:
        nonlocal taken
        for k in range(20):
            interval = Interval(10 * k + number, 10 * k + number + 8)
            new = Post(stream.id, "a", bytes([number, k]), 1, interval)
            async with writing(journals[number]) as tx:
                (outcome,) = await tx.do(log.append, [new], 1, 0)
            taken += not isinstance(outcome, IntervalConflictError)

    await asyncio.gather(*map(append, range(4)))
    rows = ledger(data)
    async with reading(journals[0]) as rx:
        assert await rx.head() == Head(last=taken, catalog=1)
    assert taken == len(rows)
    assert all(end <= begin for (_, _, end), (_, begin, _) in itertools.pairwise(rows))
    for journal in journals:
        await journal.close()


def test_killed_while_posting(
    data: Path, server: Callable[..., AbstractContextManager[Any]]
) -> None:
    """SIGKILL in the middle: what was acknowledged is there, and a client that goes on from its
    last acknowledgement, sending that one again, ends with every number once."""
    whole = [CASE.build(k, 200 * k) for k in range(40)]
    done = 0

    def post_on(client: httpx2.Client) -> None:
        nonlocal done
        while done < len(whole):
            answer = post(client, whole[done], first=200 * done, next=200 * done + 200)
            assert answer.status_code == 200
            done += 1

    for _ in range(2):
        with server(data) as (process, client):
            client.put("/v1/streams/s", json=CASE.creation)
            killer = threading.Timer(0.15, process.kill)
            killer.start()
            try:
                post_on(client)
            except httpx2.TransportError:
                done = max(done - 1, 0)  # not sure of the last one: again
            killer.join()
    with server(data) as (_, client):
        post_on(client)
        state, body, _ = everything(client)
        assert body == CASE.join(whole).to_bytes()
        assert state["posts"] == len(whole)
        problem(post(client, whole[3], first=601, next=801), 409, "interval-conflict")
    assert ledger(data) == [("tap-7", 200 * k, 200 * k + 200) for k in range(40)]
