"""Deltas: complete sketches of the observations that are not acknowledged yet, and their records.

A delta is never a difference of two states. It may arrive twice, late, in any order, or merged with
others, and the stream ends the same. Only elements that a sampler numbered itself are bound to
their interval.

For key counts, a delta is the complete state of a source, because only a complete state may arrive
twice. The next delta continues it and replaces it.

A log record is ``[u32 length | u32 crc32 | i64 first | i64 next | sketch bytes]`` (little-endian).
The length covers the sketch bytes, first = next = -1 means no interval, and the checksum covers
everything after it. A damaged record's length may be wrong, so the reader searches for the next
one: sketch bytes begin with a four-byte constant, a record header precedes them, and a checksum
agrees. A fault costs only the record that it hits.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from decaysketch import families
from decaysketch.core.codec.reading import MAGIC
from decaysketch.families import Recipe

__all__ = ["HEAD_BYTES", "Delta", "Gap", "Interval", "LogRecord", "pack", "scan"]

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


@dataclass(slots=True)
class Delta:
    """A sketch during filling.

    Attributes:
        sketch: these observations only.
        rows: number of rows added.
        told: whether its clock was set, which is worth sending by itself.
        first: number of its first element if the client numbers them, otherwise None.
        next: number after its last element.
    """

    sketch: Any
    rows: int = 0
    told: bool = False
    first: int | None = None
    next: int | None = None

    @classmethod
    def empty(cls, recipe: Recipe, source: str, next_number: int | None) -> Delta:
        """Create an empty delta, with ``next_number`` if the client numbers its elements."""
        if next_number is None:
            return cls(recipe.empty())
        sampler = recipe.sketch_type(recipe.params, source=source, next_number=next_number)
        return cls(sampler, first=next_number, next=next_number)

    def onward(self) -> Delta:
        """Create an empty delta that continues this one."""
        return Delta(self.sketch.copy())

    @property
    def interval(self) -> Interval | None:
        """The numbers of its elements."""
        if self.first is None or self.next is None:
            return None
        return Interval(self.first, self.next)

    def __bool__(self) -> bool:
        """Whether there is anything to send. A numbered delta needs a number."""
        return self.rows > 0 or (self.told and self.first is None)

    @staticmethod
    def join(parts: Iterable[Delta | None]) -> Delta | None:
        """Merge deltas with consecutive intervals into one, or return None for no delta."""
        some = [part for part in parts if part is not None and (part.rows or part.told)]
        if len(some) < 2:
            return some[0] if some else None
        return Delta(
            families.merge([part.sketch for part in some]),
            rows=sum(part.rows for part in some),
            told=any(part.told for part in some),
            first=some[0].first,
            next=some[-1].next,
        )
