"""Text columns on the wire and between rows: front coding, canonical texts, shared ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np
import pytest

from decaysketch.core.codec import _native
from decaysketch.core.codec.fields import put_varint
from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.records import Record, with_used_texts
from decaysketch.core.row_status import may_match

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
    encoded = [text.encode() for text in texts]
    lengths = np.array([len(each) for each in encoded], np.int64)
    assert _native.front_code(b"".join(encoded), lengths) == plainly(texts)


@pytest.mark.parametrize("lengths", [[4], [2], [1, -1, 3], [2**62, 2**62]])
def test_front_coding_rejects_lengths_that_are_not_those_of_the_texts(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="text"):
        _native.front_code(b"abc", np.array(lengths, np.int64))


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
