"""Sites, hub and alert, step by step; what a sketch says; what a site holds back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.rows import for_each

import decaysketch as ds
from decaysketch.families import recipe_of
from decaysketch.monitor import (
    Account,
    Alert,
    Answer,
    BudgetSite,
    Monitor,
    Reading,
    Threshold,
    explain,
)
from decaysketch.monitor.pending import Pending

PARAMS = ds.SketchParams(max_weight=4, id_bits=32, seed=7, time_unit="s")
RECIPE = recipe_of(PARAMS)
DECAY = ds.decay.exponential(half_life=60)
COUNT = Threshold("count", above=100, within=0.1, decay=DECAY, lease_s=30)
MONITOR = Monitor.of("m", 1, COUNT, RECIPE)
LOW = Reading.of(10.0)


class Pair:
    """A hub and a site, and a network on which nothing is lost."""

    def __init__(self) -> None:
        self.accounts = {"s": Account(), "other": Account()}
        self.site = BudgetSite(RECIPE, inc=1)

    def talk(self, at: float, reading: Reading = LOW) -> int:
        """Reports until the site has nothing to say; how many."""
        for number in range(10):
            due = self.site.due(at)
            if due is None:
                return number
            report = self.site.report(at, posting=due == "post")
            granted = MONITOR.grant(self.accounts, "s", report, reading, now=at)
            assert granted is not None
            self.accounts["s"] = granted.account
            self.site.answered(report.seq, Answer((granted.grant,)), at)
        raise AssertionError("a site that is never content")


def test_a_site_learns_of_monitors_and_is_confirmed() -> None:
    pair = Pair()
    assert pair.talk(0.0) == 2  # it asks, and posts what it may have held
    assert pair.site.monitors == ("m",)
    assert pair.site.allowance("m", 0.0) == pair.accounts["s"].charge > 0
    assert pair.accounts["s"].confirmed


def test_a_site_posts_when_it_outgrows_its_allowance() -> None:
    pair = Pair()
    pair.talk(0.0)
    allowed = int(pair.site.allowance("m", 0.0))
    pair.site.observe(np.full(allowed, 1000), now=1000, clock=0.0)
    assert pair.site.due(0.0) is None
    pair.site.observe([1000], now=1000, clock=0.0)
    assert pair.site.due(0.0) == "post"
    pair.talk(0.0)
    assert pair.site.pending("m", 0.0) == 0.0


def test_a_lease_ends_first_at_the_site() -> None:
    pair = Pair()
    pair.talk(0.0)
    assert pair.site.due(17.0) is None
    assert pair.site.due(18.1) == "renew"
    assert pair.site.allowance("m", 29.98) == 0.0 < pair.site.allowance("m", 29.9)
    assert pair.accounts["s"].until == 30.0


def test_what_is_lost_is_due_again() -> None:
    pair = Pair()
    pair.talk(0.0)
    pair.site.recall("m", 1)
    first = pair.site.report(1.0, posting=True)
    assert pair.site.due(1.0) is None
    assert pair.site.wake(1.0) == 11.0
    pair.site.failed(first.seq)
    pair.site.observe(np.full(90, 1000), now=1000, clock=1.0)
    assert pair.site.due(1.0) == "post"


@pytest.mark.parametrize("known", [False, True], ids=["a loss that nobody told of", "a failure"])
def test_a_first_question_and_a_recall_are_said_until_they_are_answered(known: bool) -> None:
    def lost(at: float, posting: bool) -> float:
        report = pair.site.report(at, posting=posting)
        if known:
            pair.site.failed(report.seq)
            return at
        assert pair.site.due(at) is None
        return pair.site.wake(at)

    pair = Pair()
    at = lost(0.0, posting=False)
    assert pair.site.due(at) == "renew"
    pair.talk(at)
    assert pair.site.due(at) is None
    pair.site.recall("m", 1)
    at = lost(at, posting=True)
    assert pair.site.due(at) == "post"
    pair.site.recall("m", 1)  # another one, while the last is under way
    report = pair.site.report(at, posting=False)  # which says nothing of what is held back
    pair.site.answered(report.seq, Answer(), at)
    assert pair.site.due(at) == "post"
    pair.talk(at)
    assert pair.site.due(at) is None


def test_an_overtaken_answer_changes_nothing() -> None:
    pair = Pair()
    pair.talk(0.0)
    older = pair.site.report(1.0, posting=False)
    newer = pair.site.report(1.1, posting=False)
    late = MONITOR.grant(pair.accounts, "s", older, LOW, now=1.2)
    assert late is not None
    pair.accounts["s"] = late.account
    last = MONITOR.grant(pair.accounts, "s", newer, Reading.of(95.0), now=1.3)
    assert last is not None
    pair.site.answered(newer.seq, Answer((last.grant,)), 1.4)
    pair.site.answered(older.seq, Answer((late.grant,)), 1.5)
    assert pair.site.allowance("m", 1.5) == last.grant.allowance < late.grant.allowance
    assert last.account.charge >= late.grant.allowance


def test_a_report_that_comes_twice_has_one_grant() -> None:
    pair = Pair()
    report = pair.site.report(0.0, posting=True)
    first = MONITOR.grant(pair.accounts, "s", report, LOW, now=0.0)
    assert first is not None
    pair.accounts["s"] = first.account
    assert MONITOR.grant(pair.accounts, "s", report, LOW, now=5.0) == first
    later = pair.site.report(6.0, posting=True)
    second = MONITOR.grant(pair.accounts, "s", later, LOW, now=6.0)
    assert second is not None
    pair.accounts["s"] = second.account
    assert MONITOR.grant(pair.accounts, "s", report, LOW, now=7.0) is None


def test_a_site_that_is_not_listed_has_no_grant() -> None:
    spec = Threshold("count", above=100, decay=DECAY, sites=("a",))
    monitor = Monitor.of("m", 1, spec, RECIPE)
    report = BudgetSite(RECIPE, inc=1).report(0.0, posting=True)
    assert monitor.grant({"s": Account()}, "s", report, LOW, now=0.0) is None
    assert monitor.state({"s": Account(), "a": Account()}, LOW, 0.0).silent == ("a",)


def test_states_have_their_reasons() -> None:
    pair = Pair()
    pair.talk(0.0)
    assert MONITOR.state(pair.accounts, Reading.of(90.0), 1.0).verdict == "firing"
    state = MONITOR.state(pair.accounts, LOW, 1.0)
    assert (state.verdict, state.reason, state.silent) == ("uncertain", "silent", ("other",))
    assert state.upper is None
    mine = {"s": pair.accounts["s"]}
    assert MONITOR.state(mine, LOW, 1.0).verdict == "calm"
    state = MONITOR.state(mine, Reading.of(89.0), 1.0)
    assert (state.reason, state.recall) == ("allowances", ("s",))
    state = MONITOR.state(mine, Reading(85.0, 70.0, 101.0), 1.0)
    assert (state.verdict, state.reason) == ("uncertain", "sketch")
    later = MONITOR.state(mine, LOW, 30.0)
    assert (later.reason, later.silent) == ("silent", ("s",))


def test_another_epoch_is_confirmed_anew() -> None:
    pair = Pair()
    pair.talk(0.0)
    mine = {"s": pair.accounts["s"]}
    again = Monitor.of("m", 2, COUNT, RECIPE)
    assert again.state(mine, LOW, 1.0).silent == ("s",)
    report = pair.site.report(1.0, posting=False)
    granted = again.grant(mine, "s", report, LOW, now=1.0)
    assert granted is not None
    assert granted.grant.spec == COUNT.to_dict()
    assert not granted.account.confirmed
    pair.site.answered(report.seq, Answer((granted.grant,)), 1.0)
    assert pair.site.due(1.0) == "post"


def test_monitors_that_are_gone_are_forgotten() -> None:
    pair = Pair()
    pair.talk(0.0)
    pair.site.answered(0, Answer((), ("m", "never")), 1.0)
    assert pair.site.monitors == ()
    assert pair.site.due(1.0) is None


def test_what_a_monitor_will_cost() -> None:
    expected = MONITOR.expected([100.0, 100.0, 100.0, 100.0])
    assert expected.near == pytest.approx(1600 / 10)
    assert expected.without == 400.0
    assert expected.renewals == pytest.approx(4 * MONITOR.lifetime_s / 18)


def test_an_alert_waits_and_goes_on() -> None:
    times: dict[str, Any] = {"for_s": 5.0, "keep_firing_s": 10.0}
    alert = Alert().step("firing", 1.0, **times)
    assert alert.phase == "pending"
    assert alert.step("calm", 2.0, **times).phase == "inactive"
    alert = alert.step("uncertain", 7.0, **times)
    assert alert.phase == "pending"
    alert = alert.step("firing", 8.0, **times)
    assert (alert.phase, alert.since) == ("firing", 8.0)
    alert = alert.step("calm", 10.0, **times)
    assert alert.phase == "firing"
    assert alert.step("firing", 12.0, **times).cleared is None
    assert alert.step("calm", 19.0, **times).phase == "firing"
    assert alert.step("uncertain", 30.0, **times).phase == "firing"
    assert alert.step("calm", 20.0, **times) == Alert("inactive", 20.0)
    assert Alert().step("firing", 1.0, for_s=0.0, keep_firing_s=0.0).phase == "firing"


# ------------------------------------------------------------------------- without sites: a query

EXACT = ds.DecaySketch(PARAMS)
EXACT.update([1.0, 2.0, 3.0, 4.0], 1, [1000] * 4, range(4))
NONE = ds.decay.none()


@for_each(
    "aggregate, value, more",
    [
        ("count", 4.0, {}),
        ("count", 2.0, {"where": "v > 2"}),
        ("rate", 4 / 8, {"decay": ds.decay.window(8)}),
        ("sum", 4.0, {}),
        ("total", 10.0, {}),
        ("mean", 2.5, {}),
        ("mean", 2.5, {"range": (0, 9)}),
        ("share", 0.25, {"predicate": "v > 3"}),
        ("rank", 0.75, {"value": 3}),
        ("quantile", 4.0, {"q": 0.99}),
        ("median", 2.0, {}),
        ("variance", 1.25, {}),
        ("stddev", 1.25**0.5, {}),
    ],
)
def test_without_sites_a_state_is_that_of_the_query(
    aggregate: Any, value: float, more: dict[str, Any]
) -> None:
    decay = more.setdefault("decay", NONE)
    for step, above, below in ((-0.01, "firing", "calm"), (0.01, "calm", "firing")):
        for side, verdict in (("above", above), ("below", below)):
            spec = Threshold(aggregate, **{side: value + step}, **more)
            monitor = Monitor.of("m", 1, spec, RECIPE)
            state = monitor.plain(monitor.ask(EXACT.at(decay, 1000)))
            assert (state.verdict, state.silent) == (verdict, ())
            assert state.value == pytest.approx(value)
            assert state.threshold == value + step
            text = explain(spec, state, "s")
            assert text.endswith(".")
            where = "at or " if verdict == "firing" else ""
            assert f"{where}{'above' if step < 0 else 'below'} the threshold" in text


def test_an_interval_that_contains_the_threshold_is_uncertain() -> None:
    sampled = ds.DecaySketch(replace(PARAMS, capacity=400))
    rng = np.random.default_rng(3)
    sampled.update(rng.normal(20, 3, 4000), 1, 1000 - rng.integers(0, 500, 4000), range(4000))
    view = sampled.at(NONE, 1000)
    for aggregate, more in (("count", {}), ("mean", {}), ("quantile", {"q": 0.9})):
        found = Monitor.of(
            "m", 1, Threshold(aggregate, above=1, decay=NONE, **more), RECIPE
        ).ask(view)  # fmt: skip
        lines = {
            "firing": found.lower,
            "uncertain": (found.lower + found.upper) / 2,
            "calm": np.nextafter(found.upper, np.inf),
        }
        for verdict, line in lines.items():
            spec = Threshold(aggregate, above=float(line), decay=NONE, **more)  # type: ignore[arg-type]
            state = Monitor.of("m", 1, spec, RECIPE).plain(found)
            assert (state.verdict, state.reason) == (
                verdict,
                "sketch" if verdict == "uncertain" else None,
            )
            assert ("interval" in explain(spec, state)) == (verdict == "uncertain")


def test_nothing_is_calm_and_says_so() -> None:
    spec = Threshold("mean", above=5, decay=DECAY)
    monitor = Monitor.of("m", 1, spec, RECIPE)
    state = monitor.plain(monitor.ask(ds.DecaySketch(PARAMS).at(DECAY, 1000)))
    assert (state.verdict, state.value) == ("calm", None)
    assert "not defined" in explain(spec, state)


def test_a_quantile_is_shown_in_values_with_what_sites_may_hold_back() -> None:
    """Whatever rows of weight u or less come besides, the quantile stays within the bounds."""
    spec = Threshold("quantile", above=3.5, q=0.5, decay=NONE)
    monitor = Monitor.of("m", 1, spec, RECIPE)
    view = EXACT.at(NONE, 1000)
    state = monitor.state({"s": Account()}, monitor.read(view), 0.0)
    for u, lower, upper in ((0.0, 2.0, 2.0), (2.0, 1.0, 3.0), (9.0, None, None)):
        shown = monitor.shown(view, state, u)
        assert (shown.value, shown.lower, shown.upper, shown.threshold) == (2.0, lower, upper, 3.5)
        for count in range(int(u) + 1):
            for value in (0.0, 9.0):
                more = EXACT.copy()
                more.update([value] * count, 1, [1000] * count, range(9, 9 + count))
                found = more.at(NONE, 1000).ask("quantile", q=[0.5])[0].value
                assert lower is None or lower <= found
                assert upper is None or found <= upper


def test_a_site_holds_nothing_back_of_an_aggregate_without_bounds() -> None:
    for spec in (
        Threshold("median", above=9, decay=DECAY),
        Threshold("mean", above=9, decay=DECAY),
    ):
        monitor = Monitor.of("m", 1, spec, RECIPE)
        reading = monitor.read(EXACT.at(DECAY, 1000))
        report = BudgetSite(RECIPE, inc=1).report(0.0, posting=True)
        granted = monitor.grant({"s": Account()}, "s", report, reading, now=0.0)
        assert granted is not None
        assert granted.grant.allowance == 0.0
        account = Account(1, 1, 1, 1, ((1, 0.0),), 100.0, True)
        assert monitor.state({"s": account}, reading, 1.0).verdict == "calm"


# ----------------------------------------------------------------------- sketches and what is held

QUESTIONS = [
    Threshold("count", above=1, decay=DECAY),
    Threshold("count", above=1, decay=ds.decay.window(50), where="v > 0"),
    Threshold("sum", above=1, decay=ds.decay.polynomial(1, scale=20)),
    Threshold("sum", above=1, decay=DECAY, where="w > 1"),
    Threshold("total", above=1, decay=DECAY),
    Threshold("total", above=1, decay=DECAY, where="v < 1"),
    Threshold("mean", above=1, decay=DECAY, range=(-5, 5)),
    Threshold("share", above=0.3, decay=DECAY, predicate="v > 0"),
    Threshold("rank", above=0.3, decay=DECAY, value=0.5),
    Threshold("quantile", above=0.5, decay=DECAY, q=0.4),
    Threshold("quantile", below=0.5, decay=DECAY, q=0.4),
    Threshold("mean", above=1, decay=DECAY),
    Threshold("rate", above=1, decay=DECAY),
    Threshold("median", above=1, decay=DECAY),
]


@pytest.mark.parametrize("spec", QUESTIONS, ids=lambda spec: f"{spec.question}-{spec.where}")
def test_what_a_site_holds_bounds_what_it_may_change(spec: Threshold) -> None:
    """The sketch with a site's rows is within the bounds of the sketch without them, at once and
    when time has passed."""
    monitor = Monitor.of("m", 1, spec, RECIPE)
    rng = np.random.default_rng(5)
    n = 60
    times = 1000 - rng.integers(0, 100, n)
    times[:5] = 1000 + rng.integers(1, 20, 5)  # dated in the future
    values = rng.integers(-4, 5, n).astype(np.float64)
    weights, ids = rng.integers(1, 5, n), np.arange(n)
    for split in (0, 20, 50):
        hub, everything = ds.DecaySketch(PARAMS), ds.DecaySketch(PARAMS)
        hub.update(values[:split], weights[:split], times[:split], ids[:split])
        everything.update(values, weights, times, ids)
        pending = Pending(spec, RECIPE, 0.0, known=True)
        rest = slice(split - split // 4, None)  # some of them copies
        pending.observe(times[rest], values[rest], weights[rest], 1000, 0.0)
        for passed in (0, 7, 40):
            before, after = (
                monitor.read(each.at(spec.decay, 1000 + passed)) for each in (hub, everything)
            )
            low, high = spec.aim.bounds(before, pending.weight(float(passed)))
            assert low - 1e-9 <= after.value <= high + 1e-9


def test_a_value_out_of_range_is_posted_at_once() -> None:
    spec = Threshold("mean", above=1, decay=DECAY, range=(-5, 5))
    pending = Pending(spec, RECIPE, 0.0, known=True)
    pending.observe([1000], [5.0], [1], 1000, 0.0)
    assert pending.weight(0.0) == 1.0
    pending.observe([1000], [5.5], [1], 1000, 0.0)
    assert pending.weight(0.0) == np.inf
    pending.seal(0.0)
    pending.send(1, 0.0)
    pending.posted(1)
    assert pending.weight(0.0) == 0.0


def test_only_the_report_that_carries_the_rows_lets_them_go() -> None:
    pending = Pending(COUNT, RECIPE, 0.0, known=True)
    pending.observe([1000, 1000], None, None, 1000, 0.0)
    pending.seal(0.0)
    pending.observe([1000], None, None, 1000, 0.0)  # while they are packed
    pending.send(1, 0.0)
    assert pending.weight(0.0) == 3.0
    pending.seal(0.0)
    pending.send(2, 0.0)
    pending.posted(1)
    assert pending.weight(0.0) == 3.0
    pending.posted(2)
    assert pending.weight(0.0) == 0.0
