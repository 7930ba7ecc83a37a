"""DuckDB and polars hand columns over as they are: every question of every family, nulls, hostile
bytes, groups. That answers are those of Spark, ``test_recorded_answers.py`` shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from time import sleep
from typing import Any, ClassVar

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from families import CASES, WINDOW, Case
from service import NOW

import decaysketch as ds
import decaysketch.duckdb
import decaysketch.polars
from decaysketch import families
from decaysketch.errors import ObservationError, OtherUnitError, ParameterError
from decaysketch.tables.sql import decoded, queries
from decaysketch.tables.sql.arguments import text_of
from decaysketch.tables.sql.queries import FUNCTIONS, FunctionError
from decaysketch.tables.sql.signatures import NAMES
from tests.sql.given import FIXED, PARAMS, SECRET, columns
from tests.sql.given import NOW as THEN

HOSTILE = [b"", b"abc", b"\xd5DSK", b"\xd5DSK" + bytes(60), b"\xff" * 4_096]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        decaysketch.duckdb.register(connection, [SECRET])
        yield connection


@pytest.fixture(scope="module")
def blob() -> bytes:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(**columns())
    return sketch.to_bytes()


def parts() -> list[bytes]:
    """Of the sketch ``blob``, with rows that several of them have."""
    made = []
    for start in range(0, 100, 20):
        sketch = ds.DecaySketch(PARAMS)
        rows = slice(start, start + 30)
        sketch.update(**{name: column[rows] for name, column in columns().items()})
        made.append(sketch.to_bytes())
    return made


# ---------------------------------------------------------------------------------- every question


def calls(case: Case, other: bytes) -> dict[str, list[Any]]:
    """Arguments between the sketch and the decay, of every function that a family answers."""
    found: dict[str, list[Any]] = {}
    for called in NAMES:
        form = FUNCTIONS[called.removesuffix("_value")]
        if form.question.name not in case.family.questions or form.labels:
            continue
        if form.argument is None:
            found[called] = []
            continue
        leading = form.question.leading
        assert leading is not None
        example = other if leading.kind == "sketch" else leading.example
        found[called] = [example[0] if form.one and isinstance(example, list) else example]
    return found


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_every_question_is_answered_as_by_what_spark_calls(
    case: Case, connection: duckdb.DuckDBPyConnection
) -> None:
    sketch, other = case.build(1, 0).to_bytes(), case.build(2, 100).to_bytes()
    decay = text_of(WINDOW) if case.chooses else None
    frame, sql, expected = pl.DataFrame({"sketch": [sketch]}), {}, {}
    asked = calls(case, other)
    assert len(asked) >= 6
    for called, argument in asked.items():
        given = [pa.array([each]) for each in (sketch, *argument, decay, NOW, 0.9)]
        expected[called] = queries.answer(called, (), given, {})[0].as_py()
        places = ", ".join(f"${name}" for name in ("sketch", *["argument"] * len(argument)))
        values = {"sketch": sketch, **dict.fromkeys(["argument"][: len(argument)], *argument)}
        values |= {"decay": decay, "now": NOW}
        query = f"SELECT {called}({places}, $decay, $now, confidence := 0.9)"
        [[sql[called]]] = connection.execute(query, values).fetchall()
        asking = getattr(frame["sketch"].sketch, called)
        [found] = asking(*argument, decay, NOW, confidence=0.9).to_list()
        assert found == expected[called], called
    assert sql == expected


# ------------------------------------------------------------------------------------------ DuckDB


class TestDuckDB:
    def test_a_null_gives_a_null(self, blob: bytes, connection: duckdb.DuckDBPyConnection) -> None:
        query = """
            SELECT decayed_quantile_value(sketch, q, decay, now) IS NULL,
                   sketch_info(sketch) IS NULL, sketch_merge([sketch, NULL]) IS NULL
            FROM (VALUES ($1, 0.5, 'none', 1100), (NULL, 0.5, 'none', 1100),
                  ($1, NULL, 'none', 1100), ($1, 0.5, NULL, 1100), ($1, 0.5, 'none', NULL))
                 AS rows(sketch, q, decay, now)
        """
        rows = connection.execute(query, [blob]).fetchall()
        assert [row[0] for row in rows] == [False, True, True, True, True]
        assert [row[1:] for row in rows] == [(False, False), (True, True), *[(False, False)] * 3]
        untyped = "SELECT decayed_mean(NULL, NULL, NULL), sketch_merge(NULL), sketch_info(NULL)"
        assert connection.sql(untyped).fetchall() == [(None, None, None)]

    def test_a_list_of_any_order_and_with_copies_merges_to_the_same(
        self, blob: bytes, connection: duckdb.DuckDBPyConnection
    ) -> None:
        connection.register("parts", pa.table({"sketch": parts(), "half": [0, 0, 1, 1, 1]}))
        query = """
            SELECT sketch_merge(list(sketch)), sketch_merge(list(sketch ORDER BY half DESC)),
                   sketch_union(list(sketch), list(sketch) FILTER (WHERE half = 1))
            FROM (FROM parts UNION ALL FROM parts)
        """
        assert connection.sql(query).fetchall() == [(blob, blob, blob)]
        halves = """
            SELECT sketch_union(list(sketch)) FROM (
                SELECT sketch_merge(list(sketch)) AS sketch FROM parts GROUP BY half)
        """
        assert connection.sql(halves).fetchall() == [(blob,)]

    @pytest.mark.parametrize("hostile", HOSTILE)
    def test_hostile_bytes_are_one_error_that_names_function_and_row(
        self, blob: bytes, hostile: bytes, connection: duckdb.DuckDBPyConnection
    ) -> None:
        log = pa.table({"sketch": [blob, None, hostile]})
        connection.register("log", log)
        for call in (
            "decayed_sum_value(sketch, 'none', 1100)", "sketch_info(sketch)",
            "sketch_union(sketch)", "sketch_merge([NULL, sketch])",
        ):  # fmt: skip
            function = call.partition("(")[0]
            with pytest.raises(
                duckdb.Error, match=f"FunctionError: {function}: row 2 .*CorruptSketchError"
            ):
                connection.sql(f"SELECT {call} FROM log").fetchall()
        assert connection.sql("SELECT count(*) FROM log").fetchall() == [(3,)]

    @pytest.mark.parametrize(
        ("call", "reason"),
        [
            ("decayed_mean($1, 'none')", "No function matches"),
            ("decayed_mean($1, decay := 'none', now := 1)", "No function matches"),
            ("decayed_mean($1, 'none', 1, 0.9, 2)", "is given 5 arguments; it takes 4"),
            ("decayed_mean($1, 60, 1)", "decay is of type int32; expected texts"),
            ("decayed_mean($1, 'halflife(60)', 1)", "none of window, exponential"),
            ("sketch_merge($1)", r"expected a list of sketches: sketch_merge\(list\(sketch\)\)"),
            ("sketch_merge(['abc'])", "sketch is of type list<.*>; expected the bytes"),
        ],
    )
    def test_what_cannot_be_asked_is_said(
        self, call: str, reason: str, blob: bytes, connection: duckdb.DuckDBPyConnection
    ) -> None:
        with pytest.raises(duckdb.Error, match=reason):
            connection.execute(f"SELECT {call}, $1 IS NULL", [blob]).fetchall()

    def test_many_rows_by_column(self, blob: bytes, connection: duckdb.DuckDBPyConnection) -> None:
        query = """
            SELECT now, decayed_count_value($1, 'window(' || width || ')', now)
            FROM (SELECT 1000 + i AS now, 1 + i % 7 AS width FROM range(5000) AS rows(i))
            ORDER BY now
        """
        rows = connection.execute(query, [blob]).fetchall()
        ages = np.array([row[0] for row in rows])[:, None] - columns()["timestamps"]
        widths = 1 + np.arange(5_000)[:, None] % 7
        assert [row[1] for row in rows] == ((ages >= 0) & (ages <= widths)).sum(axis=1).tolist()

    def test_secret_keys_need_their_stream(self, connection: duckdb.DuckDBPyConnection) -> None:
        sketch = ds.DecaySketch(SECRET)
        sketch.update([1.0], 1, [5], [7])
        query = "SELECT decayed_count_value($1, 'none', 9)"
        assert connection.execute(query, [sketch.to_bytes()]).fetchall() == [(1.0,)]
        with duckdb.connect() as other:
            decaysketch.duckdb.register(other)
            with pytest.raises(duckdb.Error, match=r"IncompatibleSketchError: .*id_key"):
                other.execute(query, [sketch.to_bytes()])
            decaysketch.duckdb.register(other, [SECRET])  # again, in place of the first
            assert other.cursor().execute(query, [sketch.to_bytes()]).fetchall() == [(1.0,)]


class TestBuild:
    LOG = """
        SELECT number % 3 AS site, 1000 + number AS t, number AS number, number * 1.5 AS value,
               1 + number % 4 AS weight, number % 3 AS device
        FROM range({rows}) AS log(number)
    """
    COLUMNS: ClassVar[dict[str, Any]] = {
        "time": "t", "value": "value", "id": ["device", "number"], "weight": "weight",
    }  # fmt: skip

    def test_gives_the_bytes_of_the_library(
        self, blob: bytes, connection: duckdb.DuckDBPyConnection
    ) -> None:
        log = connection.sql(self.LOG.format(rows=100))
        whole = decaysketch.duckdb.build(log, PARAMS, **self.COLUMNS)
        assert whole["sketch"].to_pylist() == [blob]
        sites = decaysketch.duckdb.build(log, PARAMS, by="site", **self.COLUMNS)
        assert sites["rows"].to_pylist() == [34, 33, 33]
        connection.register("sites", sites)
        assert connection.sql("SELECT sketch_merge(list(sketch)) FROM sites").fetchall() == [
            (blob,)
        ]
        of_polars = pl.DataFrame(log.to_arrow_table())
        assert decaysketch.duckdb.build(of_polars, PARAMS, by="site", **self.COLUMNS) == sites
        fixed = FIXED.empty(THEN)
        fixed.update(**columns())
        found = decaysketch.duckdb.build(log, FIXED, now=THEN, **self.COLUMNS)
        assert found["sketch"].to_pylist() == [fixed.to_bytes()]

    def test_ids_that_lack_a_column_are_said(self, connection: duckdb.DuckDBPyConnection) -> None:
        log = connection.sql(self.LOG.format(rows=100))
        short = self.COLUMNS | {"id": "device"}
        with pytest.warns(ds.DisagreeingCopiesWarning, match="^100 different readings have") as one:
            found = decaysketch.duckdb.build(log, PARAMS, **short)
        assert [each.filename for each in one] == [__file__]
        assert found["rows"].to_pylist() == [100]

    def test_of_no_rows_has_no_rows_and_its_columns(
        self, connection: duckdb.DuckDBPyConnection
    ) -> None:
        log = connection.sql("SELECT 'x' AS site, 1 AS at, 1 AS number WHERE false")
        for frame in (log, pl.DataFrame(log.to_arrow_table())):
            found = decaysketch.duckdb.build(frame, PARAMS, time="at", id="number", by="site")
            assert found.num_rows == 0
            assert found.schema.field("site").type == pa.string()
            assert found.schema.field("sketch").type == pa.binary()

    def test_a_refused_row_is_named_as_the_relation_counts_it(
        self, connection: duckdb.DuckDBPyConnection
    ) -> None:
        """Whatever batch it came in."""
        log = connection.sql(
            "SELECT * REPLACE (CASE WHEN number <> 250_000 THEN t END AS t, 0 AS weight) "
            f"FROM ({self.LOG.format(rows=300_000)})"
        )
        given = {"time": "t", "value": "value", "id": "number"}
        with pytest.raises(ObservationError, match=r"^t\[250000\] is missing") as refused:
            decaysketch.duckdb.build(log, PARAMS, **given)
        assert refused.value.row == 250_000
        assert connection.sql("SELECT 1").fetchall() == [(1,)]  # nothing is still read
        built = decaysketch.duckdb.build(log, PARAMS, refused="count", **given)
        assert built.select(["rows", "refused"]).to_pylist() == [{"rows": 299_999, "refused": 1}]

    def test_what_does_not_suit_is_refused(self, connection: duckdb.DuckDBPyConnection) -> None:
        log = connection.sql(self.LOG.format(rows=100))
        given = {"time": "t", "id": "number"}
        with pytest.raises(ParameterError, match="no column 'place'; there are site, t"):
            decaysketch.duckdb.build(log, PARAMS, by="place", **given)
        with pytest.raises(ParameterError, match="relation is a list; expected something with"):
            decaysketch.duckdb.build([], PARAMS, **given)
        in_ms = connection.sql("SELECT 1_767_225_600_000 + i AS t, i AS number FROM range(9) l(i)")
        nan = connection.sql(
            "SELECT i AS t, i AS number, 'nan'::DOUBLE AS value FROM range(9) l(i)"
        )
        with pytest.raises(ObservationError, match=r"value\[0\] is nan"):
            decaysketch.duckdb.build(nan, PARAMS, value="value", **given)
        with pytest.raises(OtherUnitError):
            decaysketch.duckdb.build(in_ms, PARAMS, **given)
        found = decaysketch.duckdb.build(in_ms, PARAMS, column_unit="ms", **given)
        assert found["rows"].to_pylist() == [9]


# ------------------------------------------------------------------------------------------ polars


class TestPolars:
    def test_a_null_gives_a_null(self, blob: bytes) -> None:
        frame = pl.DataFrame(
            {
                "sketch": [blob, None, blob, blob, blob],
                "q": [0.5, 0.5, None, 0.5, 0.5],
                "decay": ["none", "none", "none", None, "none"],
                "now": [THEN, THEN, THEN, THEN, None],
            }
        )
        sketch = pl.col("sketch").sketch
        answers = frame.select(
            sketch.decayed_quantile(pl.col("q"), pl.col("decay"), "now"),
            rows=sketch.info().struct.field("rows"),
        )
        assert answers["sketch"].is_null().to_list() == [False, True, True, True, True]
        assert answers["rows"].to_list() == [100, None, 100, 100, 100]
        assert pl.Series([None]).sketch.decayed_mean(None, None).to_list() == [None]

    def test_groups_merge_in_every_engine(self, blob: bytes) -> None:
        frame = pl.DataFrame({"half": [0, 0, 1, 1, 1], "sketch": parts()})
        merged = pl.col("sketch").sketch.merge()
        halves = frame.group_by("half").agg(merged)
        assert halves.select(merged).item() == blob
        assert frame.vstack(frame)["sketch"].reverse().sketch.merge() == blob
        expected = {
            half: ds.decode(each).count(ds.decay.window(30), now=THEN).value
            for half, each in halves.rows()
        }
        asked = merged.sketch.decayed_count_value(ds.decay.window(30), THEN)
        for engine in ("in-memory", "streaming"):
            found = frame.lazy().group_by("half").agg(asked).collect(engine=engine)
            assert dict(found.rows()) == expected
        over = frame.select("half", asked.over("half")).unique()
        assert dict(over.rows()) == expected

    def test_of_nothing(self) -> None:
        frame = pl.DataFrame({"sketch": [None, None]}, schema={"sketch": pl.Binary})
        for none in (frame, frame.clear()):
            assert none["sketch"].sketch.merge() is None
            found = none.select(pl.col("sketch").sketch.decayed_mean("none", THEN))
            assert found.height == none.height
            fields = [name for name, _ in queries.ESTIMATE]
            assert list(found.schema["sketch"].to_schema()) == fields
        assert frame.lazy().select(pl.col("sketch").sketch.info()).collect_schema() == {
            "sketch": pl.Series(pa.array([], queries.INFO)).dtype
        }

    def test_a_time_is_a_column_a_number_or_a_moment(self, blob: bytes) -> None:
        frame = pl.DataFrame({"sketch": [blob], "then": [THEN]}).with_columns(
            moment=pl.from_epoch("then", "s"), day=pl.date(1970, 1, 2)
        )
        expected = ds.decode(blob).sum(ds.decay.window(50), now=THEN).value
        sketch = pl.col("sketch").sketch
        for now in (THEN, "then", "moment", pl.col("then"), datetime.fromtimestamp(THEN, UTC)):
            assert frame.select(sketch.decayed_sum_value("window(50)", now)).item() == expected
        assert frame.select(sketch.decayed_count_value("window(1d)", "day")).item() == 100
        with pytest.raises(ParameterError, match="zone"):
            sketch.decayed_sum("none", datetime(2026, 1, 1))

    @pytest.mark.parametrize("hostile", HOSTILE)
    def test_hostile_bytes_are_one_error_that_names_function_and_row(
        self, blob: bytes, hostile: bytes
    ) -> None:
        sketches = pl.Series("sketch", [blob, None, hostile])
        for asked in (
            pl.col("sketch").sketch.decayed_sum("none", THEN),
            pl.col("sketch").sketch.info(),
            pl.col("sketch").sketch.union(),
            pl.col("sketch").sketch.merge(),
        ):
            with pytest.raises(FunctionError, match=r"^\w+: row 2 of its .*CorruptSketchError"):
                sketches.to_frame().select(asked)

    def test_what_cannot_be_asked_is_said(self, blob: bytes) -> None:
        sketches = pl.Series("sketch", [blob, blob, blob])
        with pytest.raises(FunctionError, match="decay is of type int32; expected texts"):
            sketches.sketch.decayed_mean(60, THEN)
        with pytest.raises(FunctionError, match="merge: sketch is of type large_string"):
            pl.Series(["abc"]).sketch.merge()
        with pytest.raises(FunctionError, match="rows are 3 of 'sketch', 1 of 'literal', 2 of"):
            sketches.sketch.decayed_mean("none", pl.lit(pl.Series("now", [1, 2])))
        other = ds.DecaySketch(ds.SketchParams(max_weight=10, id_bits=48, seed=4)).to_bytes()
        with pytest.raises(FunctionError, match=r"merge: IncompatibleSketchError.* seed: 3 != 4"):
            pl.Series([blob, other]).sketch.merge()

    def test_secret_keys_need_their_stream(self) -> None:
        sketch = ds.DecaySketch(SECRET)
        sketch.update([1.0], 1, [5], [7])
        sketches = pl.Series([sketch.to_bytes()])
        with pytest.raises(FunctionError, match=r"IncompatibleSketchError: .*id_key"):
            sketches.sketch.decayed_count("none", 9)
        assert sketches.sketch.decayed_count_value("none", 9, streams=[SECRET]).item() == 1.0
        assert sketches.sketch.merge(streams=[SECRET]) == sketch.to_bytes()
        assert sketches.sketch.info(streams=[SECRET]).struct.field("rows").item() == 1

    def test_every_function_says_what_it_takes(self) -> None:
        for called in NAMES:
            for namespace in (decaysketch.polars.SketchExpr, decaysketch.polars.SketchSeries):
                assert "now:" in (getattr(namespace, called).__doc__ or ""), called


def test_threads_that_ask_the_same_wait_for_one_another(
    blob: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sketch is opened once and sampled once, and is read by one thread at a time."""
    calls = {"decode": 0, "at": 0}

    def slowly(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            calls[name] += 1
            sleep(0.05)
            return function(*given, **named)

        return call

    monkeypatch.setattr(decoded, "_shelf", decoded.Shelf())
    monkeypatch.setattr(families, "decode", slowly("decode", families.decode))
    monkeypatch.setattr(ds.DecaySketch, "at", slowly("at", ds.DecaySketch.at))
    sketches = pl.Series([blob])
    with ThreadPoolExecutor(4) as pool:
        asked = [
            pool.submit(sketches.sketch.decayed_sum_value, "window(50)", THEN) for _ in range(4)
        ]
        assert len({each.result().item() for each in asked}) == 1
    assert calls == {"decode": 1, "at": 1}
