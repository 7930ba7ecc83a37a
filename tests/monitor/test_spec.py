"""Specs and messages: what is written is read back, and strangers' JSON is refused by its field."""

from __future__ import annotations

from typing import Any

import pytest
from support.rows import for_each

import decaysketch as ds
from decaysketch.asyncwindow import SumParams
from decaysketch.errors import ParameterError
from decaysketch.families import FAMILIES, recipe_of
from decaysketch.monitor import (
    Account,
    Alert,
    Answer,
    Grant,
    Held,
    Monitor,
    Report,
    Threshold,
    spec_from_dict,
)
from decaysketch.monitor.pending import Pending

DECAY = ds.decay.exponential(half_life=60)
SPECS = [
    Threshold("count", above=5_000, decay=DECAY, sites=("a", "b"), webhook="https://h.example/x"),
    Threshold("sum", below=10, where="v > 3 and w >= 2", within=0.1),
    Threshold("total", above=-4.5, decay=ds.decay.window(60), for_s=5, keep_firing_s=60),
    Threshold("mean", above=20, range=(-40, 60), lease_s=5, decay=ds.decay.none()),
    Threshold("share", below=0.5, predicate="v >= 1", decay=ds.decay.expression("1/(1 + x)")),
    Threshold("rank", above=0.25, value=3, decay=DECAY),
    Threshold("quantile", above=0, q=0.9, decay=DECAY),
    Threshold("mean", below=0, decay=DECAY, sites=()),
    Threshold("rate", above=0.5, decay=DECAY),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.question)
def test_a_spec_is_read_back(spec: Threshold) -> None:
    assert spec_from_dict(spec.to_dict()) == spec


def test_a_decay_may_be_a_text_with_units() -> None:
    form = {"kind": "threshold", "question": "count", "above": 5, "decay": "window(1h)"}
    assert spec_from_dict(form, time_unit="s").decay == ds.decay.window(3600)


GOOD: dict[str, Any] = {"kind": "threshold", "question": "count", "above": 5, "decay": "none"}


@for_each(
    "change, named",
    [
        ({"kind": "x" * 10_000}, "kind"),
        ({"kind": ["threshold"]}, "kind"),
        ({"question": "mode"}, "question"),
        ({"question": []}, "question"),
        ({"above": "5"}, "above"),
        ({"above": True}, "above"),
        ({"above": float("nan")}, "above"),
        ({"above": 10**400}, "above"),
        ({"above": -5}, "above"),
        ({"above": None}, "above"),
        ({"below": 5}, "below"),
        ({"within": 1}, "within"),
        ({"within": 0}, "within"),
        ({"decay": 5}, "decay"),
        ({"decay": "__import__('os')"}, "decay"),
        ({"decay": {"kind": "window"}}, "width"),
        ({"question": "share", "above": 0.5, "predicate": "v.__class__"}, "predicate"),
        ({"where": " "}, "where"),
        ({"where": 5}, "where"),
        ({"predicate": "v > 1"}, "predicate"),
        ({"q": 0.5}, "q is"),
        ({"lease_s": 0}, "lease_s"),
        ({"for_s": -1}, "for_s"),
        ({"keep_firing_s": 1e12}, "keep_firing_s"),
        ({"webhook": "file:///etc/passwd"}, "webhook"),
        ({"sites": ["a", "a"]}, "sites"),
        ({"sites": "abc"}, "sites"),
        ({"sites": ["a\n"]}, "sites"),
        ({"sites": ["a"] * 10_001}, "sites"),
        ({"epoch": 5}, "epoch"),
        ({"question": "mean", "range": [5, 1]}, "range"),
        ({"question": "mean", "range": [0, 5]}, "above"),
        ({"question": "share", "predicate": "v > 1"}, "above"),
        ({"question": "share", "above": 0.5}, "predicate"),
        ({"question": "quantile", "q": 1}, "q is"),
        ({"question": "max", "where": "v > 1"}, "where"),
        ({"question": "max", "by": ["v"]}, "by"),
        ({"of": "v * 2"}, "of"),
        ({"by": []}, "by"),
        ({"by": ["v", "v"]}, "by"),
        ({"by": ["v"] * 5}, "by"),
        ({"by": ["source"]}, "source"),
        ({"by": ["v"], "groups": 101}, "groups"),
        ({"groups": 5}, "groups"),
        ({"group_retention_s": 5}, "group_retention_s"),
        ({"question": "mean", "range": [0, 9], "by": ["w"]}, "range"),
    ],
)
def test_a_wrong_field_of_a_spec_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=named) as refused:
        spec_from_dict(GOOD | change)
    assert len(str(refused.value)) < 1000


def test_a_tolerance_that_would_leave_the_range_is_narrowed() -> None:
    share = Threshold("share", below=0.98, predicate="v > 1", decay=DECAY)
    assert share.aim.fires == pytest.approx(0.99)
    quantile = Threshold("quantile", above=5, q=0.99, decay=DECAY)
    assert (quantile.aim.line, quantile.aim.fires) == (0.99, pytest.approx(0.995))
    mean = Threshold("mean", above=9, range=(0, 9.1), decay=DECAY)
    assert 0.0 < mean.aim.fires < 9.0


def test_a_rate_needs_a_decay_with_a_finite_integral() -> None:
    with pytest.raises(ParameterError, match="a rate needs a decay with a finite integral"):
        Threshold("rate", above=5, decay=ds.decay.none()).check_recipe(FAMILIES["decay"].example)


def test_what_is_no_object_is_no_spec() -> None:
    for form in (None, [], "threshold", 5):
        with pytest.raises(ParameterError, match="monitor"):
            spec_from_dict(form)


def test_reports_travel_as_headers_and_as_json() -> None:
    report = Report(3, 17, {"too-many": Held(1, 2), "b.c_d": Held(2**53 - 1, 0)})
    assert Report.from_dict(report.to_dict()) == report
    assert Report.from_headers(*report.headers().values()) == report
    assert Report.from_headers("0.0") == Report(0, 0)


@for_each(
    "site, held",
    [
        ("", ""),
        ("1", ""),
        ("1.2.3", ""),
        ("-1.2", ""),
        ("1.9007199254740992", ""),
        ("1." + "9" * 5000, ""),
        ("1.2", "m"),
        ("1.2", "m:1"),
        ("1.2", "m:1.2,"),
        ("1.2", "m:1.2,m:1.3"),
        ("1.2", "-m:1.2"),
        ("1.2", "m:1.2," * 100_000),
        ("1.2", ",".join(f"m{i}:1.1" for i in range(33))),
    ],
)
def test_other_headers_are_refused(site: str, held: str) -> None:
    with pytest.raises(ParameterError, match=r"Decaysketch|held"):
        Report.from_headers(site, held)


@for_each(
    "form",
    [
        None,
        {},
        {"inc": 1, "seq": 1},
        {"inc": 1.0, "seq": 1, "held": {}},
        {"inc": True, "seq": 1, "held": {}},
        {"inc": 1, "seq": -1, "held": {}},
        {"inc": 1, "seq": 1, "held": []},
        {"inc": 1, "seq": 1, "held": {"m": [1]}},
        {"inc": 1, "seq": 1, "held": {"m": [1, 2**53]}},
        {"inc": 1, "seq": 1, "held": {"a b": [1, 2]}},
        {"inc": 1, "seq": 1, "held": {}, "more": 1},
    ],
)
def test_other_reports_are_refused(form: Any) -> None:
    with pytest.raises(ParameterError):
        Report.from_dict(form)


def test_answers_and_accounts_are_read_back() -> None:
    grant = Grant("m", 1, 2, 3, 4, 5.5, 30.0, SPECS[0].to_dict())
    answer = Answer((grant,), ("old",))
    assert Answer.from_dict({"token": 5} | answer.to_dict()) == answer
    assert Answer.from_dict({}) == Answer()
    account = Account(1, 2, 3, 4, ((3, 1.5), (4, 0.5)), 100.0, True, 2.5, 99.0)
    assert Account.from_dict(account.to_dict()) == account
    assert Account.from_dict(Account().to_dict()) == Account()
    alert = Alert("firing", 5.0, 7.0)
    assert Alert.from_dict(alert.to_dict()) == alert
    for change in ({"allowance": -1}, {"allowance": "1"}, {"lease_s": 0}, {"monitor": ""}):
        with pytest.raises(ParameterError, match=next(iter(change))):
            Grant.from_dict(grant.to_dict() | change)


def test_families_that_cannot_promise_are_refused() -> None:
    window = ds.decay.window(1)
    count = Threshold("count", above=5, decay=window)
    for name, family in FAMILIES.items():
        recipe = family.example
        spec = Threshold("count", above=5) if family.input.decay == "fixed" else count
        if not family.promises.lossless and "key_count" not in family.questions:
            with pytest.raises(ParameterError, match=f"'{name}' promises .*lossless=False"):
                Monitor.of("m", 1, spec, recipe)
        elif "count" not in family.questions:
            with pytest.raises(ParameterError, match=f"'count'; family '{name}' answers "):
                Monitor.of("m", 1, spec, recipe)
        else:
            Monitor.of("m", 1, spec, recipe)


def test_a_question_or_decay_that_a_family_does_not_have_is_refused() -> None:
    total = Threshold("total", above=5, decay=ds.decay.window(1))
    with pytest.raises(ParameterError, match=r"'total'.*family 'sum'"):
        total.check_recipe(FAMILIES["sum"].example)
    with pytest.raises(ParameterError, match="decay is None"):
        Threshold("count", above=5).check_recipe(FAMILIES["decay"].example)
    with pytest.raises(ParameterError, match="fixed"):
        total.check_recipe(FAMILIES["integral"].example)


def test_a_decay_that_looks_back_further_than_is_kept_is_refused() -> None:
    recipe = recipe_of(SumParams(capacity=8, max_sum=1000, max_window=60, seed=1))
    Threshold("sum", above=5, decay=ds.decay.window(60)).check_recipe(recipe)
    with pytest.raises(ParameterError, match="reaches back inf; max_window of the stream is 60"):
        Threshold("sum", above=5, decay=DECAY).check_recipe(recipe)
    with pytest.raises(ParameterError, match="reaches back 61; max_window of the stream is 60"):
        Threshold("sum", above=5, decay=ds.decay.window(61)).check_recipe(recipe)


def test_of_labels_only_all_observations_are_watched() -> None:
    recipe = recipe_of(ds.SketchParams(value_type="label"))
    for question in ("count", "sum"):
        Threshold(question, above=5, decay=DECAY).check_recipe(recipe)  # type: ignore[arg-type]
    Threshold("count", above=5, where="v == 'E42'", decay=DECAY).check_recipe(recipe)
    for asked in (
        Threshold("share", above=0.5, predicate="v == 'E42'", decay=DECAY),
        Threshold("mean", above=5, range=(0, 9), decay=DECAY),
    ):
        with pytest.raises(ParameterError, match="values of the stream are labels"):
            asked.check_recipe(recipe)


def test_what_is_held_back_of_labels_is_weighed() -> None:
    recipe = recipe_of(ds.SketchParams(value_type="label"))
    spec = Threshold("count", above=5, decay=DECAY)
    held = Pending(spec, recipe, 0.0, known=True)
    held.observe([100, 100], ["E42", None], [1, 1], 100.0, 0.0)
    assert held.weight(0.0) == pytest.approx(2.0)
