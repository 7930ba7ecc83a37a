"""Bytes of sketches with several copies: round trips, and what no honest builder wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import reference
from wire.states import columns_of, decode_one, states_of
from wire.test_hostile import refused

from decaysketch.core.params import SketchParams
from decaysketch.errors import IncompatibleSketchError, ParameterError
from decaysketch.querytime import wire

PARAMS = SketchParams(max_weight=9, id_bits=12, capacity=4, copies=3, seed=1, value_type="int64")
ROWS = [(i, 1 + i % 9, 1000 + i // 3, 37 * i % 4096) for i in range(60)]
STATES = states_of(PARAMS, ROWS)
BLOB = reference.blob_of(*STATES)
SMALL = BLOB.to_bytes()
EXACT = reference.blob_of(*states_of(PARAMS, ROWS[:4]))


def but_copy(blob: reference.Blob, number: int, **changes: Any) -> bytes:
    """The bytes with something of copy 1 or 2 replaced."""
    others = list(blob.others)
    others[number - 1] = replace(others[number - 1], **changes)
    return blob.but(others=others)


@given(
    copies=st.integers(1, 64),
    capacity=st.integers(1, 40),
    seed=st.integers(0, 2**64 - 1),
    rows=st.lists(
        st.tuples(st.integers(-9, 9), st.integers(0, 9), st.integers(-20, 20), st.integers(0, 63)),
        max_size=40,
    ),
    embed_params=st.booleans(),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_any_number_of_copies_there_and_back(
    copies: int, capacity: int, seed: int, rows: list[tuple[int, ...]], embed_params: bool
) -> None:
    params = SketchParams(
        max_weight=9, id_bits=6, capacity=capacity, copies=copies, seed=seed, value_type="int64"
    )
    states = states_of(params, rows)
    blob = wire.encode(*states, embed_params=embed_params)
    assert blob == reference.blob_of(*states, embed_params=embed_params).to_bytes()
    again = wire.decode(blob, params=None if embed_params else params, check_plausible=False)
    assert list(map(columns_of, again)) == list(map(columns_of, states))
    assert [state.copy for state in again] == list(range(copies))
    assert wire.encode(*again, embed_params=embed_params) == blob


def test_the_header_is_that_of_every_copy() -> None:
    for embed_params in (True, False):
        header = wire.peek(wire.encode(*STATES, embed_params=embed_params))
        assert [copy.rows for copy in header.copies] == [len(state) for state in STATES]
        assert header.rows == sum(map(len, STATES))
        assert header.newest == 1019
    empty = wire.peek(wire.encode(*states_of(PARAMS, [])))
    assert (empty.rows, empty.newest, len(empty.copies)) == (0, None, 3)


def test_only_the_states_of_one_sketch_are_encoded() -> None:
    other = states_of(replace(PARAMS, seed=2), ROWS)
    for wrong in ([], STATES[:1], STATES[::-1], [*STATES, STATES[0]]):
        with pytest.raises(ParameterError, match="states are of the copies"):
            wire.encode(*wrong)
    with pytest.raises(ParameterError, match="expected one sketch"):
        wire.encode(*STATES[:2], other[2])


@pytest.mark.parametrize("copies", [0, 1, 65, 255])
def test_a_number_of_copies_that_there_cannot_be(copies: int) -> None:
    refused(BLOB.but(copies=copies), f"number of copies is {copies}", "expected 2 to 64")


def test_a_number_of_copies_that_the_parameters_do_not_have() -> None:
    refused(BLOB.but(copies=2), "number of copies is 2", "the parameters say 3")
    with pytest.raises(IncompatibleSketchError, match="copies: 1 != 3"):
        wire.decode(SMALL, params=replace(PARAMS, copies=1))
    # The fingerprint alone: it binds the number, and so does the stream's reader.
    blob = reference.blob_of(*STATES, embed_params=False)
    refused(blob.but(copies=2, others=blob.others[:1]), "is 2", "say 3", params=PARAMS)
    one = reference.blob_of(decode_one(wire.encode(*states_of(replace(PARAMS, copies=1), ROWS))))
    assert one.but(params=BLOB.params)[6] == 1
    refused(one.but(params=BLOB.params), "number of copies is 1", "the parameters say 3")


def test_copies_agree_on_the_watermark_of_level_0() -> None:
    marks = BLOB.others[1].watermarks
    refused(
        but_copy(BLOB, 2, watermarks=[marks[0] + 1, *marks[1:]]),
        "level 0", marks[0] + 1, "in copy 2", marks[0], "in copy 0",
    )  # fmt: skip
    refused(EXACT.but(watermarks=[5]), "level 0", "not set in copy 1", "5 in copy 0")


def test_copies_agree_on_the_rows_that_level_0_holds() -> None:
    rows = EXACT.others[0].rows
    assert len(rows) == 4
    refused(but_copy(EXACT, 1, rows=rows[1:]), "copy 1 has 3 rows", "copy 0 has 4")
    for column, name in enumerate(("times", "ids", "weights", "value_keys")):
        changed = list(rows[0])
        changed[column] += 1
        refused(
            but_copy(EXACT, 1, rows=[tuple(changed), *rows[1:]]),
            f"{name} of row 0 is {changed[column]} in copy 1", f"{rows[0][column]} in copy 0",
        )  # fmt: skip


def test_a_row_of_another_copy_is_checked_under_its_own_hash() -> None:
    """Kept by copy 1 although it is not later than the watermark of its level there."""
    state = STATES[1]
    level = next(i for i, mark in enumerate(state.watermarks) if mark < state.times[-1])
    last = int(state.levels[len(state) - 1])
    assert last >= level
    marks = [*BLOB.others[0].watermarks]
    raised = [*marks, *[marks[-1]] * (last + 1 - len(marks))]
    raised = [max(mark, int(state.times[-1])) for mark in raised]
    refused(but_copy(BLOB, 1, watermarks=raised), f"row {len(state) - 1}", f"level {last}")


@pytest.mark.parametrize("number", [1, 2])
def test_the_checks_of_one_copy_hold_for_each(number: int) -> None:
    rows = list(BLOB.others[number - 1].rows)
    newest, second, third, oldest = EXACT.others[number - 1].rows
    swapped = [newest, third, second, oldest]  # of one time
    refused(but_copy(EXACT, number, rows=swapped), f"copy {number}", "row 2", "smaller")
    refused(but_copy(BLOB, number, count=10**6), 10**6, "capacity 4")
    refused(but_copy(BLOB, number, columns=b""), "block of rows at 0")
    refused(but_copy(BLOB, number, watermarks=[2000] * 20), "20 watermarks")
    twice = [*rows, (rows[-1][0] - 1, *rows[-1][1:])]
    refused(but_copy(BLOB, number, watermarks=[], rows=twice), "is repeated")
    packed = bytearray(reference.rows_to_bytes(rows, floats=False))
    packed[-1] |= 0x80  # padding
    assert bytes(packed) != reference.rows_to_bytes(rows, floats=False)
    refused(but_copy(BLOB, number, columns=bytes(packed)), "not canonical")


def test_no_copy_can_silence_a_stream() -> None:
    params = SketchParams(max_weight=9, capacity=100, copies=2)
    blob = reference.blob_of(*states_of(params, []))
    claimed = [2**62] * 3
    refused(but_copy(blob, 1, watermarks=claimed), "level 2", "1e-09")
    refused(but_copy(replace(blob, watermarks=claimed), 1, watermarks=claimed), "level 2")


def test_memory_is_paid_for_in_bytes() -> None:
    """Each copy may declare rows: none is believed beyond the bytes."""
    for rows in (10**5, 2**40):
        params = SketchParams(max_weight=9, capacity=1 << 20, copies=64)
        blob = reference.blob_of(*states_of(params, []))
        others = [replace(each, count=rows, first_time=0) for each in blob.others]
        refused(blob.but(others=others))


def test_a_state_of_one_copy_says_which() -> None:
    [one] = wire.decode(wire.encode(*states_of(replace(PARAMS, copies=1), ROWS)))
    assert one.copy == 0
    assert np.array_equal(one.levels, STATES[0].levels)
