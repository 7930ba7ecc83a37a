"""Work in the background that meets what nobody expected: it goes on, and everybody is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from databases import new_database
from service import PARAMS, build
from transactions import reading

from api.journal.log import Post
from api.journal.sql import SqlStorage
from api.service import compactor, threads
from api.service.aggregator import Aggregator, Limits
from api.service.committer import Committer
from api.service.compactor import Compactor
from api.service.follower import Follower
from api.service.merging import MergeBuffer
from api.service.metrics import Metrics
from api.service.streams import Stream
from api.service.threads import Background, Threads
from decaysketch import merge
from decaysketch.families import recipe_of

pytestmark = pytest.mark.anyio

FORM = recipe_of(PARAMS).to_dict()
Open = Callable[..., Awaitable[Aggregator]]


class BugError(Exception):
    """What nobody expected."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again at once."""
    monkeypatch.setattr(threads, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(threads, "_LONGEST_PAUSE_S", 0.01)


@pytest.fixture
async def aggregate(tmp_path: Any) -> AsyncIterator[Open]:
    """Start one more aggregator over a database."""
    database = new_database("sqlite", tmp_path)
    async with AsyncExitStack() as stack:

        async def start(**limits: Any) -> Aggregator:
            threads = Threads(2)
            stack.callback(threads.close)
            opened = Aggregator(
                await SqlStorage.open(database.url),
                threads,
                limits=Limits(**({"poll_s": 0.01, "compact_every_s": 0.01} | limits)),
                observer=Metrics(),
            )
            stack.push_async_callback(opened.close)
            await opened.start()
            return opened

        yield start


async def post(aggregator: Aggregator, name: str, seed: int, source: str = "a") -> str:
    stream = aggregator.stream(name)
    body = build(seed, 50, first_id=40 * seed).to_bytes()
    post = Post(stream.id, source, body, snapshot=stream.decode(body))
    receipt = await aggregator.post({stream: [post]})
    return receipt.token


def merged(*seeds: int) -> bytes:
    return merge([build(seed, 50, first_id=40 * seed) for seed in seeds]).to_bytes()


def failures(aggregator: Aggregator, task: str) -> float:
    assert isinstance(aggregator.observer, Metrics)
    label = f'decaysketch_background_failures_total{{task="{task}"}} '
    lines = aggregator.observer.exposition().decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith(label))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(1800):  # only if it never does
        while not holds():
            await asyncio.sleep(0.01)


def failing(name: str, monkeypatch: pytest.MonkeyPatch, owner: type) -> list[bool]:
    """Plant an error in a method, until the list is emptied."""
    planted = [True]
    method = getattr(owner, name)

    def fails(self: Any, *arguments: Any, **named: Any) -> Any:
        if planted:
            raise BugError(f"planted in {name}")
        return method(self, *arguments, **named)

    monkeypatch.setattr(owner, name, fails)
    return planted


async def test_a_stream_that_cannot_be_folded_stays_in_the_backlog_and_holds_up_no_other(
    aggregate: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = await aggregate()
    for name in ("broken", "sound"):
        await here.catalog.create(name, FORM)
    broken, fold, planted = here.stream("broken"), MergeBuffer.fold, [True]

    def fold_others(self: MergeBuffer) -> None:
        if planted and broken.merges(self):
            raise BugError("planted")
        fold(self)

    monkeypatch.setattr(MergeBuffer, "fold", fold_others)
    await post(here, "broken", 1)
    await until(lambda: failures(here, "fold") >= 2)
    for seed in (2, 3):
        await post(here, "sound", seed)
        await until(lambda: not here.stream("sound").unmerged[0])
    assert here.backlog == 1
    assert here.backlog_rows > 0
    assert (await here.ready())["running"] == "failing: fold"
    assert "BugError: planted" in caplog.text  # with its traceback
    assert {record.levelname for record in caplog.records if "fold" in record.message} == {"ERROR"}
    planted.clear()
    await until(lambda: not here.backlog)
    assert (await here.ready())["running"] is True
    assert broken.snapshot().to_bytes() == merged(1)


async def test_a_broken_stream_that_is_deleted_is_of_no_concern_any_more(
    aggregate: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await aggregate()
    await here.catalog.create("broken", FORM)
    failing("fold", monkeypatch, MergeBuffer)
    await post(here, "broken", 1)
    await until(lambda: failures(here, "fold") >= 1)
    await here.catalog.delete("broken")
    await until(lambda: not here.backlog)
    assert (await here.ready())["running"] is True


async def test_a_source_that_cannot_be_merged_stays_in_the_journal_and_the_others_are_compacted(
    aggregate: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = await aggregate(compact_rows=10_000)
    await here.catalog.create("s", FORM)
    write, planted = compactor._snapshot_row, [True]

    def write_others(stream: Stream, source: str, *rest: Any) -> Any:
        if planted and source == "a":
            raise BugError("planted")
        return write(stream, source, *rest)

    monkeypatch.setattr(compactor, "_snapshot_row", write_others)
    for seed in range(4):
        await post(here, "s", seed, "ab"[seed % 2])
    for _ in range(2):
        await here.compact()
    async with reading(here._storage) as rx:
        rows = await rx.rows(0, 100, 1 << 20)
        snapshots = await rx.snapshots(0)
    assert [row.source for row in rows] == ["a", "a"]
    assert {each.source for each in snapshots} == {"b"}
    assert failures(here, "compact") == 2
    assert "source 'a' of stream 's'" in caplog.text
    assert "BugError: planted" in caplog.text
    again = await aggregate()
    assert again.stream("s").snapshot().to_bytes() == merged(*range(4))
    assert again.stream("s").totals().posts == 4


@pytest.mark.parametrize(
    ("task", "owner", "name"),
    [
        ("compact", Compactor, "is_due"),
        ("follow", Follower, "_check_direction"),
        ("fold", Stream, "waiting"),
        ("commit", Committer, "_next_batch"),
    ],
)
async def test_no_task_ends_for_what_it_raises(
    aggregate: Open,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    task: str,
    owner: type,
    name: str,
) -> None:
    """While nothing is compacted every answer is right, so that alone does not make it unready."""
    here, there = await aggregate(), await aggregate()
    await here.catalog.create("s", FORM)
    await there.find("s")
    planted = failing(name, monkeypatch, owner)
    posted = asyncio.ensure_future(post(here, "s", 1))
    await until(lambda: failures(here, task) >= 3)
    running = (await here.ready())["running"]
    assert running == (True if task == "compact" else f"failing: {task}")
    assert f"{task} has failed: BugError" in caplog.text
    assert f"BugError: planted in {name}" in caplog.text  # the traceback
    planted.clear()
    token = await posted
    for each in (here, there):
        await each.reached(token, ["s"])
        await until(lambda each=each: not each.backlog)  # type: ignore[misc]
        assert each.stream("s").snapshot().to_bytes() == merged(1)
    await until(lambda: not here._background.failing)
    assert (await here.ready())["running"] is True


async def test_what_was_taken_before_a_row_that_fails_is_counted_once(
    aggregate: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are read many at a time; which were taken is known when one of them fails."""
    here = await aggregate()
    there = await aggregate(poll_s=3600.0)
    await here.catalog.create("s", FORM)
    await there.find("s")
    for seed in range(3):
        await post(here, "s", seed)
    take, planted = Stream.take, [True]

    def take_others(self: Stream, row: Any, sketch: Any) -> None:
        if planted and self is there.stream("s") and row.seq == 2:
            raise BugError("planted")
        take(self, row, sketch)

    monkeypatch.setattr(Stream, "take", take_others)
    for _ in range(3):
        with pytest.raises(BugError):
            await there._follower.catch_up()
    planted.clear()
    await there._follower.catch_up()
    assert there.stream("s").totals() == here.stream("s").totals()
    assert there.stream("s").snapshot().to_bytes() == merged(*range(3))


async def test_who_fails_again_and_again_is_tried_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    assert [threads.pause_s(times) for times in (1, 2, 3, 6, 10**6)] == [1, 2, 4, 30, 30]
    assert not Background(Metrics()).running
