"""Arrow tables to sketches by key: the same as feeding each key by hand, however it is cut."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from dataclasses import asdict, replace
from datetime import UTC, date, datetime
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delivery_logs import delivery_log
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

import decaysketch as ds
from decaysketch import tables
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from decaysketch.errors import ParameterError
from decaysketch.families import Recipe, Sketch, recipe_of
from decaysketch.tables import ColumnMapping, KeyedBuilder, sketches_by_key

MAPPING = ColumnMapping(
    time="event_us",
    fallback_time="arrival_us",
    ids=("source", "msg"),
    value="value",
    weight="weight",
    time_unit="us",
)
PARAMS = ds.SketchParams(max_weight=7, id_bits=40, capacity=50, seed=3, time_unit="us")


def by_hand(table: pa.Table, params: ds.SketchParams = PARAMS) -> ds.DecaySketch:
    """One sketch of a log, row by row, with nothing of `batch` in it."""
    sketch = ds.DecaySketch(params)
    for row in table.to_pylist():
        [identity] = ds.observation_ids([row["source"]], [row["msg"]], params=params)
        time = row["arrival_us"] if row["event_us"] is None else row["event_us"]
        sketch.update([row["value"]], [row["weight"]], [time], [identity])
    return sketch


def one(table: pa.Table, params: ds.SketchParams, **columns: object) -> ds.DecaySketch:
    """The sketch of a small table, all of whose columns are named after their use."""
    mapping = ColumnMapping(**{"time": "time", "ids": ("id",), **columns})  # type: ignore[arg-type]
    return sketches_by_key(table, params, mapping)[()]


def test_a_mapping_is_read_from_what_it_is_written_to() -> None:
    mapping = ColumnMapping(time="t", ids=("source", "msg"), value="v", time_unit="s")
    assert ColumnMapping.from_dict(asdict(mapping)) == mapping
    assert ColumnMapping.from_dict(json.loads(json.dumps(asdict(mapping)))) == mapping
    assert ColumnMapping.from_dict({"time": "t"}) == ColumnMapping(time="t")
    wrong: list[Any] = [{}, {"tmie": "t"}, {"time": "t", "ids": 5}, ["time"], "time", None]
    for form in wrong:
        with pytest.raises(ParameterError, match="expected the fields of a ColumnMapping"):
            ColumnMapping.from_dict(form)
    with pytest.raises(ParameterError, match="expected a tuple of column names"):
        ColumnMapping.from_dict({"time": "t", "ids": "source"})


def test_uuids_in_a_column_are_the_keys_that_their_texts_are() -> None:
    uuids = [uuid.UUID(int=k) for k in (5, 6, 5)]
    columns = {"time": [1, 2, 3], "id": pa.array(uuids, pa.uuid())}
    found = one(pa.table(columns), PARAMS)
    texts = one(pa.table({**columns, "id": [str(each) for each in uuids]}), PARAMS)
    assert found.to_bytes() == texts.to_bytes()
    assert len(found) == 2
    with pytest.raises(ds.ObservationError, match=r"id\[1\] is missing"):
        one(pa.table({"time": [1, 2], "id": pa.array([uuids[0], None], pa.uuid())}), PARAMS)


class TestOnePerKey:
    @pytest.mark.parametrize("text_keys", [False, True])
    @pytest.mark.parametrize("keys", [(), ("path",), ("source", "path")])
    def test_equals_feeding_each_key_by_hand(self, keys: tuple[str, ...], text_keys: bool) -> None:
        log = delivery_log(1_500, text_keys=text_keys)
        found = sketches_by_key(log, PARAMS, MAPPING, keys)
        columns = [log.column(key).to_pylist() for key in keys]
        row_keys = list(zip(*columns, strict=True)) if keys else [()] * len(log)
        assert set(found) == set(row_keys)
        for key, sketch in found.items():
            rows = [row for row, other in enumerate(row_keys) if other == key]
            assert sketch.to_bytes() == by_hand(log.take(rows)).to_bytes(), key

    def test_with_several_copies(self) -> None:
        params = replace(PARAMS, copies=3)
        log = delivery_log(900)
        expected = by_hand(log, params).to_bytes()
        parts = [
            sketches_by_key(log.slice(start, 300), params, MAPPING)[()].to_bytes()
            for start in (0, 300, 600)
        ]
        assert tables.merge_blobs(parts) == expected

    def test_a_null_is_a_key_like_any_other(self) -> None:
        log = delivery_log(300).set_column(
            4, "path", pa.array([None if i % 3 else 1 for i in range(300)])
        )
        builder = KeyedBuilder(PARAMS, MAPPING, ["path"])
        builder.add(log)
        assert set(builder.sketches) == {(None,), (1,)}
        assert builder.counts[(None,)][0] == 200
        [rows] = builder.batches()
        assert rows.column("path").null_count == 1

    @pytest.mark.parametrize(
        "column",
        [
            pa.array(["a", "b", "a"]).dictionary_encode(),
            pa.array(["a", "b", "a"], pa.large_string()),
            pa.array(["a", "b", "a"], pa.string_view()),
        ],
    )
    def test_a_key_is_the_same_whatever_its_encoding(self, column: pa.Array) -> None:
        table = pa.table({"time": [1, 2, 3], "id": [1, 2, 3], "key": column})
        builder = KeyedBuilder(PARAMS, ColumnMapping(time="time", ids=("id",)), ["key"])
        builder.add(table)
        assert set(builder.sketches) == {("a",), ("b",)}
        assert next(builder.batches()).schema.field("key").type == pa.string()

    @pytest.mark.parametrize("rows", [slice(None), slice(2, 5), slice(0, 0)])
    @pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary"])
    @pytest.mark.parametrize("as_bytes", [False, True])
    def test_an_id_is_the_same_whatever_its_encoding(
        self, rows: slice, kind: str, as_bytes: bool
    ) -> None:
        texts: list[Any] = ["a", "", "sensor-7/ü", "a", "x" * 1_024, "12345678"]
        arrow = {"string": pa.string(), "large_string": pa.large_string()}.get(kind, pa.string())
        column = pa.array(texts, pa.string_view() if kind == "string_view" else arrow)
        if as_bytes:
            texts = [each.encode() for each in texts]
            kinds = {"string": pa.binary(), "large_string": pa.large_binary()}
            column = pa.array(texts, kinds.get(kind, pa.binary_view()))
        if kind == "dictionary":
            column = column.cast(pa.large_binary() if as_bytes else pa.string()).dictionary_encode()
        chosen = column[rows]
        table = pa.table({"time": np.arange(len(chosen)), "id": chosen})
        log = ColumnMapping(time="time", ids=("id",)).read(table, recipe_of(PARAMS))
        expected = ds.observation_ids(texts[rows], params=PARAMS) if len(chosen) else []
        assert log.columns["ids"].tolist() == list(expected)

    def test_keys_of_many_types_survive_as_rows(self) -> None:
        table = pa.table(
            {
                "time": [1, 2],
                "id": [1, 2],
                "small": pa.array([1, 2], pa.uint8()),
                "flag": [True, False],
                "day": [date(2024, 1, 2), date(2024, 1, 3)],
                "hour": pa.array([0, 3_600], pa.timestamp("s", "Europe/Vienna")),
                "blob": [b"x", b"y"],
            }
        )
        keys = ["small", "flag", "day", "hour", "blob"]
        builder = KeyedBuilder(PARAMS, ColumnMapping(time="time", ids=("id",)), keys)
        builder.add(table)
        [rows] = builder.batches()
        assert rows.column("small").to_pylist() == [1, 2]
        assert rows.column("hour").to_pylist()[1] == datetime(1970, 1, 1, 1, tzinfo=UTC)
        assert rows.column("blob").to_pylist() == [b"x", b"y"]

    def test_more_keys_than_one_batch_of_rows_holds(self) -> None:
        log = delivery_log(2_000)
        params = replace(PARAMS, copies=2)  # an object each, handed on by the dozen
        builder = KeyedBuilder(params, MAPPING, ["source", "path"])
        builder.add(log)
        batches = list(builder.batches())
        assert len(batches) > 1
        assert sum(b.num_rows for b in batches) == len(builder.sketches)

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            (["nowhere"], "no column 'nowhere'"),
            (["value"], "cannot group by 'value', which is of type double"),
            (["rows"], "named 'rows'"),
        ],
    )
    def test_what_cannot_be_grouped_by_is_named(self, keys: list[str], message: str) -> None:
        log = delivery_log(30).append_column("rows", pa.array([1] * 30))
        with pytest.raises(ds.ParameterError, match=message):
            KeyedBuilder(PARAMS, MAPPING, keys).add(log)

    def test_counts_say_what_was_read(self) -> None:
        log = delivery_log(1_000)
        builder = KeyedBuilder(PARAMS, MAPPING)
        builder.add(log)
        builder.add(log)
        expected = [2_000, 2 * log["value"].null_count, 2 * log["event_us"].null_count, 0]
        assert builder.counts[()].tolist() == expected
        assert log["value"].null_count > 0 < log["event_us"].null_count


class TestColumns:
    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("zone", [None, "UTC", "America/Lima"])
    def test_timestamps_of_any_unit_are_instants(self, unit: str, zone: str | None) -> None:
        seconds = pa.array([1_700_000_000, -5, 1_700_000_000], pa.timestamp("s", zone))
        table = pa.table({"time": seconds.cast(pa.timestamp(unit, zone)), "id": [1, 2, 3]})
        params = ds.SketchParams(max_weight=1, time_unit="us")
        expected = [1_700_000_000_000_000, 1_700_000_000_000_000, -5_000_000]
        assert one(table, params).state().times.tolist() == expected

    def test_a_coarser_stream_rounds_times_down(self) -> None:
        table = pa.table({"time": [-1, 0, 59_999_999, 60_000_000], "id": [1, 2, 3, 4]})
        params = ds.SketchParams(max_weight=1, time_unit="min")
        times = one(table, params, time_unit="us").state().times.tolist()
        assert times == [1, 0, 0, -1]

    def test_dates_are_midnights(self) -> None:
        params = ds.SketchParams(max_weight=1, time_unit="h")
        for kind in (pa.date32(), pa.date64()):
            days = pa.array([date(1970, 1, 3), None], kind)
            table = pa.table({"time": days, "id": [1, 2], "received": pa.array([24, 24])})
            sketch = one(table, params, fallback_time="received")
            assert sketch.state().times.tolist() == [48, 24]

    def test_a_column_that_gaps_turned_into_floats_is_still_integers(self) -> None:
        times, ids = pa.array([3.0, None, 1.0]), pa.array([1.0, 2.0, 3.0])
        table = pa.table({"time": times, "id": ids, "received": [9, 9, 9]})
        plain = pa.table({"time": [3, 9, 1], "id": [1, 2, 3]})
        params = ds.SketchParams(max_weight=1)
        assert one(table, params, fallback_time="received") == one(plain, params)

    def test_a_column_of_nothing_but_nulls_has_no_type_and_is_accepted(self) -> None:
        nothing = pa.nulls(2)
        table = pa.table({"time": nothing, "id": [1, 2], "received": [5, 6], "value": nothing})
        sketch = one(table, PARAMS, fallback_time="received", value="value")
        assert sketch.state().times.tolist() == [6, 5]
        assert sketch.total(ds.decay.none(), now=9).value == 0

    def test_without_weights_every_weight_is_one_and_without_values_all_are_missing(self) -> None:
        sketch = one(pa.table({"time": [1, 2], "id": [1, 2]}), PARAMS)
        assert sketch.sum(ds.decay.none(), now=9).value == 2
        assert sketch.total(ds.decay.none(), now=9).value == 0

    def test_values_are_converted_exactly_or_not_at_all(self) -> None:
        whole = ds.SketchParams(max_weight=1, value_type="int64")
        for values in ([1, 2], pa.array([1, 2], pa.decimal128(5, 0)), [True, False]):
            table = pa.table({"time": [1, 2], "id": [1, 2], "value": values})
            assert len(one(table, whole, value="value")) == 2
        table = pa.table({"time": [1], "id": [1], "value": [1.5]})
        with pytest.raises(ds.ObservationError, match=r"^value has dtype float64"):
            one(table, whole, value="value")

    def test_ids_do_not_depend_on_the_width_of_integers_or_the_encoding_of_text(self) -> None:
        params = ds.SketchParams(max_weight=1)
        for plain, other in [
            (pa.array([1, 2, 250]), pa.array([1, 2, 250], pa.uint8())),
            (pa.array([1, 2, 250]), pa.array([1, 2, 250], pa.decimal128(9, 0))),
            (pa.array(["a", "b", "ü"]), pa.array(["a", "b", "ü"]).dictionary_encode()),
            (pa.array([b"a", b"b", b"c"]), pa.array([b"a", b"b", b"c"], pa.binary(1))),
            (
                pa.array([1, 2, 3], pa.timestamp("us")),
                pa.array([1_000, 2_000, 3_000], pa.timestamp("ns", "UTC")),
            ),
        ]:
            times = pa.array([1, 2, 3])
            first, second = (pa.table({"time": times, "id": column}) for column in (plain, other))
            assert one(first, params).to_bytes() == one(second, params).to_bytes()

    def test_a_chunked_table_reads_as_its_rows(self) -> None:
        log = delivery_log(700)
        pieces = pa.concat_tables([log.slice(i, 100) for i in range(0, 700, 100)])
        whole = sketches_by_key(log.combine_chunks(), PARAMS, MAPPING)
        assert sketches_by_key(pieces, PARAMS, MAPPING) == whole

    def test_an_empty_table_has_no_keys(self) -> None:
        nothing = delivery_log(30).slice(0, 0)
        untyped = pa.table({name: pa.nulls(0) for name in MAPPING.names})
        for table in (
            nothing,
            nothing.schema.empty_table(),
            pa.Table.from_batches([], nothing.schema),
        ):
            assert sketches_by_key(table, PARAMS, MAPPING, ["path"]) == {}
        assert sketches_by_key(untyped, PARAMS, MAPPING) == {}

    def test_a_mapping_needs_ids(self) -> None:
        with pytest.raises(ds.ParameterError, match="ids is 'id'; expected a tuple"):
            ColumnMapping(time="time", ids="id")  # type: ignore[arg-type]
        with pytest.raises(
            ds.ParameterError, match="no column is named as id; expected the columns"
        ):
            KeyedBuilder(PARAMS, ColumnMapping(time="time"))

    def test_a_mapping_refuses_a_unit_it_does_not_know(self) -> None:
        with pytest.raises(ds.ParameterError, match="fortnight"):
            ColumnMapping(time="time", ids=("id",), time_unit="fortnight")


REFUSED = {
    "null id": ({"id": pa.array([1, None])}, "id", 1, r"^id\[1\] is missing$"),
    "null text id": ({"id": pa.array(["a", None])}, "id", 1, r"^id\[1\] is missing$"),
    "null weight": ({"weight": pa.array([1, None])}, "weight", 1, r"^weight\[1\] is missing$"),
    "null time": ({"time": pa.array([1, None])}, "time", 1, r"^time\[1\] is missing$"),
    "infinite time": ({"time": [1.0, float("inf")]}, "time", 1, r"^time\[1\] is 'inf'"),
    "huge time": ({"time": pa.array([1, 1 << 63], pa.uint64())}, "time", None, "^time cannot"),
    "word as time": ({"time": ["1", "x"]}, "time", 1, r"^time\[1\] is 'x'; expected a time"),
    "word as value": ({"value": ["1", "x"]}, "value", 1, r"^value\[1\] is 'x'; expected a num"),
    "word as weight": ({"weight": ["1", "x"]}, "weight", 1, r"^weight\[1\] is 'x'; expected an"),
    "NaN": ({"value": [1.0, float("nan")]}, "value", 1, r"^value\[1\] is nan"),
    "negative weight": ({"weight": [1, -1]}, "weight", 1, r"^weight\[1\] is -1; expected 0 to 7"),
    "large weight": ({"weight": [8, 1]}, "weight", 0, r"^weight\[0\] is 8; expected 0 to 7"),
    "float id": ({"id": [1.0, 1.5]}, "id", 1, r"^id\[1\] is 1.5; expected an integer$"),
    "far time": ({"time": [1, 1 << 62]}, "time", 1, r"^time\[1\] is .* 2\^62 us"),
}  # fmt: skip


class TestTexts:
    """Columns of texts mean what columns of their types mean."""

    TYPED: ClassVar[dict[str, Any]] = {
        "time": [1_780_000_000, 1_780_000_060, 1_780_000_120], "id": [1, 2, 3],
        "value": [1.5, None, 3.0], "weight": [1, 2, 3],
    }  # fmt: skip

    @pytest.mark.parametrize(
        ("texts", "more"),
        [
            ({"value": ["1.5", "n/a", " +3 "]}, {}),
            ({"value": ["1,5", "", "3"]}, {"decimal": ","}),
            ({"weight": ["1", "2.0", "3"]}, {}),
            ({"time": ["1780000000", "1780000060.0", "1780000120"]}, {}),
            ({"time": [1_780_000_000.0, 1_780_000_060.0, 1_780_000_120.0]}, {}),
            ({"time": ["2026-05-28T20:26:40Z", "1780000060", "28.05.2026 22:28:40"]},
             {"time_zone": "Europe/Berlin"}),
            ({"time": ["2026-05-28 20:26:40", "2026-05-28T20:27:40", "2026-05-28 20:28:40"]},
             {"time_zone": "UTC"}),
            ({"time": ["28/05/2026 20:26:40", "28/05/2026 20:27:40", "28/05/2026 20:28:40"]},
             {"time_format": "%d/%m/%Y %H:%M:%S"}),
            ({"time": pa.array(["2026-05-28 20:26:40.000"] * 3, pa.string_view())},
             {"time": None}),
        ],
    )  # fmt: skip
    def test_they_give_the_same_bytes(self, texts: Any, more: dict[str, Any]) -> None:
        named: dict[str, Any] = {
            "time": "time", "ids": ("id",), "value": "value", "weight": "weight", "time_unit": "s"
        }  # fmt: skip
        typed = dict(self.TYPED)
        if more.pop("time", 0) is None:  # one time for all
            typed["time"] = [1_780_000_000] * 3
        expected = sketches_by_key(pa.table(typed), PARAMS, ColumnMapping(**named))[()]
        mapping = ColumnMapping(**named, **more)
        found = sketches_by_key(pa.table(typed | texts), PARAMS, mapping)[()]
        assert found.to_bytes() == expected.to_bytes()

    def test_fractions_of_a_second_are_kept(self) -> None:
        mapping = ColumnMapping(time="time", ids=("id",), time_unit="s")
        times = [1_780_000_000.123, 1_780_000_000.5]
        for column in (times, list(map(str, times))):
            sketch = sketches_by_key(pa.table({"time": column, "id": [1, 2]}), PARAMS, mapping)[()]
            assert sketch.stats().oldest == 1_780_000_000_123_000

    def test_naive_timestamps_are_of_the_zone(self) -> None:
        local = pa.array([1_780_000_000, 1_780_000_060], pa.timestamp("s"))
        table = pa.table({"time": local, "id": [1, 2]})
        berlin = ColumnMapping(time="time", ids=("id",), time_zone="Europe/Berlin")
        naive = ColumnMapping(time="time", ids=("id",))
        read = [mapping.read(table, PARAMS) for mapping in (berlin, naive)]
        apart = read[1].columns["timestamps"] - read[0].columns["timestamps"]
        assert apart.tolist() == [7200 * 10**6] * 2
        assert [int(each.zoneless.sum()) for each in read] == [0, 2]
        skipped = pa.table({"time": pa.array([1_774_751_400], pa.timestamp("s")), "id": [1]})
        with pytest.raises(ds.ObservationError, match="skip"):
            berlin.read(skipped, PARAMS)

    @pytest.mark.parametrize(
        "wrong", [{"time_zone": "Mars"}, {"time_format": "soon"}, {"decimal": ";"},
                  {"thousands": "."}],
    )  # fmt: skip
    def test_what_a_mapping_refuses(self, wrong: dict[str, str]) -> None:
        if "thousands" in wrong:
            wrong = wrong | {"decimal": "."}
        with pytest.raises(ds.ParameterError):
            ColumnMapping(time="time", ids=("id",), **wrong)


class TestRefusals:
    @for_each("case", REFUSED)
    def test_one_error_names_the_tables_column_and_row_and_nothing_is_taken(
        self, case: str
    ) -> None:
        columns, name, row, message = REFUSED[case]
        table = {"time": [1, 2], "id": [1, 2], "value": [1.0, 2.0], "weight": [1, 1]}
        mapping = ColumnMapping(
            time="time", ids=("id",), value="value", weight="weight", time_unit="s"
        )
        builder = KeyedBuilder(PARAMS, mapping)
        builder.add(pa.table(table))
        before = builder.sketches[()].to_bytes()
        with pytest.raises(ds.ObservationError, match=message) as caught:
            builder.add(pa.table({**table, **columns}))
        assert (caught.value.column, caught.value.row) == (name, row)
        assert builder.sketches[()].to_bytes() == before
        assert builder.counts[()][0] == 2

    def test_neither_time(self) -> None:
        table = pa.table({"time": pa.array([1, None]), "late": pa.array([1, None]), "id": [1, 2]})
        with pytest.raises(ds.ObservationError, match=r"time\[1\] is missing, and so is late\[1\]"):
            one(table, PARAMS, fallback_time="late")

    def test_a_column_that_is_not_there(self) -> None:
        with pytest.raises(ds.ParameterError, match=r"no column 'time'; there are id"):
            one(pa.table({"id": [1]}), PARAMS)

    def test_a_timestamp_in_a_stream_whose_unit_is_a_mere_label(self) -> None:
        table = pa.table({"time": pa.array([1], pa.timestamp("s")), "id": [1]})
        with pytest.raises(ds.ParameterError, match="the stream's unit 'tick'"):
            one(table, ds.SketchParams(max_weight=1, time_unit="tick"))


class TestLaws:
    @settings(max_examples=40, deadline=None)
    @given(data=st.data())
    def test_any_cut_order_and_repetition_gives_the_same_bytes(self, data: st.DataObject) -> None:
        rows = 240
        log = delivery_log(rows, seed=data.draw(st.integers(0, 50)))
        expected = {
            key: sketch.to_bytes()
            for key, sketch in sketches_by_key(log, PARAMS, MAPPING, ["path"]).items()
        }
        order = data.draw(st.permutations(range(rows)))
        again = data.draw(st.lists(st.integers(0, rows - 1), max_size=100))
        shuffled = log.take(pa.array([*order, *again]))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(shuffled)), max_size=8)))
        parts: dict[tables.Key, list[bytes]] = {}
        for start, end in zip([0, *cuts], [*cuts, len(shuffled)], strict=True):
            part = shuffled.slice(start, end - start)
            for key, sketch in sketches_by_key(part, PARAMS, MAPPING, ["path"]).items():
                parts.setdefault(key, []).append(sketch.to_bytes())
        assert {key: tables.merge_blobs(blobs) for key, blobs in parts.items()} == expected

    def test_merging_keys_equals_one_sketch_of_everything(self) -> None:
        log = delivery_log(3_000)
        whole = sketches_by_key(log, PARAMS, MAPPING)[()].to_bytes()
        for keys in (["path"], ["source"], ["source", "path"]):
            blobs = [s.to_bytes() for s in sketches_by_key(log, PARAMS, MAPPING, keys).values()]
            assert tables.merge_blobs(blobs) == whole
        assert len(blobs) > 64  # more than are decoded at a time


INTEGRAL = ds.SketchParams(max_weight=7, id_bits=40, capacity=30, seed=3, time_unit="us")
BY_THE_MINUTE = ds.SketchParams(max_weight=7, id_bits=40, capacity=30, seed=3, time_unit="min")
FALLING = ds.decay.integral.function(
    lambda w, x: (w - x // 2).clip(0), max_weight=7, ages=15
)  # fmt: skip
BY_NUMBER = ColumnMapping(
    time="event_us",
    fallback_time="arrival_us",
    source="source",
    sequence="msg",
    value="value",
    time_unit="us",
)
RECIPES: dict[str, tuple[Recipe, ColumnMapping]] = {
    "decay": (recipe_of(PARAMS), MAPPING),
    "integral": (
        recipe_of(INTEGRAL, ds.decay.integral.exponential(half_life=60_000_000)),
        MAPPING,
    ),
    "integral, by a table": (recipe_of(BY_THE_MINUTE, FALLING), MAPPING),
    "sum": (
        recipe_of(SumParams(max_sum=10_000, capacity=30, max_window=400_000_000, time_unit="us")),
        replace(BY_NUMBER, value="weight"),
    ),
    "median": (
        recipe_of(MedianParams(max_count=1_000, capacity=30, seed=8, time_unit="us")),
        BY_NUMBER,
    ),
}
MIDDLE = {"us": 1_700_000_300_000_000, "min": 1_700_000_300 // 60}  # of the logs of these tests


def one_by_one(name: str, table: pa.Table, now: int | None = None) -> Sketch:
    """A sketch of any family of a log, row by row, with nothing of `batch` in it."""
    recipe, mapping = RECIPES[name]
    params, sketch = recipe.params, recipe.empty()
    if now is not None:
        sketch.advance(now)
    for row in table.to_pylist():
        time = row["arrival_us"] if row["event_us"] is None else row["event_us"]
        value = row[mapping.value]
        if isinstance(params, ds.SketchParams):
            if params.time_unit == "min":
                time //= 60_000_000
            [identity] = ds.observation_ids([row["source"]], [row["msg"]], params=params)
            sketch.update([value], [row["weight"]], [time], [identity])
        elif value is not None:
            sketch.update(value, time, row["msg"], source=row["source"])
    return sketch


@pytest.mark.parametrize("name", RECIPES)
class TestFamilies:
    @pytest.mark.parametrize("text_keys", [False, True])
    @pytest.mark.parametrize("told", [False, True])
    def test_equals_feeding_row_by_row(self, name: str, told: bool, text_keys: bool) -> None:
        recipe, mapping = RECIPES[name]
        now = MIDDLE[recipe.params.time_unit] if told and name != "decay" else None
        log = delivery_log(1_500, text_keys=text_keys)
        found = sketches_by_key(log, recipe, mapping, ["path"], now=now)
        assert len(found) == 5
        paths = np.array(log["path"].to_pylist())
        for (path,), sketch in found.items():
            rows = np.flatnonzero(paths == path)
            assert sketch.to_bytes() == one_by_one(name, log.take(rows), now).to_bytes()
            assert now is None or sketch.clock == now

    def test_a_recipe_is_not_needed_where_parameters_say_it(self, name: str) -> None:
        recipe, mapping = RECIPES[name]
        log = delivery_log(300)
        if recipe.family != "integral":
            plain = sketches_by_key(log, recipe.params, mapping)
            assert plain == sketches_by_key(log, recipe, mapping)

    @settings(max_examples=15, deadline=None)
    @given(data=st.data())
    def test_any_cut_order_and_repetition_gives_the_same_bytes(
        self, name: str, data: st.DataObject
    ) -> None:
        recipe, mapping = RECIPES[name]
        rows = 400
        log = delivery_log(rows, seed=data.draw(st.integers(0, 50)))
        now = None
        if name != "decay" and data.draw(st.booleans()):
            now = MIDDLE[recipe.params.time_unit] - (200_000_000 if name != BY_TABLE else 3)
        expected = sketches_by_key(log, recipe, mapping, now=now)[()].to_bytes()
        order = np.random.default_rng(data.draw(st.integers(0, 1_000))).permutation(rows)
        again = data.draw(st.lists(st.integers(0, rows - 1), max_size=100))
        shuffled = log.take(pa.array([*order.tolist(), *again]))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(shuffled)), max_size=8)))
        parts = []
        for start, end in zip([0, *cuts], [*cuts, len(shuffled)], strict=True):
            part = shuffled.slice(start, end - start)
            built = sketches_by_key(part, recipe, mapping, now=now)
            parts += [sketch.to_bytes() for sketch in built.values()]
        assert tables.merge_blobs(parts, recipe=recipe) == expected
        if name != BY_TABLE:
            assert tables.merge_blobs(parts) == expected

    def test_the_functions_of_an_engine(self, name: str) -> None:
        recipe, mapping = RECIPES[name]
        log = delivery_log(1_000)
        whole = sketches_by_key(log, recipe, mapping, ["path"])
        function = tables.partial_builder(recipe, mapping, ["path"])
        partials = [
            row for part in log.to_batches(max_chunksize=300) for row in function(iter([part]))
        ]
        merger = tables.partition_merger(["path"], recipe)
        for (path,), sketch in whole.items():
            group = [b.filter(pa.compute.equal(b.column("path"), path)) for b in partials]
            [row] = merger(iter(group))
            assert row.column("sketch").to_pylist() == [sketch.to_bytes()]
            assert row.column("digest").to_pylist() == [sketch.digest()]

    def test_families_do_not_merge(self, name: str) -> None:
        log = delivery_log(60)
        recipe, mapping = RECIPES[name]
        blob = sketches_by_key(log, recipe, mapping)[()].to_bytes()
        for other, other_mapping in RECIPES.values():
            if other.family == recipe.family:
                continue
            theirs = sketches_by_key(log, other, other_mapping)[()].to_bytes()
            with pytest.raises(ds.IncompatibleSketchError) as caught:
                tables.merge_blobs([blob, theirs], recipe=recipe)
            assert caught.value.fields == {"family": (recipe.family, other.family)}
            if BY_TABLE not in (name, other_name(other)):
                with pytest.raises(ds.IncompatibleSketchError, match="family: "):
                    tables.merge_blobs([blob, theirs])

    def test_an_empty_table_has_no_keys(self, name: str) -> None:
        recipe, mapping = RECIPES[name]
        untyped = pa.table({name: pa.nulls(0) for name in mapping.names})
        assert sketches_by_key(untyped, recipe, mapping) == {}
        assert sketches_by_key(delivery_log(30).slice(0, 0), recipe, mapping) == {}


BY_TABLE = "integral, by a table"


def other_name(recipe: Recipe) -> str:
    return next(name for name, (known, _) in RECIPES.items() if known is recipe)


class TestElements:
    SUM = SumParams(max_sum=100, capacity=10)
    MEDIAN = MedianParams(max_count=100, capacity=10)
    MAPPING = ColumnMapping(time="time", source="who", sequence="number", value="value")
    TABLE: ClassVar[dict[str, Any]] = {
        "time": [1, 2, 3], "who": ["a", "a", "b"], "number": [1, 2, 1], "value": [5, 6, 7]
    }  # fmt: skip

    def test_one_without_a_value_is_left_out_and_counted(self) -> None:
        table = pa.table({**self.TABLE, "value": pa.array([5, None, 7])})
        for params in (self.SUM, self.MEDIAN):
            builder = KeyedBuilder(params, self.MAPPING, ["who"])
            builder.add(table)
            assert {key: len(s.state()) for key, s in builder.sketches.items()} == {
                ("a",): 1,
                ("b",): 1,
            }
            assert builder.counts[("a",)].tolist() == [2, 1, 0, 0]
        nothing = {**self.TABLE, "value": pa.nulls(3)}
        [sampler] = sketches_by_key(pa.table(nothing), self.MEDIAN, self.MAPPING).values()
        assert sampler == MedianSampler(self.MEDIAN)

    def test_a_live_sampler_and_a_build_of_its_log_agree(self) -> None:
        live = SumSampler(self.SUM)
        live.update([5, 6], [1, 2], [1, 2], source="a")
        live.update([7], [3], [1], source="b")
        assert sketches_by_key(pa.table(self.TABLE), self.SUM, self.MAPPING)[()] == live

    @pytest.mark.parametrize("name", ["source", "sequence"])
    def test_are_not_numbered_here(self, name: str) -> None:
        with pytest.raises(ds.ParameterError, match="would count again at each read"):
            KeyedBuilder(self.SUM, replace(self.MAPPING, **{name: None}))

    def test_need_a_value_and_have_no_weight(self) -> None:
        with pytest.raises(ds.ParameterError, match="value is None"):
            KeyedBuilder(self.SUM, replace(self.MAPPING, value=None))
        with pytest.raises(ds.ParameterError, match="weight is 'w'; expected None"):
            KeyedBuilder(self.MEDIAN, replace(self.MAPPING, weight="w"))
        with pytest.raises(ds.ParameterError, match="now is 7; expected None"):
            KeyedBuilder(PARAMS, MAPPING, now=7)

    @pytest.mark.parametrize(
        ("column", "row", "cells", "message"),
        [
            ("value", 1, [1, 101, 2], r"^value\[1\] is 101; expected 0 to 100 \(max_sum\)"),
            ("value", 2, [1, 2, -1], r"^value\[2\] is -1; expected 0 to 100"),
            ("value", None, [1.0, 2.5, 3.0], r"^value has dtype float64.*expected integers"),
            ("who", 2, ["a", "b", "c" * 2_000], r"^who\[2\] is a key of 2000 bytes"),
            ("who", 0, pa.array([None, "a", "b"]), r"^who\[0\] is missing"),
            ("number", 1, pa.array([1, None, 2]), r"^number\[1\] is missing"),
            ("number", 1, ["1", "2.5", "3"], r"^number\[1\] is '2.5'; expected an integer"),
            ("time", 0, [1 << 62 | 1, 1, 1], r"^time\[0\] is 4611686018427387905; expected"),
        ],
    )
    def test_one_at_fault_is_named_and_nothing_is_taken(
        self, column: str, row: int | None, cells: Any, message: str
    ) -> None:
        builder = KeyedBuilder(self.SUM, self.MAPPING)
        builder.add(pa.table(self.TABLE))
        before = builder.sketches[()].to_bytes()
        with pytest.raises(ds.ObservationError, match=message) as caught:
            builder.add(pa.table({**self.TABLE, column: cells}))
        assert (caught.value.column, caught.value.row) == (column, row)
        assert builder.sketches[()].to_bytes() == before


class TestMergeBlobs:
    def test_nothing_to_merge(self) -> None:
        with pytest.raises(ds.ParameterError, match="at least one"):
            tables.merge_blobs([])

    def test_a_secret_key_is_needed_and_enough(self) -> None:
        params = ds.SketchParams(max_weight=1, id_key=b"sixteen bytes or more")
        table = pa.table({"time": [1, 2], "id": [1, 2]})
        blob = one(table, params).to_bytes()
        assert tables.merge_blobs([blob, blob], id_key=params.id_key) == blob
        with pytest.raises(ds.IncompatibleSketchError, match="id_key"):
            tables.merge_blobs([blob])

    def test_a_recipe_holds_the_secret_key(self) -> None:
        params = ds.SketchParams(max_weight=1, id_key=b"sixteen bytes or more")
        blob = one(pa.table({"time": [1, 2], "id": [1, 2]}), params).to_bytes()
        assert tables.merge_blobs([blob, blob], recipe=recipe_of(params)) == blob
        with pytest.raises(ds.ParameterError, match="not both"):
            tables.merge_blobs([blob], recipe=recipe_of(params), id_key=params.id_key)

    def test_other_parameters_are_refused(self) -> None:
        table = pa.table({"time": [1], "id": [1]})
        blobs = [one(table, ds.SketchParams(max_weight=1, seed=s)).to_bytes() for s in (1, 2)]
        with pytest.raises(ds.IncompatibleSketchError, match="seed"):
            tables.merge_blobs(blobs)


class TestEngineFunctions:
    def test_partials_merged_by_group_equal_the_whole(self) -> None:
        log = delivery_log(2_000)
        function = tables.partial_builder(PARAMS, MAPPING, ["path"])
        cut = log.to_batches(max_chunksize=130)
        partials = [row for i in range(4) for row in function(iter(cut[i::4]))]
        merger = tables.partition_merger(["path"])
        builder = KeyedBuilder(PARAMS, MAPPING, ["path"])
        builder.add(log)
        for (path,), sketch in builder.sketches.items():
            group = [
                batch_.filter(pa.compute.equal(batch_.column("path"), path)) for batch_ in partials
            ]
            [row] = merger(iter(group))
            assert row.to_pylist() == [
                {
                    "path": path,
                    **dict(
                        zip(
                            ("rows", "missing_values", "fallback_times", "refused"),
                            builder.counts[(path,)].tolist(),
                            strict=True,
                        )
                    ),
                    "replaced": 0,
                    "undated": 0,
                    "zoneless": 0,
                    "sketch": sketch.to_bytes(),
                    "digest": sketch.digest(),
                }
            ]

    def test_nothing_in_nothing_out(self) -> None:
        assert list(tables.partial_builder(PARAMS, MAPPING, ["path"])(iter([]))) == []
        assert list(tables.partition_merger(["path"])(iter([]))) == []

    def test_files_are_read_by_row_group(self, tmp_path: object) -> None:
        log, path = delivery_log(2_000), f"{tmp_path}/log.parquet"
        pq.write_table(log, path, row_group_size=300)
        splits = [
            tables.FileSplit(path, (0, 1, 2), 0),
            tables.FileSplit(path, (3,), 900),
            tables.FileSplit(path, (4, 5, 6), 1_200),
        ]
        function = tables.file_builder(splits, PARAMS, MAPPING)
        numbers = [
            pa.RecordBatch.from_pydict({"id": [0, 1]}),
            pa.RecordBatch.from_pydict({"id": [2]}),
        ]
        [row] = function(iter(numbers))
        assert row.column("sketch").to_pylist() == [
            sketches_by_key(log, PARAMS, MAPPING)[()].to_bytes()
        ]
        assert row.column("rows").to_pylist() == [2_000]

    def test_a_file_at_fault_is_named(self, tmp_path: object) -> None:
        log, path = delivery_log(600), f"{tmp_path}/log.parquet"
        weights = log["weight"].to_numpy().copy()
        weights[450] = 99
        pq.write_table(log.set_column(6, "weight", pa.array(weights)), path, row_group_size=200)
        function = tables.file_builder([tables.FileSplit(path, (2,), 400)], PARAMS, MAPPING)
        number = pa.RecordBatch.from_pydict({"id": [0]})
        with pytest.raises(
            ds.ObservationError, match=r"log.parquet, rows from 400: weight\[50\] is 99"
        ):
            list(function(iter([number])))
        pq.write_table(log.drop_columns(["msg"]), path)
        with pytest.raises(ds.ParameterError, match=r"log.parquet has no column 'msg'"):
            list(function(iter([number])))


def test_the_library_itself_does_without_pyarrow() -> None:
    program = "import sys, decaysketch; sys.exit('pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_numpy_counts_are_plain_integers_in_rows() -> None:
    builder = KeyedBuilder(PARAMS, MAPPING)
    builder.add(delivery_log(50))
    [row] = builder.batches()
    assert row.column("rows").type == pa.int64()
    assert builder.counts[()].dtype == np.int64
