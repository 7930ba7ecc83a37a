"""Bytes of a sketch: the only module that knows them.

:func:`encode` writes a :class:`~decaysketch.state.SketchState`, :func:`decode` reads one. Both are
functions of their argument alone: equal states give equal bytes on every platform, and every blob
that decodes is the one that encoding its state gives again. Rows are bit-packed in canonical order
(:mod:`decaysketch._bitpack`), about the bits of an id plus two bytes each; the level of a row is
not stored but recomputed. No general compressor: on these columns it gained nothing. Every bit is
named in ``docs/wire-format.md``.

What decoding promises
    Bytes come from a network. Whatever they are, :func:`decode` returns a state that an honest
    builder could have reached, or raises one :class:`~decaysketch.errors.CorruptSketchError`, in
    time and memory proportional to the length of the blob (less than 1 KB for each of its bytes,
    since a row takes a bit at the least). Beyond lengths, ranges, order, distinctness, capacity
    and checksum it asks for two things:

    * *Canonical.* The decoded rows are encoded again and must give the same bytes. That one rule
      stands for many: no padding, width, base or mode may be other than the stated one.
    * *Plausible.* A watermark ``t_i`` claims that the sample of level ``i`` overflowed at that
      time; what it discarded cannot be seen. But what is selected at level ``i`` is selected at
      level ``i + 1`` with a chance of about 1/2 or more. If ``c`` rows of level >= ``i`` are later
      than ``t_i``, then ``capacity + 1 - c`` observations or more of level >= ``i`` have exactly
      the time ``t_i``. Where ``t_{i+1} < t_i`` those of level >= ``i + 1`` among them were kept. So
      few of them that the chance is below 1e-9 is refused. Likewise a watermark at the coarsest
      level, which few ids reach. Otherwise 200 bytes without any row, whose watermarks lie far in
      the future, would silence a stream for ever.

Observations of one id with many weights are selected together, not independently. A stream in
which more than 30 weights share an id and a timestamp can be refused by the second rule; ids name
messages, and a message has one weight.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from decaysketch import _bitpack, minhit
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError, ParameterError
from decaysketch.observations import MISSING_KEY, TIME_LIMIT
from decaysketch.params import SketchParams
from decaysketch.state import NO_WATERMARK, SketchState

__all__ = ["FAMILY", "MAGIC", "VERSION", "Header", "decode", "encode", "peek"]

Int64Array = npt.NDArray[np.int64]

MAGIC = b"\xd5DSK"
VERSION = 1
FAMILY = 1  # decay chosen at query time; other kinds of sketch will have other numbers

_PARAMS_IN_FULL = 0b1  # required flag
_KNOWN_REQUIRED_FLAGS = _PARAMS_IN_FULL

# The byte of choices in the parameters.
_VALUE_TYPES = ("int64", "float64")  # bit 0
_ID_MIXES = ("keyed", "none")  # bit 1
_KEYED_BY = ("seed", "secret")  # bit 2
_KNOWN_CHOICES = 0b111

_FIXED = struct.Struct("<4sBBBB8s")  # magic, version, family, required, optional, fingerprint
_CHECKSUM = struct.Struct("<I")

_IMPLAUSIBLE = 1e-9
_WEIGHTS_OF_AN_ID = 32  # more of them at the coarsest level are not believed either
_COLUMNS = ("times", "ids", "weights", "values")
_LARGEST_FLOAT_KEY = int(np.float64(np.finfo(np.float64).max).view(np.int64))
_NEGATIVE_ZERO_KEY = -1


@dataclass(frozen=True, slots=True)
class Header:
    """What :func:`peek` reads: everything in front of the columns.

    Attributes:
        version: of the wire format.
        family: kind of sketch, ``FAMILY`` for a ``DecaySketch``.
        optional_flags: one bit for each optional section behind the columns.
        fingerprint: 8 bytes, as ``SketchParams.fingerprint``.
        params: the parameters as ``SketchParams.to_dict()`` gives them, or None where the bytes
            carry the fingerprint alone.
        capacity: observations kept for each level.
        watermarks: those that are set, from level 0 up.
        rows: number of retained observations.
        newest: time of the most recent row, None without rows.
        columns_at: offset of the first byte of the columns.
    """

    version: int
    family: int
    optional_flags: int
    fingerprint: bytes
    params: dict[str, Any] | None
    capacity: int
    watermarks: tuple[int, ...]
    rows: int
    newest: int | None
    columns_at: int


# --------------------------------------------------------------------------------------- encoding


def encode(state: SketchState, *, embed_params: bool = True) -> bytes:
    """Bytes of a state; equal states have equal bytes.

    Args:
        state: any state. A secret id key is represented by its check value only.
        embed_params: whether to carry the parameters in full (about 16 bytes). Without them the
            reader needs them: see ``params`` of :func:`decode`.

    Returns:
        Version 1 bytes. O(rows), about 25 ns a row.
    """
    params = state.params
    head = bytearray(
        _FIXED.pack(
            MAGIC, VERSION, FAMILY, _PARAMS_IN_FULL if embed_params else 0, 0, params.fingerprint
        )
    )
    if embed_params:
        head += _encode_params(params)
    head += _varint(params.capacity)
    known = state.watermarks[state.watermarks != NO_WATERMARK].tolist()
    head += _varint(len(known))
    if known:
        head += _signed_varint(known[0])
    for before, after in pairwise(known):
        head += _varint(before - after)
    head += _varint(len(state))
    if len(state):
        head += _signed_varint(int(state.times[0]))
    body = bytes(head) + _encode_rows(state)
    return body + _CHECKSUM.pack(zlib.crc32(body))


def _encode_params(params: SketchParams) -> bytes:
    secret = params.id_key is not None
    choices = (
        _VALUE_TYPES.index(params.value_type)
        | _ID_MIXES.index(params.id_mix) << 1
        | int(secret) << 2
    )
    unit = params.time_unit.encode("ascii")
    return b"".join(
        (
            bytes((params.id_bits, params.copies, choices)),
            params.seed.to_bytes(8, "little"),
            bytes((len(unit),)),
            unit,
            _varint(params.max_weight),
            params.key_check if secret else b"",
        )
    )


def _encode_rows(state: SketchState) -> bytes:
    words = np.zeros(_bitpack.max_words(len(state)), dtype=np.uint64)
    bits = _bitpack.encode_columns(
        state.times, state.ids, state.weights, state.value_keys,
        state.params.value_type == "float64", words,
    )  # fmt: skip
    packed = words[: -(-bits // 64)].astype("<u8", copy=False)
    return packed.tobytes()[: -(-bits // 8)]


def _varint(number: int) -> bytes:
    """Unsigned LEB128: seven bits a byte, low ones first, the high bit says that more follow."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _signed_varint(number: int) -> bytes:
    return _varint(number << 1 if number >= 0 else ~(number << 1))


# --------------------------------------------------------------------------------- reading headers


class _Reader:
    """Takes fields from the front of a body; every fault names the field and its offset."""

    __slots__ = ("at", "body")

    def __init__(self, body: memoryview) -> None:
        self.body = body
        self.at = 0

    def take(self, size: int, field: str) -> bytes:
        left = len(self.body) - self.at
        if size > left:
            _refuse(f"{field} at byte {self.at} needs {size} bytes; {left} are left")
        taken = bytes(self.body[self.at : self.at + size])
        self.at += size
        return taken

    def byte(self, field: str) -> int:
        return self.take(1, field)[0]

    def varint(self, field: str) -> int:
        start = self.at
        number = shift = 0
        while True:
            byte = self.byte(field)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift == 70:
                _refuse(f"{field} at byte {start} is a varint of more than 10 bytes")
        if number >> 64:
            _refuse(f"{field} at byte {start} is {number}; expected less than 2^64")
        if byte == 0 and shift > 7:
            _refuse(f"{field} at byte {start} is {number} in {shift // 7} bytes; it takes fewer")
        return number

    def time(self, field: str) -> int:
        number = self.varint(field)
        time = number >> 1 if number & 1 == 0 else ~(number >> 1)
        _check_time(time, field)
        return time


def _refuse(message: str) -> NoReturn:
    raise CorruptSketchError(message)


def _check_time(time: int, field: str) -> None:
    if abs(time) > TIME_LIMIT:
        _refuse(f"{field} is {time}; expected at most 2^62 = {TIME_LIMIT} in magnitude")


def peek(blob: bytes | bytearray | memoryview) -> Header:
    """Read the header and verify the checksum, without decoding rows.

    For routing, and for refusing by size (``rows``), by capacity or by time (``newest``,
    ``watermarks``) before any memory is spent. The header is checked by itself, but whether it
    agrees with the rows is only known to :func:`decode`.

    Raises:
        CorruptSketchError: see :func:`decode`.
        TypeError: not bytes at all.
    """
    return _read_header(_as_bytes(blob))


def _as_bytes(blob: bytes | bytearray | memoryview) -> bytes:
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise TypeError(f"expected bytes, bytearray or memoryview, not {type(blob).__name__}")
    return bytes(blob)  # a copy of what could change while it is being checked


def _read_header(blob: bytes) -> Header:
    smallest = _FIXED.size + _CHECKSUM.size
    if blob[:4] != MAGIC:
        _refuse(f"the first bytes are {blob[:4]!r}; a sketch starts with {MAGIC!r}")
    if len(blob) > 4 and blob[4] != VERSION:
        _refuse(f"wire version {blob[4]}; this release reads version {VERSION}")
    if len(blob) < smallest:
        _refuse(f"{len(blob)} bytes; a sketch has {smallest} at the least")
    body, (stored,) = memoryview(blob)[:-4], _CHECKSUM.unpack_from(blob, len(blob) - 4)
    computed = zlib.crc32(body)
    if stored != computed:
        _refuse(
            f"checksum is {stored:#010x}; the {len(body)} bytes before it give {computed:#010x}"
        )
    _, version, family, required, optional, fingerprint = _FIXED.unpack_from(blob)
    if family != FAMILY:
        _refuse(f"family {family}; expected {FAMILY}")
    if unknown := required & ~_KNOWN_REQUIRED_FLAGS:
        _refuse(
            f"required flags {required:#010b} include {unknown:#010b}, of a later release; "
            f"known are {_KNOWN_REQUIRED_FLAGS:#010b}"
        )
    reader = _Reader(body)
    reader.at = _FIXED.size
    params = _read_params(reader) if required & _PARAMS_IN_FULL else None
    capacity = reader.varint("capacity")
    if params is not None:
        params["capacity"] = capacity
    watermarks = _read_watermarks(reader)
    rows = reader.varint("rows")
    newest = reader.time("first time") if rows else None
    return Header(
        version, family, optional, fingerprint, params, capacity, watermarks, rows, newest,
        reader.at,
    )  # fmt: skip


def _read_params(reader: _Reader) -> dict[str, Any]:
    id_bits = reader.byte("id_bits")
    copies = reader.byte("copies")
    choices = reader.byte("choices of the parameters")
    if choices & ~_KNOWN_CHOICES:
        _refuse(f"choices of the parameters are {choices:#010b}; known are {_KNOWN_CHOICES:#010b}")
    seed = int.from_bytes(reader.take(8, "seed"), "little")
    unit = reader.take(reader.byte("length of time_unit"), "time_unit")
    if not unit.isascii():
        _refuse(f"time_unit is {unit!r}; expected ASCII")
    params = {
        "max_weight": reader.varint("max_weight"),
        "id_bits": id_bits,
        "copies": copies,
        "seed": seed,
        "time_unit": unit.decode("ascii"),
        "value_type": _VALUE_TYPES[choices & 1],
        "id_mix": _ID_MIXES[choices >> 1 & 1],
        "keyed_by": _KEYED_BY[choices >> 2],
    }
    if params["keyed_by"] == "secret":
        params["key_check"] = reader.take(8, "check value of the id key").hex()
    return params


def _read_watermarks(reader: _Reader) -> tuple[int, ...]:
    count = reader.varint("number of watermarks")
    if count > 64:  # levels end at 56; the exact bound needs the parameters
        _refuse(f"number of watermarks is {count}; expected at most 64")
    watermarks: list[int] = []
    for level in range(count):
        if level == 0:
            watermarks.append(reader.time("watermark of level 0"))
        else:
            watermarks.append(watermarks[-1] - reader.varint(f"watermark of level {level}"))
            _check_time(watermarks[-1], f"watermark of level {level}")
    return tuple(watermarks)


# --------------------------------------------------------------------------------------- decoding


def decode(
    blob: bytes | bytearray | memoryview,
    *,
    params: SketchParams | None = None,
    id_key: bytes | None = None,
    check_plausible: bool = True,
) -> SketchState:
    """State that :func:`encode` wrote.

    Args:
        blob: the bytes. Nothing in them is trusted.
        params: what the bytes are expected to carry; needed where they carry a fingerprint only.
            The capacity is taken from the bytes, not from here.
        id_key: the secret of a stream that has one (levels cannot be recomputed without it);
            ``params`` carry it as well, so one of the two is enough.
        check_plausible: False skips the statistical test of the watermarks (see the module
            docstring) for bytes that this program wrote itself.

    Returns:
        The state; encoding it again gives the same bytes (without optional sections, which this
        release skips). O(rows), about 75 ns a row, a third of it for encoding again.

    Raises:
        CorruptSketchError: the bytes are not ones that an honest builder could have written. The
            message names what was found and what was expected.
        IncompatibleSketchError: the bytes are of a stream with other parameters than ``params``,
            or under another ``id_key``, or need one of the two and it was not given.
        ParameterError: both ``params`` and ``id_key`` given, or an ``id_key`` of a wrong length.
    """
    if params is not None and id_key is not None:
        raise ParameterError("give params or id_key, not both: params carry their key")
    blob = _as_bytes(blob)
    header = _read_header(blob)
    params = _expected_params(header, params) if params else _embedded_params(header, id_key)
    if len(header.watermarks) > params.levels + 1:
        _refuse(f"{len(header.watermarks)} watermarks; there are {params.levels + 1} levels")
    most = params.capacity * (params.levels + 1)
    if header.rows > most:
        _refuse(
            f"{header.rows} rows; capacity {params.capacity} at {params.levels + 1} levels "
            f"allows {most}"
        )
    times, ids, weights, value_keys, end = _decode_rows(blob, header, params)
    _skip_optional_sections(blob, header.optional_flags, end)
    _check_rows(params, times, ids, weights, value_keys)
    watermarks = np.full(params.levels + 1, NO_WATERMARK, dtype=np.int64)
    watermarks[: len(header.watermarks)] = header.watermarks
    levels = minhit.top_levels(params, ids, weights)
    state = SketchState(params, value_keys, weights, times, ids, levels, watermarks)
    _check_canonical(blob, header, state, end)
    _check_watermarks(state, check_plausible=check_plausible and params.id_mix == "keyed")
    return state


def _expected_params(header: Header, ours: SketchParams) -> SketchParams:
    """``params`` with the capacity of the bytes, once the bytes are seen to be of that stream."""
    listing = {} if header.params is None else _differences(ours.to_dict(), header.params)
    if listing:
        raise IncompatibleSketchError(listing)
    if header.fingerprint != ours.fingerprint:
        found = (ours.fingerprint.hex(), header.fingerprint.hex())
        if header.params is not None:
            _refuse(f"fingerprint is {found[1]}; the parameters beside it give {found[0]}")
        raise IncompatibleSketchError({"fingerprint": found})
    try:
        return ours if ours.capacity == header.capacity else ours.with_capacity(header.capacity)
    except ParameterError as fault:
        raise CorruptSketchError(str(fault)) from None


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {
        name: (ours.get(name), theirs.get(name))
        for name in sorted(ours.keys() | theirs.keys())
        if name != "capacity" and ours.get(name) != theirs.get(name)
    }


def _embedded_params(header: Header, id_key: bytes | None) -> SketchParams:
    """The parameters that the bytes carry, with the secret key if they need one."""
    if header.params is None:
        raise IncompatibleSketchError(
            {"params": ("not given", f"needed, with fingerprint {header.fingerprint.hex()}")}
        )
    fields = dict(header.params)
    keyed_by, check = fields.pop("keyed_by"), fields.pop("key_check", "")
    try:
        params = SketchParams(**fields)
    except ParameterError as fault:
        raise CorruptSketchError(f"parameters: {fault}") from None
    if keyed_by == "secret":
        if params.id_mix == "none":
            _refuse("keyed by a secret, yet id_mix is 'none'; a key has no use there")
        if id_key is None:
            raise IncompatibleSketchError(
                {"id_key": ("not given", f"a secret with check value {check}")}
            )
        params = replace(params, id_key=id_key)
        if params.key_check.hex() != check:
            raise IncompatibleSketchError(
                {"id_key": (f"check value {params.key_check.hex()}", f"check value {check}")}
            )
    elif id_key is not None:
        raise IncompatibleSketchError({"id_key": ("given", "none, ids are keyed by the seed")})
    if params.fingerprint != header.fingerprint:
        _refuse(
            f"fingerprint is {header.fingerprint.hex()}; the parameters beside it give "
            f"{params.fingerprint.hex()}"
        )
    return params


def _decode_rows(
    blob: bytes, header: Header, params: SketchParams
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, int]:
    """Columns (times, ids, weights, value keys), and the offset behind them."""
    rest = np.frombuffer(blob, np.uint8)[header.columns_at : -_CHECKSUM.size]
    words = np.zeros(-(-len(rest) // 8) + _bitpack.SPARE_WORDS, dtype="<u8")
    words.view(np.uint8)[: len(rest)] = rest
    words = words.astype(np.uint64, copy=False)
    floats = params.value_type == "float64"
    outcome, bits = _bitpack.scan_columns(words, 8 * len(rest), header.rows, floats)
    _check_scan(outcome)
    times, ids, weights, value_keys = (np.empty(header.rows, np.int64) for _ in range(4))
    _bitpack.decode_columns(words, header.newest or 0, floats, times, ids, weights, value_keys)
    return times, ids, weights, value_keys, header.columns_at + -(-bits // 8)


def _check_scan(outcome: tuple[int, int, int, int, int]) -> None:
    code, start, column, found, limit = outcome
    if code == _bitpack.OK:
        return
    fault = {
        _bitpack.PAST_END: f"it ends at bit {found} of {limit}",
        _bitpack.WIDTH_TOO_LARGE: f"a width or mode is {found}; expected at most {limit}",
        _bitpack.TOO_FEW_BITS: (
            f"ids and weights take {found} bits; telling the rows apart takes at least {limit}"
        ),
    }[code]
    _refuse(f"block of rows at {start}, {_COLUMNS[column]}: {fault}")


def _skip_optional_sections(blob: bytes, flags: int, end: int) -> None:
    """Optional sections are for later releases: each is a varint length and as many bytes."""
    reader = _Reader(memoryview(blob)[: -_CHECKSUM.size])
    reader.at = end
    for bit in range(8):
        if flags >> bit & 1:
            section = f"optional section {bit}"
            reader.take(reader.varint(f"length of {section}"), section)
    if reader.at != len(reader.body):
        _refuse(
            f"{len(reader.body) - reader.at} bytes between the end of the rows at byte "
            f"{reader.at} and the checksum; expected none"
        )


def _check_rows(
    params: SketchParams,
    times: Int64Array,
    ids: Int64Array,
    weights: Int64Array,
    value_keys: Int64Array,
) -> None:
    """Ranges, strict canonical order, and no (id, weight) twice."""
    if not len(times):
        return
    row = _bitpack.first_out_of_order(times, ids, weights)
    if row >= 0:
        pair = [(int(times[i]), int(ids[i]), int(weights[i])) for i in (row - 1, row)]
        _refuse(
            f"row {row} is (time, id, weight) = {pair[1]} after {pair[0]}; expected a smaller one"
        )
    _check_time(int(times[-1]), f"time of row {len(times) - 1}")  # the first is in the header
    for name, column, low, high in (
        ("id", ids, 0, (1 << params.id_bits) - 1),
        ("weight", weights, 1, params.max_weight),
    ):
        if int(column.min()) < low or int(column.max()) > high:
            row = int(((column < low) | (column > high)).argmax())
            _refuse(f"{name} of row {row} is {int(column[row])}; expected {low} to {high}")
    if params.value_type == "float64":
        no_number = (value_keys > _LARGEST_FLOAT_KEY) | (value_keys == _NEGATIVE_ZERO_KEY)
        no_number |= (value_keys < ~_LARGEST_FLOAT_KEY) & (value_keys != MISSING_KEY)
        if no_number.any():
            row = int(no_number.argmax())
            _refuse(
                f"value key of row {row} is {int(value_keys[row])}; expected that of a finite "
                "float64, -0.0 excepted"
            )
    # One integer for each (id, weight). Sorting takes no longer for chosen input than for any.
    identity = ids * np.int64(params.max_weight) + weights
    identity.sort()
    twice = identity[1:] == identity[:-1]
    if twice.any():
        id_, weight = divmod(int(identity[int(twice.argmax())]) - 1, params.max_weight)
        _refuse(f"(id, weight) = {(id_, weight + 1)} is there twice; expected once")


def _check_canonical(blob: bytes, header: Header, state: SketchState, end: int) -> None:
    """Encoding what was decoded gives the same bytes."""
    given = blob[header.columns_at : end]
    again = _encode_rows(state)
    if given != again:
        pairs = zip(given, again, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(given), len(again)))
        _refuse(
            f"not canonical: the rows take {len(given)} bytes and differ from byte "
            f"{header.columns_at + at} on; encoding them again gives {len(again)}"
        )


def _check_watermarks(state: SketchState, *, check_plausible: bool) -> None:
    """The law of the state (see :mod:`decaysketch.state`), as far as kept rows can show it."""
    params, times, levels, watermarks = state.params, state.times, state.levels, state.watermarks
    capacity, top = params.capacity, params.levels
    expired = times <= watermarks[levels]
    if expired.any():
        row = int(expired.argmax())
        level = int(levels[row])
        _refuse(
            f"row {row}, of top level {level}, has time {int(times[row])}; expected one later "
            f"than that level's watermark {int(watermarks[level])}"
        )
    if watermarks[top] != NO_WATERMARK:
        weights = _WEIGHTS_OF_AN_ID if check_plausible else params.max_weight
        most = _observations_of_top_level(params, weights)
        if most <= capacity:
            _refuse(
                f"level {top} has watermark {int(watermarks[top])}, yet at most {most} "
                f"observations reach it; expected none at capacity {capacity}"
            )
    # Times descend: rows later than a watermark are a prefix, longer from level to level. Where
    # no watermark is set it is all rows, and the first such level has the most.
    known = watermarks[: int(np.count_nonzero(watermarks != NO_WATERMARK)) + 1]
    ascending = times[::-1]
    later_than = len(times) - np.searchsorted(ascending, known, side="right")
    not_before = len(times) - np.searchsorted(ascending, known, side="left")
    by_level = np.zeros(top + 1, dtype=np.int64)
    counted = 0
    for i, (later_end, tied_end) in enumerate(
        zip(later_than.tolist(), not_before.tolist(), strict=True)
    ):
        by_level += np.bincount(levels[counted:later_end], minlength=top + 1)
        counted = later_end
        later = int(by_level[i:].sum())
        if later > capacity:
            _refuse(
                f"level {i} has {later} rows later than its watermark; the capacity is {capacity}"
            )
        if check_plausible and i < top and watermarks[i + 1] < watermarks[i]:
            _check_plausible(state, i, capacity + 1 - later, tied_end - later_end)


def _check_plausible(state: SketchState, i: int, overflowing: int, tied: int) -> None:
    """Refuse a watermark that claims too many observations nobody can see.

    At least ``overflowing`` observations of level >= i have exactly the time ``t_i``. Those of
    level >= i + 1 among them were kept: ``tied`` rows. An observation of level >= i is one of
    level >= i + 1 with probability ``p_{i+1} / p_i`` if its weight is 1, and more if it is larger.
    """
    if tied >= overflowing:
        return
    from scipy.special import bdtr  # only where a watermark leaves something to doubt

    params = state.params
    goes_up = (params.prime >> i + 1) / (params.prime >> i)
    chance = float(bdtr(tied, overflowing, goes_up))
    if chance < _IMPLAUSIBLE:
        _refuse(
            f"watermark {int(state.watermarks[i])} of level {i} claims that {overflowing} "
            f"observations or more share that time, yet {tied} are of level {i + 1}: a chance of "
            f"{chance:.1e}; expected at least {_IMPLAUSIBLE:.0e}"
        )


def _observations_of_top_level(params: SketchParams, weights: int) -> int:
    """How many (id, weight) can reach level M at all, with so many weights of an id at most.

    The hash values below ``floor(p / 2^M)``, at most 20 of them, are each taken by one integer
    ``max_weight * id + j``; it belongs to the observations of that id with a weight above ``j``.
    """
    inverse = pow(params.multipliers[0], -1, params.prime)
    first: dict[int, int] = {}  # (mixed) id -> its least j
    for value in range(params.prime >> params.levels):
        x = (value - params.offsets[0]) * inverse % params.prime
        if x < params.universe:
            id_, j = divmod(x, params.max_weight)
            first[id_] = min(j, first.get(id_, j))
    return sum(min(params.max_weight - j, weights) for j in first.values())
