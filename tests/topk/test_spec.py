"""What a list is of, from strangers."""

from __future__ import annotations

from typing import Any

import pytest

import decaysketch as ds
from decaysketch.errors import ParameterError
from decaysketch.topk import TopKSpec

FORM: dict[str, Any] = {"k": 20, "decay": "window(1h)", "sites": ["b", "a"]}


def test_there_and_back() -> None:
    spec = TopKSpec.from_dict(FORM, time_unit="s")
    assert spec == TopKSpec(k=20, decay=ds.decay.window(3600), sites=("a", "b"))
    assert TopKSpec.from_dict(spec.to_dict()) == spec
    assert TopKSpec.from_dict({"k": 1, "decay": "none"}).sites is None


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("k", (0, 1_001, True, 1.0, "1", None)),
        ("decay", (None, 1, [], "window(", "window(1 fortnight)", {"kind": "x"})),
        ("items", (None, 1, "float", ["text"])),
        ("round_s", (None, 0.5, 86_401, float("nan"), float("inf"), True, "10")),
        ("sites", ("ab", 1, [], ["a", "a"], [""], [1], ["x" * 201], ["a"] * 25_001)),
        ("more", (1,)),
    ],
)
def test_a_field_that_is_wrong(field: str, values: tuple[object, ...]) -> None:
    for value in values:
        with pytest.raises(ParameterError) as refused:
            TopKSpec.from_dict({**FORM, field: value}, time_unit="s")
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize("form", [None, [], "x", {}, {"k": 1}, {"decay": "none"}])
def test_what_is_no_spec(form: object) -> None:
    with pytest.raises(ParameterError):
        TopKSpec.from_dict(form)


def test_many_sites_leave_few_entries_to_each() -> None:
    decay = ds.decay.none()
    assert [TopKSpec(k=1, decay=decay, sites=tuple(map(str, range(n)))).entries
            for n in (1, 50, 1_000)] == [2_000, 2_000, 100]  # fmt: skip
    assert TopKSpec(k=500, decay=decay).entries == 2_000
    with pytest.raises(ParameterError, match="k of at most 500"):
        TopKSpec(k=501, decay=decay)
    with pytest.raises(ParameterError, match=r"have 100 entries .* at most 25"):
        TopKSpec(k=26, decay=decay, sites=tuple(map(str, range(1_000))))


def test_items_are_of_one_kind() -> None:
    spec = TopKSpec(k=1, decay=ds.decay.none(), items="integer")
    spec.check([1, 2])
    with pytest.raises(ParameterError, match="kind 'integer'"):
        spec.check([1, "a"])
