"""The sections of a sketch on the wire: its header, rows as bit-packed columns, and labels.

The header of any family can be read without the rows. Use it to route bytes, and to reject them by
size, capacity or time before any allocation.

Rows are in canonical order: time, then id, then weight, all descending. A packed row takes about
the id bits plus two bytes (``bitpack.c``). A general compressor gained nothing on these columns.

One kernel reads correct bytes and checks everything (``rows.c``). If it fails, a slow reader runs
one check after another to name the fault.

**Labels**: rows contain ranks, and the texts follow the rows. For a label state, a row's value is
the rank of its code in the sorted dictionary. After the rows of all repetitions come the label
count and each label in code order: length and UTF-8 text. Codes are not written, because they
follow from the texts.

The reader requires valid UTF-8 of at most 1,024 bytes, strictly rising codes, a row for every
label, and a label for every rank. So each state has one encoding without unused labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec import _native, fields
from decaysketch.core.codec.fields import (
    CHECKSUM_BYTES,
    Opening,
    Reader,
    check_time,
    put_varint,
    refuse,
)
from decaysketch.core.labels import MAX_LABEL_BYTES, MAX_LABELS, Labels, code_of
from decaysketch.core.observations import MISSING_KEY, no_values
from decaysketch.core.params import SketchParams

__all__ = [
    "CopyHeader",
    "Header",
    "Rows",
    "check_canonical",
    "check_rows",
    "codes_of_ranks",
    "decode_rows",
    "encode_labels",
    "encode_rows",
    "first_out_of_order",
    "ranks_of",
    "read_labels",
    "read_rows",
]

Int64Array = npt.NDArray[np.int64]


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
        fields.check_row_count(self.rows, capacity, levels)


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


def encode_labels(labels: Labels) -> bytes:
    """Encode the labels that follow the rows."""
    body = bytearray()
    put_varint(body, len(labels))
    for label in labels.texts:
        text = label.encode()
        put_varint(body, len(text))
        body += text
    return bytes(body)


def ranks_of(labels: Labels, value_keys: Int64Array) -> Int64Array:
    """Convert value keys to ranks."""
    missing = value_keys == MISSING_KEY
    ranks = labels.places(value_keys).astype(np.int64, copy=False)
    return np.where(missing, np.int64(MISSING_KEY), ranks)


def read_labels(
    blob: bytes, at: int, columns: Sequence[Int64Array], id_key: bytes | None
) -> tuple[Labels, int]:
    """Read labels from byte ``at`` of a sealed blob. Return them and the offset after them.

    Args:
        columns: the ranks in every repetition. Each must have a label.
        id_key: the stream's secret.
    """
    used = [np.unique(column) for column in columns]
    ranks = np.unique(np.concatenate(used))
    if len(ranks) and ranks[0] == MISSING_KEY:
        ranks = ranks[1:]
    reader = Reader(memoryview(blob)[: -fields.CHECKSUM_BYTES], at)
    count = reader.varint("number of labels")
    if count > MAX_LABELS:
        refuse(f"number of labels is {count}; expected at most {MAX_LABELS}")
    if len(ranks) and not 0 <= int(ranks[0]) <= int(ranks[-1]) < count:
        wrong = int(ranks[0]) if ranks[0] < 0 else int(ranks[-1])
        refuse(f"a row has label {wrong}; there are {count}")
    if len(ranks) != count:
        refuse(f"number of labels is {count}, of which rows have {len(ranks)}; expected all")
    codes, texts = np.empty(count, np.int64), []
    before = -1
    for number in range(count):
        text = _label(reader, f"label {number}")
        code = code_of(text, id_key)
        if code <= before:
            refuse(f"label {number} has code {code} after {before}; expected a larger one")
        codes[number] = before = code
        texts.append(text)
    codes.setflags(write=False)
    return Labels(codes, tuple(texts)), reader.at


def _label(reader: Reader, name: str) -> str:
    length = reader.varint(f"length of {name}")
    if length > MAX_LABEL_BYTES:
        refuse(f"length of {name} is {length}; expected at most {MAX_LABEL_BYTES}")
    text = reader.take(length, name)
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        refuse(f"{name} is {text[:40]!r}; expected UTF-8")


def codes_of_ranks(labels: Labels, ranks: Int64Array) -> Int64Array:
    """Convert ranks to value keys."""
    missing = ranks == MISSING_KEY
    if not len(labels):
        return ranks
    return np.where(missing, np.int64(MISSING_KEY), labels.codes[np.where(missing, 0, ranks)])


_COLUMNS = ("times", "ids", "weights", "values")


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


def encode_rows(rows: Rows, value_type: str, *, divides: bool = True) -> bytes:
    """Encode the packed columns, padded to a byte. O(rows), about 6 ns per row.

    Args:
        divides: whether times are divided by their common divisor. Older bytes have no divisors.
    """
    return _native.pack_rows(*rows, value_type == "float64", divides)


def read_rows(
    params: SketchParams, blob: bytes, at: int, count: int, newest: int | None
) -> tuple[Rows, int]:
    """Read and check columns from byte ``at`` of a sealed blob. Return them and the offset after
    them.

    Equal to :func:`decode_rows` followed by :func:`check_rows` and :func:`check_canonical`.
    O(rows), about 10 ns per row.
    """
    if count <= len(blob):  # else they take much memory for their bytes
        rows, stop = Rows.room(count), len(blob) - CHECKSUM_BYTES
        floats = params.value_type == "float64"
        end = _native.read_rows(
            blob, at, stop, newest or 0, params.id_bits, params.max_weight, floats, *rows
        )
        if end >= 0:
            return rows, end
    rows, end = decode_rows(blob, at, count, newest, params.value_type)
    check_rows(params, rows)
    check_canonical(blob, at, end, rows, params.value_type)
    return rows, end


def decode_rows(
    blob: bytes, at: int, count: int, newest: int | None, value_type: str
) -> tuple[Rows, int]:
    """Read columns from byte ``at`` of a sealed blob. Return them and the offset after them.

    The read stays inside the blob, and the bytes bound the memory. The rows are not checked
    otherwise.
    """
    stop, floats = len(blob) - CHECKSUM_BYTES, value_type == "float64"
    outcome, bits = _native.scan_rows(blob, at, stop, count, floats)
    _check_scan(outcome)
    rows = Rows.room(count)
    _native.unpack_rows(blob, at, stop, newest or 0, floats, *rows)
    return rows, at + -(-bits // 8)


def first_out_of_order(rows: Rows) -> int:
    """Return the first row not strictly after its predecessor in descending (time, id, weight), or
    -1.
    """
    return _native.first_out_of_order(rows.times, rows.ids, rows.weights)


def _check_scan(outcome: tuple[int, int, int, int, int]) -> None:
    code, start, column, found, limit = outcome
    if code == _native.OK:
        return
    fault = {
        _native.PAST_END: f"it ends at bit {found} of {limit}",
        _native.WIDTH_TOO_LARGE: f"a width or mode is {found}; expected at most {limit}",
        _native.TOO_FEW_BITS: (
            f"ids and weights take {found} bits; telling the rows apart takes at least {limit}"
        ),
    }[code]
    refuse(f"block of rows at {start}, {_COLUMNS[column]}: {fault}")


def check_rows(params: SketchParams, rows: Rows) -> None:
    """Check ranges, strict canonical order, and that no (id, weight) occurs twice."""
    times, ids, weights, value_keys = rows
    if not len(times):
        return
    row = first_out_of_order(rows)
    if row >= 0:
        pair = [(int(times[i]), int(ids[i]), int(weights[i])) for i in (row - 1, row)]
        refuse(
            f"row {row} is (time, id, weight) = {pair[1]} after {pair[0]}; expected a smaller one"
        )
    check_time(int(times[-1]), f"time of row {len(times) - 1}")  # the first is in the header
    for name, column, low, high in (
        ("id", ids, 0, (1 << params.id_bits) - 1),
        ("weight", weights, 1, params.max_weight),
    ):
        if int(column.min()) < low or int(column.max()) > high:
            row = int(((column < low) | (column > high)).argmax())
            refuse(f"{name} of row {row} is {int(column[row])}; expected {low} to {high}")
    if params.value_type == "float64":
        no_number = no_values(value_keys) & (value_keys != MISSING_KEY)
        if no_number.any():
            row = int(no_number.argmax())
            refuse(
                f"value key of row {row} is {int(value_keys[row])}; expected that of a finite "
                "float64, -0.0 excepted, or of a range"
            )
    # One integer for each (id, weight). Sorting takes no longer for chosen input than for any.
    identity = ids * np.int64(params.max_weight) + weights
    identity.sort()
    twice = identity[1:] == identity[:-1]
    if twice.any():
        id_, weight = divmod(int(identity[int(twice.argmax())]) - 1, params.max_weight)
        refuse(f"(id, weight) = {(id_, weight + 1)} is there twice; expected once")


def check_canonical(blob: bytes, at: int, end: int, rows: Rows, value_type: str) -> None:
    """Check that encoding the decoded rows gives the same bytes, with or without divisors."""
    given = blob[at:end]
    again = encode_rows(rows, value_type)
    if given != again and given != encode_rows(rows, value_type, divides=False):
        pairs = zip(given, again, strict=False)
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(given), len(again)))
        refuse(
            f"not canonical: the rows take {len(given)} bytes and differ from byte "
            f"{at + first} on; encoding them again gives {len(again)}"
        )
