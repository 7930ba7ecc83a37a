"""Spells during which a source heard nothing, and others heard messages.

A source that was down did not fail to hear a message. The rows that another source heard are sorted
by time. A run of ``r`` misses for a source with usual share ``q`` has the probability ``n (1 -
q)^r`` somewhere among ``n`` rows. Misses come in clumps. A spell is therefore reported only if this
is below 1e-6 with ``q`` halved, and the run is also more than twice the tenth longest run. A
message that the source alone heard ends a run: it was up.

Measured on a log from 12 receivers. One was down for half the time: it heard a share of .29 with
the spell and .80 without (.81 while it was up). Runs of the 11 others: 0 false spells in 220 checks
(``python -m quality.coverage --part silence``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Silence", "spells", "suspected"]

Int64Array = npt.NDArray[np.int64]

_CHANCE = 1e-6
_LONGER = 2.0
_LONGEST = 10  # the run that others are compared with, from the longest


class Silence(NamedTuple):
    """A spell in which a source heard nothing, and others heard messages.

    Attributes:
        source: its name.
        after: time of the last message that it heard. If it had heard none before, time of the
            first message read.
        before: time of the first message that it heard again. If there is none, time of the last
            message read.
    """

    source: str
    after: int
    before: int


def suspected(
    rows: Int64Array, shared: Int64Array, alone: Int64Array, longest: Int64Array
) -> npt.NDArray[np.bool_]:
    """Return for each source whether :func:`spells` may find one.

    Args:
        rows: int64[k], rows that another source heard.
        shared: int64[k], rows that another source and this one heard.
        alone: int64[k], rows that this source alone heard.
        longest: int64[k], the longest run that it missed, without a row that it heard.
    """
    never = shared + alone == 0
    found: npt.NDArray[np.bool_] = (rows > 0) & (
        never | (longest > _longest_by_chance(rows, shared))
    )
    return found


def _longest_by_chance(rows: Int64Array, shared: Int64Array) -> npt.NDArray[np.float64]:
    """Return the run length with the chance ``_CHANCE`` anywhere, with the share halved. Infinite
    if a source heard no row that others heard.
    """
    rows = np.maximum(rows, 1)
    with np.errstate(divide="ignore"):  # a share of 0
        return np.log(_CHANCE / rows) / np.log1p(-0.5 * shared / rows)


def spells(
    times: npt.NDArray[np.int64], heard: npt.NDArray[np.bool_], others: npt.NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Return the spells of one source, oldest first.

    Args:
        times: int64[n], rising.
        heard: bool[n], whether this source heard the row.
        others: bool[n], whether another source did.

    Complexity: O(n).
    """
    n = int(others.sum())
    if not n:
        return []
    first, last = (int(times[others][place]) for place in (0, -1))
    at = np.flatnonzero(heard)
    if not len(at):
        return [(first, last)]
    before: Int64Array = np.cumsum(others) - others  # rows of others before each row
    starts = np.concatenate([[0], (before + others)[at]])
    runs = np.append(before[at], n) - starts
    limit = float(_longest_by_chance(np.array(n), np.array((heard & others).sum())))
    if not (runs > limit).any():
        return []
    usual = np.partition(runs, -_LONGEST)[-_LONGEST] if len(runs) > _LONGEST else 0
    edges = [first, *times[at].tolist(), last]
    return [
        (edges[run], edges[run + 1])
        for run in np.flatnonzero((runs > limit) & (runs > _LONGER * usual)).tolist()
    ]


class Change(NamedTuple):
    """A share that differs since some moment.

    Attributes:
        after: time of the last message before the change.
        before: time of the first message after it.
        was, became: the share of the rows before and after.
        evidence: twice the logarithm of the likelihood ratio.
    """

    after: int
    before: int
    was: float
    became: float
    evidence: float


_FEWEST = 8  # rows on either side of a change
_EVIDENT = 20.0


def change(times: npt.NDArray[np.int64], inside: npt.NDArray[np.bool_]) -> Change | None:
    """Return the split of rows by time with the largest likelihood ratio of two shares against one.

    Args:
        times: int64[n], rising.
        inside: bool[n], whether a row is in the set.

    Returns:
        None if twice the logarithm of the ratio is 20 or less, or if there are fewer than 16 rows.

    Complexity: O(n).
    """
    n = len(times)
    at = np.arange(_FEWEST, n - _FEWEST + 1)
    if not len(at):
        return None
    total = np.concatenate([[0], np.cumsum(inside)])
    gains = 2.0 * (
        _likelihood(total[at], at)
        + _likelihood(total[-1] - total[at], n - at)
        - _likelihood(total[-1:], np.array([n]))
    )
    best = int(gains.argmax())
    if not gains[best] > _EVIDENT:
        return None
    split = int(at[best])
    return Change(
        int(times[split - 1]), int(times[split]), float(total[split] / split),
        float((total[-1] - total[split]) / (n - split)), float(gains[best]),
    )  # fmt: skip


def _likelihood(hits: npt.NDArray[np.int64], n: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    p = np.clip(hits / n, 1e-12, 1.0 - 1e-12)
    found: npt.NDArray[np.float64] = hits * np.log(p) + (n - hits) * np.log1p(-p)
    return found
