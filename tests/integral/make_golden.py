"""Writes the golden files: ``PYTHONPATH=.:tests python -m integral.make_golden``.

For each case ``NAME.dsk`` are the bytes and ``NAME.json`` is what they say. They bind every later
release, so an existing file is never changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import decaysketch as ds
from decaysketch.core import hashing
from decaysketch.decay import integral
from decaysketch.integral.state import NO_CLOCK, IntegralState

DIRECTORY = Path(__file__).parent / "golden" / "v1"

SMALL = ds.SketchParams(max_weight=20, id_bits=16, capacity=30, seed=7, value_type="int64")
TABLE = integral.table([[w - x if w > x else 0 for x in range(21)] for w in range(21)])

_ROWS = "rows (time, id, weight, value key)"


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    sketch: ds.IntegralDecaySketch
    embed_params: bool = True


def _below(bound: int, purpose: int, index: int) -> int:
    """Numbers that look random and are the same for ever."""
    return hashing.derive(2027, purpose, index) % bound


def _sketch(
    decay: integral.IntegralDecay, rows: int, clock: int | None, of: ds.SketchParams = SMALL
) -> ds.IntegralDecaySketch:
    sketch = ds.IntegralDecaySketch(of, decay)
    for i in range(rows):
        sketch.update(
            _below(1000, 4, i),
            1 + _below(of.max_weight, 1, i),
            1_700_000_000 + _below(200, 2, i),
            _below(1 << of.id_bits, 3, i),
        )
    if clock is not None:
        sketch.advance(clock)
    return sketch


def cases() -> Iterator[Case]:
    exponential = integral.exponential(rate=0.02)
    yield Case("empty", "nothing seen, no clock", _sketch(integral.window(60), 0, None))
    yield Case("clock", "a clock alone", _sketch(integral.window(60), 0, -5))
    yield Case("exponential", "500 observations", _sketch(exponential, 500, 1_700_000_150))
    yield Case("by_fingerprint", "the same 500", _sketch(exponential, 500, 1_700_000_150), False)
    yield Case("polynomial", "no clock", _sketch(integral.polynomial(0.5, scale=3), 500, None))
    yield Case("window", "a window", _sketch(integral.window(3600), 500, 1_700_000_100))
    yield Case("halving", "half-lives", _sketch(integral.halving(60), 500, 1_700_000_100))
    yield Case("table", "w - x, not decomposable", _sketch(TABLE, 500, 1_700_000_100))
    one = ds.SketchParams(max_weight=1, id_bits=8, capacity=1, seed=3)
    tied = ds.IntegralDecaySketch(one, integral.window(10))
    tied.update(None, 1, [77] * 256, list(range(256)))
    yield Case("only_watermarks", "256 observations that expire at once, capacity 1", tied)


def description(case: Case) -> dict[str, Any]:
    state = case.sketch.state()
    columns = (state.times, state.ids, state.weights, state.value_keys)
    return {
        "about": case.about,
        "params": state.params.to_dict(),
        "decay": state.decay.to_dict(),
        "decay digest": state.decay.steps(state.params.max_weight).digest.hex(),
        "embed_params": case.embed_params,
        "clock": None if state.clock == NO_CLOCK else state.clock,
        "watermarks": [t for t in state.watermarks.tolist() if t > state.clock],
        "digest": state.digest(),
        _ROWS: list(zip(*(column.tolist() for column in columns), strict=True)),
    }


def state_of(said: dict[str, Any]) -> IntegralState:
    """The state, from what the JSON says alone."""
    params = ds.SketchParams.from_dict(said["params"])
    rows = said[_ROWS]
    times, ids, weights, keys = np.array(rows, dtype=np.int64).reshape(-1, 4).T.copy()
    clock = NO_CLOCK if said["clock"] is None else said["clock"]
    watermarks = np.full(params.levels + 1, clock, dtype=np.int64)
    watermarks[: len(said["watermarks"])] = said["watermarks"]
    decay = integral.from_dict(said["decay"], table=TABLE)
    return IntegralState(params, decay, clock, keys, weights, times, ids, watermarks)


def _to_json(described: dict[str, Any]) -> str:
    """JSON with a line for each field and each row."""
    lines = []
    for name, content in described.items():
        text = json.dumps(content)
        if name.startswith("rows") and content:
            text = "[\n    " + ",\n    ".join(map(json.dumps, content)) + "\n  ]"
        lines.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    changed = 0
    for case in cases():
        for suffix, content in (
            (".dsk", case.sketch.to_bytes(embed_params=case.embed_params)),
            (".json", _to_json(description(case)).encode()),
        ):
            path = DIRECTORY / (case.name + suffix)
            if not path.exists():
                path.write_bytes(content)
                print(f"{path.name}: {len(content)} bytes")
            elif path.read_bytes() != content:
                print(f"{path.name} would change; golden files do not", file=sys.stderr)
                changed += 1
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
