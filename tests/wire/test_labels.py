"""Labels on the wire: what no encoder writes is refused, and says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from wire import reference

import decaysketch as ds
from decaysketch.querytime import wire

PARAMS = ds.SketchParams(id_bits=20, capacity=50, value_type="label")
SKETCH = ds.DecaySketch(PARAMS)
SKETCH.update(["E1", "E2", None, "é", "E1"], 1, [5, 4, 3, 2, 1], [1, 2, 3, 4, 5])
BLOB = reference.blob_of(*SKETCH.states())
LABELS: Sequence[bytes] = BLOB.labels or ()


def refused(blob: bytes, *said: object) -> None:
    with pytest.raises(ds.CorruptSketchError, match=".*".join(re.escape(str(s)) for s in said)):
        wire.decode(blob)


def with_rank(row: int, rank: int) -> list[Any]:
    rows = list(BLOB.rows)
    rows[row] = (*rows[row][:3], rank)
    return rows


def test_the_document_and_the_encoder_agree() -> None:
    assert BLOB.to_bytes() == SKETCH.to_bytes()
    assert [reference.code_of(text.decode()) for text in LABELS] == sorted(
        map(reference.code_of, ("E1", "E2", "é"))
    )


def test_labels_in_another_order_or_twice() -> None:
    refused(BLOB.but(labels=LABELS[::-1]), "label 1 has code", "expected a larger one")
    refused(BLOB.but(labels=[LABELS[0], LABELS[0], LABELS[2]]), "label 1 has code")


def test_a_label_that_no_row_has() -> None:
    more = sorted([*LABELS, b"E9"], key=lambda text: reference.code_of(text.decode()))
    refused(BLOB.but(labels=more), "number of labels is 4, of which rows have 3; expected all")
    refused(BLOB.but(rows=with_rank(1, BLOB.rows[0][3])), "of which rows have 2")


@pytest.mark.parametrize("rank", [3, -1, 1 << 40])
def test_a_rank_of_no_label(rank: int) -> None:
    refused(BLOB.but(rows=with_rank(0, rank)), f"a row has label {rank}; there are 3")


def test_what_is_no_label() -> None:
    refused(BLOB.but(labels=[*LABELS[:2], b"\xff"]), "label 2 is b'\\xff'; expected UTF-8")
    refused(BLOB.but(labels=[*LABELS[:2], b"\xed\xa0\x80"]), "expected UTF-8")  # a surrogate
    refused(BLOB.but(labels=[*LABELS[:2], b"x" * 1025]), "length of label 2 is 1025", "1024")


def test_a_number_of_labels_is_no_reason_to_take_memory() -> None:
    refused(BLOB.but(listed=(1 << 20) + 1), "number of labels is 1048577")
    refused(BLOB.but(listed=1 << 20), "number of labels is 1048576, of which rows have 3")
    refused(BLOB.but(labels=LABELS[:2], listed=3), "label 2")
    refused(BLOB.but(labels=[]), "a row has label 2; there are 0")


def test_a_value_is_of_one_type() -> None:
    params = bytearray(BLOB.params or b"")
    params[2] |= 1
    refused(BLOB.but(params=bytes(params)), "of float64 and of labels")


def test_another_secret_has_other_codes() -> None:
    keyed = ds.SketchParams(id_bits=20, capacity=50, value_type="label", id_key=b"k" * 16)
    sketch = ds.DecaySketch(keyed)
    sketch.update(["E1", "E2"], 1, [5, 4], [1, 2])
    blob = reference.blob_of(*sketch.states())
    assert blob.to_bytes() == sketch.to_bytes()
    order = [text.decode() for text in blob.labels or ()]
    assert [reference.code_of(text, b"k" * 16) for text in order] == sorted(
        reference.code_of(text, b"k" * 16) for text in order
    )
    assert reference.code_of("E1", b"k" * 16) != reference.code_of("E1")
