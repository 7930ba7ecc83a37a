"""The least and largest values of windows: hand-made cases, every window of streams, real logs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from delivery_logs import REAL_LOGS
from hypothesis import given, settings
from hypothesis import strategies as st

import decaysketch as ds
from decaysketch.extremes import ExtremesParams, ExtremesSketch, reference

NONE = ds.decay.none()


def window(width: float) -> Any:
    return ds.decay.window(width)


def made(values: Any, times: Any, **fields: Any) -> ExtremesSketch:
    sketch = ExtremesSketch(ExtremesParams(**fields))
    sketch.update(values, 1, times)
    return sketch


# ------------------------------------------------------------------------------- the definition


@pytest.mark.parametrize(
    ("time", "newest", "capacity", "span"),
    [
        (100, 100, 4, (100, 100)),
        (97, 100, 4, (97, 97)),
        (96, 100, 4, (96, 96)),  # four spans of 1 away; of 2, two
        (92, 100, 4, (92, 93)),
        (94, 100, 4, (94, 94)),  # its span of 2 is number 47, and that of 100 number 50
        (0, 100, 4, (0, 15)),
        (-1, 100, 4, (-32, -1)),
        (5, 100, 1, (0, 63)),
        (99, 100, 1, (96, 99)),
    ],
)
def test_spans_by_hand(time: int, newest: int, capacity: int, span: tuple[int, int]) -> None:
    assert reference.span_of(time, newest, capacity) == span


def test_the_state_by_hand() -> None:
    rows = [(1, 50), (2, 10), (3, 40), (4, 40), (5, 20), (6, 30)]
    #                  low            a copy of 40 that is later  low
    assert reference.state(rows, 100) == [(6, 30), (5, 20), (4, 40), (2, 10), (1, 50)]
    # As of 6 with a capacity of 1: spans {1}, {2, 3}, {4, 5}, {6}.
    assert reference.state(rows, 1) == [(6, 30), (5, 20), (4, 40), (2, 10), (1, 50)]
    assert reference.state([(2, 10), (3, 9), (8, 0)], 1) == [(8, 0), (2, 10)]


@given(
    st.lists(st.tuples(st.integers(-300, 300), st.integers(-9, 9)), max_size=40),
    st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**31),
)  # fmt: skip
@settings(max_examples=150, deadline=None, derandomize=True)
def test_parts_and_smaller_capacities_give_the_state_of_all(
    rows: list[tuple[int, int]], capacity: int, less: int, seed: int
) -> None:
    """What the definition promises, of the definition itself."""
    half = len(rows) // 2
    parts = [reference.state(part, capacity) for part in (rows[:half], rows[half:], rows[::2])]
    together = [row for part in parts for row in part]
    assert reference.state(together, capacity) == reference.state(rows, capacity)
    least = min(less, capacity)
    assert reference.state(parts[0], least) == reference.state(rows[:half], least)


# ---------------------------------------------------------------------------------------- answers


def test_answers_by_hand() -> None:
    sketch = made([20.5, 24.0, 19.0, 23.0], [100, 130, 160, 150])
    found = sketch.max(window(30), now=160)
    assert (found.value, found.lower, found.upper, found.exact) == (24.0, 24.0, 24.0, True)
    assert sketch.max(window(29), now=160).value == 23.0
    assert sketch.max(window(29), now=180).value == 19.0
    assert sketch.min(window(60), now=160).value == 19.0
    assert sketch.highest(NONE) == (24.0, 130)
    assert sketch.lowest(NONE) == (19.0, 160)
    assert sketch.max("exponential(half_life=1s)", now=160).value == 24.0  # which never reaches 0
    assert sketch.max(NONE).now == 160


def test_where_nothing_is_there() -> None:
    empty, later = made([], []), made([5.0], [100])
    for found in (empty.max(NONE, now=5), later.min(window(3), now=200)):
        assert math.isnan(found.value)
        assert (found.exact, found.rows) == (True, 0)
    assert empty.highest(NONE, now=5) is None
    assert later.lowest(window(3), now=200) is None
    with pytest.raises(ds.ParameterError, match="now is not given"):
        empty.max(NONE)


def test_earlier_than_the_newest_row_is_refused() -> None:
    """The largest of the day before is gone once it was reached again."""
    sketch = made([9.0, 10.0], [100, 200])
    with pytest.raises(ds.UnanswerableQueryError, match=r"now is 150.*newest row is of time 200"):
        sketch.max(NONE, now=150)


def test_a_window_that_begins_inside_of_a_span() -> None:
    sketch = made([9, 7, 5, 1], [0, 7, 8, 100], capacity=4, value_type="int64")
    found = sketch.max(window(96), now=100)  # since 4; of 0..15 the 9 is kept alone
    assert (found.value, found.lower, found.upper, found.exact) == (1.0, 1.0, 9.0, False)
    assert found.caveats == ("span-cut",)
    assert sketch.max(window(100), now=100).value == 9.0
    assert sketch.max(window(84), now=100).exact  # since 16
    with pytest.raises(ds.UnanswerableQueryError, match=r"any from 1 to 9: the window begins"):
        sketch.highest(window(96), now=100)
    assert sketch.lowest(window(96), now=100) == (1, 100)


STREAMS = {
    "falls": lambda n, rng: -np.arange(n),
    "rises": lambda n, rng: np.arange(n),
    "walks": lambda n, rng: np.cumsum(rng.integers(-3, 4, n)),
    "heavy": lambda n, rng: np.rint(np.exp(3 * rng.normal(size=n))).astype(np.int64),
    "spikes": lambda n, rng: np.where(rng.random(n) < 0.003, 9_000, rng.integers(0, 50, n)),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("capacity", [8, 100])
def test_every_window_of_a_stream(name: str, capacity: int) -> None:
    """Ends are sure; what is exact is the answer; and what is not is that of a window whose
    beginning is off by less than 1 / (capacity - 1) of its width."""
    rng, n = np.random.default_rng(7), 4_000
    values = STREAMS[name](n, rng).astype(np.int64)
    times = 10**9 + np.cumsum(rng.integers(0, 40, n))
    order = rng.permutation(n)
    sketch = made(values[order], times[order], capacity=capacity, value_type="int64")
    newest = int(times[-1])
    cut = 0
    for width in np.unique(np.geomspace(1, newest - times[0] + 9, 150).astype(np.int64)).tolist():
        for now in (newest, newest + 13):
            since = now - width
            for ask, best in ((sketch.max, np.max), (sketch.min, np.min)):
                inside = values[times >= since]
                found = ask(window(width), now=now)
                if not len(inside):
                    assert math.isnan(found.value)
                    continue
                truth = best(inside)
                assert found.lower <= truth <= found.upper
                assert (found.value == truth) or not found.exact
                if not found.exact:
                    cut += 1
                    off = width / (capacity - 1)
                    wide = best(values[times >= since - off])
                    narrow = best(values[times >= since + off])
                    assert min(wide, narrow) <= found.lower
                    assert found.upper <= max(wide, narrow)
    assert cut or name in ("rises", "spikes", "heavy")
    assert len(sketch) <= 2 * 65 * capacity


def test_it_stays_small_where_values_fall_for_ever() -> None:
    sketch = ExtremesSketch(ExtremesParams(capacity=16, time_unit="us"))
    for start in range(0, 10**6, 10**5):
        part = np.arange(start, start + 10**5)
        sketch.update(-part.astype(float), 1, 1_750_000_000_000_000 + 10**6 * part)
    assert len(sketch) < 16 * 42  # spans of ages up to 2^40
    assert sketch.nbytes < 1 << 20
    assert sketch.max(NONE).value == 0.0


# ----------------------------------------------------------------------------------------- input


def test_what_is_refused_changes_nothing() -> None:
    sketch = made([1.0], [5])
    before = sketch.to_bytes()
    for fault, arguments in (
        (r"values\[1\] is missing; expected a number", ([1.0, None], 1, [1, 2])),
        (r"values\[0\] is missing", (None, 1, 3, 3)),
        ("values.*nan", ([math.nan], 1, [3])),
        ("weights", ([1.0], 2, [3])),
        ("timestamps", ([1.0], 1, [1 << 63])),
        ("ids", ([1.0], 1, [3], [-1])),
        ("unequal lengths", ([1.0, 2.0], 1, [3])),
    ):
        with pytest.raises(ds.ObservationError, match=fault):
            sketch.update(*arguments)
        assert sketch.to_bytes() == before
    for fault, params in (
        ("copies is 2", {"copies": 2}),
        ("value_type is 'label', and labels have no order", {"value_type": "label"}),
    ):
        with pytest.raises(ds.ParameterError, match=fault):
            ExtremesParams(**params)  # type: ignore[arg-type]
    with pytest.raises(ds.ParameterError, match="takes ExtremesParams"):
        ExtremesSketch(ds.SketchParams())  # type: ignore[arg-type]
    with pytest.raises(ds.ParameterError, match=r"accuracy is 0\.02, which is one of sums"):
        ExtremesParams.from_dict({"accuracy": 0.02})
    with pytest.raises(ds.ParameterError, match="epsilon is 2"):
        ExtremesParams.for_window(2)
    with pytest.raises(ds.ParameterError, match="estimator is 'best'"):
        sketch.at(NONE, estimator="best")


def test_weight_0_is_no_row_and_others_are_alike() -> None:
    sketch = ExtremesSketch(ExtremesParams(max_weight=9))
    sketch.update([1.0, 7.0, 3.0], [9, 0, 1], [10, 20, 30])
    assert sketch.max(NONE).value == 3.0
    assert sketch == made([1.0, 3.0], [10, 30], max_weight=9)


def test_late_clocks_are_refused_and_counted() -> None:
    sketch = ExtremesSketch(ExtremesParams())
    sketch.update([1.0, 7.0], 1, [10, 99], not_after=50)
    assert (sketch.stats().fed, sketch.stats().too_late) == (2, 1)
    assert sketch.max(NONE).value == 1.0


def test_verdicts() -> None:
    sketch = made([9.0, 5.0], [10, 30])
    found = sketch.verdicts([9.0, 8.0, 7.0, 6.0], 1, [10, 20, 25, 40])
    # Held; ruled out by 9 and the low 5? 8 and 7 are neither larger than all later nor smaller.
    assert found.tolist() == [1, 0, 0, 0]
    assert sketch.verdicts([5.5, 8.0], 1, [20, 25]).tolist() == [2, 0]


# ------------------------------------------------------------------------------------- real logs

LOGS = sorted(REAL_LOGS.glob("*.parquet"))


@pytest.mark.skipif(not LOGS, reason="the folder of logs is absent")
def test_windows_of_real_logs() -> None:
    exact = 0
    for path in LOGS:
        table = pq.read_table(path, columns=["event_us", "value"]).slice(0, 300_000)
        table = table.filter(pc.is_finite(table["value"].cast("float64"))).drop_null()
        times, values = table["event_us"].to_numpy(), table["value"].to_numpy().astype(np.float64)
        if not len(times):
            continue
        sketch = ExtremesSketch(ExtremesParams(time_unit="us"))
        sketch.update(values, 1, times)
        newest = int(times.max())
        for hours in (0.1, 1, 6, 24, 24 * 7):
            width = int(hours * 3_600_000_000)
            truth = values[times >= newest - width]
            highest, lowest = sketch.max(window(width)), sketch.min(window(width))
            assert highest.lower <= truth.max() <= highest.upper
            assert lowest.lower <= truth.min() <= lowest.upper
            exact += highest.exact + lowest.exact
    assert exact > 5 * len(LOGS)  # of 10 each
