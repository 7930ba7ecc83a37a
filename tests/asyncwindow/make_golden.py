"""Writes the golden files: ``PYTHONPATH=.:tests python tests/asyncwindow/make_golden.py``.

For each case ``NAME.dsk`` are the bytes and ``NAME.json`` is what they say. They bind every later
release, so an existing file is never changed: a new wire version gets a directory of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler, WindowState
from decaysketch.asyncwindow.state import NO_CLOCK
from decaysketch.core import hashing
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.querytime import wire

DIRECTORY = Path(__file__).parent / "golden" / f"v{wire.VERSION}"


def _below(bound: int, purpose: int, index: int) -> int:
    """Numbers that look random and are the same for ever."""
    return hashing.derive(2026, purpose, index) % bound


def cases() -> Iterator[tuple[str, str, SumSampler | MedianSampler]]:
    """Name, what it is about, and the sampler."""
    of_sum = SumParams(max_sum=10**6, capacity=40, max_window=3600, seed=42)
    yield "sum_empty", "nothing but parameters", SumSampler(of_sum)
    one = SumSampler(of_sum)
    one.update(490, 1_700_001_790, 0, source="node-7")
    yield "sum_one_row", "one element, without a clock", one
    for name, eager in (("sum_lazy", None), ("sum_eager", 3)):
        params = SumParams(
            max_sum=10**6, capacity=40, max_window=3600, seed=42, eager_from_level=eager
        )
        sampler = SumSampler(params)
        for i in range(900):
            time = 1_700_000_000 + _below(5000, 2, i)
            sampler.update(1 + _below(300, 1, i) ** 2 % 300, time, i, source="node-7")
        sampler.advance(1_700_004_500)
        yield name, "several blocks, ties, watermarks, a clock that forgot some", sampler
    floats = MedianSampler(
        MedianParams(max_count=1 << 20, capacity=60, seed=2**64 - 1, time_unit="ms")
    )
    for i in range(700):
        floats.update(_below(400, 3, i) / 10, -(10**12) + _below(300, 2, i), i, source="node-7")
    yield "median_floats", "one decimal, before 1970, no largest window", floats
    integers = MedianSampler(
        MedianParams(max_count=2, capacity=5, max_window=0, value_type="int64")
    )
    for i in range(9):
        integers.update(-(2**62) + i, 2**62 - i // 3, i, source=i)
    integers.advance(-(2**62))
    yield "median_integers", "extreme values and times, two levels", integers


def describe(about: str, state: WindowState) -> str:
    """The JSON beside the bytes."""
    columns = (state.times, state.keys, state.levels, state.value_keys)
    rows = [list(row) for row in zip(*(c.tolist() for c in columns), strict=True)]
    marks = [None if mark == NO_WATERMARK else mark for mark in state.watermarks.tolist()]
    said = {
        "about": about,
        "params": state.params.to_dict(),
        "clock": None if state.clock == NO_CLOCK else state.clock,
        "watermarks": marks,
        "digest": state.digest(),
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in said.items()]
    listed = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    lines.append(f' "rows (time, key, level, value key)": [\n{listed}\n ]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name, about, sampler in cases():
        state = sampler.state()
        for suffix, content in (
            (".dsk", sampler.to_bytes()),
            (".json", describe(about, state).encode()),
        ):
            path = DIRECTORY / (name + suffix)
            if path.exists() and path.read_bytes() != content:
                raise SystemExit(f"{path.name} exists and differs: it is never changed")
            path.write_bytes(content)
            print(f"{path.name}: {len(content)} bytes")


if __name__ == "__main__":
    main()
