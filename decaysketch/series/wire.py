"""Family 7: samples of series. Series, times, starts and values follow the shared header.

    resolution (0 before it, and attribute names after it, if there are attributes), watermarks,
        rows, newest time
    contents, series
    entities (where they are not the series), series, weights, rows of each series
    times: of the first row of each series before the newest, of the second one after the first,
        and of each later one the difference of its step to the step before
    starts: at which rows they change, and how long before the row
    values: where they are missing, and the others (``columns.py``)
    attributes of each series, if the stream has attributes (``core/codec/records.py``)

Rows stand in canonical order, by (entity, weight, series, time). About 1 to 4 bytes a row.

Decoding
    For any bytes, :func:`decode` returns a state that a builder could have reached, or raises
    :class:`~decaysketch.errors.CorruptSketchError`. Time and memory are proportional to the length.
    The decoder builds the state again from its rows, and requires equal rows and equal bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec import reading, writing
from decaysketch.core.codec.numbers import pack_numbers, read_numbers
from decaysketch.core.codec.reading import CopyHeader, Header, Reader, refuse
from decaysketch.core.codec.records import encode_records, read_records
from decaysketch.core.codec.writing import put_signed_varint, put_varint
from decaysketch.core.column_types import MAX_COLUMNS
from decaysketch.core.observations import MISSING_KEY, TIME_LIMIT, no_floats
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.errors import IncompatibleSketchError
from decaysketch.series import _native
from decaysketch.series.attributes import GivenAttributes, types_of
from decaysketch.series.columns import (
    pack_patched,
    pack_values,
    read_patched,
    read_values,
    unzigzag,
    zigzag,
)
from decaysketch.series.params import MOST_RESOLUTION, SeriesParams
from decaysketch.series.rows import SeriesRows
from decaysketch.series.state import NO_START, SeriesState

__all__ = ["FAMILY", "decode", "encode", "peek"]

FAMILY = 7

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_WITH_ATTRIBUTES = 0  # a marker before the resolution

# Contents.
_APART, _WEIGHTED, _STARTED, _MISSING = 1, 2, 4, 8
_KNOWN_CONTENTS = 15


# --------------------------------------------------------------------------------------- encoding


def encode(state: SeriesState, *, embed_params: bool = True) -> bytes:
    """Encode a state. Equal states have equal bytes.

    Args:
        state: any state.
        embed_params: False names the parameters by their fingerprint alone.

    Returns:
        Version 1 bytes. O(rows).
    """
    body = writing.begin(FAMILY, state.params, embed_params=embed_params)
    if state.params.attributes:
        body.append(_WITH_ATTRIBUTES)
    put_varint(body, state.params.resolution)
    if state.params.attributes:
        _put_names(body, state.params.attributes)
    writing.put_watermarks(body, [m for m in state.watermarks.tolist() if m != NO_WATERMARK])
    put_varint(body, len(state))
    if len(state):
        put_signed_varint(body, int(state.times.max()))
    return writing.seal(body, _packed(state))


def _put_names(body: bytearray, names: tuple[str, ...]) -> None:
    put_varint(body, len(names))
    for name in names:
        encoded = name.encode()
        put_varint(body, len(encoded))
        body += encoded


def _packed(state: SeriesState) -> bytes:
    """Return the content after the header."""
    if not len(state):
        return b""
    begins = state.begins
    firsts = np.flatnonzero(begins)
    entities, weights, ids = (
        column[firsts] for column in (state.entities, state.weights, state.ids)
    )
    missing = state.value_keys == MISSING_KEY
    apart, weighted = bool((entities != ids).any()), bool((weights != 1).any())
    started = bool((state.starts != NO_START).any())
    head = bytearray(
        [
            apart * _APART
            | weighted * _WEIGHTED
            | started * _STARTED
            | bool(missing.any()) * _MISSING
        ]
    )
    put_varint(head, len(firsts))
    parts = [bytes(head), pack_numbers(np.diff(entities, prepend=0))]
    if apart:
        parts.append(pack_numbers(ids))
    if weighted:
        parts.append(pack_numbers(np.frexp(weights.astype(np.float64))[1].astype(np.int64) - 1))
    parts.append(pack_numbers(np.diff(firsts, append=len(state)) - 1))
    parts += _packed_times(state.times, begins)
    if started:
        parts.append(_packed_starts(state.starts, state.times, begins))
    if missing.any():
        parts.append(_packed_places(np.flatnonzero(missing)))
    known = ~missing
    of = _begins_among(begins, known)
    parts.append(pack_values(state.value_keys[known], of, state.params.value_type))
    if state.attributes is not None:
        parts.append(encode_records([state.attributes]))
    return b"".join(parts)


def _packed_times(times: Int64Array, begins: BoolArray) -> list[bytes]:
    # Modulo 2^64 throughout: times may lie 2^63 apart.
    newest = times.max()
    steps = np.diff(times, prepend=np.int64(0))
    second, later = _seconds(begins), _laters(begins)
    bends = np.diff(steps, prepend=np.int64(0))[later]
    ages = (newest - times[begins]).view(np.uint64)
    gaps = (steps[second] - 1).view(np.uint64)
    return [pack_patched(ages), pack_patched(gaps), pack_patched(zigzag(bends))]


def _seconds(begins: BoolArray) -> BoolArray:
    """Rows with one row before them in their series."""
    found = np.zeros_like(begins)
    found[1:] = begins[:-1] & ~begins[1:]
    return found


def _laters(begins: BoolArray) -> BoolArray:
    """Rows with two rows or more before them in their series."""
    return ~begins & ~_seconds(begins)


def _packed_starts(starts: Int64Array, times: Int64Array, begins: BoolArray) -> bytes:
    changes = np.flatnonzero(_changes(starts, begins))
    ages = times[changes].view(np.uint64) - starts[changes].view(np.uint64) + np.uint64(1)
    ages[starts[changes] == NO_START] = 0
    return _packed_places(changes) + pack_patched(ages)


def _changes(starts: Int64Array, begins: BoolArray) -> BoolArray:
    """Return where a start differs from the preceding row's start. Before a series there is
    none.
    """
    before = np.full_like(starts, NO_START)
    before[1:] = starts[:-1]
    before[begins] = NO_START
    found: BoolArray = starts != before
    return found


def _packed_places(places: npt.NDArray[np.intp]) -> bytes:
    body = bytearray()
    put_varint(body, len(places))
    return bytes(body) + pack_patched((np.diff(places, prepend=-1) - 1).astype(np.uint64))


def _begins_among(begins: BoolArray, chosen: BoolArray) -> BoolArray:
    """Return for each chosen row whether it is the first chosen row in its series."""
    series = np.cumsum(begins)[chosen]
    found = np.ones(len(series), np.bool_)
    found[1:] = series[1:] != series[:-1]
    return found


# --------------------------------------------------------------------------------------- decoding


def peek(blob: bytes | bytearray | memoryview) -> Header:
    """Read the header and verify the checksum, without decoding rows.

    Raises:
        CorruptSketchError: see :func:`decode`.
        TypeError: not bytes at all.
    """
    blob = reading.as_bytes(blob)
    return _read_header(reading.open_blob(blob, FAMILY), blob)[0]


class _Own(NamedTuple):
    """The parameters of this family alone."""

    resolution: int
    attributes: tuple[str, ...]


def _read_header(opening: reading.Opening, blob: bytes) -> tuple[Header, _Own]:
    """Return the header, and the parameters in it."""
    if opening.copies != 1:
        refuse(f"number of copies is {opening.copies}; expected 1, of a sample of series")
    reader = opening.reader
    resolution = reader.varint("resolution")
    named = resolution == _WITH_ATTRIBUTES
    if named:
        resolution = reader.varint("resolution")
    if not 1 <= resolution <= MOST_RESOLUTION:
        refuse(f"resolution is {resolution}; expected 1 to {MOST_RESOLUTION}")
    attributes = _read_names(reader) if named else ()
    if opening.params is not None:
        opening.params["resolution"] = resolution
        if attributes:
            opening.params["attributes"] = ", ".join(attributes)
    marks = reading.read_watermarks(reader)
    copy = CopyHeader(marks, *reader.rows())
    copy.check(opening.capacity, _native.TOP + 1)
    reading.check_row_count(copy.rows, opening.capacity, _native.TOP + 1, blob)
    return Header.behind(opening, [copy]), _Own(resolution, attributes)


def _read_names(reader: Reader) -> tuple[str, ...]:
    """Inverse of :func:`_put_names`."""
    count = reader.varint("number of attributes")
    if not 1 <= count <= MAX_COLUMNS:
        refuse(f"number of attributes is {count}; expected 1 to {MAX_COLUMNS}")
    found: list[bytes] = []
    for number in range(count):
        before = found[-1] if found else b""
        found.append(reading.read_rising_name(reader, f"name of attribute {number}", before))
    return tuple(reading.text_of(name, "name of an attribute") for name in found)


def decode(
    blob: bytes | bytearray | memoryview,
    *,
    params: SeriesParams | None = None,
    id_key: bytes | None = None,
) -> SeriesState:
    """Return the state that :func:`encode` wrote.

    Args:
        blob: bytes from anywhere.
        params: expected parameters. Required if the bytes carry a fingerprint only. The capacity
            comes from the bytes.
        id_key: the secret id key, if there is one and ``params`` is None.

    Raises:
        CorruptSketchError: no honest builder could have written the bytes.
        IncompatibleSketchError: the stream has other parameters than ``params`` or another
            ``id_key``, or the bytes need one of them and it was not given.
        ParameterError: both ``params`` and ``id_key`` given.
    """
    blob = reading.as_bytes(blob)
    opening = reading.open_blob(blob, FAMILY)
    header, own = _read_header(opening, blob)
    found = reading.params_of(opening, params, id_key, SeriesParams)
    for name, given in own._asdict().items():
        if getattr(found, name) != given:
            raise IncompatibleSketchError({name: (getattr(found, name), given)})
    (copy,) = header.copies
    marks = np.full(_native.TOP + 1, NO_WATERMARK)
    marks[: len(copy.watermarks)] = copy.watermarks
    reader = Reader(memoryview(blob)[: -reading.CHECKSUM_BYTES], header.columns_at)
    columns = _read_columns(reader, found, copy.rows, copy.newest or 0)
    attributes = _read_attributes(blob, reader, found, columns) if found.attributes else None
    state = _built(found, columns, marks, attributes)
    _check_canonical(blob, header.columns_at, reader.at, state)
    reading.skip_optional_sections(blob, header.optional_flags, reader.at)
    return state


_Columns = tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]


def _read_columns(reader: Reader, params: SeriesParams, rows: int, newest: int) -> _Columns:
    """Return entities, weights, ids, times, starts and value keys, not yet checked."""
    if not rows:
        empty = np.empty(0, np.int64)
        return empty, empty, empty, empty, empty, empty
    contents = reader.byte("contents")
    if contents & ~_KNOWN_CONTENTS:
        refuse(f"contents are {contents:#06b}; known are {_KNOWN_CONTENTS:#06b}")
    series = reader.varint("series")
    if not 1 <= series <= rows:
        refuse(f"{series} series; expected 1 to {rows}, the number of rows")
    entities = np.cumsum(read_numbers(reader, series, "entities")).view(np.int64)
    ids = entities
    if contents & _APART:
        ids = read_numbers(reader, series, "series").view(np.int64)
    weights = np.ones(series, np.int64)
    if contents & _WEIGHTED:
        shifts = read_numbers(reader, series, "weights")
        if int(shifts.max()) > 31:
            refuse(f"a weight is 2^{int(shifts.max())}; expected at most 2^31")
        weights <<= shifts.view(np.int64)
    sizes = read_numbers(reader, series, "rows of series")
    if int(sizes.max()) >= rows or int(sizes.sum()) != rows - series:
        refuse(f"rows of series add up to {int(sizes.sum()) + series}; the header says {rows}")
    counts = sizes.astype(np.int64) + 1
    begins = np.zeros(rows, np.bool_)
    begins[np.cumsum(counts) - counts] = True
    times = _read_times(reader, begins, newest)
    starts = np.full(rows, NO_START)
    if contents & _STARTED:
        starts = _read_starts(reader, times, begins)
    known = np.ones(rows, np.bool_)
    if contents & _MISSING:
        known[_read_places(reader, rows, "missing values")] = False
    keys = np.full(rows, MISSING_KEY)
    keys[known] = read_values(reader, _begins_among(begins, known), params.value_type)
    of = np.repeat(np.arange(series), counts)
    return entities[of], weights[of], ids[of], times, starts, keys


def _read_times(reader: Reader, begins: BoolArray, newest: int) -> Int64Array:
    rows, series = len(begins), int(np.count_nonzero(begins))
    second, later = _seconds(begins), _laters(begins)
    ages = read_patched(reader, series, "first times")
    gaps = read_patched(reader, int(np.count_nonzero(second)), "second times")
    bends = unzigzag(read_patched(reader, int(np.count_nonzero(later)), "times"))
    firsts = np.int64(newest) - ages.view(np.int64)
    steps = np.zeros(rows, np.int64)
    steps[second] = gaps.view(np.int64) + 1
    steps[later] = bends
    # Differences of steps become steps, from each second row on, and steps become times.
    of = np.cumsum(begins) - 1
    steps[~begins] = _summed(steps[~begins], second[~begins])
    sums = np.cumsum(steps)
    found: Int64Array = sums - sums[np.flatnonzero(begins)][of] + firsts[of]
    return found


def _summed(steps: Int64Array, begins: BoolArray) -> Int64Array:
    """Return running sums that begin again at the marked rows."""
    if not len(steps):
        return steps
    sums = np.cumsum(steps)
    firsts = np.flatnonzero(begins)
    offsets = sums[firsts] - steps[firsts]
    found: Int64Array = sums - np.repeat(offsets, np.diff(firsts, append=len(steps)))
    return found


def _read_starts(reader: Reader, times: Int64Array, begins: BoolArray) -> Int64Array:
    changes = _read_places(reader, len(times), "starts")
    ages = read_patched(reader, len(changes), "starts")
    given = times[changes] - (ages.view(np.int64) - 1)
    given[ages == 0] = NO_START
    if ((ages > 1 << 63) | (ages != 0) & (given == NO_START)).any():
        refuse("a start lies more than 2^63 before its row")
    # Each row has the start of the latest change, unless a series begins in between.
    latest = np.full(len(times), -1)
    latest[changes] = np.arange(len(changes))
    latest = np.maximum.accumulate(latest)
    firsts = np.maximum.accumulate(np.where(begins, np.arange(len(times)), 0))
    within = (latest >= 0) & (changes[latest] >= firsts) if len(changes) else latest >= 0
    return np.where(within, given[latest] if len(changes) else NO_START, NO_START)


def _read_places(reader: Reader, rows: int, name: str) -> npt.NDArray[np.intp]:
    count = reader.varint(f"number of {name}")
    if count > rows:
        refuse(f"{count} {name} in {rows} rows")
    gaps = read_patched(reader, count, f"positions of {name}")
    if count and int(gaps.max()) >= rows:
        refuse(f"positions of {name} are {int(gaps.max())} apart; there are {rows} rows")
    places = np.cumsum(gaps.astype(np.int64) + 1) - 1
    if count and int(places[-1]) >= rows:
        refuse(f"positions of {name} end at {int(places[-1])}; there are {rows} rows")
    return places


def _read_attributes(
    blob: bytes, reader: Reader, params: SeriesParams, columns: _Columns
) -> GivenAttributes:
    """Return the attributes of all rows."""
    entities, weights, ids = columns[:3]
    firsts = np.ones(len(ids), np.bool_)
    for each in (entities, weights, ids):
        firsts[1:] &= each[1:] == each[:-1]
    firsts[1:] = ~firsts[1:]
    count = int(np.count_nonzero(firsts))
    if not count:
        return GivenAttributes((), np.empty(0, np.int64), ids)
    (records,), reader.at = read_records(blob, reader.at, types_of(params.attributes), [count])
    return GivenAttributes.of_series(records, np.cumsum(firsts) - 1, ids)


def _built(
    params: SeriesParams,
    columns: _Columns,
    marks: Int64Array,
    attributes: GivenAttributes | None,
) -> SeriesState:
    """Return the state with these rows, which must all be in it."""
    entities, weights, ids, times, starts, keys = columns
    for name, column, low, high in (
        ("id of an entity", entities, 0, (1 << params.id_bits) - 1),
        ("id of a series", ids, 0, (1 << params.id_bits) - 1),
        ("weight", weights, 1, params.max_weight),
        ("time", times, -TIME_LIMIT, TIME_LIMIT),
    ):
        if len(column) and (int(column.min()) < low or int(column.max()) > high):
            row = int(((column < low) | (column > high)).argmax())
            refuse(f"{name} of row {row} is {int(column[row])}; expected {low} to {high}")
    early = (starts != NO_START) & ((starts < -TIME_LIMIT) | (starts > times))
    if early.any():
        row = int(early.argmax())
        refuse(f"start of row {row} is {int(starts[row])}; its time is {int(times[row])}")
    if params.value_type == "float64":
        bad = no_floats(keys) & (keys != MISSING_KEY)
        if bad.any():
            row = int(bad.argmax())
            refuse(f"row {row} has value key {int(keys[row])}; expected that of a finite value")
    rows = SeriesRows.with_watermarks(params, marks)
    rows.admit(_native.Batch(keys, False, weights, times, ids, entities, starts), attributes)
    state = rows.state()
    if (state.watermarks != marks).any():
        level = int((state.watermarks != marks).argmax())
        refuse(f"level {level} has more than {params.capacity} rows later than its watermark")
    if len(state) != len(times) or any(
        (mine != theirs).any() for mine, theirs in zip(state.columns, columns, strict=True)
    ):
        refuse(
            f"{len(times)} rows, of which {len(state)} are in a state: one is out of order, twice "
            "in its cell, or not later than the watermark of its level"
        )
    return state


def _check_canonical(blob: bytes, at: int, end: int, state: SeriesState) -> None:
    """Check that encoding the decoded state gives the same bytes."""
    given, again = blob[at:end], _packed(state)
    if given != again:
        pairs = zip(given, again, strict=False)
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(given), len(again)))
        refuse(
            f"not canonical: the rows take {len(given)} bytes and differ from byte {at + first} "
            f"on; encoding them again gives {len(again)}"
        )
