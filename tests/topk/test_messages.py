"""Messages of strangers: refused by the field that is wrong, in bounded time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from decaysketch.errors import ParameterError
from decaysketch.topk import Ask, Post
from decaysketch.topk.messages import MAX_ENTRIES, MAX_JSON, MAX_WATCHED

POST: dict[str, Any] = {
    "site": "north", "inc": 1, "seq": 4, "as_of": 3600, "asked": [0, 7], "base": 3,
    "entries": [["ada", 11], [7, 0.5]], "rest": 0.25,
}  # fmt: skip
ASK: dict[str, Any] = {
    "epoch": 0, "serial": 7, "as_of": 3600, "floor": 2.5, "least": 1, "watched": ["ada", 7],
    "have": [1, 4],
}  # fmt: skip

NO_NUMBERS = (-1, 1 << 53, 1.0, True, "1", [1], {}, 10**5000)
NO_COUNTS = (-1, -0.5, 1 << 53, float("nan"), float("inf"), True, "1", None, [1], 10**5000)
NO_ITEMS = ("", "x" * 501, "\u20ac" * 200, "\ud800", 1.5, True, None, [1], {}, -(1 << 53))
NO_PAIRS = (1, [1], [1, 2, 3], [1, -1], ["1", 2], [True, 1], {}, "12")


@pytest.mark.parametrize(("kind", "form"), [(Post, POST), (Ask, ASK)])
class TestBoth:
    def test_forms_are_read_as_they_were(self, kind: Any, form: dict[str, Any]) -> None:
        message = kind.from_dict(form)
        assert message.to_dict() == form
        assert kind.from_json(message.to_json()) == message
        assert json.loads(message.to_json()) == form

    def test_fields_are_all_there_and_no_others(self, kind: Any, form: dict[str, Any]) -> None:
        name = kind.__name__.lower()
        for field in form:
            less = {each: value for each, value in form.items() if each != field}
            with pytest.raises(ParameterError, match=f"{name} has no field '{field}'"):
                kind.from_dict(less)
        with pytest.raises(ParameterError, match=f"{name} has a field 'more'"):
            kind.from_dict({**form, "more": 1})
        for other in (None, [], "x", 1):
            with pytest.raises(ParameterError, match=f"{name} is"):
                kind.from_dict(other)

    def test_texts_are_bounded_and_json(self, kind: Any, form: dict[str, Any]) -> None:
        with pytest.raises(ParameterError, match="expected at most"):
            kind.from_json(" " * (MAX_JSON + 1))
        for text in ("[" * 100_000, "{", "[]", '"x"', '{"a":' * 5_000, '{"inc": ' + "9" * 5_000):
            with pytest.raises(ParameterError):
                kind.from_json(text)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("site", ("", "x" * 201, "\ud800", None, 1, [])),
        ("inc", (*NO_NUMBERS, None)),
        ("seq", (*NO_NUMBERS, None)),
        ("as_of", (*NO_NUMBERS[1:], None, -(1 << 53))),
        ("asked", NO_PAIRS),
        ("base", (*NO_NUMBERS, 4, 5)),
        ("entries", (None, 1, "ab", {}, [1], [["a"]], [["a", 1, 2]], [[["a", 1]]], [["a", 0]],
                     [["a", 1], ["a", 2]], [["a", 1]] * (MAX_ENTRIES + 1))),
        ("rest", NO_COUNTS),
    ],
)  # fmt: skip
def test_a_post_that_is_wrong(field: str, values: tuple[object, ...]) -> None:
    for value in values:
        with pytest.raises(ParameterError) as refused:
            Post.from_dict({**POST, field: value})
        assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("epoch", (*NO_NUMBERS, None)),
        ("serial", (*NO_NUMBERS, None)),
        ("as_of", NO_NUMBERS[1:]),
        ("floor", tuple(each for each in NO_COUNTS if each is not None)),
        ("least", (*NO_NUMBERS, 2_001, None)),
        ("watched", (None, 1, "ab", {}, ["a", "a"], [["a"]], list(range(MAX_WATCHED + 1)))),
        ("have", NO_PAIRS),
    ],
)
def test_an_ask_that_is_wrong(field: str, values: tuple[object, ...]) -> None:
    for value in values:
        with pytest.raises(ParameterError) as refused:
            Ask.from_dict({**ASK, field: value})
        assert len(str(refused.value)) < 400


def test_items_and_counts_that_are_none() -> None:
    for item in NO_ITEMS:
        with pytest.raises(ParameterError):
            Post.from_dict({**POST, "entries": [[item, 1]]})
        with pytest.raises(ParameterError):
            Ask.from_dict({**ASK, "watched": [item]})
    for count in NO_COUNTS:
        with pytest.raises(ParameterError, match="the count of 'a' is"):
            Post.from_dict({**POST, "entries": [["a", count]]})
