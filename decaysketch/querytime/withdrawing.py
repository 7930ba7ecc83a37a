"""Withdrawals: tombstones for stored observations, and samples without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.duplicates import matching
from decaysketch.core.observations import integer_column
from decaysketch.core.records import Records
from decaysketch.core.text.expression import Bound
from decaysketch.core.withdrawals import tombstones_of, withdrawn_rows
from decaysketch.errors import ParameterError
from decaysketch.query.columns import SampleTable, schema_of
from decaysketch.query.modifiers import Modifiers, bound_to
from decaysketch.query.sample import Sample, changed
from decaysketch.querytime.state import SketchState
from decaysketch.querytime.strata_state import StrataState

__all__ = ["check_standing", "present", "read_condition", "tombstones", "without_withdrawn"]

BoolArray = npt.NDArray[np.bool_]


def present(samples: list[Sample]) -> list[Sample]:
    """Return samples without withdrawn observations."""
    params: Any = samples[0].params
    gone = [withdrawn_rows(params, sample.records) for sample in samples]
    if all(each is None for each in gone):
        return samples

    def change(sample: Sample) -> Sample:
        found = withdrawn_rows(params, sample.records)
        if found is None:
            return sample
        return sample.only(~found[sample.value_keys])

    return changed(samples, change)


@dataclass(frozen=True)
class _Rows:
    """A state's rows, as expressions read them."""

    state: SketchState
    now: int
    labels: None = None

    @property
    def records(self) -> Records | None:
        return self.state.records

    @property
    def value_keys(self) -> npt.NDArray[np.int64]:
        return self.state.value_keys

    @property
    def weights(self) -> npt.NDArray[np.int64]:
        return self.state.weights

    @property
    def times(self) -> npt.NDArray[np.int64]:
        return self.state.times

    def __len__(self) -> int:
        return len(self.state)


def tombstones(
    states: Sequence[SketchState], now: int, ids: npt.ArrayLike | None,
    where: str | Sequence[str] | None,
) -> list[SketchState]:  # fmt: skip
    """Return the states with nothing but a tombstone for each selected observation. Of several
    conditions, one must hold.

    Raises:
        ParameterError: the stream has no revision column, or not exactly one argument is given.
    """
    params = states[0].params
    _check_revised(params)
    if (ids is None) == (where is None):
        raise ParameterError("expected ids or where, and not both")
    conditions = [] if where is None else [where] if isinstance(where, str) else list(where)
    bound = [read_condition(params, each) for each in conditions]
    found = []
    for state in states:
        rows = np.zeros(len(state), np.bool_)
        if where is not None:
            table: Any = SampleTable(_Rows(state, now))  # type: ignore[arg-type]  # as far as read
            for each in bound:
                rows |= each.holds(table)
        elif ids is not None:
            rows[matching(state.ids, integer_column("ids", ids))] = True
        gone = withdrawn_rows(params, state.records)
        found.append(_only(state, rows if gone is None else rows & ~gone))
    return found


def read_condition(params: Any, where: str) -> Bound:
    """Return a condition over a stream's columns.

    Raises:
        ParameterError: it cannot be read.
    """
    schema = schema_of(params.value_type, params.time_unit, params.columns)
    found = bound_to(Modifiers(where=where), schema)["where"]
    assert isinstance(found, Bound)
    return found


def check_standing(params: Any, where: str) -> None:
    """Reject a condition that cannot apply to future rows.

    Raises:
        ParameterError: the stream has no revision column, or the condition cannot be read, or it
            reads the age, which changes while it stands.
    """
    _check_revised(params)
    if "age" in read_condition(params, where).names:
        raise ParameterError(
            f"where {where!r} reads age, and age changes while the withdrawal applies; use time"
        )


def _check_revised(params: Any) -> None:
    if params.revision is None:
        raise ParameterError(
            "the stream has no revision column, so nothing can be withdrawn; declare one, or add "
            "one with ds.upgrade"
        )


def _only(state: SketchState, rows: BoolArray) -> SketchState:
    """Return a state with tombstones for some rows, and without watermarks."""
    from decaysketch.querytime.rows import rows_like

    assert state.records is not None
    made: Any = rows_like(state.params, state.copy)
    records = tombstones_of(state.params, state.records[state.value_keys[rows]])
    made.admit_records(records, state.weights[rows], state.times[rows], state.ids[rows])
    found: SketchState = made.state()
    return found


def without_withdrawn(given: Sequence[Sequence[SketchState]]) -> list[list[SketchState]]:
    """Return the states of several sketches without the observations that one of them withdrew."""
    weights = np.int64(given[0][0].params.max_weight)
    gone = []
    for states in given:
        for state in states:
            rows = withdrawn_rows(state.params, state.records)
            if rows is not None:
                rows = rows[state.value_keys]
                gone.append(state.ids[rows] * weights + (state.weights[rows] - 1))
    if not gone:
        return [list(states) for states in given]
    withdrawn = np.unique(np.concatenate(gone))
    return [[_without(state, withdrawn, weights) for state in states] for states in given]


def _without(state: SketchState, withdrawn: npt.NDArray[np.int64], weights: Any) -> SketchState:
    kept = np.ones(len(state), np.bool_)
    kept[matching(state.ids * weights + (state.weights - 1), withdrawn)] = False
    columns = {
        name: getattr(state, name)[kept]
        for name in ("value_keys", "weights", "times", "ids", "levels")
    }
    if isinstance(state, StrataState):
        columns["stratum"] = state.stratum[kept]
    return replace(state, **columns)
