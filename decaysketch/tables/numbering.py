"""Number keys 0, 1, ... in order of first appearance, for any column types.

Integers (and booleans, dates, timestamps) are looked up in the library's hash table. Text and bytes
go through Arrow's dictionaries into a Python dict, once for each distinct entry in a table. Several
columns are joined two numbers at a time. A null is a key like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from decaysketch.core.arrays import Column
from decaysketch.core.distinct import Distinct
from decaysketch.tables.columns import column_of, nulls_of

__all__ = ["KeyNumbers"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


class _IntegerColumn:
    """Numbers distinct entries in a key column with integers, booleans, dates or timestamps."""

    def __init__(self, field: pa.Field) -> None:
        self.field = field
        self._integers = Distinct()
        # Arrow casts booleans and dates to and from integers of their own width alone.
        narrow = {pa.bool_(): pa.int8(), pa.date32(): pa.int32()}
        self._as = narrow.get(field.type, pa.int64())

    def number(self, table: pa.Table) -> Int32Array:
        column = column_of(table, self.field.name)
        if not column.null_count:
            return self._integers.number(self._to_integers(column))
        nulls = nulls_of(column)
        codes = np.empty(len(column), np.int32)
        codes[~nulls] = self._integers.number(self._to_integers(column.drop_null()))
        codes[nulls] = self._integers.number_null()
        return codes

    def _to_integers(self, column: pa.Array) -> Int64Array:
        integers = column.cast(self.field.type).cast(self._as).cast(pa.int64())
        array: Int64Array = integers.to_numpy(zero_copy_only=False)
        return array

    def entries(self, numbers: Column) -> pa.Array:
        chosen = self._integers.distinct[numbers]
        mask = numbers == self._integers.null if self._integers.null >= 0 else None
        return pa.array(chosen, mask=mask).cast(self._as).cast(self.field.type)

    @property
    def count(self) -> int:
        return self._integers.count

    @property
    def nbytes(self) -> int:
        return self._integers.nbytes


class _TextColumn:
    """Numbers distinct entries in a key column with text or bytes."""

    def __init__(self, field: pa.Field) -> None:
        self.field = field
        self._numbers: dict[str | bytes | None, int] = {}
        self._entries: list[str | bytes | None] = []
        self.nbytes = 0

    def number(self, table: pa.Table) -> Int32Array:
        encoded = self._encoded(table)
        indices = encoded.indices
        if indices.null_count:
            indices = indices.cast(pa.int64()).fill_null(len(encoded.dictionary))
        indices = indices.to_numpy()
        # The file's dictionary may contain entries that no row uses. They are not keys.
        used = np.zeros(len(encoded.dictionary) + 1, dtype=bool)
        used[indices] = True
        present = np.flatnonzero(used[:-1])
        numbers = np.full(len(used), -1, np.int32)
        numbers[present] = list(map(self._number, encoded.dictionary.take(present).to_pylist()))
        if used[-1]:
            numbers[-1] = self._number(None)
        codes: Int32Array = numbers[indices]
        return codes

    def _encoded(self, table: pa.Table) -> pa.DictionaryArray:
        if self.field.name in table.column_names:
            kind = table.schema.field(self.field.name).type
            if pa.types.is_dictionary(kind):
                column = table.column(self.field.name).combine_chunks()
                if isinstance(column, pa.DictionaryArray):
                    return column
        return column_of(table, self.field.name).cast(self.field.type).dictionary_encode()

    def _number(self, entry: str | bytes | None) -> int:
        number = self._numbers.get(entry)
        if number is None:
            number = self._numbers[entry] = len(self._entries)
            self._entries.append(entry)
            self.nbytes += 150 + (len(entry) if entry is not None else 0)
        return number

    def entries(self, numbers: Column) -> pa.Array:
        return pa.array([self._entries[n] for n in numbers.tolist()], self.field.type)

    @property
    def count(self) -> int:
        return len(self._entries)


class KeyNumbers:
    """Numbers the distinct keys in some columns.

    Args:
        fields: the key columns, by the types that :func:`~decaysketch.tables.key_fields` gives.
    """

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self._columns = [
            (_TextColumn if field.type in (pa.string(), pa.binary()) else _IntegerColumn)(field)
            for field in fields
        ]
        self._pairs = [Distinct() for _ in self._columns[1:]]  # (number so far, number of column)

    def number(self, table: pa.Table) -> Int32Array:
        """Return int32[n], the key number for each row. Amortised O(1) each."""
        if not self._columns:
            return np.zeros(table.num_rows, np.int32)
        numbers = self._columns[0].number(table)
        for column, pairs in zip(self._columns[1:], self._pairs, strict=True):
            left = numbers.astype(np.int64) << np.int64(32)
            numbers = pairs.number(left | column.number(table))
        return numbers

    def __len__(self) -> int:
        if not self._columns:
            return 1
        return self._pairs[-1].count if self._pairs else self._columns[0].count

    def keys(self, start: int, stop: int) -> list[pa.Array]:
        """Return the key columns for the keys numbered ``start`` to ``stop - 1``."""
        numbers = np.arange(start, stop, dtype=np.int64)
        arrays = []
        for column, pairs in zip(self._columns[:0:-1], self._pairs[::-1], strict=True):
            joined = pairs.distinct[numbers]
            arrays.append(column.entries(joined & np.int64(0xFFFFFFFF)))
            numbers = joined >> np.int64(32)
        arrays += [column.entries(numbers) for column in self._columns[:1]]
        return arrays[::-1]

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes."""
        return sum(part.nbytes for part in (*self._columns, *self._pairs))
