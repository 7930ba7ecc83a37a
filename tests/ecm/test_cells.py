"""Cells against counting and against the plain-Python reference.

Kept lists are compared for equality; bounds with the truth, and with the best that a kept list
allows. Streams are random, with ties, weights, weights near 2^62 and times near 2^62.
"""

from __future__ import annotations

import pickle
import random
from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise, product

import numpy as np
import numpy.typing as npt
import pytest

from decaysketch.core import hashing as words_of_seed
from decaysketch.ecm import _native, reference, sizing
from decaysketch.ecm.cells import LIMIT, Cells, compact, minimum
from decaysketch.ecm.hashing import columns_of
from decaysketch.ecm.levels import ROOT, Layer

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
Stream = tuple[UInt64Array, Int64Array, Int64Array | None]

KINDS: list[sizing.Kind] = ["wave", "eh"]
REFERENCE = {"wave": reference.Wave, "eh": reference.EH}
SEED = 7
ONE = Layer(0, 1, 1, 5, hashed=True)
TIMES = ["ties", "dense", "sparse", "wide", "furthest"]
WEIGHTS = ["units", "small", "large", "huge"]


def error_of(cells: Cells) -> Fraction:
    return REFERENCE[cells.kind](cells.layer.slots).error


def times_of(rng: random.Random, kind: str, count: int) -> Int64Array:
    if kind == "furthest":
        ends = sorted(rng.choice([-(1 << 62), 0, 1 << 62, rng.randrange(1 << 62)]) for _ in "ab")
        return np.array(sorted(rng.randint(*ends) for _ in range(count)), np.int64)
    steps = {"ties": (0, 0, 0, 1), "dense": (0, 1), "sparse": (0, 1, 50, 999), "wide": (0, 1 << 27)}
    return np.cumsum([rng.choice(steps[kind]) for _ in range(count)]) + rng.randint(-500, 500)


def weights_of(rng: random.Random, kind: str, count: int) -> Int64Array | None:
    if kind == "units":
        return None
    most = {"small": 3, "large": 1_000, "huge": (LIMIT - 1) // count}[kind]
    return np.array([rng.choice([1, most, rng.randint(1, most)]) for _ in range(count)], np.int64)


def stream_of(rng: random.Random, times: str, weights: str, keys: int = 9) -> Stream:
    count = rng.choice([1, 2, 30, 400, 900])
    words = np.array([rng.randrange(keys) ** 3 for _ in range(count)], np.uint64)
    return words, times_of(rng, times, count), weights_of(rng, weights, count)


def layer_of(rng: random.Random) -> Layer:
    slots = rng.choice([2, 3, 4, 5, 7, 10, 64])
    if rng.random() < 0.2:
        return rng.choice([ROOT._replace(slots=slots), Layer(5, 17, 1, slots, hashed=False)])
    return Layer(rng.choice([0, 3]), rng.randint(1, 6), rng.randint(1, 4), slots, hashed=True)


def streams(count: int, seed: int = 1) -> Iterator[tuple[random.Random, Cells, Stream]]:
    """Cells that have counted a random stream, in batches of random size."""
    rng = random.Random(seed)
    for number in range(count):
        stream = stream_of(rng, TIMES[number % 5], rng.choice(WEIGHTS))
        cells = Cells(layer_of(rng), KINDS[number % 2], SEED)
        feed(cells, stream, rng)
        yield rng, cells, stream


def feed(cells: Cells, stream: Stream, rng: random.Random) -> None:
    words, times, weights = stream
    start = 0
    while start < len(words):
        stop = start + rng.choice([1, 2, 40, 10_000])
        part = slice(start, stop)
        cells.update(words[part], times[part], None if weights is None else weights[part])
        start = stop


def ones_of(stream: Stream) -> list[int]:
    return [1] * len(stream[0]) if stream[2] is None else stream[2].tolist()


def plain(cells: Cells, stream: Stream) -> list[reference.Cell]:
    """The reference's cells of the same stream, row by row."""
    given: list[list[tuple[int, int]]] = [[] for _ in range(cells.layer.cells)]
    rows = columns_of(stream[0], cells.layer, SEED).tolist()
    for row, columns in enumerate(rows):
        for column, *event in zip(columns, stream[1].tolist(), ones_of(stream), strict=True):
            given[row * cells.layer.width + column].append((event[0], event[1]))
    return [cell_of(cells.kind, cells.layer.slots, events) for events in given]


def cell_of(kind: sizing.Kind, slots: int, events: list[tuple[int, int]]) -> reference.Cell:
    """The reference's cell of (time, ones): its ranks, and the times that they have.

    It is what ``add`` would make of them one by one, as the test of the reference shows, which
    takes long.
    """
    cell = REFERENCE[kind](slots)
    if events:
        sums = list(accumulate(ones for _, ones in events))
        cell.n, cell.first = sums[-1], events[0][0]
        ranks = cell.ranks(cell.n, slots)
        cell._times = {rank: events[bisect_left(sums, rank)][0] for rank in ranks}
    return cell


def kept_of(cells: Cells) -> list[list[tuple[int, int]]]:
    ranks, times, offsets = (column.tolist() for column in cells.kept())
    return [
        list(zip(ranks[start:stop], times[start:stop], strict=True))
        for start, stop in pairwise(offsets)
    ]


def state_of(cells: Cells) -> tuple[object, ...]:
    """All that cells are."""
    lists = tuple(column.tobytes() for column in cells.kept())
    return (cells.n.tobytes(), lists, cells.first, cells.clock, cells.seen, cells.nbytes)


def starts_of(rng: random.Random, times: Int64Array) -> list[int]:
    """Edges of windows."""
    some = rng.sample(times.tolist(), min(12, len(times)))
    edges = {time + off for time in (*some, int(times[0]), int(times[-1])) for off in (-1, 0, 1)}
    return sorted({*edges, -(1 << 62), 1 << 62})


# ----------------------------------------------------------------------------------------- counting


def test_cells_keep_what_the_reference_keeps() -> None:
    for _, cells, stream in streams(300):
        made = plain(cells, stream)
        assert kept_of(cells) == [cell.kept() for cell in made]
        assert cells.n.ravel().tolist() == [cell.n for cell in made]
        assert cells.seen == sum(ones_of(stream))
        assert (cells.first, cells.clock) == (stream[1][0], stream[1][-1])
        counts = Cells.kept_counts(cells.layer, cells.kind, cells.n)
        assert counts.ravel().tolist() == [len(kept) for kept in kept_of(cells)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slots", [2, 3, 5, 11])
def test_which_ranks_are_kept_is_a_function_of_how_many_there_are(
    kind: sizing.Kind, slots: int
) -> None:
    layer = ONE._replace(slots=slots)
    one, grown = np.zeros(1, np.uint64), Cells(layer, kind, SEED)
    for n in range(1, 700):
        grown.update(one, np.array([n]))
        ranks, times, _ = grown.kept()
        assert ranks.tolist() == times.tolist() == REFERENCE[kind].ranks(n, slots)
        whole = Cells(layer, kind, SEED)
        whole.update(np.zeros(n, np.uint64), np.arange(1, n + 1))
        assert state_of(whole) == state_of(grown)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_batches_do_not_matter(kind: sizing.Kind, weights: str) -> None:
    rng = random.Random(3)
    for layer in (Layer(0, 7, 3, 4, hashed=True), ROOT, Layer(0, 1, 2, 3, hashed=True)):
        count = 40_000  # more than are grouped at a time
        words = np.array([int(rng.paretovariate(0.8)) % 1_000 for _ in range(count)], np.uint64)
        stream = words, times_of(rng, "dense", count), weights_of(rng, weights, count)
        states = set()
        for sizes in ([count], [1, 5, 30, 200, 3_000], [20_000]):
            cells, start = Cells(layer, kind, SEED), 0
            while start < count:
                part = slice(start, start + rng.choice(sizes))
                given = stream[2]
                cells.update(words[part], stream[1][part], None if given is None else given[part])
                start = part.stop
            states.add(state_of(cells))
        assert len(states) == 1


def test_the_order_of_events_of_one_time_does_not_matter() -> None:
    for rng, cells, (words, times, weights) in streams(60, seed=4):
        order = sorted(range(len(words)), key=lambda k: (times[k], rng.random()))
        other = Cells(cells.layer, cells.kind, SEED)
        feed(other, (words[order], times, None if weights is None else weights[order]), rng)
        assert state_of(other) == state_of(cells)


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_is_so_many_ones(kind: sizing.Kind) -> None:
    for _, cells, stream in streams(40, seed=5):
        if stream[2] is None or cells.seen > 100_000:
            continue
        words, times, weights = stream
        units = Cells(cells.layer, cells.kind, SEED)
        units.update(np.repeat(words, weights), np.repeat(times, weights))
        assert state_of(units) == state_of(cells)


def test_times_are_narrow_while_their_span_allows_it() -> None:
    one = np.zeros(1, np.uint64)
    for kind in KINDS:
        cells, made = Cells(ONE, kind, SEED), REFERENCE[kind](ONE.slots)
        times = [-5, 0, 0, (1 << 32) - 7, (1 << 32) - 6, 1 << 40]  # 2^32 - 1 after the first, + 1
        bytes_of_time = []
        for time in times:
            cells.update(one, np.array([time]))
            made.add(time)
            levels = (cells.nbytes - 8) // ONE.slots
            bytes_of_time.append(4 if levels in (4, 8, 12) else 8)
            assert kept_of(cells) == [made.kept()]
            assert [ends.item() for ends in cells.grid(time)] == list(made.lo_hi(time))
        assert cells._times.dtype == np.int64
        assert bytes_of_time[:4] == [4] * 4


def test_more_ones_than_there_may_be_are_refused_and_nothing_is_counted() -> None:
    words, times = np.array([1, 2], np.uint64), np.array([3, 4])
    for kind in KINDS:
        cells = Cells(Layer(0, 3, 2, 4, hashed=True), kind, SEED)
        cells.update(words, times, np.array([LIMIT - 3, 1]))
        before = state_of(cells)
        for weights in ([1, 1], [LIMIT - 1, LIMIT - 1], [2**63 - 1, 2**63 - 1]):
            with pytest.raises(ValueError, match="expected less than 2\\^62"):
                cells.update(words, times, np.array(weights))
            assert state_of(cells) == before
        cells.update(words[:1], times[1:], np.array([1]))
        assert cells.seen == LIMIT - 1
        with pytest.raises(ValueError, match="weights add 1 to"):
            cells.update(words[:1], times[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_events_in_groups_are_counted_as_one_by_one(kind: sizing.Kind) -> None:
    rng = random.Random(19)
    for depth, weights in product((1, 2, 3, 4, 5), WEIGHTS):
        words, times, ones = stream_of(rng, rng.choice(TIMES), weights, keys=50)
        states = []
        for grouped in (False, True):
            cells = Cells(Layer(0, 9, depth, 3, hashed=True), kind, SEED)
            cells._is_grouped = lambda *_, way=grouped: way  # type: ignore[method-assign]
            feed(cells, (words, times, ones), random.Random(depth))
            states.append(state_of(cells))
        assert states[0] == states[1]


# ------------------------------------------------------------------------------------------ windows


def test_bounds_are_true_and_the_best_that_the_kept_ranks_allow() -> None:
    windows = 0
    for rng, cells, stream in streams(60, seed=6):
        rows = columns_of(stream[0], cells.layer, SEED)
        ones = np.array(ones_of(stream), object)
        error, kept = error_of(cells), kept_of(cells)
        for start in starts_of(rng, stream[1]):
            lo, hi = cells.grid(start)
            values = cells.values(start)
            inside = stream[1] >= start
            for row in range(cells.layer.depth):
                for column in range(cells.layer.width):
                    at = row, column
                    truth = int(ones[inside & (rows[row] == column)].sum())
                    n, times = int(cells.n[at]), kept[row * cells.layer.width + column]
                    older = max((rank for rank, time in times if time < start), default=0)
                    newer = min((rank for rank, time in times if time >= start), default=n + 1)
                    best = n - newer + 1, n - older
                    if start <= stream[1][0]:
                        best = n, n
                    assert (lo[at], hi[at]) == best
                    assert best[0] <= truth <= best[1]
                    assert best == (0, 0) or Fraction(best[1] - best[0], sum(best)) < error
                    near = 1 + 2.0**-50
                    assert abs(values[at] - truth) <= float(error * truth) + truth * (near - 1)
                    assert best[0] / near <= values[at] <= best[1] * near
                    windows += 1
    assert windows > 10_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slots", [2, 3, 5, 10])
def test_the_error_of_every_window_of_every_prefix_is_below_its_bound(
    kind: sizing.Kind, slots: int
) -> None:
    rng = random.Random(slots)
    cells = Cells(ONE._replace(slots=slots), kind, SEED)
    times: list[int] = []
    worst = Fraction(0)
    for time in np.cumsum([rng.choice([0, 1, 1, 2]) for _ in range(300)]).tolist():
        cells.update(np.zeros(1, np.uint64), np.array([time]))
        times.append(time)
        starts = np.arange(times[0], time + 2)
        ends = cells.each(np.zeros(len(starts), np.uint64), starts)  # of the only cell
        truths = len(times) - np.searchsorted(times, starts)
        for lo, truth, hi in zip(ends[0].tolist(), truths.tolist(), ends[1].tolist(), strict=True):
            assert lo <= truth <= hi
            worst = max(worst, Fraction(hi - lo, max(1, hi + lo)))
    assert error_of(cells) / 2 < worst < error_of(cells)


def test_values_are_those_of_the_reference() -> None:
    for rng, cells, stream in streams(60, seed=8):
        made, first = plain(cells, stream), int(stream[1][0])
        for start in starts_of(rng, stream[1]):
            if first < start <= stream[1][-1]:
                expected = [cell.value(start, first) if cell.n else 0.0 for cell in made]
                assert cells.values(start).ravel() == pytest.approx(expected, rel=1e-9)


def test_each_key_may_have_a_window_of_its_own() -> None:
    for rng, cells, stream in streams(20, seed=9):
        starts = np.array([rng.choice(starts_of(rng, stream[1])) for _ in range(1_100)], np.int64)
        words = np.array([rng.choice(stream[0].tolist()) for _ in starts], np.uint64)
        lo, hi = cells.each(words, starts)
        for start in set(starts.tolist()):
            some = starts == start
            for ends, grid in zip((lo, hi), cells.grid(start), strict=True):
                found = minimum(grid, words[some], cells.layer, SEED)
                assert ends[some].tolist() == found.tolist()


# ------------------------------------------------------------------------------------------- decays


def halving(ages: Int64Array) -> npt.NDArray[np.float64]:
    return np.exp2(-np.asarray(ages, np.float64) / 40)


def by_steps(ages: Int64Array) -> npt.NDArray[np.float64]:
    return np.where(ages <= 25, 2.0, np.where(ages <= 300, 0.5, 0.0))


def slowly(ages: Int64Array) -> npt.NDArray[np.float64]:
    return 1 / (1.0 + np.asarray(ages, np.float64)) ** 2


@pytest.mark.parametrize("decay", [halving, by_steps, slowly])
def test_decayed_counts_are_true_and_those_of_the_reference(decay: object) -> None:
    assert callable(decay)
    at_age = cache(lambda age: float(decay(np.array([min(age, 2**63 - 1)]))[0]))
    for rng, cells, stream in streams(30, seed=11):
        made, first, clock = plain(cells, stream), int(stream[1][0]), int(stream[1][-1])
        rows = columns_of(stream[0], cells.layer, SEED)
        for now in (clock, clock + 13, rng.choice(stream[1].tolist())):
            lo, hi = cells.decayed(decay, now)
            ages = np.array([max(0, min(now - t, 2**63 - 1)) for t in stream[1].tolist()], np.int64)
            weights = np.where(stream[1] <= now, decay(ages), 0) * np.array(ones_of(stream), float)
            for cell, reference_cell in enumerate(made):
                row, column = divmod(cell, cells.layer.width)
                low, high = lo[row, column], hi[row, column]
                expected = (
                    reference_cell.decayed(at_age, now, first) if reference_cell.n else (0.0, 0.0)
                )
                assert (low, high) == pytest.approx(expected, rel=1e-9, abs=0)
                truth = weights[rows[row] == column].sum()
                assert low * (1 - 1e-9) <= truth <= high * (1 + 1e-9)
                if now >= clock:
                    assert high - low <= (high + low) * (float(error_of(cells)) + 1e-9)


# ------------------------------------------------------------------------------------------ columns


def column_by_hand(word: int, layer: Layer, row: int) -> int:
    prefix = word >> layer.shift
    if not layer.hashed:
        return prefix
    mask = (1 << 64) - 1
    a = words_of_seed.derive(SEED, 17, 16 * layer.shift + row) | 1
    b = words_of_seed.derive(SEED, 18, 16 * layer.shift + row)
    product = words_of_seed.mix64(prefix) * a + b & mask
    return (product >> 32) * layer.width >> 32


def test_columns_are_as_specified() -> None:
    rng = random.Random(12)
    words = [0, 1, (1 << 64) - 1, *(rng.randrange(1 << 64) for _ in range(1_500))]
    for layer in (Layer(0, 65_535, 16, 2, True), Layer(9, 30, 3, 5, True), ROOT,
                  Layer(50, 1 << 14, 1, 2, False), Layer(64, 10, 2, 2, True)):  # fmt: skip
        columns = columns_of(np.array(words, np.uint64), layer, SEED)
        assert columns.shape == (layer.depth, len(words))
        for row in range(layer.depth):
            expected = [column_by_hand(word, layer, row) for word in words]
            assert columns[row].tolist() == expected


def test_columns_fill_rows_evenly_and_differ_between_rows() -> None:
    """Chi squared of 2^16 consecutive keys in 64 columns: 7 standard deviations are never seen."""
    layer = Layer(0, 64, 4, 2, hashed=True)
    columns = columns_of(np.arange(1 << 16, dtype=np.uint64), layer, SEED)
    for row in range(layer.depth):
        counts = np.bincount(columns[row], minlength=64)
        assert ((counts - 1024) ** 2 / 1024).sum() < 63 + 7 * (2 * 63) ** 0.5
        others = (columns[row] == columns[(row + 1) % 4]).mean()
        assert abs(others - 1 / 64) < 7 * (1 / 64 / (1 << 16)) ** 0.5


def test_words_without_a_column_are_refused() -> None:
    layer = Layer(4, 10, 1, 3, hashed=False)
    good, bad = np.array([0, 159], np.uint64), np.array([0, 160], np.uint64)
    times = np.array([1, 1])
    for kind in KINDS:
        cells = Cells(layer, kind, SEED)
        cells.update(good, times)
        before = state_of(cells)
        assert columns_of(good, layer, SEED).tolist() == [[0, 9]]
        assert minimum(cells.n, good, layer, SEED).tolist() == [1, 1]
        for action in (
            lambda: cells.update(bad, times),  # noqa: B023
            lambda: cells.update(np.tile(bad, 9_000), np.tile(times, 9_000)),  # noqa: B023
            lambda: cells.each(bad, times),  # noqa: B023
            lambda: columns_of(bad, layer, SEED),
            lambda: minimum(cells.n, bad, layer, SEED),  # noqa: B023
        ):
            with pytest.raises(ValueError, match="a word has column 10 of 10"):
                action()
        assert state_of(cells) == before


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_the_minimum_is_that_of_the_rows(dtype: type) -> None:
    rng = np.random.default_rng(13)
    for layer in (Layer(0, 30, 3, 5, True), Layer(0, 5, 16, 5, True), Layer(7, 40, 1, 5, False)):
        words = rng.integers(0, 40 << layer.shift, 1_300).astype(np.uint64)
        grid = rng.integers(-9, 1 << 50, (layer.depth, layer.width)).astype(dtype)
        columns = columns_of(words, layer, SEED)
        expected = np.take_along_axis(grid, columns.astype(np.intp), axis=1).min(axis=0)
        found = minimum(grid, words, layer, SEED)
        assert found.dtype == dtype
        assert found.tolist() == expected.tolist()


# -------------------------------------------------------------------------------------------- state


def test_cells_are_restored_from_what_they_keep() -> None:
    for rng, cells, stream in streams(80, seed=14):
        _, times, _ = cells.kept()
        again = Cells.restore(
            cells.layer, cells.kind, SEED, cells.n, times, cells.first, cells.clock
        )
        assert state_of(again) == state_of(cells)
        clock = int(stream[1][-1])
        more = stream_of(rng, "ties", "units")
        more = more[0], np.minimum(more[1] - more[1][0] + clock, 1 << 62), more[2]
        before = state_of(cells)
        copies = [again, cells.copy(), pickle.loads(pickle.dumps(cells))]
        for other in copies:
            feed(other, more, rng)
        assert state_of(cells) == before
        feed(cells, more, rng)
        assert {state_of(other) for other in copies} == {state_of(cells)}


def test_what_no_cells_keep_is_not_restored() -> None:
    for kind in KINDS:
        cells = Cells(Layer(0, 2, 2, 3, hashed=True), kind, SEED)
        cells.update(np.arange(300, dtype=np.uint64), np.arange(300) // 2)
        layer, n, times = cells.layer, cells.n, cells.kept()[1]
        risen, early, late = times.copy(), times.copy(), times.copy()
        risen[1] = risen[0] + 1
        early[-1], late[0] = -1, 150
        uneven = n.copy()
        uneven[0, 0] += 1
        for given, message in (
            ((n[:, :1], times, 0, 149), "n has shape"),
            ((n * -1, times, 0, 149), "a cell of -"),
            ((np.full((2, 2), LIMIT), times, 0, 149), "a cell of 4611686018427387904 ones"),
            ((np.full((2, 2), LIMIT // 2), times, 0, 149), "rows count"),
            ((uneven, times, 0, 149), "rows count from 300 to 301"),
            ((n, times[1:], 0, 149), "times; cells of these n keep"),
            ((n, np.append(times, 0), 0, 149), "times; cells of these n keep"),
            ((n, times, None, None), "300 ones from None to None"),
            ((n, times, 150, 149), "300 ones from 150 to 149"),
            ((n, risen, 0, 149), "times of a cell rise"),
            ((n, early, 0, 149), "times of a cell rise"),
            ((n, late, 0, 149), "times of a cell rise"),
        ):
            with pytest.raises(ValueError, match=message):
                Cells.restore(layer, kind, SEED, *given)


def test_cells_of_nothing() -> None:
    layer = Layer(0, 4, 2, 3, hashed=True)
    words, times = np.array([1, 2], np.uint64), np.array([5, 6])
    for kind in KINDS:
        cells = Cells(layer, kind, SEED)
        cells.update(words[:0], times[:0])
        assert (cells.first, cells.clock, cells.seen) == (None, None, 0)
        ends = (*cells.grid(3), cells.values(3), *cells.decayed(halving, 3), cells.n)
        assert all(end.shape == (2, 4) and not end.any() for end in ends)
        assert [end.tolist() for end in cells.each(words, times)] == [[0, 0], [0, 0]]
        again = Cells.restore(layer, kind, SEED, cells.n, cells.kept()[1], None, None)
        assert state_of(again) == state_of(cells) == state_of(compact([cells, again], 3))


@pytest.mark.parametrize("slots", [0, 1, 1 << 20])
def test_shapes_that_are_none_are_refused(slots: int) -> None:
    with pytest.raises(ValueError, match="slots"):
        Cells(ONE._replace(slots=slots), "wave", SEED)
    for layer in (Layer(0, 5, 17, 4, True), Layer(0, 0, 1, 4, True), Layer(65, 5, 1, 4, True),
                  Layer(0, 5, 2, 4, False), Layer(0, 1 << 32, 1, 4, True)):  # fmt: skip
        with pytest.raises(ValueError, match=r"rows|shift"):
            Cells(layer, "wave", SEED)


def test_kernels_refuse_columns_of_other_lengths() -> None:
    cells = Cells(Layer(0, 3, 2, 4, hashed=True), "wave", SEED)
    words, times = np.zeros(5, np.uint64), np.arange(5)
    cells.update(words, times)
    columns, counters, lists = cells._columns, cells._counters, cells._listed()
    six, five, four = np.zeros(6, np.int64), np.zeros(5, np.int64), np.zeros(4, np.int64)
    other = Cells(Layer(0, 4, 2, 4, hashed=True), "wave", SEED)
    more = np.zeros(7, np.int64)
    for action in (
        lambda: _native.update(columns, counters, words, times[:4], None, False),
        lambda: _native.update(columns, counters, words, times, times[:4], True),
        lambda: _native.update(other._columns, counters, words, times, None, True),
        lambda: _native.heaviest(columns, other._counters, words, None),
        lambda: _native.heaviest(columns, counters, words, times[:4]),
        lambda: _native.columns(columns, words, np.zeros((2, 4), np.uint32)),
        lambda: _native.columns(columns, words, np.zeros((3, 5), np.uint32)),
        lambda: _native.minimum(columns, np.zeros((3, 2)), words, np.zeros(5)),
        lambda: _native.minimum(columns, np.zeros((2, 3)), words, np.zeros(4)),
        lambda: _native.minimum_of_counts(columns, np.zeros((1, 3), np.int64), words, five),
        lambda: _native.grid(counters, 0, six, five),
        lambda: _native.values(counters, 0, 0, 0.1, np.zeros(5)),
        lambda: _native.kept(six, 4, False, five),
        lambda: _native.write(counters, five, five, more),
        lambda: _native.write(counters, *np.zeros((2, len(lists.ranks)), np.int64), six),
        lambda: _native.restore(counters, lists.times[1:], six, 0, 4),
        lambda: _native.restore(counters, lists.times, five, 0, 4),
        lambda: _native.each(columns, six, lists, words, times, 0, four, five),
        lambda: _native.each(columns, six, lists, words, times[:4], 0, five, five),
        lambda: _native.each(columns, five, lists, words, times, 0, five, five),
        lambda: _native.decayed(lists, np.zeros(2), 0, 0, 1.0, np.zeros(6), np.zeros(6)),
        lambda: _native.decayed(
            lists, np.zeros(len(lists.ranks)), 0, 0, 1.0, np.zeros(5), np.zeros(6)
        ),
        lambda: _native.compact(other._counters, [(cells._n, lists, 0, 8)], 0),
    ):
        with pytest.raises(ValueError, match=r"columns of \d+ and \d+ rows"):
            action()
    for offsets in ([0, 5, 3, 6], [1, 6], [0, 5], []):
        with pytest.raises(ValueError, match="offset"):
            _native.Lists(six, six, np.array(offsets, np.int64))
    narrow, wide = np.zeros((64, 6, 4), np.uint32), np.zeros((1, 6, 4), np.int64)
    for given in ((six, narrow, 0), (six, narrow[:1, :, :1], 0), (six, wide, 3), (five, wide, 0)):
        with pytest.raises(ValueError, match=r"levels|base|rows"):
            _native.Counters(*given, False)
    for bad in (0, -1):
        with pytest.raises(ValueError, match="inaccuracy"):
            _native.compact(counters, [(cells._n, lists, 0, bad)], 0)
    with pytest.raises(ValueError, match="-1 steps"):
        _native.compact(counters, [(cells._n, lists, 0, 8)], -1)


# ------------------------------------------------------------------------------------------ merging


def sites(rng: random.Random, number: int) -> tuple[list[Cells], list[Stream]]:
    layer = layer_of(rng)
    cells, given = [], []
    for _ in range(rng.choice([1, 2, 3, 7])):
        stream = stream_of(rng, TIMES[number % 5], rng.choice(WEIGHTS[:3]))
        each = Cells(
            layer._replace(slots=layer.slots + rng.choice([0, 2])), KINDS[number % 2], SEED
        )
        feed(each, stream, rng)
        cells.append(each)
        given.append(stream)
    if rng.random() < 0.3:
        cells.append(Cells(layer, KINDS[number % 2], SEED))
    return cells, given


def test_compacted_cells_are_those_of_the_reference() -> None:
    rng = random.Random(15)
    for number in range(120):
        cells, given = sites(rng, number)
        slots, steps = rng.choice([2, 4, 9]), rng.choice([0, 0, 1, 8])
        whole = compact(cells, slots, steps)
        firsts = [int(stream[1][0]) for stream in given]
        made = [plain(each, stream) for each, stream in zip(cells, given, strict=False)]
        expected = [
            reference.merged(parts, slots, firsts, steps).kept()
            for parts in zip(*made, strict=True)
        ]
        assert kept_of(whole) == expected
        assert whole.n.tolist() == sum(each.n for each in cells).tolist()
        assert whole.seen == sum(each.seen for each in cells)
        assert (whole.first, whole.clock) == (min(firsts), max(int(s[1][-1]) for s in given))


def test_huge_cells_are_compacted_exactly() -> None:
    rng = random.Random(16)
    for kind in KINDS:
        for steps in (0, 5):
            cells = [Cells(ONE, kind, SEED) for _ in range(3)]
            made: list[reference.Cell] = []
            for each in cells:
                times, weights = times_of(rng, "furthest", 200), weights_of(rng, "huge", 600)
                assert weights is not None
                stream = np.zeros(200, np.uint64), times, weights[:200]
                each.update(*stream)
                made += plain(each, stream)
            whole = compact(cells, 7, steps)
            assert kept_of(whole) == [reference.merged(made, 7, None, steps).kept()]


def test_the_order_of_what_is_compacted_does_not_matter() -> None:
    rng = random.Random(17)
    for number in range(60):
        cells, _ = sites(rng, number)
        before = [state_of(each) for each in cells]
        steps = rng.choice([0, 8])
        states = {state_of(compact(rng.sample(cells, len(cells)), 5, steps)) for _ in range(5)}
        assert len(states) == 1
        assert [state_of(each) for each in cells] == before


def test_compacted_counts_are_within_their_bound() -> None:
    rng, windows = random.Random(18), 0
    for number in range(40):
        cells, given = sites(rng, number)
        steps = rng.choice([0, 8])
        slots = min(each.layer.slots for each in cells)
        whole = compact(cells, slots, steps)
        allowed = (1 + REFERENCE[whole.kind](slots).merge_error) * (1 + error_of(whole)) - 1
        rows = [columns_of(stream[0], whole.layer, SEED) for stream in given]
        for start in starts_of(rng, np.sort(np.concatenate([stream[1] for stream in given]))):
            values = whole.values(start)
            for row in range(whole.layer.depth):
                truths = np.zeros(whole.layer.width, object)
                for stream, columns in zip(given, rows, strict=True):
                    inside = stream[1] >= start
                    for column, ones in zip(
                        columns[row][inside].tolist(),
                        np.array(ones_of(stream), object)[inside],
                        strict=True,
                    ):
                        truths[column] += ones
                for truth, value in zip(truths.tolist(), values[row].tolist(), strict=True):
                    assert abs(value - truth) <= float(allowed * truth) * (1 + 1e-12)
                    windows += 1
    assert windows > 7_000


def test_what_is_compacted_goes_on() -> None:
    for kind in KINDS:
        parts = []
        for start in (0, 1):
            part = Cells(Layer(0, 3, 2, 4, hashed=True), kind, SEED)
            part.update(np.arange(500, dtype=np.uint64), np.arange(500) * 2 + start)
            parts.append(part)
        whole = compact(parts, 4)
        whole.update(np.arange(9, dtype=np.uint64), np.full(9, 1_000))
        assert whole.seen == 1_009
        lo, hi = whole.grid(1_000)
        assert (lo[0].sum() <= 9 <= hi[0].sum(), hi.max() <= 9) == (True, True)
        again = compact([whole], 4)
        assert again.kept()[1].tolist() == whole.kept()[1].tolist()  # the same ranks of the same n


def test_cells_that_are_not_alike_are_not_compacted() -> None:
    layer = Layer(0, 3, 2, 4, hashed=True)
    one = Cells(layer, "wave", SEED)
    for other in (Cells(layer, "eh", SEED), Cells(layer, "wave", SEED + 1),
                  Cells(layer._replace(width=4), "wave", SEED)):  # fmt: skip
        with pytest.raises(ValueError, match="cells of"):
            compact([one, other], 4)
    with pytest.raises(ValueError, match="no cells"):
        compact([], 4)
    one.update(np.zeros(1, np.uint64), np.zeros(1, np.int64), np.array([LIMIT - 1]))
    with pytest.raises(ValueError, match="cells counted 9223372036854775806 together"):
        compact([one, one], 4)
