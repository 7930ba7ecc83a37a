"""Monitors over a database: grants in the transaction of the post, states, alerts told once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from databases import Database, new_database
from service import NOW, PARAMS, build
from transactions import reading

from api.errors import IntervalConflictError, InvalidRequestError, TooManyMonitorsError
from api.journal.log import Interval, Post, StorageError
from api.journal.sql import SqlStorage
from api.monitors import engine, history, store
from api.monitors.engine import Monitors, Reporting
from api.monitors.outbox import Outbox
from api.monitors.webhooks import Webhooks
from api.origins import Origin
from api.service.aggregator import Aggregator, Limits
from api.service.threads import Threads
from api.settings import Settings
from decaysketch import DecaySketch
from decaysketch.families import recipe_of
from decaysketch.monitor import Held, Report, State, group_of

pytestmark = pytest.mark.anyio

HOOK = "https://ops.example/hook"
SPEC: dict[str, Any] = {
    "kind": "threshold",
    "question": "count",
    "above": 700.0,
    "within": 0.1,
    "decay": {"kind": "none"},
    "webhook": HOOK,
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Replica:
    """One process over the database, without tasks of its own; time is the test's."""

    aggregator: Aggregator
    monitors: Monitors
    outbox: Outbox
    sent: list[dict[str, Any]] = field(default_factory=list)

    @property
    def stream(self) -> Any:
        return self.aggregator.stream("s")

    async def post(
        self, report: Report, seed: int = 1, source: str = "a", interval: Interval | None = None
    ) -> Reporting:
        sketch = build(seed, first_id=10_000 * seed)
        reporting = self.monitors.reporting(self.stream, source, report, len(sketch))
        stream, snapshot = self.stream, sketch.snapshot()
        post = Post(stream.id, source, sketch.to_bytes(), interval=interval, snapshot=snapshot)
        await self.aggregator.post({stream: [post]}, beside=reporting.write)
        return reporting

    async def state(self) -> State:
        await self.monitors.look()
        state = self.monitors.watched(self.stream, "m").state
        assert state is not None
        return state

    async def tell(self) -> list[tuple[str, int]]:
        await self.outbox.begin()
        await self.outbox.idle()
        return [(each["status"], each["sequence"]) for each in self.sent]


Run = Callable[[], Awaitable[Replica]]


@pytest.fixture
def clock() -> list[int]:
    return [NOW * 1_000_000]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return new_database("sqlite", tmp_path)


@pytest.fixture
async def run(database: Database, clock: list[int]) -> AsyncIterator[Run]:
    async with AsyncExitStack() as stack:

        async def start() -> Replica:
            threads = Threads(1)
            stack.callback(threads.close)
            storage = await SqlStorage.open(database.url)
            now_us = lambda: clock[0]  # noqa: E731
            limits = Limits(poll_s=3600.0, compact_every_s=3600.0)
            aggregator = Aggregator(storage, threads, now_us=now_us, limits=limits)
            stack.push_async_callback(aggregator.close)
            await aggregator.start()
            settings = Settings(max_stream_monitors=2)
            sent: list[dict[str, Any]] = []

            async def send(_url: str, body: bytes, _now_s: int) -> None:
                sent.append(json.loads(body))

            outbox = Outbox(
                storage, send, now_us=now_us, give_up_s=3600, observer=aggregator.observer
            )
            webhooks = Webhooks(frozenset({Origin.of(HOOK)}))
            monitors = Monitors(aggregator, storage, outbox, webhooks, settings)
            if "s" not in [each.name for each in aggregator.streams()]:
                await aggregator.catalog.create("s", recipe_of(PARAMS).to_dict())
            return Replica(aggregator, monitors, outbox, sent)

        yield start


async def defined(replica: Replica, **changes: Any) -> int:
    """Define ``m``; its epoch."""
    spec = replica.monitors.read_spec(replica.stream, SPEC | changes)
    watched, _ = await replica.monitors.define(replica.stream, "m", spec)
    return watched.row.epoch


async def accounts(replica: Replica) -> dict[str, Any]:
    async with reading(replica.monitors._storage) as rx:
        found = await rx.do(store.accounts_of, [row.id for row in await rx.do(store.every)])
    return {name: account for of in found.values() for name, account in of.items()}


async def test_from_calm_to_firing_and_told_once_by_two(run: Run, clock: list[int]) -> None:
    one = await run()
    two = await run()
    epoch = await defined(one)
    answer = (await one.post(Report(1, 1))).answer()
    (grant,) = answer.grants
    assert (grant.inc, grant.seq, grant.epoch) == (1, 1, epoch)
    assert grant.spec is not None  # it did not know of it
    state = await one.state()
    assert (state.verdict, state.reason, state.silent) == ("uncertain", "silent", ("a",))
    held = {"m": Held(epoch, grant.serial)}
    (smaller,) = (await one.monitors.report(one.stream, "a", Report(1, 2, held))).grants
    assert smaller.allowance < grant.allowance
    assert smaller.spec is None
    assert (await two.state()).reason == "allowances"  # it may still act on the larger
    held = {"m": Held(epoch, smaller.serial)}
    await one.monitors.report(one.stream, "a", Report(1, 3, held))
    assert (await one.state()).verdict == (await two.state()).verdict == "calm"
    await two.post(Report(1, 4, held), seed=2)
    for replica in (one, two):
        assert (await replica.state()).verdict == "firing"
    clock[0] += 1_000_000
    assert await two.tell() + await one.tell() == [("firing", 1)]
    message = (one.sent + two.sent)[0]
    assert message["alerts"][0]["labels"] == {"alertname": "m", "stream": "s"}
    assert message["version"] == "4"
    # Silence ends no alert; what is known to be over does, and is told once as well.
    clock[0] += 60_000_000
    await one.aggregator.catalog.revoke("s", "a")
    for replica in (two, one):
        assert (await replica.state()).verdict == "calm"
    assert sorted(await one.tell() + await two.tell()) == [("firing", 1), ("resolved", 2)]


async def test_a_site_that_follows_before_the_first_evaluation_learns_of_the_monitor(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await run()
    told: list[list[dict[str, Any]]] = []
    taken = one.aggregator.taken

    async def follow_now(head: int) -> None:
        told.append([
            site for source in ("a", "b") for site in one.monitors.definitions(one.stream, source)
        ])  # fmt: skip
        await taken(head)

    monkeypatch.setattr(one.aggregator, "taken", follow_now)
    epoch = await defined(one, sites=["a"])
    spec = one.monitors.watched(one.stream, "m").row.spec
    assert told[0] == [{"monitor": "m", "epoch": epoch, "spec": spec}]


async def test_a_refused_post_grants_nothing(run: Run) -> None:
    one = await run()
    await defined(one)
    await one.post(Report(1, 1), interval=Interval(0, 1000))
    before = await accounts(one)
    with pytest.raises(IntervalConflictError):
        await one.post(Report(1, 2), seed=2, interval=Interval(500, 1500))
    assert await accounts(one) == before


async def test_a_crash_before_the_commit_leaves_no_grant(run: Run) -> None:
    one = await run()
    await defined(one)
    reporting = one.monitors.reporting(one.stream, "a", Report(1, 1), 5)

    def dies(tx: Any) -> None:
        tx.lock_head()
        reporting.write(tx)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await one.monitors._storage.write(dies)
    assert await accounts(one) == {}


async def test_a_restart_loses_no_grant_and_changes_no_epoch(run: Run) -> None:
    one = await run()
    epoch = await defined(one)
    (grant,) = (await one.post(Report(1, 1))).answer().grants
    await one.monitors.look()
    for number in (2, 3):
        held = {"m": Held(epoch, grant.serial)}
        (grant,) = (await one.monitors.report(one.stream, "a", Report(1, number, held))).grants
    again = await run()
    assert (await again.state()).verdict == "calm"
    assert again.monitors.watched(again.stream, "m").row.epoch == epoch


async def test_the_same_again_changes_nothing_and_another_spec_begins_an_epoch(
    run: Run, clock: list[int]
) -> None:
    one = await run()
    epoch = await defined(one)
    with one.monitors.mailboxes.opened(one.stream.id, "a") as site:
        assert await defined(one) == epoch
        assert site.take() == []
        later = await defined(one, above=800.0)
        assert later > epoch
        ((kind, data),) = site.take()
        assert (kind, json.loads(data)["epoch"]) == ("define", later)
        await one.monitors.remove(one.stream, "m")
        assert site.take() == [("gone", b'{"monitor":"m"}')]
    answer = await one.monitors.report(one.stream, "a", Report(1, 1, {"m": Held(later, 1)}))
    assert (answer.grants, answer.gone) == ((), ("m",))
    clock[0] += 1
    assert await defined(one) > epoch


async def test_without_a_report_a_stream_is_evaluated_as_a_query(
    run: Run, clock: list[int]
) -> None:
    """Also when only time passes. A source takes part from its first report on."""
    one = await run()
    await defined(one, decay="window(10s)", above=300.0)
    sketch = build(1)
    post = Post(one.stream.id, "bridge", sketch.to_bytes(), snapshot=sketch.snapshot())
    await one.aggregator.post({one.stream: [post]})
    newest = sketch.snapshot().newest
    assert newest is not None
    clock[0] = newest * 1_000_000
    state = await one.state()
    assert (state.verdict, state.silent) == ("calm", ())
    await defined(one, decay="window(10s)", above=1.0)
    assert (await one.state()).verdict == "firing"
    clock[0] += 11_000_000
    state = await one.state()
    assert (state.verdict, state.value) == ("calm", 0.0)
    await one.monitors.report(one.stream, "site", Report(1, 1))
    assert (await one.state()).silent == ("site",)


async def test_a_look_that_fails_is_made_again(
    run: Run, clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await run()
    await defined(one, above=1.0)
    assert (await one.state()).verdict == "calm"
    await one.post(Report(1, 1))

    def fails(*_: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(history, "insert", fails)
        with pytest.raises(StorageError):
            await one.monitors.look()
    assert one.monitors._schedule.due(float("inf"))
    assert (await one.state()).verdict == "firing"
    found, _ = await one.monitors.history(one.stream, "m", 0, clock[0] + 1, 10)
    assert [each.state for each in found] == ["uncertain", "calm", "firing"]


async def test_there_are_no_more_than_may_be(run: Run) -> None:
    one = await run()
    spec = one.monitors.read_spec(one.stream, SPEC)
    for name in ("a", "b"):
        await one.monitors.define(one.stream, name, spec)
    with pytest.raises(TooManyMonitorsError, match="2 monitors; expected at most 2"):
        await one.monitors.define(one.stream, "c", spec)
    await one.aggregator.catalog.delete("s")  # and all that belongs to it
    await one.monitors.look()
    assert await accounts(one) == {}


# ------------------------------------------------------------------------------------------ groups

BY_PART = {
    "kind": "threshold", "question": "count", "by": ["v // 10"], "above": 3.0, "groups": 2,
    "decay": "window(100s)", "group_retention_s": 1000, "webhook": HOOK,
}  # fmt: skip


class Grouped:
    """One monitor with groups, over some processes."""

    def __init__(self, *replicas: Replica) -> None:
        self.replicas, self._ids = replicas, iter(range(10**6))

    async def post(self, now_us: int, **groups: int) -> None:
        """Post rows with values 10 * group. The names are ``g1=4``: four of group 1."""
        first = self.replicas[0]
        values = [10.0 * int(name[1:]) for name, count in groups.items() for _ in range(count)]
        sketch = DecaySketch(PARAMS)
        now = now_us // 1_000_000
        sketch.update(values, 1, [now] * len(values), [next(self._ids) for _ in values])
        post = Post(first.stream.id, "a", sketch.to_bytes(), snapshot=sketch.snapshot())
        await first.aggregator.post({first.stream: [post]})

    async def look(self) -> list[dict[int, Any]]:
        """The alert phases of all groups, as each process shows them."""
        shown: list[dict[int, Any]] = []
        for replica in self.replicas:
            await replica.monitors.look()
            groups = replica.monitors.watched(replica.stream, "m").row.groups
            shown.append(
                {next(iter(group_of(k).values())): g.alert.phase for k, g in groups.items()}
            )
        return shown

    async def told(self) -> list[tuple[str, str, int]]:
        """Group, status and number of every message so far, in order of the groups."""
        for replica in 2 * self.replicas:  # which send one message of an alert at a time
            await replica.outbox.begin()
            await replica.outbox.idle()
        sent = [each for replica in self.replicas for each in replica.sent]
        found = [(m["groupLabels"]["v_10"], m["status"], m["sequence"]) for m in sent]
        return sorted(found, key=lambda each: (each[0], each[2]))


async def test_each_group_fires_and_clears_once_by_two_processes_and_a_restart(
    run: Run, clock: list[int]
) -> None:
    mine = Grouped(await run(), await run())
    one, two = mine.replicas
    await defined(one, **BY_PART)
    await mine.post(clock[0], g1=4, g2=1)
    assert await mine.look() == [{1: "firing", 2: "inactive"}] * 2
    assert await mine.told() == [("1", "firing", 1)]
    watched = two.monitors.watched(two.stream, "m")
    assert watched.state is not None
    assert watched.state.verdict == "firing"
    clock[0] += 1_000_000
    await mine.post(clock[0], g2=3, g3=9)  # there is no space, and the others fire
    assert await mine.look() == [{1: "firing", 2: "firing"}] * 2
    summary_ = engine.group_counts(one.monitors.watched(one.stream, "m"))
    assert (summary_["firing"], summary_["untracked"], summary_["untracked_firing"]) == (2, 1, 1)
    again = await run()  # as after a kill: it has read nothing but the database
    mine = Grouped(one, again)
    assert await mine.look() == [{1: "firing", 2: "firing"}] * 2
    clock[0] += 101_000_000
    assert (await mine.look())[1] == {1: "inactive", 2: "inactive"}
    await mine.told()
    mine = Grouped(one, two, again)
    told = [("1", "firing", 1), ("1", "resolved", 2), ("2", "firing", 1), ("2", "resolved", 2)]
    assert await mine.told() == told
    found, _ = await one.monitors.history(one.stream, "m", 0, clock[0] + 1, 10, '{"v // 10": 1}')
    assert [(each.state, each.alert) for each in found] == [
        ("firing", "firing"),
        ("calm", "inactive"),
    ]
    assert "for v // 10=1 is 4, at or above" in found[0].found["explanation"]


async def test_a_group_that_vanishes_fires_for_below_and_is_dropped_in_time(
    run: Run, clock: list[int]
) -> None:
    mine = Grouped(await run())
    (one,) = mine.replicas
    await defined(one, **BY_PART | {"above": None, "below": 2.0})
    await mine.post(clock[0], g1=4, g2=4)
    assert await mine.look() == [{1: "inactive", 2: "inactive"}]
    clock[0] += 101_000_000
    await mine.post(clock[0], g2=4)
    assert await mine.look() == [{1: "firing", 2: "inactive"}]
    clock[0] += 999_000_000
    await mine.post(clock[0], g2=4)
    assert await mine.look() == [{1: "firing", 2: "inactive"}]
    clock[0] += 1_000_000
    assert await mine.look() == [{2: "inactive"}]
    assert await mine.told() == [("1", "firing", 1), ("1", "resolved", 2)]
    assert "no rows for 1000 s" in one.sent[-1]["alerts"][0]["annotations"]["description"]
    await mine.post(clock[0], g1=1)  # it is back, and another alert
    assert await mine.look() == [{1: "firing", 2: "inactive"}]
    await mine.told()
    assert len({each["id"] for each in one.sent}) == 2


async def test_the_keys_of_groups_do_not_change_and_the_limit_may(
    run: Run, clock: list[int]
) -> None:
    one = await run()
    epoch = await defined(one, **BY_PART)
    for by in (["v // 5"], None):
        with pytest.raises(InvalidRequestError, match="by: monitor 'm' has groups by other keys"):
            await defined(one, **BY_PART | {"by": by, "groups": 20 if by is None else 2,
                          "group_retention_s": 86_400 if by is None else 5})  # fmt: skip
    assert await defined(one, **BY_PART | {"groups": 100}) > epoch
    mine = Grouped(one)
    await mine.post(clock[0], **{f"g{k}": 1 for k in range(1, 60)})
    await mine.post(clock[0], g7=9)
    (shown,) = await mine.look()
    assert (len(shown), [k for k, phase in shown.items() if phase == "firing"]) == (59, [7])
    assert await defined(one, **BY_PART)
    assert sorted((await mine.look())[0].values()) == ["firing", "inactive"]
