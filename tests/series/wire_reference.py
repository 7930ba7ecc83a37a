"""Bytes of a sample of series in plain Python integers, written from ``docs/wire-format.md`` alone.

An oracle for :mod:`decaysketch.series.wire`; it shares nothing with it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import Any

from wire.reference import table_to_bytes, varint, with_checksum, zigzag

NONE = -(1 << 63)
_MASK = (1 << 64) - 1

Row = tuple[int, int, int, int, int, int]  # entity, weight, series, time, start, value key


def own_parameters(resolution: int, attributes: Sequence[str]) -> bytes:
    """What stands behind the capacity."""
    if not attributes:
        return varint(resolution)
    out = b"\0" + varint(resolution) + varint(len(attributes))
    for name in attributes:
        out += varint(len(name.encode())) + name.encode()
    return out


def blob_of(
    rows: Sequence[Row],
    marks: Sequence[int],
    opening: bytes,
    floats: bool,
    attributes: Sequence[Sequence[str | None]] | None = None,
) -> bytes:
    """All bytes of a state.

    Args:
        rows: in canonical order.
        marks: of all levels.
        opening: up to and with the parameters of this family, of any family.
        floats: whether values are float64.
        attributes: of each series, if the stream has attributes.
    """
    out = opening[:5] + bytes([7]) + opening[6:]
    known = [mark for mark in marks if mark != NONE]
    out += varint(len(known))
    for level, mark in enumerate(known):
        out += varint(known[level - 1] - mark if level else zigzag(mark))
    out += varint(len(rows))
    if rows:
        out += varint(zigzag(max(row[3] for row in rows))) + body(rows, floats)
        if attributes is not None:
            columns = list(zip(*attributes, strict=True))
            out += table_to_bytes(["text"] * len(columns), [columns])
    return with_checksum(out)


def body(rows: Sequence[Row], floats: bool) -> bytes:
    series: list[list[Row]] = []
    for row in rows:
        if not series or series[-1][0][:3] != row[:3]:
            series.append([])
        series[-1].append(row)
    names = [each[0][:3] for each in series]
    apart = any(entity != id_ for entity, _, id_ in names)
    weighted = any(weight != 1 for _, weight, _ in names)
    started = any(row[4] != NONE for row in rows)
    missing = any(row[5] == NONE for row in rows)
    out = bytes([apart | weighted << 1 | started << 2 | missing << 3]) + varint(len(series))
    entities = [entity for entity, _, _ in names]
    out += numbers([b - a for a, b in zip([0, *entities], entities, strict=False)])
    if apart:
        out += numbers([id_ for _, _, id_ in names])
    if weighted:
        out += numbers([weight.bit_length() - 1 for _, weight, _ in names])
    out += numbers([len(each) - 1 for each in series])
    newest = max(row[3] for row in rows)
    steps = [[b[3] - a[3] for a, b in itertools.pairwise(each)] for each in series]
    out += patched([newest - each[0][3] for each in series])
    out += patched([each[0] - 1 for each in steps if each])
    out += patched([
        zigzag(signed(b - a)) for each in steps for a, b in itertools.pairwise(each)
    ])  # fmt: skip
    if started:
        out += starts_of(series)
    if missing:
        out += places([place for place, row in enumerate(rows) if row[5] == NONE])
    return out + values([[row[5] for row in each if row[5] != NONE] for each in series], floats)


def starts_of(series: list[list[Row]]) -> bytes:
    changes, ages, place = [], [], 0
    for each in series:
        before = NONE
        for _, _, _, time, start, _ in each:
            if start != before:
                changes.append(place)
                ages.append(0 if start == NONE else 1 + time - start)
            before, place = start, place + 1
    return places(changes) + patched(ages)


def signed(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


# ----------------------------------------------------------------------------------------- numbers


def numbers(column: Sequence[int]) -> bytes:
    """In blocks of 8: their widths, then their bits."""
    blocks = [column[at : at + 8] for at in range(0, len(column), 8)]
    widths = [max(1, *(number.bit_length() for number in block)) for block in blocks]
    word = bits = 0
    for block, width in zip(blocks, widths, strict=True):
        for number in block:
            word |= number << bits
            bits += width
    return bytes(widths) + word.to_bytes(-(-bits // 8), "little")


def patched(column: Sequence[int]) -> bytes:
    column = [number & _MASK for number in column]
    lengths = [number.bit_length() for number in column]

    def cost(width: int) -> int:
        return len(column) * width + sum(n - width + 8 for n in lengths if n > width)

    width = min(range(65), key=cost)
    large = [place for place, length in enumerate(lengths) if length > width]
    out = bytes([width]) + varint(len(large))
    out += numbers([number & (1 << width) - 1 for number in column])
    out += numbers(distances(large))
    return out + numbers([(column[place] >> width) - 1 for place in large])


def distances(column: Sequence[int]) -> list[int]:
    return [b - a - 1 for a, b in zip([-1, *column], column, strict=False)]


def places(column: Sequence[int]) -> bytes:
    return varint(len(column)) + patched(distances(column))


# ------------------------------------------------------------------------------------------ values


def values(series: list[list[int]], floats: bool) -> bytes:
    keys = [key for each in series for key in each]
    if not keys:
        return b""
    forms: list[bytes] = []
    whole: Any = decimals(keys) if floats else (0, keys)
    if whole is not None:
        digits, flat = whole
        split, at = [], 0
        for each in series:
            split.append(flat[at : at + len(each)])
            at += len(each)
        steps = [b - a for each in split for a, b in zip([0, *each], each, strict=False)]
        forms.append(bytes([0, digits]) + patched([zigzag(signed(step)) for step in steps]))
    entries = sorted(set(keys))
    if len(entries) <= 256:
        words = [entry & _MASK for entry in entries]
        gaps = [(b - a) & _MASK for a, b in zip([0, *words], words, strict=False)]
        codes = [entries.index(key) for key in keys]
        forms.append(bytes([1, len(entries) - 1]) + numbers(gaps) + numbers(codes))
    mixed = [(b ^ a) & _MASK for each in series for a, b in zip([0, *each], each, strict=False)]
    forms.append(bytes([2]) + patched(mixed))
    return min(forms, key=len)


def decimals(keys: Sequence[int]) -> tuple[int, list[int]] | None:
    """The least power of ten and the whole numbers, up to 2^53, that values are quotients of."""
    given = [value_of(key) for key in keys]
    for digits in range(16):
        whole = [round(value * 10.0**digits) if abs(value) < 1e300 else 1 << 60 for value in given]
        if any(abs(number) > 1 << 53 for number in whole):
            return None
        if all(number / 10.0**digits == value for number, value in zip(whole, given, strict=True)):
            return digits, whole
    return None


def value_of(key: int) -> float:
    bits = key if key >= 0 else key ^ ((1 << 63) - 1)
    found: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return found
