"""Rows that no sketch can take: raised, or counted and found again; the rest is unharmed."""

from __future__ import annotations

import decimal
import json
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import decaysketch as ds
from decaysketch import tables
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.tables import ColumnMapping, KeyedBuilder, RowFilter

PARAMS = ds.SketchParams(max_weight=7, id_bits=40, capacity=6, seed=3, time_unit="s")
MAPPING = ColumnMapping(
    time="time", ids=("id",), value="value", weight="weight", fallback_time="late"
)
ELEMENTS = ColumnMapping(
    time="time", source="name", sequence="id", value="weight", fallback_time="late"
)
CASES: list[tuple[Any, ColumnMapping]] = [
    (PARAMS, MAPPING),
    (ds.SketchParams(max_weight=7, id_bits=40, capacity=6, copies=2, time_unit="s"), MAPPING),
    (SumParams(max_sum=7, capacity=6, time_unit="s"), ELEMENTS),
    (MedianParams(max_count=500, capacity=6, value_type="int64", time_unit="s"), ELEMENTS),
]
BAD_FLOATS = [float("nan"), float("inf"), float("-inf")]


@st.composite
def logs(draw: st.DrawFn) -> pa.Table:
    """Rows of which every fourth or so has something wrong with it."""
    rows = draw(st.integers(1, 40))

    def column(good: Any, bad: list[Any]) -> list[Any]:
        choice = st.one_of(good, good, good, good, good, good, st.sampled_from(bad))
        return draw(st.lists(choice, min_size=rows, max_size=rows))

    columns = {
        "time": pa.array(column(st.integers(0, 50).map(float), [None, None, 2.5, 2.0**62])),
        "late": pa.array(column(st.integers(0, 50).map(float), [None, 1.5, float("nan")])),
        "id": pa.array(column(st.integers(0, 20), [None]), pa.int64()),
        "name": pa.array(column(st.sampled_from("abc"), [None, "x" * 1_025]), pa.string()),
        "value": pa.array(column(st.floats(-9, 9), [None, *BAD_FLOATS]), pa.float64()),
        "weight": pa.array(column(st.integers(0, 7), [None, -1, 8]), pa.int64()),
        "site": pa.array(draw(st.lists(st.sampled_from("ab"), min_size=rows, max_size=rows))),
    }
    return pa.table(columns)


def refused_rows(table: pa.Table, params: Any, mapping: ColumnMapping, **options: Any) -> list[Any]:
    finder = tables.refusal_finder(params, mapping, **options)
    return [r for part in finder(iter(table.to_batches(7))) for r in part.to_pylist()]


@pytest.mark.parametrize(("params", "mapping"), CASES)
class TestLaws:
    @settings(max_examples=10, deadline=None)
    @given(table=logs())
    def test_counted_and_found_are_the_same_and_the_rest_is_taken(
        self, params: Any, mapping: ColumnMapping, table: pa.Table
    ) -> None:
        found = refused_rows(table, params, mapping)
        places = [row["row"] for row in found]
        assert places == sorted(set(places))
        builder = KeyedBuilder(params, mapping, ["site"], refused="count")
        for part in table.to_batches(11):
            builder.add(part)
        counts = builder.counts
        sites = table["site"].to_pylist()
        for site in set(sites):
            rows = [n for n, s in enumerate(sites) if s == site]
            refused = [n for n in rows if n in places]
            assert counts[(site,)][[0, 3]].tolist() == [len(rows) - len(refused), len(refused)]
        clean = table.take(pa.array([n for n in range(len(sites)) if n not in places], pa.int64()))
        plain = KeyedBuilder(params, mapping, ["site"])
        plain.add(clean)  # raises where the finder left a row behind
        assert {k: v.tolist() for k, v in plain.counts.items()} == {
            k: [*v.tolist()[:3], 0] for k, v in counts.items() if v[0]
        }
        for key, sketch in plain.sketches.items():
            assert builder.sketches[key].to_bytes() == sketch.to_bytes()

    @settings(max_examples=10, deadline=None)
    @given(table=logs())
    def test_a_row_is_refused_if_and_only_if_it_raises_alone(
        self, params: Any, mapping: ColumnMapping, table: pa.Table
    ) -> None:
        raising = {}
        for row in range(len(table)):
            try:
                KeyedBuilder(params, mapping).add(table.slice(row, 1))
            except ds.ObservationError as fault:
                raising[row] = (fault.column, str(fault).partition("[0] ")[2])
        found = {
            row["row"]: (row["column"], row["reason"].replace(f"[{row['row'] % 7}]", "[0]"))
            for row in refused_rows(table, params, mapping)
        }
        assert found == raising


class TestCounting:
    TABLE: ClassVar[dict[str, Any]] = {
        "time": [1, 2, 3], "id": [1, 2, 3], "value": [1.0, 2.0, 3.0], "weight": [1, 1, 1]
    }  # fmt: skip
    PLAIN = ColumnMapping(time="time", ids=("id",), value="value", weight="weight", time_unit="s")

    @pytest.mark.parametrize(
        ("column", "cells", "rows", "reason"),
        [
            ("value", ["a", "2", None], [0], "is 'a'; expected a number"),
            ("id", [True, False, True], [0, 1, 2], "is of type bool; expected integers"),
            ("id", [1.0, 2.5, 3.0], [1], "is 2.5; expected an integer"),
            ("time", ["a", "b", "c"], [0, 1, 2], "expected a time such as"),
            ("value", [1 << 60, 2, 3], [0], "is 1152921504606846976, not exact as float64"),
            ("weight", [1, 8, -1], [1, 2], "expected 0 to 7 (max_weight)"),
            ("time", pa.array([1, 1 << 63, 3], pa.uint64()), [1], "cannot be read as int64"),
            ("id", [decimal.Decimal("1.5"), 2, 3], [0], "cannot be read as int64"),
            ("time", [1, 1 << 62, -(1 << 62)], [1, 2], "expected at most 2^62 us in magnitude"),
        ],
    )
    def test_each_row_has_its_reason(
        self, column: str, cells: Any, rows: list[int], reason: str
    ) -> None:
        table = pa.table({**self.TABLE, column: cells})
        params = ds.SketchParams(max_weight=7, id_bits=40, time_unit="us")
        found = refused_rows(table, params, self.PLAIN)
        assert [row["row"] for row in found] == rows
        assert all(row["column"] == column and reason in row["reason"] for row in found)
        builder = KeyedBuilder(params, self.PLAIN, refused="count")
        builder.add(table)
        assert builder.counts[()][[0, 3]].tolist() == [3 - len(rows), len(rows)]

    def test_floats_are_no_values_of_a_stream_of_integers(self) -> None:
        params = ds.SketchParams(max_weight=7, value_type="int64", time_unit="s")
        table = pa.table({**self.TABLE, "value": [1.0, None, 2.5]})
        found = refused_rows(table, params, self.PLAIN)
        assert [row["row"] for row in found] == [0, 2]
        assert "expected integers (the stream's value_type is 'int64')" in found[0]["reason"]

    def test_the_smallest_integer_stands_for_a_missing_value(self) -> None:
        params = ds.SketchParams(max_weight=7, value_type="int64", time_unit="s")
        table = pa.table({**self.TABLE, "value": [-(1 << 63), 5, None]})
        [found] = refused_rows(table, params, self.PLAIN)
        assert found["row"] == 0
        assert found["reason"].startswith(f"is {-(1 << 63)}, which marks a missing value")

    def test_the_record_is_json_whatever_is_in_it(self) -> None:
        table = pa.table(
            {**self.TABLE, "value": [float("nan"), 2.0, 3.0], "id": [b"\x00\xff", b"b", b"c"]}
        )
        [found] = refused_rows(table, PARAMS, self.PLAIN)
        record = json.loads(found["record"], parse_constant=lambda word: pytest.fail(word))
        assert record == {"time": 1, "id": "00ff", "value": "nan", "weight": 1}
        assert found["place"] is None

    def test_a_harmless_fill_of_gaps_is_never_refused(self) -> None:
        table = pa.table({"time": [None, 2.5, None], "late": [1, 2, 3], "id": [1, 2, 3]})
        mapping = ColumnMapping(time="time", ids=("id",), fallback_time="late")
        assert [row["row"] for row in refused_rows(table, PARAMS, mapping)] == [1]

    def test_a_key_of_which_every_row_is_refused_is_there_and_empty(self) -> None:
        table = pa.table({**self.TABLE, "weight": [1, 9, 9]})
        builder = KeyedBuilder(PARAMS, self.PLAIN, ["id"], refused="count")
        builder.add(table)
        rows = pa.Table.from_batches(builder.batches()).to_pylist()
        assert [(r["id"], r["rows"], r["refused"]) for r in rows] == [
            (1, 1, 0), (2, 0, 1), (3, 0, 1)
        ]  # fmt: skip
        assert len(builder.sketches[(2,)].state()) == 0

    def test_what_a_filter_leaves_out_is_not_refused(self) -> None:
        table = pa.table({**self.TABLE, "time": [1, None, 3], "weight": [1, 1, 9]})
        everything = refused_rows(table, PARAMS, self.PLAIN)
        assert [(r["row"], r["column"]) for r in everything] == [(1, "time"), (2, "weight")]
        for only, rows in [
            (RowFilter(since=0), [2]),  # a time that nobody knows is in no range
            (RowFilter(until=3), []),
            (RowFilter(where=tables.parse_where("id != 3")), [1]),
            (RowFilter(where=tables.parse_where("weight is null")), []),
        ]:
            found = refused_rows(table, PARAMS, self.PLAIN, only=only)
            assert [row["row"] for row in found] == rows
            builder = KeyedBuilder(PARAMS, self.PLAIN, only=only)
            if rows:
                with pytest.raises(ds.ObservationError, match=rf"\[{rows[0]}\]") as caught:
                    builder.add(table)
                assert caught.value.row == rows[0]
            else:
                builder.add(table)

    def test_the_options_are_checked(self) -> None:
        with pytest.raises(ds.ParameterError, match="refused is 'ignore'"):
            KeyedBuilder(PARAMS, self.PLAIN, refused="ignore")  # type: ignore[arg-type]
        with pytest.raises(ds.ParameterError, match="memory_bytes is 7"):
            KeyedBuilder(PARAMS, self.PLAIN, memory_bytes=7)
        builder = KeyedBuilder(PARAMS, self.PLAIN, ["id"])
        builder.add(pa.table(self.TABLE))
        with pytest.raises(
            ds.ParameterError, match="column 'id' holds string, and held int64 before"
        ):
            builder.add(pa.table({**self.TABLE, "id": ["a", "b", "c"]}))


def test_texts_that_are_integers_name_rows_as_integers_do() -> None:
    """As a CSV file has them: 12 and "12" are two names, and a text of another kind is rejected."""
    typed = {"id": [12, 7, 3], "by": [1, 2, 1], "time": [5, 6, 7], "value": [1.0, 2.0, 3.0]}
    texts = typed | {"id": ["12", " 7", "x7"], "by": ["1", "2", "1"]}
    mapping = ColumnMapping(
        time="time", ids=("id",), value="value", casts={"id": "int64", "by": "int64"}
    )
    with pytest.raises(ds.ObservationError, match=r"id\[2\] is 'x7'; expected an integer"):
        KeyedBuilder(PARAMS, mapping, ["by"]).add(pa.table(texts))
    counted = KeyedBuilder(PARAMS, mapping, ["by"], refused="count")
    counted.add(pa.table(texts))
    plain = KeyedBuilder(PARAMS, mapping, ["by"])
    plain.add(pa.table(typed)[:2])
    assert counted.kinds == plain.kinds == {"id": "integers"}
    assert counted.totals["refused"] == 1
    assert {key: each.to_bytes() for key, each in counted.sketches.items()} == {
        key: each.to_bytes() for key, each in plain.sketches.items()
    }
