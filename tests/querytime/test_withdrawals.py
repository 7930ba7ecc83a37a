"""Revisions: corrections and withdrawals. The set of stored rows does not change."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.rows import for_each

import decaysketch as ds
from decaysketch.querytime import wire
from decaysketch.sources import SourceSet

COLUMNS = "rev int64, temp float64, site text"
ROWS = 1_200


def params_of(**more: Any) -> ds.SketchParams:
    given: dict[str, Any] = {"capacity": 20, "id_bits": 20, "seed": 3}
    return ds.SketchParams(columns=COLUMNS, revision="rev", **given | more)


def rows_of(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    ids = rng.permutation(ROWS)
    return {
        "ids": ids,
        "times": rng.integers(0, 500, ROWS),
        "temp": np.round(rng.normal(size=ROWS), 1),
        "site": np.array([f"s{k % 4}" for k in ids], object),
    }


def fed(params: ds.SketchParams, rows: dict[str, Any], places: Any, rev: Any = None) -> Any:
    sketch = ds.DecaySketch(params)
    sketch.looks_at_times = False
    values = {"temp": rows["temp"][places], "site": rows["site"][places], "rev": rev}
    sketch.update(values, 1, rows["times"][places], rows["ids"][places])
    return sketch


@for_each("more", [{}, {"strata": "site"}, {"copies": 2}, {"max_weight": 1, "capacity": 3}])
def test_withdrawn_rows_never_return_and_nothing_else_changes(more: dict[str, Any]) -> None:
    params, rows = params_of(**more), rows_of(1)
    everything, late = np.arange(ROWS), np.arange(300)
    plain = fed(params, rows, everything)
    half = fed(params, rows, np.arange(0, 700))
    gone = half.copy()
    assert gone.withdraw(where="site == 's1'") == gone.stats().withdrawn > 0
    merged = fed(params, rows, np.arange(500, ROWS)) | gone | half
    merged.merge(fed(params, rows, late).snapshot(), ds.decode(half.to_bytes()))
    merged.withdraw(where="site == 's1'")
    merged.merge(fed(params, rows, everything), pickle.loads(pickle.dumps(half)))
    for mine, theirs in zip(merged.states(), plain.states(), strict=True):
        for name in ("times", "ids", "weights", "levels", "watermarks"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name
    assert merged.count("none", where="site == 's1'").value == 0.0
    kept = plain.count("none", where="site != 's1'")
    assert merged.count("none").value == pytest.approx(kept.value)
    for again in (ds.decode(merged.to_bytes()), merged.copy()):
        assert again == merged
    by_id = plain.copy()
    stored = by_id.state().ids
    assert by_id.withdraw(ids=[*stored[:3], ROWS + 5]) == 3
    assert by_id.withdraw(ids=stored[:3]) == 0


def test_the_larger_revision_wins_at_one_time() -> None:
    params = params_of(capacity=500)
    rows = rows_of(2)
    corrected = rows | {"temp": np.full(ROWS, -9.0)}
    first, second = fed(params, rows, [0, 1], 0), fed(params, corrected, [0], 1)
    for merged in (first | second, second | first):
        assert merged.total("none", of="temp").value == pytest.approx(rows["temp"][1] - 9.0)
        assert merged.count("none", where="rev == 1").value == 1.0
    assert first | second == second | first
    assert (first | second).withdraw(where="rev == 1") == 1
    with pytest.raises(ds.ObservationError, match=r"rev.* 255") as found:
        fed(params, rows, [0, 1], [0, 255])
    assert (found.value.row, found.value.value) == (1, 255)


@for_each(
    "more, says",
    [
        ({"revision": "temp"}, "revision is 'temp', which is float64"),
        ({"revision": "none"}, "which is no column"),
        ({"revision": 7}, "which is no column"),
    ],
)
def test_a_revision_is_an_integer_column(more: dict[str, Any], says: str) -> None:
    with pytest.raises(ds.ParameterError, match=says):
        ds.SketchParams(columns=COLUMNS, **more)


def test_what_cannot_be_withdrawn_says_so() -> None:
    sketch = fed(params_of(), rows_of(3), np.arange(50))
    for given in ({}, {"ids": [1], "where": "temp > 0"}):
        with pytest.raises(ds.ParameterError, match="expected ids or where"):
            sketch.withdraw(**given)
    with pytest.raises(ds.ParameterError, match="no revision column"):
        ds.DecaySketch(ds.SketchParams(columns=COLUMNS)).withdraw(ids=[1])


def test_an_upgraded_sketch_can_withdraw() -> None:
    old = ds.DecaySketch(ds.SketchParams(id_bits=20, seed=3))
    old.update([1.0, 2.0], 1, [1_790_000_000, 1_790_000_001], [1, 2])
    new = ds.upgrade(old, "rev int64, v float64", value="v", revision="rev")
    assert new.withdraw(ids=[1]) == 1
    new |= ds.upgrade(old, "rev int64, v float64", value="v", revision="rev")
    assert new.total("none", of="v").value == 2.0


def test_set_algebra_omits_messages_that_a_source_withdrew() -> None:
    params, rows = params_of(capacity=500), rows_of(4)
    a, b = fed(params, rows, np.arange(0, 60)), fed(params, rows, np.arange(40, 100))
    before = SourceSet({"a": a, "b": b}).at("none", now=600).count("a & b")
    assert a.withdraw(ids=rows["ids"][50:60]) == 10
    after = SourceSet({"a": a, "b": b}).at("none", now=600).count("a & b")
    assert (before.value, after.value) == (20.0, 10.0)


def test_bytes_of_a_tombstone_with_values_are_refused() -> None:
    sketch = fed(params_of(capacity=500), rows_of(5), np.arange(30))
    state = sketch.state()
    bad = state.records.columns[0].keys.copy()
    bad[3] = 255
    columns = (state.records.columns[0]._replace(keys=bad), *state.records.columns[1:])
    forged = replace(state, records=replace(state.records, columns=columns))
    with pytest.raises(ds.CorruptSketchError, match="withdrawn row has a value"):
        ds.DecaySketch.from_bytes(wire.encode(forged))
