"""Streams with columns: states by their definition, bytes, inputs, upgrades, queries."""

from __future__ import annotations

import math
import pickle
from typing import Any

import definition
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.records import tuples_of
from support.rows import for_each

import decaysketch as ds
from decaysketch import minhit
from decaysketch.core.labels import EncodedLabels
from decaysketch.core.records import Dictionaries, encode_records
from decaysketch.core.row_check import Verdict
from decaysketch.tables import ColumnMapping, sketches_by_key

TYPES = {"temp": "float64", "site": "text", "ok": "bool", "level": "int64"}
PARAMS = ds.SketchParams(max_weight=4, id_bits=12, capacity=12, seed=3, columns=TYPES)
NAMES = [name for name, _ in PARAMS.columns]

#: Values that order or equality could get wrong.
POOLS: dict[str, list[Any]] = {
    "temp": [None, math.nan, 0.0, -0.0, -1.5, 21.5, 1e300, 5e-324],
    "site": [None, "", "a", "ab", "b", "é", "z", "東", "\U0001f600"],
    "ok": [None, False, True],
    "level": [None, -(2**62), -1, 0, 1, 2**62],
}

Batch = tuple[list[dict[str, Any]], list[int], list[int], list[int]]


def drawn(rng: np.random.Generator, rows: int, *, ids: int = 60, span: int = 40) -> Batch:
    """Rows of which many are copies that disagree, also at one time."""
    values = [
        {name: pool[int(rng.integers(len(pool)))] for name, pool in POOLS.items()}
        for _ in range(rows)
    ]
    id_ = rng.integers(0, ids, rows)
    times = id_ // 3 + rng.integers(0, 2, rows) * (rng.random(rows) < 0.3) * span
    return values, (1 + id_ % 4).tolist(), times.tolist(), id_.tolist()


def some(batch: Batch, places: Any) -> Batch:
    return tuple([column[k] for k in places] for column in batch)  # type: ignore[return-value]


def sketch_of(*batches: Batch, params: ds.SketchParams = PARAMS) -> ds.DecaySketch:
    sketch = ds.DecaySketch(params)
    sketch.looks_at_times = False
    for batch in batches:
        sketch.update(*batch)
    return sketch


def plain(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row as it is kept: NaN is null, -0.0 is 0.0."""
    values = (row[name] for name in NAMES)
    return tuple(
        None if v is None or v != v else v + 0.0 if isinstance(v, float) else v for v in values
    )


def ordered(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sorts rows: by column in name order, null first, texts by their bytes."""
    return tuple((v is not None, v.encode() if isinstance(v, str) else v) for v in row)


def defined(batch: Batch, params: ds.SketchParams) -> list[Any]:
    """(time, id, weight, columns) of the rows of each copy, and watermarks."""
    values, weights, times, ids = batch
    rows = [plain(row) for row in values]
    distinct = sorted(set(rows), key=ordered)
    rank = {row: number for number, row in enumerate(distinct)}
    copies = list(zip((rank[row] for row in rows), weights, times, ids, strict=True))
    found = []
    for copy in range(params.copies):
        pairs = np.array([ids, weights], np.int64)
        tops = minhit.top_levels(params, pairs[0], pairs[1], copy=copy).tolist()
        levels = dict(zip(zip(ids, weights, strict=True), tops, strict=True))
        state = definition.state(
            copies, lambda id_, w, of=levels: of[id_, w], params.capacity, params.levels
        )
        kept = [(row.time, row.id, row.weight, distinct[row.value_key]) for row in state.rows]
        found.append((kept, list(state.watermarks)))
    return found


def held(sketch: ds.DecaySketch) -> list[Any]:
    found = []
    for state in sketch.states():
        assert state.records is not None
        columns = (c.tolist() for c in (state.times, state.ids, state.weights))
        rows = list(zip(*columns, tuples_of(state.records), strict=True))
        found.append((rows, state.watermarks.tolist()))
    return found


@for_each("seed", range(12))
def test_any_path_gives_the_defined_state(seed: int) -> None:
    rng = np.random.default_rng(seed)
    params = ds.SketchParams(
        max_weight=4, id_bits=12, capacity=int(rng.integers(3, 40)), seed=seed, columns=TYPES,
        copies=1 + 2 * (seed % 4 == 0),
    )  # fmt: skip
    batch = drawn(rng, 400)
    parts = []
    for _ in range(4):  # each in an order of its own, with repetitions, read in between
        places = rng.permutation(400)
        part = sketch_of(params=params)
        for piece in np.array_split(np.concatenate([places[:250], places[:100]]), 3):
            part.update(*some(batch, piece))
            len(part)
        parts.append(part)
    parts[0].update(*batch)
    expected = defined(batch, params)
    first = parts[0] | parts[1] | parts[2]
    second = parts[3]
    second.merge(parts[2].snapshot(), ds.DecaySketch.from_bytes(parts[0].to_bytes()), parts[1])
    assert held(first) == expected
    assert first.to_bytes() == second.to_bytes()
    assert first.digest() == second.digest()
    small = max(1, params.capacity // 2)
    first.resize(small)
    assert held(first) == defined(batch, params.with_capacity(small))


def test_bytes_copies_and_pickles_keep_the_state() -> None:
    sketch = sketch_of(drawn(np.random.default_rng(1), 900, ids=700))
    blob = sketch.to_bytes()
    for again in (
        ds.decode(blob),
        ds.DecaySketch.from_bytes(sketch.to_bytes(embed_params=False), params=PARAMS),
        sketch.copy(),
        pickle.loads(pickle.dumps(sketch)),
    ):
        assert again == sketch
        assert again.to_bytes() == blob
        later = ({"site": "later"}, 1, 10_000, 1)
        again.update(*later)
        assert again != sketch
        assert held(again)[0][0][0] == (10_000, 1, 1, (None, None, "later", None))


def test_every_form_of_columns_gives_the_same_bytes() -> None:
    rng = np.random.default_rng(8)
    rows = 500
    temp = np.round(rng.normal(20, 5, rows), 1)
    temp[::7] = np.nan
    sites = [None if k % 11 == 0 else f"site-{k % 30}" for k in range(rows)]
    ok = [None if k % 13 == 0 else k % 2 == 0 for k in range(rows)]
    level = [None if k % 17 == 0 else k for k in range(rows)]
    known = [None if x != x else x for x in temp.tolist()]
    mapping = {"temp": temp, "site": sites, "ok": ok, "level": level}
    table = pa.table(
        {
            "temp": pa.array(known),
            "site": pa.array(sites).dictionary_encode(),
            "ok": pa.array(ok),
            "level": pa.array(level, pa.int16()),
        }
    )
    names = sorted({s for s in sites if s})
    numbers = np.array([-1 if s is None else names.index(s) for s in sites])
    gaps = np.array([each is None for each in level])
    masked = np.ma.MaskedArray(np.array([each or 0 for each in level]), gaps)
    forms = [
        mapping,
        [{n: c[k] for n, c in mapping.items() if c[k] is not None} for k in range(rows)],
        table,
        table.to_struct_array(),
        pl.DataFrame(mapping),
        pd.DataFrame(
            {"temp": temp, "site": sites, "ok": ok, "level": pd.Series(level, dtype=object)}
        ),
        mapping | {"site": EncodedLabels(names, numbers), "level": masked},
        mapping | {"site": pa.array(sites, pa.large_string()), "temp": pa.array(known)},
    ]
    blobs = []
    for form in forms:
        sketch = ds.DecaySketch(PARAMS.with_capacity(100))
        sketch.update(form, 1, np.arange(rows), np.arange(rows))
        blobs.append(sketch.to_bytes())
    assert len(set(blobs)) == 1


def test_data_frames_fill_the_declared_columns() -> None:
    rows = 400
    names = [f"site-{k % 7}" for k in range(rows)]
    temp = [None if k % 5 == 0 else 20.0 + k % 9 for k in range(rows)]
    table = pa.table(
        {
            "n": pa.array(range(rows)),
            "when": pa.array(range(1_790_000_000, 1_790_000_000 + rows)),
            "site": pa.array(names).dictionary_encode(),
            "temp": pa.array(temp, pa.float32()),
            "other": pa.array(names),
        }
    )
    params = ds.SketchParams(id_bits=40, capacity=60, columns="site text, temp float64, ok bool")
    given: dict[str, Any] = {"time": "when", "id": "n", "params": params}
    ids = ds.observation_ids(np.arange(rows), params=params)
    expected = ds.DecaySketch(params)
    expected.update({"site": names, "temp": temp}, 1, table["when"].to_numpy(), ids)
    for frame in (table, table.to_pandas(), pl.from_arrow(table)):
        assert ds.DecaySketch.from_frame(frame, **given) == expected
    again = ds.DecaySketch(params)
    again.update_frame(table.slice(100), time="when", id="n")
    again.update_frame(table.slice(0, 300), time="when", id="n")
    assert again == expected
    with pytest.raises(ds.ParameterError, match="site, temp"):
        ds.DecaySketch.from_frame(table, value="temp", **given)
    bad = table.set_column(3, "temp", pa.array([float("inf")] * rows))
    with pytest.raises(ds.ObservationError, match=r"temp\[0\] is inf"):
        ds.DecaySketch.from_frame(bad, **given)
    mapping = ColumnMapping(time="when", ids=("n",), columns=("site", "temp"))
    by_site = sketches_by_key(table, params, mapping, ("site",))
    assert len(by_site) == 7
    expected.merge(*by_site.values())
    assert expected == again
    with pytest.raises(ds.ParameterError, match="the stream has no columns"):
        mapping.check(ds.SketchParams())
    with pytest.warns(ds.DisagreeingCopiesWarning, match="the id lacks a column"):
        ds.DecaySketch.from_frame(table, **(given | {"id": "site"}))


@for_each(
    "values, column, row, said",
    [
        ({"temp": [1.0, math.inf]}, "temp", 1, "inf"),
        ({"site": ["a", 3]}, "site", 1, "3"),
        ({"site": ["a", "x" * 1025]}, "site", 1, "1025 bytes"),
        ({"site": ["a", "\ud800"]}, "site", 1, "Unicode"),
        ({"ok": [True, 1]}, "ok", 1, "true or false"),
        ({"level": [1, 2.5]}, "level", None, "integers"),
        ({"level": [1, 2**63]}, "level", None, "integers"),
        ({"temp": [1.0]}, "temp", None, "temp has 1 rows, ids has 2"),
        ({"tmep": [1.0, 2.0]}, "values", None, "did you mean 'temp'"),
        ([{"temp": 1.0}, 3], "values", 1, "columns by name"),
        (3.5, "values", None, "columns by name"),
    ],
)
def test_a_bad_column_is_named_and_changes_nothing(
    values: Any, column: str, row: int | None, said: str
) -> None:
    sketch = sketch_of(drawn(np.random.default_rng(1), 30))
    before = sketch.to_bytes()
    with pytest.raises(ds.ObservationError) as fault:
        sketch.update(values, 1, [1, 2], [1, 2])
    assert (fault.value.column, fault.value.row) == (column, row)
    assert said in str(fault.value)
    with pytest.raises(ds.ObservationError, match="ids"):
        sketch.update({"temp": [1.0, 2.0]}, 1, [1, 2], [1, -2])
    assert sketch.to_bytes() == before


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"temp": "double"}, "'double'"),
        ("temp", "a name and a type"),
        ("a text, a text", "twice"),
        ({"time": "int64"}, "another name"),
        ({"": "text"}, "printable"),
        ({"x" * 129: "text"}, "129 bytes"),
        ({f"c{k}": "text" for k in range(33)}, "33 columns"),
        (3, "types by name"),
    ],
)
def test_a_bad_declaration_is_named(columns: Any, said: str) -> None:
    with pytest.raises(ds.ParameterError, match=said):
        ds.SketchParams(columns=columns)


def test_declarations_in_any_form_and_order_are_one_stream() -> None:
    texts = "site text, ok bool, level int64, temp float64"
    for columns in (texts, dict(reversed(TYPES.items())), list(TYPES.items()), PARAMS.columns):
        params = ds.SketchParams(max_weight=4, id_bits=12, capacity=12, seed=3, columns=columns)
        assert params == PARAMS
        assert params.fingerprint == PARAMS.fingerprint
    assert ds.SketchParams.from_dict(PARAMS.to_dict()) == PARAMS
    assert "columns" not in ds.SketchParams().to_dict()
    with pytest.raises(ds.IncompatibleSketchError, match="columns"):
        sketch_of().merge(ds.DecaySketch(ds.SketchParams(max_weight=4, columns="temp float64")))
    with pytest.raises(ds.ParameterError, match="decay"):
        ds.IntegralDecaySketch(PARAMS, "exponential(half_life=5)")


def test_texts_that_no_row_has_are_dropped() -> None:
    params = ds.SketchParams(capacity=100, columns="message text")
    sketch = ds.DecaySketch(params)
    for start in range(0, 200_000, 10_000):
        ids = np.arange(start, start + 10_000)
        sketch.update({"message": [f"message {k}" for k in ids.tolist()]}, 1, ids, ids)
    rows = len(sketch)
    assert rows < 2_000
    assert sketch.nbytes < 6_000_000
    state = sketch.state()
    assert state.records is not None
    assert [text for (text,) in tuples_of(state.records)] == [f"message {k}" for k in state.ids]


def test_dictionaries_that_come_again_give_the_same_bytes() -> None:
    """As text lists do: equal and other dictionaries in turn, with nulls, with texts that no row
    has, with one too many, and after texts were dropped."""
    rng = np.random.default_rng(6)
    params = ds.SketchParams(max_weight=1, id_bits=40, capacity=9, columns="site text")
    by_dictionary, by_list = ds.DecaySketch(params), ds.DecaySketch(params)
    few = [f"site-{k}" for k in range(7)]
    many = [f"room-{k}" for k in range(700)]
    for turn in range(40):
        texts: list[Any] = (few, few[::-1], [*few, None], many)[0 if turn < 4 else turn % 4]
        rows = 3 if turn % 9 == 8 else 2_000  # fewer rows than texts, and more
        numbers = rng.integers(0, len(texts), rows)
        gaps = rng.random(rows) < (0.1 if turn % 3 else 0.0)
        column = pa.DictionaryArray.from_arrays(pa.array(numbers, mask=gaps), pa.array(texts))
        times = 10_000 * turn + np.arange(rows)
        by_dictionary.update({"site": column}, 1, times, times)
        listed = [None if gap else texts[k] for k, gap in zip(numbers, gaps, strict=True)]
        by_list.update({"site": listed}, 1, times, times)
        assert by_dictionary.to_bytes() == by_list.to_bytes()
    long = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(["x" * 2_000]))
    for _ in range(2):
        with pytest.raises(ds.ObservationError, match="has 2000 bytes"):
            by_dictionary.update({"site": long}, 1, 1, 1)
    assert by_dictionary.to_bytes() == by_list.to_bytes()


def test_equal_dictionaries_are_read_once() -> None:
    texts, rows = [f"site-{k}" for k in range(9)], np.arange(20)
    known = Dictionaries()
    first, second, other = (
        encode_records(
            {"site": pa.DictionaryArray.from_arrays(pa.array(rows % 9), pa.array(each))},
            (("site", "text"),), 20, known,
        ).columns[0].texts
        for each in (texts, list(texts), texts[::-1])
    )  # fmt: skip
    assert first is second
    assert other == tuple(texts[::-1])


def test_upgrading_commutes_with_merging() -> None:
    rng = np.random.default_rng(4)
    old = ds.SketchParams(max_weight=4, id_bits=12, capacity=30, seed=3)
    sites, given = {}, {}
    for site in "ab":
        sites[site] = ds.DecaySketch(old)
        ids = rng.integers(0, 2000, 900) * 2 + (site == "b")
        values = [None if rng.random() < 0.1 else round(rng.normal(), 1) for _ in ids]
        given[site] = values, 1 + ids % 4, ids // 7, ids
        sites[site].update(*given[site])
    types = "temp float64, site text, ok bool"

    def upgraded(site: str) -> ds.DecaySketch:
        return ds.upgrade(sites[site], types, value="temp", constants={"site": site})

    merged = upgraded("a") | upgraded("b")
    built = ds.DecaySketch(merged.params)
    for site, columns in given.items():
        built.update({"temp": columns[0], "site": site}, *columns[1:])
    assert merged.to_bytes() == built.to_bytes()
    twice = ds.upgrade(sites["a"] | sites["b"], types, value="temp", constants={"site": "a"})
    again = ds.upgrade(sites["a"], types, value="temp", constants={"site": "a"}) | ds.upgrade(
        sites["b"], types, value="temp", constants={"site": "a"}
    )
    assert twice.to_bytes() == again.to_bytes()
    more = ds.upgrade(twice, types + ", level int64", constants={"level": 7})
    assert {row[-1] for row in held(more)[0][0]} == {(7, *row[-1]) for row in held(twice)[0][0]}
    with pytest.raises(ds.ParameterError, match="'temp'"):
        ds.upgrade(sites["a"], "temp int64", value="temp")
    with pytest.raises(ds.ParameterError, match="value is None"):
        ds.upgrade(sites["a"], types)
    with pytest.raises(ds.ParameterError, match="the sketch has text"):
        ds.upgrade(twice, "temp float64, ok bool")


def test_row_status_compares_columns() -> None:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update({"temp": [1.0, 2.0], "site": ["b", None]}, 1, [10, 10], [1, 2])
    values = {"temp": [1.0, 1.0, 1.0, 2.0, 5.0], "site": ["b", "c", "a", None, None]}
    found = sketch.verdicts(values, 1, [10, 10, 10, 11, 10], [1, 1, 1, 2, 3])
    names = [Verdict(each).name for each in found]
    new, old = "RETAINED", "ALREADY_RETAINED"
    assert names == [old, new, old, new, new]


def test_queries_filter_group_and_name_columns() -> None:
    rng = np.random.default_rng(6)
    rows = 3_000
    params = ds.SketchParams(capacity=10_000, columns=TYPES, copies=1)
    for copies in (1, 3):
        params = ds.SketchParams(capacity=10_000, columns=TYPES, copies=copies)
        temp = np.round(rng.normal(20, 5, rows), 1)
        temp[::9] = np.nan
        site = np.array([f"s{k}" for k in rng.integers(0, 4, rows)])
        ok, level = rng.random(rows) < 0.5, rng.integers(0, 9, rows)
        sketch = ds.DecaySketch(params)
        sketch.update(
            {"temp": temp, "site": site.tolist(), "ok": ok, "level": level}, 1,
            np.arange(rows), np.arange(rows),
        )  # fmt: skip
        view = sketch.at("none", rows)
        chosen = ok & (level > 3) & ~np.isnan(temp)
        found = view.given(where="ok and level > 3", of="temp").ask("mean")
        assert found.exact
        assert found.value == pytest.approx(temp[chosen].mean())
        groups = view.given(of="temp").by("site", order="key").ask("mean")
        expected = [np.nanmean(temp[site == f"s{k}"]) for k in range(4)]
        assert groups.answers.value.tolist() == pytest.approx(expected)
        count = view.given(where="temp is null and site in ('s1', 's2')").ask("count")
        assert count.value == pytest.approx((np.isnan(temp) & np.isin(site, ["s1", "s2"])).sum())
        with pytest.raises(ds.ParameterError, match=r"of: level \(int64\), ok"):
            view.ask("mean")
        with pytest.raises(ds.ParameterError, match="site is a text"):
            view.given(where="site > 3")
    one = ds.DecaySketch(ds.SketchParams(columns="temp float64, site text"))
    one.update({"temp": [1.0, 3.0], "site": "a"}, 1, [1, 2], [1, 2])
    assert one.at("none", 3).ask("mean").value == 2.0


def test_sampled_queries_of_columns_equal_those_of_one_value() -> None:
    """The sample of a stream with columns is that of a stream with one value."""
    rng = np.random.default_rng(9)
    rows = 4_000
    values = np.round(rng.lognormal(2, 1, rows), 2)
    ids, times, weights = (
        rng.permutation(rows),
        np.sort(rng.integers(0, 900, rows)),
        1 + rng.integers(0, 9, rows),
    )
    for copies in (1, 3):
        one = ds.DecaySketch(ds.SketchParams(max_weight=9, id_bits=16, capacity=90, copies=copies))
        one.update(values, weights, times, ids)
        many = ds.DecaySketch(
            ds.SketchParams(
                max_weight=9, id_bits=16, capacity=90, copies=copies, columns="x float64, s text"
            )
        )
        many.update({"x": values, "s": [f"{k % 5}" for k in ids]}, weights, times, ids)
        for name in ("count", "sum"):
            views = [each.at("exponential(half_life=200)", 1_000) for each in (one, many)]
            assert views[0].ask(name) == views[1].ask(name)
        for name in ("mean", "total", "median", "variance"):
            assert views[0].ask(name) == views[1].given(of="x").ask(name) or (
                views[0].given(of="v").ask(name) == views[1].given(of="x").ask(name)
            )
        pair = [views[0].given(where="v > 9"), views[1].given(where="x > 9")]
        assert pair[0].ask("count") == pair[1].ask("count")
