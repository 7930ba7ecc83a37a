"""Questions of columns of sketches, and what builds and merges them, as every engine calls them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.rows import for_each

import decaysketch as ds
from decaysketch import families
from decaysketch.asyncwindow import SumSampler
from decaysketch.decay.read import MAX_TEXT
from decaysketch.errors import ParameterError
from decaysketch.families import recipe_of
from decaysketch.tables.sql import aggregates, decoded, queries
from decaysketch.tables.sql.arguments import decay_of, recipe_of_text
from decaysketch.tables.sql.queries import FUNCTIONS, INFO, FunctionError
from tests.sql.given import FIXED, MEDIANS, NOW, PARAMS, ROWS, SECRET, SUMS, columns


@pytest.fixture(scope="module")
def sketch() -> ds.DecaySketch:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(**columns())
    return sketch


def blobs(*given: Any) -> pa.Array:
    found = [
        None if each is None else getattr(each, "to_bytes", lambda e=each: e)() for each in given
    ]
    return pa.array(found, pa.binary())


def ask(function: str, sketch: Any, *arguments: Any, recipes: Any = (), **named: Any) -> Any:
    """One answer as a Python object; arguments that are no arrays become some."""
    given = [each if isinstance(each, pa.Array) else pa.array([each]) for each in arguments]
    others = {name: pa.array([each]) for name, each in named.items()}
    return queries.answer(function, recipes, [blobs(sketch), *given], others)[0].as_py()


class TestDecayTexts:
    @for_each(
        "text, decay",
        [
            ("window(60)", ds.decay.window(60)),
            (" window ( 1h ) ", ds.decay.window(3600)),
            ("window(width=1500ms)", ds.decay.window(1.5)),
            ("exponential(half_life=15min)", ds.decay.exponential(half_life=900)),
            ("exponential(rate=1e-3)", ds.decay.exponential(rate=0.001)),
            ("polynomial(2)", ds.decay.polynomial(2)),
            ("polynomial(1.5, scale=1d)", ds.decay.polynomial(1.5, scale=86_400)),
            ("none", ds.decay.none()),
            ("none()", ds.decay.none()),
            ("exp(-x/60)", ds.decay.expression("exp(-x/60)")),
            ("1/(1 + log(1 + x/60))", ds.decay.expression("1/(1 + log(1 + x/60))")),
            ('{"kind": "piecewise", "steps": [[60, 1]]}', ds.decay.piecewise([(60, 1)])),
        ],
    )
    def test_say(self, text: str, decay: ds.Decay) -> None:
        assert decay_of(text, "s") == decay

    @pytest.mark.parametrize(
        "decay",
        [ds.decay.window(60), ds.decay.exponential(half_life=3), ds.decay.polynomial(2, 60)],
    )
    def test_are_what_the_library_shows(self, decay: ds.Decay) -> None:
        assert decay_of(repr(decay), "s") == decay
        assert decay_of(json.dumps(decay.to_dict()), "s") == decay

    def test_convert_to_the_unit_of_the_stream(self) -> None:
        assert decay_of("window(1h)", "us") == ds.decay.window(3_600_000_000)
        assert decay_of("window(90s)", "min") == ds.decay.window(1.5)
        with pytest.raises(
            ParameterError, match="that can be converted to the stream's unit 'ticks'"
        ):
            decay_of("window(1h)", "ticks")

    @for_each(
        "text",
        [
            "",
            "window",
            "window()",
            "window(-1)",
            "window(nan)",
            "window(1, 2)",
            "window(1, width=2)",
            "window(1 parsec)",
            "exponential(60)",
            "exponential(rate=2h)",
            "polynomial(2s)",
            "none(1)",
            "window(__import__('os'))",
            "__import__('os').system('true')",
            "().__class__",
            "x",
            "9**9**9**9",
            "{",
            "{}",
            "[1]",
            '{"kind": []}',
            '{"kind": {"kind": "window"}}',
            '{"kind": "window", "width": NaN}',
            '{"kind": "window", "width": "60"}',
            '{"kind": "piecewise", "steps": [[60]]}',
            '{"kind": "expression", "text": 1}',
            '{"kind": ' * 5_000,
            "{" + "[" * 19_000,
            "window(" + "9" * 400 + ")",
            "1" * (MAX_TEXT + 1),
            "\x00",
            "window(60);DROP TABLE t",
            "ｗindow(60)",
        ],
    )
    def test_that_are_hostile_or_wrong_are_refused(self, text: str) -> None:
        with pytest.raises(ParameterError):
            decay_of(text, "s")

    def test_that_name_no_decay_are_told_which_do(self) -> None:
        with pytest.raises(ParameterError, match="none of window, exponential, polynomial, none"):
            decay_of("halflife(60)", "s")


class TestStreamTexts:
    def test_say_what_is_built(self) -> None:
        assert recipe_of_text('{"id_bits": 48}').params == ds.SketchParams(1, 48, 3_074)
        assert recipe_of_text('{"accuracy": 0.02}').params == ds.SketchParams()
        assert recipe_of_text("{}").params == ds.SketchParams(capacity=3_074)
        for recipe in (recipe_of(PARAMS), FIXED, recipe_of(SUMS), recipe_of(MEDIANS)):
            assert recipe_of_text(json.dumps(recipe.to_dict())) == recipe

    @for_each(
        "text",
        [
            "",
            "temps",
            "[]",
            '{"accuracy": 0.02, "capacity": 9}',
            '{"max_weight": "1"}',
            '{"max_weight": 1, "color": 2}',
            '{"family": [], "params": {}}',
            '{"family": "hll", "params": {}}',
            '{"params": 1}',
            '{"family": "integral", "params": {"max_weight": 1}, "decay": {"kind": []}}',
            '{"family": "sum", "params": {"kind": []}}',
            '{"max_weight": 1, "id_key": "secret"}',
            '{"a":' * 3_000,
        ],
    )
    def test_that_are_hostile_or_wrong_are_refused(self, text: str) -> None:
        with pytest.raises(ParameterError):
            recipe_of_text(text)


class TestQuestions:
    """Equal to the sketch's own methods, whatever types SQL hands over."""

    def test_with_arguments(self, sketch: ds.DecaySketch) -> None:
        decay = ds.decay.none()
        quantiles = sketch.quantile([0.1, 0.9], decay, now=NOW)
        assert ask("decayed_quantile_value", sketch, 0.1, "none", NOW) == quantiles[0].value
        assert ask("decayed_quantiles_value", sketch, [0.1, 0.9], "none", NOW) == [
            each.value for each in quantiles
        ]
        several = ask("decayed_quantiles", sketch, [Decimal("0.1"), Decimal("0.9")], "none", NOW)
        assert [each["upper"] for each in several] == [each.upper for each in quantiles]
        rank = sketch.rank(30, decay, now=NOW).value
        for value in (30, 30.0, Decimal("30.00")):
            assert ask("decayed_rank_value", sketch, value, "none", NOW) == rank
        hot = sketch.selectivity(lambda v, w: (v > 30) & (w >= 2), decay, now=NOW)
        assert ask("selectivity_value", sketch, "v > 30 and w >= 2", "none", NOW) == hot.value
        hitters = sketch.heavy_hitters(0.015, decay, now=NOW)
        assert ask("heavy_hitters_value", sketch, 0.015, "none", NOW) == [
            {"item": each.value, "share": each.frequency.value} for each in hitters
        ]
        [first, *_] = ask("heavy_hitters", sketch, 0.015, "none", NOW)
        assert first["lower"] == hitters[0].frequency.lower
        assert first["exact"] is True

    @pytest.mark.parametrize(
        "now",
        [
            pa.array([NOW], pa.int32()),
            pa.array([float(NOW)]),
            pa.array([Decimal(NOW)]),
            pa.array([datetime.fromtimestamp(NOW, UTC)], pa.timestamp("us", "UTC")),
            pa.array([NOW * 1000 + 999], pa.timestamp("ms")),
        ],
        ids=lambda column: str(column.type),
    )
    def test_time_is_a_number_or_a_timestamp(self, sketch: ds.DecaySketch, now: pa.Array) -> None:
        expected = sketch.sum(ds.decay.window(50), now=NOW).value
        assert ask("decayed_sum_value", sketch, "window(50)", now) == expected

    def test_time_may_be_a_date(self, sketch: ds.DecaySketch) -> None:
        assert ask("decayed_count_value", sketch, "window(1d)", date(1970, 1, 2)) == ROWS

    def test_confidence_is_last_or_by_name(self, sketch: ds.DecaySketch) -> None:
        small = sketch.copy()
        small.resize(20)
        narrow = ask("decayed_sum", small, "window(80)", NOW, 0.5)
        wide = ask("decayed_sum", small, "window(80)", NOW, confidence=Decimal("0.99"))
        assert wide["lower"] < narrow["lower"] < narrow["value"] == wide["value"]
        assert not narrow["exact"]

    @pytest.mark.parametrize("missing", range(4))
    def test_null_gives_null(self, sketch: ds.DecaySketch, missing: int) -> None:
        for null in (pa.nulls(1), None):
            arguments = [blobs(sketch), pa.array([0.5]), pa.array(["none"]), pa.array([NOW])]
            kind = arguments[missing].type
            arguments[missing] = pa.nulls(1) if null is not None else pa.nulls(1, kind)
            assert queries.answer("decayed_quantile", (), arguments, {})[0].as_py() is None

    def test_what_is_not_defined_is_null(self) -> None:
        empty = ds.DecaySketch(PARAMS)
        assert ask("decayed_mean_value", empty, "none", NOW) is None
        assert ask("decayed_mean", empty, "none", NOW)["value"] is None
        assert ask("decayed_quantiles_value", empty, [0.5], "none", NOW) == [None]
        assert ask("decayed_sum_value", empty, "none", NOW) == 0.0
        assert ask("heavy_hitters", empty, 0.1, "none", NOW) == []

    @for_each("name", sorted(FUNCTIONS))
    def test_of_no_rows_have_their_type(self, name: str) -> None:
        arguments = [pa.nulls(0, pa.binary()), pa.nulls(0, pa.string()), pa.nulls(0, pa.int64())]
        if FUNCTIONS[name].argument is not None:
            arguments.insert(1, pa.nulls(0, pa.float64()))
        for function in (name, f"{name}_value"):
            answers = queries.answer(function, (), arguments, {})
            assert answers.type == queries.answer_type(function)
            assert len(answers) == 0


class TestFamilies:
    """All four kinds of sketch through the same functions."""

    def test_fixed_decay_is_asked_with_null(self) -> None:
        sketch = FIXED.empty()
        sketch.update(**columns())
        expected = sketch.sum(now=NOW)
        assert ask("decayed_sum_value", sketch, None, NOW) == expected.value
        with pytest.raises(FunctionError, match="expected NULL, because this sketch was built"):
            ask("decayed_sum_value", sketch, "none", NOW)

    def test_secret_keys_need_their_stream(self) -> None:
        sketch = ds.DecaySketch(SECRET)
        sketch.update([1.0], 1, [5], [7])
        with pytest.raises(FunctionError, match=r"IncompatibleSketchError: .*id_key"):
            ask("decayed_count", sketch, "none", NOW)
        found = ask(
            "decayed_count", sketch, "none", NOW, recipes=[recipe_of(PARAMS), recipe_of(SECRET)]
        )
        assert found["value"] == 1.0


class TestRefusals:
    def test_name_function_row_and_reason(self, sketch: ds.DecaySketch) -> None:
        some = pa.array([sketch.to_bytes(), b"not a sketch"])
        arguments = [some, pa.array(["none"] * 2), pa.array([NOW] * 2)]
        with pytest.raises(FunctionError, match=r"^decayed_mean_value: row 1 .*CorruptSketchError"):
            queries.answer("decayed_mean_value", (), arguments, {})
        broken = bytearray(sketch.to_bytes())
        broken[-1] ^= 1
        with pytest.raises(FunctionError, match=r"^decayed_sum: row 0 .*CorruptSketchError"):
            ask("decayed_sum", bytes(broken), "none", NOW)
        with pytest.raises(FunctionError, match=r"^sketch_info: row 0 .*CorruptSketchError"):
            queries.describe("sketch_info", (), blobs(b""))

    def test_of_what_was_discarded_are_errors_not_zeros(self, sketch: ds.DecaySketch) -> None:
        narrow = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=1, capacity=1))
        narrow.update([1.0, 2.0, 3.0], 1, [1, 2, 3], [0, 1, 0])
        with pytest.raises(FunctionError, match=r"decayed_sum: .*UnanswerableQueryError"):
            ask("decayed_sum", narrow, "none", 10)

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (["none", NOW, 2.0], "confidence is 2"),
            (["none", NOW, True], "confidence is True"),
            (["none", 0.5], "now is 0.5; expected an integer time"),
            (["none", "noon"], "now is of type string"),
            ([60, NOW], "decay is of type int64; expected texts"),
            (["none"], r"decayed_sum\(sketch, decay, now\[, confidence\]\): now is missing"),
            (["none", NOW, 0.9, 1], "is given 5 arguments; it takes 4"),
        ],
    )
    def test_of_arguments(self, sketch: ds.DecaySketch, arguments: list[Any], reason: str) -> None:
        with pytest.raises(FunctionError, match=reason):
            ask("decayed_sum", sketch, *arguments)

    def test_of_names(self, sketch: ds.DecaySketch) -> None:
        with pytest.raises(FunctionError, match="width is unknown"):
            ask("decayed_sum", sketch, "none", NOW, width=3)
        with pytest.raises(FunctionError, match="decay is given twice"):
            ask("decayed_sum", sketch, "none", NOW, decay="none")

    def test_of_texts_in_place_of_sketches(self) -> None:
        arguments = [pa.array(["abc"]), pa.array(["none"]), pa.array([NOW])]
        with pytest.raises(FunctionError, match="decayed_sum: sketch is of type string"):
            queries.answer("decayed_sum", (), arguments, {})

    @pytest.mark.parametrize("predicate", ["", "v", "import os", "v > 'x'", "v > 1 or __class__"])
    def test_of_predicates(self, sketch: ds.DecaySketch, predicate: str) -> None:
        with pytest.raises(
            FunctionError, match=r"selectivity: row 0 .*ParameterError: the predicate"
        ):
            ask("selectivity", sketch, predicate, "none", NOW)


class TestOpened:
    """What keeps a SELECT of many functions from decoding a sketch many times."""

    def test_a_sketch_is_decoded_and_sampled_once(
        self, sketch: ds.DecaySketch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = {"decode": 0, "sample": 0}
        decode, sample = families.decode, ds.DecaySketch.at

        def counted_decode(*args: Any, **named: Any) -> Any:
            calls["decode"] += 1
            return decode(*args, **named)

        def counted_sample(*args: Any, **named: Any) -> Any:
            calls["sample"] += 1
            return sample(*args, **named)

        monkeypatch.setattr(families, "decode", counted_decode)
        monkeypatch.setattr(ds.DecaySketch, "at", counted_sample)
        monkeypatch.setattr(decoded, "_shelf", decoded.Shelf())
        for function in ("decayed_sum", "decayed_mean", "decayed_count_value"):
            ask(function, sketch, "window(50)", NOW)
        ask("decayed_sum", sketch, "window(60)", NOW)
        assert calls == {"decode": 1, "sample": 2}

    def test_those_not_asked_for_longest_are_let_go(self) -> None:
        shelf = decoded.Shelf(rows_kept=2 * (ROWS + 64) + 50)
        blobs = []
        for number in range(3):
            each = ds.DecaySketch(PARAMS)
            each.update(**{**columns(), "timestamps": number + np.arange(ROWS)})
            blobs.append(each.to_bytes())
        first, second = (shelf.open(blob, ()) for blob in blobs[:2])
        assert shelf.open(blobs[0], ()) is first
        shelf.open(blobs[2], ())
        assert len(shelf) == 2
        assert shelf.open(blobs[0], ()) is first
        assert shelf.open(blobs[1], ()) is not second

    def test_small_ones_cost_more_than_their_rows(self) -> None:
        shelf = decoded.Shelf(rows_kept=650)
        for number in range(20):
            each = ds.DecaySketch(PARAMS)
            each.update(**{name: column[number : number + 1] for name, column in columns().items()})
            shelf.open(each.to_bytes(), ())
        assert len(shelf) == 10

    def test_one_is_kept_however_large(self, sketch: ds.DecaySketch) -> None:
        shelf = decoded.Shelf(rows_kept=0)
        assert shelf.open(sketch.to_bytes(), ()) is shelf.open(sketch.to_bytes(), ())


def arrow(**changed: Any) -> tuple[pa.Array, ...]:
    """Arguments of ``sketch_build`` after the stream, of the rows of :func:`columns`."""
    row = np.arange(ROWS)
    given = {
        "value": pa.array(row * 1.5),
        "weight": pa.array(1 + row % 4),
        "time": pa.array(1_000 + row),
        "source": pa.array(row % 3),
        "number": pa.array(row),
    }
    return tuple({**given, **changed}.values())


def build(*given: tuple[pa.Array, ...], stream: Any = PARAMS) -> bytes | None:
    return aggregates.build("sketch_build", recipe_of(stream), None, iter(given))


def counted(*given: tuple[pa.Array, ...]) -> dict[str, Any] | None:
    return aggregates.build_counted("sketch_build_counted", recipe_of(PARAMS), None, iter(given))


class TestBuild:
    def test_gives_the_bytes_of_the_library(self, sketch: ds.DecaySketch) -> None:
        whole = arrow()
        halves = [tuple(c.slice(start, 50) for c in whole) for start in (50, 0, 50)]
        assert build(whole) == build(*halves) == sketch.to_bytes()

    def test_takes_the_types_of_sql(self, sketch: ds.DecaySketch) -> None:
        row = np.arange(ROWS)
        decimals = arrow(
            value=pa.array([Decimal(int(r) * 15) / 10 for r in row], pa.decimal128(12, 1)),
            weight=pa.array([Decimal(int(1 + r % 4)) for r in row], pa.decimal128(9, 0)),
            time=pa.array((1_000 + row) * 1_000_000, pa.timestamp("us", "UTC")),
            source=pa.StructArray.from_arrays(
                [pa.array(row % 3, pa.int8()), pa.array(row, pa.int16())], ["a", "b"]
            ),
        )[:4]
        assert build(decimals) == sketch.to_bytes()

    def test_decimals_become_the_nearest_float(self) -> None:
        values = [Decimal("22.15"), Decimal("0.30"), None, Decimal("-1e10")]
        rows = (pa.array(values, pa.decimal128(20, 2)), pa.nulls(4), *(pa.array(range(4)),) * 2)
        found = families.decode(build(rows, stream=ds.SketchParams(max_weight=1)) or b"")
        expected = ds.DecaySketch(ds.SketchParams(max_weight=1))
        ids = ds.observation_ids(range(4), params=expected.params)
        expected.update([22.15, 0.3, None, -1e10], 1, range(4), ids)
        assert found == expected

    @pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.int16(), pa.decimal128(5, 0)])
    def test_ids_of_any_type(self, kind: pa.DataType) -> None:
        names = pa.array(range(ROWS)).cast(pa.string())
        ids = names.cast(pa.binary()) if kind == pa.binary() else names.cast(kind)
        blob = build(arrow(source=ids)[:4])
        assert blob is not None
        assert len(families.decode(blob)) == ROWS

    def test_null_value_is_missing_and_null_column_says_nothing(self) -> None:
        some = pa.array([None, *range(1, ROWS)], pa.float64())
        blob = build(arrow(value=some, weight=pa.nulls(ROWS)))
        found = families.decode(blob or b"")
        assert isinstance(found, ds.DecaySketch)
        decay = ds.decay.none()
        assert found.count(decay, now=NOW).value == found.sum(decay, now=NOW).value == ROWS
        assert found.mean(decay, now=NOW).value == 50.0
        none = families.decode(build(arrow(value=pa.nulls(ROWS))) or b"")
        assert np.isnan(none.mean(decay, now=NOW).value)  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ({"time": pa.array([None, *range(1, ROWS)])}, r"time\[0\] is missing"),
            ({"weight": pa.array([11] * ROWS)}, r"weight\[0\] is 11; expected 0 to 10"),
            ({"value": pa.array([float("nan")] * ROWS)}, r"value\[0\] is nan"),
            ({"number": pa.array([None, *range(1, ROWS)])}, r"id2\[0\] is missing"),
            ({"value": pa.array(["x"] * ROWS)}, r"value\[0\] is 'x'; expected a number"),
        ],
    )
    def test_refusals_name_column_and_row(self, changed: dict[str, Any], reason: str) -> None:
        with pytest.raises(FunctionError, match=f"^sketch_build: batch 0 .*{reason}"):
            build(arrow(**changed))

    def test_counted_leaves_out_rows_without_a_time_and_says_how_many(self) -> None:
        times = pa.array([None, *range(1_001, 1_050), None, *range(1_051, 1_100)])
        built = counted(arrow(), arrow(time=times), arrow(time=times))
        assert built is not None
        assert build(arrow()) == built["sketch"]
        assert (built["rows"], built["refused"]) == (3 * ROWS - 4, 4)
        assert built["first_refusal"] == "batch 1 of its group: time[0] is missing"
        alone = counted(arrow(time=times))
        assert alone is not None
        assert len(families.decode(alone["sketch"])) == ROWS - 2

    @pytest.mark.parametrize(
        ("changed", "refused", "reason"),
        [
            ({"weight": pa.array([11, *[1] * 99])}, 1, r"weight\[0\] is 11; expected 0 to 10"),
            ({"number": pa.array([*range(1, ROWS), None])}, 1, r"id2\[99\] is missing"),
            ({"value": pa.array([float("nan"), *[1.0] * 99])}, 1, r"value\[0\] is nan"),
            ({"value": pa.array(["x"] * ROWS)}, ROWS, r"value\[0\] is 'x'; expected a number"),
            ({"time": pa.nulls(ROWS, pa.int64())}, ROWS, r"time\[0\] is missing"),
        ],
    )
    def test_counted_leaves_out_whatever_the_plain_form_refuses(
        self, changed: dict[str, Any], refused: int, reason: str
    ) -> None:
        with pytest.raises(FunctionError):
            build(arrow(**changed))
        built = counted(arrow(**changed))
        assert built is not None
        assert (built["rows"], built["refused"]) == (ROWS - refused, refused)
        assert re.search(reason, built["first_refusal"])
        assert len(families.decode(built["sketch"])) == ROWS - refused

    def test_counted_is_the_plain_form_where_nothing_is_refused(
        self, sketch: ds.DecaySketch
    ) -> None:
        some = arrow(value=pa.array([None, *range(1, ROWS)], pa.float64()))
        assert counted(arrow()) == {
            "sketch": sketch.to_bytes(), "rows": ROWS, "missing_values": 0, "refused": 0,
            "replaced": 0, "first_refusal": None, "warnings": [],
        }  # fmt: skip
        assert (counted(some) or {})["missing_values"] == 1
        assert counted() is None
        assert counted(tuple(column.slice(0, 0) for column in arrow())) is None
        rows = (pa.array(["temps"] * ROWS), *arrow())
        streams = {"temps": recipe_of(PARAMS)}
        assert counted(arrow()) == aggregates.build_by_name("f", streams, iter([rows]), "count")

    def test_a_refused_row_is_told_which_function_leaves_it_out(self) -> None:
        with pytest.raises(FunctionError, match="sketch_build_counted skips"):
            build(arrow(time=pa.array([None, *range(1, ROWS)])))

    def test_samplers_take_a_source_and_its_number(self) -> None:
        rows = arrow(value=pa.array(np.arange(ROWS) + 1), weight=pa.nulls(ROWS))
        expected = SumSampler(SUMS)
        row = np.arange(ROWS)
        expected.update(row + 1, 1_000 + row, row, source=row % 3)
        assert build(rows, stream=SUMS) == expected.to_bytes()
        with pytest.raises(FunctionError, match="takes two, the source and its sequence number"):
            build(rows[:4], stream=SUMS)
        with pytest.raises(FunctionError, match="expected None: elements have none"):
            build(arrow(value=rows[0]), stream=SUMS)

    def test_clock_is_told(self) -> None:
        blob = aggregates.build("sketch_build", FIXED, NOW, iter([arrow()]))
        expected = FIXED.empty(NOW)
        expected.update(**columns())
        assert blob == expected.to_bytes()

    def test_by_name_or_json(self, sketch: ds.DecaySketch) -> None:
        for text in ("temps", json.dumps(PARAMS.to_dict())):
            rows = (pa.array([text] * ROWS), *arrow())
            found = aggregates.build_by_name("f", {"temps": recipe_of(PARAMS)}, iter([rows, rows]))
            assert found == sketch.to_bytes()

    @pytest.mark.parametrize(
        ("stream", "reason"),
        [
            (pa.array(["temp"] * ROWS), "f: expected one of temps, or JSON: stream 'temp' is not"),
            (pa.array(["temps", *["other"] * 99]), "'temps' and 'other' in one group"),
            (pa.array([None] * ROWS, pa.string()), "None and None in one group"),
            (pa.array(range(ROWS)), "stream is of type int64; expected a name or JSON"),
        ],
    )
    def test_refusals_of_streams(self, stream: pa.Array, reason: str) -> None:
        streams = {"temps": recipe_of(PARAMS)}
        with pytest.raises(FunctionError, match=reason):
            aggregates.build_by_name("f", streams, iter([(stream, *arrow())]))

    def test_of_nothing_is_null(self) -> None:
        assert build() is None
        assert aggregates.build_by_name("f", {}, iter([])) is None

    def test_a_batch_without_rows_does_not_end_a_group(self, sketch: ds.DecaySketch) -> None:
        rows = (pa.array(["temps"] * ROWS), *arrow())
        nothing = tuple(column.slice(0, 0) for column in rows)
        streams = {"temps": recipe_of(PARAMS)}
        given = iter([nothing, nothing, rows, nothing])
        assert aggregates.build_by_name("f", streams, given) == sketch.to_bytes()
        assert aggregates.build_by_name("f", streams, iter([nothing])) is None


class TestMerge:
    def parts(self) -> list[bytes]:
        whole = arrow()
        return [build(tuple(c.slice(k, 10) for c in whole)) or b"" for k in range(0, ROWS, 10)]

    def merge(self, *batches: list[bytes | None]) -> bytes | None:
        given: Iterator[pa.Array] = (pa.array(batch, pa.binary()) for batch in batches)
        return aggregates.merge("sketch_merge", (), given)

    def test_any_order_and_copies_give_the_same_bytes(self, sketch: ds.DecaySketch) -> None:
        parts = self.parts()
        assert self.merge([None, *parts[5:]], [], parts[::-1] * 20) == sketch.to_bytes()

    def test_of_nothing_is_null(self) -> None:
        assert self.merge() is self.merge([None, None]) is None

    def test_refusals(self) -> None:
        with pytest.raises(
            FunctionError, match=r"^sketch_merge: row 3 of its group: CorruptSketch"
        ):
            self.merge([None, self.parts()[0]], [None, b"x" * 40])
        other = ds.DecaySketch(ds.SketchParams(max_weight=10, id_bits=48, seed=4)).to_bytes()
        with pytest.raises(FunctionError, match=r"^sketch_merge: Incompatible.* seed: 3 != 4"):
            self.merge([self.parts()[0], other])

    def test_union_takes_columns_and_arrays(self, sketch: ds.DecaySketch) -> None:
        parts = self.parts()
        rows = [pa.array([parts[:5], None, []], pa.list_(pa.binary()))]
        rows += [pa.array([part, None, None], pa.binary()) for part in parts[5:]]
        found = queries.unite("sketch_union", (), rows).to_pylist()
        assert found == [sketch.to_bytes(), None, None]
        lists = pa.array([[parts[0]], [None, parts[0], b"x" * 40]], pa.list_(pa.binary()))
        with pytest.raises(FunctionError, match=r"row 1 of its batch, sketch 2: Corrupt"):
            queries.unite("sketch_union", (), [lists])


class TestInfo:
    def test_says_what_is_held(self, sketch: ds.DecaySketch) -> None:
        [info] = queries.describe("sketch_info", (), blobs(sketch)).to_pylist()
        assert info.keys() == {field.name for field in INFO}
        assert ds.SketchParams.from_dict(json.loads(info.pop("params"))) == PARAMS
        assert info == {
            "family": "decay",
            "decay": None,
            "time_unit": "s",
            "capacity": 500,
            "rows": ROWS,
            "oldest": 1_000,
            "newest": 1_099,
            "clock": None,
            "exact_after": None,
            "answerable_after": None,
            "bytes": len(sketch.to_bytes()),
            "digest": sketch.digest(),
        }

    def test_of_every_family(self) -> None:
        fixed, sums = FIXED.empty(NOW), SumSampler(SUMS)
        sums.advance(NOW)
        found = queries.describe("sketch_info", (), blobs(fixed, None, sums)).to_pylist()
        assert json.loads(found[0]["decay"]) == FIXED.decay.to_dict()
        assert found[1] is None
        assert [found[k]["clock"] for k in (0, 2)] == [NOW, NOW]
        assert found[2]["family"] == "sum"


class TestLabels:
    """Values that are texts: built from a column of text, asked by functions that name them."""

    LABELS = ds.SketchParams(id_bits=40, capacity=100, value_type="label")
    ROWS_OF_TEXT = (
        pa.array(["E42", "E7", None, "E42"]),
        pa.nulls(4),
        pa.array([1, 2, 3, 4]),
        pa.array([1, 2, 3, 4]),
    )

    def test_a_column_of_text_is_built_from(self) -> None:
        found = build(self.ROWS_OF_TEXT, stream=self.LABELS)
        values = self.ROWS_OF_TEXT[0].dictionary_encode()
        assert found == build((values, *self.ROWS_OF_TEXT[1:]), stream=self.LABELS)
        sketch = families.decode(found or b"")
        assert ask("heavy_hitters_of_labels", sketch, 0.1, "none", 9)[0]["item"] == "E42"
        assert ask("heavy_hitters_of_labels_value", sketch, 0.5, "none", 9) == [
            {"item": "E42", "share": pytest.approx(2 / 3)}
        ]
        groups = ask("decayed_group_by_of_labels", sketch, "none", 9)
        assert [each["item"] for each in groups["groups"]] == ["E42", "E7"]
        assert ask("decayed_last_of_labels", sketch, "none", 9) == {"value": "E42", "time": 4}
        assert ask("selectivity_value", sketch, "startswith(v, 'E7')", "none", 9) == (
            pytest.approx(1 / 3)
        )

    def test_which_function_is_meant_is_said(self, sketch: ds.DecaySketch) -> None:
        labelled = families.decode(build(self.ROWS_OF_TEXT, stream=self.LABELS) or b"")
        with pytest.raises(FunctionError, match="are labels; expected heavy_hitters_of_labels"):
            ask("heavy_hitters", labelled, 0.1, "none", 9)
        with pytest.raises(FunctionError, match="are numbers; expected heavy_hitters"):
            ask("heavy_hitters_of_labels", sketch, 0.1, "none", 9)
        with pytest.raises(FunctionError, match=r"decayed_mean: .* mean needs numbers"):
            ask("decayed_mean", labelled, "none", 9)

    def test_what_is_no_text_is_refused(self) -> None:
        numbers = (pa.array([1, 2, 3, 4]), *self.ROWS_OF_TEXT[1:])
        with pytest.raises(FunctionError, match="value is of type int64; expected text"):
            build(numbers, stream=self.LABELS)
        long = (pa.array(["a", "é" * 513, "b", "c"]), *self.ROWS_OF_TEXT[1:])
        with pytest.raises(FunctionError, match=r"value\[1\] has 1026 bytes"):
            build(long, stream=self.LABELS)
        rest = aggregates.build_counted(
            "sketch_build_counted", recipe_of(self.LABELS), None, iter([long])
        )
        assert rest is not None
        assert (rest["rows"], rest["refused"]) == (3, 1)
