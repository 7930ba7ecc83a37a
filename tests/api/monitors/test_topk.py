"""Top-k lists over a database: rounds in several processes, epochs, posts that are not sound."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from databases import Database, new_database
from service import NOW, PARAMS

from api.errors import ForeignSiteError, RevokedSourceError, TooManyListsError, UnknownListError
from api.journal.sql import SqlStorage
from api.monitors.event_fanout import Mailboxes
from api.monitors.topk import Listed, Lists
from api.service.aggregator import Aggregator, Limits
from api.service.threads import Threads
from api.settings import Settings
from decaysketch.errors import ParameterError
from decaysketch.families import recipe_of
from decaysketch.topk import TopKSite, TopKSpec
from decaysketch.topk.ranking import Item

pytestmark = pytest.mark.anyio

SPEC = {"k": 2, "decay": "window(1h)", "sites": ["a", "b", "c"], "round_s": 10}
COUNTS: dict[str, dict[Item, int]] = {
    "a": {"x": 9, "y": 5, "p": 4, "q": 1},
    "b": {"z": 8, "y": 5, "p": 3, "r": 1},
    "c": {"u": 7, "y": 5, "p": 3, "s": 1},
}
TRUE = [("y", 15), ("p", 10)]  # first at no site


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Replica:
    """One process over the database, without tasks of its own; time is the test's."""

    aggregator: Aggregator
    lists: Lists

    @property
    def stream(self) -> Any:
        return self.aggregator.stream("s")

    async def define(self, **fields: Any) -> Listed:
        spec = self.lists.read_spec(self.stream, SPEC | fields)
        listed, _ = await self.lists.define(self.stream, "m", spec)
        return listed

    async def found(self) -> dict[str, Any]:
        """What is said, once everything was gone on with that could be."""
        for _ in range(3):
            await self.lists.look()
        found = (await self.lists.find(self.stream, "m")).row.found
        assert found is not None
        return dict(found)

    async def exchange(self, site: TopKSite, counts: dict[Item, int]) -> None:
        """As a client does, until it is asked nothing more for now."""
        ask = await self.lists.ask(self.stream, "m", site.name)
        post = site.take(ask)
        if post is None and ask.have is None and ask.as_of is not None:
            post = site.post(counts, ask.as_of)
        while post is not None:
            taken = await self.lists.take(self.stream, "m", site.name, post.to_dict())
            post = site.take(taken)


Run = Callable[..., Awaitable[Replica]]


@pytest.fixture
def clock() -> list[int]:
    return [NOW * 1_000_000]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return new_database("sqlite", tmp_path)


@pytest.fixture
async def run(
    database: Database, clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Run]:
    monkeypatch.setattr("api.monitors.topk._REST", 0)
    async with AsyncExitStack() as stack:

        async def start(max_stream_lists: int = 1) -> Replica:
            threads = Threads(1)
            stack.callback(threads.close)
            storage = await SqlStorage.open(database.url)
            now_us = lambda: clock[0]  # noqa: E731
            limits = Limits(poll_s=3600.0, compact_every_s=3600.0)
            aggregator = Aggregator(storage, threads, now_us=now_us, limits=limits)
            stack.push_async_callback(aggregator.close)
            await aggregator.start()
            settings = Settings(max_stream_lists=max_stream_lists)
            lists = Lists(aggregator, storage, Mailboxes(), settings)
            if not aggregator.streams():
                await aggregator.catalog.create("s", recipe_of(PARAMS).to_dict())
            await lists.look()
            return Replica(aggregator, lists)

        yield start


def rows(found: dict[str, Any]) -> list[tuple[Item, int]]:
    assert all(row["lower"] == row["upper"] for row in found["rows"] if found["certain"])
    return [(row["item"], row["lower"]) for row in found["rows"]]


async def test_rounds_over_two_processes_end_certain(run: Run, clock: list[int]) -> None:
    one, other = await run(), await run()
    await one.define()
    sites = {name: TopKSite(name, 1) for name in COUNTS}
    for turn in range(3):
        for _ in range(4):  # three exchanges, and one in which there is nothing to say
            for number, (name, site) in enumerate(sites.items()):
                replica = (one, other)[(turn + number) % 2]
                await replica.lists.look()
                await replica.exchange(site, COUNTS[name])
        found = await other.found()
        assert (rows(found), found["certain"], found["without"]) == (TRUE, True, [])
        assert found["as_of"] == clock[0] // 1_000_000
        assert await one.found() == found
        clock[0] += 10_000_000


async def test_a_site_that_is_silent_is_named_and_comes_back(run: Run, clock: list[int]) -> None:
    replica = await run()
    await replica.define()
    sites = {name: TopKSite(name, 1) for name in COUNTS}
    with replica.lists._mailboxes.opened(replica.stream.id, None) as mailbox:
        for names, waits in (("ab", True), ("abc", False)):
            for _ in range(4):
                await replica.lists.look()
                for name in names:
                    await replica.exchange(sites[name], COUNTS[name])
            if waits:
                assert replica.lists.of_stream(replica.stream)[0].row.found is None
                clock[0] += 5_000_000  # half of the round
                for _ in range(4):
                    await replica.lists.look()
                    for name in names:
                        await replica.exchange(sites[name], COUNTS[name])
            found = await replica.found()
            assert found["certain"]
            assert found["without"] == sorted(COUNTS.keys() - set(names))
            assert (rows(found) == TRUE) == (names == "abc")
            ((kind, data),) = mailbox.take()
            assert kind == "topk"
            assert str(len(found["without"])).encode() in data
    clock[0] += 10_000_000  # and nobody posts: what was said stands, as of its time
    assert await replica.found() == found
    (listed,) = replica.lists.of_stream(replica.stream)
    assert (listed.asked.as_of, listed.heard) == (clock[0] // 1_000_000, {})


async def test_a_restart_goes_on_where_the_round_stood(run: Run, clock: list[int]) -> None:
    before = await run()
    await before.define()
    sites = {name: TopKSite(name, 1) for name in COUNTS}
    await before.lists.look()
    for name in "ab":
        await before.exchange(sites[name], COUNTS[name])
    after = await run()
    heard = after.lists.of_stream(after.stream)[0].heard
    assert heard.keys() == {"a", "b"}
    for _ in range(4):
        for name, site in sites.items():
            await after.lists.look()
            await after.exchange(site, COUNTS[name])
    assert rows(await after.found()) == TRUE
    del before


async def test_what_was_counted_for_another_definition_is_not_taken(
    run: Run, clock: list[int]
) -> None:
    replica = await run()
    first = await replica.define()
    await replica.lists.look()
    site = TopKSite("a", 1)
    site.take(await replica.lists.ask(replica.stream, "m", "a"))
    old = site.post(COUNTS["a"], clock[0] // 1_000_000)
    second = await replica.define(decay="window(60)")
    assert second.row.epoch > first.row.epoch
    await replica.lists.look()
    assert second.row.found is None
    assert (await replica.lists.ask(replica.stream, "m", "a")).as_of is None  # one of its own time
    for post in (old, replace(old, asked=None)):
        answer = await replica.lists.take(replica.stream, "m", "a", post.to_dict())
        assert (answer.epoch, answer.have) == (second.row.epoch, None)
    clock[0] += 1_000_000
    await replica.lists.look()
    await replica.lists.look()
    ask = await replica.lists.ask(replica.stream, "m", "a")
    assert ask.as_of == clock[0] // 1_000_000
    late = replace(old, as_of=ask.as_of)  # the new round, by what the old epoch asked
    assert (await replica.lists.take(replica.stream, "m", "a", late.to_dict())).have is None


async def test_posts_that_are_not_sound_change_nothing(run: Run, clock: list[int]) -> None:
    replica = await run()
    with pytest.raises(UnknownListError):
        await replica.lists.ask(replica.stream, "m", "a")
    await replica.define()
    await replica.lists.look()
    await replica.lists.look()
    site = TopKSite("a", 1)
    site.take(await replica.lists.ask(replica.stream, "m", "a"))
    post = site.post(COUNTS["a"], clock[0] // 1_000_000).to_dict()

    async def take(source: str = "a", **fields: Any) -> None:
        await replica.lists.take(replica.stream, "m", source, post | fields)

    many = [[f"i{number}", 1] for number in range(2_001)]
    for fields in (
        {"site": "b"}, {"more": 1}, {"entries": [[1, 2]]}, {"entries": [["x", -1]]},
        {"entries": [["x", 1], ["x", 1]]}, {"entries": many}, {"rest": float("nan")},
        {"seq": 1 << 60}, {"asked": [1]},
    ):  # fmt: skip
        with pytest.raises(ParameterError):
            await take(**fields)
    with pytest.raises(ForeignSiteError, match="not one of the 3 sources"):
        await take("d", site="d")
    await take(as_of=post["as_of"] - 10)
    await take(as_of=post["as_of"] + 10)
    assert replica.lists.of_stream(replica.stream)[0].heard == {}
    await take()
    await take()
    assert replica.lists.of_stream(replica.stream)[0].heard.keys() == {"a"}
    with pytest.raises(TooManyListsError):
        await replica.lists.define(
            replica.stream, "n", TopKSpec(k=1, decay=replica.lists._known.popitem()[1].spec.decay)
        )


async def test_a_list_of_which_a_word_cannot_be_read_holds_up_no_other(
    run: Run, clock: list[int], database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    replica = await run(max_stream_lists=2)
    listed = await replica.define()
    spec = replica.lists.read_spec(replica.stream, SPEC | {"sites": ["a"]})
    await replica.lists.define(replica.stream, "n", spec)
    await replica.exchange(TopKSite("a", 1), COUNTS["a"])
    bad = {"id": listed.row.id}
    database.execute("UPDATE topk_words SET post = '{}' WHERE list_id = :id", bad)
    before = (await replica.lists.find(replica.stream, "n")).row.last_as_of
    for _ in range(2):
        clock[0] += 10_000_000
        await replica.lists.look()
    assert (await replica.lists.find(replica.stream, "n")).row.last_as_of != before
    assert "top-k list 'm' is stopped: post has no field 'site'" in caplog.text
    await replica.lists.remove(replica.stream, "n")  # nor those who define


async def test_without_names_all_that_post_take_part_until_there_are_too_many(
    run: Run, clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decaysketch.topk.spec.MAX_UNLISTED", 3)
    replica = await run()
    await replica.define(sites=None)
    sites = {name: TopKSite(name, 1) for name in COUNTS}
    await replica.lists.look()
    for _ in range(4):
        for name, site in sites.items():
            await replica.lists.look()
            await replica.exchange(site, COUNTS[name])
    assert rows(await replica.found()) == TRUE
    with pytest.raises(ForeignSiteError, match="3 at most"):
        await replica.exchange(TopKSite("d", 1), {"d": 1})
    # What was revoked takes part no more, in the round that is open either.
    await replica.aggregator.catalog.revoke("s", "c")
    with pytest.raises(RevokedSourceError):
        await replica.lists.take(replica.stream, "m", "c", {})
    await replica.lists.look()
    assert replica.lists.of_stream(replica.stream)[0].sites == {"a", "b"}
