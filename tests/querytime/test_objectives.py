"""Two objectives: the state by its definition, bytes, and estimates of counts and sums."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.rows import for_each
from typer.testing import CliRunner
from wire import reference
from wire.states import columns_of, states_of

import decaysketch as ds
from decaysketch import minhit
from decaysketch.cli import app as program
from decaysketch.core.row_check import Verdict
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError, ParameterError
from decaysketch.families import recipe_from_dict, recipe_of
from decaysketch.querytime import objectives, wire
from decaysketch.tables.sql import aggregates
from quality.damage import cuts

BOTH = ("weight", "count")
SMALL = ds.SketchParams(
    max_weight=1 << 10, id_bits=8, capacity=3, seed=2, value_type="int64", objectives=BOTH
)
MANY = ds.SketchParams(max_weight=1 << 20, id_bits=30, capacity=60, objectives=BOTH)

Row = tuple[int, int, int, int]  # value, weight, time, id


def rows_of(seed: int, count: int = 60) -> list[Row]:
    """Rows with duplicates that agree, duplicates that do not, ties, and weights of all sizes."""
    rng = np.random.default_rng(seed)
    rows = [
        (int(v), int(2**e), int(t), int(k))
        for v, e, t, k in zip(
            rng.integers(0, 9, count), rng.uniform(0, 10, count), rng.integers(0, 15, count),
            rng.integers(0, 40, count), strict=True,
        )
    ]  # fmt: skip
    later = [(v + 1, w, t + int(rng.integers(0, 2)), k) for v, w, t, k in rows[:10]]
    return rows + rows[:20] + later


def fed(params: ds.SketchParams, rows: Sequence[Row]) -> ds.DecaySketch:
    sketch = ds.DecaySketch(params)
    if rows:
        sketch.update(*map(list, zip(*rows, strict=True)))
    return sketch


# -------------------------------------------------------------------------------------- the law


@for_each("seed", range(12))
def test_any_merge_tree_gives_the_states_by_definition(seed: int) -> None:
    """Each state is the definition with levels by weight, or those that weight 1 would give."""
    params = replace(SMALL, seed=seed, capacity=1 + seed % 4)
    rows, rng = rows_of(seed), np.random.default_rng(seed)
    defined = states_of(params, rows)
    parts = [fed(params, [rows[i] for i in part]) for part in _parts(rng, len(rows))]
    while len(parts) > 1:
        i, j = rng.choice(len(parts), 2, replace=False)
        merged = parts[i] | parts[j]
        if rng.random() < 0.5:  # over the wire
            merged = ds.DecaySketch.from_bytes(merged.to_bytes())
        parts = [merged, *(part for k, part in enumerate(parts) if k not in (i, j))]
    assert list(map(columns_of, parts[0].states())) == list(map(columns_of, defined))
    blob = parts[0].to_bytes()
    assert blob == reference.blob_of(*defined).to_bytes()
    assert ds.DecaySketch.from_bytes(blob) == parts[0] == fed(params, rows)
    by_fingerprint = parts[0].to_bytes(embed_params=False)
    assert ds.DecaySketch.from_bytes(by_fingerprint, params=params) == parts[0]
    with pytest.raises(IncompatibleSketchError):
        ds.DecaySketch.from_bytes(by_fingerprint, params=replace(params, objectives="weight"))


def _parts(rng: np.random.Generator, rows: int) -> list[Any]:
    """Parts that overlap and together have every row."""
    found = [rng.choice(rows, rng.integers(0, rows), replace=False) for _ in range(4)]
    return [*found, np.setdiff1d(np.arange(rows), np.concatenate(found))]


def test_a_smaller_capacity_is_as_if_built_with_it() -> None:
    rows = rows_of(3)
    large, small = fed(replace(SMALL, capacity=9), rows), fed(replace(SMALL, capacity=2), rows)
    merged = large | fed(replace(SMALL, capacity=2), rows[:5])
    large.resize(2)
    assert large == small == merged


def test_levels_by_count_are_those_of_weight_one_and_never_above() -> None:
    ids, weights = np.arange(200), np.repeat([1, 7, 100, 1024], 50)
    one = replace(SMALL, objectives="weight")
    by_count = minhit.top_levels(SMALL, ids, weights, copy=1)
    np.testing.assert_array_equal(by_count, minhit.top_levels(one, ids, np.ones(200, np.int64)))
    assert (by_count <= minhit.top_levels(SMALL, ids, weights)).all()


def test_rows_with_columns_and_labels_there_and_back() -> None:
    rows = rows_of(5, 200)
    weights, times, ids = ([row[k] for row in rows] for k in (1, 2, 3))
    columns = {"v": [float(row[0]) for row in rows], "s": [f"s{row[0]}" for row in rows]}
    for more, values in (
        ({"columns": "v float64, s text", "value_type": "record"}, columns),
        ({"value_type": "label"}, columns["s"]),
    ):
        sketch = ds.DecaySketch(replace(SMALL, **more))
        sketch.update(values, weights, times, ids)
        again = ds.DecaySketch.from_bytes(sketch.to_bytes())
        assert again == sketch
        assert again.to_bytes() == sketch.to_bytes()
        counts = [each.at("none").ask("count") for each in (again, sketch)]
        assert counts[0] == counts[1]


def test_the_status_of_rows_is_that_of_the_sample_that_is_more_favourable() -> None:
    rows = rows_of(7)
    sketch = fed(SMALL, rows)
    found = sketch.verdicts(*map(list, zip(*rows, strict=True)))
    stored = [
        set(zip(state.ids.tolist(), state.weights.tolist(), strict=True))
        for state in sketch.states()
    ]
    assert stored[0] != stored[1]
    for (_, weight, _, id_), status in zip(rows, found.tolist(), strict=True):
        lost = status == Verdict.BELOW_WATERMARK
        assert lost == ((id_, weight) not in stored[0] | stored[1])


# ------------------------------------------------------------------------------------ the bytes


def test_each_row_is_written_once() -> None:
    sketch = fed(SMALL, rows_of(11))
    first, second = sketch.states()
    union = objectives.joined(first, second)
    names = set(zip(union.ids.tolist(), union.weights.tolist(), strict=True))
    assert len(names) == len(union) < len(first) + len(second) == len(sketch)
    assert [columns_of(s) for s in objectives.parted(union, [first.watermarks, second.watermarks])
            ] == [columns_of(first), columns_of(second)]  # fmt: skip


def test_hostile_bytes_of_two_objectives_are_refused_or_canonical() -> None:
    blob = fed(SMALL, rows_of(1)).to_bytes()
    assert blob[6] == 0b101  # older readers know two required flags, and refuse others by number
    for cut in cuts(blob):
        with pytest.raises(CorruptSketchError):
            wire.decode(cut)
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(blob[:-4])
        damaged[rng.integers(16, len(damaged))] ^= 1 << rng.integers(0, 8)
        sealed = bytes(damaged) + struct.pack("<I", zlib.crc32(damaged))
        try:
            states = wire.decode(sealed)
        except (CorruptSketchError, IncompatibleSketchError):
            continue
        assert wire.encode(*states) == sealed


def test_bytes_that_no_builder_writes_are_refused_by_name() -> None:
    written = reference.blob_of(*fed(SMALL, rows_of(1)).states())
    silent = [10**9] * 4
    for changes, named in (
        ({"required": 0b111, "copies": 2, "others": [reference.Copy([], [])]}, "2 copies"),
        ({"family": 2}, "family 2"),
        ({"watermarks": [99] * 19, "by_count": [99] * 19}, "by weight or by count"),
        ({"by_count": []}, "by count: level 0 has .* the capacity is 3"),
        ({"by_count": [99] * 20}, "20 watermarks; there are 19 levels"),
        ({"count": 2**40}, "capacity 3"),
        ({"capacity": 40, "watermarks": silent, "by_count": silent, "rows": []}, "by weight"),
    ):
        with pytest.raises(CorruptSketchError, match=named):
            wire.decode(written.but(**changes))


# --------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    "fields",
    [
        {"objectives": ("count",)},
        {"objectives": "count,weight"},
        {"objectives": 7},
        {"max_weight": 1},
        {"copies": 2},
    ],
)
def test_what_two_objectives_do_not_allow(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(fields))):
        ds.SketchParams(**({"max_weight": 9, "objectives": BOTH} | fields))


def test_parameters_name_the_objectives_only_where_there_are_two() -> None:
    one, two = replace(SMALL, objectives="weight"), SMALL
    assert "objectives" not in one.to_dict()
    assert two.to_dict()["objectives"] == "weight,count"
    assert ds.SketchParams.from_dict(two.to_dict()) == two
    assert one.fingerprint != two.fingerprint
    assert "objectives" in one.differences(two)
    with pytest.raises(ParameterError, match="objectives"):
        ds.IntegralDecaySketch(two, ds.decay.integral.exponential(rate=0.1))


# ---------------------------------------------------------------------------------------- estimates


def _log_uniform(seed: int, rows: int = 3000) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    weights = np.floor(2.0 ** (20 * rng.random(rows))).astype(np.int64)
    return (
        rng.normal(20, 5, rows).round(1),
        weights,
        np.arange(rows),
        rng.permutation(1 << 20)[:rows],
    )


def test_counts_are_unbiased_and_their_intervals_hold() -> None:
    """25 seeds of 3,000 observations with weights to 2^20. By weight alone counts err by 100 %."""
    errors: dict[str, list[float]] = {}
    held = []
    for seed in range(25):
        values, weights, times, ids = _log_uniform(seed)
        sketch = ds.DecaySketch(replace(MANY, seed=seed))
        sketch.update(values, weights, times, ids)
        view = sketch.at(ds.decay.exponential(half_life=2000), len(times))
        g = 0.5 ** ((len(times) - times) / 2000)
        for name, truth in (
            ("count", g.sum()), ("sum", (g * weights).sum()), ("total", (g * values).sum())
        ):  # fmt: skip
            found = view.ask(name)
            errors.setdefault(name, []).append(found.value / truth - 1)
            held.append(found.lower <= truth <= found.upper)
            assert "unequal-weights" not in found.caveats
            assert found.upper - found.lower < truth
    for name, each in errors.items():
        deviation = np.sqrt(np.mean(np.square(each)))
        assert deviation < 0.16, name
        assert abs(np.mean(each)) < 4 * deviation / np.sqrt(len(each)), name
    assert np.mean(held) > 0.88  # 75 intervals of 95 %, of which three share a sketch


def test_groups_filters_and_comparisons_read_the_same_sample() -> None:
    values, weights, times, ids = _log_uniform(1)
    sketch = ds.DecaySketch(replace(MANY, columns="v float64, s text"))
    names = [f"s{k % 3}" for k in range(len(ids))]
    sketch.update({"v": values, "s": names}, weights, times, ids)
    view = sketch.at("none", len(times))
    count = view.ask("count")
    table = view.by("s").ask("count")
    assert sum(each.value for each in table.answers) == pytest.approx(count.value)
    assert table.unseen_at_most < count.value
    filtered = view.given(where="s == 's1'").ask("count")
    assert filtered.value == pytest.approx(sorted(table.answers, key=lambda e: e.value)[0].value,
                                           rel=0.5)  # fmt: skip
    for each in (count, filtered, *table.answers):
        assert "unequal-weights" not in each.caveats
        assert each.lower < each.value < each.upper < 3 * len(ids)
    pair = sketch.against(("window(1000s)", len(times)), ("window(1000s)", len(times) - 1001))
    difference = pair.ask("count")
    assert difference.lower < 0 < difference.upper
    assert difference.upper - difference.lower < 2000
    later = pair.ask("sum")
    assert later.lower < later.value < later.upper


def test_an_exact_sketch_is_exact() -> None:
    rows = [(5, 9, 100, 1), (6, 1, 101, 2), (6, 1024, 102, 3)]
    view = fed(SMALL, rows).at("none", 200)
    assert [view.ask(name).value for name in ("count", "sum", "total")] == [3, 1034, 17]
    assert view.ask("count").exact
    assert fed(SMALL, rows).states()[1].watermarks[0] == NO_WATERMARK


def test_the_papers_estimator_reads_the_sample_by_weight() -> None:
    sketch = ds.DecaySketch(MANY)
    sketch.update(*_log_uniform(2))
    alone = ds.DecaySketch(replace(MANY, objectives="weight"))
    alone.update(*_log_uniform(2))
    pair = [s.at("none", 3000, estimator="cohen-strauss").ask("sum") for s in (sketch, alone)]
    assert pair[0] == pair[1]


def test_a_sketch_advises_two_objectives_only_where_they_help() -> None:
    values, weights, times, ids = _log_uniform(4)
    alone = replace(MANY, objectives="weight", capacity=120)
    for params, given, advised in (
        (alone, weights, True),
        (MANY, weights, False),
        (alone, np.full(len(ids), 7), False),
        (replace(alone, max_weight=1), 1, False),
        (replace(alone, capacity=5000), weights, False),
    ):
        sketch = ds.DecaySketch(params)
        sketch.update(values, given, times, ids)
        advice = sketch.stats().advice
        assert (advice is not None) == advised, params
        if advised:
            assert "'weight,count' and capacity 60" in str(advice)


# -------------------------------------------------------------------------------------- interfaces


def test_sql_and_the_command_line_build_the_bytes_of_the_library(tmp_path: Path) -> None:
    values, weights, times, ids = (np.asarray(column)[:500] for column in _log_uniform(5))
    recipe = recipe_from_dict({"family": "decay", "params": MANY.to_dict()})
    arrays = tuple(map(pa.array, (values, weights, times, ids)))
    built = aggregates.build("sketch_build", recipe, None, iter([arrays]))
    sketch = ds.DecaySketch(MANY)
    sketch.update(values, weights, times, ds.observation_ids(ids, params=MANY))
    assert built == sketch.to_bytes()
    assert recipe == recipe_of(MANY)

    log = tmp_path / "log.csv"
    rows = zip(values, weights, times, ids, strict=True)
    log.write_text("v,w,t,n\n" + "".join(f"{v},{w},{t},{n}\n" for v, w, t, n in rows))
    command = ["build", str(log), "--id-columns", "n", "--time-column", "t", "--value-column", "v",
               "--weight-column", "w", "--max-weight", str(1 << 20), "--id-bits", "30",
               "--capacity", "60", "--objectives", "weight,count", "--time-unit", "s", "--any-time",
               "--out", str(tmp_path / "log.sketch"), "--json"]  # fmt: skip
    ran = CliRunner().invoke(program, command)
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "log.sketch").read_bytes() == built
    assert "advice" not in json.loads(ran.stdout)
    alone = [*command[:-6], "--any-time", "--out", str(tmp_path / "one.sketch"), "--json"]
    alone = [each for each in alone if each not in ("--objectives", "weight,count")]
    alone[alone.index("--id-bits") : alone.index("--id-bits") + 2] = ["--expected", "5000"]
    ran = CliRunner().invoke(program, alone)
    assert "objectives 'weight,count' and capacity 30" in json.loads(ran.stdout)["advice"]
    read = ds.DecaySketch.from_bytes((tmp_path / "one.sketch").read_bytes())
    assert read.params.id_bits == ds.SketchParams(expected=5000, capacity=60).id_bits < 30
