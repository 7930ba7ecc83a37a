"""Calls of the ECM-sketch's cells.

What they keep, and bounds that follow from it, are those of ``reference.py``, in plain integers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise, product
from typing import Any, NamedTuple, get_args

import numpy as np
from native.recording import (
    LAST,
    TIME_LIMIT,
    Call,
    Column,
    Int64Array,
    column,
    columns,
    room,
    words,
)

from decaysketch.core.codec.numbers import pack_numbers, read_numbers
from decaysketch.core.codec.reading import Reader
from decaysketch.ecm import ECMParams, ECMSketch, _native, hashing, wire
from decaysketch.ecm.cells import LIMIT
from decaysketch.ecm.levels import Layer
from decaysketch.ecm.reference import EH, Cell, Wave, merged
from decaysketch.ecm.sizing import Kind, cell_error
from decaysketch.ecm.state import LaneColumns
from decaysketch.errors import CorruptSketchError

KINDS: tuple[Kind, ...] = get_args(Kind)
CELLS: dict[Kind, type[Cell]] = {"wave": Wave, "eh": EH}
LEVELS = 63  # for any number of ones
NARROW = (1 << 32) - 2  # the longest span of times of 32 bits
SEED = 7

PREFIXES = Layer(60, 16, 1, 2, False)  # a cell for each prefix of four bits

FLOATS = [0.0, -0.0, 5e-324, -0.1, 1e308, float("inf"), 2.0**60]


class Stream(NamedTuple):
    """Events in order of time."""

    words: Any  # uint64
    times: list[int]
    weights: list[int]

    @property
    def ones(self) -> list[int]:
        return self.weights or [1] * len(self.times)


def stream_of(
    rng: random.Random, n: int, span: int, weight: int, layer: Layer | None = None
) -> Stream:
    """Times from end to end of a span, with ties; weights are often the ends of their range."""
    first = {TIME_LIMIT: -TIME_LIMIT, NARROW: 1 << 33}.get(span, -5)
    last = TIME_LIMIT if span == TIME_LIMIT else first + span
    times = [first, last, *(rng.randint(first, last) for _ in range(n // 4))]
    times = sorted((times + rng.choices(times, k=n))[:n])
    weights = [rng.choice([1, weight, rng.randint(1, weight)]) for _ in range(n)]
    shift = 60 if layer == PREFIXES else 0
    keys = unsigned(rng.randrange(9) << shift for _ in range(n))
    return Stream(keys, times, weights if weight > 1 else [])


def unsigned(numbers: Iterable[int]) -> Any:
    return np.array([number % (1 << 64) for number in numbers], np.uint64)


def layer_of(layer: Layer) -> list[Column]:
    """As the adapters read it."""
    return [[layer.width, layer.shift, layer.hashed], *hashing.rows_of(layer, SEED)]


def fields(kind: Kind, slots: int, first: int, last: int) -> list[int]:
    """Cells of times from a first to a last one, as the adapters read them."""
    wide = last - first > NARROW
    return [slots, 0 if wide else first - 1, wide, kind == "eh"]


def cells_of(layer: Layer, kind: Kind) -> list[Cell]:
    return [CELLS[kind](layer.slots) for _ in range(layer.cells)]


def count(cells: Sequence[Cell], layer: Layer, of: Stream, part: slice = slice(None)) -> None:
    rows = hashing.columns_of(of.words[part], layer, SEED).tolist()
    for row, places in enumerate(rows):
        for place, *event in zip(places, of.times[part], of.ones[part], strict=True):
            cells[row * layer.width + place].add(*event)


def counted(layer: Layer, kind: Kind, of: Stream) -> list[Cell]:
    cells = cells_of(layer, kind)
    count(cells, layer, of)
    return cells


def lists_of(cells: Iterable[Cell]) -> list[Column]:
    """Offsets, ranks, times."""
    kept = [cell.kept() for cell in cells]
    return [list(accumulate(map(len, kept), initial=0)), *columns(chain(*kept), 2)]


def n_of(cells: Iterable[Cell]) -> list[int]:
    return [cell.n for cell in cells]


# ----------------------------------------------------------------------------------------- columns


def grids(rng: random.Random) -> Iterator[Call]:
    some = words(rng, 17)
    for layer, keys in (
        (Layer(0, 5, 3, 2, True), some), (Layer(40, 65_535, 2, 2, True), some),
        (Layer(64, 1, 1, 2, False), some), (PREFIXES, some),
        (Layer(3, 2, 16, 2, True), some[:5]), (Layer(0, 7, 2, 2, True), [0] * 511 + [1, 2, 3]),
    ):  # fmt: skip
        found = hashing.columns_of(unsigned(keys), layer, SEED)
        given = [*layer_of(layer), keys]
        yield Call("columns", given, [[int(max(unsigned(keys))) >> layer.shift], found])
        if layer.cells < 100:
            shape = layer.depth, layer.width
            counts = column(rng.randrange(-9, 1 << 50) for _ in range(layer.cells))
            floats = np.array([rng.choice(FLOATS) for _ in range(layer.cells)])
            least = [
                hashing.minimum(grid.reshape(shape), unsigned(keys), layer, SEED)
                for grid in (counts, floats)
            ]
            yield Call("minimum", [*given, counts, floats], least)


# ----------------------------------------------------------------------------------------- updates


def totals() -> Iterator[Call]:
    for weights in (
        [0], [1, 2, 3], [LIMIT - 1], [LIMIT - 1, 0], [LIMIT - 1, 1], [LAST], [1, LAST],
        [LIMIT // 2] * 2, [LIMIT // 3] * 3, [LIMIT // 2 - 1] * 2,
    ):  # fmt: skip
        yield Call("total", [weights], [[min(sum(weights), LIMIT)]])


def updates(rng: random.Random) -> Iterator[Call]:
    one, one_of_two = Layer(64, 1, 1, 5, False), Layer(63, 2, 1, 2, False)
    for layer, n, span, weight, *ways in (
        (one, 30, NARROW, 1, [1, 0, 1]), (one, 20, TIME_LIMIT, 900, [0, 1, 1, 0]),
        (one_of_two, 7, 2, LIMIT // 7, [1, 0, 1]),
        (PREFIXES, 41, 2, 1, [0, 1, 0, 1]), (PREFIXES, 10, 2, 90, [1, 0]),
        (Layer(0, 2, 2, 3, True), 40, NARROW, 1, [0, 0, 1, 1]),
        (Layer(0, 2, 2, 3, True), 9, TIME_LIMIT, 9, [1, 0, 1]),
        (Layer(0, 2, 2, 2, True), 12, TIME_LIMIT, 1, [0, 1]),
        (Layer(0, 3, 3, 2, True), 516, 2, 1, [0], [1]),
        (Layer(0, 2, 2, 2, True), 516, 2, 9, [0], [1]),
        (Layer(0, 2, 4, 2, True), 30, 2, 1, [1, 0, 1, 0, 0]),
        (Layer(3, 1, 16, 2, True), 9, 2, 1, [0, 1, 0]),
    ):  # fmt: skip
        of = stream_of(rng, n, span, weight, layer)
        for kind, batches in product(KINDS, ways):
            cells, heaviest = cells_of(layer, kind), []
            for start, stop in pairwise(n * k // len(batches) for k in range(len(batches) + 1)):
                count(cells, layer, of, slice(start, stop))
                heaviest.append(max(n_of(cells)))
            shape = fields(kind, layer.slots, of.times[0], of.times[-1])
            given = [*layer_of(layer), *of, shape, batches]
            yield Call("update", given, [heaviest, n_of(cells), *lists_of(cells)])


# ----------------------------------------------------------------------------------------- windows


def kept(rng: random.Random) -> Iterator[Call]:
    n = [0, 1, 2, 3, 4, 7, 8, 63, 64, 65, 1 << 20, (1 << 40) - 1, LIMIT // 2, LIMIT - 1]
    n += [rng.randrange(1 << bits) for bits in range(5, 62, 8)]
    for slots in (2, 3, 64):
        for kind in KINDS:
            counts = [len(CELLS[kind].ranks(each, slots)) for each in n]
            yield Call("kept", [n, [slots, kind == "eh"]], [counts])


def windows(rng: random.Random) -> Iterator[Call]:
    for layer, n, span, weight in (
        (Layer(0, 3, 1, 2, True), 30, 6, 1), (Layer(0, 3, 1, 3, True), 20, NARROW, 9),
        (Layer(0, 2, 1, 2, True), 15, TIME_LIMIT, 1), (Layer(64, 1, 1, 5, False), 30, 9, 900),
        (Layer(64, 1, 1, 2, False), 9, 9, LIMIT // 12),
    ):  # fmt: skip
        of = stream_of(rng, n, span, weight)
        first, last = of.times[0], of.times[-1]
        near = [rng.choice(of.times) + off for off in (-1, 0, 0, 1)]
        starts = [first + 1, *near, rng.randint(first, last), last]
        for kind in KINDS:
            cells = counted(layer, kind, of)
            shape = fields(kind, layer.slots, first, last)
            given = [shape, n_of(cells), lists_of(cells)[2], [first, last]]
            if weight < 1_000:  # or lists are long
                yield Call("restore", given, [[1], *lists_of(cells)])
            yield grid(cells, given, starts, cell_error(kind, layer.slots))


def restored(
    shape: list[int], n: list[int], times: Int64Array, ends: list[int]
) -> tuple[_native.Counters, bool]:
    """Cells that keep these times, and whether they are in order."""
    slots, base, wide, histogram = shape
    stored = np.zeros((LEVELS, len(n), slots), np.int64 if wide else np.uint32)
    counters = _native.Counters(column(n), stored, base, bool(histogram))
    return counters, _native.restore(counters, times, room(len(n)), *ends)


def grid(cells: Sequence[Cell], given: list[Any], starts: list[int], error: float) -> Call:
    """Bounds are the reference's; values, which are rounded, those of the layer."""
    counters, good = restored(*given)
    first = given[3][0]
    assert good
    values = np.zeros((len(starts), len(cells)))
    for start, out in zip(starts, values, strict=True):
        _native.values(counters, start, first, error, out)
    bounds = [cell.lo_hi(start) for start in starts for cell in cells]
    return Call("grid", [*given, starts, [error]], [*columns(bounds, 2), values])


def refused() -> Iterator[Call]:
    """Times that are out of order in a cell, and before the first one, and after the last one."""
    for kind in KINDS:
        cells = [CELLS[kind](2) for _ in range(3)]
        for time in (1, 4, 4, 6):
            cells[0].add(time)
            cells[2].add(time + 1, 2)
        offsets, _, times = lists_of(cells)
        for place, time in (
            (0, 8), (1, 7), (offsets[1] - 1, 0), (offsets[1], 8), (offsets[1] + 1, 9), (-1, 0),
            (0, LAST), (-1, -TIME_LIMIT),
        ):  # fmt: skip
            faulty = times.copy()
            faulty[place] = time
            given = [fields(kind, 2, 1, 7), n_of(cells), faulty, [1, 7]]
            assert not restored(*given)[1]
            yield Call("restore", given, [[0]])


def questions(rng: random.Random) -> Iterator[Call]:
    """Of lists: of each word in a window of its own, and of decayed counts."""
    wave, eh = KINDS
    for kind, layer, n, span, weight, asked in (
        (wave, Layer(0, 3, 2, 2, True), 30, 9, 1, 9), (eh, PREFIXES, 14, NARROW, 9, 9),
        (eh, Layer(64, 1, 1, 2, False), 12, 1, LIMIT // 12, 3),
        (eh, Layer(0, 2, 4, 3, True), 7, TIME_LIMIT, 1, 7),
        (wave, Layer(0, 2, 1, 2, True), 9, 3, 2, 514),
    ):  # fmt: skip
        of = stream_of(rng, n, span, weight, layer)
        first, last = of.times[0], of.times[-1]
        keys = unsigned(rng.choices(of.words.tolist(), k=asked))
        starts = [rng.choice([rng.choice(of.times), rng.randint(first, last)]) for _ in keys]
        if asked > 512:
            keys, starts = np.sort(keys), sorted(starts)
        places = hashing.columns_of(keys, layer, SEED)
        cells = counted(layer, kind, of)
        lists, bounds = lists_of(cells), []
        for *own_places, start in zip(*places.tolist(), starts, strict=True):
            own = [cells[row * layer.width + place] for row, place in enumerate(own_places)]
            lo = min(cell.n if start <= first else cell.lo_hi(start)[0] for cell in own)
            bounds.append((lo, min(cell.lo_hi(start)[1] for cell in own)))
        given = [*lists, n_of(cells), *layer_of(layer), keys, starts, [first]]
        yield Call("each", given, columns(bounds, 2))
        for now in (last + 1, of.times[n // 2]):
            yield decayed(lists, now, first)


def decayed(lists: list[Any], now: int, first: int) -> Call:
    offsets, ranks, times = lists
    weights = np.array([2.0 ** -min(60, max(0, now - time)) for time in times.tolist()])
    oldest = 1e-30
    lo, hi = np.zeros((2, len(offsets) - 1))
    held = _native.Lists(ranks, times, column(offsets))
    _native.decayed(held, weights, now, first, oldest, lo, hi)
    return Call("decayed", [*lists, weights, [now, first], [oldest]], [lo, hi])


# ----------------------------------------------------------------------------------------- merging


def compactions(rng: random.Random) -> Iterator[Call]:
    for width, slots, span, events, steps_of in (
        (1, (2,), 99, [(60, 1)], (0, 1, 8)), (2, (5, 2), NARROW, [(9, 9), (12, 2)], (0, 8)),
        (1, (2, 3, 2), 4, [(9, 900), (7, 1), (5, 3)], (0, 8)),
        (1, (4, 2), TIME_LIMIT, [(9, 20), (1, 1)], (0, 8)),
        (1, (2, 2), 9, [(9, LIMIT // 10), (3, 2)], (8,)),
        (5, (2, 3), 4, [(3, 2), (2, 2)], (1, 8)),
    ):  # fmt: skip
        streams = [stream_of(rng, n, span, weight) for n, weight in events]
        firsts = [of.times[0] for of in streams]
        last = max(of.times[-1] for of in streams)
        for kind in KINDS:
            sources = [
                counted(Layer(0, width, 1, each, True), kind, of)
                for each, of in zip(slots, streams, strict=True)
            ]
            inaccuracies = [int(1 / cells[0].merge_error) for cells in sources]
            into = 2 if sources[0][0].n > 1_000 else 9  # or lists are long
            for steps in steps_of:
                given: list[Column] = [fields(kind, into, min(firsts), last), [steps]]
                given += [firsts, inaccuracies]
                for cells in sources:
                    given += [n_of(cells), *lists_of(cells)]
                parts = zip(*sources, strict=True)
                whole = [merged(part, into, firsts, steps) for part in parts]
                yield Call("compact", given, lists_of(whole))


def packed(rng: random.Random) -> Iterator[Call]:
    """Columns of numbers, some of them damaged; read by the reader in Python."""
    for count in (0, 1, 7, 8, 9, 30):
        for bits in (0, 1, 13, 63, 64):
            numbers = [rng.randrange(1 << bits) for _ in range(count)]
            body = bytearray(pack_numbers(np.array(numbers, np.uint64)) + bytes(2))
            yield _packed(bytes(body), count)
            if count:
                body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
                yield _packed(bytes(body), count)
                yield _packed(bytes(body[: rng.randrange(len(body))]), count)


def _packed(body: bytes, count: int) -> Call:
    reader = Reader(memoryview(body), 0)
    try:
        numbers = read_numbers(reader, count, "numbers")
    except CorruptSketchError:
        return Call("column", [_bytes(body), [count]], [[-1]])
    again = _bytes(pack_numbers(numbers))
    return Call("column", [_bytes(body), [count]], [[reader.at], numbers, again])


def _bytes(body: bytes) -> list[int]:
    return np.frombuffer(body, np.int8).tolist()


def lanes(rng: random.Random) -> Iterator[Call]:
    """Lanes on the wire, and damaged ones; read with care, in NumPy."""
    small = ECMParams(width=3, depth=2, slots=2, seed=SEED)
    for params in (
        small, replace(small, kind="eh", slots=3), replace(small, horizon=40, width=2),
        replace(small, horizon=0, kind="eh"), replace(small, key_bits=5, fanout_bits=2),
        replace(small, clock="arrivals"),
    ):  # fmt: skip
        for weight in (1, 1 << 40):
            sketch = ECMSketch(params, source=0, epoch=0)
            keys = [rng.randrange(32) for _ in range(60)]
            times = sorted(rng.randrange(200) for _ in keys)
            if params.clock == "arrivals":
                sketch.update(keys)
            else:
                sketch.update(keys, times, [rng.choice([1, weight]) for _ in keys])
            state = sketch.state()
            (lane,) = (each.columns for each in state.lanes)
            edge = None if params.horizon is None else lane.clock - params.horizon
            body = bytearray()
            wire._put_lane(body, params, lane, lane.clock, edge)
            reader = Reader(memoryview(bytes(body)), 0)
            reader.varint("clock")
            reader.varint("first")
            sound = bytes(body[reader.at :])
            assert _lane(params, sound, lane.first, lane.clock, edge).results[0] == [1]
            yield _lane(params, sound, lane.first, lane.clock, edge)
            yield _lane(params, sound, lane.first + 1, lane.clock, edge)
            yield _lane(params, sound[:-1], lane.first, lane.clock, edge)
            for _ in range(5):
                damaged = bytearray(sound)
                damaged[rng.randrange(len(sound))] ^= 1 << rng.randrange(8)
                yield _lane(params, bytes(damaged), lane.first, lane.clock, edge)


def _lane(params: ECMParams, body: bytes, first: int, clock: int, edge: int | None) -> Call:
    layers, most = params.layers, 10_000
    kinds = [params.kind == "eh", edge is not None, params.clock == "arrivals"]
    inputs: list[Column] = [
        [layer.width for layer in layers], [layer.depth for layer in layers],
        [layer.slots for layer in layers], list(map(int, kinds)), [most], [first, clock, edge or 0],
        _bytes(body),
    ]  # fmt: skip
    reader = Reader(memoryview(body), 0)
    try:
        found = wire._read_layers(reader, params, most, first, clock, edge)
    except CorruptSketchError:
        return Call("lane", inputs, [[0]])
    numbers = LaneColumns.of(first, clock, found).numbers
    memory = sum(
        8 * each.n.size * layer.slots * int(each.n.max()).bit_length()
        for layer, each in zip(layers, found, strict=True)
    )
    times = sum(len(each.times) for each in found)
    return Call("lane", inputs, [[1], [reader.at, times, memory], numbers])


def calls() -> Iterator[Call]:
    rng = random.Random(9)
    yield from grids(rng)
    yield from totals()
    yield from updates(rng)
    yield from kept(rng)
    yield from windows(rng)
    yield from refused()
    yield from questions(rng)
    yield from compactions(rng)
    yield from packed(rng)
    yield from lanes(rng)
