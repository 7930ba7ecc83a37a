"""Text columns on the wire and between rows: front coding, canonical texts, shared ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, takewhile

import numpy as np
import pytest

from decaysketch.core.codec import _native
from decaysketch.core.codec.writing import put_varint
from decaysketch.core.duplicates import may_match
from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.records import Record, with_used_texts

TEXTS = [
    [],
    [""],
    ["", "a", "ab", "abc", "b", "b" * 127, "b" * 128, "b" * 1000, "b" * 1000 + "c"],
    ["x" * 200 + "é", "x" * 200 + "東", "\U0001f600" * 40, "\U0001f600" * 40 + "a"],
    [f"node-{number:05d}.example.com" for number in range(300)],
]


def plainly(texts: Sequence[str]) -> bytes:
    """The specification, one text after the other."""
    body, before = bytearray(), b""
    put_varint(body, len(texts))
    for text in map(str.encode, texts):
        pairs = zip(before, text, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        put_varint(body, shared)
        put_varint(body, len(text) - shared)
        body += text[shared:]
        before = text
    return bytes(body)


@pytest.mark.parametrize("texts", TEXTS)
def test_front_coding_writes_the_other_bytes(texts: list[str]) -> None:
    """A sketch with all texts, one without, and one with every second of them."""
    encoded = [text.encode() for text in texts]
    numbers = [np.arange(len(texts)), np.arange(0), np.arange(0, len(texts), 2)]
    ends, offsets = np.empty(4, np.int64), np.cumsum([0, *map(len, numbers)])
    bounds = np.cumsum([0, *map(len, encoded)])
    coded = _native.front_code(b"".join(encoded), bounds, np.concatenate(numbers), offsets, ends)
    each = [coded[start:stop] for start, stop in pairwise(ends.tolist())]
    assert each == [plainly(texts), plainly([]), plainly(texts[::2])]


@pytest.mark.parametrize(
    ("bounds", "numbers", "offsets"),
    [
        ([0, 4], [0], [0, 1]),
        ([0, 2], [0], [0, 1]),
        ([0, 1, 0, 3], [0], [0, 1]),
        ([0, 2**62, -(2**62), 3], [0], [0, 1]),
        ([], [], [0]),
        ([0, 3], [1], [0, 1]),
        ([0, 3], [-1], [0, 1]),
        ([0, 3], [0], [0, 2]),
        ([0, 3], [0], [0, 2, 1]),
        ([0, 3], [0], [1, 1]),
    ],
)
def test_front_coding_rejects_numbers_beyond_the_texts(
    bounds: list[int], numbers: list[int], offsets: list[int]
) -> None:
    arrays = [np.array(each, np.int64) for each in (bounds, numbers, offsets)]
    with pytest.raises(ValueError, match=r"text|offsets"):
        _native.front_code(b"abc", *arrays, np.empty(len(offsets), np.int64))


def test_a_canonical_column_has_the_texts_of_its_rows() -> None:
    keys = np.array([2, MISSING_KEY, 0, 2], np.int64)
    assert [*with_used_texts(keys, ["a", "b", "c"]).texts] == ["a", "c"]
    assert with_used_texts(keys, ["a", "b", "c"]).keys.tolist() == [1, MISSING_KEY, 0, 1]
    assert with_used_texts(keys[:1] - 2, ("a",)) == Record(keys[:1] - 2, ("a",))
    assert [*with_used_texts(keys[1:2], ["a"]).texts] == []


def test_all_ids_of_both_parts_match_and_few_others() -> None:
    rng = np.random.default_rng(1)
    held, offered = rng.integers(0, 1 << 40, (2, 5_000))
    held[:7] = offered[10:17]
    held[100] = offered[100] ^ 1 << 20  # of equal low bits
    mine, theirs = may_match(held, offered)
    assert {*range(7)} <= {*mine.tolist()}
    assert {*range(10, 17)} <= {*theirs.tolist()}
    assert max(len(mine), len(theirs)) < 40
    assert [len(each) for each in may_match(held[:0], offered)] == [0, 0]
    assert [len(each) for each in may_match(held, offered[:0])] == [0, 0]
