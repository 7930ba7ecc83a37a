"""Families 3 and 4: the asynchronous samplers, for sums and for quantiles.

The bytes contain the parameters, the clock, the watermarks later than the clock's floor, and the
elements as the bit-packed columns of family 1 (``core/codec/sections.py``). The key replaces the
id, and a sum's value replaces the weight. Keys look random and take 8 bytes each. An element's
level is not stored but recomputed. The parameters are always included: version 1 has no form that
names them by their fingerprint alone, so samplers have no argument ``embed_params``.

Guarantees of decoding
    As in family 1: for any bytes, :func:`decode` returns a state that an honest builder
    could have reached or raises :class:`~decaysketch.errors.CorruptSketchError`, in time and memory
    proportional to their length. A watermark at level ``i`` says that elements with exactly that
    time were discarded. An element that reaches level ``i`` reaches the next with a chance of 1/2
    or more. So if the levels above were still complete at that time, they must contain about as
    many elements with that time. A chance below 1e-9 is rejected. One case remains possible: a blob
    whose coarsest level claims to have overflowed. So does an honest builder's blob if its windows
    contain far more than the given bound. Authenticate the sender if that matters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.asyncwindow.coins import top_levels
from decaysketch.asyncwindow.params import MAX_WINDOW, MedianParams, SumParams, ValueType
from decaysketch.asyncwindow.state import NO_CLOCK, WindowState, floor_of
from decaysketch.core.codec import reading, writing
from decaysketch.core.codec.reading import CopyHeader, Header, Rows, refuse
from decaysketch.core.codec.sections import check_canonical, decode_rows, first_out_of_order
from decaysketch.core.codec.writing import encode_rows
from decaysketch.core.observations import MISSING_KEY, no_floats
from decaysketch.core.special import binomial_at_most
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError, ParameterError

__all__ = ["FAMILIES", "decode", "encode", "peek"]

FAMILIES = {"sum": 3, "median": 4}

_VALUE_TYPES: tuple[ValueType, ...] = ("int64", "float64")
_SIGN = np.uint64(1 << 63)  # keys are unsigned, columns are not: this keeps their order
_IMPLAUSIBLE = 1e-9
_MOST_AT_TOP = 64  # elements of one time at the coarsest level, which expects one of a whole window

Params = SumParams | MedianParams


# --------------------------------------------------------------------------------------- encoding


def encode(state: WindowState) -> bytes:
    """Return the bytes of a sampler. Equal states have equal bytes.

    Args:
        state: rows in canonical order.

    Returns:
        Version 1 bytes. O(rows).
    """
    params = state.params
    body = writing.begin(FAMILIES[params.kind], params, embed_params=False)  # type: ignore[arg-type]
    _put_params(body, params)
    writing.put_clock(body, state.clock)
    marks = state.watermarks
    later = np.flatnonzero(marks > state.floor).tolist()  # NO_WATERMARK is not
    writing.put_varint(body, sum(1 << level for level in later))
    for level in later:
        writing.put_signed_varint(body, int(marks[level]))
    writing.put_rows(body, state.times)
    return writing.seal(body, encode_rows(_rows_of(state), params.value_type))


def _put_params(body: bytearray, params: Params) -> None:
    unit = params.time_unit.encode("ascii")
    body += params.seed.to_bytes(8, "little")
    body.append(len(unit))
    body += unit
    writing.put_varint(body, params.bound)
    writing.put_varint(body, 0 if params.max_window is None else params.max_window + 1)
    if isinstance(params, SumParams):
        body.append(params.first_nested)
    else:
        body.append(_VALUE_TYPES.index(params.value_type))


def _rows_of(state: WindowState) -> Rows:
    ids = (state.keys ^ _SIGN).view(np.int64)
    nothing = np.full(len(state), MISSING_KEY, dtype=np.int64)
    if state.params.weighted:
        return Rows(state.times, ids, state.value_keys, nothing)
    return Rows(state.times, ids, np.ones(len(state), np.int64), state.value_keys)


# --------------------------------------------------------------------------------------- decoding


def decode(blob: bytes | bytearray | memoryview, *, kind: str, params: Any = None) -> WindowState:
    """Return the state that :func:`encode` wrote.

    Args:
        blob: the bytes. Nothing in them is trusted.
        kind: "sum" or "median".
        params: the expected parameters, or None. The capacity is taken from the bytes.

    Raises:
        CorruptSketchError: the bytes are not ones that an honest builder could have written. The
            message names the found and the expected value.
        IncompatibleSketchError: the bytes belong to a stream with other parameters than ``params``.
    """
    blob = reading.as_bytes(blob)
    found, header = _read_header(blob, kind, params)
    (copy,) = header.copies
    rows, end = decode_rows(blob, header.columns_at, copy.rows, copy.newest, found.value_type)
    state = _state(found, _known(header.clock), np.array(copy.watermarks, np.int64), rows)
    check_canonical(blob, header.columns_at, end, rows, found.value_type)
    reading.skip_optional_sections(blob, header.optional_flags, end)
    _check_watermarks(state)
    return state


def peek(blob: bytes | bytearray | memoryview, *, kind: str, params: Any = None) -> Header:
    """Read the header and verify the checksum, without decoding elements.

    It checks the header by itself, and that the number of rows is possible. Only :func:`decode`
    detects whether the header agrees with the rows. Arguments and errors are the same. Constant
    memory.
    """
    blob = reading.as_bytes(blob)
    found, header = _read_header(blob, kind, params)
    (copy,) = header.copies
    # Of the levels that are nested, those with a watermark and the first without hold rows.
    floor = floor_of(found, _known(header.clock))
    nested = sum(mark > floor for mark in copy.watermarks[found.first_nested :]) + 1
    reading.check_row_count(copy.rows, found.capacity, found.first_nested + nested, blob)
    return header


def _known(clock: int | None) -> int:
    return NO_CLOCK if clock is None else clock


def _read_header(blob: bytes, kind: str, params: Any) -> tuple[Params, Header]:
    opening = reading.open_blob(blob, FAMILIES[kind])
    reader = opening.reader
    if opening.params is not None or opening.copies != 1:
        refuse("required flags say copies, or parameters of family 1; expected neither")
    found = _read_params(reader, kind, opening.capacity)
    if params is not None and found.fingerprint != params.fingerprint:
        raise IncompatibleSketchError(params.differences(found))
    if found.fingerprint != opening.fingerprint:
        refuse(
            f"fingerprint is {opening.fingerprint.hex()}; the parameters give "
            f"{found.fingerprint.hex()}"
        )
    clock = reader.clock()
    watermarks = _read_watermarks(reader, found, floor_of(found, _known(clock)))
    copy = CopyHeader(tuple(watermarks.tolist()), *reader.rows())
    copy.check(found.capacity, found.levels + 1)
    return found, Header.behind(opening, [copy], clock=clock)


def _read_params(reader: reading.Reader, kind: str, capacity: int) -> Params:
    seed = int.from_bytes(reader.take(8, "seed"), "little")
    unit = reader.take(reader.byte("length of time_unit"), "time_unit")
    if not unit.isascii():
        refuse(f"time_unit is {unit!r}; expected ASCII")
    bound = reader.varint("bound of a window")
    window = reader.varint("largest window")
    if window > MAX_WINDOW + 1:
        refuse(f"largest window is {window - 1}; expected at most 2^62")
    shared: dict[str, Any] = {
        "seed": seed,
        "time_unit": unit.decode("ascii"),
        "max_window": None if window == 0 else window - 1,
        "capacity": capacity,
    }
    choice = reader.byte("first nested level" if kind == "sum" else "value type")
    try:
        if kind == "sum":
            params: Params = SumParams(max_sum=bound, eager_from_level=choice, **shared)
        else:
            if choice >= len(_VALUE_TYPES):
                refuse(f"value type is {choice}; expected 0 or 1")
            params = MedianParams(max_count=bound, value_type=_VALUE_TYPES[choice], **shared)
    except ParameterError as fault:
        raise CorruptSketchError(f"parameters: {fault}") from None
    return params


def _read_watermarks(reader: reading.Reader, params: Params, floor: int) -> npt.NDArray[np.int64]:
    later = reader.varint("levels with a watermark")
    if later >> (params.levels + 1):
        refuse(f"levels with a watermark are {later:#b}; there are {params.levels + 1} levels")
    watermarks = np.full(params.levels + 1, floor, dtype=np.int64)
    for level in range(params.levels + 1):
        if later >> level & 1:
            mark = reader.time(f"watermark of level {level}")
            if mark <= floor:
                refuse(f"watermark of level {level} is {mark}; expected one later than {floor}")
            watermarks[level] = mark
    nested = watermarks[params.first_nested :]
    if (nested[1:] > nested[:-1]).any():
        level = params.first_nested + 1 + int((nested[1:] > nested[:-1]).argmax())
        refuse(
            f"watermark of level {level} is {int(watermarks[level])}; expected at most that of the "
            f"level below, {int(watermarks[level - 1])}"
        )
    return watermarks


def _state(
    params: Params, clock: int, watermarks: npt.NDArray[np.int64], rows: Rows
) -> WindowState:
    """Return the state of decoded rows, after checking ranges and order."""
    row = first_out_of_order(rows)
    if row >= 0:
        refuse(f"row {row} is not after row {row - 1} in the order of (time, key, value)")
    if len(rows.times):
        reading.check_time(int(rows.times[-1]), f"time of row {len(rows.times) - 1}")
    keys = rows.ids.view(np.uint64) ^ _SIGN
    if params.weighted:
        values = rows.weights
        bad = (values < 1) | (values > params.bound) | (rows.value_keys != MISSING_KEY)
        identities = np.stack([values, rows.ids])
    else:
        values = rows.value_keys
        bad = (values == MISSING_KEY) | (rows.weights != 1)
        if params.value_type == "float64":
            bad |= no_floats(values)
        identities = rows.ids[None]
    if bad.any():
        row = int(bad.argmax())
        refuse(f"row {row} has value {int(values[row])} and weight {int(rows.weights[row])}")
    identities = identities[:, np.lexsort(identities)]
    twice = (identities[:, 1:] == identities[:, :-1]).all(axis=0)
    if twice.any():
        key = int(identities[-1, int(twice.argmax())]) + (1 << 63)
        refuse(f"key {key} is repeated; expected once")
    levels = top_levels(params, values, keys)
    return WindowState(params, clock, values, rows.times, keys, levels, watermarks)


def _check_watermarks(state: WindowState) -> None:
    """Check the law of the state (see ``asyncwindow/state.py``), as far as kept rows can show
    it.
    """
    times, levels, marks = state.times, state.levels, state.watermarks
    capacity, first = state.params.capacity, state.params.first_nested
    expired = times <= marks[levels]
    if expired.any():
        row = int(expired.argmax())
        refuse(
            f"row {row}, of top level {int(levels[row])}, has time {int(times[row])}; expected one "
            f"later than that level's watermark {int(marks[levels[row]])}"
        )
    floor = state.floor
    for level in range(len(marks)):
        mark = int(marks[level])
        counted = levels == level if level < first else levels >= level
        later = int(np.count_nonzero(counted & (times > mark)))
        if later > capacity:
            refuse(
                f"level {level} has {later} rows later than its watermark; the capacity is "
                f"{capacity}"
            )
        if level == len(marks) - 1 and mark > floor and capacity + 1 - later > _MOST_AT_TOP:
            refuse(
                f"watermark {mark} of level {level}, the coarsest, claims that "
                f"{capacity + 1 - later} elements or more of that time reach it; expected at most "
                f"{_MOST_AT_TOP}, of windows that hold {state.params.bound} at most"
            )
        above = marks[level + 1 :]
        if mark > floor and mark != NO_WATERMARK and (above < mark).all() and len(above):
            held = int(np.count_nonzero((times == mark) & (levels > level)))
            gone = capacity + 1 - later - (held if level >= first else 0)
            _check_plausible(level, mark, max(gone, 0), held)


def _check_plausible(level: int, mark: int, gone: int, held: int) -> None:
    """Check that ``held`` of at least ``gone + held`` elements at a level could reach the next."""
    if held >= gone:
        return
    chance = binomial_at_most(held, gone + held, 0.5)
    if chance < _IMPLAUSIBLE:
        refuse(
            f"watermark {mark} of level {level} claims that {gone} elements or more of that time "
            f"stopped there, yet {held} went on: a chance of {chance:.1e}; expected at least "
            f"{_IMPLAUSIBLE:.0e}"
        )
