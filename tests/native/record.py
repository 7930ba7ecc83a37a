"""Records calls of kernels and what they return.

From the root of a checkout: ``PYTHONPATH=.:tests python tests/native/record.py``.

Inputs are drawn here from fixed seeds; results are those of this machine's compiler, which all
others must agree with. A call is recorded again only to follow a change of what kernels take.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import get_args

import numpy as np
from native import building

from decaysketch.core.params import SketchParams
from decaysketch.ecm.cells import LIMIT, Cells
from decaysketch.ecm.hashing import rows_of
from decaysketch.ecm.layers import Layer
from decaysketch.ecm.sizing import Kind
from decaysketch.minhit import HashPlan, plan, plan_for
from scripts import compiler

Call = tuple[str, list[list[int]]]  # table.kernel, and its inputs

FIRST, LAST = -(1 << 63), (1 << 63) - 1
TIME_LIMIT = 1 << 62


def words(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(FIRST, LAST + 1) for _ in range(count)]


# ------------------------------------------------------------------------------------- range hash


def hash_of(of: HashPlan) -> list[int]:
    """As the adapters read it."""
    mix, steps = of.mix.tolist(), of.steps.tolist()
    start, p = of.start_multiplier, of.prime
    fields = [of.id_bits, len(mix), *mix, of.multiplier, start, (start << 28) % p, of.offset, p]
    fields += [of.top, p.bit_length() - 1 + 1023]
    fields += [len(steps), *(field for step in steps for field in step)]
    return [*fields, len(of.chain), *of.chain.ravel().tolist()]


def plans(rng: random.Random) -> Iterator[tuple[HashPlan, int, int]]:
    """Hash functions with the bounds of weights and ids: as builders draw them, and awkward."""
    for max_weight, id_bits in [(1, 56), (999, 46), (1_000, 32), (2**20, 36), (2**31, 25)]:
        params = SketchParams(
            max_weight=max_weight, id_bits=id_bits, capacity=100, seed=rng.randrange(1 << 32)
        )
        yield plan(params), max_weight, id_bits
    prime = 2**61 - 1  # just too large
    while not all(pow(base, prime - 1, prime) == 1 for base in (2, 3, 5, 7, 11)) or prime >> 61:
        prime -= 2
    for multiplier in (0, 1, prime - 1, prime // 3, prime // 1_000 + 1, rng.randrange(prime)):
        awkward = plan_for(
            prime=prime, multiplier=multiplier, offset=rng.randrange(prime), max_weight=999,
            id_bits=46, mix=plan(SketchParams(999, 46, capacity=1)).mix[:0], top=50,
        )  # fmt: skip
        yield awkward, 999, 46


def minhit() -> Iterator[Call]:
    rng = random.Random(1)
    for of, max_weight, id_bits in plans(rng):
        n = rng.choice([1, 31, 40])
        ids = [rng.choice([0, (1 << id_bits) - 1, rng.randrange(1 << id_bits)]) for _ in range(n)]
        weights = [rng.choice([1, max_weight, rng.randint(1, max_weight)]) for _ in range(n)]
        levels = [rng.randint(0, of.top) for _ in range(n)]
        for kernel in ("top_levels", "minimum_hashes"):
            yield f"minhit.{kernel}", [hash_of(of), ids, weights]
        for kernel in ("range_samples", "min_hits"):
            yield f"minhit.{kernel}", [hash_of(of), ids, weights, levels]
        yield "minhit.min_hits_all_levels", [hash_of(of), ids[:5], weights[:5]]


# ---------------------------------------------------------------------------- asynchronous samplers


def stream_of(weighted: bool, levels: int, first_nested: int) -> list[int]:
    bounds = [0, 1 << levels] if weighted else [FIRST + 1, LAST]
    return [*bounds, TIME_LIMIT, levels, first_nested, int(weighted)]


def bag(rng: random.Random, n: int, span: int, weighted: bool, levels: int) -> list[list[int]]:
    """Elements with copies, of which a level follows from the identity."""
    columns: list[list[int]] = [[], [], [], []]
    known = words(rng, max(1, n // rng.choice([1, 1, 3])))
    for _ in range(n):
        key, value = rng.choice(known), rng.randint(1, 3)
        coin = random.Random(key + value * weighted).randrange(1 << 20)
        row = value, rng.randint(-span, span), key, min(levels, 20 - coin.bit_length())
        for column, number in zip(columns, row, strict=True):
            column.append(number)
    return columns


def asyncwindow() -> Iterator[Call]:
    rng = random.Random(2)
    for n in (1, 7, 67):
        yield "asyncwindow.keys", [words(rng, 1), words(rng, n)]
        yield "asyncwindow.keys", [words(rng, n), words(rng, n)]
        values = [rng.choice([1, 2, 3, 1 << 53, rng.randint(1, 1 << 53)]) for _ in range(n)]
        keys = [key if rng.random() < 0.9 else rng.randrange(1 << 12) for key in words(rng, n)]
        for weighted in (0, 1):
            yield "asyncwindow.top_levels", [values, keys, [weighted, 53]]
    floats = [0, FIRST, 1, FIRST + 1, LAST >> 10, 0x3FF0000000000000, -0x4010000000000000]
    not_finite = 0x7FF0000000000000
    for span in (5, 10**6, TIME_LIMIT):
        for kind in ("sum", "int64", "float64", "refused"):
            weighted = kind == "sum"
            stream, n = stream_of(weighted, 20, 4 if weighted else 0), rng.choice([3, 19, 61])
            values = [rng.randrange(0, 1 << 20) if weighted else w for w in words(rng, n)]
            if weighted:
                values[n // 2] = 0
            elif kind != "int64":
                values = [rng.choice(floats) for _ in range(n)]
            if kind == "refused":
                values[-1] = not_finite
            times = [rng.randint(-span, span) for _ in range(n)]
            marks = sorted((rng.randint(-span, span) for _ in range(21)), reverse=True)
            of = [rng.randrange(1 << 60), int(kind in ("float64", "refused")), -span // 2, n]
            sequence = words(rng, n) if rng.random() < 0.5 else []
            marks = [max(mark, of[2]) for mark in marks]
            inputs = [stream, values, times, words(rng, 1), sequence, of, marks]
            yield "asyncwindow.admit", inputs
            yield "asyncwindow.admit", [*inputs[:-1], [FIRST] * 21]
    for span in (0, 6, 40, 10**4, 1 << 33, TIME_LIMIT):
        for weighted, first_nested in ((True, 6), (True, 2), (False, 0)):
            n = rng.choice([2, 70, 160])
            columns = bag(rng, n, span, weighted, 6)
            marks = [rng.choice([FIRST, rng.randint(-span, span)])] * 7
            few = [column[:40] for column in columns]
            yield "asyncwindow.append", [*few, marks]
            capacity = rng.choice([1, 4, n // 8 + 1])
            of = [capacity, capacity + 1, rng.randrange(FIRST, LAST) | 1, rng.randrange(LAST) | 1]
            yield "asyncwindow.compact", [
                stream_of(weighted, 6, first_nested), *columns, of, marks,
            ]  # fmt: skip
            for canonical in (0, 1):
                yield "asyncwindow.arrange", [*few, [canonical, int(weighted)]]


# ------------------------------------------------------------------------------------- ECM cells


def ecm_layer(rng: random.Random, layer: Layer) -> list[list[int]]:
    a, b = rows_of(layer, rng.randrange(1 << 32))
    shape = [layer.width, layer.shift, int(layer.hashed)]
    return [shape, a.view(np.int64).tolist(), b.view(np.int64).tolist()]


def ecm() -> Iterator[Call]:
    rng = random.Random(3)
    layers = [Layer(0, 5, 3, 4, True), Layer(40, 65_535, 2, 2, True), Layer(64, 1, 1, 7, False),
              Layer(60, 16, 1, 3, False), Layer(3, 2, 16, 2, True)]  # fmt: skip
    for layer in layers:
        if layer.cells < 100:
            grid = [rng.randrange(-9, 1 << 50) for _ in range(layer.cells)]
            yield "ecm.columns", [*ecm_layer(rng, layer), words(rng, 37), grid]
    for layer, histogram in product(layers, (0, 1)):
        if layer.cells > 100:
            continue
        for span, weight in ((2, 1), (2, 900), (1 << 50, 3), (9, LIMIT // 50)):
            if weight > 1_000 and layer.cells > 5:
                continue  # lists are long
            n = rng.choice([1, 41, 50])
            weights = [rng.randint(1, weight) for _ in range(n)] if weight > 1 else []
            times = sorted(rng.randint(-3, span) for _ in range(n))
            wide = int(times[-1] - times[0] >= 1 << 32)
            cells = [63, layer.slots, 0 if wide else times[0] - 1, wide, histogram]
            of = [rng.randrange(2), rng.choice([7, 64]), times[0], times[-1] + rng.randrange(2)]
            starts = [rng.randint(times[0] + (times[0] < times[-1]), times[-1]) for _ in range(9)]
            of_layer = ecm_layer(rng, layer)
            yield "ecm.update", [*of_layer, cells, words(rng, n), times, weights, of, starts]
    for kind, slots, steps in product(get_args(Kind), (2, 5), (0, 1, 8)):
        n = np.array([0, rng.randrange(90), rng.randrange(LIMIT // 4) >> rng.choice([0, 30, 50])])
        count = int(Cells.kept_counts(Layer(0, 3, 1, slots, True), kind, n).sum())
        span, wide = rng.choice([(50, 0), (1 << 61, 1)])
        ends = np.cumsum(Cells.kept_counts(Layer(0, 3, 1, slots, True), kind, n)).tolist()
        times = [rng.randint(0, span) for _ in range(count)]
        for start, stop in pairwise([0, *ends]):
            times[start:stop] = sorted(times[start:stop], reverse=True)
        cells = [63, slots, 0 if wide else -1, wide, int(kind == "eh")]
        whole = [63, 3, *cells[2:]]
        yield "ecm.compact", [cells, n.tolist(), times, [0, span, steps], whole]
        yield "ecm.compact", [cells, n.tolist(), times, [0, min(times), steps], whole]


def main() -> None:
    """Write the files."""
    with tempfile.TemporaryDirectory() as folder:
        cc = compiler.command()
        level = "v2" if compiler.machine() == "x86_64" else "base"
        options = [compiler.march(cc, level)] if level != "base" else []
        driver = building.build(cc, level, options, Path(folder))
        for table, calls in {
            "minhit": minhit(),
            "asyncwindow": asyncwindow(),
            "ecm": ecm(),
        }.items():
            lines = []
            for kernel, inputs in calls:
                lines.append(f"! {kernel}")
                lines += [" ".join(["<", *map(str, numbers)]) for numbers in inputs]
            made = subprocess.run(
                [driver, "--write"], input="\n".join(lines), capture_output=True, text=True,
                check=True,
            )  # fmt: skip
            (building.HERE / "recorded" / f"{table}.txt").write_text(made.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
