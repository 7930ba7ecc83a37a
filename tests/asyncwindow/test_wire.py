"""Bytes of the samplers: the specification in plain Python, and hostile fields."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from asyncwindow import elements, wire_reference
from hypothesis import HealthCheck, given, settings
from support.examples import Case, cases
from support.rows import for_each
from wire.reference import with_checksum

import decaysketch as ds
from decaysketch.asyncwindow import (
    MedianParams,
    MedianSampler,
    SumParams,
    SumSampler,
)
from decaysketch.asyncwindow import wire as asyncwindow_wire
from decaysketch.core.codec.writing import encode_rows

LAW = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
PARAMS = SumParams(max_sum=1000, capacity=40, max_window=500, seed=9)
FLOATS = MedianParams(max_count=1000, capacity=40, seed=9)


def sampler() -> SumSampler:
    made = SumSampler(PARAMS)
    made.update([3, 900, 3], [100, 100, 90], [0, 1, 2], source="s")
    made.advance(400)
    return made


BLOB = wire_reference.blob_of(sampler().state())


@LAW
@given(cases("sum", "median"))
def test_the_specification_in_plain_python_gives_the_same_bytes(case: Case) -> None:
    made = case.fed()
    assert wire_reference.blob_of(made.state()).to_bytes() == made.to_bytes()


def test_bytes_of_an_element() -> None:
    """8 for the key, and about 2 for time and value."""
    rng = np.random.default_rng(1)
    made = SumSampler(SumParams(max_sum=1 << 30, capacity=2000))
    made.update(rng.integers(1, 1000, 50_000), np.arange(50_000) // 10)
    assert len(made.to_bytes()) < 10.5 * len(made)


def refused(blob: bytes, *expected: Any, kind: Any = SumSampler) -> None:
    with pytest.raises(ds.CorruptSketchError) as caught:
        kind.from_bytes(blob)
    for text in expected:
        assert str(text) in str(caught.value)


class TestHostile:
    def test_the_untouched_bytes_are_fine(self) -> None:
        assert BLOB.to_bytes() == sampler().to_bytes()

    def test_the_other_family(self) -> None:
        refused(BLOB.to_bytes(), "family 3", "expected 4", kind=MedianSampler)
        refused(ds.DecaySketch(ds.SketchParams(max_weight=1)).to_bytes(), "family 1")

    @for_each(
        "change, expected",
        [
            ({"capacity": 0}, ("capacity", "0")),
            ({"bound": 0}, ("max_sum", "0")),
            ({"bound": (1 << 53) + 1}, ("max_sum",)),
            ({"max_window": (1 << 62) + 1}, ("largest window",)),
            ({"choice": 11}, ("eager_from_level", "11")),
            ({"time_unit": "Sec"}, ("time_unit", "Sec")),
            ({"fingerprint": bytes(8)}, ("fingerprint", "0" * 16)),
            ({"has_clock": 2}, ("clock", "2")),
            ({"clock": 2**62 + 1}, ("clock",)),
            ({"required": 1}, ()),
            ({"required": 2}, ()),
            ({"marked": 1 << 11}, ("levels with a watermark",)),
            ({"watermarks": {0: -101}}, ("watermark of level 0 is -101", "later than -101")),
            ({"count": 40 * 11 + 1}, ("441 rows", "allows 440")),
            ({"count": 4}, ()),
            ({"count": 2}, ()),
            ({"first_time": 2**62 + 1}, ("first time",)),
        ],
    )
    def test_fields(self, change: dict[str, Any], expected: tuple[Any, ...]) -> None:
        refused(BLOB.but(**change), *expected)

    @pytest.mark.parametrize(
        ("rows", "expected"),
        [
            ([(90, 5, 1), (90, 6, 1)], ("row 1",)),
            ([(90, 5, 1), (90, 5, 2)], ("row 1",)),
            ([(90, 5, 1), (90, 5, 1)], ("telling the rows apart",)),
            ([(90, 5, 1), (85, 6, 1), (80, 5, 1)], ("key 5 is repeated",)),
            ([(90, 5, 0)], ("value 0",)),
            ([(90, 5, 1001)], ("value 1001",)),
            ([(-101, 5, 1)], ("time -101", "watermark -101")),
        ],
    )
    def test_rows(self, rows: list[Any], expected: tuple[Any, ...]) -> None:
        changed = replace(BLOB, rows=rows)
        refused(changed.to_bytes(), *expected)

    @pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 0x7FF0000000000000])
    def test_values_of_a_median(self, value: int) -> None:
        blob = wire_reference.blob_of(MedianSampler(FLOATS).state())
        raw = replace(blob, rows=[(1, 5, value)], choice=0).packed()  # as for int64, with
        integers = replace(blob, choice=0, rows=[(1, 5, value)], columns=raw)
        refused(replace(integers, choice=1).to_bytes(), kind=MedianSampler)

    def test_watermarks_that_rise_with_a_nested_level(self) -> None:
        blob = wire_reference.blob_of(MedianSampler(FLOATS).state())
        refused(blob.but(watermarks={0: 5, 1: 6}), "watermark of level 1 is 6", kind=MedianSampler)
        # Levels of a sum that stand by themselves may.
        sums = replace(BLOB, capacity=1, watermarks={0: 5, 1: 6}, clock=None)
        SumSampler.from_bytes(sums.to_bytes())

    def test_more_rows_than_the_capacity(self) -> None:
        made = SumSampler(PARAMS)
        made.update(np.ones(40, np.int64), np.arange(40), np.arange(40), source="s")
        blob = wire_reference.blob_of(made.state())
        found = np.bincount(made.state().levels)[0]
        refused(blob.but(capacity=int(found) - 1), f"{found} rows later", f"is {found - 1}")

    @pytest.mark.parametrize("kind", [SumSampler, MedianSampler])
    def test_no_blob_without_rows_can_silence_a_level(self, kind: Any) -> None:
        params: Any = PARAMS if kind is SumSampler else FLOATS
        blob = wire_reference.blob_of(kind(params).state())
        for level in range(params.levels):
            marks = dict.fromkeys(range(level + 1), 2**61)
            refused(blob.but(watermarks=marks), f"level {level}", "a chance of", kind=kind)

    @pytest.mark.parametrize("params", [
        SumParams(max_sum=10**9, capacity=1537, max_window=3600),
        MedianParams(max_count=10**6, capacity=1537),
    ])  # fmt: skip
    def test_no_blob_without_rows_can_silence_all_levels_at_once(self, params: Any) -> None:
        """Watermarks that are all equal leave no level above to judge them by."""
        kind: Any = SumSampler if params.weighted else MedianSampler
        blob = wire_reference.blob_of(kind(params).state())
        marks = dict.fromkeys(range(params.levels + 1), 1 << 62)
        expected = (f"level {params.levels}, the coarsest", "1538 elements or more")
        refused(blob.but(watermarks=marks), *expected, kind=kind)

    def test_values_beside_those_that_are_weights(self) -> None:
        """A sum's values are its weights; the column of values says that all are missing."""
        made = SumSampler(SumParams(max_sum=1000, capacity=10))
        made.update([5, 6], [1, 2], [1, 2], source="a")
        packed = asyncwindow_wire._rows_of(made.state())
        rows = encode_rows(packed, "int64")
        other = encode_rows(packed._replace(value_keys=np.array([123456789, -7])), "int64")
        body = made.to_bytes()[:-4]
        assert body.endswith(rows)
        with pytest.raises(ds.CorruptSketchError, match="value"):
            SumSampler.from_bytes(with_checksum(body[: -len(rows)] + other))

    def test_an_honest_cut_is_plausible(self) -> None:
        """Every element at one time: all but the coarsest levels overflow there."""
        for params in (replace(PARAMS, capacity=30), replace(FLOATS, capacity=30)):
            for seed in range(20):
                made: Any = elements.sampler_of(replace(params, seed=seed))
                values = np.ones(20_000, np.int64 if params.weighted else np.float64)
                made.update(values, np.full(20_000, 7))
                assert type(made).from_bytes(made.to_bytes()) == made

    def test_an_overflow_of_all_levels_is_read_back(self) -> None:
        """An honest builder whose windows hold more than it was told."""
        made = SumSampler(SumParams(max_sum=4, capacity=30))
        made.update(np.full(1000, 4), np.arange(1000))
        assert SumSampler.from_bytes(made.to_bytes()) == made
        with pytest.raises(ds.UnanswerableQueryError):
            made.sum(ds.decay.none(), now=1000)

    def test_other_parameters_are_named(self) -> None:
        other = replace(PARAMS, seed=10, max_window=7)
        with pytest.raises(ds.IncompatibleSketchError) as fault:
            SumSampler.from_bytes(BLOB.to_bytes(), params=other)
        assert set(fault.value.fields) == {"seed", "max_window"}
        smaller = replace(PARAMS, capacity=7)
        assert SumSampler.from_bytes(BLOB.to_bytes(), params=smaller).params == PARAMS

    def test_memory_is_bounded_by_the_length_of_the_bytes(self) -> None:
        params = SumParams(max_sum=1 << 20, capacity=1 << 20)
        blob = wire_reference.blob_of(SumSampler(params).state())
        hostile = blob.but(count=20 << 20, first_time=0, columns=bytes(1000))
        refused(hostile)
        tracemalloc.start()
        refused(hostile)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20
