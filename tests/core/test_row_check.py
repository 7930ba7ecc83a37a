"""One fault has the same words wherever a row comes in, and a check names every row once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import decaysketch as ds
from decaysketch.core.row_check import Limit, RowCheck
from decaysketch.families import recipe_of
from decaysketch.ingest.columns import Batch, Form, check
from decaysketch.tables import ColumnMapping

FAULTS = [
    ("float64", {"timestamps": 2**62 + 1}, "out of bounds"),
    ("float64", {"timestamps": -(2**62) - 1}, "out of bounds"),
    ("float64", {"values": float("nan")}, "not finite"),
    ("float64", {"values": float("-inf")}, "not finite"),
    ("int64", {"values": -(2**63)}, "marks a missing value"),
]


@pytest.mark.parametrize(("value_type", "fault", "reason"), FAULTS)
def test_three_presenters_have_the_same_words(
    value_type: str, fault: dict[str, Any], reason: str
) -> None:
    params = ds.SketchParams(max_weight=9, id_bits=20, time_unit="s", value_type=value_type)
    rows: dict[str, Any] = {"values": [1, 1], "timestamps": [1, 1], "ids": [1, 2]}
    for name, entry in fault.items():
        rows[name] = [1, entry]

    with pytest.raises(ds.ObservationError) as raised:
        ds.DecaySketch(params).update(**rows, weights=1)
    mapping = ColumnMapping(time="timestamps", value="values", ids=("ids",), time_unit="s")
    [in_table] = mapping.read(pa.table(rows), params, refused="count").refusals.refusals()
    values, times, ids = (np.array(column) for column in rows.values())
    raw = Batch(2, np.arange(2), values, np.zeros(2, bool), np.ones(2, np.int64), times, ids)
    [in_body] = check(raw, Form(recipe_of(params), "a", None, 10)).refusals

    [name] = fault
    assert str(raised.value) == f"{name}[1] {in_body.sentence}"
    assert (in_table.row, in_table.field, in_table.sentence) == (1, name, in_body.sentence)
    assert in_table.reason == in_body.reason == reason


def test_a_row_keeps_its_first_fault_and_the_number_of_its_place() -> None:
    found = RowCheck(4, places=np.array([10, 20, 30, 40]))
    found.within(np.array([1, -1, 5, 7]), "a", Limit.named(0, 6, "most"))
    found.finite(np.array([np.nan, np.nan, 1.0, 1.0]), "b")
    told = [(each.row, each.field, each.sentence) for each in found.refusals()]
    finite = "is nan; expected a finite number, or None if missing"
    bounds = "expected 0 to 6 (most)"
    assert told == [(10, "b", finite), (20, "a", f"is -1; {bounds}"), (40, "a", f"is 7; {bounds}")]
    assert found.accepted.tolist() == [False, False, True, False]
