"""Observation columns: numbers, truth values and texts, each by name.

A stream with columns stores, for each observation, a value in each declared column, or null. The
declaration belongs to the sketch configuration. All columns are int64 keys that order as the values
do (:mod:`decaysketch.core.observations`), null the least:

=========== ======================================================= ================================
type        values                                                  key
=========== ======================================================= ================================
``float64`` finite numbers. NaN is null, infinities are rejected    its value key
``int64``   integers                                                its value key
``bool``    false and true                                          0 and 1
``text``    UTF-8, at most 1,024 bytes, also empty                  its position among rising texts
=========== ======================================================= ================================

If duplicates disagree at one time, the larger tuple of columns represents the observation, with the
columns in name order. So the state depends on the set of observations alone.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from decaysketch.core.column_types import ColumnType, ColumnTypes
from decaysketch.core.labels import EncodedLabels, code_of, fault_of_label
from decaysketch.core.observations import MISSING_KEY, Observations, encode_values, prepare
from decaysketch.core.params import SketchParams
from decaysketch.errors import ObservationError

__all__ = [
    "MAX_TEXTS",
    "Dictionaries",
    "Record",
    "Records",
    "RecordsOfEach",
    "TextsOfEach",
    "comparable",
    "comparable_keys",
    "concatenated",
    "encode_records",
    "prepare_records",
    "with_used_texts",
]

MAX_TEXTS = 1 << 20
"""Distinct texts in a column."""

Int64Array = npt.NDArray[np.int64]

_ODD = np.uint64(0xFF51AFD7ED558CCD)
_SHORT = 64  # characters of a text that need no second check


# ---------------------------------------------------------------------------------------- the rows


class Record(NamedTuple):
    """One column.

    Attributes:
        keys: int64[n], ``MISSING_KEY`` where null. For texts, positions in ``texts``.
        texts: distinct texts, if the column has texts.
    """

    keys: Int64Array
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Rows in columns. Immutable.

    Attributes:
        types: name and type of each column.
        columns: one for each of them.
    """

    types: ColumnTypes
    columns: tuple[Record, ...]

    def __len__(self) -> int:
        return len(self.columns[0].keys)

    def __getitem__(self, rows: Any) -> Records:
        """Return some rows: a slice, a mask, or row numbers."""
        return Records(
            self.types, tuple(each._replace(keys=each.keys[rows]) for each in self.columns)
        )

    def with_null(self) -> Records:
        """Return the same rows, and a last one without any value."""
        return Records(
            self.types,
            tuple(each._replace(keys=np.append(each.keys, MISSING_KEY)) for each in self.columns),
        )

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes."""
        return sum(each.keys.nbytes + sum(map(sys.getsizeof, each.texts)) for each in self.columns)

    def canonical(self) -> Records:
        """Return the same rows, each text column with its used texts, rising. O(rows + texts)."""
        return Records(
            self.types,
            tuple(
                _canonical(each) if kind == "text" else each
                for each, (_, kind) in zip(self.columns, self.types, strict=True)
            ),
        )

    def column(self, name: str) -> Record:
        """Return a column that exists."""
        return self.columns[[known for known, _ in self.types].index(name)]

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return each column's type, its rows with a value, and for texts their number and bytes.
        O(rows + texts).
        """
        found: dict[str, dict[str, Any]] = {}
        for each, (name, kind) in zip(self.columns, self.types, strict=True):
            found[name] = {"type": kind, "rows": int((each.keys != MISSING_KEY).sum())}
            if kind == "text":
                size = sum(len(text.encode()) for text in each.texts)
                found[name] |= {"texts": len(each.texts), "text_bytes": size}
        return found

    def hashes(self) -> Int64Array:
        """Return 64 bits for each row's columns: equal for equal rows in any two sketches.
        O(rows * columns), and a hash for each text that a row has.
        """
        found = np.zeros(len(self), np.uint64)
        for each, (_, kind) in zip(self.columns, self.types, strict=True):
            keys = each.keys
            if kind == "text":
                codes = np.full(len(each.texts) + 1, MISSING_KEY, np.int64)
                used = np.unique(keys[keys >= 0])
                codes[used] = [code_of(each.texts[place]) for place in used.tolist()]
                keys = codes[np.maximum(keys, -1)]
            found = (found ^ keys.view(np.uint64)) * _ODD
            found ^= found >> np.uint64(32)
        return found.view(np.int64)

    def digest_parts(self) -> Iterable[Any]:
        """Yield bytes that differ if canonical rows differ."""
        for each in self.columns:
            yield json.dumps(list(each.texts)).encode()
            yield np.ascontiguousarray(each.keys, "<i8").data


def _canonical(column: Record) -> Record:
    texts = column.texts
    rising = sorted(texts)
    if rising != list(texts):
        place = dict(zip(rising, range(len(rising)), strict=True))
        ranks = np.fromiter(map(place.__getitem__, texts), np.int64, len(texts))
        column = Record(np.append(ranks, MISSING_KEY)[np.maximum(column.keys, -1)], rising)
    return with_used_texts(*column)


def with_used_texts(keys: Int64Array, texts: Sequence[str]) -> Record:
    """Return a canonical column. O(rows + texts).

    Args:
        keys: int64[n], positions in ``texts``, and a negative number where null.
        texts: rising, also some without a row.
    """
    used = np.zeros(len(texts) + 1, np.bool_)
    used[np.maximum(keys, -1)] = True  # null at the end
    left = int(np.count_nonzero(used[:-1]))
    if left == len(texts):
        return Record(keys, tuple(texts))
    rank = np.cumsum(used) - 1
    rank[-1] = MISSING_KEY
    return Record(rank[np.maximum(keys, -1)], tuple(compress(texts, used.tolist())))


class TextsOfEach(NamedTuple):
    """A text column's texts in each of many sketches.

    Attributes:
        texts: all texts, rising.
        numbers: the numbers of each sketch's texts, rising.
        offsets: int64[sketches + 1] into the numbers.
    """

    texts: Sequence[str]
    numbers: Int64Array
    offsets: Int64Array


class RecordsOfEach(NamedTuple):
    """Canonical rows of many sketches, end to end.

    Attributes:
        types: name and type of each column.
        keys: for each column int64[rows]. For texts, positions among the sketch's own.
        texts: for each column its texts, None if it has none.
        offsets: int64[sketches + 1] into the rows.
    """

    types: ColumnTypes
    keys: tuple[Int64Array, ...]
    texts: tuple[TextsOfEach | None, ...]
    offsets: Int64Array

    @classmethod
    def of(cls, records: Records, offsets: Int64Array) -> RecordsOfEach:
        """Return rows of many sketches, each as :meth:`Records.canonical` returns them. O(n log n).

        Raises:
            ObservationError: a sketch has too many texts in a column.
        """
        keys, texts = [], []
        for (name, kind), column in zip(records.types, records.columns, strict=True):
            found, own = column.keys, None
            if kind == "text":
                found, own = _own_texts(name, _canonical(column), offsets)
            keys.append(found)
            texts.append(own)
        return cls(records.types, tuple(keys), tuple(texts), offsets)

    def of_one(self, number: int) -> Records:
        """Return one sketch's rows."""
        rows = slice(*self.offsets[number : number + 2])
        columns = []
        for keys, each in zip(self.keys, self.texts, strict=True):
            own: tuple[str, ...] = ()
            if each is not None:
                places = each.numbers[slice(*each.offsets[number : number + 2])]
                own = tuple(each.texts[place] for place in places.tolist())
            columns.append(Record(keys[rows].copy(), own))
        return Records(self.types, tuple(columns))

    def digest_parts(self) -> Iterable[list[Any]]:
        """Yield for each sketch the parts that :meth:`Records.digest_parts` yields."""
        listed = [None if each is None else _listed_texts(each) for each in self.texts]
        keys = [np.ascontiguousarray(each, "<i8").view(np.uint8).data for each in self.keys]
        for number, (start, stop) in enumerate(pairwise((8 * self.offsets).tolist())):
            parts: list[Any] = []
            for texts, column in zip(listed, keys, strict=True):
                parts += [b"[]" if texts is None else texts[number], column[start:stop]]
            yield parts


def _own_texts(name: str, column: Record, offsets: Int64Array) -> tuple[Int64Array, TextsOfEach]:
    """Return each row's place among the texts of its sketch, and these texts."""
    sketches = len(offsets) - 1
    there = column.keys != MISSING_KEY
    which = np.repeat(np.arange(sketches), np.diff(offsets))[there]
    found, places = np.unique(which * len(column.texts) + column.keys[there], return_inverse=True)
    owner, numbers = np.divmod(found, max(len(column.texts), 1))
    counts = np.bincount(owner, minlength=sketches)
    if sketches and int(counts.max()) > MAX_TEXTS:
        raise ObservationError(
            f"column {name!r} has {int(counts.max())} texts in one sketch; expected at most 2^20 = "
            f"{MAX_TEXTS}: leave the column out, or give it fewer distinct texts",
            column=name,
        )
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    keys = column.keys.copy()
    keys[there] = places - ends[which]
    return keys, TextsOfEach(column.texts, numbers, ends)


def _listed_texts(texts: TextsOfEach) -> list[bytes]:
    """Return for each sketch its texts as JSON, as :meth:`Records.digest_parts` writes them."""
    written = [json.dumps(text).encode() for text in texts.texts]
    own = [written[number] for number in texts.numbers.tolist()]
    return [
        b"[" + b", ".join(own[start:stop]) + b"]"
        for start, stop in pairwise(texts.offsets.tolist())
    ]


def comparable(values: Any, rows: Any) -> npt.NDArray[Any]:
    """Return the values of some rows, and hashes of their columns if they have columns."""
    chosen = values[rows]
    return chosen.hashes() if isinstance(chosen, Records) else chosen


def concatenated(parts: Sequence[Records]) -> Records:
    """Return several parts with equal columns, one after the other, canonical."""
    if len(parts) == 1:
        return parts[0]
    types = parts[0].types
    columns = []
    for number, (_, kind) in enumerate(types):
        each = [part.columns[number] for part in parts]
        if kind == "text":
            columns.append(_joined_texts(each))
        else:
            columns.append(Record(np.concatenate([column.keys for column in each])))
    return Records(types, tuple(columns))


def _joined_texts(columns: Sequence[Record]) -> Record:
    texts = sorted({text for column in columns for text in column.texts})
    place = {text: number for number, text in enumerate(texts)}
    keys = []
    for column in columns:
        by_number = [*(place[text] for text in column.texts), MISSING_KEY]
        keys.append(np.array(by_number, np.int64)[np.maximum(column.keys, -1)])
    return Record(np.concatenate(keys), tuple(texts))


def comparable_keys(parts: Sequence[Records]) -> list[Int64Array]:
    """Return an int64 key for each row in each part. Keys order as the rows' columns do.

    Complexity: O(columns * n log n).
    """
    both = concatenated(parts)
    columns = [each.keys for each in both.columns]
    order = np.lexsort(columns[::-1])
    differs = np.zeros(len(order), np.bool_)
    for keys in columns:
        differs[1:] |= keys[order[1:]] != keys[order[:-1]]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(differs)
    return np.split(ranks, np.cumsum([len(part) for part in parts])[:-1])


# ---------------------------------------------------------------------------------------- encoding


class Dictionaries:
    """The last Arrow dictionary in each text column, with its texts.

    Batches from one source mostly have equal dictionaries. To compare their bytes costs far less
    than to read and check each text again. Equal dictionaries give the same tuple, so that other
    code recognizes them too.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, tuple[str, ...]]] = {}

    def texts(self, name: str, dictionary: Any) -> tuple[str, ...]:
        """Return the texts in a column's Arrow dictionary. O(bytes)."""
        known = self._last.get(name)
        if known is not None and known[0].equals(dictionary):
            return known[1]
        return tuple(dictionary.to_pylist())

    def checked(self, name: str, texts: Sequence[str]) -> bool:
        """Return whether these are the column's last texts, which are all in bounds."""
        return name in self._last and self._last[name][1] is texts

    def remember(self, name: str, dictionary: Any, texts: Sequence[str]) -> None:
        """Store texts that are all in bounds."""
        if isinstance(texts, tuple):
            self._last[name] = dictionary, texts


def encode_records(
    given: Any, types: ColumnTypes, rows: int, dictionaries: Dictionaries | None = None
) -> Records:
    """Return columns in the form that kernels accept.

    Args:
        given: columns by name (a mapping, a data frame, an Arrow table or struct array), or one
            mapping for each row. A single value serves all rows. A missing column is null.
        types: declared columns.
        rows: row count.
        dictionaries: the Arrow dictionaries in the batches before, to which this batch's are added.

    Raises:
        ObservationError: a column is not declared, has another length, or has a value that its type
            does not allow. The error names the column, the row and the value.

    Complexity: O(rows * columns).
    """
    if isinstance(given, Records) and given.types == types:
        columns = given.columns
    else:
        named, known = _by_name(given, types, rows), dictionaries or Dictionaries()
        columns = tuple(_encoded(name, kind, named.get(name), rows, known) for name, kind in types)
    for (name, _), column in zip(types, columns, strict=True):
        if len(column.keys) != rows:
            raise ObservationError(
                f"columns have unequal lengths: {name} has {len(column.keys)} rows, ids has {rows}",
                column=name,
            )
    return Records(types, columns)


def _by_name(given: Any, types: ColumnTypes, rows: int) -> Mapping[str, Any]:
    known = [name for name, _ in types]
    if given is None:
        return {}
    if isinstance(given, Mapping):
        named: Mapping[str, Any] = given
    elif hasattr(given, "flatten") and hasattr(getattr(given, "type", None), "fields"):
        names = [each.name for each in given.type.fields]
        named = dict(zip(names, given.flatten(), strict=True))
    elif hasattr(given, "columns") and hasattr(given, "__getitem__"):
        names = getattr(given, "column_names", None) or list(given.columns)
        named = {name: given[name] for name in names}
    else:
        named = _turned(given, known)
    for name in named:
        if name not in known:
            raise ObservationError(
                f"values has the column {name!r:.80}; this stream has {_listed(types)}"
                + _nearest(name, known),
                column="values",
            )
    return named


def _turned(given: Any, known: Sequence[str]) -> Mapping[str, Any]:
    """Return columns from one mapping for each row."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise ObservationError(
            f"values is {given!r:.80}; expected columns by name, such as {{{known[0]!r}: [...]}}",
            column="values",
        )
    listed = list(given)
    names: dict[str, None] = {}
    for row, each in enumerate(listed):
        if each is not None and not isinstance(each, Mapping):
            raise ObservationError(
                f"values[{row}] is {each!r:.80}; expected columns by name",
                column="values", row=row, value=each,
            )  # fmt: skip
        names |= dict.fromkeys(each or ())
    return {name: [None if row is None else row.get(name) for row in listed] for name in names}


def _listed(types: ColumnTypes) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in types)


def _nearest(name: object, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(name), known, 1)
    return f": did you mean {near[0]!r}?" if near else ""


def _encoded(
    name: str, kind: ColumnType, given: Any, rows: int, dictionaries: Dictionaries
) -> Record:  # fmt: skip
    if given is None:
        return Record(np.full(rows, MISSING_KEY, np.int64))
    if isinstance(given, Record):  # encoded and checked already
        return given
    dictionary, given = _plain(given, kind)
    if dictionary is not None:
        given = EncodedLabels(dictionaries.texts(name, dictionary), given)
    try:
        if dictionary is not None and dictionaries.checked(name, given.texts):
            found = _of_checked(given)
        elif kind == "text":
            found = _texts(given)
        elif kind == "bool":
            found = Record(_truths(given))
        else:
            found = Record(encode_values(_without_nan(given), kind))
    except ObservationError as fault:
        raise ObservationError(
            f"column {name!r}: {fault}", column=name, row=fault.row, value=fault.value
        ) from None
    if dictionary is not None and found.texts is given.texts:
        dictionaries.remember(name, dictionary, given.texts)
    if len(found.keys) == 1 and rows != 1 and (isinstance(given, str) or np.ndim(given) == 0):
        found = found._replace(keys=np.full(rows, found.keys[0], np.int64))
    return found


def _plain(given: Any, kind: ColumnType) -> tuple[Any, Any]:
    """Return Arrow, pandas or polars columns as NumPy columns, other ones unchanged. Text columns
    of Arrow are positions, after their Arrow dictionary. It is None for all others.
    """
    if type(given).__module__.startswith("pandas"):
        return None, given.astype(object).where(given.notna(), None).to_numpy()
    if type(given).__module__.startswith("polars"):
        given = given.to_arrow()
    if not type(given).__module__.startswith("pyarrow"):
        return None, given
    import pyarrow as pa  # only where it is there already

    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if kind == "text" and not pa.types.is_null(given.type):
        if not pa.types.is_dictionary(given.type):
            given = given.dictionary_encode()
        numbers = given.indices.cast(pa.int64())
        if numbers.null_count:
            numbers = numbers.fill_null(-1)
        return given.dictionary, numbers.to_numpy(zero_copy_only=False)
    if pa.types.is_dictionary(given.type):
        given = given.dictionary_decode()
    if pa.types.is_null(given.type):
        return None, [None] * len(given)
    if pa.types.is_decimal(given.type):
        given = given.cast(pa.float64())
    gaps = given.is_null().to_numpy(zero_copy_only=False) if given.null_count else None
    data = given.fill_null(False if kind == "bool" else 0) if given.null_count else given
    column = data.to_numpy(zero_copy_only=False)
    return None, column if gaps is None else np.ma.MaskedArray(column, gaps)


def _without_nan(given: Any) -> Any:
    """Return numbers in which NaN is missing."""
    array = given if isinstance(given, np.ndarray) else np.asarray(given)
    if array.dtype.kind == "u" and isinstance(given, list):  # beyond int64: which row?
        array = np.asarray(given, object)
    if array.dtype.kind == "O":
        nan = [isinstance(each, float) and each != each for each in np.ma.getdata(array).flat]
        if any(nan):
            array = array.copy()
            array[np.array(nan)] = None
        return array
    if array.dtype.kind == "f":
        nans = np.isnan(np.ma.getdata(array))
        if nans.any():
            return np.ma.MaskedArray(np.ma.getdata(array), nans | np.ma.getmaskarray(array))
    return array


def _truths(given: Any) -> Int64Array:
    if not isinstance(given, np.ndarray):
        given = np.asarray(given, None if hasattr(given, "dtype") else object)
    array = np.atleast_1d(given)
    missing, data = np.ma.getmaskarray(array), np.ma.getdata(array)
    if data.dtype.kind == "O":
        missing = missing | np.array([each is None for each in data], np.bool_)
        for row in np.flatnonzero(~missing).tolist():
            if not isinstance(data[row], bool | np.bool_):
                raise _no_truth(row, data[row])
        data = np.where(missing, False, data)
    elif data.dtype.kind != "b":
        if not data.size:
            return np.empty(0, np.int64)
        raise _no_truth(0, data[0])
    keys = data.astype(np.int64)
    keys[missing] = MISSING_KEY
    return keys


def _no_truth(row: int, value: Any) -> ObservationError:
    return ObservationError(
        f"values[{row}] is {value!r:.80}; expected true or false",
        column="values", row=row, value=value,
    )  # fmt: skip


def _keys_of(given: EncodedLabels) -> Int64Array:
    """Return positions, ``MISSING_KEY`` where null."""
    keys = np.asarray(given.numbers, np.int64)
    if keys.min(initial=0) >= 0:
        return keys
    return np.where(keys < 0, np.int64(MISSING_KEY), keys)


def _of_checked(given: EncodedLabels) -> Record:
    """Return texts that are all in bounds."""
    if len(given.texts) > len(given.numbers):  # many that no row has
        return _some_texts(given.texts, _keys_of(given))
    return Record(_keys_of(given), given.texts)


def _texts(given: Any) -> Record:
    if isinstance(given, EncodedLabels):
        texts, keys = given.texts, _keys_of(given)
        if len(texts) > len(keys) or None in texts:  # many that no row has
            return _some_texts(texts, keys)
        _check_texts(texts, lambda place: int(np.argmax(keys == place)))
        return Record(keys, texts)
    if isinstance(given, str):
        _check_texts([given], lambda _place: 0)
        return Record(np.zeros(1, np.int64), [given])
    masked = np.ma.getmaskarray(given) if np.ma.isMaskedArray(given) else None
    items = np.ma.getdata(given).tolist() if hasattr(given, "dtype") else list(given)
    if masked is not None:
        items = [None if gap else each for each, gap in zip(items, masked.tolist(), strict=True)]
    try:
        distinct = dict.fromkeys(items)
    except TypeError:  # an item without a hash is no text
        row = next(k for k, each in enumerate(items) if fault_of_label(each) and each is not None)
        _refuse_text(row, items[row])
    gaps = distinct.pop(None, False) is None
    _check_texts(list(distinct), lambda number: items.index(list(distinct)[number]))
    place: dict[Any, int] = {text: number for number, text in enumerate(distinct)}
    if gaps:
        place[None] = MISSING_KEY
    keys = np.fromiter(map(place.__getitem__, items), np.int64, len(items))
    return Record(keys, list(distinct))


def _some_texts(texts: Sequence[str], keys: Int64Array) -> Record:
    used = np.unique(keys[keys >= 0])
    number = np.full(len(texts) + 1, MISSING_KEY, np.int64)
    number[used] = np.arange(len(used))
    chosen: list[Any] = [texts[k] for k in used.tolist()]
    if None in chosen:
        number[used[chosen.index(None)]] = MISSING_KEY
        keys = number[np.maximum(keys, -1)]
        return _some_texts([text or "" for text in chosen], keys)
    _check_texts(chosen, lambda place: int(np.argmax(keys == used[place])))
    return Record(number[np.maximum(keys, -1)], chosen)


def _check_texts(texts: Sequence[Any], row_of: Any) -> None:
    if len(texts) > MAX_TEXTS:
        raise ObservationError(
            f"values have {len(texts)} texts; expected at most 2^20 = {MAX_TEXTS}", column="values"
        )
    if _are_short(texts):  # as nearly always
        return
    for place, text in enumerate(texts):
        if fault_of_label(text) is not None:
            _refuse_text(row_of(place), text)


def _are_short(texts: Sequence[Any]) -> bool:
    """Return whether all are ASCII texts with at most ``_SHORT`` characters, without a loop."""
    return (
        set(map(type, texts)) <= {str}
        and max(map(len, texts), default=0) <= _SHORT
        and "".join(texts).isascii()
    )


def _refuse_text(row: int, text: Any) -> NoReturn:
    fault = (fault_of_label(text) or "").replace("a label has", "a text has")
    value = text[:40] if isinstance(text, str) else text
    raise ObservationError(f"values[{row}] {fault}", column="values", row=row, value=value)


def prepare_records(
    params: SketchParams, values: Any, weights: Any, timestamps: Any, ids: Any,
    dictionaries: Dictionaries | None = None,
) -> tuple[Records, Observations]:  # fmt: skip
    """Validate a batch with columns. Arguments as in :func:`encode_records`.

    Returns:
        The columns, and the others as :func:`~decaysketch.core.observations.prepare` returns them,
        with row numbers as value keys.

    Raises:
        ObservationError: as there, and as :func:`encode_records`.
    """
    batch = prepare(params, None, weights, timestamps, ids)
    rows = len(batch.ids)
    records = encode_records(values, params.columns, rows, dictionaries)
    return records, batch._replace(value_keys=np.arange(rows, dtype=np.int64))
