"""A column with non-negative integers as bits, in blocks of 8 with one width each.

One width byte per block comes first. Then come the numbers without gaps, low bits first, each with
the block's width (at least one bit), padded with zeros to a byte. So bytes bound a reader's memory:
one bit becomes at most 8 bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec.reading import Reader, refuse

__all__ = ["pack_numbers", "read_numbers"]

UInt64Array = npt.NDArray[np.uint64]

_BLOCK = 8  # so that each takes as many bytes as its width
_CHUNK = 1 << 13  # blocks at a time: they take some megabytes


def pack_numbers(numbers: npt.NDArray[np.int64] | UInt64Array) -> bytes:
    """Encode a column with non-negative numbers. O(bits), about 3 ns each.

    Args:
        numbers: int64[n] without negatives, or uint64[n].
    """
    column = np.ascontiguousarray(numbers).view(np.uint64).ravel()
    blocks = -(-len(column) // _BLOCK)
    padded = np.zeros((blocks, _BLOCK), np.uint64)
    padded.ravel()[: len(column)] = column
    widths = _bit_lengths(padded.max(axis=1, initial=0))
    packed = [widths.tobytes()]
    for start in range(0, blocks, _CHUNK):
        part, width = padded[start : start + _CHUNK], widths[start : start + _CHUNK]
        offsets = _offsets(width)
        data = np.empty(offsets[-1], np.uint8)
        for each in np.unique(width).tolist():
            of = np.flatnonzero(width == each)
            rows = part[of].astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
            bits = np.unpackbits(rows, axis=1, count=each, bitorder="little")
            bits = bits.reshape(len(of), _BLOCK * each)
            data[offsets[of, None] + np.arange(each)] = np.packbits(bits, 1, bitorder="little")
        packed.append(data.tobytes())
    return b"".join(packed)[: blocks + _size(widths, len(column))]


def read_numbers(reader: Reader, count: int, name: str) -> UInt64Array:
    """Inverse of :func:`pack_numbers`.

    Args:
        reader: positioned before the widths.
        count: how many numbers to read.
        name: column name for the error.

    Returns:
        uint64[count]. The remaining bytes are checked before allocation.

    Raises:
        CorruptSketchError: the bytes end early, a width is invalid or not minimal, or a padding bit
            is set.
    """
    left = len(reader.body) - reader.at
    if -(-count // _BLOCK) + -(-count // 8) > left:
        refuse(f"{name} at byte {reader.at}: {count} numbers in {left} bytes; each takes a bit")
    blocks = -(-count // _BLOCK)
    widths = np.frombuffer(reader.take(blocks, name), np.uint8)
    if blocks and not (int(widths.min()) >= 1 and int(widths.max()) <= 64):
        bad = widths[(widths < 1) | (widths > 64)]
        refuse(f"{name} before byte {reader.at}: a width is {int(bad[0])}; expected 1 to 64")
    size = _size(widths, count)
    data = np.zeros(int(widths.sum(dtype=np.int64)), np.uint8)
    data[:size] = np.frombuffer(reader.take(size, name), np.uint8)
    padded = np.zeros((blocks, _BLOCK), np.uint64)
    at = 0
    for start in range(0, blocks, _CHUNK):
        width = widths[start : start + _CHUNK]
        offsets = at + _offsets(width)
        for each in np.unique(width).tolist():
            of = np.flatnonzero(width == each)
            bits = np.unpackbits(data[offsets[of, None] + np.arange(each)], 1, bitorder="little")
            rows = np.zeros((len(of) * _BLOCK, 8), np.uint8)
            found = np.packbits(bits.reshape(-1, each), axis=1, bitorder="little")
            rows[:, : found.shape[1]] = found
            padded[start + of] = rows.view("<u8").reshape(len(of), _BLOCK)
        at = int(offsets[-1])
    numbers = padded.ravel()[:count]
    if padded.ravel()[count:].any():
        refuse(f"{name} before byte {reader.at}: a bit is set behind the last number")
    if blocks:
        needed = _bit_lengths(padded.max(axis=1))
        if (needed != widths).any():
            block = int((needed != widths).argmax())
            refuse(
                f"{name}: numbers from {block * _BLOCK} on have a width of {int(widths[block])}; "
                f"they take {int(needed[block])}"
            )
    return numbers


def _offsets(widths: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return each block's first byte, and the end of the last."""
    offsets = np.zeros(len(widths) + 1, np.int64)
    np.cumsum(widths, out=offsets[1:])
    return offsets


def _size(widths: npt.NDArray[np.uint8], count: int) -> int:
    """Return the byte count for the numbers after their widths."""
    if not count:
        return 0
    last, bits = count - _BLOCK * (len(widths) - 1), int(widths[-1])
    return int(widths[:-1].sum(dtype=np.int64)) + -(-last * bits // 8)


def _bit_lengths(numbers: UInt64Array) -> npt.NDArray[np.uint8]:
    """Return the bits per number, at least one."""
    lengths = np.ones(len(numbers), np.uint8)
    rest = numbers.copy()
    for step in (32, 16, 8, 4, 2, 1):
        more = rest >> np.uint64(step) != 0
        lengths[more] += np.uint8(step)
        rest[more] >>= np.uint64(step)
    return lengths
