"""Encoding and decoding are inverse to each other, and equal states have equal bytes.

The kernels are held against the format in plain Python (``reference.py``) on columns chosen to
reach every mode: widths 0 to 64, exceptions by position and by bitmap, ids by steps and by frame,
all numbers of decimals.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each
from wire import reference
from wire.states import MISSING, columns_of, decode_one, state_of, state_of_columns, web_log

from decaysketch import DecaySketch, minhit
from decaysketch.core.observations import encode_values
from decaysketch.core.params import SketchParams
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.minhit._top_level import observations_of_top_level
from decaysketch.querytime import wire
from decaysketch.querytime.state import SketchState

LIMIT = 2**62


@st.composite
def states(draw: st.DrawFn) -> SketchState:
    """States by the definition, with copies, ties, discarded rows and every kind of value."""
    value_type: Any = draw(st.sampled_from(["int64", "float64"]))
    params = SketchParams(
        max_weight=draw(st.sampled_from([1, 2, 20, 999])),
        id_bits=draw(st.sampled_from([0, 1, 4, 12, 45])),
        capacity=draw(st.sampled_from([1, 2, 7, 24_000])),
        seed=draw(st.integers(0, 2**64 - 1)),
        time_unit=draw(st.sampled_from(["ns", "s", "fortnite"])),
        value_type=value_type,
        id_mix=draw(st.sampled_from(["keyed", "none"])),
    )
    numbers: st.SearchStrategy[Any] = (
        st.integers(1 - 2**63, 2**63 - 1)
        if value_type == "int64"
        else st.one_of(
            st.floats(allow_nan=False, allow_infinity=False),
            st.integers(-(10**6), 10**6).map(lambda n: n / 100),
            st.integers(-100, 100).map(float),
        )
    )
    span = draw(st.sampled_from([0, 3, 1000, LIMIT]))
    copies = draw(
        st.lists(
            st.tuples(
                st.none() | numbers,
                st.integers(1, params.max_weight),
                st.integers(-span, span),
                st.integers(0, 2**params.id_bits - 1),
            ),
            max_size=40,
        )
    )
    return state_of(params, [(key_of(v, value_type), *rest) for v, *rest in copies])


def key_of(value: Any, value_type: str) -> int:
    return MISSING if value is None else int(encode_values([value], value_type)[0])


@given(states())
@settings(max_examples=100, deadline=None)
def test_bytes_are_those_of_the_specification(state: SketchState) -> None:
    assert wire.encode(state) == reference.blob_of(state).to_bytes()


def block_columns(width: int, exceptions: int, random: np.random.Generator) -> list[int]:
    """300 residuals of a width, of which some are much longer."""
    column = [int(random.integers(0, 2**width, dtype=np.uint64)) for _ in range(300)]
    for row in random.choice(300, exceptions, replace=False):
        column[row] = int(random.integers(0, 2**40))
    return column


@pytest.mark.parametrize("width", [0, 1, 2, 7, 8, 13, 31, 38])
@pytest.mark.parametrize("exceptions", [0, 1, 5, 32, 33, 100, 250])
def test_every_width_with_few_and_many_exceptions(width: int, exceptions: int) -> None:
    random = np.random.default_rng(1000 * width + exceptions)
    params = SketchParams(max_weight=1 << 16, id_bits=40, value_type="int64")
    gaps = block_columns(width, exceptions, random)
    times = 2**50 - np.cumsum(gaps)
    state = state_of_columns(
        params,
        np.array(block_columns(width, exceptions, random)) - 2**20,
        1 + np.array(block_columns(min(width, 16), exceptions, random)) % 2**16,
        times,
        np.arange(300) << min(width, 31),
    )
    blob = wire.encode(state)
    assert blob == reference.blob_of(state).to_bytes()
    assert columns_of(decode_one(blob)) == columns_of(state)


@pytest.mark.parametrize("rows", [1, 2, 3, 255, 256, 257, 511, 512, 513])
def test_blocks_of_every_length(rows: int) -> None:
    values, weights, times, ids = (column[:rows] for column in web_log(1000, rows))
    params = SketchParams(max_weight=999)
    state = state_of_columns(params, values / 8, weights, times, ids)
    blob = wire.encode(state)
    assert blob == reference.blob_of(state).to_bytes()
    assert columns_of(decode_one(blob)) == columns_of(state)


@pytest.mark.parametrize(
    ("step", "gap", "divides"),
    [
        (60, 2**20, True),
        (4, 2**20, False),  # saves 502 bits of the 512 that are needed
        (2**40 * 3, 9, True),
        (2**53, 1, True),
        (2**62, 0, False),
    ],
)
def test_times_that_share_a_divisor(step: int, gap: int, divides: bool) -> None:
    random = np.random.default_rng(step % 97)
    times = LIMIT - step * np.cumsum(random.integers(0, gap, 256, endpoint=True))
    params = SketchParams(max_weight=1, value_type="int64")
    state = state_of_columns(params, np.arange(256), np.ones(256), times, np.arange(256))
    blob, said = wire.encode(state), reference.blob_of(state)
    assert blob == said.to_bytes()
    older = said.but(columns=reference.rows_to_bytes(said.rows, False, reference.put_column))
    assert (len(blob) + 64 <= len(older)) is divides
    for each in (blob, older):
        for careful in (False, True):  # the kernel, and the reader that names faults
            read = decode_one(each, check_plausible=not careful)
            assert columns_of(read) == columns_of(state)
            assert wire.encode(read) == blob


@for_each("decimals", range(16))
def test_floats_of_every_number_of_decimals(decimals: int) -> None:
    """15 decimals take the raw form; up to 14 the integers do, if they are below 2^53."""
    random = np.random.default_rng(decimals)
    integers = random.integers(-(10 ** min(decimals + 2, 15)), 10 ** min(decimals + 2, 15), 200)
    values = integers / 10.0**decimals
    values[:3] = [1.0, -1.0, 0.0]
    params = SketchParams(max_weight=1)
    state = state_of_columns(params, values, np.ones(200), np.arange(200), np.arange(200))
    blob = wire.encode(state)
    assert blob == reference.blob_of(state).to_bytes()
    assert columns_of(decode_one(blob)) == columns_of(state)


@pytest.mark.parametrize(
    "value",
    [2.0**53, 2.0**53 + 2, -(2.0**53), 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1e22, 4.35],
)
def test_floats_at_the_edges_of_the_decimal_form(value: float) -> None:
    params = SketchParams(max_weight=1)
    state = state_of_columns(params, [value, 1.0], [1, 1], [5, 5], [1, 2])
    blob = wire.encode(state)
    assert blob == reference.blob_of(state).to_bytes()
    assert columns_of(decode_one(blob)) == columns_of(state)


def test_every_parameter_survives() -> None:
    for params in (
        SketchParams(max_weight=2**31, id_bits=25, capacity=1, seed=2**64 - 1),
        SketchParams(max_weight=1, id_bits=0, value_type="int64", time_unit="min"),
        SketchParams(max_weight=1, id_bits=56, capacity=2**20, id_mix="none", time_unit="d"),
        SketchParams(max_weight=7, id_key=b"sixteen bytes ok"),
    ):
        blob = wire.encode(state_of(params, []))
        assert decode_one(blob, id_key=params.id_key).params == params
        assert decode_one(blob, params=params).params == params


def test_a_secret_never_goes_on_the_wire() -> None:
    secret = b"a secret of thirty-two bytes ..."
    params = SketchParams(max_weight=7, id_key=secret)
    for embed_params in (True, False):
        blob = wire.encode(state_of(params, [(1, 1, 1, 1)]), embed_params=embed_params)
        assert not any(secret[i : i + 4] in blob for i in range(len(secret) - 3))


def test_capacity_is_taken_from_the_bytes() -> None:
    params = SketchParams(max_weight=9, id_bits=10, capacity=5)
    blob = wire.encode(state_of(params, [(i, 1, i, i) for i in range(50)]))
    assert decode_one(blob, params=params.with_capacity(1000)).params.capacity == 5


def test_bytes_with_gaps_between_them_are_refused() -> None:
    blob = wire.encode(state_of(SketchParams(max_weight=9), [(1, 1, 1, 1)]))
    with pytest.raises(ValueError, match="first bytes"):
        decode_one(memoryview(bytes(2 * len(blob)))[::2])


def test_decoded_arrays_are_read_only() -> None:
    state = decode_one(wire.encode(state_of(SketchParams(max_weight=9), [(1, 1, 1, 1)])))
    for name in ("value_keys", "weights", "times", "ids", "levels", "watermarks"):
        assert not getattr(state, name).flags.writeable


def test_optional_sections_are_skipped() -> None:
    """A later release may add them: today's reader gives the same state, without them."""
    state = state_of(SketchParams(max_weight=9), [(1, 1, 1, 1), (2, 2, 2, 2)])
    later = reference.blob_of(state).but(optional=0b1000_0101, sections=[b"", b"later", b"x" * 300])
    read = decode_one(later)
    assert columns_of(read) == columns_of(state)
    assert wire.peek(later).optional_flags == 0b1000_0101
    assert wire.encode(read) == wire.encode(state)


# ------------------------------------------------------------------------------- watermarks, levels


def test_a_level_may_overflow_at_the_top() -> None:
    """Small universes are exhausted; the coarsest level then has more than the capacity."""
    reached = 0
    for seed in range(40):
        params = SketchParams(max_weight=4, id_bits=3, capacity=1, seed=seed)
        copies = [(0, w, 10 * i + w, i) for i in range(8) for w in range(1, 5)]
        state = state_of(params, copies)
        reached += int(state.watermarks[-1] != NO_WATERMARK)
        assert columns_of(decode_one(wire.encode(state))) == columns_of(state)
    assert reached > 5


@for_each("seed", range(20))
def test_how_many_observations_reach_the_top_level(seed: int) -> None:
    params = SketchParams(max_weight=6, id_bits=5, seed=seed)
    ids, weights = (grid.ravel() for grid in np.meshgrid(np.arange(32), np.arange(1, 7)))
    reaching = np.count_nonzero(minhit.top_levels(params, ids, weights) == params.levels)
    assert observations_of_top_level(params, 0, params.max_weight) == reaching
    single = {int(i) for i in ids[minhit.top_levels(params, ids, weights) == params.levels]}
    assert observations_of_top_level(params, 0, 1) == len(single)


def test_honest_watermarks_are_plausible() -> None:
    """Streams in which many observations share a time, at every capacity."""
    random = np.random.default_rng(7)
    for seed in range(20):
        params = SketchParams(
            max_weight=50, id_bits=20, capacity=int(random.choice([1, 30, 100, 1000])), seed=seed
        )
        rows = 8000
        times = random.integers(0, random.choice([1, 2, 10, 100]), rows)
        ids = random.permutation(2**20)[:rows]
        state = state_of_columns(params, no_values(rows), random.integers(1, 51, rows), times, ids)
        assert (state.watermarks != NO_WATERMARK).sum() >= 3
        assert columns_of(decode_one(wire.encode(state))) == columns_of(state)


def no_values(rows: int) -> list[None]:
    return [None] * rows


def test_the_capacity_is_part_of_the_bytes() -> None:
    state = state_of(SketchParams(max_weight=9), [(1, 1, 1, 1)])
    smaller = replace(state, params=state.params.with_capacity(7))
    assert wire.encode(smaller) != wire.encode(state)
    assert wire.peek(wire.encode(smaller)).fingerprint == wire.peek(wire.encode(state)).fingerprint


@settings(max_examples=150, deadline=None, derandomize=True)
@given(states())
def test_what_is_read_at_once_is_what_is_read_with_care(state: SketchState) -> None:
    blob = wire.encode(state)
    careful = decode_one(blob, check_plausible=False)
    assert columns_of(decode_one(blob)) == columns_of(careful) == columns_of(state)


def test_a_plain_sketch_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, rows = np.random.default_rng(1), 3_000
    sketch = DecaySketch(SketchParams(max_weight=999, id_bits=45, capacity=100))
    sketch.update(
        np.round(draw.normal(size=rows), 2), draw.integers(1, 1_000, rows),
        draw.integers(0, 10**6, rows), draw.integers(0, 1 << 45, rows),
    )  # fmt: skip
    expected, blob = columns_of(sketch.state()), sketch.to_bytes()
    assert np.count_nonzero(sketch.state().watermarks != NO_WATERMARK) > 3
    monkeypatch.setattr("decaysketch.querytime.wire.decode_rows", None)
    assert columns_of(decode_one(blob)) == expected


def test_watermarks_that_discarded_ties_are_believed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values, weights, times, ids = web_log(60_000, 5)
    params = SketchParams(max_weight=999, capacity=3000, value_type="int64")
    state = state_of_columns(params, values, weights, times, ids)
    set_ = state.watermarks[state.watermarks != NO_WATERMARK]
    assert min(np.count_nonzero(times == mark) for mark in set_) > 60
    blob = wire.encode(state)
    monkeypatch.setattr("decaysketch.querytime.wire.decode_rows", None)
    assert columns_of(decode_one(blob)) == columns_of(state)
