"""Revisions: corrections and withdrawals of observations.

A stream may declare an int64 column as its *revision*, 0 unless given. Among duplicates with one
time the largest revision represents the observation, for any content of other columns. So a
correction is the same observation with a larger revision, up to 254.

Revision 255 withdraws the observation: a *tombstone*. It has no other columns than those of its
stratum, and no query reads it. It has the time of its observation, so it replaces the observation
exactly: levels and watermarks stay as they are. The sketch drops it when it would have dropped the
observation, and from then on the watermark rejects every duplicate. So a withdrawn observation
never returns, in any merge tree.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.params import SketchParams
from decaysketch.core.records import Record, Records
from decaysketch.errors import ObservationError

__all__ = ["WITHDRAWN", "fault_of_revisions", "revised", "tombstones_of", "withdrawn_rows"]

WITHDRAWN = 255
"""The revision that withdraws an observation."""


def revised(params: SketchParams, records: Records) -> Records:
    """Return rows as a sketch stores them: revision 0 where it is null.

    Raises:
        ObservationError: a revision outside 0 to 254.
    """
    name = params.revision
    if name is None:
        return records
    place = [known for known, _ in records.types].index(name)
    keys = records.columns[place].keys
    keys = np.where(keys == MISSING_KEY, np.int64(0), keys)
    outside = (keys < 0) | (keys >= WITHDRAWN)
    if outside.any():
        row = int(outside.argmax())
        raise ObservationError(
            f"column {name!r}: values[{row}] is {int(keys[row])}; expected a revision from 0 to "
            f"{WITHDRAWN - 1}: withdraw observations with withdraw()",
            column=name, row=row, value=int(keys[row]),
        )  # fmt: skip
    columns = list(records.columns)
    columns[place] = Record(keys)
    return Records(records.types, tuple(columns))


def withdrawn_rows(params: SketchParams, records: Records | None) -> npt.NDArray[np.bool_] | None:
    """Return the tombstones among rows. None if there are none."""
    if records is None or params.revision is None:
        return None
    found = records.column(params.revision).keys == WITHDRAWN
    return found if found.any() else None


def tombstones_of(params: SketchParams, records: Records) -> Records:
    """Return a tombstone for each row."""
    rows = len(records)
    columns = []
    for (name, _), column in zip(records.types, records.columns, strict=True):
        if name in params.strata:
            columns.append(column)
        else:
            key = WITHDRAWN if name == params.revision else MISSING_KEY
            columns.append(Record(np.full(rows, key, np.int64)))
    return Records(records.types, tuple(columns))


def fault_of_revisions(params: SketchParams, records: Records | None) -> str | None:
    """Return why no honest builder has such rows. None: one may have."""
    if records is None or params.revision is None:
        return None
    revisions = records.column(params.revision).keys
    if len(revisions) and not 0 <= int(revisions.min()) <= int(revisions.max()) <= WITHDRAWN:
        return f"a revision is outside 0 to {WITHDRAWN}"
    gone = revisions == WITHDRAWN
    for (name, _), column in zip(records.types, records.columns, strict=True):
        exempt = name == params.revision or name in params.strata
        if not exempt and (column.keys[gone] != MISSING_KEY).any():
            return f"a withdrawn row has a value in column {name!r}; expected none"
    return None
