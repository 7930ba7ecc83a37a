"""Writes the golden files: ``PYTHONPATH=.:tests python tests/wire/make_golden.py``.

For each case ``NAME.dsk`` are the bytes and ``NAME.json`` is what they say. They bind every later
release, so an existing file is never changed: a new wire version gets a directory of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from wire.states import MISSING, state_of_columns, states_of

from decaysketch.core import hashing
from decaysketch.core.observations import decode_values, encode_values
from decaysketch.core.params import SketchParams
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.querytime import wire
from decaysketch.querytime.state import SketchState, digest_of

DIRECTORY = Path(__file__).parent / "golden" / f"v{wire.VERSION}"

_LARGEST = sys.float_info.max
_SMALLEST = 5e-324


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    states: Sequence[SketchState]  # one for each copy
    embed_params: bool = True


def _below(bound: int, purpose: int, index: int) -> int:
    """Numbers that look random and are the same for ever."""
    return hashing.derive(2026, purpose, index) % bound


def _observations(
    params: SketchParams, rows: int, *, first: int = 1_700_000_000, span: int = 3600
) -> tuple[list[int], list[int], list[int]]:
    """Weights, times and ids."""
    return (
        [1 + _below(params.max_weight, 1, i) for i in range(rows)],
        [first + _below(span, 2, i) for i in range(rows)],
        [_below(1 << params.id_bits, 3, i) for i in range(rows)],
    )


def _states(params: SketchParams, values: list[Any], **times: int) -> list[SketchState]:
    weights, stamps, ids = _observations(params, len(values), **times)
    keys = [MISSING if v is None else int(encode_values([v], params.value_type)[0]) for v in values]
    return states_of(params, zip(keys, weights, stamps, ids, strict=True))


def cases() -> Iterator[Case]:
    params = SketchParams(max_weight=999, seed=42)
    integers = SketchParams(max_weight=999, seed=42, value_type="int64", time_unit="ms")
    yield Case("empty", "no observation", states_of(params, []))
    yield Case("one_row", "one observation", _states(params, [21.5]))
    ten = [round(20 + _below(1000, 4, i) / 100, 2) for i in range(10)]
    yield Case("ten_rows", "ten readings, parameters in full", _states(params, ten))
    yield Case("ten_rows_by_fingerprint", "the same ten readings", _states(params, ten), False)
    some = [None if _below(3, 4, i) == 0 else float(_below(100, 5, i)) for i in range(300)]
    yield Case("missing_values", "a third of the values missing", _states(params, some))
    without = _states(params, [None] * 20)
    yield Case("no_values", "every value missing", without)
    # Time falls with the index, so that each block of 256 rows has decimals of its own.
    count = 256 * 5 + 3
    places = [0, 1, 2, 7, 14, 3]
    decimals = [(_below(200_000, 4, i) - 100_000) / 10.0 ** places[i // 256] for i in range(count)]
    weights, _, ids = _observations(params, count)
    times = [10_000_000 - 7 * i for i in range(count)]
    yield Case(
        "float_decimals",
        "blocks of 0, 1, 2, 7, 14 and 3 decimals",
        [state_of_columns(params, decimals, weights, times, ids)],
    )
    raw = [_below(1 << 53, 4, i) / (1 << 53) for i in range(30)]
    raw += [_LARGEST, -_LARGEST, _SMALLEST, -_SMALLEST, 0.0, -0.0, 1e300]
    yield Case(
        "float_raw", "floats without a short decimal form, and extremes", _states(params, raw)
    )
    extremes = [2**63 - 1, 1 - 2**63, 0, -1, 1, 2**53 + 1, None]
    yield Case("int64_extremes", "the largest and smallest int64", _states(integers, extremes))
    yield Case(
        "negative_times",
        "times before the epoch, and the earliest and latest allowed",
        states_of(
            integers,
            [(7, 1, -(2**62), 5), (8, 2, 2**62, 5), (9, 3, -1, 5), (10, 4, 0, 2**40 - 1)]
            + [(i, 999, -1000 * i, i) for i in range(10)],
        ),
    )
    count = 700
    weights = [1 if _below(10, 4, i) else 999 for i in range(count)]
    values = [_below(50, 5, i) if _below(20, 6, i) else _below(1 << 40, 7, i) for i in range(count)]
    steps = [1 if _below(50, 8, i) else 86_400 for i in range(count)]
    times = [5_000_000 - passed for passed in accumulate(steps)]
    ids = [10_000 * (count - i) + _below(4, 9, i) for i in range(count)]
    yield Case(
        "several_blocks",
        "ids by steps, exceptions by position and by bitmap",
        [state_of_columns(integers, values, weights, times, ids)],
    )
    small = SketchParams(max_weight=20, id_bits=16, capacity=40, seed=7, value_type="int64")
    states = _states(small, [_below(1000, 4, i) for i in range(900)], span=500)
    yield Case("watermarks", "capacity 40 after 900 observations", states)
    tiny = SketchParams(max_weight=1, id_bits=8, capacity=1, seed=3)
    tied = states_of(tiny, [(0, 1, 77, i) for i in range(256)])
    yield Case("only_watermarks", "256 observations at one time, capacity 1", tied)
    secret = SketchParams(max_weight=999, seed=42, id_key=bytes(range(32)))
    yield Case("secret_key", "ids mixed under a secret key", _states(secret, ten))
    plain = SketchParams(max_weight=999, seed=42, id_mix="none", time_unit="h")
    yield Case("ids_not_mixed", "id_mix none, hours", _states(plain, ten, first=470_000, span=12))
    three = SketchParams(max_weight=20, id_bits=16, capacity=12, copies=3, seed=7)
    yield Case("three_copies_exact", "three copies, each holds all", _states(three, ten))
    readings = [round(20 + _below(1000, 4, i) / 100, 2) for i in range(150)]
    overflowed = _states(three, readings, span=100)
    yield Case("three_copies", "three copies of capacity 12 after 150 observations", overflowed)
    yield Case("three_copies_by_fingerprint", "the same three copies", overflowed, False)


def description(case: Case) -> dict[str, Any]:
    params = case.states[0].params
    said = {
        "about": case.about,
        "params": params.to_dict(),
        "id_key": params.id_key.hex() if params.id_key else None,
        "embed_params": case.embed_params,
        "fingerprint": params.fingerprint.hex(),
        "digest": digest_of(case.states),
    }
    for state in case.states:
        of_copy = f" of copy {state.copy}" if params.copies > 1 else ""
        said[f"watermarks{of_copy}"] = [t for t in state.watermarks.tolist() if t != NO_WATERMARK]
        said[f"rows{of_copy} (time, id, weight, level, value)"] = _rows(state)
    return said


def _rows(state: SketchState) -> list[list[Any]]:
    values, missing = decode_values(state.value_keys, state.params.value_type)
    return [
        [t, i, w, level, None if gone else value]
        for t, i, w, level, value, gone in zip(
            state.times.tolist(),
            state.ids.tolist(),
            state.weights.tolist(),
            state.levels.tolist(),
            values.tolist(),
            missing.tolist(),
            strict=True,
        )
    ]


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
            (".dsk", wire.encode(*case.states, embed_params=case.embed_params)),
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
