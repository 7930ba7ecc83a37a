"""Prometheus remote write, versions 1 and 2: samples of series become readings.

A reading is known by its labels, but for those that are left out, and its time in milliseconds. The
two servers of a pair scrape at different moments and differ in a label (``replica``), so that their
samples are copies only by a map that leaves the label out and has one reading for each period of
scraping (``drop_labels``, ``dedup``).

Stale markers and NaN are no values and skipped; native histograms are refused. Nothing raises for
what a stranger sends but :class:`~decaysketch.ingest.readings.UnreadableError`, of a body as a
whole; time is linear in the length of the plain body, which is bounded before it is made.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import Field

from decaysketch.core.hashing import MAX_KEY_BYTES
from decaysketch.ingest.mapping import Texts
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import RefusedError, UnreadableError
from decaysketch.ingest.series import Name, SeriesMap, SeriesTexts, text_of

__all__ = ["RemoteWriteMap", "parse", "plain_length"]

_NS = 1_000_000  # of a millisecond
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NAME = "__name__"


class _Layout(NamedTuple):
    """Numbers of fields, of a version."""

    series: int
    labels: int
    samples: int
    histograms: int


_LAYOUTS = {1: _Layout(1, 1, 2, 4), 2: _Layout(5, 1, 2, 3)}
_SYMBOLS = 4  # of version 2: texts, which labels have by their number


class RemoteWriteMap(SeriesMap):
    """A reading of Prometheus remote write."""

    format: Literal["prometheus"] = Field(description="Prometheus remote write.")
    metric: Name = Field(description="Name of the metric whose samples these are.")
    drop_labels: Texts = Field(
        default=(),
        description="Labels that are no part of an id, such as `replica` of a pair of servers.",
    )

    def series(self, labels: dict[str, str], texts: SeriesTexts) -> str:
        """The text of the id: no two series have the same.

        Raises:
            RefusedError: it is too long.
        """
        named = {name: text for name, text in labels.items() if name not in self.drop_labels}
        if sum(len(name) + len(text) for name, text in named.items()) > MAX_KEY_BYTES:
            return texts.checked(*named, *named.values())  # which refuses it
        return texts.checked(text_of(named))


def plain_length(body: bytes) -> int:
    """Length of what is compressed, as a body in Snappy's block format declares it.

    Raises:
        UnreadableError: it declares none.
    """
    try:
        return _Cursor(body).varint()
    except IndexError:
        raise UnreadableError("the body is no Snappy block") from None


def parse(
    body: bytes, maps: Sequence[RemoteWriteMap], *, version: int = 1, most: int | None = None
) -> Points:
    """The readings of a body, by maps of one stream. O(length).

    Args:
        body: any bytes: a ``WriteRequest``, or of version 2 a ``Request``, no more compressed.
        maps: of the stream.
        version: 1 or 2.
        most: where there are more readings than this, some are left out and still more are given
            than this.

    Raises:
        UnreadableError: it is none.
    """
    try:
        return _read(body, maps, version, most)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise UnreadableError("the body is no protobuf of a remote write") from None


def _read(body: bytes, maps: Sequence[RemoteWriteMap], version: int, most: int | None) -> Points:
    layout, points = _LAYOUTS[version], Points()
    symbols: list[str] = []
    if version == 2:
        symbols = [
            str(content, "utf-8") for number, content in _fields(body, _BYTES) if number == _SYMBOLS
        ]
    named: dict[str, list[RemoteWriteMap]] = {}
    for each in maps:
        named.setdefault(each.metric, []).append(each)
    plans: dict[bytes, _Plan] = {}
    texts = SeriesTexts()
    place = 0
    for number, series in _fields(body, _BYTES):
        if number != layout.series:
            continue
        place += 1
        parts: list[bytes] = []
        samples: list[bytes] = []
        histograms = 0
        for number, content in _fields(series, _BYTES):
            if number == layout.labels:
                parts.append(content)
            elif number == layout.samples:
                samples.append(content)
            elif number == layout.histograms:
                histograms += 1
        # Lengths as well, so that no two lists of parts are the same bytes.
        key = b"".join([b"%d:%b" % (len(part), part) for part in parts])
        plan = plans.get(key)
        if plan is None:
            labels = _labels(parts, symbols, version)
            plan = plans[key] = _planned(named, labels, points, texts)
        _take(points, plan, samples, histograms, place)
        if most is not None and len(points) > most:
            break
    return points


@dataclass(frozen=True)
class _Plan:
    """What is read of a series.

    Attributes:
        wanted: maps, and their codes in the readings.
        named: so many maps name the metric.
        name: of it.
        fault: why it is no series; empty: it is one.
    """

    wanted: Sequence[tuple[RemoteWriteMap, int]]
    named: int
    name: str
    fault: str = ""


def _planned(
    named: dict[str, list[RemoteWriteMap]],
    labels: dict[str, str] | None,
    points: Points,
    texts: SeriesTexts,
) -> _Plan:
    if labels is None:
        return _Plan((), 0, "a series", "a label is there twice")
    name = labels.pop(_NAME, "")
    chosen = named.get(name, [])
    try:
        wanted = [
            (each, points.enter(each.series(labels, texts), name))
            for each in chosen
            if each.wants(labels)
        ]
    except RefusedError as fault:
        return _Plan((), len(chosen), name, str(fault))
    return _Plan(wanted, len(chosen), name)


def _take(
    points: Points, plan: _Plan, samples: Sequence[bytes], histograms: int, place: int
) -> None:
    told, where = points.told, f"series {place} {plan.name}"
    if plan.fault:
        told.refuse(where, plan.fault, len(samples) or 1)
        return
    if not plan.named:
        told.skip("metric", len(samples) + histograms)
        return
    if histograms:
        told.refuse(where, "is a native histogram; expected samples", histograms)
    if missing := plan.named - len(plan.wanted):
        told.skip("where", missing * len(samples))
    for sample in samples:
        value, time_ms = _sample(sample)
        if math.isnan(value):
            told.skip("no value", len(plan.wanted))
            continue
        for each, code in plan.wanted:
            try:
                given = each.value_of(value)
            except RefusedError as fault:
                told.refuse(where, str(fault))
                continue
            time_ns = time_ms * _NS
            points.codes.append(code)
            points.numbers.append(time_ns // each.period_ns)
            points.times_ns.append(time_ns)
            points.values.append(given)
            points.weights.append(1)
            points.places.append(place)


def _sample(sample: bytes) -> tuple[float, int]:
    """Value and time in ms; what is 0 is left out by its writer."""
    value, time = 0.0, 0
    cursor = _Cursor(sample)
    while cursor.at < len(sample):
        number, wire = cursor.tag()
        if number == 1 and wire == _FIXED64:
            (value,) = struct.unpack_from("<d", sample, cursor.at)
            cursor.at += 8
        elif number == 2 and wire == _VARINT:
            time = cursor.varint()
            time -= (time >> 63) << 64
        else:
            cursor.skip(wire)
    return value, time


def _labels(parts: Sequence[bytes], symbols: Sequence[str], version: int) -> dict[str, str] | None:
    """Labels by their names; None: one is there twice."""
    if version == 2:
        numbers: list[int] = []
        for part in parts:
            cursor = _Cursor(part)
            while cursor.at < len(part):
                numbers.append(cursor.varint())
        pairs = [
            (symbols[name], symbols[text])
            for name, text in zip(numbers[::2], numbers[1::2], strict=False)
        ]
        if len(numbers) % 2:
            raise IndexError
    else:
        pairs = []
        for part in parts:
            given = {number: str(text, "utf-8") for number, text in _fields(part, _BYTES)}
            pairs.append((given.get(1, ""), given.get(2, "")))
    labels = dict(pairs)
    return labels if len(labels) == len(pairs) else None


# --------------------------------------------------------------------------------------- protobuf


class _Cursor:
    """Reads a protobuf message. Raises IndexError where it ends too early."""

    __slots__ = ("at", "message")

    def __init__(self, message: bytes) -> None:
        self.message = message
        self.at = 0

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.message[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & (1 << 64) - 1
            shift += 7
            if shift > 63:
                raise IndexError

    def tag(self) -> tuple[int, int]:
        tag = self.varint()
        return tag >> 3, tag & 7

    def skip(self, wire: int) -> None:
        if wire == _VARINT:
            self.varint()
        elif wire == _BYTES:
            length = self.varint()
            self.at += length
        elif wire in (_FIXED64, _FIXED32):
            self.at += 8 if wire == _FIXED64 else 4
        else:
            raise IndexError
        if self.at > len(self.message):
            raise IndexError


def _fields(message: bytes, wire: int) -> Iterator[tuple[int, bytes]]:
    """Fields of a message that have a length: number and content. Others are passed over."""
    cursor, end = _Cursor(message), len(message)
    while cursor.at < end:
        number, found = cursor.tag()
        if found != wire:
            cursor.skip(found)
            continue
        length = cursor.varint()
        begin = cursor.at
        if begin + length > end:
            raise IndexError
        cursor.at = begin + length
        yield number, message[begin : begin + length]
