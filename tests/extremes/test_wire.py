"""Bytes of extremes: the specification in plain Python, and hostile fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from extremes.wire_reference import Blob, blob_of
from hypothesis import HealthCheck, given, settings
from support.examples import Case, cases
from support.rows import for_each
from wire.reference import MISSING, with_checksum

import decaysketch as ds
from decaysketch.extremes import ExtremesParams, ExtremesSketch

LAW = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
PARAMS = ExtremesParams(capacity=2, value_type="int64")


def of(sketch: ExtremesSketch) -> Blob:
    return blob_of(sketch.state(), ExtremesSketch(sketch.params).to_bytes())


def made(values: Any = (9, 1, 5), times: Any = (10, 20, 30)) -> ExtremesSketch:
    sketch = ExtremesSketch(PARAMS)
    sketch.update(list(values), 1, list(times))
    return sketch


@LAW
@given(cases("extremes"))
def test_the_specification_in_plain_python_gives_the_same_bytes(case: Case) -> None:
    sketch = case.fed()
    assert of(sketch).to_bytes() == sketch.to_bytes()


def test_bytes_of_a_row() -> None:
    """Measured readings: 8 for the value, and about 2 for the time."""
    sketch = ExtremesSketch(ExtremesParams(time_unit="us"))
    times = 1_750_000_000_000_000 + 20_000_000 * np.arange(3_000)
    sketch.update(80 - 0.1 * np.arange(3_000) ** 0.5, 1, times)
    assert 1_500 < len(sketch) < 3_000
    assert len(sketch.to_bytes()) < 12 * len(sketch)


def refused(blob: bytes, *expected: Any) -> None:
    with pytest.raises(ds.CorruptSketchError) as caught:
        ExtremesSketch.from_bytes(blob)
    for text in expected:
        assert str(text) in str(caught.value)


class TestHostile:
    def test_the_untouched_bytes_are_fine(self) -> None:
        assert of(made()).to_bytes() == made().to_bytes()

    def test_another_family(self) -> None:
        refused(ds.DecaySketch(ds.SketchParams()).to_bytes(), "family 1", "expected 6")

    @for_each(
        "change, expected",
        [
            ({"capacity": 0}, ("capacity", "0")),
            ({"count": 261}, ("261 rows", "allows 260")),
            ({"count": 4}, ()),
            ({"count": 2}, ()),
            ({"first_time": 2**62 + 1}, ("first time",)),
            ({"rest": b"\0"}, ("1 bytes between",)),
            ({"rows": [(30, 5), (30, 5)]}, ("row 1",)),
            ({"rows": [(30, 5), (30, 6)]}, ("row 1",)),
            ({"rows": [(30, 5), (-(2**62) - 1, 9)]}, ("time of row 1",)),
            # Later ones are larger and smaller; one span has two of a kind.
            ({"rows": [(30, 9), (20, 1), (10, 5)]}, ("3 rows, of which 2",)),
            ({"rows": [(900, 0), (6, 7), (5, 8)]}, ("3 rows, of which 2",)),
            ({"packed": [(30, 5, 2, MISSING)], "count": 1, "first_time": 30}, ("row 0",)),
            ({"packed": [(30, 5, 1, 7)], "count": 1, "first_time": 30}, ("row 0",)),
            ({"packed": [(30, MISSING, 1, MISSING)], "count": 1, "first_time": 30}, ("row 0",)),
        ],
    )
    def test_fields(self, change: dict[str, Any], expected: tuple[Any, ...]) -> None:
        refused(of(made()).but(**change), *expected)

    @pytest.mark.parametrize("key", [2**63 - 1, -(2**63), 0x7FF0000000000000, -1])
    def test_keys_of_no_finite_float(self, key: int) -> None:
        blob = of(ExtremesSketch(ExtremesParams()))
        refused(blob.but(rows=[(1, key)]), f"value key {key}")

    def test_parameters_of_no_extremes(self) -> None:
        """Several copies, and labels, which have no order."""
        for params, expected in (
            (ds.SketchParams(copies=2), "copies"),
            (ds.SketchParams(value_type="label"), "value_type is 'label'"),
        ):
            blob = bytearray(ds.DecaySketch(params).to_bytes()[:-4])
            blob[5] = 6
            refused(with_checksum(bytes(blob)), expected)

    def test_by_fingerprint(self) -> None:
        sketch = made()
        blob = sketch.to_bytes(embed_params=False)
        assert len(blob) < len(sketch.to_bytes())
        assert ExtremesSketch.from_bytes(blob, params=PARAMS) == sketch
        with pytest.raises(ds.IncompatibleSketchError, match="params"):
            ExtremesSketch.from_bytes(blob)
        with pytest.raises(ds.IncompatibleSketchError, match="seed"):
            ExtremesSketch.from_bytes(sketch.to_bytes(), params=ExtremesParams(seed=1))
