"""Calls of what several sources share: rows by message, and overlaps of pairs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from native.recording import FIRST, LAST, NO_WATERMARK, Call, column

from decaysketch.sources import _native

SALTS = (3, 5)  # which no result depends on


def rows(rng: random.Random, n: int, max_weight: int) -> list[Any]:
    """Columns of a source: each message once, latest first."""
    names = rng.sample(range(-n, 2 * n + 1), n)
    times = sorted((rng.randint(0, 40) for _ in range(n)), reverse=True)
    ids = [rng.choice([name, name * (1 << 40)]) for name in names]
    return [
        column(ids),
        column(rng.randint(1, max_weight) for _ in range(n)),
        column(times),
        column(rng.choice([FIRST, LAST, 0, 1]) for _ in range(n)),
        np.array([rng.randint(0, 3) for _ in range(n)], np.int8),
    ]


def matches(rng: random.Random) -> Iterator[Call]:
    for sizes, max_weight in (([], 1), ([0, 0], 1), ([20, 30], 1), ([400, 0, 300, 350], 2)):
        sources = [rows(rng, n, max_weight) for n in sizes]
        heard = _native.Heard(sources)
        columns, groups, scattered = _native.match(heard, SALTS[0], max_weight, True)
        again, same, _ = _native.match(heard, SALTS[1], max_weight, True)
        columns, again = (
            [np.ones(len(each[0]), np.int64) if k is None else k for k in each]
            for each in (columns, again)
        )
        many = _native.match(heard, SALTS[0], max_weight, False)
        assert scattered == many[2]
        for place in (0, 2, 4):  # ids, times, degrees
            assert columns[place][groups].tolist() == many[0][place][many[1]].tolist()
        assert all((a == b).all() for a, b in zip(columns, again, strict=True))
        assert (groups == same).all()
        assert (np.diff(columns[2]) <= 0).all()
        places = np.searchsorted(np.cumsum(sizes), np.arange(len(groups)), side="right")
        heard_by = np.zeros(len(columns[0]), np.uint64)
        np.bitwise_or.at(heard_by, groups, np.left_shift(1, places).astype(np.uint64))
        assert (columns[5] == heard_by).all()
        columns[5] = columns[5].view(np.int64)
        joined = [
            np.concatenate([source[place] for source in sources]) if sources else column([])
            for place in range(5)
        ]
        lags, earliest = _native.lags(heard, columns[2], groups)
        assert scattered == bool(lags.any())
        values = _native.values(heard, columns[2], groups)
        found = [*columns, groups, lags, earliest, values, many[1]]
        yield Call("match", [sizes, *joined, [max_weight]], found)


def orders(rng: random.Random) -> Iterator[Call]:
    for n, span in ((0, 9), (20, 9), (300, 40), (300, 1 << 20), (300, 1 << 50), (300, -40)):
        times = column(rng.choice([-1, 1]) * rng.randint(0, abs(span)) for _ in range(n))
        if span < 0:  # in order already
            times = np.sort(times)[::-1].copy()
        levels = np.array([rng.randint(0, 2) for _ in range(n)], np.int8)
        marks = column([span // 2, -span // 2, NO_WATERMARK])
        found = _native.latest_first(times, levels, marks)
        known = [row for row in range(n) if times[row] > marks[levels[row]]]
        assert found.tolist() == sorted(known, key=lambda row: -int(times[row]))
        yield Call("latest_first", [times, levels, marks], [found])


def misses(rng: random.Random) -> Iterator[Call]:
    for messages, count in ((1, 1), (12, 3), (200, 4)):
        many = [rng.choice((1, 1, rng.randint(1, count))) for _ in range(messages)]
        heard = [sorted(rng.sample(range(count), each)) for each in many]
        by = [[row for row in range(messages) if source in heard[row]] for source in range(count)]
        groups = np.array([row for rows in by for row in rows], np.int32)
        offsets = column(np.cumsum([0, *map(len, by)]))
        degrees = np.array([len(each) for each in heard], np.int32)
        rows = sorted(rng.sample(range(messages), max(messages - 2, 1)))
        found = _native.misses(groups, offsets, degrees, column(rows))
        assert found.tolist() == list(map(list, zip(*_missed(heard, rows, count), strict=True)))
        yield Call("misses", [groups, offsets, degrees, column(rows)], list(found))


def _missed(heard: list[list[int]], rows: list[int], count: int) -> Iterator[tuple[int, ...]]:
    """Rows shared with another source, rows alone, and the longest run missed, by source."""
    for source in range(count):
        alone = [heard[row] == [source] for row in rows]
        text = "".join("x" if source in heard[row] else "-" for row in rows)
        yield text.count("x") - sum(alone), sum(alone), max(map(len, text.split("x")))


def overlaps(rng: random.Random) -> Iterator[Call]:
    for messages, count, bits in ((0, 2, 0), (9, 3, 0), (60, 4, 0), (60, 4, 6)):
        degrees = [rng.randint(1, count) for _ in range(messages)]
        start = column(np.cumsum([0, *degrees]))
        sources = np.array(
            [each for k in degrees for each in sorted(rng.sample(range(count), k))], np.int32
        )
        n = len(sources)
        times = column(rng.randint(0, 30) for _ in range(n))
        marks = column([[rng.randint(10, 30), rng.randint(0, 9), NO_WATERMARK]] * count)
        bands = np.array(
            [int(np.argmax(marks[s] < t)) for s, t in zip(sources, times, strict=True)], np.int8
        )
        levels = np.array([rng.randint(0, 2) for _ in range(messages)], np.int8)
        decayed = np.array([rng.choice([0.0, 0.25, 1 / 3]) for _ in range(messages)])
        each = np.array([rng.choice([0.0, 0.5, 1 / 7]) for _ in range(n)])
        units = np.array([1.0, 2.1, 4.3])
        found = []
        for scattered in (False, True):
            slots = 1 << bits if bits else count * count
            cells, keys = np.zeros((slots, _native.AMOUNTS)), np.zeros(slots, np.uint64)
            more = (cells, keys, bits, count, SALTS[0])
            if scattered:
                _native.scattered_overlaps(
                    start, sources, times, bands, each, levels, units, marks, *more
                )
            else:
                _native.overlaps(start, sources, bands, decayed, levels, units, *more)
            square = np.zeros((count * count, _native.AMOUNTS))
            met = np.flatnonzero(keys) if bits else np.arange(slots)
            square[keys[met].astype(np.int64) - 1 if bits else met] = cells[met]
            found.append(square)
        inputs = [start, sources, times, bands, levels, decayed, each, units]
        more = [[3, *marks.ravel().tolist()], [count, bits]]
        yield Call("overlaps", [*inputs, *more], found)


def squares(rng: random.Random) -> Iterator[Call]:
    """As by incidences, of duplicates that all have the latest time."""
    for messages, count in ((0, 2), (1, 1), (60, 4), (90, 64)):
        latest = np.sort(column(rng.randint(0, 30) for _ in range(messages)))[::-1].copy()
        heard = [sorted(rng.sample(range(count), rng.randint(1, count))) for _ in latest]
        marks = column([[rng.randint(10, 30), rng.randint(0, 9), rng.choice([NO_WATERMARK, -1])]
                        for _ in range(count)])  # fmt: skip
        histories = np.array([sum(1 << each for each in part) for part in heard], np.uint64)
        levels = np.array([rng.randint(0, 2) for _ in latest], np.int8)
        decayed = np.array([rng.choice([0.0, 0.25, 1 / 3]) for _ in latest])
        units = np.array([1.0, 2.1, 4.3])
        cells, expected = np.zeros((2, count * count, _native.AMOUNTS))
        _native.square(latest, levels, histories, decayed, units, marks, cells)
        start = column(np.cumsum([0, *map(len, heard)]))
        by = np.array([each for part in heard for each in part], np.int32)
        bands = (marks[by] >= np.repeat(latest, np.diff(start))[:, np.newaxis]).sum(axis=1)
        keys = np.zeros(len(cells), np.uint64)
        _native.overlaps(
            start, by, bands.astype(np.int8), decayed, levels, units, expected, keys, 0, count, 3
        )
        np.testing.assert_allclose(cells, expected, rtol=1e-12)
        inputs = [latest, levels, histories.view(np.int64), decayed, units]
        yield Call("square", [*inputs, [3, *marks.ravel().tolist()]], [cells])


def calls() -> Iterator[Call]:
    rng = random.Random(36)
    yield from matches(rng)
    yield from overlaps(rng)
    yield from squares(rng)
    yield from orders(rng)
    yield from misses(rng)
