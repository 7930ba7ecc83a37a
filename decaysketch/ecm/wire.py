"""Family 5: ECM-sketches, one entry per source and epoch.

The shared head is followed by the parameters, always in full, the number of entries and of their
times, the clock that the collection received itself, and the entries, by source and epoch.

An entry contains its clock and counts, its buffered events, and its lanes. A lane contains its
first and last time and, for every layer of cells, the number of ones per cell and, per kept time,
its distance to the lane's clock, or to the next newer one in the cell. The ranks follow from the
numbers of ones. With a horizon, they also follow from the newest rank in each cell that lies
before it (see :mod:`decaysketch.ecm.state`). Number columns are packed as in
:mod:`decaysketch.core.codec.numbers`.

Guarantees of decoding
    For any bytes, :func:`decode` returns a state whose bytes they are, or raises
    :class:`~decaysketch.errors.CorruptSketchError`. It takes time proportional to their length,
    with few steps in Python for each entry and each lane, however tiny, and memory of at most 100
    times their length. The length of a column follows from earlier data, and is compared with the
    rest of the bytes before anything is allocated. The header gives the number of entries and
    times, and more of them are rejected at the first excess one. Cells are not built before a
    query. Their size follows from the parameters. If bytes bring their own parameters, and
    represent more than 64 MB of cells and 512 times their length, a reader that does not pass
    parameters rejects them.

    * *Counted.* ``n < 2^62``. Every row in every layer sums to the weight that the lane saw.
    * *In order.* Times in a cell fall from rank to rank, none is before the first of its lane or
      after its clock, and in every row the newest is that clock. Clocks of lanes fall, buffered
      events lie within ``hold`` of the clock and lanes before that.
    * *Canonical.* Every number uses the fewest bits, and every list is in its order: a decoded
      state has no other bytes. A state caches the bytes that it was read from, and is written as
      them.

One case remains possible: a state that counts events that never happened. Nobody can detect that:
authenticate the sender if it matters. Likewise the sender sets the clock. Code that accepts bytes
from others must reject clocks that are ahead (:func:`peek` returns them), since a stream with a
horizon drops entries by them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec import reading, writing
from decaysketch.core.codec.numbers import read_numbers
from decaysketch.core.codec.reading import Reader, refuse
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.ecm import _native
from decaysketch.ecm.cells import Cells
from decaysketch.ecm.levels import Layer
from decaysketch.ecm.params import Clock, ECMParams
from decaysketch.ecm.reorder import NOTHING, Events
from decaysketch.ecm.retention import chained, digits, kept_after, kept_ranks
from decaysketch.ecm.sizing import Kind
from decaysketch.ecm.state import (
    CellColumns,
    CollectionState,
    ECMState,
    Lane,
    LaneColumns,
    Source,
    name_of,
)
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError, ParameterError

__all__ = ["FAMILY", "MAX_SOURCE_BYTES", "ECMHeader", "decode", "encode", "peek"]

FAMILY = 5
MAX_SOURCE_BYTES = 255
MAX_COUNT = (1 << 62) - 1

_KINDS: tuple[Kind, ...] = get_args(Kind)  # bit 0 of the choices
_CLOCKS: tuple[Clock, ...] = get_args(Clock)  # bit 1
_SLACK = struct.Struct("<d")
_MOST_MERGES = 64
_CELLS_BYTES = 1 << 26
_CELLS_PER_BYTE = 512

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ECMHeader:
    """The result of :func:`peek`.

    Attributes:
        params: the stream's parameters.
        entries: number of sources and epochs.
        kept: number of their stored times and buffered events.
        told: the clock that the collection received itself, or None.
    """

    params: ECMParams
    entries: int
    kept: int
    told: int | None


# ----------------------------------------------------------------------------------------- encoding


def encode(state: CollectionState) -> bytes:
    """Return the bytes of a stream's source states. Equal sets of states have equal bytes.

    Returns:
        Version 1 bytes. O(times), about 0.2 us each.
    """
    body = writing.begin(FAMILY, state.params, embed_params=False)  # type: ignore[arg-type]
    _put_params(body, state.params)
    writing.put_varint(body, len(state.entries))
    writing.put_varint(body, state.kept)
    writing.put_clock(body, NO_WATERMARK if state.told is None else state.told)
    return writing.seal(body, *map(_written, state.entries))


def _written(state: ECMState) -> bytes:
    """A state's entry: as it was read, or as it was written before, if it was."""
    if state.written is None:
        body = bytearray()
        _put_state(body, state)
        object.__setattr__(state, "written", bytes(body))  # from any thread: the same bytes
    assert state.written is not None
    return state.written


def _put_params(body: bytearray, params: ECMParams) -> None:
    unit = params.time_unit.encode("ascii")
    body += params.seed.to_bytes(8, "little")
    body.append(len(unit))
    body += unit
    body.append(_KINDS.index(params.kind) | _CLOCKS.index(params.clock) << 1)
    writing.put_varint(body, params.width)
    body.append(params.depth)
    writing.put_varint(body, params.slots)
    writing.put_varint(body, 0 if params.horizon is None else params.horizon + 1)
    body.append(params.lanes)
    writing.put_varint(body, params.hold)
    body.append(params.key_bits or 0)
    body.append(params.fanout_bits)


def _put_state(body: bytearray, state: ECMState) -> None:
    if isinstance(state.source, int):
        body.append(0)
        writing.put_varint(body, state.source)
    else:
        name = state.source.encode()
        body.append(len(name))
        body += name
    body += state.epoch.to_bytes(8, "little")
    body.append(state.clock is not None)
    if state.clock is None:
        return
    writing.put_signed_varint(body, state.clock)
    writing.put_varint(body, state.too_late)
    writing.put_varint(body, state.moved)
    body.append(state.merges)
    if state.merges:
        body += _SLACK.pack(state.slack)
    _put_held(body, state.held, state.clock)
    body.append(len(state.lanes))
    before = state.clock
    edge = _edge(state.params, state.clock)
    for lane in state.lanes:
        before = _put_lane(body, state.params, lane.columns, before, edge)


def _put_held(body: bytearray, held: Events, clock: int) -> None:
    writing.put_varint(body, len(held))
    body += _packed(clock - held.times)
    body += _packed(held.words)
    body += _packed(held.weights)


def _put_lane(
    body: bytearray, params: ECMParams, lane: LaneColumns, before: int, edge: int | None
) -> int:
    """Write a lane. Return its clock, which the next one counts from."""
    writing.put_varint(body, before - lane.clock)
    writing.put_varint(body, lane.clock - lane.first)
    for layer, (n, old, times) in zip(params.layers, lane.layers(params), strict=True):
        cells = n.ravel()
        body += _packed(cells)
        if params.horizon is not None:
            body += _packed(np.where(old > 0, cells - old + 1, 0))
        offsets = _offsets(_counts(params, layer, cells, old))
        body += _packed(_steps(times, offsets, lane.clock))
    return lane.clock


def _packed(column: Int64Array | npt.NDArray[np.uint64]) -> bytes:
    """A number column, as :func:`~decaysketch.core.codec.numbers.pack_numbers` writes it."""
    return _native.pack_column(np.ascontiguousarray(column).view(np.uint64))


def _counts(params: ECMParams, layer: Layer, n: Int64Array, old: Int64Array) -> Int64Array:
    """The number of times per cell: for its ranks after the old one, and for its chain."""
    if params.horizon is None:
        return Cells.kept_counts(layer, params.kind, n)
    return kept_after(params.kind, layer.slots, n, old) + digits(old)


def _steps(times: Int64Array, offsets: Int64Array, clock: int) -> npt.NDArray[np.uint64]:
    """The distance of each time to the next newer one in its cell. For the newest, to the clock."""
    newer = np.empty_like(times)
    newer[1:] = times[:-1]
    newer[offsets[:-1][np.diff(offsets) > 0]] = clock
    # Times differ by up to 2^63, which wraps to the right unsigned number.
    return (newer - times).view(np.uint64)


def _offsets(counts: Int64Array) -> Int64Array:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _edge(params: ECMParams, clock: int) -> int | None:
    """The first time that is not older than the horizon."""
    return None if params.horizon is None else max(clock - params.horizon, -TIME_LIMIT)


# ----------------------------------------------------------------------------------------- decoding


def peek(blob: bytes | bytearray | memoryview, *, params: ECMParams | None = None) -> ECMHeader:
    """Read the parameters and the number of entries, and verify the checksum. Constant memory.

    Raises:
        CorruptSketchError, IncompatibleSketchError, TypeError: see :func:`decode`.
    """
    return _read_header(reading.open_blob(reading.as_bytes(blob), FAMILY), params)


def decode(
    blob: bytes | bytearray | memoryview, *, params: ECMParams | None = None
) -> CollectionState:
    """Return the argument of :func:`encode`.

    Args:
        blob: the bytes. Nothing in them is trusted.
        params: the expected parameters, or None. The capacity is taken from the bytes.

    Returns:
        The state, with the capacity in the bytes. O(bytes).

    Raises:
        CorruptSketchError: the bytes are not ones that :func:`encode` could have written. The
            message names the found and the expected value.
        IncompatibleSketchError: the bytes belong to a stream with other parameters than ``params``,
            or to one whose cells would take very much memory, and ``params`` are not given.
        TypeError: not bytes at all.
    """
    blob = reading.as_bytes(blob)
    opening = reading.open_blob(blob, FAMILY)
    header = _read_header(opening, params)
    reader, theirs, params = opening.reader, params is None, header.params
    parts = _EntryReader(params, blob, header.kept)
    states: list[ECMState] = []
    for _ in range(header.entries):
        at = reader.at
        state = _read_state(reader, params, parts)
        if states and _order(states[-1]) >= _order(state):
            refuse(
                f"entry {state.identity} at byte {at} comes after {states[-1].identity}; expected "
                "entries by source and epoch, each once"
            )
        object.__setattr__(state, "written", bytes(reader.body[at : reader.at]))
        states.append(state)
        if theirs and parts.memory > max(_CELLS_BYTES, _CELLS_PER_BYTE * len(blob)):
            raise IncompatibleSketchError(
                {
                    "params": (
                        "not given",
                        f"needed: {parts.memory} bytes of cells and more are to be built",
                    )
                }
            )
    if parts.left:
        refuse(f"{header.kept} times, of which {header.kept - parts.left} are there")
    reading.skip_optional_sections(blob, opening.optional_flags, reader.at)
    found = CollectionState.of(params, states, header.told)
    if found.told != header.told:
        refuse(f"clock is {header.told}; expected one after those of all entries, {found.clock}")
    check_horizon(found)
    return found


def check_horizon(found: CollectionState) -> None:
    """Reject an entry that no set of entries contains: one with a clock past the horizon."""
    newest, horizon = found.clock, found.params.horizon
    if horizon is None or newest is None:
        return
    for state in found.entries:
        if state.clock is not None and state.clock < newest - horizon:
            refuse(
                f"entry {state.identity} has clock {state.clock}; expected at least {newest} less "
                f"the horizon, {horizon}"
            )


def _order(state: ECMState) -> tuple[tuple[int, bytes], int]:
    return name_of(state.source), state.epoch


def _read_header(opening: reading.Opening, ours: ECMParams | None) -> ECMHeader:
    reader = opening.reader
    if opening.params is not None or opening.copies != 1:
        refuse("required flags say copies, or parameters of family 1; expected neither")
    found = _read_params(reader, opening.capacity)
    if ours is not None and found.fingerprint != ours.fingerprint:
        raise IncompatibleSketchError(ours.differences(found))
    if found.fingerprint != opening.fingerprint:
        refuse(
            f"fingerprint is {opening.fingerprint.hex()}; the parameters give "
            f"{found.fingerprint.hex()}"
        )
    entries = reader.varint("entries")
    if entries > found.capacity:
        refuse(f"{entries} entries; the capacity is {found.capacity}")
    kept = reader.varint("times kept")
    told = reader.clock()
    if told is not None and found.clock == "arrivals":
        refuse(f"clock is {told} beside entries that count arrivals; only events advance that")
    left = len(reader.body) - reader.at
    if found.clock == "arrivals" and entries > 1:
        refuse(f"{entries} entries that count arrivals; expected one, as they are never added")
    if entries * 10 > left:
        refuse(f"{entries} entries in {left} bytes; an entry takes 10 at the least")
    if kept > 4 * left:
        refuse(f"{kept} times in {left} bytes; a time takes 2 bits at the least")
    return ECMHeader(found, entries, kept, told)


def _read_params(reader: Reader, capacity: int) -> ECMParams:
    seed = int.from_bytes(reader.take(8, "seed"), "little")
    unit = reader.take(reader.byte("length of time_unit"), "time_unit")
    if not unit.isascii():
        refuse(f"time_unit is {unit!r}; expected ASCII")
    choices = reader.byte("choices of the parameters")
    if choices > 3:
        refuse(f"choices of the parameters are {choices:#010b}; known are 0b11")
    given: dict[str, Any] = {
        "kind": _KINDS[choices & 1],
        "clock": _CLOCKS[choices >> 1],
        "seed": seed,
        "time_unit": unit.decode("ascii"),
        "width": reader.varint("width"),
        "depth": reader.byte("depth"),
        "slots": reader.varint("slots"),
    }
    horizon = reader.varint("horizon")
    given["horizon"] = horizon - 1 if horizon else None
    given["lanes"] = reader.byte("lanes")
    given["hold"] = reader.varint("hold")
    given["key_bits"] = reader.byte("key_bits") or None
    given["fanout_bits"] = reader.byte("fanout_bits")
    try:
        return ECMParams(capacity=capacity, **given)
    except ParameterError as fault:
        raise CorruptSketchError(f"parameters: {fault}") from None


def _read_state(reader: Reader, params: ECMParams, parts: _EntryReader) -> ECMState:
    source = _read_source(reader)
    epoch = int.from_bytes(reader.take(8, "epoch"), "little")
    clock = reader.clock()
    if clock is None:
        return ECMState(params=params, source=source, epoch=epoch)
    too_late = _read_count(reader, "weight that came too late")
    moved = _read_count(reader, "weight that was moved")
    merges, slack = _read_slack(reader)
    held = _read_held(reader, params, clock, parts)
    count = reader.byte("number of lanes")
    if count > params.lanes:
        refuse(f"number of lanes is {count}; the parameters allow {params.lanes}")
    lanes: list[Lane] = []
    before, edge = clock, _edge(params, clock)
    for _ in range(count):
        columns = parts.read(reader, before, edge)
        before = columns.clock
        lanes.append(Lane(params, edge, columns=columns))
    state = ECMState(
        params=params, source=source, epoch=epoch, clock=clock, lanes=tuple(lanes), held=held,
        too_late=too_late, moved=moved, merges=merges, slack=slack,
    )  # fmt: skip
    _check_state(state)
    return state


def _read_source(reader: Reader) -> Source:
    length = reader.byte("length of the name of a source")
    if not length:
        return reader.varint("number of a source")
    name = reader.take(length, "name of a source")
    try:
        return name.decode()
    except UnicodeDecodeError:
        refuse(f"name of a source is {name!r}; expected UTF-8")


def _read_count(reader: Reader, name: str) -> int:
    count = reader.varint(name)
    if count > MAX_COUNT:
        refuse(f"{name} is {count}; expected less than 2^62")
    return count


def _read_slack(reader: Reader) -> tuple[int, float]:
    merges = reader.byte("levels of compaction")
    if merges > _MOST_MERGES:
        refuse(f"levels of compaction are {merges}; expected at most {_MOST_MERGES}")
    if not merges:
        return 0, 0.0
    slack: float = _SLACK.unpack(reader.take(_SLACK.size, "slack"))[0]
    if not 0.0 < slack < 1e12:
        refuse(f"slack is {slack}; expected a number above 0, below 10^12")
    return merges, slack


def _read_held(reader: Reader, params: ECMParams, clock: int, parts: _EntryReader) -> Events:
    count = reader.varint("events held back")
    if not count:
        return NOTHING
    parts.take(count)
    if not params.hold:
        refuse(f"{count} events held back; the parameters hold back none")
    ages = parts.column(reader, count, "ages of events held back")
    words = parts.column(reader, count, "words of events held back")
    weights = parts.column(reader, count, "weights of events held back")
    if int(ages.max()) > params.hold:
        refuse(f"an event held back has age {int(ages.max())}; expected at most {params.hold}")
    times = clock - ages.astype(np.int64)
    if int(times.min()) < -TIME_LIMIT:
        refuse(f"time of an event held back is {int(times.min())}; expected at least -2^62")
    if params.key_bits is not None and int(words.max()) >> params.key_bits:
        refuse(f"key {int(words.max())} of an event held back has more than key_bits")
    _check_counts("weights of events held back", weights, least=1)
    later = (times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & (words[1:] > words[:-1]))
    if not later.all():
        row = int(later.argmin()) + 1
        refuse(f"event {row} held back is not after event {row - 1} in the order of (time, word)")
    return Events(words, times, weights.view(np.int64))


def _check_counts(name: str, counts: npt.NDArray[np.uint64], least: int = 0) -> None:
    """Reject numbers out of range, or with a sum out of range."""
    if len(counts) and not least <= int(counts.min()):
        refuse(f"{name}: {int(counts.min())}; expected at least {least}")
    if float(counts.astype(np.float64).sum()) >= 1.5 * MAX_COUNT or int(counts.sum()) > MAX_COUNT:
        refuse(f"{name} sum up to more than 2^62")


class _EntryReader:
    """Reads columns and lanes in one body: valid ones by a kernel (``lanes.c``), all others
    step by step, to name the fault.

    Args:
        params: the stream's parameters.
        blob: the body.
        kept: the expected number of times.

    Attributes:
        left: number of times not read yet.
        memory: minimum memory for the cells read so far, in bytes, once they are built.
    """

    def __init__(self, params: ECMParams, blob: bytes, kept: int) -> None:
        self.left = kept
        self.memory = 0
        self._params = params
        self._blob = blob
        shapes = [(layer.width, layer.depth, layer.slots) for layer in params.layers]
        width, depth, slots = np.array(shapes, np.int64).T.copy()
        self._shape = _native.Shape(
            width, depth, slots, params.kind == "eh", params.horizon is not None,
            params.clock == "arrivals",
        )  # fmt: skip
        self._room: Int64Array | None = None

    def take(self, count: int) -> None:
        """Count times. Reject more than expected."""
        if count > self.left:
            refuse(f"{count} times, of which the header leaves {self.left}")
        self.left -= count

    def column(self, reader: Reader, count: int, name: str) -> npt.NDArray[np.uint64]:
        """The next number column: :func:`~decaysketch.core.codec.numbers.read_numbers`."""
        numbers = np.empty(count, np.uint64)
        end = _native.read_column(self._blob, reader.at, len(reader.body), numbers)
        if end < 0:
            return read_numbers(reader, count, name)
        reader.at = end
        return numbers

    def read(self, reader: Reader, before: int, edge: int | None) -> LaneColumns:
        """The next lane, after one with the clock ``before``."""
        clock = before - reader.varint("clock of a lane")
        first = clock - reader.varint("first time of a lane")
        reading.check_time(first, "first time of a lane")
        at, stop = reader.at, len(reader.body)
        if 2 * self._shape.cells > 8 * (stop - at):  # they take 2 bits each at the least
            return self._read_with_care(reader, first, clock, edge)
        if self._room is None:
            self._room = np.empty(2 * self._shape.cells, np.int64)
        shape, blob = self._shape, self._blob
        found = _native.measure_lane(shape, blob, at, stop, self.left, self._room)
        if found is None:
            return self._read_with_care(reader, first, clock, edge)
        size, times, memory = found
        numbers = np.empty(shape.layers + 2 * shape.cells + times, np.int64)
        since = 0 if edge is None else edge
        if not _native.read_lane(shape, blob, at, at + size, first, clock, since, numbers):
            return self._read_with_care(reader, first, clock, edge)
        numbers.setflags(write=False)
        self.take(times)
        self.memory += memory
        reader.at = at + size
        return LaneColumns(first, clock, numbers)

    def _read_with_care(
        self, reader: Reader, first: int, clock: int, edge: int | None
    ) -> LaneColumns:
        layers = _read_layers(reader, self._params, self.left, first, clock, edge)
        for layer, each in zip(self._params.layers, layers, strict=True):
            self.take(len(each.times))
            self.memory += 8 * each.n.size * layer.slots * int(each.n.max()).bit_length()
        return LaneColumns.of(first, clock, layers)


def _read_layers(
    reader: Reader, params: ECMParams, most: int, first: int, clock: int, edge: int | None
) -> list[CellColumns]:
    """Read each layer that :func:`_put_lane` wrote, with at most ``most`` times."""
    layers: list[CellColumns] = []
    for number, layer in enumerate(params.layers):
        n = read_numbers(reader, layer.depth * layer.width, f"cells of layer {number}")
        rows = n.reshape(layer.depth, layer.width)
        for row in rows:
            _check_counts(f"cells of layer {number}", row)
        seen = rows.view(np.int64).sum(axis=1)
        total = layers[0].n[0, 0] if layers else seen[0]
        if not total or (seen != total).any():
            refuse(
                f"rows of layer {number} have seen {', '.join(map(str, seen.tolist()))}; expected "
                f"{int(total) or 'more than nothing'} each"
            )
        cells = n.view(np.int64)
        old = _read_old(reader, params, layer, cells)
        offsets = _offsets(_counts(params, layer, cells, old))
        if offsets[-1] > most:
            refuse(f"{int(offsets[-1])} times, of which the header leaves {most}")
        most -= int(offsets[-1])
        times = _times_of(read_numbers(reader, int(offsets[-1]), "times"), offsets, clock)
        columns = CellColumns(cells.reshape(layer.depth, layer.width), old, times)
        if edge is not None:
            young = kept_after(params.kind, layer.slots, cells, old)
            _check_edge(columns, offsets, young, edge)
        _check_times(params, layer, columns, offsets, first, clock)
        layers.append(columns)
    return layers


def _read_old(reader: Reader, params: ECMParams, layer: Layer, n: Int64Array) -> Int64Array:
    """Read each cell's newest rank before the horizon."""
    old = np.zeros(len(n), np.int64)
    if params.horizon is None:
        return old
    after = read_numbers(reader, len(n), "ranks before the horizon")
    if (after > n.view(np.uint64)).any():
        cell = int((after > n.view(np.uint64)).argmax())
        refuse(
            f"cell {cell} has {int(n[cell])} ones; {int(after[cell]) - 1} are said to be younger"
        )
    some = after > 0
    old[some] = n[some] - after[some].view(np.int64) + 1
    before = np.where(some, old - 1, 0)
    kept = kept_after(params.kind, layer.slots, n, before)
    kept -= kept_after(params.kind, layer.slots, n, old)
    if (kept != some).any():
        cell = int((kept != some).argmax())
        refuse(f"cell {cell} of {int(n[cell])} ones does not keep rank {int(old[cell])}")
    return old


def _check_edge(columns: CellColumns, offsets: Int64Array, young: Int64Array, edge: int) -> None:
    """Reject times that are on another side of the horizon than their ranks."""
    behind = np.arange(len(columns.times), dtype=np.int64)
    said = behind < np.repeat(offsets[:-1] + young, np.diff(offsets))
    if ((columns.times >= edge) != said).any():
        refuse(f"times are on another side of {edge}, clock less horizon, than their ranks")


def _times_of(steps: npt.NDArray[np.uint64], offsets: Int64Array, clock: int) -> Int64Array:
    """Inverse of :func:`_steps`."""
    counts = np.diff(offsets)
    some = offsets[:-1][counts > 0]
    if not len(some):
        return np.empty(0, np.int64)
    # Rounded, but far from wrapping where it is small: sums of a cell, then all of them.
    reach = np.add.reduceat(steps.astype(np.float64), some)
    if float(reach.max()) > float(2 * TIME_LIMIT):
        refuse(f"times of a cell reach {reach.max():.4g} back; expected at most 2^63")
    sums = np.cumsum(steps)  # modulo 2^64
    base = np.zeros(len(some), np.uint64)
    base[1:] = sums[some[1:] - 1]
    ages = sums - np.repeat(base, counts[counts > 0])
    return (np.uint64(clock & ((1 << 64) - 1)) - ages).view(np.int64)


def _check_times(
    params: ECMParams,
    layer: Layer,
    columns: CellColumns,
    offsets: Int64Array,
    first: int,
    clock: int,
) -> None:
    """Check all conditions on a layer's times, except that they fall."""
    n, old, times = columns
    if int(times.min()) < first:
        refuse(f"a time is {int(times.min())}; expected at least the first of its lane, {first}")
    newest = np.full(n.size, -TIME_LIMIT - 1, np.int64)
    some = n.ravel() > 0
    newest[some] = times[offsets[:-1][some]]
    latest = newest.reshape(n.shape).max(axis=1)
    if (latest != clock).any():
        row = int((latest != clock).argmax())
        refuse(
            f"the newest time of a row is {int(latest[row])}; expected the lane's clock, {clock}"
        )
    if layer.shift == 64:
        ranks, _ = kept_ranks(params.kind, layer.slots, n.ravel())
        ranks = ranks[(ranks > old) | chained(ranks, np.repeat(old, len(ranks)))]
        if int(ranks[-1]) == 1 and int(times[-1]) != first:
            refuse(f"the first time of a lane is {first}; its first event has {int(times[-1])}")
        if params.clock == "arrivals" and (first != 1 or (times != ranks).any()):
            refuse("times of arrivals are not their numbers")


def _check_state(state: ECMState) -> None:
    """Check that lanes, buffered events and counts are consistent."""
    params, clock, held = state.params, state.clock, state.held
    assert clock is not None
    clocks = [lane.clock for lane in state.lanes]
    if any(after >= before for before, after in pairwise(clocks)):
        refuse(f"clocks of lanes are {clocks}; expected falling ones")
    if params.hold and clocks and not state.merges and clocks[0] >= clock - params.hold:
        refuse(
            f"clock of a lane is {clocks[0]}; expected one before {clock} less hold, {params.hold}"
        )
    if state.seen > MAX_COUNT or state.moved > state.seen:
        refuse(f"seen {state.seen}, of which {state.moved} moved; expected less than 2^62")
    if params.clock == "arrivals" and (
        len(clocks) > 1 or state.too_late or state.moved or clock != state.seen or len(held)
        or state.merges or not clocks or clocks[0] != clock
    ):  # fmt: skip
        refuse(f"arrivals of clock {clock}, {state.seen} seen; expected one lane of so many")
