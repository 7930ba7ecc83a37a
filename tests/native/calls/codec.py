"""Calls of the codec: rows as bit-packed columns, and back.

What rows are packed into is what ``wire/reference.py`` writes. Bytes that are cut short, changed or
made up are read by the kernels as they stand behind their layer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from native.recording import FIRST, LAST, TIME_LIMIT, Call, columns, room
from wire import reference
from wire.reference import MISSING, Bits, Plan

from decaysketch.core.codec import _native

LARGEST, SMALLEST, LEAST_FLOAT = 1.7976931348623157e308, 5e-324, -1.7976931348623157e308
INFINITE = float("inf")
LOWEST_ID = 1 << 20

Columns = Sequence[Sequence[int]]  # times, ids, weights, value keys
Draw = Callable[[], Any]


def floats(*numbers: float) -> list[int]:
    return [reference.key_of(number) for number in numbers]


def rows(rng: random.Random, n: int, time: Draw, id_: Draw, weight: Draw, value: Draw) -> Columns:
    """Columns in canonical order, no (id, weight) twice."""
    drawn = {(id_(), weight()): time() for _ in range(2 * n)}
    order = sorted(((at, *who) for who, at in drawn.items()), reverse=True)[:n]
    times, ids, weights = (list(numbers) for numbers in zip(*order, strict=True))
    return times, ids, weights, [value() for _ in order]


def cases(rng: random.Random) -> Iterator[tuple[Columns, bool]]:
    """Rows, and whether their values are floats."""

    def gap() -> int:
        return -rng.choice([0, 1, 1, 2, rng.randrange(1 << rng.choice([3, 3, 20]))])

    def small(most: int) -> Draw:
        return lambda: rng.randrange(1, most)

    def among(numbers: Sequence[int]) -> Draw:
        return lambda: rng.choice(numbers)

    edges = floats(0.0, LARGEST, LEAST_FLOAT, SMALLEST, -SMALLEST, 0.1, 2.0**53)
    tenths = floats(*(k / 10 for k in range(-20, 90)))
    yield ([], [], [], []), True
    for value in [MISSING, *edges]:
        yield ([rng.choice([-TIME_LIMIT, TIME_LIMIT])], [(1 << 56) - 1], [1], [value]), True
    for value in (MISSING, FIRST + 1, LAST, 0):
        yield ([0], [0], [1 << 31], [value]), False
    yield rows(rng, 2, lambda: 5, small(9), small(9), among([3])), False  # a tie
    yield rows(rng, 9, among([TIME_LIMIT, -TIME_LIMIT]), small(99), small(3), among(edges)), True
    yield rows(rng, 12, gap, small(1 << 56), small(1 << 5), among(floats(3.141592653589793))), True
    yield rows(rng, 19, gap, small(1 << 12), small(3), among(tenths)), True
    yield rows(rng, 21, gap, small(1 << 12), small(3), among([*tenths, MISSING])), True
    yield rows(rng, 9, gap, small(1 << 60), small(2), among([FIRST + 1, LAST, MISSING])), False
    yield rows(rng, 20, gap, small(1 << 9), small(3), among([MISSING])), True
    for n in (64, 65, 256):
        ids = iter(range(n, 3 * n))  # neighbours: by steps
        yield rows(rng, n, lambda: 7, partial(next, ids), small(3), small(9)), False
    yield rows(rng, 260, gap, small(1 << 10), small(9), among([0, 0, 0, 0, MISSING, 70])), False
    minutes = [60_000 * (600 - 3 * k - k % 3) for k in range(180)]
    yield (minutes, list(range(180)), [1] * 180, [MISSING] * 180), False


def reading(body: bytes, n: int, first_time: int, is_float: bool) -> Iterator[Call]:
    """Calls that take bytes apart, whatever they are."""
    outcome, bits = _native.scan_rows(body, 0, len(body), n, is_float)
    results: list[Any] = [[*outcome, bits]]
    given = [body, [n, first_time, is_float]]
    if outcome[0] == _native.OK:
        results += [room(n) for _ in range(4)]
        _native.unpack_rows(body, 0, len(body), first_time, is_float, *results[1:])
    yield Call("unpack", given, results)
    id_bits, max_weight, to = 56, 32, [room(n) for _ in range(4)]
    end = _native.read_rows(body, 0, len(body), first_time, id_bits, max_weight, is_float, *to)
    yield Call("read", [*given, [id_bits, max_weight]], [[end], *(to if end >= 0 else [])])


def one_block(
    times: Plan | None = None, ids: Plan | None = None, base: tuple[int, int] = (2, 2),
    framed: Sequence[int] | None = (0, 7, 1, 6, 2, 5),
) -> bytes:  # fmt: skip
    """Six rows with a plan, a base of some length, or a mode that need not be the stated one."""
    bits = Bits()
    reference.put_column(bits, [0, 1, 1, 9, 1, 1], times)
    bits.put(int(framed is None), 1)
    if framed is None:
        by_steps = [2 * LOWEST_ID - 1, 13, 12, 9, 8, 5]  # of the same ids
        reference.put_column(bits, by_steps, ids)
    else:
        bits.put_base(LOWEST_ID)
        reference.put_column(bits, framed, ids)
    length, word = base
    bits.put(length, 7)
    bits.put(word, length)
    reference.put_column(bits, [0, 0, 0, 1, 0, 0])
    reference.put_values(bits, [5, 6, MISSING, 7, 8, 9], False)
    return bits.to_bytes()


def made_up() -> Iterator[bytes]:
    yield one_block()
    yield one_block(framed=None)
    yield one_block(framed=[5, 4, 3, 2, 1, 0])  # shorter by steps
    yield one_block(framed=[1, 7, 2, 6, 3, 5])  # all above the base
    for width, extra, exceptions in (
        (4, 0, []),  # wider than is best
        (1, 3, [(3, 4), (3, 4)]),  # an exception twice
        (1, 3, [(4, 1), (3, 4)]),  # out of order
        (1, 3, [(7, 4)]),  # behind the last row
        (1, 4, [(3, 4)]),  # with a bit to spare
        (1, 3, [(3, 4), (4, 0), (5, 0)]),  # a bitmap, of rows that are none
        (1, 3, [(3, 4)] * 4),  # a bitmap of fewer than are counted
        (1, 63, [(3, 4)]),
        (63, 1, [(3, 1)]),
        (64, 0, []),
        (64, 1, [(0, 1)]),  # too wide
        (127, 0, []),
    ):
        yield one_block(times=Plan(width, extra, exceptions, 0))
        yield one_block(ids=Plan(width, extra, exceptions, 0))
    for base in ((3, 2), (64, LAST), (64, (1 << 64) - 1), (0, 0), (65, 2)):
        yield one_block(base=base)


def divided(divisor: int, length: int, largest: int) -> bytes:
    """Two rows whose times have a divisor."""
    bits = Bits()
    bits.put(64 + length, 7)
    bits.put(divisor, length)
    reference.put_column(bits, [0, largest])
    bits.put(0, 1)
    reference.put_frame(bits, [2, 1])
    reference.put_frame(bits, [1, 1])
    bits.put(2, 2)
    return bits.to_bytes()


def hostile(rng: random.Random) -> Iterator[Call]:
    for body in made_up():
        yield from reading(body, 6, 100, False)
    for divisor, length, largest in [(0, 2, 1), (6, 3, 7), (6, 4, 7), (LAST, 63, 7), (1, 1, 7)]:
        yield from reading(divided(divisor, length, largest), 2, 100, False)
    for number in (-0.0, INFINITE, -INFINITE):  # no value of a sketch
        key = -1 if number == 0 else reference.key_of(number)
        other = reference.key_of(3.141592653589793)
        body = reference.rows_to_bytes([(9, 1, 1, key), (8, 1, 2, other)], True)
        yield from reading(body, 2, 9, True)
    seven = rows(
        rng, 7, lambda: rng.choice([3, 4, 90]), lambda: rng.randrange(900), lambda: 2,
        lambda: rng.choice([*floats(0.5, 12.0), MISSING]),
    )  # fmt: skip
    body = reference.rows_to_bytes(list(zip(*seven, strict=True)), True)
    for n in (0, 6, 8, 257, 10_000):
        yield from reading(body, n, 90, True)
    for size in (0, 1, 4, len(body) - 9, len(body) - 1):
        yield from reading(body[:size], 7, 90, True)
    for bit in range(0, 8 * len(body), 9):
        changed = bytearray(body)
        changed[bit >> 3] ^= 1 << (bit & 7)
        yield from reading(bytes(changed), 7, 90, True)
    for _ in range(12):
        yield from reading(rng.randbytes(40), rng.choice([2, 3]), 0, rng.random() < 0.5)


def calls() -> Iterator[Call]:
    rng = random.Random(4)
    for packed, is_float in cases(rng):
        body = reference.rows_to_bytes(list(zip(*packed, strict=True)), is_float)
        yield Call("pack", [*packed, [is_float]], [body])
        yield from reading(body, len(packed[0]), (*packed[0], 0)[0], is_float)
    yield from hostile(rng)
    orders: list[list[tuple[int, int, int]]] = [
        [], [(1, 1, 1)], [(2, 1, 1), (2, 1, 1)], [(1, 5, 1), (2, 1, 1)], [(9, 0, 0), (9, 0, 0)],
        [(9, 2, 2), (9, 2, 1), (9, 1, 7), (8, 3, 3), (8, 3, 4)], [(LAST, 0, 0), (FIRST, 0, 0)],
        [(0, FIRST, 0), (0, LAST, 0)],
    ]  # fmt: skip
    for order in orders:
        given = columns(order, 3)
        yield Call("first_out_of_order", given, [[_native.first_out_of_order(*given)]])
