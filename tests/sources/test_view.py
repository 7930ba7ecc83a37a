"""What a coverage view returns: exact where nothing was discarded, and honest where it was."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sources.streams import Heard, drawn

import decaysketch as ds
from decaysketch import families
from decaysketch.errors import IncompatibleSketchError, ParameterError
from decaysketch.query.modifiers import Modifiers
from decaysketch.sources.source_set import SourceSet

NOW = 100_000
HALF_LIFE = ds.decay.exponential(half_life=20_000)


@pytest.fixture(scope="module")
def stream() -> Heard:
    rng = np.random.default_rng(2)
    found = drawn(rng, 3000, (0.9, 0.3, 0.05))
    values = rng.normal(20.0, 5.0, (3000, 1)) + np.zeros((1, 3))
    return Heard(found.heard, found.times, found.weights, values)


def expected(stream: Heard, expression: str) -> Any:
    """The messages of a set, by Python's own operators on columns."""
    h = {name: stream.heard[:, source] for source, name in enumerate(stream.names)}
    degrees = stream.heard.sum(axis=1)
    words = {
        "any": degrees > 0,
        "all": degrees == len(h),
        "exactly": lambda j: degrees == j,
        "at_least": lambda j: degrees >= j,
    }
    text = expression.replace("-", "& ~")
    return eval(text, {"__builtins__": {}}, {**h, **words}) & (degrees > 0)


SETS = ["a", "a & b", "a | b", "a - b", "~a", "any", "all", "exactly(2)", "at_least(2)",
        "(a | b) & ~c", "a & ~(b | c)", "b & c"]  # fmt: skip


@pytest.mark.parametrize("expression", SETS)
def test_results_are_exact_where_nothing_was_discarded(stream: Heard, expression: str) -> None:
    view = ds.SourceSet(stream.sketches(10_000)).at(HALF_LIFE, NOW)
    mask = expected(stream, expression)
    count, truth = view.count(expression), stream.mass(HALF_LIFE, NOW, mask)
    assert count.exact
    assert count.value == pytest.approx(truth, rel=1e-9)
    whole = stream.mass(HALF_LIFE, NOW, stream.heard.any(axis=1))
    assert view.share(expression).value == pytest.approx(truth / whole, rel=1e-9)
    mean = view.where(expression).ask("mean")
    weights = HALF_LIFE(np.int64(NOW) - stream.latest[mask])
    assert stream.values is not None
    assert mean.value == pytest.approx(np.average(stream.values[mask, 0], weights=weights))
    found = view.missing(expression, 10_000)
    assert [each.id for each in found] == sorted(
        np.flatnonzero(mask).tolist(), key=lambda row: (-stream.latest[row], -row)
    )


def test_reports_are_exact_where_nothing_was_discarded(stream: Heard) -> None:
    view = ds.SourceSet(stream.sketches(10_000)).at(HALF_LIFE, NOW)

    def mass(mask: Any) -> Any:
        return pytest.approx(stream.mass(HALF_LIFE, NOW, mask), rel=1e-9)

    degrees = stream.heard.sum(axis=1)
    for source, (name, estimate) in enumerate(view.exclusive()):
        assert name == stream.names[source]
        assert estimate.value == mass(stream.heard[:, source] & (degrees == 1))
    assert [each.j for each in view.heard_by()] == [1, 2, 3]
    assert all(each.estimate.value == mass(degrees == each.j) for each in view.heard_by())
    overlaps = view.overlaps()
    assert [(each.source, each.other) for each in overlaps] == [("a", "b"), ("a", "c"), ("b", "c")]
    for source, other, estimate in overlaps:
        both = stream.heard[:, "abc".index(source)] & stream.heard[:, "abc".index(other)]
        assert estimate.exact
        assert estimate.value == mass(both)
    for history in view.histories():
        held = np.array([name in history.sources for name in stream.names])
        assert history.estimate.value == mass((stream.heard == held).all(axis=1))
    steps = view.cover(1.0)
    assert [step.source for step in steps] == ["a", "b", "c"]
    assert steps[-1].covered.value == pytest.approx(1.0)
    heard = stream.heard[:, 0]
    assert steps[0].gain == pytest.approx(
        stream.mass(HALF_LIFE, NOW, heard) / stream.mass(HALF_LIFE, NOW, degrees > 0)
    )


@pytest.mark.parametrize("lag", [0, 300])
def test_overlaps_are_those_of_the_joint_sample_of_each_pair(lag: int) -> None:
    stream = drawn(np.random.default_rng(6), 3000, (0.9, 0.4, 0.1), lag=lag)
    view = ds.SourceSet(stream.sketches((40, 80, 60), seed=3), guard=lag).at(HALF_LIFE, NOW + lag)
    for source, other, estimate in view.overlaps():
        pair = view.count(f"{source} & {other}")
        assert estimate.rows == pair.rows > 0
        for end in ("value", "lower", "upper", "stderr"):
            assert getattr(estimate, end) == pytest.approx(getattr(pair, end), rel=1e-9)


def test_many_sources_are_paired_in_a_table_as_in_a_square(monkeypatch: Any) -> None:
    stream = drawn(np.random.default_rng(6), 2000, (0.5, 0.4, 0.1, 0.3), lag=20)
    sources = ds.SourceSet(stream.sketches(50), guard=20)
    square = sources.at(HALF_LIFE, NOW).overlaps()
    monkeypatch.setattr("decaysketch.sources.overlaps.MOST_SQUARE", 1)
    assert sources.at(HALF_LIFE, NOW).overlaps() == square
    assert sources.at(HALF_LIFE, NOW).overlaps(limit=2) == square[:2]


def test_a_set_without_rows_has_an_upper_bound() -> None:
    heard = np.zeros((2000, 2), bool)
    heard[:1990, 0] = heard[1990:, 1] = True
    times = np.repeat(np.arange(2000)[:, np.newaxis], 2, axis=1)
    stream = Heard(heard, times, np.ones(2000, np.int64))
    view = ds.SourceSet(stream.sketches(20)).at(ds.decay.none(), 2000)
    for estimate in (view.count("a & b"), view.overlaps()[0].estimate):
        assert estimate.value == estimate.lower == 0.0
        assert estimate.upper > 10.0


def rms(found: list[float], truth: float) -> float:
    return float(np.sqrt(np.mean((np.array(found) - truth) ** 2)))


def test_two_phases_and_unions_at_all_levels_have_no_larger_error() -> None:
    stream = drawn(np.random.default_rng(8), 3000, (0.9, 0.3, 0.05))
    only = stream.heard[:, 2] & (stream.heard.sum(axis=1) == 1)
    truth = stream.mass(HALF_LIFE, NOW, only), stream.mass(HALF_LIFE, NOW, stream.heard.any(axis=1))
    found: dict[str, list[float]] = {name: [] for name in ("two", "joint", "levels", "union")}
    for seed in range(100):
        view = ds.SourceSet(stream.sketches(60, seed=seed)).at(HALF_LIFE, NOW)
        found["two"].append(view.exclusive()[2].estimate.value)
        found["joint"].append(view.where("exactly(1) & c").ask("count").value)
        found["levels"].append(view.count("any").value)
        found["union"].append(view.where("any").ask("count").value)
    assert rms(found["two"], truth[0]) < 0.95 * rms(found["joint"], truth[0])
    assert rms(found["levels"], truth[1]) < 0.95 * rms(found["union"], truth[1])


def test_a_guard_removes_the_bias_of_a_source_that_is_late() -> None:
    rng = np.random.default_rng(9)
    stream = drawn(rng, 4000, (0.8, 0.7), span=20_000)
    late = stream.times + np.stack(
        [np.full(4000, 2000) + rng.exponential(2000, 4000).astype(np.int64), np.zeros(4000, int)], 1
    )
    stream = Heard(stream.heard, late, stream.weights)
    now, decay = int(stream.latest.max()), ds.decay.exponential(half_life=2000)
    truth = stream.mass(decay, now, stream.heard[:, 0] & ~stream.heard[:, 1])
    found: dict[Any, list[float]] = {0: [], "auto": [], "unbounded": []}
    held = dict.fromkeys(found, 0)
    for seed in range(60):
        sketches = stream.sketches(100, seed=seed)
        for guard, values in found.items():
            view = ds.SourceSet(sketches, guard=guard).at(decay, now)
            values.append(view.where("a - b").ask("count").value / truth - 1.0)
            count = view.count("a - b")
            held[guard] += count.lower <= truth <= count.upper
    assert np.mean(found[0]) > 0.2
    assert min(held["auto"], held["unbounded"]) >= 54
    assert abs(np.mean(found["auto"])) < 4 * np.std(found["auto"]) / math.sqrt(60)
    assert abs(np.mean(found["unbounded"])) < 4 * np.std(found["unbounded"]) / math.sqrt(60)


def test_clocks_that_disagree_are_a_caveat_and_are_measured() -> None:
    stream = drawn(np.random.default_rng(1), 3000, (0.8, 0.8), lag=5000)
    sources = ds.SourceSet(stream.sketches(50))
    view = sources.at(HALF_LIFE, NOW)
    assert "clocks-disagree" in view.count("a & b").caveats
    assert "clocks-disagree" in view.overlaps()[0].estimate.caveats
    found = sources.disagreement()
    assert 4000 < found.largest <= 5000
    assert found.guards["a"] == 2 * int(sources.joints((0, 1))[0].match.lags[0])
    assert found.messages >= found.uncut > 0
    agreeing = ds.SourceSet(drawn(np.random.default_rng(1), 3000, (0.8, 0.8)).sketches(50))
    assert "clocks-disagree" not in agreeing.at(HALF_LIFE, NOW).count("a & b").caveats
    assert agreeing.disagreement().largest == 0


def test_a_clock_that_is_ahead_has_no_lag_and_the_others_have_its_offset() -> None:
    stream = drawn(np.random.default_rng(1), 500, (0.8, 0.8, 0.8))
    ahead = Heard(stream.heard, stream.times + np.array([0, 700, 0]), stream.weights)
    lags = ds.SourceSet(ahead.sketches(10_000)).disagreement().lags
    assert lags["b"] == 0.0
    assert lags["a"] == lags["c"] == 700.0


def test_weights_that_disagree_are_a_caveat() -> None:
    params = ds.SketchParams(max_weight=5)
    a, b = ds.DecaySketch(params), ds.DecaySketch(params)
    a.update(None, 2, 10, 1)
    b.update(None, 3, 10, 1)
    assert "weights-disagree" in ds.SourceSet({"a": a, "b": b}).at("none").count("a | b").caveats


def test_settle_looks_back_and_names_sources_that_have_not_posted_since() -> None:
    params = ds.SketchParams()
    a, b = ds.DecaySketch(params), ds.DecaySketch(params)
    a.update(None, 1, [100, 200, 300], [1, 2, 3])
    b.update(None, 1, [100, 200], [1, 2])
    at_once = ds.SourceSet({"a": a, "b": b}).at("none")
    assert (at_once.now, at_once.unsettled) == (300, ("b",))
    assert at_once.share("b", of="a").value == pytest.approx(2 / 3)
    settled = ds.SourceSet({"a": a, "b": b}, settle=100).at("none")
    assert (settled.now, settled.unsettled) == (200, ())
    assert settled.share("b", of="a").value == 1.0
    assert ds.SourceSet({"a": a, "b": b}, settle="1m40s").at("none").now == 200


def outage() -> tuple[Heard, Heard]:
    """A stream, and the same with the first source down for half of the time."""
    up = drawn(np.random.default_rng(4), 6000, (0.8, 0.7, 0.6))
    down = up.heard.copy()
    down[(up.times[:, 0] > 35_000) & (up.times[:, 0] < 85_000), 0] = False
    return up, Heard(down, up.times, up.weights)


@pytest.mark.parametrize("capacity", [100, 800])
def test_a_silent_source_is_found_and_its_spell_can_be_left_out(capacity: int) -> None:
    up, down = outage()
    truth = up.heard[:, 0].mean()
    sources = ds.SourceSet(down.sketches(capacity, seed=capacity))
    view = sources.at("none", NOW)
    silences = view.silences()
    assert {each.source for each in silences} == {"a"}
    assert min(each.after for each in silences) <= 36_000
    assert max(each.before for each in silences) >= 84_000
    share = view.share("a", of="b | c")
    assert share.upper < truth
    assert "silences" in share.caveats
    marked = {pair[:2]: "silences" in pair.estimate.caveats for pair in view.overlaps()}
    assert marked == {("a", "b"): True, ("a", "c"): True, ("b", "c"): False}
    without = sources.at("none", NOW, without_silence=True).share("a", of="b | c")
    assert without.lower <= truth <= without.upper
    assert "silences" not in without.caveats


def test_every_part_leaves_out_the_same_spells() -> None:
    _, down = outage()
    for capacity, guard in ((10_000, 0), (150, 0), (150, 200)):
        sources = ds.SourceSet(down.sketches(capacity, seed=3), guard=guard)
        view = sources.at("none", NOW, without_silence=True)
        times = down.latest
        left = np.ones(len(times), bool)
        for each in view.silences():
            left &= (times <= each.after) | (times >= each.before)
        assert 2000 < left.sum() < 5000
        pairs = {(each.source, each.other): each.estimate for each in view.overlaps()}
        truths = {
            (one, other): int((down.heard[:, i] & down.heard[:, j] & left).sum())
            for i, one in enumerate("abc")
            for j, other in enumerate("abc")
            if i < j
        }
        for pair, truth in truths.items():
            assert pairs[pair].lower <= truth <= pairs[pair].upper
        for source, (name, estimate) in enumerate(view.heard()):
            assert name == "abc"[source]
            truth = int((down.heard[:, source] & left).sum())
            assert estimate.lower <= truth <= estimate.upper
        if capacity == 10_000:
            assert all(pairs[pair].value == truth for pair, truth in truths.items())


def test_a_source_that_hears_messages_alone_is_not_silent() -> None:
    """Two sources move apart; a third one is down from then on."""
    times = np.arange(3000)
    heard = np.ones((3000, 3), bool)
    heard[1000:] = np.stack([times % 2 == 0, times % 2 == 1, times < 0], axis=1)[1000:]
    stream = Heard(heard, np.repeat(times[:, np.newaxis], 3, 1), np.ones(3000, np.int64))
    for capacity in (10_000, 150):
        view = ds.SourceSet(stream.sketches(capacity), guard=0).at("none", 3000)
        assert {each.source for each in view.silences()} == {"c"}


def test_sources_that_miss_messages_at_random_are_not_silent() -> None:
    false = 0
    for seed in range(60):
        stream = drawn(np.random.default_rng(seed), 3000, (0.9, 0.5, 0.3))
        false += len(ds.SourceSet(stream.sketches(200)).at("none", NOW).silences())
    assert false == 0


def test_a_change_of_a_share_is_told_with_its_moment_and_its_size() -> None:
    rng = np.random.default_rng(3)
    n = 20_000
    times = np.sort(rng.integers(0, 100_000, n))
    lost = rng.random(n) < np.where(times > 70_000, 0.2, 0.01)
    heard = np.stack([np.ones(n, bool), ~lost], axis=1)
    stream = Heard(heard, np.repeat(times[:, np.newaxis], 2, 1), np.ones(n, np.int64))
    view = ds.SourceSet(stream.sketches(800)).at("window(20000)", NOW)
    moved = view.versus("a - b", of="a", then=("window(20000)", 50_000))
    assert moved.changed
    recent, before = times > 80_000, (times > 30_000) & (times <= 50_000)
    assert moved.lower <= lost[recent].mean() - lost[before].mean() <= moved.upper
    everything = ds.SourceSet(stream.sketches(800)).at("none", NOW)
    change = everything.since("a - b", of="a")
    assert change is not None
    assert change.after - 2000 <= 70_000 <= change.before + 2000
    assert change.was < 0.05 < change.became
    assert not lost[[each.id for each in everything.missing("b")]].any()
    assert lost[[each.id for each in everything.missing("a - b", 1000)]].all()
    calm = everything.since("b", of="b")
    assert calm is None


def test_choosing_on_one_half_and_judging_on_the_other_is_not_too_kind() -> None:
    rng = np.random.default_rng(5)
    stream = drawn(rng, 3000, np.full(12, 0.25))
    error, kind = [], []
    for seed in range(60):
        view = ds.SourceSet(stream.sketches(30, seed=seed)).at("none", NOW)
        step = view.cover(1.0)[0]
        truth = stream.heard[:, stream.names.index(step.source)].mean()
        error.append(step.covered.value - truth)
        kind.append(step.gain - truth)
    assert np.mean(kind) > 0.01  # the same sample that chose is too kind
    assert np.mean(error) < 0.5 * np.mean(kind)


def test_several_hash_functions_are_pooled_or_their_median_is_taken(stream: Heard) -> None:
    truth = stream.mass(HALF_LIFE, NOW, expected(stream, "a - b"))
    view = ds.SourceSet(stream.sketches(200, copies=3)).at(HALF_LIFE, NOW)
    for combine in ("average", "median"):
        found = view.count("a - b", combine=combine)
        assert found.lower <= truth <= found.upper
        share = view.share("a & b", combine=combine)
        assert 0.0 < share.lower < share.value < share.upper < 1.0
    with pytest.raises(ParameterError, match="copies is 3"):
        view.overlaps()


def test_weights_above_one_have_sums_and_no_matrix() -> None:
    rng = np.random.default_rng(12)
    stream = drawn(rng, 2000, (0.6, 0.6), max_weight=5)
    mask = stream.heard[:, 0] & ~stream.heard[:, 1]
    truth = float((HALF_LIFE(np.int64(NOW) - stream.latest[mask]) * stream.weights[mask]).sum())
    held = 0
    for seed in range(40):
        view = ds.SourceSet(stream.sketches(80, seed=seed, max_weight=5)).at(HALF_LIFE, NOW)
        found = view.where("a - b").ask("sum")
        held += found.lower <= truth <= found.upper
    assert held >= 34
    with pytest.raises(ParameterError, match="max_weight is 5"):
        view.overlaps()


def test_labels_and_values_are_those_of_the_latest_duplicate() -> None:
    params = ds.SketchParams(value_type="label")
    a, b = ds.DecaySketch(params), ds.DecaySketch(params)
    a.update(["old", "mine"], 1, [10, 30], [1, 2])
    b.update(["new"], 1, [20], [1])
    view = ds.SourceSet({"a": a, "b": b}).at("none")
    assert {group.value for group in view.where("any").ask("group_by").groups} == {"mine", "new"}
    assert view.where("a & b").ask("last").value == "new"


def test_a_set_combines_with_filters_and_groups(stream: Heard) -> None:
    """One mechanism restricts a sample: a set, and then a filter or a group."""
    assert stream.values is not None
    values, mask = stream.values[:, 0], expected(stream, "a - b")
    found = ds.SourceSet(stream.sketches(10_000)).at("none", NOW).where("a - b")
    assert found.given(where="v > 20").ask("mean").value == pytest.approx(
        values[mask & (values > 20)].mean()
    )
    groups = found.by("bucket(time, '1h')").ask("count")
    hours, sizes = np.unique(stream.latest[mask] // 3600 * 3600, return_counts=True)
    assert {next(iter(row.by.values())): row.answer.value for row in groups} == dict(
        zip(hours.tolist(), sizes.tolist(), strict=True)
    )


def test_sketches_snapshots_and_bytes_are_equal(stream: Heard) -> None:
    sketches = stream.sketches(60)
    forms = {
        "a": sketches["a"],
        "b": sketches["b"].snapshot(),
        "c": sketches["c"].to_bytes(),
    }
    first, second = (ds.SourceSet(each).at(HALF_LIFE, NOW) for each in (sketches, forms))
    assert first.overlaps() == second.overlaps()


def test_numbers_out_of_range_are_refused(stream: Heard) -> None:
    view = ds.SourceSet(stream.sketches(60)).at(HALF_LIFE, NOW)
    for ask in (view.overlaps, view.histories, lambda limit: view.missing("a", limit)):
        with pytest.raises(ParameterError, match="limit is -1; expected 0 or more"):
            ask(limit=-1)
    for confident in (view.overlaps, view.unheard, view.histories, view.heard, view.cover):
        for confidence in (0.0, 2.0, math.nan):
            with pytest.raises(ParameterError, match="confidence is"):
                confident(confidence=confidence)


def test_sources_that_cannot_be_joined_are_refused() -> None:
    sketch = ds.DecaySketch(ds.SketchParams())
    other = ds.DecaySketch(ds.SketchParams(seed=5))
    with pytest.raises(ParameterError, match="sketches is empty"):
        ds.SourceSet({})
    with pytest.raises(IncompatibleSketchError, match="seed: 0 != 5"):
        ds.SourceSet({"a": sketch, "b": other})
    with pytest.raises(ParameterError, match="source 'a' is a str"):
        ds.SourceSet({"a": "text"})  # type: ignore[dict-item]
    for guard in (-1, "soon", True, math.inf):
        with pytest.raises(ParameterError, match="guard"):
            ds.SourceSet({"a": sketch}, guard=guard)  # type: ignore[arg-type]
    sums = families.FAMILIES["sum"].example.empty()
    with pytest.raises(ParameterError, match="family 'sum' have no joint sample"):
        ds.SourceSet({"a": sums})
    view = ds.SourceSet({"a": sketch, "b": sketch}).at("none", 10)
    with pytest.raises(ParameterError, match="no source 'x'; expected one of 'a', 'b'"):
        view.count("a & x")
    with pytest.raises(ParameterError, match="share is 0"):
        view.cover(0)


def test_the_joint_samples_used_last_are_kept(stream: Heard) -> None:
    sources = SourceSet(stream.sketches(60))
    first = sources.joints((0, 1))
    assert sources.joints((0, 1)) is first
    for _ in range(3):
        sources.at(HALF_LIFE, NOW).count("a & b")
    assert sources.joints((0, 1)) is first


def test_sources_that_hold_nothing_have_results() -> None:
    empty = {name: ds.DecaySketch(ds.SketchParams()) for name in "ab"}
    view = ds.SourceSet(empty).at("none", 10)
    assert view.count("a & b").value == view.count("any").value == 0.0
    assert math.isnan(view.share("a").value)
    assert view.overlaps()[0].estimate.value == 0.0
    assert view.heard_by() == view.histories() == view.cover() == view.missing("a") == []
    assert view.silences() == []


def test_columns_are_read_by_name_in_a_set() -> None:
    rng = np.random.default_rng(6)
    n = 400
    heard = rng.random((n, 2)) < (0.8, 0.5)
    temp, site = rng.normal(20.0, 3.0, n), np.array(["north", "south"])[rng.integers(0, 2, n)]
    params = ds.SketchParams(columns={"temp": "float64", "site": "text"})
    made = {}
    for source, name in enumerate("ab"):
        rows = np.flatnonzero(heard[:, source])
        made[name] = ds.DecaySketch(params)
        made[name].update({"temp": temp[rows], "site": site[rows]}, 1, rows, rows)
    view = ds.SourceSet(made).at("none")
    alone = heard[:, 0] & ~heard[:, 1]
    found = view.given(set="a - b", of="temp", where="site == 'north'").ask("mean")
    assert found.exact
    assert found.value == pytest.approx(temp[alone & (site == "north")].mean())
    table = view.given(set="a - b").modified(Modifiers(of="temp", by=("site",))).ask("mean")
    assert {row.by["site"]: row.answer.value for row in table} == pytest.approx(
        {name: temp[alone & (site == name)].mean() for name in ("north", "south")}
    )
    by = view.modified(Modifiers(of="temp", by=("source", "site"))).ask("mean")
    assert {(row.by["source"], row.by["site"]): row.answer.value for row in by} == pytest.approx(
        {
            (name, place): temp[heard[:, source] & (site == place)].mean()
            for source, name in enumerate("ab")
            for place in ("north", "south")
        }
    )


def test_columns_of_equally_late_duplicates_are_those_of_a_merge() -> None:
    """The larger columns represent a message, whatever its sources are called."""
    rng = np.random.default_rng(7)
    n = 300
    params = ds.SketchParams(
        columns={"revision": "int64", "temp": "int64", "site": "text"}, revision="revision",
        capacity=1000,
    )  # fmt: skip
    parts = []
    for _ in range(3):
        rows = np.flatnonzero(rng.random(n) < 0.7)
        sketch = ds.DecaySketch(params)
        columns = {
            "revision": rng.integers(0, 2, len(rows)),
            "temp": rng.integers(0, 3, len(rows)),
            "site": np.array(["north", "south", "east"])[rng.integers(0, 3, len(rows))],
        }
        sketch.update(columns, 1, rows // 2, rows)
        parts.append(sketch)
    merged = ds.merge(parts).snapshot().at("none", n)
    for names in ("abc", "cab", "bca"):
        view = ds.SourceSet(dict(zip(names, parts, strict=True))).at("none", n)
        for of in ("temp", "revision"):
            found, expected = (
                each.given(of=of, where="site != 'east'").ask("total")
                for each in (view.where("any"), merged)
            )
            assert found.value == pytest.approx(expected.value)


@pytest.mark.parametrize("kind", ["float64", "label", "columns", "integral"])
def test_values_are_those_that_a_source_reported(kind: str) -> None:
    """A message has the value of its latest duplicate, or of a source that is named."""
    params = {
        "float64": ds.SketchParams(), "label": ds.SketchParams(value_type="label"),
        "columns": ds.SketchParams(columns={"v": "float64"}),
        "integral": ds.SketchParams(max_weight=9),
    }[kind]  # fmt: skip
    forever = ds.decay.integral.exponential(half_life=10**9)
    made: dict[str, Any] = {}
    for name, ids, late in (("a", (1, 2, 3), 0), ("b", (2, 3, 4), 5), ("c", (4, 5), 9)):
        made[name] = ds.DecaySketch(params)
        if kind == "integral":
            made[name] = ds.IntegralDecaySketch(params, forever)
        values: Any = [float(10 * id_ + ord(name)) for id_ in ids]
        values = [str(each) for each in values] if kind == "label" else values
        values = {"v": values} if kind == "columns" else values
        weight = 9 if kind == "integral" else 1
        made[name].update(values, weight, [late + id_ for id_ in ids], ids)
    sources = ds.SourceSet(made)
    decay = None if kind == "integral" else "none"

    def read(set_: str, source: str | None) -> list[str]:
        view = sources.at(decay, 20, values_from=source).given(set=set_)
        if kind == "columns":
            view = view.given(of="v")
        elif kind == "label":
            return sorted(each.value for each in view.ask("group_by").groups if each.value)
        return [repr(view.ask("mean").value)]

    def expected(*pairs: tuple[str, int]) -> list[str]:
        values = [float(10 * id_ + ord(name)) for name, id_ in pairs]
        return sorted(map(str, values)) if kind == "label" else [repr(sum(values) / len(values))]

    assert read("a & b", None) == expected(("b", 2), ("b", 3))
    assert read("a & b", "a") == expected(("a", 2), ("a", 3))
    assert read("any", "a") == expected(("a", 1), ("a", 2), ("a", 3))
    assert read("b", "c") == expected(("c", 4))
    counts = (sources.at(decay, 20, values_from=each).count("b") for each in (None, "c"))
    assert len({each.value for each in counts}) == 1
    with pytest.raises(ParameterError, match="values_from is 'x'; expected one of 'a', 'b', 'c'"):
        sources.at(decay, 20, values_from="x")
