"""Write log records, and find them after damage.

``[u32 length | u32 crc32 | i64 first | i64 next | sketch bytes]`` (little-endian). The length
covers the sketch bytes, first = next = -1 means no interval, and the checksum covers everything
after it. A damaged record's length may be wrong, so the reader searches for the next one: sketch
bytes begin with a four-byte constant, a record header precedes them, and a checksum agrees. A fault
costs only the record that it hits.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from decaysketch.core.codec.fields import MAGIC

__all__ = ["HEAD_BYTES", "Gap", "Interval", "LogRecord", "pack", "scan"]

_HEAD = struct.Struct("<IIqq")
_INTERVAL = struct.Struct("<qq")
HEAD_BYTES = _HEAD.size
_CHECKED = 64  # bytes that a search may run checksums over, for each byte of the log


class Interval(NamedTuple):
    """A source's numbers ``first .. next - 1``."""

    first: int
    next: int


class LogRecord(NamedTuple):
    """The data that one sync appended to the log."""

    blob: bytes
    interval: Interval | None


class Gap(NamedTuple):
    """Bytes ``start .. end - 1`` in a log, without a sound record."""

    start: int
    end: int


def pack(record: LogRecord) -> bytes:
    """Return a record as bytes."""
    interval = _INTERVAL.pack(*(record.interval or (-1, -1)))
    check = zlib.crc32(record.blob, zlib.crc32(interval))
    return struct.pack("<II", len(record.blob), check) + interval + record.blob


def scan(content: bytes) -> tuple[list[LogRecord], list[Gap]]:
    """Return the sound records in order, and the gaps between them.

    Complexity: O(bytes). A search past faults costs at most 64 times as much.
    """
    records: list[LogRecord] = []
    gaps: list[Gap] = []
    view, place, allowed = memoryview(content), 0, _CHECKED * len(content)
    while place < len(content):
        found = _record_at(view, place)
        if found is not None:
            records.append(found)
            place += HEAD_BYTES + len(found.blob)
            continue
        end, allowed = _next_sound(content, view, place + 1, allowed)
        gaps.append(Gap(place, end))
        place = end
    return records, gaps


def _record_at(view: memoryview, place: int) -> LogRecord | None:
    start = place + HEAD_BYTES
    if start > len(view):
        return None
    length, check, first, end = _HEAD.unpack_from(view, place)
    if start + length > len(view):
        return None
    if zlib.crc32(view[place + 8 : start + length]) != check:
        return None
    interval = None if end < 0 else Interval(first, end)
    return LogRecord(bytes(view[start : start + length]), interval)


def _next_sound(content: bytes, view: memoryview, place: int, allowed: int) -> tuple[int, int]:
    """Return the start of the next sound record, or the end, and the remaining search budget."""
    at = place + HEAD_BYTES
    while (at := content.find(MAGIC, at)) >= 0:
        start = at - HEAD_BYTES
        length = _HEAD.unpack_from(view, start)[0]
        if length >= len(MAGIC) and at + length <= len(content):
            if length > allowed:
                break
            allowed -= length
            if _record_at(view, start) is not None:
                return start, allowed
        at += 1
    return len(content), allowed
