"""The joint sample of ``joint.py`` and the overlaps from ``matching.c`` in plain Python.

It checks the compiled kernels, and an enumeration checks it. It therefore imports no project code,
and no code falls back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

__all__ = ["histories", "overlap", "own_level"]

Identity = tuple[int, int]  # id and weight
Row = tuple[int, int, int, int]  # id, weight, time, top level


def histories(
    sources: Sequence[Sequence[Row]], marks: Sequence[Sequence[int]]
) -> dict[Identity, tuple[int, frozenset[int]]]:
    """Return the latest time and the sources for each message with a known history.

    Args:
        sources: the rows of each source.
        marks: for each source, the watermark of each level, later by its guard.
    """
    found: dict[Identity, tuple[int, int, set[int]]] = {}
    for source, rows in enumerate(sources):
        for id_, weight, time, level in rows:
            latest, _, heard = found.get((id_, weight), (time, level, set()))
            found[id_, weight] = max(latest, time), level, heard | {source}
    return {
        identity: (latest, frozenset(heard))
        for identity, (latest, level, heard) in found.items()
        if all(latest > of[level] for of in marks)
    }


def own_level(marks: Sequence[int], time: int) -> int:
    """Return the lowest level whose watermark lies before a time."""
    return next(level for level, mark in enumerate(marks) if mark < time)


def overlap(
    first: Sequence[Row],
    second: Sequence[Row],
    marks: tuple[Sequence[int], Sequence[int]],
    probabilities: Sequence[float],
    decay: Callable[[int], float],
) -> float:
    """Return the mass that two sources both heard.

    Args:
        first, second: rows of weight 1.
        marks: for either source, later by its guard.
        probabilities: by level.
        decay: weight by time.
    """
    others: Mapping[int, Row] = {row[0]: row for row in second}
    total = 0.0
    for id_, _, time, top in first:
        if id_ in others:
            latest = max(time, others[id_][2])
            level = max(own_level(of, latest) for of in marks)
            if top >= level:
                total += decay(latest) / probabilities[level]
    return total
