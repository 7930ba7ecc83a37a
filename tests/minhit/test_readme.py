"""Every number of the worked example in ``decaysketch/minhit/README.md`` is computed here."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Set
from itertools import pairwise
from pathlib import Path

import pytest

import decaysketch
from decaysketch.decay import integral
from decaysketch.minhit import reference

TEXT = (Path(decaysketch.__file__).parent / "minhit" / "README.md").read_text(encoding="utf-8")

P, A, B = 31, 13, 6
MAX_WEIGHT, ID, WEIGHT, TIME = 8, 2, 7, 100
N = WEIGHT - 1
U = reference.hash_start(P, A, B, MAX_WEIGHT, ID)
HASHES = [(A * (MAX_WEIGHT * ID + j) + B) % P for j in range(WEIGHT)]
LIMITS = [P // 2**i - 1 for i in range(6)]
DELTAS = [next((j for j, h in enumerate(HASHES) if h <= L), -1) for L in LIMITS]
LEVEL = 2
L = LIMITS[LEVEL]


def says(*words: object) -> None:
    """The words stand in the text in this order, punctuation and table bars apart."""

    def bare(text: str) -> str:
        return " ".join(re.sub(r"[|`.,:()]", " ", text).split())

    line = bare(" ".join(map(str, words)))
    assert f" {line} " in f" {bare(TEXT)} ", line


def ring(size: int, dark: Set[int], points: Mapping[int, str]) -> str:
    """The ring of integers modulo ``size``, clockwise from 0 at the top; [v] where v is dark."""
    rows, columns = 11, 52
    canvas = [[" "] * columns for _ in range(rows)]
    for v in range(size):
        angle = 2 * math.pi * v / size
        row = round((rows - 1) / 2 * (1 - math.cos(angle)))
        middle = round((columns - 14) / 2 * (1 + math.sin(angle))) + 4
        label = f"[{v}]" if v in dark else f" {v} "
        label += points.get(v, "")
        for k, letter in enumerate(label):
            canvas[row][middle - 1 + k] = letter
    return "\n".join("".join(row).rstrip() for row in canvas)


def test_integers_hashes_and_levels() -> None:
    says("j", *range(WEIGHT))
    says("integer", *range(MAX_WEIGHT * ID, MAX_WEIGHT * ID + WEIGHT))
    says("h", *HASHES)
    says("level i", *range(6))
    says("L = floor(31 / 2^i) - 1", *LIMITS)
    selected = [[j for j, h in enumerate(HASHES) if h <= L] for L in LIMITS]
    assert selected[0] == list(range(WEIGHT))
    says("selected j all", *(" ".join(map(str, hits)) or "none" for hits in selected[1:]))
    says("Delta", *DELTAS)
    says("RangeSample", *(sum(h <= L for h in HASHES) for L in LIMITS))
    for L, delta in zip(LIMITS, DELTAS, strict=True):
        assert reference.min_hit(P, A, U, N, L) == delta
        assert reference.range_sample(P, A, U, N, L) == sum(h <= L for h in HASHES)


def test_min_hit_step_by_step() -> None:
    starts = [0, *(j for j in range(1, WEIGHT) if HASHES[j] < HASHES[j - 1])]
    runs = [HASHES[i:j] for i, j in zip(starts, [*starts[1:], WEIGHT], strict=True)]
    says(*(f"S_{k} = <{', '.join(map(str, run))}>" for k, run in enumerate(runs)))
    firsts = [run[0] for run in runs[1:]]
    r = P % A
    says("r = 31 mod 13 =", r)
    assert A - r > A / 2  # the second case
    flipped = [(A - f) % A for f in firsts]
    shifted = [(f + L) % A for f in flipped]
    says("f", *firsts)
    says("f'", *flipped)
    says("f''", *shifted)
    dark = set(range(L + 1))
    for values, shade, name in (
        (firsts, dark, "f_{}"),
        (flipped, {(A - v) % A for v in dark}, "f'_{}"),
        (shifted, dark, "f''_{}"),
    ):
        picture = ring(A, shade, {v: name.format(k + 1) for k, v in enumerate(values)})
        assert textwrap.indent(picture, "    ") in TEXT, "\n" + picture
        difference = A - r if values is firsts else r
        assert all((y - x) % A == difference for x, y in pairwise(values))
    d = reference.min_hit(A, r, shifted[0], len(firsts) - 1, L)
    says(f"MinHit(13, {r}, {shifted[0]}, {len(firsts) - 1}, {L}) = {d}")
    says(f"({d} + 1) * 31 - {U} + {firsts[d]}) / 13 = {((d + 1) * P - U + firsts[d]) // A}")
    assert ((d + 1) * P - U + firsts[d]) / A == DELTAS[LEVEL]
    says(f"{shifted[0]} + {r} - {A} = {shifted[1]}, in the dark range")
    says(f"{U} + {A} j - {d + 1} * {P} = {firsts[d]}")


def test_range_sample_step_by_step() -> None:
    says("p - 1 - L =", P - 1 - L)
    for start in (U, U + P - 1 - L):
        parts = [(start + j * A) // P for j in range(WEIGHT)]
        says("+".join(map(str, parts)).replace("+", " + "), "=", sum(parts))
        assert reference.floor_sum(WEIGHT, P, A, start) == sum(parts)
    below, above = (reference.floor_sum(WEIGHT, P, A, s) for s in (U, U + P - 1 - L))
    says(f"{WEIGHT} + {below} - {above} = {WEIGHT + below - above}")
    assert WEIGHT + below - above == sum(h <= L for h in HASHES)


def test_all_levels_from_one_walk() -> None:
    runs = list(reference.record_runs(P, A, U, N))
    for run in runs:
        says(*run)
    records = [(j, h) for j, h in enumerate(HASHES) if h < min(HASHES[:j], default=P)]
    says("record at j", *(j for j, _ in records))
    says("its value", *(h for _, h in records))
    assert 1 + sum(run.repeats for run in runs) == len(records)
    assert reference.all_levels(P, A, U, N, 5) == DELTAS


def test_expiry() -> None:
    f = integral.halving(10)
    says("age x", *(f"{x} to {x + 9}" for x in (0, 10, 20)), "30 and on")
    says("f(7, x)", *f(WEIGHT, [0, 10, 20, 30]))
    times = [
        reference.expiry_time(P, A, U, L, WEIGHT, TIME, lambda w, x: int(f(w, x)), t_max=30)
        for L in LIMITS
    ]
    says("expiry", *times)
    left, right = 0, 30
    while right - left > 1:
        middle = (left + right) // 2
        value = int(f(WEIGHT, middle))
        says(left, right, middle, value, "l" if value > DELTAS[LEVEL] else "r")
        left, right = (middle, right) if value > DELTAS[LEVEL] else (left, middle)
    says(f"l = {left} and r = {right}")
    assert TIME + right == times[LEVEL]
    assert f(WEIGHT, left) > DELTAS[LEVEL]


@pytest.mark.parametrize("level", range(6))
def test_expiry_is_when_no_selected_integer_is_left(level: int) -> None:
    f = integral.halving(10)
    left = [sum(h <= LIMITS[level] for h in HASHES[: int(f(WEIGHT, x))]) for x in range(40)]
    expiry = reference.expiry_time(
        P, A, U, LIMITS[level], WEIGHT, TIME, lambda w, x: int(f(w, x)), t_max=30
    )
    assert [count == 0 for count in left] == [TIME + x >= expiry for x in range(40)]
