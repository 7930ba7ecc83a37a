"""Filters: rows as plain Python chooses them, with SQL's nulls; what is no filter is refused."""

from __future__ import annotations

import contextlib
import operator
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

import decaysketch as ds
from decaysketch.tables import (
    ColumnMapping,
    ColumnStatistics,
    Comparison,
    KeyedBuilder,
    RowFilter,
    parse_where,
)

OPERATIONS: dict[str, Any] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COLUMNS: dict[str, Any] = {
    "number": st.integers(-3, 3),
    "share": st.sampled_from([-1.5, 0.0, 0.5, 2.0]),
    "text": st.sampled_from(["", "a", "b'c", "ü"]),
    "valid": st.booleans(),
}


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    column = draw(st.sampled_from(sorted(COLUMNS)))
    op = draw(st.sampled_from([*OPERATIONS, "is null", "is not null"]))
    if column == "valid" and op not in ("=", "!=", "is null", "is not null"):
        op = "="
    value: Any = draw(COLUMNS[column]) if op in OPERATIONS else None
    return Comparison(column, op, value)


def holds(comparison: Comparison, row: dict[str, Any]) -> bool:
    entry = row[comparison.column]
    if comparison.op == "is null":
        return entry is None
    if comparison.op == "is not null":
        return entry is not None
    return entry is not None and OPERATIONS[comparison.op](entry, comparison.value)


def text_of(comparison: Comparison) -> str:
    column = f'"{comparison.column}"' if comparison.column == "text" else comparison.column
    if comparison.value is None:
        return f"{column} {comparison.op.upper()}"
    value = comparison.value
    if isinstance(value, bool):
        return f"{column}{comparison.op} {str(value).upper()}"
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        return f"{column} {comparison.op}'{quoted}'"
    return f"{column} {comparison.op} {value!r}"


def rows_of(data: st.DataObject) -> list[dict[str, Any]]:
    row = st.fixed_dictionaries({n: st.one_of(st.none(), c) for n, c in COLUMNS.items()})
    return data.draw(st.lists(row, min_size=1, max_size=20))


SCHEMA = pa.schema(
    [
        ("number", pa.int16()), ("share", pa.float64()), ("text", pa.string()),
        ("valid", pa.bool_()),
    ]
)  # fmt: skip


class TestMask:
    @settings(max_examples=80, deadline=None)
    @given(data=st.data())
    def test_chooses_as_plain_python_does(self, data: st.DataObject) -> None:
        rows = rows_of(data)
        where = tuple(data.draw(st.lists(comparisons(), min_size=1, max_size=3)))
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        if data.draw(st.booleans()):
            table = table.set_column(2, "text", table["text"].dictionary_encode())
        expected = [all(holds(c, row) for c in where) for row in rows]
        assert RowFilter(where=where).mask(table).tolist() == expected
        parsed = parse_where(" and ".join(map(text_of, where)))
        assert parsed == where

    @settings(max_examples=80, deadline=None)
    @given(data=st.data())
    def test_a_part_that_cannot_match_has_no_row_that_does(self, data: st.DataObject) -> None:
        rows = rows_of(data)
        comparison = data.draw(comparisons())
        entries = [row[comparison.column] for row in rows]
        present = [entry for entry in entries if entry is not None]
        low, high = (min(present), max(present)) if present else (None, None)
        nulls = data.draw(st.sampled_from([None, entries.count(None)]))
        statistics = {comparison.column: ColumnStatistics(low, high, nulls, len(rows))}
        only = RowFilter(where=(comparison,))
        if not only.may_match(statistics):
            assert not any(holds(comparison, row) for row in rows)
        assert only.may_match({})

    def test_a_range_of_times_and_statistics(self) -> None:
        only = RowFilter(since=10, until=20)
        spans = [(0, 9), (0, 10), (19, 30), (20, 30)]
        assert [only.may_match({}, span) for span in spans] == [False, True, True, False]
        assert only.may_match({}, None)

    @for_each(
        "column, where, rows",
        [
            (pa.array([date(2024, 1, 1), date(2024, 5, 1)]), "x >= '2024-02-01'", [1]),
            (
                pa.array([datetime(2024, 1, 1), datetime(2024, 5, 1)], pa.timestamp("s")),
                "x < '2024-02-01 12:00:00'",
                [0],
            ),
            (
                pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
                "x = '2024-01-01'",
                [0, 1],
            ),
            (pa.array([1, 1 << 63], pa.uint64()), "x > 9223372036854775807", [1]),
            (pa.array([1, None, 2], pa.int8()), "x < 1000", [0, 2]),
            (pa.array([1, None, 2], pa.int8()), "x != -1000", [0, 2]),
            (pa.array([1, None, 2], pa.uint8()), "x <= -1", []),
            (pa.array([1, 2]), "x = 36893488147419103232", []),
            (pa.nulls(2), "x = 1", []),
            (pa.nulls(2), "x is null", [0, 1]),
        ],
    )
    def test_of_other_types(self, column: pa.Array, where: str, rows: list[int]) -> None:
        mask = RowFilter(where=parse_where(where)).mask(pa.table({"x": column}))
        assert mask.nonzero()[0].tolist() == rows

    @pytest.mark.parametrize(
        ("column", "where"),
        [
            (pa.array([1, 2]), "x = 'one'"),
            (pa.array(["1", "2"]), "x = 1"),
            (pa.array([True]), "x = 1"),
            (pa.array([1]), "x = true"),
            (pa.array([date(2024, 1, 1)]), "x = 'soon'"),
            (pa.array([[1]]), "x = 1"),
        ],
    )
    def test_what_does_not_compare_is_named(self, column: pa.Array, where: str) -> None:
        with pytest.raises(ds.ParameterError, match=r"x = .*the column is of type"):
            RowFilter(where=parse_where(where)).mask(pa.table({"x": column}))

    def test_a_column_that_is_not_there(self) -> None:
        with pytest.raises(ds.ParameterError, match="no column 'y'; there are x"):
            RowFilter(where=parse_where("y = 1")).mask(pa.table({"x": [1]}))


class TestParse:
    def test_the_language(self) -> None:
        assert parse_where("valid = TRUE and site <> 'it''s' AND `a``b` IS NOT NULL") == (
            Comparison("valid", "=", True),
            Comparison("site", "!=", "it's"),
            Comparison("a`b", "is not null"),
        )
        assert parse_where('"and" == -1.5e3 and x.y>=+7') == (
            Comparison("and", "=", -1500.0),
            Comparison("x.y", ">=", 7),
        )

    @for_each(
        "text",
        [
            "", " ", "x", "x =", "= 1", "x = 1 and", "and x = 1", "x = 1 or y = 2", "x = 1; drop",
            "x = 1 -- y", "x = 'a", "x = y", "x = null", "x is", "x is not", "x is not 1", "1 = 1",
            "x = 1 y = 2", "(x = 1)", "x = 1)", "not x = 1", "x in (1)", "x like 'a'", "x = 1.2.3",
            "x = 1e", "x = 0x10", "x = 12abc", "x = __import__('os')", "x = 'a' + 'b'", "x = inf",
            'x = "quoted"', "x = 1 and and y = 2", "'x' = 1", "x === 1", "x = @", "x\x00 = 1",
            "null = 1", "true = 1", "x = f(1)", "`` = 1",
        ],
    )  # fmt: skip
    def test_anything_else_is_refused_and_named(self, text: str) -> None:
        with pytest.raises(ds.ParameterError, match="where"):
            parse_where(text)

    def test_a_refusal_names_the_place_and_what_may_stand_there(self) -> None:
        for text, named in {
            "x = 1 or y = 2": "where has 'or' at character 6; expected AND or the end",
            " x = y": "where has 'y' at character 5; expected a number, 'text', true or false",
            "x = 1 and": "where has its end at character 9; expected a column",
            "x = 'a": 'where has "\'a" at character 4; expected a word, number or sign',
            "x = " + "9" * 5_000: "expected at most 400 digits",
            "x = 1e99999": "expected at most 400 digits, and 3 of an exponent",
        }.items():
            with pytest.raises(ds.ParameterError) as refused:
                parse_where(text)
            assert named in str(refused.value)

    def test_a_word_may_begin_as_one_of_the_language(self) -> None:
        text = "android = 1 and is_valid = true and null.x is not null"
        assert [each.column for each in parse_where(text)] == ["android", "is_valid", "null.x"]

    def test_length_is_bounded(self) -> None:
        with pytest.raises(ds.ParameterError, match="characters"):
            parse_where("x = 1 " * 5_000)
        with pytest.raises(ds.ParameterError, match="more than 100"):
            parse_where(" and ".join(["x = 1"] * 101))

    @settings(max_examples=100, deadline=None)
    @given(text=st.text(max_size=60))
    def test_no_text_does_anything_but_parse_or_be_refused(self, text: str) -> None:
        with contextlib.suppress(ds.ParameterError):
            parse_where(text)

    def test_a_comparison_is_checked(self) -> None:
        for column, op, value in [("x", "~", 1), ("x", "=", None), ("x", "is null", 1)]:
            with pytest.raises(ds.ParameterError):
                Comparison(column, op, value)
        with pytest.raises(ds.ParameterError, match=r"since is 1.5"):
            RowFilter(since=1.5)  # type: ignore[arg-type]


class TestBuild:
    @settings(max_examples=30, deadline=None)
    @given(data=st.data())
    def test_equals_a_build_of_the_chosen_rows(self, data: st.DataObject) -> None:
        rows: list[dict[str, Any]] = [
            {
                "time": data.draw(st.one_of(st.none(), st.integers(0, 9))),
                "late": data.draw(st.integers(0, 9)),
                "id": n,
                "valid": data.draw(st.sampled_from([True, False, None])),
            }
            for n in range(data.draw(st.integers(1, 15)))
        ]
        since, until = (data.draw(st.one_of(st.none(), st.integers(0, 9))) for _ in range(2))
        where = data.draw(st.sampled_from([(), parse_where("valid = true")]))
        only = RowFilter(since, until, where)
        mapping = ColumnMapping(time="time", ids=("id",), fallback_time="late", time_unit="min")
        params = ds.SketchParams(max_weight=1, id_bits=40, capacity=4, time_unit="s")
        only = RowFilter(
            None if since is None else 60 * since, None if until is None else 60 * until, where
        )
        schema = pa.schema(
            [("time", pa.int64()), ("late", pa.int64()), ("id", pa.int64()), ("valid", pa.bool_())]
        )
        chosen = []
        for row in rows:
            time = row["late"] if row["time"] is None else row["time"]
            if since is not None and time < since:
                continue
            if until is not None and time >= until:
                continue
            if where and row["valid"] is not True:
                continue
            chosen.append(row)
        filtered = KeyedBuilder(params, mapping, only=only)
        assert filtered.columns == ["time", "late", "id", *(["valid"] if where else [])]
        filtered.add(pa.Table.from_pylist(rows, schema=schema))
        plain = KeyedBuilder(params, mapping)
        plain.add(pa.Table.from_pylist(chosen, schema=schema))
        assert filtered.sketches == plain.sketches
        assert {k: v.tolist() for k, v in filtered.counts.items()} == {
            k: v.tolist() for k, v in plain.counts.items()
        }
