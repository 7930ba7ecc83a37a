"""Bytes that no honest builder wrote: one error, a message with both values, bounded resources.

Most cases carry a right checksum, so that what is tested is the check behind it.
"""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each
from wire import reference
from wire.reference import Bits, put_column, put_frame, varint, with_checksum
from wire.states import (
    MISSING,
    columns_of,
    decode_one,
    state_of,
    state_of_columns,
    states_of,
    web_log,
)

from decaysketch import minhit
from decaysketch.core.params import SketchParams
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError, ParameterError
from decaysketch.minhit._top_level import observations_of_top_level
from decaysketch.querytime import wire
from decaysketch.querytime.state import SketchState
from quality.damage import cuts

LIMIT = 2**62
PARAMS = SketchParams(max_weight=9, id_bits=12, capacity=30, seed=11, value_type="int64")
FLOATS = replace(PARAMS, value_type="float64")
ROWS = [(5, 3, 1000, 77), (6, 9, 1000, 12), (MISSING, 1, 990, 77), (8, 2, -4, 4095)]
STATE = state_of(PARAMS, ROWS)
BLOB = reference.blob_of(STATE)
SMALL = BLOB.to_bytes()


def refused(blob: bytes, *expected: Any, params: SketchParams | None = None) -> None:
    """The bytes are corrupt, and the message holds everything that is expected."""
    with pytest.raises(CorruptSketchError) as caught:
        decode_one(blob, params=params)
    for text in expected:
        assert re.search(rf"(?<![\w-]){re.escape(str(text))}(?!\w)", str(caught.value)), (
            str(caught.value), text,
        )  # fmt: skip


def canonical_or_refused(blob: bytes, params: SketchParams | None = None) -> bool:
    """Whether the bytes decode; if they do, they are the bytes of their state."""
    try:
        state = decode_one(blob, params=params)
    except (CorruptSketchError, IncompatibleSketchError):
        return False
    again = bytearray(wire.encode(state, embed_params=wire.peek(blob).params is not None))
    flags = wire.peek(blob).optional_flags
    if flags:  # skipped sections lie between the columns and the checksum
        again[7] = flags
        assert blob.startswith(bytes(again[:-4]))
    else:
        assert bytes(again) == blob
    return True


def test_the_untouched_bytes_are_fine() -> None:
    assert wire.encode(STATE) == SMALL
    assert columns_of(decode_one(SMALL)) == columns_of(STATE)


# ---------------------------------------------------------------------------------------- the frame


@pytest.mark.parametrize("blob", [b"", b"x", b"PK\x03\x04 and so on", b"DSK\xd5" * 9])
def test_other_bytes_are_named(blob: bytes) -> None:
    refused(blob, repr(blob[:4]), repr(wire.MAGIC))


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_names_both(version: int) -> None:
    refused(BLOB.but(version=version), f"version {version}", "version 1")
    refused(BLOB.but(version=version)[:-4] + b"its own", f"version {version}", "version 1")


def test_a_wrong_checksum_shows_both() -> None:
    right = int.from_bytes(SMALL[-4:], "little")
    refused(SMALL[:-4] + bytes(4), "0x00000000", f"{right:#010x}")


def test_another_family_or_required_flag_is_refused() -> None:
    refused(BLOB.but(family=2), "family 2", 1)
    refused(BLOB.but(required=0b1000_0001), "0b10000001", "0b10000000", "0b00001111")


def test_every_truncation_of_later_sections_is_refused() -> None:
    later = BLOB.but(optional=1, sections=[b"section"])
    for shorter in cuts(later):
        assert not canonical_or_refused(shorter) or len(shorter) == len(later)


@given(
    st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 255)), min_size=1, max_size=6),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_several_bytes_changed(changes: list[tuple[int, int]], several_blocks: bool) -> None:
    blob = bytearray(LONG if several_blocks else SMALL)
    for where, byte in changes:
        blob[8 + where % (len(blob) - 12)] = byte
    canonical_or_refused(with_checksum(bytes(blob[:-4])))


def _long() -> bytes:
    values, weights, times, ids = (column[:400] for column in web_log(500, 3))
    params = SketchParams(max_weight=999, capacity=100)
    with_gaps = [None if i % 7 == 0 else v / 4 for i, v in enumerate(values.tolist())]
    return wire.encode(state_of_columns(params, with_gaps, weights, times, ids))


LONG = _long()


# -------------------------------------------------------------------------------- header and params


@for_each(
    "change, expected",
    [
        ({"id_bits": 57}, ("id_bits", 57, 56)),
        ({"id_bits": 56, "max_weight": 2**20}, (2**76, "2^61")),
        ({"copies": 0}, ("copies", 0, 1)),
        ({"copies": 2}, ("copies", 2, 1)),
        ({"max_weight": 0}, ("max_weight", 0, 1)),
        ({"max_weight": 2**63}, ("max_weight", 2**63)),
        ({"time_unit": ""}, ("time_unit", "''")),
        ({"time_unit": "S"}, ("time_unit", "'S'")),
        ({"time_unit": "seconds and more"}, ("time_unit",)),
        ({"time_unit": "µs"}, ("time_unit", "ASCII")),
        ({"keyed_by": "secret", "id_mix": "none"}, ("secret", "'none'")),
    ],
)
def test_parameters_outside_their_domain(change: dict[str, Any], expected: tuple[Any, ...]) -> None:
    fields = PARAMS.to_dict() | change
    check = bytes(8) if fields["keyed_by"] == "secret" else b""
    refused(BLOB.but(params=reference.params_to_bytes(fields, check)), *expected)


def test_unknown_choices_of_the_parameters() -> None:
    packed = bytearray(BLOB.params or b"")
    packed[2] |= 0b1000_0000
    refused(BLOB.but(params=bytes(packed)), "0b10000000", "0b00111111")


def test_parameters_that_do_not_give_the_fingerprint() -> None:
    other = PARAMS.to_dict() | {"seed": 12}
    refused(
        BLOB.but(params=reference.params_to_bytes(other)),
        PARAMS.fingerprint.hex(),
        replace(PARAMS, seed=12).fingerprint.hex(),
    )
    refused(BLOB.but(fingerprint=bytes(8)), "00" * 8, PARAMS.fingerprint.hex(), params=PARAMS)


@pytest.mark.parametrize("capacity", [0, 2**20 + 1, 2**63])
def test_capacity_outside_its_domain(capacity: int) -> None:
    refused(BLOB.but(capacity=capacity), "capacity", capacity, 2**20)
    refused(BLOB.but(capacity=capacity), "capacity", capacity, 2**20, params=PARAMS)


def test_varints_that_are_too_long_or_too_large() -> None:
    before = BLOB.but(params=None)[: -4 - len(reference.rows_to_bytes(BLOB.rows, BLOB.floats))]
    start = before[:16]
    refused(with_checksum(start + b"\x9e\x00"), "capacity at byte 16", 30, params=PARAMS)
    refused(with_checksum(start + b"\xff" * 9 + b"\x7f"), "2^64", params=PARAMS)
    refused(with_checksum(start + b"\xff" * 10 + b"\x01"), "more than 10 bytes", params=PARAMS)
    refused(with_checksum(start + b"\x9e"), "capacity", "byte 17", params=PARAMS)


def test_times_and_watermarks_out_of_range() -> None:
    far = [(LIMIT + 1, *row[1:]) for row in BLOB.rows[:1]]
    refused(BLOB.but(rows=far), "first time", LIMIT + 1, LIMIT)
    early = [BLOB.rows[0], (-LIMIT - 1, *BLOB.rows[1][1:])]
    refused(BLOB.but(rows=early), "time of row 1", -LIMIT - 1, LIMIT)
    refused(BLOB.but(watermarks=[LIMIT + 1]), "watermark of level 0", LIMIT + 1)
    refused(BLOB.but(watermarks=[0, -LIMIT - 1]), "watermark of level 1", -LIMIT - 1)


def test_more_watermarks_than_levels() -> None:
    levels = PARAMS.levels + 1
    refused(BLOB.but(watermarks=[-LIMIT] * (levels + 1)), levels, levels + 1)
    refused(BLOB.but(watermarks=[0] * 65), 65, 64)


@pytest.mark.parametrize("count", [2**16, 2**31, 2**32, 2**62, 2**64 - 1])
def test_huge_declared_counts(count: int) -> None:
    refused(BLOB.but(count=count), count, 30 * (PARAMS.levels + 1))
    refused(BLOB.but(count=count, capacity=2**20), "rows")
    head = BLOB.but()[: len(SMALL) - 4 - len(reference.rows_to_bytes(BLOB.rows, False)) - 7]
    refused(with_checksum(head + varint(count)))
    section = SMALL[:7] + b"\x01" + SMALL[8:-4] + varint(count) + b"section"
    refused(with_checksum(section), "section")


# ----------------------------------------------------------------------------------------- the rows


def row(time: int = 50, id_: int = 7, weight: int = 3, key: int = 0) -> reference.Row:
    return (time, id_, weight, key)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row(id_=1), row(id_=2)], ("row 1", (50, 2, 3), (50, 1, 3))),
        ([row(weight=1), row(weight=2)], ("row 1", (50, 7, 2), (50, 7, 1))),
        ([row(), row()], ("row 1", (50, 7, 3), (50, 7, 3))),
        ([row(50), row(49, 1), row(48)], ("(id, weight)", (7, 3), "repeated")),
        ([row(id_=4096)], ("id of row 0", 4096, 4095)),
        ([row(id_=-1)], ("id of row 0", -1, 4095)),
        ([row(weight=0)], ("weight of row 0", 0, 9)),
        ([row(weight=10)], ("weight of row 0", 10, 9)),
        ([row(weight=-(2**63))], ("weight of row 0", -(2**63), 9)),
    ],
)
def test_rows_against_the_law(rows: list[reference.Row], expected: tuple[Any, ...]) -> None:
    refused(BLOB.but(rows=rows), *expected)


@pytest.mark.parametrize(
    "key",
    [
        -1,  # -0.0
        reference.key_of(float("inf")),
        reference.key_of(float("-inf")),
        2**63 - 1,
        -(2**63) + 1,
    ],
)
def test_floats_that_are_no_values(key: int) -> None:
    blob = reference.blob_of(state_of(FLOATS, []))
    bits = Bits()
    put_column(bits, [0])
    bits.put(0, 1)
    put_frame(bits, [7])
    put_frame(bits, [3])
    bits.put(0, 2)
    bits.put(15, 4)
    put_frame(bits, [key])
    refused(blob.but(count=1, first_time=50, columns=bits.to_bytes()), "value key of row 0", key)


def test_a_missing_value_in_disguise() -> None:
    bits = Bits()
    put_column(bits, [0])
    bits.put(0, 1)
    put_frame(bits, [7])
    put_frame(bits, [3])
    bits.put(0, 2)
    put_frame(bits, [MISSING])
    refused(BLOB.but(count=1, first_time=50, columns=bits.to_bytes()), "canonical")


def columns(
    *,
    by_steps: int = 1,
    width: int | None = None,
    base: int | None = None,
    padding: int = 0,
    missing: int | None = None,
) -> bytes:
    """Two good rows (50, 9, 3, 0) and (50, 7, 3, 0), with one choice that is not the stated one."""
    bits = Bits()
    put_column(bits, [0, 0], width and reference.Plan(width, 0, [], 0))
    bits.put(by_steps, 1)
    if by_steps:
        put_column(bits, [reference.zigzag(-9), reference.zigzag(2)])
    else:
        bits.put_base(7)
        put_column(bits, [2, 0])
    if base is None:
        put_frame(bits, [3, 3])
    else:
        bits.put_base(base)
        put_column(bits, [3 - base, 3 - base])
    if missing is None:
        bits.put(0, 2)
        put_frame(bits, [0, 0])
    else:
        bits.put(1, 2)
        bits.put(missing, 2)
        if missing:
            put_frame(bits, [0] * missing.bit_count())
    packed = bytearray(bits.to_bytes())
    assert not padding or bits.length % 8
    packed[-1] |= padding << 7
    return bytes(packed)


@pytest.mark.parametrize(
    "choice",
    [
        {"by_steps": 0},
        {"width": 1},
        {"width": 64},
        {"base": 2},
        {"padding": 1},
        {"missing": 0b00},
        {"missing": 0b11},
    ],
)
def test_only_the_stated_choice_is_taken(choice: dict[str, int]) -> None:
    good = BLOB.but(count=2, first_time=50, columns=columns())
    assert len(decode_one(good)) == 2
    refused(BLOB.but(count=2, first_time=50, columns=columns(**choice)), "canonical")


def test_decimals_other_than_the_fewest() -> None:
    blob = reference.blob_of(state_of(FLOATS, []))
    for decimals, number, fine in (
        (1, 5, True),
        (2, 50, False),
        (14, 5 * 10**13, False),
        (15, reference.key_of(0.5), False),
        (0, 2**62, False),
    ):
        bits = Bits()
        put_column(bits, [0])
        bits.put(1, 1)
        put_column(bits, [reference.zigzag(-7)])
        put_frame(bits, [3])
        bits.put(0, 2)
        bits.put(decimals, 4)
        put_frame(bits, [number])
        made = blob.but(count=1, first_time=50, columns=bits.to_bytes())
        if fine:
            assert decode_one(made).value_keys.tolist() == [reference.key_of(0.5)]
        else:
            refused(made, "canonical")


def test_modes_and_widths_that_do_not_exist() -> None:
    bits = Bits()
    bits.put(65, 7)
    refused(BLOB.but(count=1, first_time=50, columns=bits.to_bytes() + b"\0" * 60), 65, 64, "times")
    bits = Bits()
    put_column(bits, [0])
    bits.put(0, 1)
    bits.put(127, 7)
    refused(BLOB.but(count=1, first_time=50, columns=bits.to_bytes() + b"\0" * 60), 127, 64, "ids")
    bits = Bits()
    put_column(bits, [0])
    bits.put(0, 1)
    put_frame(bits, [7])
    put_frame(bits, [3])
    bits.put(3, 2)
    refused(BLOB.but(count=1, first_time=50, columns=bits.to_bytes() + b"\0" * 60), 3, 2, "values")


def divided(chosen: int, length: int, quotients: Sequence[int]) -> Any:
    """Writes a block's times with this divisor and these quotients."""

    def put_times(bits: Bits, _: Sequence[int]) -> None:
        bits.put(64 + length, 7)
        bits.put(chosen, length)
        put_column(bits, quotients)

    return put_times


def test_only_the_divisor_that_packing_takes() -> None:
    """Two blocks whose times are minutes: each with another divisor, and one without."""
    times = [60 * (4 * i + i % 3) << 12 for i in range(512)][::-1]
    rows = [(time, row, 1, 0) for row, time in enumerate(times)]
    steps = [0, *(a - b for a, b in pairwise(times))]
    wide = SketchParams(max_weight=9, id_bits=12, capacity=600, seed=11, value_type="int64")
    blob = reference.blob_of(state_of(wide, [])).but
    made = partial(reference.rows_to_bytes, rows, False)

    def given(*puts: Any) -> bytes:
        left = iter(puts)
        return blob(
            count=512, first_time=times[0], rows=rows,
            columns=made(lambda bits, of: next(left)(bits, of)),
        )  # fmt: skip

    d = 60 << 12
    halves = [[step // d for step in steps[start:][:256]] for start in (0, 256)]
    good, plain = [divided(d, d.bit_length(), each) for each in halves], put_column
    assert wire.encode(decode_one(given(*good))) == given(*good)
    assert wire.encode(decode_one(given(plain, plain))) == given(*good)
    twice = [2 * quotient for quotient in halves[0]]
    for number, length, quotients in (
        (0, 2, halves[0]),
        (0, 63, halves[0]),
        (2, 2, [step // 2 for step in steps[:256]]),
        (d // 2, d.bit_length() - 1, twice),
        (d, d.bit_length() + 1, halves[0]),
        (2**62 + 1, 63, halves[0]),  # beyond 64 bits
        (d, d.bit_length(), [quotient + (2**63 if quotient else 0) for quotient in halves[0]]),
    ):
        refused(given(divided(number, length, quotients), good[1]))
    for mixed in ((good[0], plain), (plain, good[1])):
        refused(given(*mixed), "canonical")


def test_columns_that_end_behind_the_bytes() -> None:
    whole = reference.rows_to_bytes(BLOB.rows, floats=False)
    for length in range(len(whole)):
        refused(BLOB.but(columns=whole[:length]), "ends at bit", 8 * length)


@pytest.mark.parametrize("positions", [[200, 201], [3, 3], [5, 4]])
def test_exceptions_that_are_misplaced(positions: list[int]) -> None:
    """Of 130 ids by steps of one, two have high bits; the list of positions is not what it was."""
    count = 130
    gaps = [1] * count
    wrong = reference.Plan(1, 8, [(p, 200) for p in positions], 0)
    bits = Bits()
    put_column(bits, [0, *gaps[1:]], wrong)
    bits.put(1, 1)
    put_column(bits, [reference.zigzag(-1000), *[2] * (count - 1)])
    put_frame(bits, [3] * count)
    bits.put(2, 2)
    refused(BLOB.but(count=count, first_time=50, columns=bits.to_bytes()))


# ---------------------------------------------------------------------------- watermarks and levels


def test_rows_that_the_watermarks_would_have_discarded() -> None:
    last = BLOB.rows[-1][0]
    level = int(STATE.levels[-1])
    refused(
        BLOB.but(watermarks=[last] * (level + 1)),
        f"row {len(BLOB.rows) - 1}", f"level {level}", last,
    )  # fmt: skip


def test_more_rows_at_a_level_than_the_capacity() -> None:
    refused(BLOB.but(capacity=3), "level 0", 4, 3)
    state = state_of(PARAMS, [(0, 1, i, i) for i in range(30)])
    assert len(decode_one(wire.encode(state))) == 30
    refused(reference.blob_of(state).but(capacity=29), "level 0", 30, 29)


def test_a_watermark_at_a_level_that_cannot_overflow() -> None:
    params = SketchParams(max_weight=1, id_bits=12, capacity=25)
    blob = reference.blob_of(state_of(params, []))
    most = observations_of_top_level(params, 0, 1)
    refused(
        blob.but(watermarks=[99] * (params.levels + 1)),
        f"level {params.levels}", 99, f"at most {most}", "capacity 25",
    )  # fmt: skip


@pytest.mark.parametrize("capacity", [100, 1000, 24_000])
def test_no_blob_without_rows_can_silence_a_stream(capacity: int) -> None:
    """A few bytes whose watermarks lie far in the future: whichever levels they claim."""
    for seed in range(10):
        params = SketchParams(max_weight=999, id_bits=40, capacity=capacity, seed=seed)
        blob = reference.blob_of(state_of(params, []))
        for claimed in range(1, params.levels + 2):
            made = blob.but(watermarks=[LIMIT] * claimed)
            assert len(made) < 250
            refused(made)
    refused(blob.but(watermarks=[LIMIT]), "level 0", capacity + 1, LIMIT, "1e-09")


def test_watermarks_need_about_half_as_many_rows_as_they_claim() -> None:
    params = SketchParams(max_weight=1, id_bits=30, capacity=1000, value_type="int64")
    rows = 5000
    state = state_of_columns(
        params, np.zeros(rows, int), np.ones(rows), np.zeros(rows), np.arange(rows)
    )
    blob = reference.blob_of(state)
    assert columns_of(decode_one(blob.to_bytes())) == columns_of(state)
    level = len(blob.watermarks)
    assert len(state) > 400
    for kept, fine in ((1.0, True), (0.98, True), (0.5, False)):
        made = blob.but(rows=blob.rows[: int(kept * len(blob.rows))])
        if fine:
            decode_one(made)
        else:
            refused(made, f"level {level - 1}", 1001, "1e-09")


def test_plausibility_is_for_mixed_ids_and_foreign_bytes_only() -> None:
    params = SketchParams(max_weight=999, capacity=100)
    silencing = reference.blob_of(state_of(params, [])).but(watermarks=[LIMIT])
    refused(silencing)
    assert len(decode_one(silencing, check_plausible=False)) == 0
    plain = replace(params, id_mix="none")
    decode_one(reference.blob_of(state_of(plain, [])).but(watermarks=[LIMIT]))


def test_many_weights_of_one_id_at_one_time_are_the_stated_exception() -> None:
    """They are selected together, so the coins of the test are not independent."""
    params = SketchParams(max_weight=999, capacity=100)
    weights = np.arange(1, 1000)
    outcomes = []
    for id_ in range(20):
        state = state_of_columns(params, [None] * 999, weights, [7] * 999, [id_] * 999)
        blob = wire.encode(state)
        assert columns_of(decode_one(blob, check_plausible=False)) == columns_of(state)
        outcomes.append(canonical_or_refused(blob))
    assert not all(outcomes)


def test_few_ids_with_many_weights_may_honestly_be_what_silences_a_stream() -> None:
    """Three ids with 30 weights each, at one time: all stop at one level now and then, and what is
    left is what a hostile blob claims, byte for byte. With the weight in the id nothing is refused.
    """
    weights, ids = np.tile(np.arange(1, 31) * 10_000, 3), np.repeat(np.arange(3), 30)
    refusals = 0
    for seed in range(100):
        params = SketchParams(max_weight=300_000, id_bits=11, capacity=35, seed=seed)
        state = state_of_columns(params, [None] * 90, weights, [380] * 90, ids)
        if not canonical_or_refused(wire.encode(state)):
            refusals += 1
            silent = state_of(params, [])
            marks = int(np.count_nonzero(state.watermarks != silent.watermarks))
            made = reference.blob_of(silent).but(watermarks=[380] * marks)
            assert len(state) > 0 or wire.encode(state) == made
            assert len(state) < 10
        own_ids = np.arange(90)
        own = state_of_columns(params, [None] * 90, weights, [380] * 90, own_ids)
        assert columns_of(decode_one(wire.encode(own))) == columns_of(own)
    assert 2 < refusals < 25


# --------------------------------------------------------------------- read at once, or with care


def outcome(blob: bytes, *, with_care: bool) -> list[Any]:
    """The states, or the words in which they are refused."""
    with pytest.MonkeyPatch.context() as patched:
        if with_care:
            patched.setattr(wire, "_read_flawless", lambda *_, **__: ([], 0))
        try:
            return [columns_of(state) for state in wire.decode(blob)]
        except CorruptSketchError as refusal:
            return [str(refusal)]


@pytest.mark.parametrize("copies", [1, 3])
def test_bytes_that_are_damaged_come_out_alike(copies: int) -> None:
    params = SketchParams(max_weight=9, id_bits=12, capacity=10, copies=copies)
    made = [(MISSING if i % 5 else i, 1 + i % 9, 1000 - i // 3, 37 * i) for i in range(40)]
    blob = bytearray(wire.encode(*states_of(params, made)))
    random = np.random.default_rng(copies)
    taken = 0
    for _ in range(600):
        damaged = bytearray(blob)
        for where in random.integers(30, len(blob) - 4, random.integers(1, 4)):
            damaged[where] ^= 1 << random.integers(0, 8)
        sealed = with_checksum(bytes(damaged[:-4]))
        found = outcome(sealed, with_care=False)
        assert found == outcome(sealed, with_care=True)
        taken += not isinstance(found[0], str)
    assert taken > 0


@pytest.mark.parametrize("capacity", [28, 29, 30, 60, 200, 1000])
def test_watermarks_are_believed_alike(capacity: int) -> None:
    """With any number of rows of that time that are left: none to as many as are claimed."""
    params = SketchParams(max_weight=1, id_bits=30, capacity=capacity)
    ids = np.arange(6 * capacity)
    levels = minhit.top_levels(params, ids, np.ones_like(ids))
    higher = ids[levels == 1][::-1]
    blob = reference.blob_of(state_of(params, []))
    believed = []
    for held in range(0, capacity + 1, 1 + capacity // 100):
        rows = [(50, int(id_), 1, MISSING) for id_ in higher[:held]]
        made = blob.but(rows=rows, watermarks=[50])
        found = outcome(made, with_care=False)
        assert found == outcome(made, with_care=True)
        believed.append(not isinstance(found[0], str))
    assert believed == sorted(believed)
    assert believed[-1]
    assert believed[0] == (capacity < 29)


# ----------------------------------------------------------------------------- parameters to expect


def test_other_parameters_name_every_field_that_differs() -> None:
    other = replace(PARAMS, seed=12, time_unit="ms", capacity=4000)
    with pytest.raises(IncompatibleSketchError) as caught:
        decode_one(SMALL, params=other)
    assert caught.value.fields == {"seed": (12, 11), "time_unit": ("ms", "s")}
    with pytest.raises(IncompatibleSketchError) as caught:
        decode_one(wire.encode(STATE, embed_params=False), params=other)
    assert caught.value.fields == {
        "fingerprint": (other.fingerprint.hex(), PARAMS.fingerprint.hex())
    }


def test_a_fingerprint_alone_needs_parameters() -> None:
    with pytest.raises(IncompatibleSketchError, match=PARAMS.fingerprint.hex()):
        decode_one(wire.encode(STATE, embed_params=False))


def test_a_secret_is_needed_right_and_not_given_in_vain() -> None:
    params = replace(PARAMS, id_key=b"k" * 16)
    blob = wire.encode(state_of(params, ROWS))
    assert len(decode_one(blob, id_key=b"k" * 16)) == 4
    assert len(decode_one(blob, params=params)) == 4
    with pytest.raises(IncompatibleSketchError, match=f"not given.*{params.key_check.hex()}"):
        decode_one(blob)
    wrong = replace(PARAMS, id_key=b"w" * 16)
    for given_ in ({"id_key": b"w" * 16}, {"params": wrong}):
        with pytest.raises(IncompatibleSketchError, match=params.key_check.hex()) as caught:
            decode_one(blob, **given_)
        assert wrong.key_check.hex() in str(caught.value)
        assert "kkkk" not in str(caught.value)
        assert "wwww" not in str(caught.value)
    with pytest.raises(IncompatibleSketchError, match="keyed by the seed"):
        decode_one(SMALL, id_key=b"k" * 16)
    with pytest.raises(IncompatibleSketchError, match="keyed_by"):
        decode_one(blob, params=PARAMS)
    with pytest.raises(ParameterError, match="16 to 64"):
        decode_one(blob, id_key=b"short")
    with pytest.raises(ParameterError, match="not both"):
        decode_one(blob, id_key=b"k" * 16, params=params)


# ---------------------------------------------------------------------------------------- resources


def sparse_columns(rows: int) -> bytes:
    """As many rows for each byte as the format allows: ids by steps of one, and nothing else."""
    bits = Bits()
    previous = 0
    for start in range(0, rows, 256):
        m = min(256, rows - start)
        put_column(bits, [0] * m)
        first = rows if start == 0 else previous - 1
        bits.put(1, 1)
        put_column(bits, [reference.zigzag(previous - first), *[2] * (m - 1)])
        previous = first - (m - 1)
        put_frame(bits, [1] * m)
        bits.put(2, 2)
    return bits.to_bytes()


@pytest.mark.parametrize("rows", [2**12, 2**16])
def test_memory_is_bounded_by_the_length_of_the_bytes(rows: int) -> None:
    """An honest sketch can be this sparse; it is decoded within 1 KB for each byte."""
    params = SketchParams(max_weight=1, id_bits=40, capacity=2**20, value_type="int64")
    blob = reference.blob_of(state_of(params, [])).but(
        count=rows, first_time=50, columns=sparse_columns(rows)
    )
    assert len(blob) < rows / 2
    decode_one(blob)  # compiled and imported before anything is measured
    tracemalloc.start()
    try:
        state = decode_one(blob)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(state) == rows
    assert wire.encode(state) == blob
    assert peak < 1024 * len(blob)


@pytest.mark.parametrize("fault", ["identical rows", "rows without bits"])
def test_rows_that_cost_nothing_are_refused_before_memory_is_spent(fault: str) -> None:
    """Columns of width 0: 256 rows in a few bytes, again and again, up to the capacity."""
    bits = Bits()
    for _ in range(400):
        put_column(bits, [0] * 256)
        bits.put(0, 1)
        put_frame(bits, [7] * 256)
        put_frame(bits, [3] * 256)
        bits.put(2, 2)
    count = 400 * 256 if fault == "identical rows" else 400 * 256 * 170
    blob = BLOB.but(count=count, first_time=50, columns=bits.to_bytes(), capacity=2**20)
    tracemalloc.start()
    try:
        refused(blob, "telling the rows apart", 0, 255)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(blob)


# --------------------------------------------------------------------------------------------- peek


def test_peek_reads_the_header_of_rows_that_are_corrupt() -> None:
    header = wire.peek(BLOB.but(columns=b"", watermarks=[20, 10]))
    assert (header.rows, header.newest, header.copies[0].watermarks) == (4, 1000, (20, 10))
    assert header.capacity == 30
    assert header.params == PARAMS.to_dict()
    assert wire.peek(BLOB.but(params=None)).params is None


def test_peek_of_a_state_without_rows() -> None:
    header = wire.peek(wire.encode(state_of(PARAMS, [])))
    assert (header.rows, header.newest, header.copies[0].watermarks) == (0, None, ())


def test_a_state_is_not_touched_by_encoding() -> None:
    before = columns_of(STATE)
    wire.encode(STATE)
    assert columns_of(STATE) == before
    assert isinstance(STATE, SketchState)
