"""Calls of kernels with what they give, as the text that ``driver.c`` reads.

``calls/`` has a module for each table, whose ``calls()`` draws inputs from fixed seeds. What a call
gives is asked of the kernels through their layer in Cython, or of a reference in plain Python:
never of the driver, which would agree with itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import groupby
from random import Random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.minhit import HashPlan

Int64Array = npt.NDArray[np.int64]
Column = Any  # bytes, or numbers in any shape

Observation = tuple[int, int, int, int]  # value key, weight, time, id

FIRST, LAST = -(1 << 63), (1 << 63) - 1
NO_WATERMARK = FIRST
TIME_LIMIT = 1 << 62


class Call(NamedTuple):
    """A call of a kernel, by the name of its adapter, with the columns that it takes and gives."""

    kernel: str
    inputs: Sequence[Column]
    results: Sequence[Column]


def recorded(table: str) -> str:
    """The calls of a table, as text."""
    calls: Iterable[Call] = import_module(f"native.calls.{table}").calls()
    return "\n".join(_lines(table, calls)) + "\n"


def _lines(table: str, calls: Iterable[Call]) -> Iterator[str]:
    before: list[str] = []  # the latest input at each place
    for kernel, inputs, results in calls:
        yield f"! {table}.{kernel}"
        texts = [_text(column) for column in inputs]
        for place, text in enumerate(texts):
            yield "=" if before[place : place + 1] == [text] else f"<{text}"
        before[: len(texts)] = texts
        yield from (f">{_text(column)}" for column in results)


def _text(column: Column) -> str:
    """Numbers of 64 bits, whatever they are: floats and unsigned ones by their bits."""
    array = np.frombuffer(column, np.int8) if isinstance(column, bytes) else np.asarray(column)
    wide = array.view if array.dtype in (np.uint64, np.float64) else array.astype
    runs = [(number, len(list(run))) for number, run in groupby(wide(np.int64).ravel().tolist())]
    return "".join(f" {number}x{count}" if count > 1 else f" {number}" for number, count in runs)


# ------------------------------------------------------------------------------------------- inputs


def words(rng: Random, count: int) -> list[int]:
    """Integers of 64 bits."""
    return [rng.randrange(FIRST, LAST + 1) for _ in range(count)]


def observations(rng: Random, n: int, span: int, max_weight: int, ids: int) -> list[Observation]:
    """Rows with copies; weights and ids are often the ends of their ranges."""
    known = [
        (
            rng.choice([1, max_weight, rng.randint(1, max_weight)]),
            rng.choice([0, ids - 1, rng.randrange(ids)]),
        )
        for _ in range(n // 2 + 1)
    ]
    rows = []
    for _ in range(n):
        weight, id_ = rng.choice(known)
        rows.append((rng.randrange(9), weight, rng.randint(-span, span), id_))
    return rows


def watermarks(rng: Random, levels: int, span: int) -> list[int]:
    """Falling from level to level; of some levels, none is set."""
    marks = [rng.randint(-span, 0) for _ in range(rng.randint(0, levels))]
    return [*sorted(marks, reverse=True), *[NO_WATERMARK] * (levels - len(marks))]


# ------------------------------------------------------------------------------------------ columns


def column(numbers: Iterable[int]) -> Int64Array:
    return np.array(list(numbers), np.int64)


def columns(rows: Iterable[Sequence[int]], count: int) -> Any:
    """Rows as a list of so many columns."""
    return list(np.array(list(rows), np.int64).reshape(-1, count).T.copy())


def room(count: int, dtype: Any = np.int64) -> npt.NDArray[Any]:
    return np.zeros(count, dtype)


def hash_of(of: HashPlan) -> list[int]:
    """A hash function as ``hash_of.h`` reads it."""
    mix, steps = of.mix.tolist(), of.steps.tolist()
    start, p = of.start_multiplier, of.prime
    fields = [of.id_bits, len(mix), *mix, of.multiplier, start, (start << 28) % p, of.offset, p]
    fields += [of.top, p.bit_length() - 1 + 1023]
    fields += [len(steps), *(field for step in steps for field in step)]
    return [*fields, len(of.chain), *of.chain.ravel().tolist()]
