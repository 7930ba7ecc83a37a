"""Rows of a sketch as bit-packed blocks, and back: the kernels behind ``rows.py``.

Rows arrive in canonical order and are cut into blocks of 256. A block holds four columns, each as
*patched frames of reference* (Zukowski, Heman, Nes and Boncz, "Super-scalar RAM-CPU cache
compression", ICDE 2006): non-negative residuals are stored in the one width that makes the column
shortest, and the few that do not fit (the exceptions) leave their high bits in a list behind.

========  ==========================================================================================
times     previous time minus this one (the order is descending, so it is never negative)
ids       what is shorter of: id minus the block's smallest; zigzag of previous id minus this one
weights   weight minus the block's smallest
values    of the rows that have one: float64 as integers over the smallest power of ten that gives
          every one of them back exactly, else as order-preserving bits; minus the block's smallest
========  ==========================================================================================

``docs/wire-format.md`` names every bit. What is written is a function of the rows alone: integers,
and for decimals IEEE multiplication, rounding to integer and division, which are exactly defined.

Kernels take arrays and scalars and trust their *encoding* input. Decoding trusts nothing:
``scan_columns`` walks the headers first, so that the length of every column is known to lie inside
the buffer, and the size of what decoding allocates is paid for in bytes, before a row is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import int64, njit, types, uint64
from numba.extending import intrinsic

__all__ = [
    "BLOCK",
    "OK",
    "PAST_END",
    "SPARE_WORDS",
    "TOO_FEW_BITS",
    "WIDTH_TOO_LARGE",
    "decode_columns",
    "encode_columns",
    "first_out_of_order",
    "max_words",
    "scan_columns",
]

Int64Array = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Outcome = tuple[
    int, int, int, int, int
]  # (code, row at which the block starts, column, found, limit)

JIT: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

BLOCK = 256  # rows; positions of exceptions then fit 8 bits
# Words behind the packed ones: all that stands in front of the residuals of a column (modes,
# bitmap, base and header: less than 7 words) may be read before it is known to be there.
SPARE_WORDS = 8

# Outcomes of scanning.
OK = 0
PAST_END = 1
WIDTH_TOO_LARGE = 2
TOO_FEW_BITS = 3

# Columns, by the order in which a block holds them.
TIMES, IDS, WEIGHTS, VALUES = range(4)
STEPS = 4  # ids, the other way

MAX_DECIMALS = 14  # 10^14 and every quotient by it is one correctly rounded operation
RAW = 15  # what stands in place of a number of decimals: order-preserving bits
NONE_MISSING, SOME_MISSING, ALL_MISSING = range(3)

_MISSING_KEY = np.int64(np.iinfo(np.int64).min)
_MAGNITUDE = np.int64(np.iinfo(np.int64).max)
_EXACT_IN_FLOAT = float(1 << 53)
_POWERS_OF_TEN = np.array([float(10**k) for k in range(MAX_DECIMALS + 1)])

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U63 = np.uint64(63)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def _count_leading_zeros(typing_context: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


_leading_zeros: Any = intrinsic(_count_leading_zeros)


@njit(inline="always")
def _bit_length(word: Any) -> Any:
    return 64 - int64(_leading_zeros(word))


@njit(inline="always")
def _mask(width: int) -> Any:
    return _ALL if width >= 64 else (_U1 << uint64(width)) - _U1


@njit(inline="always")
def _zigzag(number: Any) -> Any:
    return uint64((number << 1) ^ (number >> 63))


@njit(inline="always")
def _unzigzag(word: Any) -> Any:
    return int64(word >> _U1) ^ -int64(word & _U1)


@njit(inline="always")
def _write(words: Words, position: int, value: Any, width: int) -> int:
    """Append the low ``width`` bits of ``value``, which has no higher ones; new bit position."""
    k = position >> 6
    offset = uint64(position & 63)
    words[k] |= value << offset
    words[k + 1] |= (value >> _U1) >> (_U63 - offset)  # a shift by 64 is undefined
    return position + width


@njit(inline="always")
def _read(words: Words, position: int, width: int) -> Any:
    k = position >> 6
    offset = uint64(position & 63)
    joined = (words[k] >> offset) | ((words[k + 1] << _U1) << (_U63 - offset))
    return joined & _mask(width)


# ----------------------------------------------------------------------------------- one column


@njit(inline="always")
def _place_bits(m: int) -> Any:
    """Bits that name one of ``m`` residuals."""
    return _bit_length(uint64(m - 1))


@njit(**JIT)
def _plan(residuals: Words, m: int, counts: Int64Array) -> tuple[int, int, int, int]:
    """Choose the width of ``m`` residuals.

    Let ``longest`` be the bit length of the largest and ``q`` that of ``m - 1``. With ``x``
    residuals longer than the width ``b``, a column takes ``m b`` bits, and if ``x > 0`` another 7
    for ``longest - b``, ``q`` for ``x``, the lesser of ``m`` and ``x q`` for where they are, and
    ``x (longest - b)`` for their high bits. The cheapest ``b`` is taken, the largest of equals.

    Returns (bits, b, longest - b, x).
    """
    counts[:] = 0
    for i in range(m):  # two histograms, so that equal lengths in a row do not wait for each other
        counts[i & 1, _bit_length(residuals[i])] += 1
    longest = 64
    while longest > 0 and counts[0, longest] + counts[1, longest] == 0:
        longest -= 1
    place = _place_bits(m)
    best, width, exceptions = m * longest, longest, 0
    longer = 0
    for b in range(longest - 1, -1, -1):
        longer += counts[0, b + 1] + counts[1, b + 1]
        bits = m * b + 7 + place + min(m, longer * place) + longer * (longest - b)
        if bits < best:
            best, width, exceptions = bits, b, longer
    return best, width, longest - width, exceptions


@njit(**JIT)
def _pack(
    words: Words, position: int, residuals: Words, m: int, width: int, extra: int, exceptions: int
) -> int:
    """Write one planned column: its header, low bits, exceptions. Returns the new bit position."""
    position = _write(words, position, uint64(width), 7)
    position = _write(words, position, uint64(extra > 0), 1)
    place = _place_bits(m)
    if extra > 0:
        position = _write(words, position, uint64(extra), 7)
        position = _write(words, position, uint64(exceptions - 1), place)
    if width > 0:
        mask = _mask(width)
        k = position >> 6
        filled = position & 63
        word = words[k]
        for i in range(m):
            low = residuals[i] & mask
            offset = uint64(filled)
            word |= low << offset
            filled += width
            if filled >= 64:
                words[k] = word
                k += 1
                word = (low >> _U1) >> (_U63 - offset)
                filled -= 64
        words[k] = word
        position += m * width
    if extra > 0:
        rows = np.empty(m, np.int64)
        found = 0
        for i in range(m):  # extra > 0, so width < 64
            rows[found] = i
            found += int64((residuals[i] >> uint64(width)) != _U0)
        if exceptions * place > m:
            for j in range(found):
                at = position + rows[j]
                words[at >> 6] |= _U1 << uint64(at & 63)
            position += m
        else:
            for j in range(found):
                position = _write(words, position, uint64(rows[j]), place)
        for j in range(found):
            position = _write(words, position, residuals[rows[j]] >> uint64(width), extra)
    return position


@njit(**JIT)
def _read_column_header(words: Words, position: int, m: int) -> tuple[int, int, int, int, int, int]:
    """(width, extra, exceptions, bits that say where they are, bits of all that, its position)."""
    width = int64(_read(words, position, 7))
    patched = _read(words, position + 7, 1) != _U0
    position += 8
    extra, exceptions, where = 0, 0, 0
    if patched:
        place = _place_bits(m)
        extra = int64(_read(words, position, 7))
        exceptions = int64(_read(words, position + 7, place)) + 1
        where = min(m, exceptions * place)
        position += 7 + place
    return width, extra, exceptions, where, m * width + where + exceptions * extra, position


@njit(**JIT)
def _unpack(words: Words, position: int, residuals: Words, m: int) -> int:
    """Read one column that ``scan_columns`` has passed; new bit position.

    Exceptions that are misplaced or too many are skipped: encoding again will show them.
    """
    width, extra, exceptions, where, size, position = _read_column_header(words, position, m)
    mask = _mask(width)
    end = position + size
    for i in range(m):
        k = position >> 6
        offset = uint64(position & 63)
        residuals[i] = (words[k] >> offset | (words[k + 1] << _U1) << (_U63 - offset)) & mask
        position += width
    if exceptions == 0:
        return end
    place = _place_bits(m)
    high = position + where
    if where < exceptions * place:
        for first in range(0, m, 64):
            flags = _read(words, position + first, min(64, m - first))
            while flags != _U0 and high < end:
                lowest = flags & (~flags + _U1)
                row = first + _bit_length(lowest) - 1
                residuals[row] |= _read(words, high, extra) << uint64(width)
                high += extra
                flags ^= lowest
    else:
        for j in range(exceptions):
            row = int64(_read(words, position + j * place, place))
            if row < m:
                residuals[row] |= _read(words, high, extra) << uint64(width)
            high += extra
    return end


@njit(**JIT)
def _write_base(words: Words, position: int, base: Any) -> int:
    """A frame's smallest number: 7 bits for the bit length of its zigzag, then that zigzag."""
    word = _zigzag(base)
    length = _bit_length(word)
    position = _write(words, position, uint64(length), 7)
    return _write(words, position, word, length)


@njit(**JIT)
def _read_base(words: Words, position: int) -> tuple[Any, int, int]:
    """(base, its length as declared, new bit position); a length above 64 is for the scan."""
    length = int64(_read(words, position, 7))
    base = _unzigzag(_read(words, position + 7, length))
    return base, length, position + 7 + length


@njit(**JIT)
def _frame(column: Int64Array, start: int, m: int, residuals: Words) -> Any:
    """Residuals of a column above its smallest number; that number."""
    base = column[start]
    for i in range(m):
        base = min(base, column[start + i])
    for i in range(m):
        residuals[i] = uint64(column[start + i] - base)
    return base


# --------------------------------------------------------------------------------------- encoding


@njit(**JIT)
def _to_decimals(keys: Int64Array, m: int) -> int:
    """Make the keys integers with the fewest decimals that give every float back; or leave them.

    Returns that number of decimals, or RAW. A float ``x`` passes with ``k`` decimals if the integer
    ``j = round(x * 10^k)``, ties to even, is at most 2^53 in magnitude and ``j / 10^k == x``; both
    operations are rounded once.
    """
    bits = np.empty(m, np.int64)
    for i in range(m):
        bits[i] = keys[i] ^ ((keys[i] >> 63) & _MAGNITUDE)
    floats = bits.view(np.float64)
    integers = np.empty(m, np.int64)
    for decimals in range(MAX_DECIMALS + 1):
        power = _POWERS_OF_TEN[decimals]
        passed = 0
        while passed < m:
            scaled = np.rint(floats[passed] * power)
            if not abs(scaled) <= _EXACT_IN_FLOAT or scaled / power != floats[passed]:
                break
            integers[passed] = int64(scaled)
            passed += 1
        if passed == m:
            for i in range(m):
                keys[i] = integers[i]
            return decimals
    return RAW


@njit(**JIT)
def encode_columns(
    times: Int64Array,
    ids: Int64Array,
    weights: Int64Array,
    value_keys: Int64Array,
    floats: bool,
    words: Words,
) -> int:
    """Pack rows in canonical order.

    Args:
        times, ids, weights, value_keys: int64[n].
        floats: whether value keys are those of float64.
        words: uint64, zeros, at least ``max_words(n)`` of them; written in place.

    Returns:
        Number of bits written. O(n).
    """
    n = len(times)
    position = 0
    counts = np.zeros((2, 65), np.int64)
    present = np.empty(BLOCK, np.int64)
    # One row for each column, and one for ids by steps.
    residuals = np.empty((5, BLOCK), np.uint64)
    plans = np.empty((5, 4), np.int64)
    bases = np.empty(4, np.int64)
    numbers = np.empty(5, np.int64)
    last_time = times[0] if n > 0 else 0
    last_id = 0
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        for i in range(m):
            residuals[TIMES, i] = uint64(last_time - times[start + i])
            last_time = times[start + i]
            residuals[STEPS, i] = _zigzag(last_id - ids[start + i])
            last_id = ids[start + i]
        found = 0
        for i in range(m):
            present[found] = value_keys[start + i]
            found += int64(value_keys[start + i] != _MISSING_KEY)
        decimals = _to_decimals(present, found) if floats and found > 0 else RAW
        bases[IDS] = _frame(ids, start, m, residuals[IDS])
        bases[WEIGHTS] = _frame(weights, start, m, residuals[WEIGHTS])
        bases[VALUES] = _frame(present, 0, found, residuals[VALUES])
        for column in range(5):  # one call, compiled once
            numbers[column] = found if column == VALUES else m
            if numbers[column] > 0:
                plan = _plan(residuals[column], numbers[column], counts)
                for k in range(4):
                    plans[column, k] = plan[k]
        base_bits = 7 + _bit_length(_zigzag(bases[IDS]))
        by_steps = plans[STEPS, 0] < base_bits + plans[IDS, 0]

        for column in range(4):
            source = column
            if column == IDS:
                position = _write(words, position, uint64(by_steps), 1)
                source = STEPS if by_steps else IDS
            elif column == VALUES:
                missing = NONE_MISSING if found == m else SOME_MISSING
                position = _write(words, position, uint64(missing if found else ALL_MISSING), 2)
                if 0 < found < m:
                    for i in range(m):
                        has_value = value_keys[start + i] != _MISSING_KEY
                        position = _write(words, position, uint64(has_value), 1)
                if floats and found > 0:
                    position = _write(words, position, uint64(decimals), 4)
            if numbers[column] > 0:
                if source not in (TIMES, STEPS):
                    position = _write_base(words, position, bases[source])
                position = _pack(
                    words, position, residuals[source], numbers[source],
                    plans[source, 1], plans[source, 2], plans[source, 3],
                )  # fmt: skip
    return position


def max_words(rows: int) -> int:
    """Words that no encoding of so many rows exceeds, spare ones included.

    A planned column takes at most 64 bits a row. Headers, bases, modes and the bitmap of present
    values take less than 9 words a block.
    """
    return 4 * rows + 9 * -(-rows // BLOCK) + SPARE_WORDS


# --------------------------------------------------------------------------------------- decoding


@njit(**JIT)
def _read_modes(
    words: Words, position: int, column: int, m: int, floats: bool
) -> tuple[int, bool, int, int, int]:
    """What stands in front of a column's numbers.

    Returns (how many numbers, whether they are a frame, what is missing, decimals, new position).
    """
    if column == IDS:
        return m, _read(words, position, 1) == _U0, NONE_MISSING, RAW, position + 1
    if column != VALUES:
        return m, column == WEIGHTS, NONE_MISSING, RAW, position
    missing = int64(_read(words, position, 2))
    position += 2
    numbers = m
    if missing == SOME_MISSING:
        numbers = 0
        for _ in range(m):
            numbers += int64(_read(words, position, 1))
            position += 1
    elif missing != NONE_MISSING:
        numbers = 0
    decimals = RAW
    if floats and numbers > 0:
        decimals = int64(_read(words, position, 4))
        position += 4
    return numbers, True, missing, decimals, position


@njit(**JIT)
def scan_columns(words: Words, bits: int, n: int, floats: bool) -> tuple[Outcome, int]:
    """Walk the headers of ``n`` packed rows: all that decoding will read lies within ``bits``.

    No two rows share id and weight, so of two neighbours one must leave the frame or take a step:
    the ids and weights of ``m`` rows never take less than ``m - 1`` bits. That is required here:
    hence ``n < bits``, whatever was declared, before memory for the rows is allocated.

    Args:
        words: uint64, of which the last ``SPARE_WORDS`` lie behind the packed bits.
        bits: number of packed bits.
        n: rows that are declared.
        floats: as in :func:`encode_columns`.

    Returns:
        (outcome, row at which the block starts, column, found, limit) and the number of bits that
        the rows take. O(n / 256), and O(bits) whatever ``n`` is.
    """
    position = 0
    start = 0
    while start < n:
        m = min(BLOCK, n - start)
        told_apart = 0
        for column in range(4):
            numbers, framed, missing, _, position = _read_modes(words, position, column, m, floats)
            if missing > ALL_MISSING:
                return (WIDTH_TOO_LARGE, start, column, missing, ALL_MISSING), position
            if numbers > 0:
                if framed:
                    _, length, position = _read_base(words, position)
                    if length > 64:
                        return (WIDTH_TOO_LARGE, start, column, length, 64), position
                width, extra, _, _, size, position = _read_column_header(words, position, numbers)
                if width + extra > 64:
                    return (WIDTH_TOO_LARGE, start, column, width + extra, 64), position
                position += size
                if column not in (TIMES, VALUES):
                    told_apart += size
            if position > bits:
                return (PAST_END, start, column, position, bits), position
        if told_apart < m - 1:
            return (TOO_FEW_BITS, start, IDS, told_apart, m - 1), position
        start += m
    return (OK, start, 0, 0, 0), position


@njit(**JIT)
def _from_decimals(integers: Int64Array, m: int, decimals: int) -> None:
    """Inverse of ``_to_decimals``, in place."""
    power = _POWERS_OF_TEN[decimals]
    floats = np.empty(m, np.float64)
    for i in range(m):
        floats[i] = np.float64(integers[i]) / power
    bits = floats.view(np.int64)
    for i in range(m):
        integers[i] = bits[i] ^ ((bits[i] >> 63) & _MAGNITUDE)


@njit(**JIT)
def decode_columns(
    words: Words,
    first_time: int,
    floats: bool,
    times: Int64Array,
    ids: Int64Array,
    weights: Int64Array,
    value_keys: Int64Array,
) -> None:
    """Unpack rows that ``scan_columns`` has passed, into int64 arrays of length ``n``.

    Sums wrap around; what a hostile encoder makes of that is caught by range, by order, or by
    encoding the rows again. O(n).
    """
    n = len(times)
    position = 0
    residuals = np.empty(BLOCK, np.uint64)
    present = np.empty(BLOCK, np.int64)
    last_time = int64(first_time)
    last_id = 0
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        for column in range(4):
            numbers, framed, missing, decimals, after_modes = _read_modes(
                words, position, column, m, floats
            )
            bitmap = position + 2  # of values, where some are missing
            position = after_modes
            base = 0
            if numbers > 0:
                if framed:
                    base, _, position = _read_base(words, position)
                position = _unpack(words, position, residuals, numbers)
            if column == TIMES:
                for i in range(m):
                    last_time -= int64(residuals[i])
                    times[start + i] = last_time
            elif column == IDS:
                if framed:
                    for i in range(m):
                        ids[start + i] = base + int64(residuals[i])
                    last_id = ids[start + m - 1]
                else:
                    for i in range(m):
                        last_id -= _unzigzag(residuals[i])
                        ids[start + i] = last_id
            elif column == WEIGHTS:
                for i in range(m):
                    weights[start + i] = base + int64(residuals[i])
            else:
                for i in range(numbers):
                    present[i] = base + int64(residuals[i])
                if decimals != RAW:
                    _from_decimals(present, numbers, decimals)
                if numbers == m:
                    for i in range(m):
                        value_keys[start + i] = present[i]
                else:
                    taken = 0
                    for i in range(m):
                        value_keys[start + i] = _MISSING_KEY
                        if missing == SOME_MISSING and _read(words, bitmap + i, 1) != _U0:
                            value_keys[start + i] = present[taken]
                            taken += 1


@njit(**JIT)
def first_out_of_order(times: Int64Array, ids: Int64Array, weights: Int64Array) -> int:
    """First row not strictly after its predecessor in (time, id, weight) descending; or -1."""
    for i in range(1, len(times)):
        if times[i] != times[i - 1]:
            ordered = times[i] < times[i - 1]
        elif ids[i] != ids[i - 1]:
            ordered = ids[i] < ids[i - 1]
        else:
            ordered = weights[i] < weights[i - 1]
        if not ordered:
            return i
    return -1
