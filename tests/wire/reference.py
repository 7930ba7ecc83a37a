"""Bytes of a sketch in plain Python integers, written from ``docs/wire-format.md`` alone.

An oracle for :mod:`decaysketch.querytime.wire`: it shares nothing with it. It also writes what no
encoder would: every choice that the format leaves to a stated rule can be overruled, so that tests
can build bytes whose checksum is right and whose content is not.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import sympy
from support.records import tuples_of

MISSING = -(2**63)
NO_WATERMARK = -(2**63)
BLOCK = 256
RAW = 15


def varint(number: int) -> bytes:
    out = []
    while True:
        out.append(number % 128 + (128 if number >= 128 else 0))
        number //= 128
        if number == 0:
            return bytes(out)


def zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def signed(number: int) -> int:
    """The number modulo 2^64, from -2^63 on."""
    return (number + 2**63) % 2**64 - 2**63


class Bits:
    """A string of bits; the first one is the lowest bit of the first byte."""

    def __init__(self) -> None:
        self.number = 0
        self.length = 0

    def put(self, value: int, width: int) -> None:
        assert 0 <= value < 1 << width, (value, width)
        self.number |= value << self.length
        self.length += width

    def put_base(self, base: int) -> None:
        word = zigzag(base)
        self.put(word.bit_length(), 7)
        self.put(word, word.bit_length())

    def to_bytes(self) -> bytes:
        return self.number.to_bytes(-(-self.length // 8), "little")


@dataclass
class Plan:
    """Width, number of high bits of an exception, and the exceptions of a column."""

    width: int
    extra: int
    exceptions: list[tuple[int, int]]
    size: int


def plan(residuals: Sequence[int]) -> Plan:
    longest = max(r.bit_length() for r in residuals)
    place = (len(residuals) - 1).bit_length()

    def with_width(width: int) -> Plan:
        exceptions = [(i, r >> width) for i, r in enumerate(residuals) if r >> width]
        size = len(residuals) * width
        if exceptions:
            size += 7 + place + min(len(residuals), len(exceptions) * place)
            size += len(exceptions) * (longest - width)
        return Plan(width, longest - width, exceptions, size)

    return min((with_width(w) for w in range(longest, -1, -1)), key=lambda p: p.size)


def put_column(bits: Bits, residuals: Sequence[int], chosen: Plan | None = None) -> None:
    chosen = chosen or plan(residuals)
    place = (len(residuals) - 1).bit_length()
    bits.put(chosen.width, 7)
    bits.put(int(chosen.extra > 0), 1)
    if chosen.extra:
        bits.put(chosen.extra, 7)
        bits.put(len(chosen.exceptions) - 1, place)
    for residual in residuals:
        bits.put(residual & (1 << chosen.width) - 1, chosen.width)
    if chosen.extra:
        positions = [position for position, _ in chosen.exceptions]
        if len(positions) * place > len(residuals):
            for i in range(len(residuals)):
                bits.put(int(i in positions), 1)
        else:
            for position in positions:
                bits.put(position, place)
        for _, high in chosen.exceptions:
            bits.put(high, chosen.extra)


def put_times(bits: Bits, steps: Sequence[int]) -> None:
    """The differences, or their quotients by the greatest common divisor."""
    divisor = math.gcd(*steps)
    if 1 < divisor < 2**63:
        quotients = [step // divisor for step in steps]
        saved = plan(steps).size - plan(quotients).size - 7 - divisor.bit_length()
        if saved >= 512:
            bits.put(64 + divisor.bit_length(), 7)
            bits.put(divisor, divisor.bit_length())
            steps = quotients
    put_column(bits, steps)


def put_frame(bits: Bits, numbers: Sequence[int]) -> None:
    bits.put_base(min(numbers))
    put_column(bits, [number - min(numbers) for number in numbers])


def float_of(key: int) -> float:
    word = key if key >= 0 else key ^ 0x7FFFFFFFFFFFFFFF
    number: float = struct.unpack("<d", struct.pack("<q", word))[0]
    return number


def key_of(number: float) -> int:
    word: int = struct.unpack("<q", struct.pack("<d", number + 0.0))[0]
    return word if word >= 0 else word ^ 0x7FFFFFFFFFFFFFFF


def decimals(keys: Sequence[int]) -> tuple[int, list[int]]:
    numbers = [float_of(key) for key in keys]
    for places in range(15):
        power = float(10**places)
        scaled = [x * power for x in numbers]
        if all(abs(s) <= 2**53 + 0.5 for s in scaled):
            integers = [round(s) for s in scaled]
            if all(
                abs(j) <= 2**53 and j / power == x for j, x in zip(integers, numbers, strict=True)
            ):
                return places, integers
    return RAW, list(keys)


def put_values(bits: Bits, keys: Sequence[int], floats: bool) -> None:
    present = [key for key in keys if key != MISSING]
    if not present:
        bits.put(2, 2)
        return
    bits.put(0 if len(present) == len(keys) else 1, 2)
    if len(present) < len(keys):
        for key in keys:
            bits.put(int(key != MISSING), 1)
    if floats:
        places, present = decimals(present)
        bits.put(places, 4)
    put_frame(bits, present)


Row = tuple[int, int, int, int]  # time, id, weight, value key


def rows_to_bytes(rows: Sequence[Row], floats: bool, put_times: Any = put_times) -> bytes:
    """``put_times``: ``put_column``, for bytes from before there were divisors."""
    bits = Bits()
    last_time, last_id = (rows[0][0] if rows else 0), 0
    for start in range(0, len(rows), BLOCK):
        times, ids, weights, keys = zip(*rows[start : start + BLOCK], strict=True)
        put_times(bits, [a - b for a, b in zip((last_time, *times), times, strict=False)])
        steps = [zigzag(signed(a - b)) for a, b in zip((last_id, *ids), ids, strict=False)]
        frame = [number - min(ids) for number in ids]
        base_size = 7 + zigzag(min(ids)).bit_length()
        by_steps = plan(steps).size < base_size + plan(frame).size
        bits.put(int(by_steps), 1)
        if by_steps:
            put_column(bits, steps)
        else:
            put_frame(bits, ids)
        put_frame(bits, weights)
        put_values(bits, keys, floats)
        last_time, last_id = times[-1], ids[-1]
    return bits.to_bytes()


def watermarks_to_bytes(watermarks: Sequence[int]) -> bytes:
    out = varint(len(watermarks))
    for i, t in enumerate(watermarks):
        out += varint(zigzag(t) if i == 0 else watermarks[i - 1] - t)
    return out


@dataclass(frozen=True)
class Copy:
    """What the bytes hold of one copy."""

    watermarks: Sequence[int]  # those that are set
    rows: Sequence[Row]
    count: int | None = None  # of rows, where it is not to be len(rows)
    first_time: int | None = None
    columns: bytes | None = None  # instead of those of the rows

    def head(self) -> bytes:
        out = watermarks_to_bytes(self.watermarks)
        count = len(self.rows) if self.count is None else self.count
        out += varint(count)
        if count:
            first = self.rows[0][0] if self.first_time is None else self.first_time
            out += varint(zigzag(first))
        return out

    def packed(self, floats: bool) -> bytes:
        return rows_to_bytes(self.rows, floats) if self.columns is None else self.columns


@dataclass(frozen=True)
class Blob:
    """Bytes field by field, with a right checksum around whatever the fields hold."""

    fingerprint: bytes
    params: bytes | None  # in full, already packed
    capacity: int
    watermarks: Sequence[int]  # these and the rows are of copy 0; see Copy
    rows: Sequence[Row]
    floats: bool
    others: Sequence[Copy] = ()
    copies: int | None = None  # their number, where it is not to be the right one
    magic: bytes = b"\xd5DSK"
    version: int = 1
    family: int = 1
    required: int | None = None
    optional: int = 0
    count: int | None = None
    first_time: int | None = None
    columns: bytes | None = None
    sections: Sequence[bytes] = field(default=())
    labels: Sequence[bytes] | None = None  # behind the rows, in the order of their codes
    table: bytes = b""  # the columns of a stream that has them, section 4.6
    by_count: Sequence[int] | None = None  # watermarks of a sample by count; rows are of both
    strata: bytes | None = None  # of a sketch with strata, section 4.7: all behind the capacity
    listed: int | None = None  # how many these are, where it is not to be the right number

    def to_bytes(self) -> bytes:
        first = Copy(self.watermarks, self.rows, self.count, self.first_time, self.columns)
        copies = (first, *self.others)
        several = len(copies) > 1
        required = self.required
        if required is None:
            required = int(self.params is not None) + 2 * int(several)
            required += 4 * int(self.by_count is not None)
            required += 8 * int(self.strata is not None)
        out = self.magic + bytes((self.version, self.family, required, self.optional))
        out += self.fingerprint + (self.params or b"")
        out += varint(self.capacity)
        if several:
            out += bytes((len(copies) if self.copies is None else self.copies,))
        if self.by_count is not None:
            out += watermarks_to_bytes(self.by_count)
        if self.strata is not None:
            out += self.strata
        else:
            out += b"".join(copy.head() for copy in copies)
            out += b"".join(copy.packed(self.floats) for copy in copies)
        if self.labels is not None:
            out += varint(len(self.labels) if self.listed is None else self.listed)
            out += b"".join(varint(len(text)) + text for text in self.labels)
        out += self.table
        for section in self.sections:
            out += varint(len(section)) + section
        return out + struct.pack("<I", zlib.crc32(out))

    def but(self, **changes: Any) -> bytes:
        """The bytes with some fields replaced."""
        return replace(self, **changes).to_bytes()


def params_to_bytes(fields: dict[str, Any], check: bytes = b"") -> bytes:
    """Parameters in full, from ``SketchParams.to_dict()``."""
    choices = (
        int(fields["value_type"] == "float64")
        + 2 * int(fields["id_mix"] == "none")
        + 4 * int(fields["keyed_by"] == "secret")
        + 8 * int(fields["value_type"] == "label")
        + 16 * int(fields["value_type"] == "record")
        + 32 * int("revision" in fields)
    )
    types = fields.get("columns", {})
    schema = varint(len(types)) if types else b""
    for name in sorted(types, key=str.encode):
        number = ("float64", "int64", "bool", "text").index(types[name])
        schema += varint(len(name.encode())) + name.encode() + bytes((number,))
    if "revision" in fields:
        schema += varint(sorted(types, key=str.encode).index(fields["revision"]))
    if strata := fields.get("strata"):
        names = sorted(types, key=str.encode)
        schema += varint(fields["max_strata"]) + varint(len(strata))
        schema += b"".join(varint(names.index(name)) for name in strata)
    unit = fields["time_unit"].encode()
    return (
        bytes((fields["id_bits"], fields["copies"], choices))
        + fields["seed"].to_bytes(8, "little")
        + bytes((len(unit),))
        + unit
        + varint(fields["max_weight"])
        + check
        + schema
    )


def blob_of(*states: Any, embed_params: bool = True) -> Blob:
    """What the format makes of the states of a sketch, as fields that can still be changed."""
    params = states[0].params
    check = params.key_check if params.id_key is not None else b""
    copies, texts, by_count = list(map(_copy_of, states)), None, None
    tuples = [tuples_of(s.records) for s in states] if params.value_type == "record" else []
    if params.to_dict().get("objectives") == "weight,count":
        first, second = copies
        held: dict[Any, Any] = {}
        for copy, values in zip(copies, tuples or [copy.rows for copy in copies], strict=True):
            held |= {row[:3]: (row, value) for row, value in zip(copy.rows, values, strict=True)}
        union = [held[name] for name in sorted(held, reverse=True)]
        tuples = [[value for _, value in union]] if tuples else []
        copies = [replace(first, rows=[row for row, _ in union])]
        by_count = second.watermarks
    if params.value_type == "label":
        known = {code_of(text, params.id_key or b""): text for text in states[0].labels.texts}
        held = {key for copy in copies for *_, key in copy.rows} - {MISSING}
        ranks = {code: rank for rank, code in enumerate(sorted(held))} | {MISSING: MISSING}
        texts = [known[code].encode() for code in sorted(held)]
        copies = [
            replace(copy, rows=[(*row[:3], ranks[row[3]]) for row in copy.rows]) for copy in copies
        ]
    table = b""
    if params.value_type == "record":
        types = [params.to_dict()["columns"][name] for name, _ in params.columns]
        tables = [list(zip(*each, strict=True)) or [()] * len(types) for each in tuples]
        table = table_to_bytes(types, tables)
        copies = [replace(copy, rows=[(*row[:3], MISSING) for row in copy.rows]) for copy in copies]
    first, *others = copies
    strata = None
    if params.strata:
        strata, table = strata_to_bytes(states[0]), b""
    return Blob(
        fingerprint=params.fingerprint,
        params=params_to_bytes(params.to_dict(), check) if embed_params else None,
        capacity=params.capacity,
        watermarks=first.watermarks,
        rows=first.rows,
        floats=params.value_type == "float64",
        others=others,
        labels=texts,
        table=table,
        by_count=by_count,
        strata=strata,
    )


def strata_to_bytes(state: Any) -> bytes:
    """Section 4.7: everything behind the capacity."""
    params = state.params
    times = state.times.tolist()
    out = varint(len(times)) + (varint(zigzag(times[0])) if times else b"")
    rows = list(zip(times, state.ids.tolist(), state.weights.tolist(), strict=True))
    held = tuples_of(state.records)
    names = [name for name, _ in params.columns]
    keys = [state.names(k) for k in range(len(state.strata))]
    out += varint(len(keys))
    if not keys:
        return out
    out += table_to_bytes(["text"] * len(params.strata), [list(zip(*keys, strict=True))])
    bodies, order = [], []
    for k, name in enumerate(keys):
        where = [names.index(each) for each in params.strata]
        mine = [r for r in range(len(rows)) if tuple(held[r][c] for c in where) == name]
        marks = state.marks[slice(*state.mark_offsets[k : k + 2])].tolist()
        copy = Copy(marks, [(*rows[r], MISSING) for r in mine])
        bodies.append(copy.head() + (copy.packed(False) if mine else b""))
        order += mine
    out += values_to_bytes([len(body) for body in bodies], False) + b"".join(bodies)
    own = [c for c, name in enumerate(names) if name not in params.strata]
    if own:
        types = [params.columns[c][1] for c in own]
        out += table_to_bytes(types, [[[held[r][c] for r in order] for c in own]])
    return out


def table_to_bytes(types: Sequence[str], copies: Sequence[Sequence[Sequence[Any]]]) -> bytes:
    """Section 4.6: texts, then the columns of each copy. Values as Python has them, None: null."""
    out = b""
    places: list[dict[Any, int]] = []
    for number, kind in enumerate(types):
        held = {value for columns in copies for value in columns[number]} - {None}
        texts = sorted(value.encode() for value in held) if kind == "text" else []
        places.append({text.decode(): place for place, text in enumerate(texts)})
        if kind != "text":
            continue
        out += varint(len(texts))
        for before, text in zip([b"", *texts], texts, strict=False):
            shared = 0
            while before[: shared + 1] == text[: shared + 1] and shared < min(
                len(before), len(text)
            ):
                shared += 1
            out += varint(shared) + varint(len(text) - shared) + text[shared:]
    for columns in copies:
        for kind, values, place in zip(types, columns, places, strict=True):
            if values:
                out += column_to_bytes(kind, values, place)
    return out


def column_to_bytes(kind: str, values: Sequence[Any], place: dict[Any, int]) -> bytes:
    """A byte that says how, and the packed column."""
    key = {"float64": key_of, "text": place.__getitem__}.get(kind, int)
    keys = [MISSING if value is None else key(value) for value in values]
    plain = b"\0" + values_to_bytes(keys, kind == "float64")
    if kind != "float64" or any(as_single(v) is None for v in values if v is not None):
        return plain
    shorter = [MISSING if value is None else key_of(shortest(value)) for value in values]
    packed = b"\1" + values_to_bytes(shorter, True)
    return packed if len(packed) < len(plain) else plain


def values_to_bytes(keys: Sequence[int], floats: bool) -> bytes:
    bits = Bits()
    for start in range(0, len(keys), BLOCK):
        put_values(bits, keys[start : start + BLOCK], floats)
    return bits.to_bytes()


def as_single(number: float) -> float | None:
    """The number, if it is a float32."""
    try:
        single: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return None
    return single if single == number else None


def shortest(number: float) -> float:
    """Of decimals that round to this float32 the one with the fewest digits, 9 at most."""
    for digits in range(10):
        power = float(10**digits)
        near = round(number * power) / power
        if struct.pack("<f", near) == struct.pack("<f", number):
            return near
    return number


def _copy_of(state: Any) -> Copy:
    columns: Iterable[Sequence[int]] = (
        c.tolist() for c in (state.times, state.ids, state.weights, state.value_keys)
    )
    return Copy(
        watermarks=[t for t in state.watermarks.tolist() if t != NO_WATERMARK],
        rows=list(zip(*columns, strict=True)),
    )


def code_of(label: str, secret: bytes = b"") -> int:
    """Section 3.6: the code of a label."""
    return int.from_bytes(personal_hash(label.encode(), b"dsk-label", secret), "big") // 2


def with_checksum(body: bytes) -> bytes:
    """A body and the checksum that belongs to it."""
    return body + struct.pack("<I", zlib.crc32(body))


# ------------------------------------------------------------- section 5.1: the hash function

GOLDEN = 0x9E3779B97F4A7C15
WORD = 2**64


def mix64(z: int) -> int:
    z ^= z >> 27
    z = z * 0x3C79AC492BA7B653 % WORD
    z ^= z >> 33
    z = z * 0x1C69B3F74AC4AE35 % WORD
    return z ^ z >> 27


def derive(seed: int, purpose: int, index: int) -> int:
    stream = mix64((mix64((seed + GOLDEN) % WORD) + purpose * GOLDEN) % WORD)
    return mix64((stream + (index + 1) * GOLDEN) % WORD)


def below(bound: int, seed: int, purpose: int, index: int = 0) -> int:
    high, low = (derive(seed, purpose, 2 * index + i) for i in (0, 1))
    return (high * WORD + low) % bound


def personal_hash(data: bytes, person: bytes, key: bytes = b"") -> bytes:
    return hashlib.blake2b(data, digest_size=8, person=person, key=key).digest()


@dataclass(frozen=True)
class Derived:
    """Everything that section 5.1 derives from parameters (and the secret, if there is one)."""

    fields: dict[str, Any]
    secret: bytes | None = None

    @property
    def check(self) -> bytes:
        return personal_hash(self.secret, b"ds-key-check") if self.secret else bytes(8)

    @property
    def fingerprint(self) -> bytes:
        f = self.fields
        data = f["max_weight"].to_bytes(8, "little") + bytes((f["id_bits"], f["copies"]))
        data += f["seed"].to_bytes(8, "little") + self.check
        data += f"{f['time_unit']}\0{f['value_type']}\0{f['id_mix']}".encode()
        types = f.get("columns", {})
        first = f.get("revision")
        for name in sorted(types, key=lambda name: (name != first, name.encode())):
            data += f"\0{name}\0{types[name]}".encode()
        if "objectives" in f:
            data += b"\0\0" + f["objectives"].encode()
        if first is not None:
            data += b"\2" + first.encode()
        if strata := f.get("strata"):
            data += f["max_strata"].to_bytes(4, "little")
            data += b"".join(b"\1" + name.encode() for name in strata)
        return personal_hash(data, b"ds-params-1")

    @property
    def universe(self) -> int:
        return int(self.fields["max_weight"] * 2 ** self.fields["id_bits"])

    @property
    def coarsest(self) -> int:
        return (self.universe - 1).bit_length()

    @cached_property
    def prime(self) -> int:
        low = 10 * self.universe
        prime = int(sympy.nextprime(low + below(low, self.fields["seed"], 1)))
        return prime if prime < 2 * low else int(sympy.nextprime(low))

    def word(self, index: int) -> int:
        if self.secret is None:
            return derive(self.fields["seed"], 4, index)
        data = index.to_bytes(8, "little")
        return int.from_bytes(personal_hash(data, b"decaysketch-id", self.secret), "little")

    def mixed(self, id_: int) -> int:
        bits = self.fields["id_bits"]
        if self.fields["id_mix"] == "none":
            return id_
        for r in range(3):
            k, c = self.word(2 * r) % 2**bits, (self.word(2 * r + 1) | 1) % 2**bits
            id_ = (id_ ^ k) * c % 2**bits
            id_ ^= id_ >> -(-bits // 2)
        return id_

    def top_level(self, id_: int, weight: int, copy: int = 0) -> int:
        if "objectives" in self.fields and copy == 1:  # by count: of the first integer alone
            weight, copy = 1, 0
        p, seed = self.prime, self.fields["seed"]
        a, b = 1 + below(p - 1, seed, 2, copy), below(p, seed, 3, copy)
        start = self.fields["max_weight"] * self.mixed(id_)
        least = min((a * (start + j) + b) % p for j in range(weight))
        return max(i for i in range(self.coarsest + 1) if least < p >> i)
