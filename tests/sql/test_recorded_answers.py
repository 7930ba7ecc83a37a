"""DuckDB and polars answer what was recorded of Spark: see ``python -m tests.recorded``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import duckdb
import polars as pl
import pytest

import decaysketch.duckdb
import decaysketch.polars
from decaysketch.families import recipe_of
from decaysketch.tables.sql.signatures import NAMES
from tests.recorded.entries import Entry, compare, read
from tests.recorded.in_sql import answers_of, refusal_in, sketches
from tests.recorded.material import FIXED, MEDIANS, NOW, PARAMS, SUMS

CASE = re.compile(r"sql: (.*?) FROM recorded_sketches(, refused)?")


@pytest.fixture(scope="module")
def recorded() -> list[Entry]:
    """What was asked of the sketches."""
    found = [each for each in read("sql") if CASE.fullmatch(each["case"])]
    assert len(found) > 100
    return found


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    row, parts = sketches()
    return pl.DataFrame({name: [blob] for name, blob in row.items()} | {"parts": [parts]})


def check(recorded: list[Entry], run: Callable[[str], Any]) -> None:
    """Every case, by a function that gives the answers in the rows of a call."""
    found = []
    for each in recorded:
        match = CASE.fullmatch(each["case"])
        assert match is not None
        asked = partial(run, match[1])
        answered = refusal_in(asked) if match[2] else answers_of(asked())
        found.append({"case": each["case"], "answered": answered})
    lines = compare(recorded, found)
    assert not lines, "\n".join(lines)


@pytest.fixture(scope="module")
def connection(table: pl.DataFrame) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        decaysketch.duckdb.register(connection)
        connection.register("recorded_sketches", table.to_arrow())
        yield connection


class TestDuckDB:
    def test_answers_are_those_recorded(
        self, recorded: list[Entry], connection: duckdb.DuckDBPyConnection
    ) -> None:
        def run(call: str) -> Any:
            call = re.sub(r"\barray\(([^)]*)\)", r"[\1]", call)
            call = call.replace("timestamp_seconds(", "to_timestamp(")
            rows = connection.sql(f"SELECT {call} FROM recorded_sketches").fetchall()
            return [row[0] for row in rows]

        check(recorded, run)

    def test_a_merge_is_that_recorded(self, connection: duckdb.DuckDBPyConnection) -> None:
        [merged] = [each for each in read("sql") if "sketch_merge(part)" in each["case"]]
        query = """
            SELECT sketch_merge(list(part))
            FROM (SELECT unnest(parts) AS part FROM recorded_sketches)
        """
        [[found]] = connection.sql(query).fetchall()
        assert answers_of([found]) == merged["answered"]

    def test_builds_are_those_recorded(self, connection: duckdb.DuckDBPyConnection) -> None:
        built = {
            match[1]: each["answered"]
            for each in read("sql")
            if (match := re.match(r"sql: sketch_build\('(\w+)'.*(?<!refused)$", each["case"]))
        }
        readings = f"""
            SELECT concat('d', id % 3) AS device, id AS number, (id * 7 % 40) / 2 AS value,
                   1 + id * 31 % 99 AS weight, to_timestamp({NOW} - id * 13 % 4000) AS at
            FROM range(300) AS log(id)
        """
        weighed = {"value": "value", "weight": "weight", "id": ["device", "number"], "by": "device"}
        numbered = {"source": "device", "sequence": "number"}
        of_streams: dict[str, tuple[Any, dict[str, Any]]] = {
            "recorded": (PARAMS, weighed),
            "recorded_fixed": (recipe_of(PARAMS, FIXED), weighed),
            "recorded_sums": (SUMS, {"value": "weight", **numbered}),
            "recorded_medians": (MEDIANS, {"value": "value", **numbered}),
        }
        assert built.keys() == of_streams.keys()
        for name, (stream, columns) in of_streams.items():
            relation = connection.sql(readings)
            table = decaysketch.duckdb.build(relation, stream, time="at", **columns)
            if "by" in columns:
                table = table.sort_by("device")
            assert answers_of(table["sketch"].to_pylist()) == built[name], name


def test_answers_of_polars_are_those_recorded(recorded: list[Entry], table: pl.DataFrame) -> None:
    def run(call: str) -> Any:
        call = call.replace("CAST('abc' AS BINARY)", "lit(b'abc')").replace("DATE'", "DATE('")
        call = re.sub(r"DATE\('([^']*)'", r"DATE('\1')", call).replace("'{", "r'{")
        return table.select(eval(call, words)).to_series().to_list()

    words: dict[str, Any] = {name: pl.col(name) for name in table.columns}
    words |= {name: partial(asked, name) for name in NAMES}
    words |= {
        "sketch_info": lambda sketch: sketch.sketch.info(),
        "sketch_union": lambda sketch, *others: sketch.sketch.union(*others),
        "array": lambda *entries: list(entries),
        "timestamp_seconds": lambda seconds: datetime.fromtimestamp(seconds, UTC),
        "DATE": date.fromisoformat,
        "NULL": None,
        "lit": pl.lit,
    }
    # In errors functions have the names that they have in polars.
    for each in recorded:
        if isinstance(each["answered"], str):
            each["answered"] = each["answered"].replace("sketch_union:", "union:")
    check(recorded, run)


def asked(name: str, sketch: pl.Expr, *arguments: Any) -> pl.Expr:
    """A call as SQL has it, with the confidence in its place."""
    asking = getattr(sketch.sketch, name)
    expected = asking.__func__.__code__.co_argcount - 1
    confidence = dict(zip(["confidence"], arguments[expected:], strict=False))
    return asking(*arguments[:expected], **confidence)
