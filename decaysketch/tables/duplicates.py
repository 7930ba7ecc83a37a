"""Check whether rows with one id are duplicates, or readings that a too short id has joined.

Duplicates of a reading have its time and its value, or a close time if each receiver adds its own.
If rows with one id differ, the latest represents the id, as it should after a correction. If the id
lacks a column, such as the counter next to the device, all other readings are lost, and the state
does not show it. A log shows it: readings with one id have one time and different values, or
their times lie further apart than a hundredth of the log's span. One in a hundred may do so. Beyond
that, there is a warning.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decaysketch.core.hashing import hash_keys, key_words
from decaysketch.core.labels import EncodedLabels
from decaysketch.core.records import Records
from decaysketch.families import BuiltWith, recipe_of
from decaysketch.tables.log_reader import LogColumns
from decaysketch.tables.mapping import ColumnMapping

__all__ = ["doubt_of_ids"]

_FEW = 0.01  # of the readings, or ids, which may be corrections
_APART = 0.01  # share of the log's time span
_LOOKED_AT = 1 << 14  # rows checked in a longer log
_MANY = 100  # ids
_WORD = key_words(0, None)

UInt64Array = npt.NDArray[np.uint64]


def doubt_of_ids(
    log: LogColumns,
    mapping: ColumnMapping,
    params: BuiltWith,
    keys: npt.NDArray[np.int32] | None = None,
) -> str | None:
    """Return the reason why a log's ids are unlikely to identify its readings. None: no fault.

    Args:
        log: the columns that the mapping read. Dropped rows are not checked.
        mapping: the mapping that read it.
        params: the sketches' parameters, or their sketch configuration.
        keys: int32[n], the sketch number for each row, if there are several.

    Complexity: O(rows). It sorts at most some ten thousand rows.
    """
    if not recipe_of(params).kind.input.joined:
        return None
    names = mapping.ids or (mapping.source, mapping.sequence)
    named = [log.columns.get(name) for name in ("ids", "source", "sequence", "weights")]
    parts: list[Any] = [each for each in (*named, keys) if each is not None]
    taken = ~log.left_out
    if "weights" in log.columns:
        taken &= np.asarray(log.columns["weights"]) > 0  # weight 0 is no observation
    named_by = parts[0] if "ids" in log.columns else hash_keys(parts[:2], _WORD)
    rows, some = _looked_at(taken, named_by)
    identity = hash_keys([part[rows] for part in parts], _WORD)
    times = log.columns["timestamps"][rows]
    moment = reading = [identity.view(np.int64), times]
    if mapping.value is not None or mapping.columns:
        values = log.columns["values"][rows]
        reading = [*moment, _words(values), log.missing[rows].astype(np.int64)]
    readings, ids = _distinct(hash_keys(reading, _WORD)), _distinct(identity)
    if readings - ids <= _FEW * readings:
        return None
    at_one_time = readings - _distinct(hash_keys(moment, _WORD))
    if at_one_time <= _FEW * readings and _far_apart(identity, times) <= _FEW * ids:
        return None
    of = ", ".join(map(repr, names))
    looked_at = f"of {len(rows):,} checked rows, " if some else ""
    return (
        f"{looked_at}{readings:,} different readings have {ids:,} id{'s' * (ids != 1)} (of {of}), "
        "and only the latest of each counts: the id lacks a column that distinguishes them, such "
        f"as a device counter or the time {mapping.time!r}. If they are duplicates with new time "
        "stamps, all is well"
    )


def _words(values: Any) -> npt.NDArray[np.int64]:
    """Return words that are equal for equal values. Missing values may have any word."""
    if isinstance(values, Records):
        return values.hashes()
    if isinstance(values, EncodedLabels):  # several codes may have one text
        first: dict[str, int] = {}
        places = [first.setdefault(text, place) for place, text in enumerate(values.texts)]
        return np.array([*places, -1])[np.maximum(values.numbers, -1)]
    filled = np.ma.getdata(values)
    if filled.dtype.kind != "f":
        return filled.astype(np.int64)
    return (filled + 0.0).view(np.int64)  # no -0.0


def _looked_at(
    taken: npt.NDArray[np.bool_], ids: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.int64], bool]:
    """Return the rows to check, and whether they are a sample. In a large log, these are all
    rows with some ids, or the first rows if there are few ids.
    """
    stride = 1 << max(len(taken) // _LOOKED_AT, 1).bit_length() - 1
    if stride == 1:
        return np.flatnonzero(taken), False
    chosen = np.flatnonzero(taken & ((ids & type(ids[0])(stride - 1)) == 0))
    if _distinct(ids[chosen]) < _MANY:
        chosen = np.flatnonzero(taken)
    return chosen[: 2 * _LOOKED_AT], True


def _far_apart(ids: UInt64Array, times: npt.NDArray[np.int64]) -> int:
    """Return how many ids have times far apart, relative to the span of all times."""
    table = pa.table({"id": ids, "time": times})
    of_id = table.group_by("id").aggregate([("time", "min"), ("time", "max")])
    spans = pc.subtract(of_id["time_max"], of_id["time_min"]).to_numpy()
    return int((spans > _APART * float(times.max() - times.min())).sum())


def _distinct(words: UInt64Array) -> int:
    """Return the number of distinct words."""
    words = np.sort(words)
    return int((words[1:] != words[:-1]).sum()) + bool(len(words))
