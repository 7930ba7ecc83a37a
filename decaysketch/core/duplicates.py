"""Observations with one identity that are no duplicates of each other.

Duplicates of an observation are equal, or have a new timestamp. If two have the same time and
different values, one belongs to something else. The id then lacks a distinguishing part, such as
the machine of a reading. The larger value stays, and every sketch accepts both without a warning.
This module counts such rows.

**A later reading with the same id replaces an earlier one.** Among the rows with one id the latest
represents the id, which is right for duplicates and corrections. An id may repeat for another
reading (a counter that restarts, a replaced device, an id without the counter). Then the later
reading replaces the earlier one, and nothing in the state shows that a reading is gone. Compaction
sees it: it meets both rows and drops one of them.

Two rows with one id and weight are *different readings* if

* their times lie more than a minute apart and their values differ (a duplicate that each receiver
  stamps itself has one value), or
* their times lie more than a day apart, with any values.

Sketches count the rows dropped for this reason in ``stats().replaced``. The count belongs to one
object and to the work it did. It is not part of the state. A row that comes again after it was
replaced counts again. A row below a watermark is dropped before a row is compared with it. So the
count is a sample of the lost readings, and it is 0 if nothing is wrong. Counting costs one
comparison for each duplicate.

At the end of this module are the functions that find rows with one identity in several sketches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.records import Records, comparable
from decaysketch.core.row_check import SALTS, Identified
from decaysketch.core.time_units import NANOSECONDS

__all__ = [
    "REMEDY",
    "between",
    "count_replacing",
    "far_apart",
    "joined",
    "matching",
    "may_match",
    "replaced_between",
    "replaced_readings",
    "within",
]

_OTHER_NS = 60 * 1_000_000_000
_ANY_NS = 86_400 * 1_000_000_000
_NEVER = (1 << 64) - 1
_FEW = 0.01  # of the rows held, which may be corrections
_MARK_BITS = 17
_MARK_MASK = (1 << _MARK_BITS) - 1

#: The remedy for ids that several readings share.
REMEDY = (
    "add a part to the id that distinguishes them: a boot or session counter, or the time if "
    "duplicates have equal times"
)


@lru_cache(maxsize=64)
def far_apart(unit: str) -> tuple[int, int]:
    """Return how far apart the times of different readings with one id lie, in a unit.

    Args:
        unit: the stream's unit. A unit without a wall clock gives no limit.

    Returns:
        (with another value, with any value): both are exceeded.

    Example:
        >>> far_apart("s"), far_apart("h")
        ((60, 86400), (0, 24))
    """
    size = NANOSECONDS.get(unit)
    return (_NEVER, _NEVER) if size is None else (_OTHER_NS // size, _ANY_NS // size)


def replaced_readings(
    replaced: int, held: int, names: Sequence[str] = (), *, read: bool = False
) -> str | None:
    """Return the sentence for replaced readings. None: they are few.

    Args:
        replaced: as in ``stats().replaced``.
        held: remaining rows.
        read: whether ``held`` counts the rows that were read instead, with their duplicates.
        names: the columns or paths in the id.

    Example:
        >>> replaced_readings(5, 1000) is None
        True
    """
    if replaced <= _FEW * held:
        return None
    of = f" (of {', '.join(map(repr, names))})" if names else ""
    readings = "1 reading was" if replaced == 1 else f"{replaced:,} readings were"
    rest = f"of {held:,} rows" if read else f"{held:,} are left"
    return (
        f"{readings} replaced by a later one with the same id{of}, more than a minute later with "
        f"another value or more than a day later; {rest}. The ids repeat, as after a counter "
        f"restart: {REMEDY}"
    )


Int64Array = npt.NDArray[np.int64]


def within(
    ids: Int64Array, weights: Int64Array, times: Int64Array, values: npt.NDArray[Any] | Records
) -> int:
    """Return how many rows, with any repetition, have another value than the largest for their
    identity and time. O(n log n), and without repetition the cost to sort n integers.

    Args:
        ids, weights, times: int64[n].
        values: n numbers or labels, masked where missing, which is less than any, or columns.
    """
    ordered = np.sort(ids)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return 0
    some = matching(ids, repeated)
    given = comparable(values, some)
    _, codes = np.unique(np.ma.getdata(given), return_inverse=True)
    codes[np.ma.getmaskarray(given)] = -1
    order = np.lexsort((codes, times[some], weights[some], ids[some]))
    codes = codes[order]
    ends = np.zeros(len(order), np.bool_)  # of an identity and a time
    ends[-1] = True
    for column in (ids, weights, times):
        column = column[some][order]
        ends[:-1] |= column[1:] != column[:-1]
    last = np.flatnonzero(ends)
    largest = np.repeat(codes[last], np.diff(last, prepend=-1))
    return int(np.count_nonzero(codes != largest))


def joined(ids: Int64Array, weights: Int64Array, times: Int64Array) -> tuple[int, int]:
    """Return how many different (identity, time) pairs rows with any repetition have, and how many
    identities. O(n log n), and if most ids occur once the cost to sort n integers.

    Args:
        ids, weights, times: int64[n].

    Returns:
        The two numbers. They are equal if most ids occur once.
    """
    ordered = np.sort(ids)
    distinct = int(np.count_nonzero(ordered[1:] != ordered[:-1])) + bool(len(ids))
    if 2 * distinct > len(ids):
        return len(ids), len(ids)
    order = np.lexsort((times, weights, ids))
    first, second, time = (column[order] for column in (ids, weights, times))
    others = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    identities = int(np.count_nonzero(others)) + 1
    return int(np.count_nonzero(others | (time[1:] != time[:-1]))) + 1, identities


def replaced_between(held: Identified, offered: Identified, unit: str) -> int:
    """Return how many rows in one part are other readings for an identity than the rows in another
    part, by the rule in :mod:`decaysketch.core.duplicates`.

    Args:
        held, offered: no part has an identity twice.
        unit: of their times.

    Complexity: O(rows), and O(n log n) for the n rows whose ids are in both.
    """
    if unit not in NANOSECONDS:
        return 0
    other, whatever = far_apart(unit)
    mine, theirs = may_match(held.first, offered.first)
    if not len(mine):
        return 0
    held = Identified(*(column[mine] for column in held))
    offered = Identified(*(column[theirs] for column in offered))
    hashes = _hashes_of(offered)
    order = np.argsort(hashes)
    found = np.searchsorted(hashes[order], _hashes_of(held))
    matched = order[np.minimum(found, len(order) - 1)]
    same = (held.first == offered.first[matched]) & (held.second == offered.second[matched])
    apart = np.abs(held.times - offered.times[matched])
    far = np.flatnonzero(same & (apart > other))
    differ = comparable(held.values, far) != comparable(offered.values, matched[far])
    return int(np.count_nonzero((apart[far] > whatever) | differ))


def between(held: Identified, offered: Identified) -> int:
    """Return how many rows in one part have the identity and the time of a row in another, and
    another value.

    Args:
        held, offered: no part has an identity twice.

    Complexity: O(h + n log n) for h rows held, of which few have times among the n others.
    """
    if not len(offered.times):
        return 0
    earliest, latest = offered.times.min(), offered.times.max()
    near = np.flatnonzero((held.times >= earliest) & (held.times <= latest))
    if not len(near):
        return 0
    held = Identified(*(column[near] for column in held))
    hashes = _hashes_of(offered)
    order = np.argsort(hashes)
    found = np.searchsorted(hashes[order], _hashes_of(held))
    others = order[np.minimum(found, len(order) - 1)]
    same = np.ones(len(near), np.bool_)
    for mine, theirs in zip(held[:3], offered[:3], strict=True):
        same &= mine == theirs[others]
    both = np.flatnonzero(same)
    differ = comparable(held.values, both) != comparable(offered.values, others[both])
    return int(np.count_nonzero(differ))


# ------------------------------------------------------------------------ rows with one identity


def count_replacing(parts: Sequence[Identified]) -> list[int]:
    """Return for each part how many of its rows replace another part's row: a row with the same
    identity, and later than its duplicate there, by (time, value). Equal duplicates replace
    nothing.

    Args:
        parts: the rows of several sketches. No part has an identity twice.

    Complexity: O(n log n) for n rows in all. Rows with an identity that one part alone has are only
    hashed.
    """
    hashes = [_hashes_of(part) for part in parts]
    every = np.sort(np.concatenate([np.empty(0, np.uint64), *hashes]))
    shared = np.unique(every[1:][every[1:] == every[:-1]])
    if not len(shared):
        return [0] * len(parts)
    found = [_among(shared, each) for each in hashes]
    rows = Identified(
        *(
            np.concatenate([comparable(*each) for each in zip(columns, found, strict=True)])
            for columns in zip(*parts, strict=True)
        )
    )
    owners = np.repeat(np.arange(len(parts)), [len(places) for places in found])
    order = np.lexsort((rows.values, rows.times, rows.second, rows.first))
    first, second, times, values = (column[order] for column in rows)
    last = np.ones(len(order), np.bool_)  # of its identity: the latest
    last[:-1] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    ends = np.flatnonzero(last)
    latest = np.repeat(ends, np.diff(ends, prepend=-1))
    stands = (times == times[latest]) & (values == values[latest])
    replaced = np.zeros(len(order), np.bool_)
    replaced[latest[~stands]] = True
    counts = np.bincount(owners[order][stands & replaced[latest]], minlength=len(parts))
    return [int(count) for count in counts]


def may_match(held: Int64Array, offered: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the positions of the numbers that may be in both parts: all of these, and of hashed
    numbers few others. O(rows), without sorting.

    Args:
        held, offered: int64[n] each, with any repetition.
    """
    mine = np.flatnonzero(_marks(offered)[held & _MARK_MASK])
    mine = mine[_marks(offered >> _MARK_BITS)[held[mine] >> _MARK_BITS & _MARK_MASK]]
    return mine, np.flatnonzero(_marks(held[mine])[offered & _MARK_MASK])


def matching(held: Int64Array, offered: Int64Array) -> Int64Array:
    """Return the positions in ``held`` of the numbers that ``offered`` has too. O(rows), without
    sorting if few match.
    """
    mine, theirs = may_match(held, offered)
    return mine[np.isin(held[mine], offered[theirs])]


def _marks(numbers: Int64Array) -> npt.NDArray[np.bool_]:
    marks = np.zeros(1 << _MARK_BITS, np.bool_)
    marks[numbers & _MARK_MASK] = True
    return marks


def _hashes_of(rows: Identified) -> npt.NDArray[np.uint64]:
    """Return 64 hash bits for each identity. A collision costs a little time."""
    with np.errstate(over="ignore"):
        hashed = rows.first.view(np.uint64) * np.uint64(SALTS[0])
        hashed ^= hashed >> np.uint64(32)
        hashed += rows.second.view(np.uint64)
        hashed *= np.uint64(SALTS[1])
    return hashed


def _among(shared: npt.NDArray[np.uint64], hashed: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    places = np.minimum(np.searchsorted(shared, hashed), len(shared) - 1)
    return np.flatnonzero(shared[places] == hashed)
