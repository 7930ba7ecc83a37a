"""Sensors as sites of monitors, in virtual time: they hold back what they may, over a network that
fails and through crashes, and what the hub says of it is true."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client.test_core import Clock, answered

import decaysketch as ds
from decaysketch.client.core import Core, Request, Wait
from decaysketch.client.delivery import Answer
from decaysketch.client.monitor_source import Watch
from decaysketch.client.policy import Policy
from decaysketch.families import merge, recipe_of
from decaysketch.monitor import Account, Monitor, Report, State, Threshold
from decaysketch.monitor.spec import Question

PARAMS = ds.SketchParams(max_weight=4, id_bits=40, capacity=10_000, seed=3, time_unit="s")
RECIPE = recipe_of(PARAMS)
DECAY = ds.decay.exponential(half_life=60)
BEGIN = 1_700_000_000.0
LAZY = Policy(flush_rows=10**9, flush_age_s=10**9, backoff_s=0.5, max_backoff_s=2)


def count(**options: Any) -> Threshold:
    return Threshold(
        "count", **{"above": 60, "within": 0.2, "decay": DECAY, "lease_s": 10} | options
    )


class Hub:
    """An aggregator with one monitor, and a clock; ``events`` are those that it would send."""

    def __init__(self, spec: Threshold | None, clock: Clock, recipe: Any = RECIPE) -> None:
        self.clock, self.recipe = clock, recipe
        self.monitor = None if spec is None else Monitor.of("m", 1, spec, recipe)
        self.accounts: dict[str, Account] = {}
        self.merged = recipe.empty()
        self.posts = self.reports = 0
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def now(self) -> float:
        return BEGIN + self.clock.now

    def answer(self, request: Request) -> Answer:
        date = {"date": formatdate(self.now(), usegmt=True)}
        if request.report is None and request.delta is None:
            return answered(200, {"name": "s", **self.recipe.to_dict(), "rows": 0}, **date)
        source = request.params["source"]
        fields: dict[str, Any] = {"stream": "s", "source": source, "token": "s:1:1"}
        rows, report = 0, None
        if request.delta is not None:
            assert request.content is not None
            self.posts += 1
            sketch = self.recipe.decode(request.content)
            rows, self.merged = len(sketch), merge([self.merged, sketch])
            if request.report is not None:
                site, held = (request.headers[f"Decaysketch-{n}"] for n in ("Site", "Grants"))
                report = Report.from_headers(site, held)
        else:
            assert request.path == "/v1/streams/s/reports"
            assert request.content is not None
            self.reports += 1
            report = Report.from_dict(json.loads(request.content))
        if report is not None:
            fields |= self._granted(source, report, rows)
        return answered(200, fields, **date)

    def _granted(self, source: str, report: Report, rows: int) -> dict[str, Any]:
        if self.monitor is None:
            return {"grants": [], "gone": list(report.held)}
        self.accounts.setdefault(source, Account())
        granted = self.monitor.grant(
            self.accounts, source, report, self.read(), now=self.now(), rows=rows
        )
        if granted is None:
            return {"grants": [], "gone": []}
        self.accounts[source] = granted.account
        self._recall(granted.recall)
        return {"grants": [granted.grant.to_dict()], "gone": []}

    def read(self) -> Any:
        assert self.monitor is not None
        return self.monitor.read(self._view())

    def known(self) -> set[int]:
        """Ids of the rows that it has, which are their values."""
        found: set[int] = set()

        def note(values: Any, _weights: Any) -> Any:
            found.update(values.astype(int).tolist())
            return values

        self._view().ask("total", confidence=0.95, function=note)
        return found

    def _view(self) -> Any:
        assert self.monitor is not None
        return self.merged.snapshot().at(self.monitor.spec.decay, int(self.now()))

    def state(self) -> State:
        assert self.monitor is not None
        state = self.monitor.state(self.accounts, self.read(), self.now())
        self._recall(state.recall)
        return state

    def _recall(self, names: tuple[str, ...]) -> None:
        assert self.monitor is not None
        data = {"monitor": "m", "epoch": self.monitor.epoch}
        self.events += [(name, "recall", data) for name in names]

    def define(self, spec: Threshold) -> None:
        epoch = 1 if self.monitor is None else self.monitor.epoch + 1
        self.monitor = Monitor.of("m", epoch, spec, self.recipe)


def site(spool: Path, clock: Clock, source: str = "a", **options: Any) -> Core:
    chosen: dict[str, Any] = {"recipe": RECIPE, "monitors": True, "randomness": random.Random(1)}
    return Core("s", source, spool, LAZY, clock=clock, **chosen | options)


def feed(one: Core, ids: Any, at: float) -> None:
    ids = np.atleast_1d(ids)
    times = np.full(ids.shape, int(BEGIN + at))
    columns = {"values": ids * 1.0, "weights": 1, "timestamps": times, "ids": ids}
    one.update(columns, named_by="ids")


Send = Callable[[Request], Answer | Exception]


def pump(one: Core, send: Send, most: int = 50) -> float | None:
    """Everything that may be sent now; for how long there is nothing then."""
    for _ in range(most):
        step = one.next_step()
        if isinstance(step, Wait):
            return step.seconds
        assert step is not None
        one.settle(step, send(step))
    raise AssertionError("a site that is never content")


@pytest.fixture
def clock() -> Clock:
    one = Clock()
    one.now = 100.25
    return one


# ---------------------------------------------------------------------------------------- one site


def test_a_site_posts_when_it_outgrows_its_allowance(tmp_path: Path, clock: Clock) -> None:
    hub, one = Hub(count(), clock), site(tmp_path / "a", clock)
    pump(one, hub.answer)
    (held,) = one.status().monitors
    assert (held.monitor, held.epoch, held.weight) == ("m", 1, 0.0)
    assert 0 < held.lease_s <= 10
    some = int(held.allowance)
    assert some > 10
    feed(one, range(some), clock.now)
    pump(one, hub.answer)
    assert hub.posts == 0
    assert hub.state().verdict == "calm"
    woken: list[bool] = []
    one.wake = lambda: woken.append(True)
    feed(one, [1000], clock.now)
    assert woken
    pump(one, hub.answer)
    assert (hub.posts, len(hub.merged)) == (1, some + 1)
    assert one.status().monitors[0].weight == 0.0


def test_leases_are_kept_by_reports_alone(tmp_path: Path, clock: Clock) -> None:
    hub, one = Hub(count(), clock), site(tmp_path / "a", clock)
    pump(one, hub.answer)
    before, reported = one.status().reports, hub.reports
    for _ in range(20):
        wait = pump(one, hub.answer)
        assert wait is not None
        assert 5.9 < wait < 6.1  # 60 % of the lease
        clock.now += wait
        assert hub.state().verdict == "calm"
    assert hub.posts == 0
    assert hub.reports - reported == one.status().reports - before == 19


def test_a_smaller_grant_is_confirmed_at_once(tmp_path: Path, clock: Clock) -> None:
    hub = Hub(count(), clock)
    one, other = site(tmp_path / "a", clock), site(tmp_path / "b", clock, "b")
    for each in (one, other):
        pump(each, hub.answer)
    before = one.status().monitors[0].allowance
    feed(other, range(50), clock.now)
    pump(other, hub.answer)
    clock.now += 6.1
    pump(one, hub.answer)
    # The larger one is charged no longer.
    assert hub.accounts["a"].charge == one.status().monitors[0].allowance < before


def test_a_new_process_holds_nothing_back_and_counts_on(tmp_path: Path, clock: Clock) -> None:
    hub, one = Hub(count(), clock), site(tmp_path / "a", clock)
    pump(one, hub.answer)
    feed(one, range(5), clock.now)
    one.sync()
    pump(one, hub.answer)
    assert hub.posts == 0
    inc = hub.accounts["a"].inc
    one.store.spool.close()  # killed
    again = site(tmp_path / "a", clock)
    assert again.status().monitors[0].allowance == 0.0
    assert again.status().monitors[0].weight == np.inf
    pump(again, hub.answer)
    assert (len(hub.merged), hub.accounts["a"].inc) == (5, inc + 1)
    again.store.spool.close()
    (tmp_path / "a" / "monitors.json").write_bytes(b"{}")
    third = site(tmp_path / "a", clock)
    assert "monitors.json was damaged" in third.status().repaired[0]
    pump(third, hub.answer)
    assert hub.accounts["a"].inc > inc + 1
    assert third.status().monitors[0].allowance > 0


def test_monitors_come_and_go_by_answers_where_no_events_come(tmp_path: Path, clock: Clock) -> None:
    hub, one = Hub(None, clock), site(tmp_path / "a", clock)
    assert pump(one, hub.answer) == pytest.approx(60)
    hub.define(count())
    clock.now += 60
    pump(one, hub.answer)
    assert [each.epoch for each in one.status().monitors] == [1]
    hub.define(count(above=70))
    clock.now += 6.1
    pump(one, hub.answer)
    assert [each.epoch for each in one.status().monitors] == [2]
    assert hub.state().verdict == "calm"
    hub.monitor = None
    clock.now += 6.1
    pump(one, hub.answer)
    assert one.status().monitors == ()
    assert json.loads((tmp_path / "a" / "monitors.json").read_bytes())["monitors"] == {}


def test_events_are_heard_at_once(tmp_path: Path, clock: Clock) -> None:
    hub, one = Hub(None, clock), site(tmp_path / "a", clock)
    pump(one, hub.answer)
    one.heard("message", "")
    assert pump(one, hub.answer) is None  # it need not ask
    hub.define(count())
    define = {"monitor": "m", "epoch": 1, "spec": count().to_dict()}
    one.heard("define", json.dumps(define))
    pump(one, hub.answer)
    assert one.status().monitors[0].allowance > 0
    feed(one, range(3), clock.now)
    pump(one, hub.answer)
    assert hub.posts == 0
    one.heard("recall", json.dumps({"monitor": "m", "epoch": 1}))
    pump(one, hub.answer)
    assert (hub.posts, len(hub.merged)) == (1, 3)
    one.heard("gone", json.dumps({"monitor": "m"}))
    assert one.status().monitors == ()
    assert 0 <= one.parted("the test") <= LAZY.backoff_s
    assert pump(one, hub.answer) is not None


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("define", "["),
        ("define", "[" * 100_000),
        ("define", "{}"),
        ("define", json.dumps({"monitor": "m", "epoch": -1, "spec": count().to_dict()})),
        ("define", json.dumps({"monitor": "m", "epoch": 1, "spec": {"kind": "threshold"}})),
        ("define", json.dumps({"monitor": "../m", "epoch": 1, "spec": count().to_dict()})),
        ("define", json.dumps({"monitor": "m", "epoch": 1, "spec": {**count().to_dict(),
                                                                    "decay": None}})),
        ("recall", json.dumps({"monitor": "m", "epoch": "1"})),
        ("gone", json.dumps({"monitor": 7})),
    ],
)  # fmt: skip
def test_events_that_are_none_change_nothing(
    tmp_path: Path, clock: Clock, kind: str, data: str
) -> None:
    told: list[str] = []
    one = site(tmp_path / "a", clock, on_event=lambda event: told.append(event.detail))
    one.heard(kind, data)
    assert "an event from the server is invalid" in told[0]
    assert len(told[0]) < 500
    assert one.status().monitors == ()


def test_an_event_that_is_none_is_noted_under_the_lock(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = site(tmp_path / "a", clock)
    taken: list[bool] = []

    def doubt(what: str) -> None:
        other = threading.Thread(
            target=lambda: taken.append(one.store.files.acquire(blocking=False))
        )
        other.start()
        other.join()

    monkeypatch.setattr(one, "_doubt", doubt)
    one.heard("define", "[")
    assert taken == [False]


def test_grants_that_are_none_cost_posts_alone(tmp_path: Path, clock: Clock) -> None:
    hub, one = Hub(count(), clock), site(tmp_path / "a", clock)

    def wrong(request: Request) -> Answer:
        answer = hub.answer(request)
        fields = json.loads(answer.body)
        return answered(200, fields | {"grants": [{"monitor": "m"}]}, **answer.headers)

    feed(one, [1], clock.now)
    one.seal()
    pump(one, wrong)
    assert len(hub.merged) == 1
    assert "a grant from the server is invalid" in (one.status().last_error or "")


def test_an_aggregator_that_grants_nothing_is_not_asked_without_end(
    tmp_path: Path, clock: Clock
) -> None:
    hub, one = Hub(count(), clock), site(tmp_path / "a", clock)

    def nothing(request: Request) -> Answer:
        answer = hub.answer(request)
        return answered(200, json.loads(answer.body) | {"grants": []}, **answer.headers)

    one.heard("define", json.dumps({"monitor": "m", "epoch": 1, "spec": count().to_dict()}))
    for _ in range(60):
        pump(one, nothing)
        clock.now += 1
    assert hub.reports < 150
    feed(one, [1], clock.now)  # and what it holds is posted all the same
    pump(one, nothing)
    assert len(hub.merged) == 1


# -------------------------------------------------------------------------------------- all columns

MASKED = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
CASES: list[tuple[Question, dict[str, Any], Any, float]] = [
    ("count", {}, None, 3.0),
    ("count", {}, MASKED, 3.0),
    ("count", {"where": "v > 1"}, MASKED, 1.0),
    ("count", {"where": "v > 1"}, [None, 2.0, 3.0], 2.0),
    ("sum", {}, [1.0, 2.0, 3.0], 6.0),
    ("total", {}, [-4.0, 2.0, None], 4.0),
    ("mean", {"range": (0, 9)}, [1, 2, None], 4.0),
    ("share", {"predicate": "v > 1", "above": 0.5}, MASKED, 4.0),
    ("quantile", {"q": 0.5}, [1.0, 2.0, 3.0], 6.0),
]


@pytest.mark.parametrize(("question", "options", "values", "weight"), CASES)
def test_rows_are_weighed_as_the_question_weighs_them(
    tmp_path: Path, clock: Clock, question: Question, options: dict[str, Any], values: Any,
    weight: float,
) -> None:  # fmt: skip
    spec = Threshold(question, **{"above": 5.0, "decay": ds.decay.window(1000)} | options)
    hub, one = Hub(spec, clock), site(tmp_path / "a", clock)
    pump(one, hub.answer)
    columns = {"values": values, "weights": 2, "timestamps": [int(BEGIN)] * 3, "ids": [1, 2, 3]}
    one.update(columns, named_by="ids")
    assert one.status().monitors[0].weight == pytest.approx(weight)


def test_elements_are_their_own_weight_where_they_are_added(tmp_path: Path, clock: Clock) -> None:
    from client.faults import SUM

    recipe = recipe_of(SUM)
    for number, (question, weight) in enumerate([("sum", 12.0), ("count", 2.0)]):
        spec = Threshold(question, above=1e4, decay=ds.decay.window(900))  # type: ignore[arg-type]
        hub, folder = Hub(spec, clock, recipe), tmp_path / str(number)
        hub.merged = recipe.empty(now=int(BEGIN))
        one = site(folder, clock, recipe=recipe, numbered=True)
        one.heard("define", json.dumps({"monitor": "m", "epoch": 1, "spec": spec.to_dict()}))
        assert one.watch is not None
        one.watch.sealing()
        report = one.watch.report(posting=True)
        one.watch.answered(report, {"grants": []})
        one.update({"values": [5, 7], "timestamps": [int(BEGIN)] * 2}, named_by="sequence")
        assert one.status().monitors[0].weight == pytest.approx(weight)


# --------------------------------------------------------------------------------------- simulation


class World:
    """Three sites, a hub and a network that fails, by a seed; rows are synced as they come."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.clock = Clock()
        self.clock.now = rng.uniform(0, 10)
        self.hub = Hub(count(above=rng.choice([25, 40]), within=rng.choice([0.1, 0.3])), self.clock)
        self.loss = rng.choice([0.0, 0.2, 0.5])
        self.crash = rng.choice([0.0, 0.02])
        self.events = rng.random() < 0.5
        self.folder = folder
        self.sites = {name: self._start(name) for name in "abc"}
        self.given: dict[str, dict[int, int]] = {name: {} for name in "abc"}
        self.next_id = 0
        self.calm = self.fired = 0
        self.busy = True
        self.last_short = self.clock.now  # of the line, or not said to be calm

    def _start(self, name: str) -> Core:
        one = site(self.folder / name, self.clock, name, randomness=self.rng)
        add = one.store.spool.add

        def add_while_fed(*arguments: Any) -> Any:
            """More comes while what there is is packed."""
            if self.busy and self.rng.random() < 0.5:
                self.feed(name)
            return add(*arguments)

        one.store.spool.add = add_while_fed  # type: ignore[method-assign]
        return one

    def feed(self, *names: str) -> None:
        self.next_id += 1
        for name in names:
            feed(self.sites[name], [self.next_id], self.clock.now)
            self.given[name][self.next_id] = int(BEGIN + self.clock.now)

    def send(self, request: Request) -> Answer | Exception:
        self.clock.now += self.rng.uniform(0, 0.05)
        if self.rng.random() < self.loss / 2:
            return OSError("lost on the way there")
        answer = self.hub.answer(request)
        if self.rng.random() < self.loss / 2:
            return OSError("lost on the way back")
        return answer

    def count(self, rows: dict[int, int], now: float) -> float:
        ages = now - np.array(list(rows.values()), np.float64)
        return float(DECAY(np.maximum(ages, 0)).sum())

    def step(self) -> None:
        rng = self.rng
        self.clock.now += rng.expovariate(1.5)
        for _ in range(rng.choice([0, 1, 1, 2])):
            self.feed(*rng.sample("abc", rng.choice([1, 1, 2])))
        for one in self.sites.values():
            if rng.random() < 0.7:
                one.sync()
            pump(one, self.send, 400)
        if rng.random() < self.crash:
            name = rng.choice("abc")
            self.sites[name].sync()
            self.sites[name].store.spool.close()
            self.sites[name] = self._start(name)
        self._check()
        for name, kind, data in self.hub.events:
            if self.events and rng.random() >= self.loss:
                self.sites[name].heard(kind, json.dumps(data))
        self.hub.events.clear()

    def _check(self) -> None:
        state, spec = self.hub.state(), self.hub.monitor
        assert spec is not None
        self.calm += state.verdict == "calm"
        self.fired += state.verdict == "firing"
        everything: dict[int, int] = {}
        over, known = False, self.hub.known()
        for name, rows in self.given.items():
            everything |= rows
            watch = self.sites[name].watch
            assert watch is not None
            held = watch.held()
            over |= not held or any(each.weight > each.allowance for each in held)
            account = self.hub.accounts.get(name, Account()).of(spec.epoch)
            unposted = {row: at for row, at in rows.items() if row not in known}
            for each in held:
                assert each.weight >= self.count(unposted, self.hub.now()) * (1 - 1e-9)
                if each.allowance and account.inc == _inc(watch):
                    assert each.allowance <= account.charge * (1 + 1e-9)
                    assert self.hub.now() < account.until
        truth, aim = self.count(everything, int(self.hub.now())), spec.spec.aim
        if state.verdict == "firing":
            assert truth >= aim.fires * (1 - 1e-9)
        if state.verdict == "calm" and truth >= aim.line * (1 + 1e-9):
            assert over  # whose report is under way, for no longer than its lease
            assert self.clock.now - self.last_short < 10 + 2
        else:
            self.last_short = self.clock.now


def _inc(watch: Watch) -> int:
    assert watch._site is not None
    return watch._site.inc


def simulate(folder: Path, seed: int, steps: int = 120) -> World:
    world = World(folder, seed)
    for _ in range(steps):
        world.step()
    world.loss, world.busy = 0.0, False
    for one in world.sites.values():
        one.seal()
        one.hurry()
        world.clock.now += 5
        pump(one, world.send, 400)
    everything = set().union(*world.given.values())
    assert len(world.hub.merged) == len(everything)
    return world


@pytest.mark.parametrize("seed", range(6))
def test_what_is_said_of_sensors_is_true(tmp_path: Path, seed: int) -> None:
    world = simulate(tmp_path, seed)
    assert world.calm or world.fired


def _forgets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Watch, "accepted", lambda self, arguments: False)


def _takes_what_came_since(patch: pytest.MonkeyPatch) -> None:
    report = Watch.report

    def wrong(self: Watch, *, posting: bool) -> Report:
        if posting:
            self.sealing()
        return report(self, posting=posting)

    patch.setattr(Watch, "report", wrong)


@pytest.mark.parametrize("plant", [_forgets, _takes_what_came_since])
def test_a_planted_mistake_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):  # noqa: PT012
        for seed in range(30):
            simulate(tmp_path / str(seed), seed)
