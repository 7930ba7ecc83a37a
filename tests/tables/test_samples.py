"""A sketch as a table: sums over masses are the sketch's own results."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from families import CASES
from support.rows import for_each

import decaysketch as ds
import decaysketch.duckdb
import decaysketch.polars
from decaysketch.tables.samples import METADATA

NOW = 1_790_009_000
DECAY = "exponential(half_life=30min)"


def fleet(rows: int = 6_000, capacity: int = 400, copies: int = 1) -> ds.DecaySketch:
    rng = np.random.default_rng(5)
    columns = {"temp": "float64", "site": "text", "ok": "bool", "mass": "int64"}
    params = ds.SketchParams(
        max_weight=9, capacity=capacity, time_unit="s", copies=copies, columns=columns
    )
    sketch = ds.DecaySketch(params)
    given: dict[str, Any] = {
        "temp": np.where(np.arange(rows) % 9, rng.normal(20, 3, rows), np.nan),
        "site": [None if k % 17 == 0 else f"s{k % 4}" for k in range(rows)],
        "ok": [k % 5 > 0 for k in range(rows)],
        "mass": np.arange(rows),
    }
    times = NOW - rng.integers(0, 9_000, rows)
    sketch.update(given, rng.integers(1, 10, rows), times, np.arange(rows))
    return sketch


@for_each("copies, capacity", [(1, 400), (3, 400), (1, 10_000)])
def test_sums_over_masses_are_the_sketchs_own_results(copies: int, capacity: int) -> None:
    sketch = fleet(copies=copies, capacity=capacity)
    found = decaysketch.polars.decayed_sample(sketch.to_bytes(), DECAY, NOW)
    assert found["mass"].sum() == pytest.approx(sketch.sum(DECAY, now=NOW).value)
    assert (found["mass"] / found["weight"]).sum() == pytest.approx(
        sketch.count(DECAY, now=NOW).value
    )
    here = found.filter(pl.col("ok") & pl.col("temp").is_not_null())
    means = here.group_by("site").agg(
        mean=(pl.col("temp") * pl.col("mass")).sum() / pl.col("mass").sum()
    )
    own = {
        row.by["site"]: row.answer.value
        for row in sketch.mean(DECAY, now=NOW, of="temp", by="site", where="ok")
    }
    assert dict(means.rows()) == pytest.approx(own)
    assert len(own) == 5
    facts = json.loads(sketch.to_arrow(DECAY, NOW).schema.metadata[METADATA])
    assert facts["exact"] == (capacity == 10_000)
    assert facts["now"] == NOW
    assert "without an interval" in facts["caveat"]
    assert found.columns[:5] == ["mass (column)", "ok", "site", "temp", "weight"]


def test_duckdb_reads_it_by_its_name() -> None:
    sketch = fleet()
    sample = decaysketch.duckdb.decayed_sample(sketch, DECAY, NOW)
    assert sample.schema.field("site").type.value_type == pa.string()
    with duckdb.connect() as connection:
        query = "SELECT date_trunc('hour', time), sum(mass) FROM sample GROUP BY ALL ORDER BY ALL"
        hours = connection.sql(query).fetchall()
    assert sum(mass for _, mass in hours) == pytest.approx(sketch.sum(DECAY, now=NOW).value)
    assert hours[0][0].tzinfo is not None
    assert len(hours) in (3, 4)


@for_each("name", CASES)
def test_every_family_has_a_sample_or_says_that_it_has_none(name: str) -> None:
    case = CASES[name]
    sketch = case.build(1, 0)
    stores_rows = "quantile" in case.family.questions or "total" in case.family.questions
    if case.family.name in ("ecm", "extremes", "series"):
        with pytest.raises(ds.ParameterError, match="has no sample"):
            sketch.to_arrow("none")
        return
    table = sketch.to_arrow(ds.decay.window(100) if case.chooses else None)
    assert table.num_columns == 7
    assert stores_rows or case.family.name == "sum"
    if name.startswith("label"):
        assert table["value"].type == pa.string()
