"""Columns as bits: numbers of which few are large, and values.

Blocks with 8 numbers have a width each (``core/codec/numbers.py``). A single large number would
widen the seven next to it. So a column is split at one width: the low bits for all numbers, then
the positions and the high bits for the few that have more. These are patched frames (Zukowski,
Heman, Nes and Boncz 2006). A formula gives the width.

The writer packs values in the shortest form. The first one wins a tie.

0. Decimals: whole numbers ``n`` with ``value = n / 10^d`` and the least d, each as the difference
   to the row before in its series. Integers have d = 0.
1. A dictionary with at most 256 distinct value keys.
2. The exclusive or with the preceding row's value key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec.numbers import pack_numbers, read_numbers
from decaysketch.core.codec.reading import Reader, refuse
from decaysketch.core.codec.writing import put_varint
from decaysketch.core.observations import decode_values, encode_values

__all__ = ["pack_patched", "pack_values", "read_patched", "read_values", "unzigzag", "zigzag"]

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

_DECIMALS, _DICTIONARY, _XOR = range(3)
_MOST_PLACES = 15
_MOST_ENTRIES = 256
_EXACT = float(1 << 53)


def zigzag(numbers: Int64Array) -> UInt64Array:
    """Map small magnitudes with either sign to small numbers: 0, -1, 1, -2, ..."""
    found: UInt64Array = (numbers << np.int64(1) ^ numbers >> np.int64(63)).view(np.uint64)
    return found


def unzigzag(numbers: UInt64Array) -> Int64Array:
    """Inverse of :func:`zigzag`."""
    found = numbers >> np.uint64(1) ^ (np.uint64(0) - (numbers & np.uint64(1)))
    return found.view(np.int64)


# ----------------------------------------------------------------------------------------- numbers


def pack_patched(numbers: UInt64Array) -> bytes:
    """Pack a column of numbers. Few may be large. O(bits)."""
    width = _best_width(numbers)
    high = numbers >> np.uint64(width) if width < 64 else np.zeros_like(numbers)
    places = np.flatnonzero(high)
    body = bytearray([width])
    put_varint(body, len(places))
    low = numbers & np.uint64((1 << width) - 1)
    gaps = np.diff(places, prepend=-1) - 1
    return b"".join((body, pack_numbers(low), pack_numbers(gaps), pack_numbers(high[places] - 1)))


def _best_width(numbers: UInt64Array) -> int:
    """The least width with the least cost in bits. Each number takes the width, and a larger one
    its high bits and 8 bits for its position."""
    if not len(numbers):
        return 0
    high, low = numbers >> np.uint64(32), numbers & np.uint64(0xFFFFFFFF)
    lengths = np.where(
        high > 0, 32 + np.frexp(high.astype(np.float64))[1], np.frexp(low.astype(np.float64))[1]
    )
    counts = np.bincount(lengths, minlength=65)
    larger = len(numbers) - np.cumsum(counts)
    beyond = np.cumsum((counts * np.arange(65))[::-1])[::-1]
    beyond = np.append(beyond[1:], 0) - larger * np.arange(65)  # high bits of the larger ones
    return int(np.argmin(len(numbers) * np.arange(65) + larger * 8 + beyond))


def read_patched(reader: Reader, count: int, name: str) -> UInt64Array:
    """Inverse of :func:`pack_patched`. Callers pack again to check canonical bytes.

    Raises:
        CorruptSketchError: the bytes end too early, or no packer wrote them.
    """
    width = reader.byte(f"width of {name}")
    places = reader.varint(f"large numbers of {name}")
    if width > 64 or places > count:
        refuse(f"{name} at byte {reader.at}: width {width}, {places} of {count} numbers are larger")
    low = read_numbers(reader, count, name)
    gaps = read_numbers(reader, places, f"positions of {name}")
    high = read_numbers(reader, places, f"high bits of {name}")
    if places and int(gaps.max()) >= count:
        refuse(f"positions of {name} are {int(gaps.max())} apart; there are {count} numbers")
    at = np.cumsum(gaps.astype(np.int64) + 1) - 1
    if places and (int(at[-1]) >= count or width >= 64):
        refuse(f"positions of {name} end at {int(at[-1])}; there are {count} numbers")
    found = low.copy()
    found[at] |= high + np.uint64(1) << np.uint64(width)
    return found


# ------------------------------------------------------------------------------------------ values


def pack_values(keys: Int64Array, begins: npt.NDArray[np.bool_], value_type: str) -> bytes:
    """Pack value keys without missing ones.

    Args:
        keys: int64[n].
        begins: bool[n], whether a row has no row before it in its series.
        value_type: the stream's.
    """
    if not len(keys):
        return b""
    forms = [_packed_decimals(keys, begins, value_type), _packed_dictionary(keys)]
    forms.append(bytes([_XOR]) + pack_patched(_against_before(keys, begins)))
    return min((form for form in forms if form is not None), key=len)


def _packed_decimals(
    keys: Int64Array, begins: npt.NDArray[np.bool_], value_type: str
) -> bytes | None:
    decimals = _decimals(keys, value_type)
    if decimals is None:
        return None
    places, whole = decimals
    return bytes([_DECIMALS, places]) + pack_patched(zigzag(_differences(whole, begins)))


def read_values(reader: Reader, begins: npt.NDArray[np.bool_], value_type: str) -> Int64Array:
    """Inverse of :func:`pack_values`.

    Raises:
        CorruptSketchError: no packer wrote it.
    """
    count = len(begins)
    if not count:
        return np.empty(0, np.int64)
    form = reader.byte("form of values")
    if form == _DECIMALS:
        places = reader.byte("decimal places")
        if places > _MOST_PLACES or (places and value_type != "float64"):
            refuse(f"decimal places are {places}; expected at most {_MOST_PLACES}")
        whole = _sums(unzigzag(read_patched(reader, count, "values")), begins)
        return _keys_of(whole, places, value_type)
    if form == _DICTIONARY:
        return _read_dictionary(reader, count)
    if form != _XOR:
        refuse(f"form of values is {form}; expected 0, 1 or 2")
    return _xor_sums(read_patched(reader, count, "values").view(np.int64), begins)


def _differences(numbers: Int64Array, begins: npt.NDArray[np.bool_]) -> Int64Array:
    """Differences to the row before, modulo 2^64. A first row has its own number."""
    before = np.zeros_like(numbers)
    before[1:] = numbers[:-1]
    before[begins] = 0
    return numbers - before


def _sums(steps: Int64Array, begins: npt.NDArray[np.bool_]) -> Int64Array:
    """Inverse of :func:`_differences`."""
    sums = np.cumsum(steps)
    firsts = np.flatnonzero(begins)
    offsets = sums[firsts] - steps[firsts]
    found: Int64Array = sums - np.repeat(offsets, np.diff(firsts, append=len(steps)))
    return found


def _against_before(keys: Int64Array, begins: npt.NDArray[np.bool_]) -> UInt64Array:
    before = np.zeros_like(keys)
    before[1:] = keys[:-1]
    before[begins] = 0
    found: UInt64Array = (keys ^ before).view(np.uint64)
    return found


def _xor_sums(steps: Int64Array, begins: npt.NDArray[np.bool_]) -> Int64Array:
    sums: Int64Array = np.bitwise_xor.accumulate(steps)
    firsts = np.flatnonzero(begins)
    offsets = np.repeat(sums[firsts] ^ steps[firsts], np.diff(firsts, append=len(steps)))
    found: Int64Array = np.bitwise_xor(sums, offsets)
    return found


def _decimals(keys: Int64Array, value_type: str) -> tuple[int, Int64Array] | None:
    """Return the least power of ten that makes all values whole, and the whole numbers, or None."""
    if value_type != "float64":
        return 0, keys
    values, _ = decode_values(keys, value_type)
    for places in range(_MOST_PLACES + 1):
        with np.errstate(over="ignore"):
            whole = np.rint(values * 10.0**places)
        if (np.abs(whole) > _EXACT).any():
            return None
        if (whole / 10.0**places == values).all():
            return places, whole.astype(np.int64)
    return None


def _keys_of(whole: Int64Array, places: int, value_type: str) -> Int64Array:
    if value_type != "float64":
        return whole
    if (whole > 1 << 53).any() or (whole < -(1 << 53)).any():
        refuse("a value is more than 2^53 units of its last decimal place; expected at most that")
    found: Any = encode_values(whole.astype(np.float64) / 10.0**places, value_type)
    keys: Int64Array = found
    return keys


def _packed_dictionary(keys: Int64Array) -> bytes | None:
    entries, codes = np.unique(keys, return_inverse=True)
    if len(entries) > _MOST_ENTRIES:
        return None
    steps = entries.view(np.uint64).copy()
    steps[1:] -= entries.view(np.uint64)[:-1]
    body = bytes([_DICTIONARY, len(entries) - 1])
    return body + pack_numbers(steps) + pack_numbers(codes.astype(np.int64))


def _read_dictionary(reader: Reader, count: int) -> Int64Array:
    size = reader.byte("entries of the dictionary") + 1
    entries = np.cumsum(read_numbers(reader, size, "entries of the dictionary")).view(np.int64)
    codes = read_numbers(reader, count, "codes of values")
    if int(codes.max()) >= size:
        refuse(f"a code of values is {int(codes.max())}; the dictionary has {size} entries")
    found: Int64Array = entries[codes.astype(np.intp)]
    return found
