"""Row status for observations that are offered to a ``DecaySketch``, found without merging.

The merged state's watermarks follow from one walk over the stored rows and the new rows. For a
batch with ``n`` rows and a state with ``R`` it takes O(R + n), a few nanoseconds for each stored
row. With several hash functions (``copies``) the most favourable status counts. See
:mod:`decaysketch.core.row_check`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.duplicates import matching
from decaysketch.core.observations import Observations
from decaysketch.core.records import Records, comparable_keys
from decaysketch.core.row_check import Batch, Compared, Identified, Verdict, VerdictArray
from decaysketch.core.strata import strata_of
from decaysketch.querytime.rows import most_favourable, weighted_rows
from decaysketch.querytime.rows_by_key import state_of
from decaysketch.querytime.state import SketchState
from decaysketch.querytime.strata_state import (
    StrataState,
    by_stratum,
    columns_of,
    empty_state,
    plain_params,
)

__all__ = ["compared"]

Int64Array = npt.NDArray[np.int64]


def compared(
    states: Sequence[SketchState], batch: Observations, records: Records | None = None
) -> Compared:
    """Return the status for each row in a batch that is offered to a ``DecaySketch``, and whether
    it shares identities.

    Args:
        states: one for each repetition, as ``DecaySketch.states`` gives them.
        batch: validated columns. Rows with weight 0 are below the watermark.
        records: the rows' columns, if the stream has columns.

    Rows with weight 0 share none. :func:`~decaysketch.querytime.rows.compared_in_place` reads rows
    instead of states.
    """
    if isinstance(states[0], StrataState):
        assert records is not None
        return Compared(_verdicts_by_stratum(states[0], batch, records), True)
    weighted, rows = weighted_rows(batch)
    if not len(rows.ids):
        return Compared(np.full(len(weighted), Verdict.BELOW_WATERMARK, np.int8), False)
    if records is not None:
        records = records[rows.value_keys]
    offered = Identified(rows.ids, rows.weights, rows.timestamps, rows.value_keys)
    found, shares = [], False
    for state in states:
        state, judged = _comparable(state, offered, records)
        levels = minhit.top_levels(state.params, rows.ids, rows.weights, copy=state.copy)
        held = Identified(state.ids, state.weights, state.times, state.value_keys).contiguous()
        marks, held_levels = state.watermarks.copy(), np.ascontiguousarray(state.levels)
        found.append(judged.judge_by_marks(levels, held, held_levels, marks, state.params.capacity))
        shares |= judged.repeats or judged.known > 0
    return Compared(most_favourable(found, weighted), shares)


def _verdicts_by_stratum(state: StrataState, batch: Observations, records: Records) -> VerdictArray:
    """Return the same for a sketch with strata: stratum by stratum."""
    params, (held, order) = state.params, by_stratum(state)
    types = params.own_columns
    keys = [np.zeros(len(state), np.int64), np.zeros(len(batch.ids), np.int64)]
    if types:
        known = matching(state.ids, batch.ids)
        own, given = state.own_records, columns_of(records, types)
        assert own is not None
        keys[0][known], keys[1] = comparable_keys([own[known], given])
    held = held._replace(value_keys=keys[0][order])
    named = strata_of([records.column(name) for name in params.strata])
    numbers = {state.names(number): number for number in range(len(state.strata))}
    plain = plain_params(params)
    verdicts = np.empty(len(batch.ids), np.int8)
    rows = np.argsort(named.codes, kind="stable")
    ends = np.cumsum(np.bincount(named.codes, minlength=len(named.names)))
    for name, places in zip(named.names, np.split(rows, ends[:-1]), strict=True):
        number = numbers.get(name)
        one = empty_state(plain) if number is None else state_of(plain, held, number)
        part = Observations(*(column[places] for column in batch))
        part = part._replace(value_keys=keys[1][places])
        verdicts[places] = compared([one], part).verdicts
    return verdicts


def _comparable(
    state: SketchState, offered: Identified, records: Records | None
) -> tuple[SketchState, Batch]:
    """Return a state and a batch with comparable value keys. With columns they are ranks among the
    rows with an id that the batch has twice, or that both have. Other rows are never compared.
    """
    if records is None or state.records is None:
        return state, Batch(offered)
    known = matching(state.ids, offered.first)
    ordered = np.sort(offered.first)
    shared = np.union1d(ordered[1:][ordered[1:] == ordered[:-1]], state.ids[known])
    keys, given = np.zeros(len(state), np.int64), np.zeros(len(ordered), np.int64)
    if len(shared):
        some = np.isin(offered.first, shared)
        parts = state.records[state.value_keys[known]], records[some]
        keys[known], given[some] = comparable_keys([part.canonical() for part in parts])
    return replace(state, value_keys=keys), Batch(offered._replace(values=given))
