"""A column of whole numbers as bits: blocks of 8 with a width each.

Behind the widths, one byte a block, stand the numbers end to end, low bits first, each in the bits
that the largest of its block needs, at the least one; then zeros up to a whole byte. So what a
reader makes of bytes is bounded: a number takes a bit, and 8 bytes of memory.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from decaysketch.codec.fields import Reader, refuse

__all__ = ["pack_numbers", "read_numbers"]

UInt64Array = npt.NDArray[np.uint64]

_BLOCK = 8
_CHUNK = 1 << 13  # numbers at a time, a multiple of the block: their bits take half a megabyte each
_BITS = np.arange(64, dtype=np.uint8)


def pack_numbers(numbers: npt.NDArray[np.int64] | UInt64Array) -> bytes:
    """Bytes of a column of numbers >= 0. O(bits), about 3 ns each.

    Args:
        numbers: int64[n], none negative, or uint64[n].
    """
    column = np.ascontiguousarray(numbers).view(np.uint64).ravel()
    count = len(column)
    starts = np.arange(0, count, _BLOCK)
    widest = np.maximum.reduceat(column, starts) if count else column
    widths = _bit_lengths(widest)
    packed = [widths.tobytes()]
    rest = np.empty(0, np.uint8)  # bits that do not fill a byte yet
    for start in range(0, count, _CHUNK):
        part = column[start : start + _CHUNK]
        each = np.repeat(widths[start // _BLOCK : (start + _CHUNK) // _BLOCK], _BLOCK)[: len(part)]
        bits = np.unpackbits(
            part.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8), axis=1, bitorder="little"
        )
        rest = np.concatenate((rest, bits[_BITS < each[:, None]]))
        whole = len(rest) // 8 * 8
        packed.append(np.packbits(rest[:whole], bitorder="little").tobytes())
        rest = rest[whole:]
    packed.append(np.packbits(rest, bitorder="little").tobytes())
    return b"".join(packed)


def read_numbers(reader: Reader, count: int, name: str) -> UInt64Array:
    """Inverse of :func:`pack_numbers`.

    Args:
        reader: stands before the widths.
        count: how many numbers there are.
        name: of the column, for the error.

    Returns:
        uint64[count]. What would not fit into the bytes that are left is refused before anything is
        allocated.

    Raises:
        CorruptSketchError: the bytes end before the numbers do, a width is none or not the least
            one, or a bit behind the last number is set.
    """
    left = len(reader.body) - reader.at
    if -(-count // _BLOCK) + -(-count // 8) > left:
        refuse(f"{name} at byte {reader.at}: {count} numbers in {left} bytes; each takes a bit")
    blocks = -(-count // _BLOCK)
    widths = np.frombuffer(reader.take(blocks, name), np.uint8)
    if blocks and not (1 <= int(widths.min()) and int(widths.max()) <= 64):
        bad = widths[(widths < 1) | (widths > 64)]
        refuse(f"{name} before byte {reader.at}: a width is {int(bad[0])}; expected 1 to 64")
    sizes = np.full(blocks, _BLOCK, np.int64)
    if blocks:
        sizes[-1] = count - _BLOCK * (blocks - 1)
    size = int((sizes * widths).sum())
    data = np.frombuffer(reader.take(-(-size // 8), name), np.uint8)
    if size % 8 and int(data[-1]) >> size % 8:
        refuse(f"{name} before byte {reader.at}: a bit is set behind the last number")
    numbers = np.empty(count, np.uint64)
    at = 0
    for start in range(0, count, _CHUNK):
        stop = min(start + _CHUNK, count)
        each = np.repeat(widths[start // _BLOCK : -(-stop // _BLOCK)], _BLOCK)[: stop - start]
        size = int(each.sum(dtype=np.int64))
        bits = np.zeros((len(each), 64), np.uint8)
        taken = np.unpackbits(data[at // 8 : -(-(at + size) // 8)], bitorder="little")
        bits[_BITS < each[:, None]] = taken[at % 8 : at % 8 + size]
        packed = np.packbits(bits, axis=1, bitorder="little")
        numbers[start:stop] = packed.view("<u8").ravel()
        at += size
    if blocks:
        needed = _bit_lengths(np.maximum.reduceat(numbers, np.arange(0, count, _BLOCK)))
        if (needed != widths).any():
            block = int((needed != widths).argmax())
            refuse(
                f"{name}: numbers from {block * _BLOCK} on have a width of {int(widths[block])}; "
                f"they take {int(needed[block])}"
            )
    return numbers


def _bit_lengths(numbers: UInt64Array) -> npt.NDArray[np.uint8]:
    """Bits of each number, at least one."""
    lengths = np.ones(len(numbers), np.uint8)
    rest = numbers.copy()
    for step in (32, 16, 8, 4, 2, 1):
        more = rest >> np.uint64(step) != 0
        lengths[more] += np.uint8(step)
        rest[more] >>= np.uint64(step)
    return lengths
