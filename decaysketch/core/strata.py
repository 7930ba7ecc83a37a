"""Strata of rows: the texts in one or two columns that each keep a sample of their own."""

from __future__ import annotations

from collections.abc import Container, Sized
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from decaysketch.core.params import SketchParams
from decaysketch.core.records import Record, Records
from decaysketch.errors import ObservationError

__all__ = ["RowStrata", "Strata", "Stratum", "beyond_limit", "check_strata", "strata_of", "told"]

Stratum = tuple[str | None, ...]
"""The texts that name a stratum, by column. None: null."""

_DENSE = 1 << 20  # text combinations that are counted in a table, without a sort


class Strata(Container[Stratum], Sized, Protocol):
    """Known strata."""


class RowStrata(NamedTuple):
    """The strata for some rows.

    Attributes:
        names: the texts that name each stratum.
        first: each stratum's first row.
        codes: intp[n], each row's stratum.
    """

    names: list[Stratum]
    first: npt.NDArray[np.intp]
    codes: npt.NDArray[np.intp]


def strata_of(columns: list[Record]) -> RowStrata:
    """Return strata by their key columns. O(n)."""
    whole, cells = np.zeros(len(columns[0].keys), np.int64), 1
    for column in columns:
        whole = whole * (len(column.texts) + 1) + (np.maximum(column.keys, -1) + 1)
        cells *= len(column.texts) + 1
    if cells > max(_DENSE, 4 * len(whole)):
        found, first, codes = np.unique(whole, return_index=True, return_inverse=True)
    else:
        place = np.full(cells, -1, np.intp)
        place[whole[::-1]] = np.arange(len(whole) - 1, -1, -1)
        found = np.flatnonzero(place >= 0)
        first = place[found]
        place[found] = np.arange(len(found))
        codes = place[whole]
    parts: list[list[str | None]] = []
    for column in reversed(columns):
        texts = [None, *column.texts]
        found, numbers = np.divmod(found, len(texts))
        parts.append([texts[number] for number in numbers.tolist()])
    return RowStrata(list(zip(*reversed(parts), strict=True)), first, codes)


def beyond_limit(params: SketchParams, known: Strata, records: Records) -> npt.NDArray[np.bool_]:
    """Return the rows with a new stratum beyond ``max_strata``. New strata count in row order.

    Args:
        params: sketch parameters.
        known: strata that the sketch has.
        records: the rows.

    Complexity: O(n + strata log strata).
    """
    named = strata_of([records.column(name) for name in params.strata])
    room = params.max_strata - len(known)
    beyond = np.zeros(len(named.names), np.bool_)
    for place in np.argsort(named.first).tolist():
        if named.names[place] not in known:
            room -= 1
            beyond[place] = room < 0
    return np.asarray(beyond[named.codes], np.bool_)


def check_strata(params: SketchParams, known: Strata, records: Records) -> None:
    """Reject rows with more strata than a sketch accepts.

    Raises:
        ObservationError: with the first row beyond the limit, and its stratum.
    """
    rows = np.flatnonzero(beyond_limit(params, known, records))
    if len(rows):
        row = int(rows[0])
        (name,) = strata_of([_row(records.column(each), row) for each in params.strata]).names
        raise ObservationError(
            f"row {row} has the new stratum {told(params, name)}, and there are {len(known)}; "
            f"expected at most max_strata = {params.max_strata}: give the column fewer distinct "
            "texts, or build with a larger max_strata",
            column=params.strata[0], row=row, value=name[0],
        )  # fmt: skip


def _row(column: Record, row: int) -> Record:
    return column._replace(keys=column.keys[row : row + 1])


def told(params: SketchParams, name: Stratum) -> str:
    """Return a stratum as a sentence names it."""
    pairs = zip(params.strata, name, strict=True)
    return ", ".join(f"{column} = {text!r:.80}" for column, text in pairs)
