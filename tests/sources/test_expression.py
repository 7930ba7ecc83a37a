"""Set expressions: what they mean, which sources they read, and what is refused."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from support.rows import for_each

from decaysketch.errors import ParameterError
from decaysketch.sources.expression import quoted, read_expression


class Table:
    """Every history of three sources but that of none."""

    names = ("a", "b", "gw-1")
    bits = (np.arange(1, 8)[:, np.newaxis] >> np.arange(3)) & 1 > 0
    sources = 3
    degrees = bits.sum(axis=1).astype(np.int32)

    def heard(self, name: str) -> npt.NDArray[np.bool_]:
        column: npt.NDArray[np.bool_] = self.bits[:, self.names.index(name)]
        return column


@for_each(
    "text, cells",
    [
        ("a", {1, 3, 5, 7}),
        ("a & b", {3, 7}),
        ("a | b & 'gw-1'", {1, 3, 5, 6, 7}),
        ('(a | b) & "gw-1"', {5, 6, 7}),
        ("a - b", {1, 5}),
        ("a - b & 'gw-1'", {5}),  # - binds before &, as in Python
        ("a - b - 'gw-1'", {1}),
        ("~a", {2, 4, 6}),
        ("~~a", {1, 3, 5, 7}),
        ("~(a & b) & a", {1, 5}),
        ("any", {1, 2, 3, 4, 5, 6, 7}),
        ("all", {7}),
        ("exactly(2)", {3, 5, 6}),
        ("at_least( 2 ) & ~a", {6}),
    ],
)
def test_what_an_expression_means(text: str, cells: set[int]) -> None:
    held = read_expression(text).holds(Table())
    assert {cell + 1 for cell in np.flatnonzero(held).tolist()} == cells


@for_each(
    "text, names, reads_all, inside, is_union",
    [
        ("a", "a", False, "a", True),
        ("a & b", "ab", False, "ab", False),
        ("a | b", "ab", False, "", True),
        ("a - b", "ab", False, "a", False),
        ("~b & a", "ba", False, "a", False),
        ("~a", "a", True, "", False),
        ("a | ~b", "ab", True, "", False),
        ("any", "", True, "", True),
        ("exactly(1) & a", "a", True, "a", False),
        ("(a & b) | (a & c)", "abc", False, "a", False),
    ],
)
def test_which_sources_an_expression_reads(
    text: str, names: str, reads_all: bool, inside: str, is_union: bool
) -> None:
    found = read_expression(text)
    assert found.names == tuple(names)
    assert found.reads_all is reads_all
    assert found.inside == frozenset(inside)
    assert found.is_union is is_union


@for_each(
    "text, message",
    [
        ("", "set is empty"),
        ("a b", r"set has 'b' at character 2; expected &"),
        ("a &", "set has its end"),
        ("(a", r"expected \)"),
        ("a; b", r"set has '; b' at character 1"),
        ("exactly(0)", r"set has exactly\(0\); expected 1 or more"),
        ("exactly(a)", "expected a number of sources"),
        ("exactly", r"expected \("),
        ("'a", "at character 0"),
        ("gw-1", "set has '1' at character 3; expected a source"),
        ("__import__('os')", r"set has '\(' at character 10"),
        ("~" * 60 + "a", "operations within each other"),
        ("|".join(["a"] * 70), "more than 64 operations"),
        ("a" * 501, "set has 501 characters"),
        ("a\x00", "at character 1"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read_expression(text)


@pytest.mark.parametrize("name", ["a", "gw-1", "any", 'say "x"', "back\\slash", "1", "é", "a b"])
def test_a_name_in_quotes_is_read_as_itself(name: str) -> None:
    assert read_expression(quoted(name)).names == (name,)
