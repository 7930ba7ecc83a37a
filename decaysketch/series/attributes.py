"""Series attributes: texts that queries filter and group by.

A stream may declare attributes, such as ``job`` and ``region``. Each series then has a text or null
for every attribute, as a Prometheus series has labels.

*Attributes are part of the series identity.* The state names a series by hashing the given id
together with its attributes (:func:`read_attributes`). So a device that changes its region begins a
new series, and keeps its entity. A state contains attributes only for series with rows. It is
therefore still determined by the set of rows, and no kernel knows attributes.

Among n series, two receive the same name with probability about n^2 / 2^(id_bits + 1). They become
one, with the attributes that either has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from decaysketch.core.column_types import MAX_COLUMN_NAME_BYTES, MAX_COLUMNS, ColumnTypes
from decaysketch.core.labels import MAX_LABEL_BYTES
from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.records import Record, Records, encode_records
from decaysketch.errors import ObservationError, ParameterError

__all__ = [
    "LEAST_ID_BITS",
    "AttributeBook",
    "GivenAttributes",
    "read_attributes",
    "read_names",
    "types_of",
]

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
Tuple = tuple[str | None, ...]

LEAST_ID_BITS = 40
"""With fewer, two series in a large fleet could receive one name."""

_PERSON = b"ds-attributes-1"
_SLACK = 1_000  # tuples without a series, before they are dropped
_TOO_LONG = 0
_TAKEN = {"value", "weight", "time", "id", "entity", "start", "v", "w", "age"}
_DENSE = 1 << 12  # combinations that are numbered by a table, without a sort
_TUPLE_BYTES = 200  # of memory, in addition to its texts


def read_names(given: Any) -> tuple[str, ...]:
    """Return declared attributes, rising.

    Args:
        given: names, or one text such as ``"job, region"``.

    Raises:
        ParameterError: a name is no printable text, occurs twice, or there are more than 32.
    """
    if isinstance(given, str):
        given = [part.strip() for part in given.split(",") if part.strip()]
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise ParameterError(f"attributes is {given!r:.80}; expected names, such as 'job, region'")
    names = list(given)
    if len(names) > MAX_COLUMNS:
        raise ParameterError(f"attributes has {len(names)} names; expected at most {MAX_COLUMNS}")
    for name in names:
        if not isinstance(name, str) or not name or not name.isprintable() or "," in name:
            raise ParameterError(
                f"attributes has the name {name!r:.80}; expected a printable text without a comma"
            )
        if len(name.encode()) > MAX_COLUMN_NAME_BYTES:
            raise ParameterError(
                f"attributes has a name of {len(name.encode())} bytes, {name[:40]!r}...; expected "
                f"at most {MAX_COLUMN_NAME_BYTES}"
            )
        if name in _TAKEN:
            raise ParameterError(
                f"attributes has the name {name!r}, which rows and queries use; give the attribute "
                "another name"
            )
        if names.count(name) > 1:
            raise ParameterError(f"attributes has {name!r} twice; expected each name once")
    return tuple(sorted(names, key=str.encode))


def types_of(names: Sequence[str]) -> ColumnTypes:
    """Return attributes as column declarations."""
    return tuple((name, "text") for name in names)


@dataclass(frozen=True, eq=False)
class GivenAttributes:
    """The attributes in a batch.

    Attributes:
        tuples: distinct ones.
        numbers: int64[n], each row's tuple.
        ids: int64[n], each row's series.
    """

    tuples: Sequence[Tuple]
    numbers: Int64Array
    ids: Int64Array

    @classmethod
    def of_series(cls, records: Records, rows: Int64Array, ids: Int64Array) -> Self:
        """Return the same for rows whose series have these attributes.

        Args:
            records: a row for each series.
            rows: int64[n], the position of each row's series there.
            ids: int64[n], each row's series.
        """
        tuples, numbers = _tuples_of(records)
        return cls(tuples, numbers[rows], ids)

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        return np.argsort(self.ids, kind="stable")

    def of(self, series: Int64Array) -> Int64Array:
        """Return the tuple for each given series. The batch has rows for all."""
        places = np.searchsorted(self.ids, series, sorter=self._order)
        found: Int64Array = self.numbers[self._order[places]]
        return found


def read_attributes(
    given: Any, names: Sequence[str], ids: Int64Array, bits: int, key: bytes | None
) -> GivenAttributes:
    """Check a batch's attributes, and name its series. O(rows * names).

    Args:
        given: texts by name, each one text for all rows or a column, or one mapping for each row.
            A missing attribute is null.
        names: the declared ones, rising.
        ids: int64[n], given ids.
        bits: number of bits in a name.
        key: the stream's secret, if it has one.

    Raises:
        ObservationError: an attribute is not declared, has another length, or is no text. The error
            names the attribute, the row and the value.
    """
    if isinstance(given, Mapping) and (unknown := [name for name in given if name not in names]):
        raise ObservationError(
            f"attributes has {unknown[0]!r:.80}; this stream has {', '.join(names) or 'none'}",
            column="attributes",
        )
    tuples, numbers = _tuples_of(encode_records(given, types_of(names), len(ids)))
    words = np.array([_word(each, key) for each in tuples], np.uint64)
    if (long := words == _TOO_LONG).any():
        row = int(np.argmax(long[numbers]))
        size = _size(tuples[int(numbers[row])])
        raise ObservationError(
            f"attributes of row {row} have {size} bytes together; expected at most "
            f"{MAX_LABEL_BYTES}",
            column="attributes", row=row, value=size,
        )  # fmt: skip
    return GivenAttributes(tuples, numbers, _named(ids, words[numbers], bits))


def _size(attributes: Tuple) -> int:
    return sum(len(text.encode()) for text in attributes if text is not None)


def _tuples_of(records: Records) -> tuple[list[Tuple], Int64Array]:
    """Return distinct rows, and for each row its number among them."""
    whole, cells = np.zeros(len(records), np.int64), 1
    for column in records.columns:
        if cells * (len(column.texts) + 1) >= 1 << 62:  # before products overflow
            found, whole = np.unique(whole, return_inverse=True)
            cells = len(found)
        whole = whole * (len(column.texts) + 1) + np.maximum(column.keys, -1) + 1
        cells *= len(column.texts) + 1
    firsts, numbers = _distinct(whole, cells)
    columns = [
        [column.texts[key] if key >= 0 else None for key in column.keys[firsts].tolist()]
        for column in records.columns
    ]
    return list(zip(*columns, strict=True)), numbers


def _distinct(whole: Int64Array, cells: int) -> tuple[npt.NDArray[np.intp], Int64Array]:
    """Return where each distinct number comes first, and every entry's rank."""
    if cells > max(_DENSE, 4 * len(whole)):
        _, firsts, numbers = np.unique(whole, return_index=True, return_inverse=True)
        return firsts, numbers.astype(np.int64, copy=False)
    first = np.full(cells, -1, np.intp)
    first[whole[::-1]] = np.arange(len(whole) - 1, -1, -1)
    there = first >= 0
    return first[there], (np.cumsum(there) - 1)[whole]


@lru_cache(maxsize=1 << 14)
def _word(attributes: Tuple, key: bytes | None) -> int:
    """Hash a tuple to 64 bits. Each text is preceded by its length plus 1, and null has length 0.
    Return ``_TOO_LONG`` if the texts are too long together.
    """
    if _size(attributes) > MAX_LABEL_BYTES:
        return _TOO_LONG
    parts = []
    for text in attributes:
        encoded = b"" if text is None else text.encode()
        parts += [(0 if text is None else len(encoded) + 1).to_bytes(2, "little"), encoded]
    digest = hashlib.blake2b(b"".join(parts), digest_size=8, person=_PERSON, key=key or b"")
    return int.from_bytes(digest.digest(), "little") | 1  # and so not _TOO_LONG


def _named(ids: Int64Array, words: UInt64Array, bits: int) -> Int64Array:
    """Mix ids with attributes, and return the upper bits."""
    with np.errstate(over="ignore"):
        word = ids.view(np.uint64) ^ words
        word = (word ^ word >> np.uint64(27)) * np.uint64(0x3C79AC492BA7B653)
        word = (word ^ word >> np.uint64(33)) * np.uint64(0x1C69B3F74AC4AE35)
        word ^= word >> np.uint64(27)
    return (word >> np.uint64(64 - bits)).view(np.int64)


class AttributeBook:
    """Attributes by series code, for a catalog.

    Args:
        names: the declared attributes, rising.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._tuples: list[Tuple] = []
        self._number: dict[Tuple, int] = {}
        self._of = np.empty(0, np.int64)
        self._text_bytes = 0

    @property
    def nbytes(self) -> int:
        """Memory, about."""
        return self._of.nbytes + self._text_bytes + len(self._tuples) * _TUPLE_BYTES

    @classmethod
    def of(cls, records: Records) -> Self:
        """Return the book for a state. Its series have the codes 0, 1, ..."""
        book = cls([name for name, _ in records.types])
        tuples, numbers = _tuples_of(records)
        book._of = book._entered(tuples)[numbers]
        return book

    def learn(self, series: Int64Array, given: GivenAttributes) -> None:
        """Add the series that a catalog learned from a batch. O(new log rows)."""
        new = series[len(self._of) :]
        if len(new):
            self._add(given.of(new), given.tuples)

    def join(self, other: Self, codes: npt.NDArray[np.uint32], known: int) -> None:
        """Add another catalog's series by their codes here. Codes from ``known`` on are new."""
        new = np.flatnonzero(codes >= known)
        numbers = np.empty(len(new), np.int64)
        numbers[codes[new].astype(np.int64) - known] = other._of[new]
        if len(new):
            self._add(numbers, other._tuples)

    def keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Forget all series except chosen ones, which keep their order."""
        self._of = self._of[chosen]
        if len(self._tuples) > 2 * len(self._of) + _SLACK:
            used, self._of = np.unique(self._of, return_inverse=True)
            tuples, self._tuples, self._number, self._text_bytes = self._tuples, [], {}, 0
            self._entered([tuples[number] for number in used.tolist()])

    def records(self, codes: Any) -> Records:
        """Return attributes by code, a row for each. O(series + texts)."""
        chosen = self._of[codes]
        used, rows = np.unique(chosen, return_inverse=True)
        columns = []
        for place in range(len(self.names)):
            texts = [self._tuples[number][place] for number in used.tolist()]
            distinct = sorted({text for text in texts if text is not None}, key=str.encode)
            rank: dict[str | None, int] = {text: k for k, text in enumerate(distinct)}
            rank[None] = MISSING_KEY
            keys = np.array([rank[text] for text in texts], np.int64)
            columns.append(Record(keys[rows], tuple(distinct)))
        return Records(types_of(self.names), tuple(columns))

    def _add(self, numbers: Int64Array, tuples: Sequence[Tuple]) -> None:
        used, places = np.unique(numbers, return_inverse=True)
        entered = self._entered([tuples[number] for number in used.tolist()])
        self._of = np.concatenate([self._of, entered[places]])

    def _entered(self, tuples: Sequence[Tuple]) -> Int64Array:
        """Return tuple numbers, and add tuples that are new."""
        found = np.empty(len(tuples), np.int64)
        for place, each in enumerate(tuples):
            number = self._number.setdefault(each, len(self._tuples))
            if number == len(self._tuples):
                self._tuples.append(each)
                self._text_bytes += sum(len(text) for text in each if text is not None)
            found[place] = number
        return found
