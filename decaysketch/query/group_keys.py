"""Groups in a sample: the rows with equal keys, numbered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.text.expression import Bound, Column, Table
from decaysketch.errors import ParameterError
from decaysketch.query.columns import SampleTable
from decaysketch.query.modifiers import MAX_GROUPS
from decaysketch.query.sample import Sample

__all__ = ["Keys", "number_groups", "number_rows"]

IntArray = npt.NDArray[np.intp]

_DENSE = 1 << 20  # combinations of keys that are counted in a table, without a sort


class Keys(NamedTuple):
    """The groups of some tables.

    Attributes:
        numbers: each row's group, by table: intp[n].
        values: for each key, its value in each group: numbers, times, texts, truth values, None
            where null.
        hulls: each group's first and last possible row time, int64[groups]. None if
            no key bounds it.
    """

    numbers: list[IntArray]
    values: list[list[Any]]
    hulls: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None

    @property
    def size(self) -> int:
        """Group count."""
        return len(self.values[0])


def number_groups(by: Sequence[Bound], samples: Sequence[Sample]) -> Keys:
    """Return the groups by keys, rising. O(keys * n).

    Args:
        by: the keys, 1 or more.
        samples: with the stream's values.

    Raises:
        ParameterError: more than :data:`~decaysketch.query.modifiers.MAX_GROUPS` groups.
    """
    return number_rows(by, [SampleTable(sample) for sample in samples])


def number_rows(by: Sequence[Bound], tables: Sequence[Table]) -> Keys:
    """Do the same for any tables."""
    whole, cells = np.zeros(sum(map(len, tables)), np.int64), 1
    codes: list[IntArray] = []
    values: list[list[Any]] = []
    for key in by:
        code, distinct = _distinct(key, [key(table) for table in tables])
        codes.append(code)
        values.append(distinct)
        if cells * len(distinct) >= 1 << 62:  # before they overflow
            found, whole = np.unique(whole, return_inverse=True)
            cells = len(found)
        whole = whole * len(distinct) + code
        cells *= max(len(distinct), 1)
    if len(by) == 1:  # the values are the groups
        numbers, listed = whole, values
    else:
        first, numbers = _dense(whole, cells)
        listed = [
            [distinct[place] for place in code[first].tolist()]
            for code, distinct in zip(codes, values, strict=True)
        ]
    if len(listed[0]) > MAX_GROUPS:
        raise ParameterError(
            f"by gives {len(listed[0])} groups; expected at most {MAX_GROUPS}: add a where, or "
            "use a coarser key"
        )
    ends = np.cumsum([len(table) for table in tables])[:-1]
    return Keys(np.split(numbers, ends), listed, _hulls(by, listed))


def _dense(whole: npt.NDArray[np.int64], cells: int) -> tuple[IntArray, IntArray]:
    """Return a row for each group, and the group for each row."""
    if cells > _DENSE:
        _, first, numbers = np.unique(whole, return_index=True, return_inverse=True)
        return first, numbers
    first = np.full(cells, -1, np.intp)
    first[whole[::-1]] = np.arange(len(whole) - 1, -1, -1)
    there = first >= 0
    return first[there], (np.cumsum(there) - 1)[whole]


def _distinct(key: Bound, columns: Sequence[Column]) -> tuple[IntArray, list[Any]]:
    """Return each row's value number for a key, and the rising values. Null is the last."""
    if key.kind == "text":
        return _distinct_texts(columns)
    data = np.concatenate([column.data for column in columns])
    nulls = [
        np.zeros(len(column.data), np.bool_) if column.null is None else column.null
        for column in columns
    ]
    null = np.concatenate(nulls)
    some = data if not null.any() else data[~null]
    number = np.zeros(len(data), np.intp)
    distinct: list[Any] = []
    if len(some):
        found, places = _ranked(some)
        number[~null] = places
        distinct = _plain(key, found)
    if null.any():
        number[null] = len(distinct)
        distinct.append(None)
    return number, distinct


def _ranked(some: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], IntArray]:
    """Return rising distinct values, and the position of each. Whole numbers close together, such
    as hours, need no sort.
    """
    if some.dtype == np.bool_:
        some = some.astype(np.int64)
    low, high = some.min(), some.max()
    near = bool(high - low < _DENSE) and (some.dtype.kind in "iu" or bool(np.all(some % 1 == 0)))
    if not near:
        return np.unique(some, return_inverse=True)
    shifted = (some - low).astype(np.intp)
    present = np.zeros(int(high - low) + 1, np.bool_)
    present[shifted] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[shifted]


def _plain(key: Bound, found: npt.NDArray[Any]) -> list[Any]:
    if key.kind == "truth":
        return [bool(each) for each in found.tolist()]
    if found.dtype.kind == "f" and np.all(found % 1 == 0) and np.abs(found).max() < 2.0**53:
        found = found.astype(np.int64)
    values: list[Any] = found.tolist()
    return values


def _distinct_texts(columns: Sequence[Column]) -> tuple[IntArray, list[Any]]:
    texts = sorted({text for column in columns for text in column.texts})
    place = {text: number for number, text in enumerate(texts)}
    numbers = np.concatenate(
        [
            np.array([*(place[text] for text in column.texts), len(texts)], np.intp)[column.data]
            for column in columns
        ]
    )
    listed = [*texts, None]
    present = np.zeros(len(listed), np.bool_)
    present[numbers] = True
    if not present[:-1].all():  # the rows of a filter may lack some
        numbers = (np.cumsum(present) - 1)[numbers]
    return numbers, [listed[place] for place in np.flatnonzero(present).tolist()]


def _hulls(
    by: Sequence[Bound], values: Sequence[Sequence[Any]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    found = None
    for key, listed in zip(by, values, strict=True):
        if key.within is None or not listed or None in listed:
            continue
        first, last = key.within(listed)
        found = (
            (first, last)
            if found is None
            else (np.maximum(found[0], first), np.minimum(found[1], last))
        )
    return found
