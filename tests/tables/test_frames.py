"""Frames of any library: the same observations give the same sketch, what is missing is missing,
and what cannot be taken is refused with its row and its cure."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.rows import for_each

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, MedianSampler
from decaysketch.ecm import ECMCollection, ECMParams
from decaysketch.errors import OtherUnitError

PARAMS = ds.SketchParams(max_weight=1, id_bits=46, capacity=100, time_unit="ms")
STARTS = 1_767_225_600  # 2026-01-01
BASE = pd.DataFrame(
    {
        "t": pd.to_datetime([STARTS, STARTS + 60, STARTS + 60, STARTS], unit="s", utc=True),
        "dev": ["a", "a", "b", "a"],
        "n": [1, 2, 1, 1],
        "v": [20.0, None, 22.0, 20.0],
    }
)
COLUMNS: dict[str, Any] = {"value": "v", "time": "t", "id": ["dev", "n"]}


def _in_duckdb(base: pd.DataFrame) -> Any:
    return duckdb.sql("select * from base")


FRAMES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas, ns": lambda base: base,
    "pandas, other types": lambda base: base.assign(
        t=base.t.dt.as_unit("us"), v=base.v.astype("Float64"), dev=base.dev.astype("category"),
        n=base.n.astype("category"),
    ),
    "pandas, no zone, gaps": lambda base: base.assign(
        t=base.t.dt.tz_localize(None), n=base.n.astype(float), v=base.v.astype("float32"),
    ),
    "pandas, of Arrow": lambda base: base.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame,
    "polars, other types": lambda base: pl.DataFrame(base).with_columns(
        pl.col("dev").cast(pl.Categorical), pl.col("t").dt.replace_time_zone(None),
        pl.col("n").cast(pl.UInt8), pl.col("v").fill_null(float("nan")),
    ),
    "polars, in chunks": lambda base: pl.concat(
        [pl.DataFrame(base[i : i + 1]).with_columns(pl.col("dev").cast(pl.Categorical))
         for i in range(4)],
        rechunk=False,
    ),
    "polars, an enumeration": lambda base: pl.DataFrame(base).with_columns(
        pl.col("dev").cast(pl.Enum(["b", "a"])), pl.col("v").cast(pl.Decimal(10, 3)),
    ),
    "Arrow": lambda base: pa.Table.from_pandas(base),
    "Arrow, a batch": lambda base: pa.Table.from_pandas(base).to_batches()[0],
    "DuckDB": _in_duckdb,
}  # fmt: skip


@for_each("library", FRAMES)
def test_the_same_observations_give_the_same_sketch(library: str) -> None:
    expected = ds.DecaySketch(PARAMS)
    ids = ds.observation_ids(["a", "a", "b"], [1, 2, 1], params=PARAMS)
    times = np.array([STARTS, STARTS + 60, STARTS + 60]) * 1000
    expected.update(np.ma.masked_array([20.0, 0.0, 22.0], [0, 1, 0]), 1, times, ids)
    frame = FRAMES[library](BASE)
    assert ds.DecaySketch.from_frame(frame, params=PARAMS, **COLUMNS) == expected
    expected.update_frame(FRAMES[library](BASE), **COLUMNS)  # copies
    assert len(expected) == 3


def test_values_of_every_type_and_missing_ones() -> None:
    kinds: list[Any] = [
        pa.array([True, None, False]), pa.array([Decimal("1.0"), None, Decimal(0)]),
        pa.array([1, None, 0], pa.uint8()), pa.array([1.0, float("nan"), 0.0]),
        pa.array([1, None, 0], pa.float16()),
    ]  # fmt: skip
    for values in kinds:
        frame = pa.table({"t": [1, 2, 3], "id": [1, 2, 3], "v": values})
        sketch = ds.DecaySketch.from_frame(frame, value="v", time="t", id="id", time_unit="s")
        assert sketch.mean("none").value == 0.5
        assert sketch.count("none").value == 3
    nothing = pd.DataFrame({"t": [1, 2], "id": [1, 2], "v": [pd.NaT, pd.NaT]})
    sketch = ds.DecaySketch.from_frame(nothing, value="v", time="t", id="id", time_unit="s")
    assert np.isnan(sketch.mean("none").value)


def test_uuids_are_ids_as_texts_and_as_bytes() -> None:
    names = [uuid.UUID(int=1), uuid.UUID(int=2)]
    texts = pa.table({"t": [1, 2], "id": [str(each) for each in names]})
    typed = pa.table({"t": [1, 2], "id": pa.array([n.bytes for n in names], pa.uuid())})
    packed = pa.table({"t": [1, 2], "id": pa.array([n.bytes for n in names], pa.binary(16))})
    built = [
        ds.DecaySketch.from_frame(each, time="t", id="id", params=PARAMS)
        for each in (texts, typed, packed)
    ]
    assert built[0] == built[1]
    assert len(built[2]) == 2
    plain = pl.DataFrame({"t": [1, 2], "id": [n.bytes for n in names]})
    assert ds.DecaySketch.from_frame(plain, time="t", id="id", params=PARAMS) == built[2]


@pytest.mark.parametrize(
    ("column", "gap", "row"), [("t", pd.NaT, 2), ("dev", None, 1), ("n", np.nan, 3)]
)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_rows_without_a_time_or_an_id(library: str, column: str, gap: Any, row: int) -> None:
    base = BASE.copy()
    base[column] = [gap if place == row else each for place, each in enumerate(base[column])]
    frame = base if library == "pandas" else pl.DataFrame(base)
    sketch = ds.DecaySketch(PARAMS)
    with pytest.raises(ds.ObservationError, match="drop_nulls=True leaves such rows out") as fault:
        sketch.update_frame(frame, **COLUMNS)
    assert (fault.value.column, fault.value.row) == (column, row)
    assert str(fault.value).startswith(f"{column}[{row}] is missing; ")
    assert len(sketch) == 0
    sketch.update_frame(frame, **COLUMNS, drop_nulls=True)
    assert sketch == ds.DecaySketch.from_frame(BASE.drop(index=row), params=PARAMS, **COLUMNS)
    assert (sketch.stats().fed, sketch.stats().left_out) == (3, 1)
    nothing = base.assign(t=pd.NaT)
    sketch.update_frame(nothing, **COLUMNS, drop_nulls=True)
    with pytest.raises(ds.ObservationError):  # of what is refused nothing is counted
        sketch.update_frame(base.assign(n=1.5), **COLUMNS, drop_nulls=True)
    assert (sketch.stats().fed, sketch.stats().left_out) == (3, 5)
    events = ECMCollection(ECMParams(width=64, depth=3, slots=8, time_unit="ms"))
    events.update_frame(nothing, time="t", key="dev", drop_nulls=True)
    assert events.stats().left_out == 4


def test_the_unit_is_that_of_the_times() -> None:
    for frame, unit in (
        (BASE, "ns"), (pl.DataFrame(BASE).with_columns(pl.col("t").dt.cast_time_unit("us")), "us"),
        (BASE.assign(t=BASE.t.dt.as_unit("s")), "s"),
        (pl.DataFrame(BASE).with_columns(pl.col("t").dt.date()), "d"),
    ):  # fmt: skip
        sketch = ds.DecaySketch.from_frame(frame, **COLUMNS)
        assert sketch.params == ds.SketchParams(
            max_weight=1, id_bits=56, capacity=19_208, time_unit=unit
        )
    small = ds.DecaySketch.from_frame(BASE, accuracy=0.05, time_unit="min", **COLUMNS)
    assert (small.params.capacity, small.params.time_unit) == (3_074, "min")
    assert ds.DecaySketch.from_frame(BASE, accuracy="5%", time_unit="min", **COLUMNS) == small
    assert small.count("window(30s)").value == 2
    with pytest.raises(ds.ParameterError, match=r"has no unit.*; in 'ms' the newest would be 2026"):
        ds.DecaySketch.from_frame(pa.table({"t": [STARTS * 1000], "id": [1]}), time="t", id="id")


def test_times_that_are_texts_are_read_by_their_zone() -> None:
    said = {"t": ["2026-01-01 00:00:00", "2026-01-01T00:01:00+00:00"], "id": [1, 2]}
    frame, typed = pd.DataFrame(said), pl.DataFrame(said)
    asked: dict[str, Any] = {"time": "t", "id": "id", "params": PARAMS}
    expected = ds.DecaySketch.from_frame(
        pa.table({"t": [STARTS * 1000, STARTS * 1000 + 60_000], "id": [1, 2]}), **asked
    )
    for texts in (frame, typed, frame.astype({"t": "category"})):
        assert ds.DecaySketch.from_frame(texts, time_zone="UTC", **asked) == expected
        with pytest.warns(ds.TimeZoneWarning, match="without a time zone in column 't'"):
            assert ds.DecaySketch.from_frame(texts, **asked) == expected
        berlin = ds.DecaySketch.from_frame(texts, time_zone="Europe/Berlin", **asked)
        assert berlin.stats().oldest == (STARTS - 3600) * 1000
    made = ds.DecaySketch.from_frame(typed, time="t", id="id", time_zone="UTC")
    assert made.params.time_unit == "us"


def test_clocks_that_were_not_set_are_said() -> None:
    table = pa.table({"t": [0, STARTS, STARTS + 1], "id": [1, 2, 3]})
    asked: dict[str, Any] = {"time": "t", "id": "id", "time_unit": "s"}
    with pytest.warns(ds.UnlikelyClockWarning, match="1 of 3 times lies outside the years 1990"):
        assert len(ds.DecaySketch.from_frame(table, **asked)) == 3
    ds.DecaySketch.from_frame(pa.table({"t": [0, 5], "id": [1, 2]}), **asked)  # a simulation


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_integers_of_another_unit_are_refused_unless_they_are_few(unit: str) -> None:
    frame = pl.DataFrame({"t": [STARTS * 10**6 + k for k in range(300)], "id": range(300)})
    read: dict[str, Any] = {"time": "t", "id": "id"}
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, time_unit=unit))
    with pytest.raises(
        OtherUnitError, match=r"in us it would be 2026.*; give the unit with time_unit .*=False"
    ):
        sketch.update_frame(frame, **read)
    assert len(sketch) == 0
    sketch.update_frame(frame, **read, check_units=False)
    assert len(sketch) == 300
    with pytest.warns(ds.DisagreeingCopiesWarning, match="300 readings were replaced"):
        sketch.update_frame(frame, **read, column_unit="us")
    few = frame.with_columns(t=pl.when(pl.col("id") < 2).then(pl.col("t")).otherwise(pl.col("id")))
    ds.DecaySketch(sketch.params).update_frame(few, **read)
    assert len(ds.DecaySketch.from_frame(frame, time_unit="us", **read)) == 300


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_an_id_that_lacks_a_column_is_said(library: str) -> None:
    short = BASE if library == "pandas" else pl.DataFrame(BASE)
    read: dict[str, Any] = COLUMNS | {"id": "dev"}
    sketch = ds.DecaySketch(PARAMS)
    with pytest.warns(ds.DisagreeingCopiesWarning, match="^3 different readings have 2 ids") as own:
        sketch.update_frame(short, **read)
    assert len(sketch) == 2
    with pytest.warns(
        ds.DisagreeingCopiesWarning, match=r"\(of 'dev'\).* or the time 't'\. If they"
    ) as made:
        assert ds.DecaySketch.from_frame(short, params=PARAMS, **read) == sketch
    assert [len(own), len(made)] == [1, 1]
    assert {each.filename for each in (*own, *made)} == {__file__}  # the line that gave the frame


def test_families_read_frames_by_what_their_input_is() -> None:
    fixed = ds.IntegralDecaySketch.from_frame(BASE, decay="window(1h)", params=PARAMS, **COLUMNS)
    assert fixed.count().value == 3
    medians = MedianSampler.from_frame(
        BASE, params=MedianParams(capacity=9, max_count=100, time_unit="ms"), value="v",
        time="t", source="dev", sequence="n",
    )  # fmt: skip
    assert medians.median(ds.decay.none()).value == 20  # the row without a value is no element
    events = ECMCollection.from_frame(
        BASE, params=ECMParams(width=64, depth=3, slots=8, time_unit="ms"), time="t", key="dev",
        weight=2,
    )  # fmt: skip
    assert events.key_count("a", ds.decay.none()).value == 6


@for_each(
    "frame, given, named",
    [
        ([1, 2], COLUMNS, "frame is a list; expected something with __arrow_c_stream__"),
        (BASE.iloc[[3, 1]], COLUMNS | {"time": "when"}, "there are t, dev, n, v"),
        (BASE, COLUMNS | {"time": "when"}, "no column 'when'; there are t, dev, n, v"),
        (
            BASE,
            COLUMNS | {"id": ()},
            "no column is named as id; expected the columns that identify an observation",
        ),
        (BASE, COLUMNS | {"value": "dev", "params": PARAMS}, "dev[0] is 'a'; expected a number"),
        (BASE, COLUMNS | {"weight": 7}, "is 7; expected 0 to 1"),
        (BASE, COLUMNS | {"params": PARAMS, "accuracy": 0.1}, "accuracy is 0.1 beside params"),
        (BASE, COLUMNS | {"params": PARAMS, "time_unit": "s"}, "time_unit is 's' and that of"),
        (BASE, COLUMNS | {"accuracy": "2 pc"}, "accuracy is '2 pc'; expected such as '2%' or 0.02"),
        (BASE, COLUMNS | {"accuracy": 0.001}, "that is an accuracy of 0.0027 or more"),
        (BASE, COLUMNS | {"params": ECMParams(width=1, depth=1, slots=2)}, "those of a ECMColl"),
    ],
)
def test_what_is_no_frame_of_observations_is_refused(frame: Any, given: Any, named: str) -> None:
    with pytest.raises(ds.DecaySketchError) as fault:
        ds.DecaySketch.from_frame(frame, **given)
    assert named in str(fault.value)
    assert "__index" not in str(fault.value)


class TestLabels:
    """A column of text is one of labels, however the frame has it."""

    BASE = pd.DataFrame(
        {"t": BASE.t, "dev": BASE.dev, "n": BASE.n, "v": ["E42", None, "E7", "E42"]}
    )
    LIBRARIES: dict[str, Callable[[pd.DataFrame], Any]] = {  # noqa: RUF012 - not changed
        "pandas": lambda base: base,
        "pandas, categories": lambda base: base.assign(v=base.v.astype("category")),
        "pandas, texts": lambda base: base.assign(v=base.v.astype("string")),
        "polars": pl.DataFrame,
        "polars, categories": lambda base: pl.DataFrame(base).with_columns(
            pl.col("v").cast(pl.Categorical)
        ),
        "polars, an enumeration": lambda base: pl.DataFrame(base).with_columns(
            pl.col("v").cast(pl.Enum(["unused", "E7", "E42"]))
        ),
        "Arrow": lambda base: pa.Table.from_pandas(base),
        "DuckDB": _in_duckdb,
    }  # fmt: skip

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_the_same_labels_give_the_same_sketch(self, library: str) -> None:
        frame = self.LIBRARIES[library](self.BASE)
        found = ds.DecaySketch.from_frame(frame, time_unit="ms", **COLUMNS)
        assert found.params.value_type == "label"
        expected = ds.DecaySketch(found.params)
        ids = ds.observation_ids(["a", "a", "b"], [1, 2, 1], params=found.params)
        times = np.array([STARTS, STARTS + 60, STARTS + 60]) * 1000
        expected.update(["E42", None, "E7"], 1, times, ids)
        assert found.to_bytes() == expected.to_bytes()

    def test_parameters_say_which_they_are(self) -> None:
        params = ds.SketchParams(time_unit="ms", value_type="label")
        with pytest.raises(ds.ObservationError, match="v is of type double; expected text"):
            ds.DecaySketch.from_frame(BASE, params=params, **COLUMNS)
        with pytest.raises(ds.ObservationError, match="expected a number"):
            ds.DecaySketch.from_frame(self.BASE, params=PARAMS, **COLUMNS)
