"""All families under one face: recipes, their JSON, and dispatch by the byte on the wire."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import decaysketch as ds
from decaysketch import families
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.client import Sensor
from decaysketch.ecm import ECMParams
from decaysketch.extremes import ExtremesParams
from decaysketch.families import FAMILIES, Recipe, decode, merge, recipe_from_dict, recipe_of
from decaysketch.series import SeriesParams
from decaysketch.tables import RESULT_FIELDS, merge_blobs, partition_merger

PARAMS = ds.SketchParams(max_weight=7, id_bits=30, capacity=20, seed=5)
HALVING = ds.decay.integral.halving(60)
TABLE = ds.decay.integral.table([[0, 0, 0], *([w, w // 2, 0] for w in range(1, 8))])
RECIPES: dict[str, Recipe] = {
    "decay": recipe_of(PARAMS),
    "integral": recipe_of(PARAMS, HALVING),
    "sum": recipe_of(SumParams(max_sum=1_000, capacity=20, max_window=500, seed=5)),
    "median": recipe_of(MedianParams(max_count=1_000, capacity=20, seed=5)),
    "ecm": recipe_of(ECMParams(width=9, depth=2, slots=3, capacity=20, seed=5)),
    "extremes": recipe_of(ExtremesParams(max_weight=7, id_bits=30, capacity=20, seed=5)),
    "series": recipe_of(SeriesParams(max_weight=7, id_bits=30, capacity=20, seed=5)),
}
#: Of which a row that comes again counts once.
NAMED = [name for name, recipe in RECIPES.items() if recipe.kind.input.named_by != "key"]


def fed(recipe: Recipe, first: int = 0, rows: int = 100) -> Any:
    """A sketch of some rows of a stream that is the same for all."""
    numbers = list(range(first, first + rows))
    sketch = recipe.empty()
    if recipe.kind.input.named_by == "key":
        sketch.update([n % 7 for n in numbers], numbers, source="a", epoch=first)
    elif recipe.kind.input.named_by == "ids":
        sketch.update([float(n) for n in numbers], [1 + n % 7 for n in numbers], numbers, numbers)
    else:
        sketch.update([1 + n % 7 for n in numbers], numbers, numbers, source="a")
    return sketch


def test_every_family_has_a_recipe_here() -> None:
    assert list(RECIPES) == list(FAMILIES)
    assert [family.number for family in FAMILIES.values()] == [1, 2, 3, 4, 5, 6, 7]
    for name, recipe in RECIPES.items():
        assert recipe.family == name
        assert type(recipe.empty()) is recipe.sketch_type


@pytest.mark.parametrize("name", RECIPES)
class TestEachFamily:
    def test_a_snapshot_is_merged_like_its_sketch(self, name: str) -> None:
        recipe = RECIPES[name]
        sited = recipe.kind.input.sited
        merged, part = fed(recipe, 0, 60), fed(recipe, 50, 50)
        frozen, before = part.snapshot(), part.to_bytes()
        part.update(*([1, 1, 7, 7] if recipe.kind.input.named_by == "ids" else [1, 7]))
        merged.merge(frozen, frozen)
        expected = fed(recipe, 0, 60) | fed(recipe, 50, 50) if sited else fed(recipe)
        assert merged == expected
        assert frozen.to_bytes() == frozen.thaw().to_bytes() == before

    def test_a_snapshot_is_kept_until_something_changes(self, name: str) -> None:
        recipe = RECIPES[name]
        sketch = fed(recipe)
        row = [1, 1, 700, 700] if recipe.kind.input.named_by == "ids" else [1, 700]
        changes: list[Any] = [
            lambda: sketch.update(*row),
            lambda: sketch.merge(fed(recipe, 200)),
            lambda: sketch.resize(7),
            sketch.trim,
        ]
        if name == "ecm":
            changes[2:3] = []  # a capacity of entries, which is not in what is kept
        if recipe.kind.input.clock and sketch.clock is None:
            changes.append(lambda: sketch.advance(900))
        for change in changes:
            kept = sketch.snapshot()
            sketch.stats(), len(sketch), sketch.to_bytes(), sketch.copy(), repr(sketch)
            assert sketch.snapshot() is kept
            change()
            assert sketch.snapshot() is not kept
            assert decode(sketch.to_bytes()) == sketch  # of what is held now
        assert sketch.copy() == sketch == pickle.loads(pickle.dumps(sketch))

    def test_a_sketch_stands_for_what_it_was_built_by(self, name: str) -> None:
        recipe = RECIPES[name]
        assert recipe_of(fed(recipe)) == recipe

    def test_figures_have_one_name(self, name: str) -> None:
        sketch = fed(RECIPES[name])
        stats, held = sketch.stats(), sketch.snapshot()
        assert (stats.fed, stats.too_late, stats.rows) == (100, 0, len(sketch))
        for figure in ("clock", "oldest", "newest", "complete_since"):
            assert getattr(stats, figure) == getattr(held, figure)


def test_a_recipe_stands_for_itself() -> None:
    for recipe in RECIPES.values():
        assert recipe_of(recipe) is recipe


class TestFed:
    """What a snapshot can tell of the number of distinct observations that the sketch was fed."""

    @pytest.mark.parametrize("name", NAMED)
    def test_all_are_counted_where_nothing_was_discarded(self, name: str) -> None:
        sketch = fed(RECIPES[name], rows=20)
        sketch.merge(fed(RECIPES[name], first=5, rows=10))
        counted = (20, True) if name != "extremes" else (None, False)  # most rows leave no trace
        assert sketch.snapshot().fed == counted
        assert RECIPES[name].empty().snapshot().fed == (0, True)

    def test_all_events_are_counted_where_nothing_names_them(self) -> None:
        sketch = fed(RECIPES["ecm"], rows=200)
        sketch.merge(fed(RECIPES["ecm"], first=5, rows=10))
        sketch.advance(900)
        assert sketch.snapshot().fed == (210, True)
        forgets = recipe_of(replace(RECIPES["ecm"].params, horizon=9))  # type: ignore[type-var]
        assert fed(forgets).snapshot().fed == (None, False)

    def test_several_copies_count_each_once(self) -> None:
        recipe = recipe_of(replace(PARAMS, copies=3))
        assert fed(recipe, rows=15).snapshot().fed == (15, True)

    @pytest.mark.parametrize("name", ["decay", "median"])
    def test_are_estimated_where_any_age_may_be_asked(self, name: str) -> None:
        observations, exact = fed(RECIPES[name], rows=1_000).snapshot().fed
        assert not exact
        assert observations is not None
        assert 400 < observations < 2_500

    @pytest.mark.parametrize("name", ["integral", "sum"])
    def test_are_not_known_where_what_is_old_leaves_no_trace(self, name: str) -> None:
        assert fed(RECIPES[name], rows=1_000).snapshot().fed == (None, False)

    @pytest.mark.parametrize("name", ["integral", "sum", "median"])
    def test_are_not_known_once_a_clock_was_told(self, name: str) -> None:
        sketch = fed(RECIPES[name], rows=9)
        sketch.advance(9)
        assert sketch.snapshot().fed == (None, False)


class TestPromises:
    """Whoever may merge a sketch again refuses a family that does not promise to bear it."""

    REFUSED = "family 'sum' has no idempotent merge"

    @pytest.fixture(autouse=True)
    def counting_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        broken = replace(FAMILIES["sum"].promises, idempotent=False)
        monkeypatch.setitem(FAMILIES, "sum", replace(FAMILIES["sum"], promises=broken))

    def test_in_batches(self) -> None:
        blob = fed(RECIPES["sum"]).to_bytes()
        with pytest.raises(ds.ParameterError, match=self.REFUSED):
            merge_blobs([blob])
        table = pa.table({name.name: pa.array([0], name.type) for name in RESULT_FIELDS[:4]})
        table = table.append_column("sketch", pa.array([blob], pa.binary()))
        with pytest.raises(ds.ParameterError, match=self.REFUSED):
            list(partition_merger([], RECIPES["sum"])(iter(table.to_batches())))
        assert merge_blobs([fed(RECIPES["median"]).to_bytes()])

    def test_in_a_sensor(self, tmp_path: Path) -> None:
        with pytest.raises(ds.ParameterError, match=self.REFUSED):
            Sensor("http://there", "s", "a", spool=tmp_path, recipe=RECIPES["sum"])

    def test_in_spark(self, tmp_path: Path) -> None:
        pytest.importorskip("pyspark")
        from decaysketch.spark.build import merge_table
        from decaysketch.spark.streaming import merge_rows
        from decaysketch.tables.sql.aggregates import merge as merge_group
        from decaysketch.tables.sql.queries import FunctionError

        with pytest.raises(ds.ParameterError, match=self.REFUSED):
            merge_rows(tmp_path / "table", RECIPES["sum"])
        assert not (tmp_path / "table").exists()
        rows: Any = None  # are not looked at
        with pytest.raises(ds.ParameterError, match=self.REFUSED):
            merge_table(rows, [], RECIPES["sum"])
        blobs = pa.array([fed(RECIPES["sum"]).to_bytes()], pa.binary())
        with pytest.raises(FunctionError, match=self.REFUSED):
            merge_group("sketch_merge", [], iter([(blobs,)]))


class TestIntegralDecays:
    def test_two_decays_are_two_streams(self) -> None:
        recipe, other = RECIPES["integral"], recipe_of(PARAMS, ds.decay.integral.halving(61))
        assert recipe.differences(other) == {"decay": (HALVING, ds.decay.integral.halving(61))}
        with pytest.raises(ds.IncompatibleSketchError, match="decay"):
            recipe.decode(fed(other).to_bytes())

    def test_a_decay_may_be_a_text_in_units(self) -> None:
        recipe = RECIPES["integral"]
        for text in ("halving(1min)", str(HALVING), '{"kind": "halving", "period": 60}'):
            form = recipe.to_dict() | {"decay": text}
            assert recipe_from_dict(form) == recipe
            assert families.normal_form(form) == recipe.to_dict()
        with pytest.raises(ds.ParameterError, match="'parsec' at character 10; expected a unit"):
            recipe_from_dict(recipe.to_dict() | {"decay": "halving(1 parsec)"})

    def test_a_table_is_given_apart(self) -> None:
        recipe = recipe_of(PARAMS, TABLE)
        blob = fed(recipe).to_bytes()
        assert recipe.decode(blob) == decode(blob, decay=TABLE) == fed(recipe)
        with pytest.raises(ds.IncompatibleSketchError, match="decay: 'not given'"):
            decode(blob)
        assert recipe_from_dict(recipe.to_dict(), table=TABLE) == recipe
        with pytest.raises(ds.ParameterError, match="give the decay as table"):
            recipe_from_dict(recipe.to_dict())


class TestSecrets:
    KEY = bytes(range(16))

    @pytest.mark.parametrize("decay", [None, HALVING])
    def test_are_in_a_recipe_and_not_in_its_json(self, decay: Any) -> None:
        recipe = recipe_of(replace(PARAMS, id_key=self.KEY), decay)
        blob = fed(recipe).to_bytes()
        assert recipe.decode(blob) == decode(blob, id_key=self.KEY) == fed(recipe)
        assert self.KEY.hex() not in str(recipe.to_dict())
        assert recipe_from_dict(recipe.to_dict(), id_key=self.KEY) == recipe

    def test_have_no_use_for_samplers(self) -> None:
        for name in ("sum", "ecm"):
            recipe = RECIPES[name]
            with pytest.raises(ds.IncompatibleSketchError, match="id_key"):
                decode(fed(recipe).to_bytes(), id_key=self.KEY)
            with pytest.raises(ds.ParameterError, match="keyed by its seed"):
                recipe_from_dict(recipe.to_dict(), id_key=self.KEY)


class TestRefusals:
    def test_nothing_to_merge_and_what_is_no_sketch(self) -> None:
        with pytest.raises(ds.ParameterError, match="at least one"):
            merge([])
        with pytest.raises(TypeError, match="cannot merge a int"):
            merge([7])  # type: ignore[list-item]
        with pytest.raises(TypeError):
            families.family_of("text")  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("blob", "message"),
        [
            (b"", "the first bytes are b''; a sketch starts with"),
            (b"PAR1....", "the first bytes are b'PAR1'"),
            (ds.wire.MAGIC + b"\x01", "5 bytes; a sketch has more"),
            (ds.wire.MAGIC + b"\x07\x01", "wire version 7; this release reads version 1"),
            (ds.wire.MAGIC + b"\x01\x09", r"family 9; expected one of 1 \(decay\), 2"),
        ],
    )
    def test_bytes_of_no_family(self, blob: bytes, message: str) -> None:
        with pytest.raises(ds.CorruptSketchError, match=message):
            families.family_of(blob)

    @pytest.mark.parametrize("name", ["decay", "sum", "median", "ecm"])
    def test_a_decay_where_it_is_chosen_at_query_time(self, name: str) -> None:
        recipe = RECIPES[name]
        with pytest.raises(ds.IncompatibleSketchError, match="chosen at query time"):
            decode(fed(recipe).to_bytes(), decay=HALVING)
        with pytest.raises(ds.ParameterError, match="unknown field 'decay'"):
            recipe_from_dict({**recipe.to_dict(), "decay": HALVING.to_dict()})
        if name != "decay":
            with pytest.raises(ds.ParameterError, match="no sketch is built with"):
                recipe_of(recipe.params, HALVING)

    def test_parameters_of_another_kind(self) -> None:
        blob = fed(RECIPES["sum"]).to_bytes()
        with pytest.raises(ds.IncompatibleSketchError, match=r"'SketchParams' != 'SumParams"):
            decode(blob, params=PARAMS)
        with pytest.raises(ds.ParameterError, match="no sketch is built with 7"):
            recipe_of(7)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("form", "message"),
        [
            ({"family": "heap", "params": {}}, "family is 'heap'; expected one of decay, integral"),
            ({"family": "sum"}, "params is None; expected an object"),
            ({"family": "sum", "params": 7}, "params is 7; expected an object"),
            ({"family": "sum", "params": {"kind": "median"}}, "kind is 'median'; expected the fam"),
            ({"family": "sum", "params": {"capacity": 9}}, "max_sum is missing"),
            ({"family": "integral", "params": {"max_weight": 1}}, "decay is None; expected an obj"),
            ({"params": {"accuracy": 2}}, "accuracy is 2; expected a number between 0 and 1"),
        ],
    )
    def test_json_of_no_recipe(self, form: dict[str, Any], message: str) -> None:
        with pytest.raises(ds.ParameterError, match=message):
            recipe_from_dict(form)
