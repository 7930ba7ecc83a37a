"""Whether rows of one id are copies of one another, or readings that an id too short has joined.

Copies of a reading have its time and its value. Where rows of one id have others, the latest of
them represents the id, as it should where it is a correction; where the id lacks a column, such as
the device without its counter, all other readings are lost, and nothing of the state shows it. A
log does: it has more *different readings* (id, time and value) than ids. One in a hundred may
disagree, beyond that it is said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.batch.mapping import ColumnMapping, LogColumns
from decaysketch.core.hashing import hash_keys, key_words
from decaysketch.core.labels import EncodedLabels
from decaysketch.families import BuiltWith, recipe_of

__all__ = ["doubt_of_ids"]

_FEW = 0.01  # of the readings, which may be corrections
_WORD = key_words(0, None)

UInt64Array = npt.NDArray[np.uint64]


def doubt_of_ids(
    log: LogColumns,
    mapping: ColumnMapping,
    params: BuiltWith,
    keys: npt.NDArray[np.int32] | None = None,
) -> str | None:
    """Why the ids of a log are hardly those of its readings; None: nothing is wrong.

    Args:
        log: what the mapping read; rows that are left out are not looked at.
        mapping: that read it.
        params: of the sketches, or their recipe.
        keys: int32[n], to which sketch each row goes, where there are several.

    Complexity: O(rows log rows), for sorts of two columns of words.
    """
    if not recipe_of(params).kind.input.joined:
        return None
    names = mapping.ids or (mapping.source, mapping.sequence)
    named = [log.columns.get(name) for name in ("ids", "source", "sequence", "weights")]
    parts: list[Any] = [each for each in (*named, keys) if each is not None]
    taken = ~log.left_out
    if "weights" in log.columns:
        taken &= np.asarray(log.columns["weights"]) > 0  # weight 0 is no observation
    parts = [part[taken] for part in parts]
    identity = hash_keys(parts, _WORD)
    reading = [identity.view(np.int64), log.columns["timestamps"][taken]]
    if mapping.value is not None:
        reading += [_words(log.columns["values"][taken]), log.missing[taken].astype(np.int64)]
    readings, ids = _distinct(hash_keys(reading, _WORD)), _distinct(identity)
    if readings - ids <= _FEW * readings:
        return None
    of = ", ".join(map(repr, names))
    return (
        f"{readings:,} different readings have {ids:,} id{'s' * (ids != 1)} (of {of}), and the "
        "latest of each alone counts: the id lacks a column that tells them apart, such as a "
        f"counter of the device or the time {mapping.time!r}"
    )


def _words(values: Any) -> npt.NDArray[np.int64]:
    """Equal for equal values; those that are missing are as any."""
    if isinstance(values, EncodedLabels):  # whose texts may repeat
        first: dict[str, int] = {}
        places = [first.setdefault(text, place) for place, text in enumerate(values.texts)]
        return np.array([*places, -1])[np.maximum(values.numbers, -1)]
    filled = np.ma.getdata(values)
    if filled.dtype.kind != "f":
        return filled.astype(np.int64)
    return (filled + 0.0).view(np.int64)  # no -0.0


def _distinct(words: UInt64Array) -> int:
    """How many different words there are; the column is sorted in place."""
    words.sort()
    return int((words[1:] != words[:-1]).sum()) + bool(len(words))
