"""Counts: sure ends that are never broken, intervals that hold, values nearer than the paper."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decaysketch import decay, errors
from decaysketch.ecm import collision_error, point_queries
from decaysketch.ecm.levels import Layer
from decaysketch.ecm.matrix import Counters, Estimator, Grid, Held, LayerGrid, add, read
from tests.ecm.exact import ROOT, Stream, counters, flat, read_exactly, tree

Float64Array = npt.NDArray[np.float64]

DECAYS = (
    decay.window(0),
    decay.window(40),
    decay.none(),
    decay.exponential(half_life=15),
    decay.exponential(rate=3.0),
    decay.polynomial(1, scale=10),
    decay.piecewise([(10, 2.0), (30, 0.5)]),
    decay.expression("1/(1 + log(1 + x/60))"),
)
ESTIMATORS: tuple[Estimator, ...] = ("debiased", "minimum")


def by_hand(cells: Any, *, gap: float = 0.0, hashed: bool = True, **more: Any) -> Grid:
    """A grid whose leaf has these values, and a total of their first row."""
    value = np.array(cells, np.float64)
    whole = np.array([[value[0].sum()]])
    depth, width = value.shape
    leaf = Layer(0, width, depth, 10, hashed)
    layers = (
        LayerGrid(ROOT, 1, whole, whole, whole),
        LayerGrid(leaf, 1, value - gap, value + gap, value),
    )
    return Grid(layers, decay.none(), 0, **more)


def words_of(*keys: int) -> npt.NDArray[np.uint64]:
    return np.array(keys, np.uint64)


# -------------------------------------------------------------------------------------------- noise


def test_noise_is_counted_in_the_cells_of_each_row() -> None:
    row = np.array([[0.0, 1.0, 2.0, 3.0]])
    # One of four cells is above 2: with the key's own place (1 + 1) / (4 + 1).
    assert collision_error.most(row, 0.4) == 2.0
    assert collision_error.most(row, 0.39) == 3.0
    assert collision_error.most(row, 0.2) == 3.0
    assert collision_error.most(row, 0.19) == math.inf  # no cell is known to be rare enough
    # Of nine cells the second smallest has one below it, so the noise is with a chance of 2 / 10.
    nine = np.arange(9.0)[None]
    assert collision_error.least(nine, 0.2).tolist() == [1.0]
    assert collision_error.least(nine, 0.1).tolist() == [0.0]
    assert collision_error.least(nine + 5.0, 0.09).tolist() == [0.0]  # too few cells to say
    assert collision_error.markov(2, 10, math.exp(-2.0)) == pytest.approx(math.e / 10)


@given(
    st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=3), min_size=1, max_size=3),
    st.floats(0.001, 0.999),
)
def test_the_bound_of_the_noise_is_the_least_cell_that_the_chance_allows(
    rows: list[list[int]], chance: float
) -> None:
    ranked = np.sort(np.array(rows, np.float64), axis=1)
    allowed = [
        bound
        for bound in np.unique(ranked)
        if math.prod((1 + int((row > bound).sum())) / 4 for row in ranked) <= chance
    ]
    assert collision_error.most(ranked, chance) == min(allowed, default=math.inf)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_noise_drawn_from_the_cells_exceeds_its_bounds_as_seldom_as_stated(depth: int) -> None:
    """By enumeration: of all ways in which a key can fall on the cells of each row."""
    rng = np.random.default_rng(depth)
    cells = rng.integers(0, 30, (depth, 12)).astype(np.float64)
    ranked = np.sort(cells, axis=1)
    draws = np.array(list(itertools.product(*cells)))
    for chance in (0.05, 0.2, 0.5):
        assert (draws.min(axis=1) > collision_error.most(ranked, chance)).mean() <= chance
        assert (draws < collision_error.least(ranked, chance)).any(axis=1).mean() <= chance
    centre = 3.0
    mean_square = ((draws.min(axis=1) - centre) ** 2).mean()
    assert collision_error.spread(ranked, centre) == pytest.approx(math.sqrt(mean_square))


# ------------------------------------------------------------------------------------------ by hand


def test_a_count_is_the_least_of_its_cells_less_what_most_cells_hold() -> None:
    grid = by_hand([[5, 5, 5, 5, 5, 5, 5, 105]])
    columns = grid.leaf.columns(np.arange(64, dtype=np.uint64))[0]
    heavy, light = (int(np.flatnonzero(columns == column)[0]) for column in (7, 0))
    # (1 + 8 cells above) / 9 is above a half for less than 5, and for 5 it is 2 / 9.
    found = point_queries.counts(grid, words_of(heavy, light))
    assert found.value.tolist() == [100.0, 0.0]
    assert found.sure_upper.tolist() == [105.0, 5.0]
    paper = point_queries.counts(grid, words_of(heavy, light), estimator="minimum")
    assert paper.value.tolist() == [105.0, 5.0]
    # At most 140 / 8 / 0.5 are added with a chance of a half: (105 - f) <= 2 (140 - f) / 8.
    half = point_queries.counts(grid, words_of(heavy), confidence=0.5, estimator="minimum")
    assert half.lower[0] == pytest.approx((105 - 35) / 0.75)
    assert half.upper.tolist() == [105.0]


def test_the_interval_is_by_the_spread_of_the_cells() -> None:
    row = np.arange(100.0)
    grid = by_hand([row, row], gap=0.0)
    words = np.arange(50, dtype=np.uint64)
    cells = grid.leaf.columns(words)
    found = point_queries.counts(grid, words, confidence=0.9)
    # (1 + c)^2 / 101^2 <= 0.05 for c = 21 cells above 78; the second cell of either row, 1, is
    # exceeded but for 2 / 101 each: floor(0.025 * 101).
    assert found.lower.tolist() == np.maximum(cells.min(axis=0) - 78.0, 0.0).tolist()
    assert found.upper.tolist() == np.maximum(cells.min(axis=0) - 1.0, found.value).tolist()
    # With fewer cells the upper end is the sure one, and the lower has all of the risk.
    few = by_hand([row[:20], row[:20]])
    cells = few.leaf.columns(words)
    found = point_queries.counts(few, words, confidence=0.9)
    assert found.upper.tolist() == found.sure_upper.tolist()
    # (1 + c)^2 / 21^2 <= 0.1 for c = 5 cells above 14.
    assert found.lower.tolist() == np.maximum(cells.min(axis=0) - 14.0, 0.0).tolist()


def test_cells_of_one_key_each_are_known() -> None:
    grid = by_hand([[7, 0, 2, 1]], hashed=False)
    found = list(point_queries.counts(grid, words_of(0, 1, 2, 3)))
    assert [each.value for each in found] == [7.0, 0.0, 2.0, 1.0]
    assert all(each.exact and each.lower == each.upper == each.sure_upper for each in found)
    gaps = point_queries.counts(by_hand([[7, 0, 2, 1]], gap=1.5, hashed=False), words_of(0))[0]
    assert (gaps.lower, gaps.value, gaps.upper, gaps.sure_upper) == (5.5, 7.0, 8.5, 8.5)
    assert not gaps.exact


def test_what_was_refused_or_moved_widens_answers() -> None:
    grid = by_hand([[7, 0, 2, 1]], hashed=False, refused=3.0, moved=2.0)
    found = point_queries.counts(grid, words_of(0, 1))
    assert found.lower.tolist() == [5.0, 0.0]
    assert found.upper.tolist() == found.sure_upper.tolist() == [10.0, 3.0]
    assert found.value.tolist() == [7.0, 0.0]
    whole = point_queries.total(grid)
    assert (whole.lower, whole.value, whole.upper) == (8.0, 10.0, 13.0)
    assert not whole.exact


def test_an_entry_is_an_estimate_and_some_entries_are_counts() -> None:
    grid = by_hand([[5, 5, 5, 5, 5, 5, 5, 105]])
    found = point_queries.counts(grid, np.arange(10, dtype=np.uint64), confidence=0.5)
    assert len(found) == 10
    third = found[3]
    assert (third.value, third.lower, third.upper, third.sure_upper) == (
        found.value[3], found.lower[3], found.upper[3], found.sure_upper[3],
    )  # fmt: skip
    assert (third.confidence, third.rows, third.stderr) == (0.5, 1, found.stderr[3])
    assert third.to_dict()["sure_upper"] == third.sure_upper
    assert "surely at most" in repr(third)
    assert list(found[2:5]) == list(found)[2:5]
    assert point_queries.count(grid, 3, confidence=0.5) == third
    assert repr(found) == "Counts(10 keys, 50 %)"


def test_a_share_is_of_the_total() -> None:
    grid = by_hand([[7, 0, 2, 1]], hashed=False)
    assert point_queries.share(grid, 0).value == 0.7
    assert point_queries.share(grid, 0).exact
    wide = point_queries.share(by_hand([[7, 0, 2, 1]], gap=1.0, hashed=False), 0)
    assert (wide.lower, wide.upper, wide.sure_upper) == (0.6, 0.8, 0.8)
    nothing = point_queries.share(by_hand([[0, 0, 0, 0]]), 0)
    assert math.isnan(nothing.value)
    assert (nothing.lower, nothing.upper, nothing.sure_upper) == (0.0, 1.0, 1.0)


# ------------------------------------------------------------------------------------------ reading


def direct_counts(grid: Grid, keys: int = 4) -> list[float]:
    return point_queries.counts(grid, np.arange(keys, dtype=np.uint64)).value.tolist()


LAYERS = (ROOT, Layer(0, 4, 1, 10, False))


def test_windows_hold_both_of_their_ends() -> None:
    stream = Stream([0, 1, 2, 3, 3], [10, 20, 30, 40, 40])
    assert direct_counts(read_exactly(stream, LAYERS, decay.window(20), 40)) == [0, 1, 1, 2]
    assert direct_counts(read_exactly(stream, LAYERS, decay.window(19.5), 40)) == [0, 0, 1, 2]
    assert direct_counts(read_exactly(stream, LAYERS, decay.window(0), 40)) == [0, 0, 0, 2]
    assert direct_counts(read_exactly(stream, LAYERS, decay.window(2**70), 40)) == [1, 1, 1, 2]
    assert direct_counts(read_exactly(stream, LAYERS, decay.none(), 40)) == [1, 1, 1, 2]


@pytest.mark.parametrize("given_decay", [decay.window(15), decay.none()])
def test_what_came_after_now_is_not_counted(given_decay: decay.Decay) -> None:
    stream = Stream([0, 1, 2, 3, 3], [10, 20, 30, 40, 40])
    oldest = 1.0 if given_decay == decay.none() else 0.0
    assert direct_counts(read_exactly(stream, LAYERS, given_decay, 30)) == [oldest, 1, 1, 0]
    ages = decay.exponential(half_life=10)
    found = direct_counts(read_exactly(stream, LAYERS, ages, 30))
    assert found == pytest.approx([0.25, 0.5, 1.0, 0.0])


def test_lanes_and_sources_and_what_is_held_back_add() -> None:
    stream = Stream([0, 1, 2, 3, 3], [10, 20, 30, 40, 40], [1, 2, 3, 4, 5])
    parts = [counters(part, LAYERS, 1, exact=True) for part in stream.parts(3)]
    held = Held(words_of(1, 2, 0), np.array([5, 35, 50]), np.array([100, 10, 1000]))
    for each, expected in (
        (decay.window(20), [0, 2, 13, 9]),
        (decay.none(), [1, 102, 13, 9]),
        (decay.piecewise([(9, 2.0), (39, 1.0)]), [1, 102, 23, 18]),
    ):
        sources = [parts[0], parts[1]._replace(held=held), parts[2]]
        whole = read(sources, LAYERS, 1, each, 40)
        assert direct_counts(whole) == pytest.approx(expected)
        together = read(
            [Counters([lane for part in sources for lane in part.lanes], held=held)],
            LAYERS, 1, each, 40,
        )  # fmt: skip
        assert direct_counts(together) == pytest.approx(expected)
        added = add([read([source], LAYERS, 1, each, 40) for source in sources])
        for ours, theirs in zip(whole.layers, added.layers, strict=True):
            for name in ("lo", "hi", "value"):
                np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name))


def test_ages_of_what_is_held_back_may_be_as_long_as_times_allow() -> None:
    held = Held(words_of(0), np.array([-(2**62)]), np.array([3]))
    grid = read([Counters([], held=held)], LAYERS, 1, decay.exponential(half_life=1), 2**62)
    assert direct_counts(grid) == [0, 0, 0, 0]


def test_few_events_are_known_under_any_decay() -> None:
    stream = Stream([0, 1, 1], [10, 20, 30])
    for each in DECAYS:
        grid = read([counters(stream, LAYERS, 1)], LAYERS, 1, each, 35)
        found = point_queries.count(grid, 1)
        truth = stream.counts(each, 35)[1][1]
        assert found.exact
        assert point_queries.total(grid).exact
        assert found.value == pytest.approx(truth)


def test_slack_of_what_was_merged_widens_the_ends() -> None:
    stream = Stream([0] * 30 + [1] * 60, range(90))
    source = counters(stream, LAYERS, 1, exact=True)
    grid = read([source._replace(slack=0.5), source], LAYERS, 1, decay.none(), 90)
    assert grid.leaf.lo[0].tolist() == pytest.approx([30 / 1.5 + 30, 60 / 1.5 + 60, 0, 0])
    assert grid.leaf.hi[0].tolist() == pytest.approx([30 / 0.5 + 30, 60 / 0.5 + 60, 0, 0])
    assert grid.leaf.value[0].tolist() == [60, 120, 0, 0]
    nothing_known = read([source._replace(slack=1.0)], LAYERS, 1, decay.none(), 90)
    assert nothing_known.leaf.hi[0].tolist() == [math.inf, math.inf, 0, 0]
    found = point_queries.count(nothing_known, 0)
    assert found.lower == pytest.approx(15.0)
    assert (found.value, found.upper) == (30.0, math.inf)
    assert found.to_dict()["sure_upper"] is None


def test_late_weight_counts_as_much_as_the_decay_can_make_of_it() -> None:
    stream = Stream([0, 1], [10, 40])
    late = counters(stream, LAYERS, 1, exact=True)._replace(refused=5, moved=2)
    steps = decay.piecewise([(9, 3.0), (39, 1.0)])
    for each, heaviest in ((decay.window(5), 1.0), (steps, 3.0)):
        grid = read([late], LAYERS, 1, each, 40)
        assert (grid.refused, grid.moved) == (5 * heaviest, 2 * heaviest)
    # What was counted at a time after now is missing.
    assert read([late], LAYERS, 1, decay.window(5), 39).refused == 7


# ------------------------------------------------------------------------------------------- errors


class Rising(decay.Decay):
    """A subclass that is no decay."""

    sign = 1.0

    def __call__(self, ages: npt.ArrayLike) -> Float64Array:
        return self.sign * np.asarray(ages, np.float64)

    @property
    def support(self) -> float:
        return math.inf

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "rising"}

    def __repr__(self) -> str:
        return "Rising()"


class Signed(Rising):
    sign = -1.0


class Halving(Rising):
    """One that is, written by a user."""

    def __call__(self, ages: npt.ArrayLike) -> Float64Array:
        return 0.5 ** np.asarray(ages, np.float64)


def test_what_is_no_decay_is_refused_by_name() -> None:
    stream = Stream([0, 1, 2], [10, 20, 30])
    for wrong in (Rising(), Signed()):
        with pytest.raises(errors.ParameterError, match=r"^Rising\(\) gives weights from .* rise"):
            read_exactly(stream, LAYERS, wrong, 30)
    integral = decay.integral.window(10)
    with pytest.raises(errors.ParameterError, match=r"^decay is .*; expected a Decay"):
        read_exactly(stream, LAYERS, integral, 30)  # type: ignore[arg-type]
    with pytest.raises(errors.ParameterError, match=r"^decay is 20; expected a Decay"):
        read_exactly(stream, LAYERS, 20, 30)  # type: ignore[arg-type]
    with pytest.raises(errors.ParameterError, match=r"^now is 1.5; expected an integer"):
        read_exactly(stream, LAYERS, decay.none(), 1.5)  # type: ignore[arg-type]
    heavy = decay.piecewise([(60, 1e300)])
    with pytest.raises(errors.ParameterError, match=r"weighs 1e\+300 at age 0, and 3 were counted"):
        read_exactly(stream, LAYERS, heavy, 30)
    assert direct_counts(read_exactly(stream, LAYERS, Halving(), 30)) == pytest.approx(
        [0.5**20, 0.5**10, 1.0, 0.0]
    )


def test_questions_refuse_what_they_cannot_read() -> None:
    grid = by_hand([[7, 0, 2, 1]], key_bits=2)
    with pytest.raises(errors.ParameterError, match=r"^key is 4; expected an integer below 2\^2"):
        point_queries.counts(grid, words_of(0, 4, 1))
    with pytest.raises(errors.ParameterError, match=r"^key is -1; expected at least 0"):
        point_queries.count(grid, -1)
    with pytest.raises(errors.ParameterError, match=r"^key is 1.0; expected an integer"):
        point_queries.count(grid, 1.0)  # type: ignore[arg-type]
    with pytest.raises(errors.ParameterError, match=r"^words is .*; expected a column of uint64"):
        point_queries.counts(grid, np.array([1, 2]))  # type: ignore[arg-type]
    with pytest.raises(errors.ParameterError, match=r"^estimator is 'median'; expected one of"):
        point_queries.counts(grid, words_of(1), estimator="median")  # type: ignore[arg-type]
    with pytest.raises(errors.ParameterError, match=r"^confidence is 1; expected"):
        point_queries.counts(grid, words_of(1), confidence=1)
    assert len(point_queries.counts(grid, words_of())) == 0


def test_only_grids_of_the_same_keys_decay_and_time_add() -> None:
    grid = read_exactly(Stream([1], [1]), flat(8, 2), decay.none(), 1)
    for name, other in (
        ("layers", read_exactly(Stream([1], [1]), flat(9, 2), decay.none(), 1)),
        ("seed", read_exactly(Stream([1], [1]), flat(8, 2), decay.none(), 1, seed=2)),
        ("decay", read_exactly(Stream([1], [1]), flat(8, 2), decay.window(1), 1)),
        ("now", read_exactly(Stream([1], [1]), flat(8, 2), decay.none(), 2)),
    ):
        with pytest.raises(errors.IncompatibleSketchError, match=name):
            add([grid, other])


# --------------------------------------------------------------------------------------------- laws


@st.composite
def streams(draw: st.DrawFn, keys: int = 12) -> Stream:
    size = draw(st.integers(0, 60))
    steps = draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    words = draw(st.lists(st.integers(0, keys - 1), min_size=size, max_size=size))
    weights = draw(st.lists(st.sampled_from([1, 1, 1, 7, 200]), min_size=size, max_size=size))
    start = draw(st.sampled_from([0, -1000, 10**12]))
    return Stream(words, start + np.cumsum(np.array(steps, np.int64)), weights)


def ends_hold(grid: Grid, stream: Stream, keys: int = 12) -> None:
    truth = np.zeros(keys)
    known, counted = stream.counts(grid.decay, grid.now)
    truth[known.astype(np.intp)] = counted
    words = np.arange(keys, dtype=np.uint64)
    for estimator in ESTIMATORS:
        found = point_queries.counts(grid, words, estimator=estimator)
        assert (truth <= found.sure_upper).all()
        assert (found.sure_lower <= truth).all()
        assert (found.lower >= 0.0).all()
        assert (found.lower <= found.value).all()
        assert (found.value <= found.upper).all()
        assert (found.upper <= found.sure_upper).all()
    whole = point_queries.total(grid)
    if whole.exact:
        assert whole.value == pytest.approx(truth.sum(), rel=1e-11)
    assert whole.lower <= truth.sum() * (1 + 1e-12)
    assert truth.sum() * (1 - 1e-12) <= whole.upper
    for word in (0, 5):
        part = point_queries.share(grid, word)
        if truth.sum() > 0.0:
            assert part.sure_upper is not None
            assert truth[word] / truth.sum() <= part.sure_upper * (1 + 1e-12)
            assert 0.0 <= part.lower <= part.upper <= part.sure_upper <= 1.0
            assert math.isnan(part.value) == (whole.value == 0.0)
            assert math.isnan(part.value) or part.lower <= part.value <= part.upper


@settings(deadline=None, max_examples=150)
@given(
    stream=streams(),
    each=st.sampled_from(DECAYS),
    since=st.integers(-30, 60),
    sites=st.integers(1, 3),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(2, 4)),
    kind=st.sampled_from(["wave", "eh"]),
)
def test_sure_ends_are_never_broken(
    stream: Stream,
    each: decay.Decay,
    since: int,
    sites: int,
    shape: tuple[int, int, int],
    kind: str,
) -> None:
    layers = flat(*shape)
    now = since + (int(stream.times[-1]) if len(stream) else 0)
    sources = [counters(part, layers, 5, kind) for part in stream.parts(sites)]
    ends_hold(read(sources, layers, 5, each, now), stream)


@settings(deadline=None, max_examples=50)
@given(
    stream=streams(),
    each=st.sampled_from(DECAYS),
    late=st.integers(0, 2**20),
    since=st.integers(0, 60),
)
def test_sure_ends_hold_what_was_late(
    stream: Stream, each: decay.Decay, late: int, since: int
) -> None:
    """Each event is counted, held back, counted at a later time, or refused."""
    layers = flat(4, 2, 3)
    now = since + (int(stream.times[-1]) if len(stream) else 0)
    fate = np.random.default_rng(late).integers(0, 4, len(stream))
    counted = (fate == 0) | (fate == 2)
    times = np.where(fate == 2, stream.times + 5, stream.times)
    order = np.argsort(times[counted], kind="stable")
    taken = Stream(*(column[counted][order] for column in (stream.words, times, stream.weights)))
    kept_back = fate == 1
    source = counters(taken, layers, 5)._replace(
        held=Held(*(c[kept_back] for c in (stream.words, stream.times, stream.weights))),
        refused=int(stream.weights[fate == 3].sum()),
        moved=int(stream.weights[fate == 2].sum()),
    )
    ends_hold(read([source], layers, 5, each, now), stream)


# --------------------------------------------------------------------------------------- statistics


def zipf_counts(keys: int, exponent: float, total: int) -> Float64Array:
    ranks = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    return np.maximum(np.round(total * ranks / ranks.sum()), 1.0)


def counted_grid(counts: Float64Array, width: int, depth: int, seed: int) -> Grid:
    """Of keys 0, 1, ... with these counts, exactly counted."""
    words = np.arange(len(counts), dtype=np.uint64)
    stream = Stream(words, np.zeros(len(counts)), counts.astype(np.int64))
    return read_exactly(stream, flat(width, depth), decay.none(), 0, seed=seed)


@pytest.mark.parametrize(
    ("width", "depth", "confidence"), [(58, 3, 0.9), (400, 3, 0.95), (21, 2, 0.9), (150, 5, 0.99)]
)
@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.6])
def test_the_spread_interval_covers_what_it_states(
    width: int, depth: int, confidence: float, exponent: float
) -> None:
    """Over 40 seeds and 3,000 keys: at least the stated share less 1.5 points. Seeds are fixed;
    with others, cells of one seed being shared by many keys, it fails in fewer than 1 of 100."""
    counts = zipf_counts(3000, exponent, 100_000)
    words = np.arange(len(counts), dtype=np.uint64)
    covered, heavy = [], []
    for seed in range(40):
        grid = counted_grid(counts, width, depth, seed)
        found = point_queries.counts(grid, words, confidence=confidence)
        holds = (found.lower <= counts) & (counts <= found.upper)
        covered.append(holds.mean())
        heavy.append(holds[:20].mean())
        assert (counts <= found.sure_upper).all()
    assert np.mean(covered) >= confidence - 0.015
    assert np.mean(heavy) >= confidence - 0.03  # 800 keys


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2, 1.6])
def test_the_debiased_count_is_nearer_than_the_minimum(exponent: float) -> None:
    counts = zipf_counts(3000, exponent, 100_000)
    words = np.arange(len(counts), dtype=np.uint64)
    error = dict.fromkeys(ESTIMATORS, 0.0)
    by_weight = dict(error)
    for seed in range(10):
        grid = counted_grid(counts, 58, 3, seed)
        for name in ESTIMATORS:
            off = np.abs(point_queries.counts(grid, words, estimator=name).value - counts)
            error[name] += off.mean()
            by_weight[name] += (off * counts).sum() / counts.sum()
    assert error["debiased"] < 0.6 * error["minimum"]
    assert by_weight["debiased"] < by_weight["minimum"]


@pytest.mark.parametrize(
    "each",
    [decay.window(3000), decay.exponential(half_life=900), decay.polynomial(1.5, scale=300)],
    ids=repr,
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_answers_beyond_epsilon_are_fewer_than_delta(
    each: decay.Decay, estimator: Estimator
) -> None:
    """eps = delta = 0.1, sized by theorem 1: width 30, depth 3, slots 5. Over 12 seeds and all keys
    the share is that of one query; seeds are fixed."""
    rng = np.random.default_rng(8)
    stream = Stream(rng.zipf(1.4, 20_000) % 2000, np.sort(rng.integers(0, 10_000, 20_000)))
    keys, truth = stream.counts(each, 10_000)
    beyond = []
    for seed in range(12):
        layers = flat(30, 3, 5)
        grid = read([counters(stream, layers, seed)], layers, seed, each, 10_000)
        found = point_queries.counts(grid, keys, estimator=estimator)
        beyond.append((np.abs(found.value - truth) > 0.1 * truth.sum()).mean())
    assert np.mean(beyond) <= 0.1


def test_the_standard_error_is_that_of_the_noise() -> None:
    counts = zipf_counts(3000, 1.0, 100_000)
    words = np.arange(len(counts), dtype=np.uint64)
    for estimator in ESTIMATORS:
        square, stated = [], []
        for seed in range(20):
            found = point_queries.counts(
                counted_grid(counts, 58, 3, seed), words, estimator=estimator
            )
            square.append(((found.value - counts) ** 2).mean())
            stated.append(found.stderr.mean())
        assert np.sqrt(np.mean(square)) == pytest.approx(np.mean(stated), rel=0.35)


def test_prefixes_of_keys_leave_counts_of_keys_as_they_are() -> None:
    rng = np.random.default_rng(4)
    stream = Stream(rng.integers(0, 256, 2000), np.sort(rng.integers(0, 100, 2000)))
    words = np.arange(256, dtype=np.uint64)
    plain = read_exactly(stream, flat(20, 3), decay.window(50), 100)
    layered = read_exactly(stream, tree(8, 4, 20, 3), decay.window(50), 100, key_bits=8)
    for name in ("value", "lower", "upper", "sure_upper"):
        ours, theirs = (getattr(point_queries.counts(g, words), name) for g in (plain, layered))
        assert ours.tolist() == theirs.tolist()
