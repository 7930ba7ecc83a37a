"""Whether rows of one id are copies of one another: readings that an id too short has joined are
said, with figures; copies, corrections that are few and the rows of other keys are not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams
from decaysketch.ecm import ECMParams
from decaysketch.extremes import ExtremesParams
from decaysketch.families import recipe_of
from decaysketch.tables import ColumnMapping
from decaysketch.tables.duplicates import doubt_of_ids

PARAMS = ds.SketchParams(max_weight=9, time_unit="s")
ROWS = 1000
LOG: dict[str, Any] = {
    "t": [1_767_225_600 + n // 10 for n in range(ROWS)],
    "dev": [f"d{n % 10}" for n in range(ROWS)],
    "n": [n // 10 for n in range(ROWS)],
    "v": [float(n) for n in range(ROWS)],
}


def said(
    log: dict[str, Any] | pa.Table, *ids: str, keys: Any = None, params: Any = PARAMS, **named: Any
) -> str | None:
    table = log if isinstance(log, pa.Table) else pa.table(log)
    mapping = ColumnMapping(**{"time": "t", "value": "v", "ids": ids} | named)
    return doubt_of_ids(mapping.read(table, params, refused="count"), mapping, params, keys)


def test_an_id_that_lacks_a_column_is_said_with_figures() -> None:
    assert said(LOG, "dev") == (
        "1,000 different readings have 10 ids (of 'dev'), and only the latest of each counts: the "
        "id lacks a column that distinguishes them, such as a device counter or the time 't'. If "
        "they are duplicates with new time stamps, all is well"
    )
    # Of equal times the values differ, and where there are no values the times.
    assert (said(LOG, "t") or "").startswith("1,000 different readings have 100 ids (of 't')")
    assert (said(LOG, "dev", value=None) or "").startswith("1,000 different readings have 10 ids")
    assert (said(LOG | {"dev": [""] * ROWS}, "dev") or "").startswith("1,000 different readings h")


@pytest.mark.parametrize("ids", [("dev", "n"), ("dev", "t")])
def test_copies_in_any_order_are_none(ids: tuple[str, ...]) -> None:
    order = np.random.default_rng(1).permutation(np.arange(5 * ROWS) % ROWS)
    assert said(pa.table(LOG).take(order), *ids) is None
    assert said(pa.table(LOG)[:0], *ids) is None


def test_copies_are_equal_in_value_however_it_is_written() -> None:
    twice = {"t": [1, 1], "dev": ["a", "a"]}
    for values in ([0.0, -0.0], [None, None], [2, 2]):
        assert said(twice | {"v": values}, "dev") is None
    assert said(twice | {"v": [0.0, None]}, "dev") is not None
    labels = ds.SketchParams(time_unit="s", value_type="label")
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["E4", "E4"]))
    assert said(twice | {"v": texts}, "dev", params=labels) is None
    assert said(twice | {"v": ["E4", "E5"]}, "dev", params=labels) is not None


def test_one_reading_in_a_hundred_may_be_corrected() -> None:
    def corrected(rows: int) -> pa.Table:
        again = {name: column[:rows] for name, column in LOG.items()}
        again["t"] = [time + 60 for time in again["t"]]
        return pa.concat_tables([pa.table(LOG), pa.table(again)])

    assert said(corrected(10), "dev", "n") is None
    assert said(corrected(11), "dev", "n") == (
        "1,011 different readings have 1,000 ids (of 'dev', 'n'), and only the latest of each "
        "counts: the id lacks a column that distinguishes them, such as a device counter or the "
        "time 't'. If they are duplicates with new time stamps, all is well"
    )


def test_receivers_that_say_a_time_of_their_own_bring_copies() -> None:
    draw = np.random.default_rng(2)
    heard = pa.concat_tables([pa.table(LOG)] * 3)
    later = pa.array(np.array(heard["t"]) * 1000 + draw.integers(0, 900, 3 * ROWS))  # of 100 s
    assert said(heard.set_column(0, "t", later), "dev", "n") is None
    assert said(heard.set_column(0, "t", later), "dev") is not None
    values = pa.array(draw.random(3 * ROWS))  # such as the strength of the signal
    assert said(heard.set_column(0, "t", later).set_column(3, "v", values), "dev", "n") is None


def test_of_many_rows_some_are_looked_at() -> None:
    rows = 100_000
    long = {"t": range(rows), "dev": [n % 10 for n in range(rows)], "n": range(rows)}
    log = pa.table(long | {"v": np.arange(float(rows))})
    few = "of 32,768 checked rows, 32,768 different readings have 10 ids"
    assert (said(log, "dev") or "").startswith(few)
    assert said(log, "dev", "n") is None
    restarted = log.set_column(2, "n", pa.array(np.arange(rows) % 60_000))
    found = re.match(
        r"of ([\d,]+) checked rows, \1 different readings have ([\d,]+) ids",
        said(restarted, "dev", "n") or "",
    )
    assert found is not None
    looked_at, ids = (int(each.replace(",", "")) for each in found.groups())
    assert 24_000 < looked_at < 26_000
    assert looked_at / ids == pytest.approx(100 / 60, rel=0.05)


def test_what_goes_to_another_sketch_or_to_none_is_no_copy() -> None:
    devices = np.arange(ROWS, dtype=np.int32) % 10
    assert said(LOG, "n") is not None
    assert said(LOG, "n", keys=devices) is None
    weights = [n % 2 for n in range(20)]  # an observation is its id and its weight; 0 is none
    few = {name: column[:20] for name, column in LOG.items()} | {"w": weights}
    assert said(few | {"dev": [n // 2 for n in range(20)]}, "dev", weight="w") is None
    assert said(few | {"w": [1 + w for w in weights]}, "dev", weight="w") is not None
    few["w"] = [1, *[99] * 19]  # which are refused
    assert said(few | {"dev": ["a"] * 20}, "dev", weight="w") is None


def test_names_of_elements_are_ids_and_what_joins_no_rows_loses_none() -> None:
    medians = MedianParams(capacity=9, max_count=2000, time_unit="s")
    named = {"source": "dev", "params": medians}
    numbers = LOG | {"v": [1 + n for n in range(ROWS)]}
    assert said(numbers, sequence="n", **named) is None
    zeros = numbers | {"n": [0] * ROWS}
    assert (said(zeros, sequence="n", **named) or "").startswith(
        "1,000 different readings have 10 ids (of 'dev', 'n')"
    )
    counted = recipe_of(ECMParams(width=64, depth=3, slots=8, time_unit="s"))
    assert said(LOG, key=("dev",), value=None, params=counted) is None
    assert said(LOG, "dev", params=ExtremesParams(time_unit="s")) is None  # which keep no ids
