"""Parts that all formats share, read: header, parameters, numbers, watermarks, checksum.

:func:`open_blob` verifies magic, version, length, checksum, family and flags first, and returns a
:class:`Reader` positioned after the capacity. Every fault is a
:class:`~decaysketch.errors.CorruptSketchError`. :mod:`decaysketch.core.codec.writing` writes the
same parts.

Every family has a :class:`Header` that you can read without the rows. Use it to route bytes, and to
reject them by size, capacity or time before any allocation.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

import numpy as np
import numpy.typing as npt

from decaysketch.core.column_types import (
    MAX_COLUMN_NAME_BYTES,
    MAX_COLUMNS,
    MAX_STRATUM_COLUMNS,
)
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.params import MAX_COPIES, SketchParams, differing
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError, ParameterError

__all__ = [
    "CHECKSUM",
    "CHECKSUM_BYTES",
    "COLUMN_TYPES",
    "FIXED",
    "HEAD_BYTES",
    "ID_MIXES",
    "MAGIC",
    "PARAMS_IN_FULL",
    "RECORD",
    "REVISION",
    "SEVERAL_COPIES",
    "STRATA",
    "TWO_OBJECTIVES",
    "VALUE_TYPES",
    "VERSION",
    "CopyHeader",
    "Header",
    "Opening",
    "Reader",
    "Rows",
    "as_bytes",
    "check_row_count",
    "check_time",
    "family_number",
    "fingerprint_of",
    "open_blob",
    "params_of",
    "read_rising_name",
    "read_watermarks",
    "refuse",
    "skip_optional_sections",
    "text_of",
]

P = TypeVar("P", bound=SketchParams)
Int64Array = npt.NDArray[np.int64]

MAGIC = b"\xd5DSK"
VERSION = 1
QUERY_TIME_FAMILY = 1

# Required flags.
PARAMS_IN_FULL = 0b01
SEVERAL_COPIES = 0b10
TWO_OBJECTIVES = 0b100  # samples by weight and by count, of one hash function
STRATA = 0b1000
_KNOWN_REQUIRED_FLAGS = PARAMS_IN_FULL | SEVERAL_COPIES | TWO_OBJECTIVES | STRATA

# The byte of choices in the parameters.
VALUE_TYPES = ("int64", "float64", "label")  # bit 0 of the number, and bit 3 of the byte
ID_MIXES = ("keyed", "none")  # bit 1
_KEYED_BY = ("seed", "secret")  # bit 2
COLUMN_TYPES = ("float64", "int64", "bool", "text")
RECORD = 1 << 4  # a stream with columns, of which bits 0 and 3 say nothing
REVISION = 1 << 5  # one of the columns is the revision
_KNOWN_CHOICES = 0b111111

FIXED = struct.Struct("<4sBBBB8s")  # magic, version, family, required, optional, fingerprint
HEAD_BYTES = FIXED.size
_FAMILY_AT = 5  # offset in it
CHECKSUM = struct.Struct("<I")
CHECKSUM_BYTES = CHECKSUM.size
_SHORT_BYTES = 1 << 18
_PIECE_BYTES = 5_000


def refuse(message: str) -> NoReturn:
    """Raise the error for bytes that no correct builder could have written."""
    raise CorruptSketchError(message)


def check_time(time: int, field: str) -> None:
    """Reject a time beyond the timestamp limit."""
    if abs(time) > TIME_LIMIT:
        refuse(f"{field} is {time}; expected at most 2^62 = {TIME_LIMIT} in magnitude")


def check_row_count(rows: int, capacity: int, levels: int, blob: bytes | None = None) -> None:
    """Reject an impossible row count before any row is read.

    Args:
        rows: declared row count.
        capacity: rows that a level stores after its watermark.
        levels: levels that may store rows of their own: those with a watermark, and the first
            without one, which stores the rows of all levels above.
        blob: the bytes, at least one bit per row. None if they are read later.
    """
    if rows > capacity * levels:
        refuse(f"{rows} rows; capacity {capacity} at {levels} levels allows {capacity * levels}")
    if blob is not None and rows > 8 * len(blob):
        refuse(f"{rows} rows in {len(blob)} bytes; a row takes at least one bit")


class Reader:
    """Read fields from the front of a body. Every fault names the field and its offset."""

    __slots__ = ("at", "body")

    def __init__(self, body: memoryview, at: int) -> None:
        self.body = body
        self.at = at

    def take(self, size: int, field: str) -> bytes:
        """Return the next ``size`` bytes."""
        left = len(self.body) - self.at
        if size > left:
            refuse(f"{field} at byte {self.at} needs {size} bytes; {left} are left")
        taken = bytes(self.body[self.at : self.at + size])
        self.at += size
        return taken

    def byte(self, field: str) -> int:
        """Return the next byte as a number."""
        at = self.at
        if at >= len(self.body):
            return self.take(1, field)[0]  # raises the error that names the field
        self.at = at + 1
        return self.body[at]

    def varint(self, field: str) -> int:
        """Return an unsigned number below 2^64 in its shortest encoding."""
        start = self.at
        if start < len(self.body) and (first := self.body[start]) < 0x80:
            self.at = start + 1
            return first
        number = shift = 0
        while True:
            byte = self.byte(field)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift == 70:
                refuse(f"{field} at byte {start} is a varint of more than 10 bytes")
        if number >> 64:
            refuse(f"{field} at byte {start} is {number}; expected less than 2^64")
        if byte == 0 and shift > 7:
            refuse(f"{field} at byte {start} is {number} in {shift // 7} bytes; it takes fewer")
        return number

    def signed_varint(self, field: str) -> int:
        """Inverse of ``writing.put_signed_varint``."""
        number = self.varint(field)
        return number >> 1 if number & 1 == 0 else ~(number >> 1)

    def time(self, field: str) -> int:
        """Return a signed number that is a possible timestamp."""
        time = self.signed_varint(field)
        check_time(time, field)
        return time

    def clock(self) -> int | None:
        """Inverse of ``writing.put_clock``."""
        told = self.byte("whether there is a clock")
        if told > 1:
            refuse(f"whether there is a clock is {told}; expected 0 or 1")
        return self.time("clock") if told else None

    def rows(self) -> tuple[int, int | None]:
        """Inverse of ``writing.put_rows``."""
        rows = self.varint("rows")
        return rows, self.time("first time") if rows else None


@dataclass(frozen=True, slots=True)
class Opening:
    """The part before the columns that a family defines.

    Attributes:
        version, family, optional_flags, fingerprint: as written.
        params: as in ``SketchParams.to_dict()``, or None if there is only the fingerprint.
        capacity: as written, not checked against the allowed range.
        copies: number of hash functions, 1..64.
        by_count: whether there is a sample by count in addition.
        reader: positioned after all of these.
        strata: whether the sketch has strata.
    """

    version: int
    family: int
    optional_flags: int
    fingerprint: bytes
    params: dict[str, Any] | None
    capacity: int
    copies: int
    by_count: bool
    reader: Reader
    strata: bool = False


@dataclass(frozen=True, slots=True)
class CopyHeader:
    """Header of one repetition.

    Attributes:
        watermarks: as written, by level.
        rows: retained observations.
        newest: time of the most recent row, or None without rows.
    """

    watermarks: tuple[int, ...]
    rows: int
    newest: int | None

    def check(self, capacity: int, levels: int) -> None:
        """Reject more rows than so many levels can store."""
        if len(self.watermarks) > levels:
            refuse(f"{len(self.watermarks)} watermarks; there are {levels} levels")
        check_row_count(self.rows, capacity, levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Everything before the columns.

    Attributes:
        version: wire format version.
        family: family byte.
        optional_flags: one bit per optional section after the columns.
        fingerprint: 8-byte parameter fingerprint.
        params: as in ``SketchParams.to_dict()``. None if the bytes do not contain them (families 1
            and 2 do).
        capacity: observations kept per level.
        clock: the sketch's clock, or None.
        copies: one entry per hash function.
        columns_at: offset of the first column byte.
        by_count: whether the sketch has two objectives. The second entry of ``copies`` is then the
            sample by count. A row in both samples is written once.
        strata: number of strata, or None in a sketch without them.
    """

    version: int
    family: int
    optional_flags: int
    fingerprint: bytes
    params: dict[str, Any] | None
    capacity: int
    clock: int | None
    copies: tuple[CopyHeader, ...]
    columns_at: int
    by_count: bool = False
    strata: int | None = None

    @classmethod
    def behind(
        cls,
        opening: Opening,
        copies: Sequence[CopyHeader],
        *,
        clock: int | None = None,
        **own: Any,  # attributes that a family adds
    ) -> Self:
        """Build from an opening whose reader has reached the columns."""
        return cls(
            version=opening.version,
            family=opening.family,
            optional_flags=opening.optional_flags,
            fingerprint=opening.fingerprint,
            params=opening.params,
            capacity=opening.capacity,
            clock=clock,
            copies=tuple(copies),
            columns_at=opening.reader.at,
            by_count=opening.by_count,
            **own,
        )

    @property
    def rows(self) -> int:
        """Retained observations over all repetitions."""
        return sum(copy.rows for copy in self.copies)

    @property
    def newest(self) -> int | None:
        """Time of the most recent row in any repetition, or None without rows."""
        return max((copy.newest for copy in self.copies if copy.newest is not None), default=None)


class Rows(NamedTuple):
    """Columns int64[n] in canonical order."""

    times: Int64Array
    ids: Int64Array
    weights: Int64Array
    value_keys: Int64Array

    @classmethod
    def room(cls, count: int) -> Rows:
        """Allocate columns."""
        return cls(*(np.empty(count, np.int64) for _ in range(4)))


def as_bytes(blob: bytes | bytearray | memoryview) -> bytes:
    """Copy a buffer that could change during the checks."""
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise TypeError(f"expected bytes, bytearray or memoryview, not {type(blob).__name__}")
    return bytes(blob)


def family_number(blob: bytes | bytearray | memoryview) -> int:
    """Return the family byte without reading anything after it. O(1)."""
    head = bytes(memoryview(blob)[: _FAMILY_AT + 1])
    _check_start(head)
    if len(head) <= _FAMILY_AT:
        refuse(f"{len(head)} bytes; a sketch has more")
    return head[_FAMILY_AT]


def fingerprint_of(head: bytes) -> bytes:
    """Return the parameter fingerprint from the first ``HEAD_BYTES`` of a sketch. O(1)."""
    _check_start(head)
    if len(head) < HEAD_BYTES:
        refuse(f"{len(head)} bytes; a sketch has more")
    return bytes(FIXED.unpack_from(head)[-1])


def _check_start(blob: bytes) -> None:
    if blob[:4] != MAGIC:
        refuse(f"the first bytes are {blob[:4]!r}; a sketch starts with {MAGIC!r}")
    if len(blob) > 4 and blob[4] != VERSION:
        refuse(f"wire version {blob[4]}; this release reads version {VERSION}")


def open_blob(blob: bytes, family: int) -> Opening:
    """Verify the frame and read up to the part that ``family`` defines."""
    smallest = FIXED.size + CHECKSUM.size
    _check_start(blob)
    if len(blob) < smallest:
        refuse(f"{len(blob)} bytes; a sketch has at least {smallest}")
    body, (stored,) = memoryview(blob)[:-4], CHECKSUM.unpack_from(blob, len(blob) - 4)
    computed = _checksum(body)
    if stored != computed:
        refuse(f"checksum is {stored:#010x}; the {len(body)} bytes before it give {computed:#010x}")
    _, version, found, required, optional, fingerprint = FIXED.unpack_from(blob)
    if found != family:
        refuse(f"family {found}; expected {family}")
    if unknown := required & ~_KNOWN_REQUIRED_FLAGS:
        refuse(
            f"required flags {required:#010b} include {unknown:#010b}, of a later release; "
            f"known are {_KNOWN_REQUIRED_FLAGS:#010b}"
        )
    reader = Reader(body, FIXED.size)
    strata = bool(required & STRATA)
    params = _read_params(reader) if required & PARAMS_IN_FULL else None
    if params is not None and strata:
        params |= _read_strata(reader, params)
    capacity = reader.varint("capacity")
    copies = 1
    if required & SEVERAL_COPIES:
        copies = reader.byte("number of copies")
        if not 2 <= copies <= MAX_COPIES:
            refuse(f"number of copies is {copies}; expected 2 to {MAX_COPIES}")
    by_count = bool(required & TWO_OBJECTIVES)
    if by_count and (family != QUERY_TIME_FAMILY or copies > 1):
        refuse(
            f"required flags are {required:#010b}, of two objectives, with family {family} and "
            f"{copies} copies; expected family {QUERY_TIME_FAMILY} and 1"
        )
    if strata and (family != QUERY_TIME_FAMILY or copies > 1 or by_count):
        refuse(
            f"required flags are {required:#010b}, with strata, with family {family} and {copies} "
            f"copies; expected family {QUERY_TIME_FAMILY}, 1 and one objective"
        )
    if params is not None:
        if by_count:
            params["objectives"] = "weight,count"
        params["capacity"] = capacity
        if params["copies"] != copies:
            refuse(f"number of copies is {copies}; the parameters say {params['copies']}")
    return Opening(
        version, family, optional, fingerprint, params, capacity, copies, by_count, reader, strata
    )


def _checksum(body: memoryview) -> int:
    """Compute CRC-32 in pieces.

    zlib releases the interpreter's lock for more than 5 KB at once. With many threads, waiting for
    the lock takes longer than the checksum of a typical body.
    """
    checksum = 0
    step = _PIECE_BYTES if len(body) <= _SHORT_BYTES else len(body)
    for begin in range(0, len(body), step):
        checksum = zlib.crc32(body[begin : begin + step], checksum)
    return checksum


def _read_params(reader: Reader) -> dict[str, Any]:
    id_bits = reader.byte("id_bits")
    copies = reader.byte("copies")
    choices = reader.byte("choices of the parameters")
    if choices & ~_KNOWN_CHOICES:
        refuse(f"choices of the parameters are {choices:#010b}; known are {_KNOWN_CHOICES:#010b}")
    record = bool(choices & RECORD)
    if choices & REVISION and not record:
        refuse(f"choices of the parameters are {choices:#010b}, of a revision without columns")
    value_type = choices & 1 | (choices >> 3 & 1) << 1
    if value_type >= len(VALUE_TYPES):
        refuse(f"choices of the parameters are {choices:#010b}, of float64 and of labels")
    if record and value_type:
        refuse(f"choices of the parameters are {choices:#010b}, of columns and of one value")
    seed = int.from_bytes(reader.take(8, "seed"), "little")
    unit = reader.take(reader.byte("length of time_unit"), "time_unit")
    if not unit.isascii():
        refuse(f"time_unit is {unit!r}; expected ASCII")
    params: dict[str, Any] = {
        "max_weight": reader.varint("max_weight"),
        "id_bits": id_bits,
        "copies": copies,
        "seed": seed,
        "time_unit": unit.decode("ascii"),
        "value_type": "record" if record else VALUE_TYPES[value_type],
        "id_mix": ID_MIXES[choices >> 1 & 1],
        "keyed_by": _KEYED_BY[choices >> 2 & 1],
    }
    if params["keyed_by"] == "secret":
        params["key_check"] = reader.take(8, "check value of the id key").hex()
    if record:
        params["columns"] = _read_column_types(reader)
    if choices & REVISION:
        params["revision"] = _read_revision(reader, list(params["columns"]))
    return params


def read_rising_name(reader: Reader, field: str, before: bytes) -> bytes:
    """Return a name behind its length. Names rise, so that no name comes twice."""
    length = reader.varint(f"length of {field}")
    if not 1 <= length <= MAX_COLUMN_NAME_BYTES:
        refuse(f"length of {field} is {length}; expected 1 to {MAX_COLUMN_NAME_BYTES}")
    name = reader.take(length, field)
    if name <= before:
        refuse(f"{field} is {name!r} after {before!r}; expected names that rise")
    return name


def _read_column_types(reader: Reader) -> dict[str, str]:
    """Return the declared columns, as written."""
    count = reader.varint("number of columns")
    if not 1 <= count <= MAX_COLUMNS:
        refuse(f"number of columns is {count}; expected 1 to {MAX_COLUMNS}")
    found: dict[str, str] = {}
    before = b""
    for number in range(count):
        field = f"name of column {number}"
        name = read_rising_name(reader, field, before)
        kind = reader.byte(f"type of column {number}")
        if kind >= len(COLUMN_TYPES):
            refuse(f"type of column {number} is {kind}; expected less than {len(COLUMN_TYPES)}")
        found[text_of(name, field)] = COLUMN_TYPES[kind]
        before = name
    return found


def _read_revision(reader: Reader, columns: list[str]) -> str:
    number = reader.varint("number of the revision column")
    if number >= len(columns):
        refuse(f"number of the revision column is {number}; expected less than {len(columns)}")
    return columns[number]


def _read_strata(reader: Reader, params: dict[str, Any]) -> dict[str, Any]:
    """Return the declared strata, as written."""
    names = list(params.get("columns", ()))
    most = reader.varint("limit of strata")
    count = reader.varint("number of stratum columns")
    if not 1 <= count <= MAX_STRATUM_COLUMNS:
        refuse(f"number of stratum columns is {count}; expected 1 to {MAX_STRATUM_COLUMNS}")
    found = [reader.varint(f"stratum column {number}") for number in range(count)]
    if found != sorted(set(found)) or found[-1] >= len(names):
        refuse(f"stratum columns are {found}; expected rising ones below {len(names)}")
    return {"strata": [names[number] for number in found], "max_strata": most}


def text_of(encoded: bytes, field: str) -> str:
    """Decode UTF-8."""
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError:
        refuse(f"{field} is {encoded[:40]!r}; expected UTF-8")


def read_watermarks(
    reader: Reader, check: Callable[[int, str], None] = check_time
) -> tuple[int, ...]:
    """Inverse of ``writing.put_watermarks``, at most 64. A family checks its level count.

    ``check`` rejects an impossible watermark by name.
    """
    count = reader.varint("number of watermarks")
    if count > 64:  # levels end at 56; the exact bound needs the parameters
        refuse(f"number of watermarks is {count}; expected at most 64")
    watermarks: list[int] = []
    for level in range(count):
        field = f"watermark of level {level}"
        mark = watermarks[-1] - reader.varint(field) if level else reader.signed_varint(field)
        check(mark, field)
        watermarks.append(mark)
    return tuple(watermarks)


def skip_optional_sections(blob: bytes, flags: int, at: int) -> None:
    """Skip optional sections, which later releases may add: a varint length, then as many bytes.

    They lie between ``at`` and the checksum, and nothing else may.
    """
    reader = Reader(memoryview(blob)[:-CHECKSUM_BYTES], at)
    for bit in range(8):
        if flags >> bit & 1:
            section = f"optional section {bit}"
            reader.take(reader.varint(f"length of {section}"), section)
    if reader.at != len(reader.body):
        refuse(
            f"{len(reader.body) - reader.at} bytes between the end of the rows at byte "
            f"{reader.at} and the checksum; expected none"
        )


# ------------------------------------------------------------------------------------ parameters


def params_of(
    opening: Opening,
    ours: P | None,
    id_key: bytes | None,
    kind: type[P] = SketchParams,  # type: ignore[assignment]  # for callers that name no other
) -> P:
    """Return the parameters for some bytes, with the capacity that the bytes carry.

    Args:
        opening: from the bytes. A family with more parameters adds them to ``opening.params``.
        ours: expected parameters. Required if the bytes carry a fingerprint only.
        id_key: the secret id key, if the bytes use one and ``ours`` is None.
        kind: class of the parameters.

    Raises:
        CorruptSketchError, IncompatibleSketchError, ParameterError: see ``wire.decode``.
    """
    if ours is not None and id_key is not None:
        raise ParameterError("give params or id_key, not both: params carry their key")
    found = (
        _embedded_params(opening, id_key, kind) if ours is None else _expected_params(opening, ours)
    )
    if opening.strata != bool(found.strata):
        refuse(f"required flags say strata: {opening.strata}; the parameters have {found.strata}")
    return found


def _expected_params(opening: Opening, ours: P) -> P:
    """Return ``ours`` with the capacity from the bytes, if the fingerprints are equal."""
    listing = {} if opening.params is None else differing(ours.listing, opening.params)
    if listing:
        raise IncompatibleSketchError(listing)
    if opening.fingerprint != ours.fingerprint:
        found = (ours.fingerprint.hex(), opening.fingerprint.hex())
        if opening.params is not None:
            refuse(f"fingerprint is {found[1]}; the parameters give {found[0]}")
        raise IncompatibleSketchError({"fingerprint": found})
    if opening.copies != ours.copies:
        refuse(f"number of copies is {opening.copies}; the parameters say {ours.copies}")
    by_count = len(ours.objectives) > 1
    if opening.by_count != by_count:
        refuse(f"two objectives: {opening.by_count}; the parameters say {by_count}")
    try:
        return ours if ours.capacity == opening.capacity else ours.with_capacity(opening.capacity)
    except ParameterError as fault:
        raise CorruptSketchError(str(fault)) from None


def _embedded_params(opening: Opening, id_key: bytes | None, kind: type[P]) -> P:
    """Return the embedded parameters, with the secret key if they need one."""
    if opening.params is None:
        raise IncompatibleSketchError(
            {"params": ("not given", f"needed, with fingerprint {opening.fingerprint.hex()}")}
        )
    fields = dict(opening.params)
    keyed_by, check = fields.pop("keyed_by"), fields.pop("key_check", "")
    try:
        params = kind(**fields)
    except ParameterError as fault:
        raise CorruptSketchError(f"parameters: {fault}") from None
    if keyed_by == "secret":
        if params.id_mix == "none":
            refuse("keyed by a secret, yet id_mix is 'none'; a key has no use there")
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
    if params.fingerprint != opening.fingerprint:
        refuse(
            f"fingerprint is {opening.fingerprint.hex()}; the parameters give "
            f"{params.fingerprint.hex()}"
        )
    return params
