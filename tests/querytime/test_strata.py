"""Strata: states by their definition, bytes, limits, and queries against one sketch per stratum."""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from support.records import tuples_of
from support.rows import for_each

import decaysketch as ds
from decaysketch.core.row_check import Verdict
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.querytime import wire
from decaysketch.querytime.strata_state import StrataState

Batch = tuple[dict[str, list[Any]], Any, Any, Any]

TYPES = "host text, metric text, temp float64, fw text"
SITES = [None, "", "a", "ab", "b", "zürich"]


def params_of(strata: str = "host", **more: Any) -> ds.SketchParams:
    given: dict[str, Any] = {"max_weight": 4, "id_bits": 12, "capacity": 6, "seed": 3}
    return ds.SketchParams(columns=TYPES, strata=strata, **given | more)


def drawn(rng: np.random.Generator, rows: int, *, ids: int = 90, span: int = 40) -> Batch:
    """Rows with duplicates that disagree, also at one time, and an id in one stratum."""
    id_ = rng.integers(0, ids, rows)
    temps = [None, -1.5, 0.0, 21.5]
    values = {
        "host": [SITES[k % len(SITES)] for k in id_.tolist()],
        "metric": [f"m{k % 3}" for k in id_.tolist()],
        "temp": [temps[k] for k in rng.integers(0, 4, rows).tolist()],
        "fw": [[None, "1", "10", "2"][k] for k in rng.integers(0, 4, rows).tolist()],
    }
    times = id_ // 3 + rng.integers(0, 2, rows) * (rng.random(rows) < 0.3) * span
    return values, 1 + id_ % 4, times, id_


def some(batch: Batch, places: Any) -> Batch:
    values, *others = batch
    return (
        {name: [column[k] for k in places] for name, column in values.items()},
        *(column[places] for column in others),
    )  # type: ignore[return-value]


def sketch_of(*batches: Batch, params: ds.SketchParams) -> ds.DecaySketch:
    sketch = ds.DecaySketch(params)
    sketch.looks_at_times = False
    for batch in batches:
        sketch.update(*batch)
    return sketch


def by_name(sketch: ds.DecaySketch) -> dict[Any, Any]:
    """The rows and watermarks of each stratum."""
    state = sketch.state()
    assert isinstance(state, StrataState)
    assert state.records is not None
    columns = (c.tolist() for c in (state.times, state.ids, state.weights, state.levels))
    rows = list(zip(*columns, tuples_of(state.records), strict=True))
    found: dict[Any, Any] = {}
    for number in range(len(state.strata)):
        marks = state.marks[slice(*state.mark_offsets[number : number + 2])].tolist()
        own = [rows[k] for k in np.flatnonzero(state.stratum == number)]
        found[state.names(number)] = own, marks
    return found


def defined(batch: Batch, params: ds.SketchParams) -> dict[Any, Any]:
    """The same by a sketch for each stratum, with all columns."""
    parts = defaultdict(list)
    for row, name in enumerate(zip(*(batch[0][name] for name in params.strata), strict=True)):
        parts[name].append(row)
    plain = ds.SketchParams(columns=TYPES, max_weight=4, id_bits=12, capacity=params.capacity,
                            seed=params.seed)  # fmt: skip
    found = {}
    for name, places in parts.items():
        state = sketch_of(some(batch, places), params=plain).state()
        assert state.records is not None
        columns = (c.tolist() for c in (state.times, state.ids, state.weights, state.levels))
        marks = state.watermarks[state.watermarks != NO_WATERMARK].tolist()
        found[name] = list(zip(*columns, tuples_of(state.records), strict=True)), marks
    return found


@for_each("strata, capacity, seed", [("host", 3, 1), ("host, metric", 2, 2), ("metric", 30, 3)])
def test_any_path_gives_the_state_of_each_stratum(strata: str, capacity: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    params = params_of(strata, capacity=capacity, seed=seed)
    batch = drawn(rng, 300)
    parts = []
    for _ in range(4):  # each in an order of its own, with repetitions, read in between
        places = rng.permutation(300)
        part = ds.DecaySketch(params)
        part.looks_at_times = False
        for piece in np.array_split(np.concatenate([places[:200], places[:80]]), 3):
            part.update(*some(batch, piece))
            len(part)
        parts.append(part)
    parts[0].update(*batch)
    first = parts[0] | parts[1] | parts[2]
    second = parts[3]
    second.merge(parts[2].snapshot(), ds.DecaySketch.from_bytes(parts[0].to_bytes()), parts[1])
    assert by_name(first) == defined(batch, params)
    assert first.to_bytes() == second.to_bytes()
    assert first.digest() == second.digest()
    first.resize(max(1, capacity // 2))
    assert by_name(first) == defined(batch, params.with_capacity(max(1, capacity // 2)))
    second.merge(first)
    assert second == first


def test_bytes_copies_and_pickles_keep_the_state() -> None:
    params = params_of(capacity=30)
    sketch = sketch_of(drawn(np.random.default_rng(1), 900, ids=700), params=params)
    # A stratum of which nothing is left but its watermarks.
    sketch.update({"host": ["tied"] * 900}, 1, [5] * 900, range(2_000, 2_900))
    blob = sketch.to_bytes()
    head = wire.peek(blob)
    assert (head.rows, head.strata) == (len(sketch), 7)
    for again in (
        ds.decode(blob),
        ds.DecaySketch.from_bytes(sketch.to_bytes(embed_params=False), params=params),
        sketch.copy(),
        pickle.loads(pickle.dumps(sketch)),
    ):
        assert again == sketch
        assert again.to_bytes() == blob
        again.update({"host": ["new"], "temp": [1.0]}, 1, [10_000], [1])
        assert again != sketch
        again.trim()
        assert again.count("none", where="host == 'new'").value == 1.0
    other = params_of("metric", capacity=30)
    for theirs in (other, params_of(capacity=30, max_strata=9), ds.SketchParams(columns=TYPES)):
        with pytest.raises(ds.IncompatibleSketchError):
            ds.DecaySketch.from_bytes(blob, params=theirs)


@for_each(
    "change, says",
    [
        ({"strata": "temp"}, "strata has 'temp', which is float64"),
        ({"strata": "hots"}, "strata has 'hots', which is no column"),
        ({"strata": ["host", "metric", "fw"]}, "at most 2 columns"),
        ({"strata": "host", "copies": 3}, "expected 1 copy"),
        ({"strata": "host", "max_strata": 0}, "max_strata is 0"),
        ({"max_strata": 5}, "there are no strata"),
        ({"strata": 7}, "expected one or two text column names"),
    ],
)
def test_strata_are_checked(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ds.ParameterError, match=says):
        ds.SketchParams(columns=TYPES, **change)


def test_a_batch_of_too_many_strata_changes_nothing() -> None:
    sketch = ds.DecaySketch(params_of(max_strata=2))
    sketch.update({"host": ["a", "b"]}, 1, [1, 2], [1, 2])
    with pytest.raises(ds.ObservationError, match="row 2 has the new stratum host = 'c'") as found:
        sketch.update({"host": ["a", "b", "c", "d"]}, 1, [3, 4, 5, 6], [3, 4, 5, 6])
    assert (found.value.row, found.value.value) == (2, "c")
    assert len(sketch) == 2
    sketch.update({"host": ["b", "a"]}, 1, [3, 4], [3, 4])
    assert sketch.stats().strata == 2


def test_an_id_in_two_strata_counts_twice_and_is_said() -> None:
    sketch = ds.DecaySketch(params_of())
    sketch.update({"host": ["a", "b", "b"]}, 1, [1, 1, 2], [5, 5, 6])
    stats = sketch.stats()
    assert (stats.ids_in_several_strata, sketch.count("none").value) == (1, 3.0)
    assert "1 id is stored in several strata" in stats.warnings[0]


def test_row_status_is_that_of_the_stratum() -> None:
    params = params_of(capacity=4)
    rng = np.random.default_rng(4)
    before, batch = drawn(rng, 300), drawn(rng, 60)
    found = sketch_of(before, params=params).verdicts(*batch)
    plain = ds.SketchParams(columns=TYPES, max_weight=4, id_bits=12, capacity=4, seed=3)
    for host in SITES:
        old, new = (
            some(each, [k for k, name in enumerate(each[0]["host"]) if name == host])
            for each in (before, batch)
        )
        expected = sketch_of(old, params=plain).verdicts(*new)
        mine = found[[k for k, name in enumerate(batch[0]["host"]) if name == host]]
        assert mine.tolist() == expected.tolist()
    assert set(found.tolist()) == set(Verdict)


def fleet(capacity: int, seed: int = 0, rows: int = 4_000) -> tuple[ds.DecaySketch, dict[str, Any]]:
    """Hosts of very different size: the small ones are exact."""
    rng = np.random.default_rng(seed)
    host = np.minimum(rng.geometric(0.45, rows), 12)
    truth = {
        "host": np.array([f"h{k:02}" for k in host], object),
        "temp": np.round(rng.lognormal(0, 0.8, rows) + host, 3),
        "fw": np.array([str(k) for k in rng.integers(0, 3, rows)], object),
        "time": rng.integers(0, 5_000, rows),
    }
    params = ds.SketchParams(columns="host text, temp float64, fw text", strata="host",
                             capacity=capacity, id_bits=40, seed=seed)  # fmt: skip
    sketch = ds.DecaySketch(params)
    sketch.looks_at_times = False
    values = {name: truth[name] for name in ("host", "temp", "fw")}
    sketch.update(values, 1, truth["time"], np.arange(rows))
    return sketch, truth


def test_a_query_of_a_stratum_reads_its_own_bands() -> None:
    """The same result as a sketch of the stratum alone; and exact where the stratum is."""
    sketch, truth = fleet(64)
    decay, exact = "exponential(half_life=900)", 0
    tables = {
        name: getattr(sketch, name)(*leading, decay, of=of, by="host", order="key")
        for name, leading, of in (
            ("count", (), None), ("mean", (), "temp"), ("quantile", ([0.5, 0.95],), "temp"),
            ("median", (), "temp"), ("stddev", (), "temp"),
        )
    }  # fmt: skip
    for number, host in enumerate(np.unique(truth["host"])):
        alone = ds.DecaySketch(ds.SketchParams(columns="host text, temp float64, fw text",
                                               capacity=64, id_bits=40))  # fmt: skip
        mine = np.flatnonzero(truth["host"] == host)
        values = {name: truth[name][mine] for name in ("host", "temp", "fw")}
        alone.looks_at_times = False
        alone.update(values, 1, truth["time"][mine], mine)
        now = int(truth["time"].max())
        where = f"host == '{host}' and fw in ('0', '1')"
        one, other = (each.count(decay, now=now, where=where) for each in (sketch, alone))
        assert (one.value, one.exact, one.rows) == (
            pytest.approx(other.value),
            other.exact,
            other.rows,
        )
        assert [one.lower, one.upper] == pytest.approx([other.lower, other.upper])
        exact += one.exact
        level = 1 - 0.05 / len(tables["count"])
        row = tables["count"][number]
        other = alone.count(decay, now=now, confidence=level)
        assert (row.by["host"], row.answer.exact) == (host, other.exact)
        assert row.answer.value == pytest.approx(other.value)
        assert row.answer.upper == pytest.approx(other.upper, rel=1e-9)
        quantiles = tables["quantile"][number].answer
        for q, mine_q in zip((0.5, 0.95), quantiles, strict=True):
            other = alone.quantile(q, decay, now=now, confidence=level, of="temp")
            assert (mine_q.value, mine_q.lower, mine_q.upper) == (
                other.value,
                other.lower,
                other.upper,
            )
        assert tables["median"][number].answer.value == quantiles[0].value
        assert tables["mean"][number].answer.exact == tables["stddev"][number].answer.exact
    assert 0 < exact < len(tables["count"])
    assert tables["count"].unseen_at_most == 0.0


def test_other_queries_read_all_strata() -> None:
    inside = []
    for seed in range(6):
        sketch, truth = fleet(40, seed)
        weight = 0.5 ** ((truth["time"].max() - truth["time"]) / 900)
        for fw in "012":
            kept = truth["fw"] == fw
            found = sketch.count("exponential(half_life=900)", where=f"fw == '{fw}'")
            inside.append(found.lower <= weight[kept].sum() <= found.upper)
            found = sketch.mean("exponential(half_life=900)", of="temp", where=f"fw == '{fw}'")
            true = np.average(truth["temp"][kept], weights=weight[kept])
            inside.append(found.lower <= true <= found.upper)
    assert np.mean(inside) >= 0.88  # 36 intervals of 95 %: fewer with a chance of 3 %
    table = sketch.count("none", by="fw", order="key")
    assert [row.by["fw"] for row in table] == ["0", "1", "2"]
    assert table.unseen_at_most > 0.0
    with pytest.raises(ds.ParameterError, match="strata"):
        sketch.at("none", estimator="cohen-strauss")


def test_conditions_of_a_stratum_are_those_that_hold_in_it() -> None:
    sketch, _ = fleet(64)
    whole = sketch.count("none")
    assert not whole.exact
    for where, exact in (
        ("host == 'h12'", True), ("startswith(host, 'h1') and temp > 0", True),
        ("host == 'h12' or fw == '1'", False), ("host != 'h01'", False),
        ("not host != 'h12'", True), ("host is null", True),
    ):  # fmt: skip
        assert sketch.count("none", where=where).exact == exact, where
    # A weight may be of any size in a stratum that it was not read in.
    assert "weight-on-grid" in sketch.count("none", weight="temp", where="fw == '1'").caveats
