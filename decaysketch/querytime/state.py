"""A sketch's canonical state: a stated function of its parameters and its observations.

Let ``T_i`` contain the distinct observations with an integer selected at level ``i``. An
observation's top level is the largest such ``i``. Duplicates with equal (id, weight) are one
observation, represented by the latest: the maximum by (timestamp, value). With the capacity
``tau``,

* ``watermarks[i]`` is the largest time ``T`` such that more than ``tau`` observations with top
  level >= ``i`` have time >= ``T``. It is ``NO_WATERMARK`` if there is none: nothing was discarded.
* An observation with top level ``l`` is kept if and only if its time exceeds ``watermarks[l]``.

Then the rows with top level >= ``i`` later than ``watermarks[i]`` are exactly the paper's sample
``S_i`` (Cormode, Tirthapura and Xu, section 4.1, with all ties at a cut discarded together), and
each row is stored once. The state is a function of the *set* of seen rows, so it does not depend on
order, duplication, batching or the merge tree.

With columns an observation's value is its column tuple in name order, each column in its type's
order, null the least (:mod:`decaysketch.core.records`).

Parameters with several repetitions (independent hash functions) have one such state for each. The
observations are the same, the levels are not. So do parameters with two objectives: the second
state has the levels that weight 1 would give (:mod:`decaysketch.querytime.objectives`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.labels import Labels
from decaysketch.core.params import SketchParams
from decaysketch.core.records import Records, concatenated
from decaysketch.errors import ParameterError
from decaysketch.querytime import _wire_native as _native

__all__ = [
    "FAMILY",
    "SketchState",
    "digest_of",
    "params_of_copies",
    "stream_of",
    "with_joint_records",
]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SketchState:
    """Rows and watermarks in canonical order: time, then id, then weight, all descending.

    Attributes:
        params: parameters, with the current capacity.
        value_keys: int64[n], see :mod:`decaysketch.core.observations`. With columns: row numbers.
        weights: int64[n], 1..max_weight.
        times: int64[n].
        ids: int64[n], as given (not mixed).
        levels: int8[n], the top level of each row.
        watermarks: int64[M + 1], non-increasing. ``NO_WATERMARK`` where nothing was discarded.
        copy: number of the sample, below ``params.samples``: the hash function that chose the
            levels, or with two objectives 0 by weight and 1 by count.
        labels: labels in the rows of all repetitions, if values are labels.
        records: the columns, if the stream has columns: canonical, and for row k the values are in
            place ``value_keys[k]``.

    All arrays are read-only.
    """

    params: SketchParams
    value_keys: Int64Array
    weights: Int64Array
    times: Int64Array
    ids: Int64Array
    levels: npt.NDArray[np.int8]
    watermarks: Int64Array
    copy: int = 0
    labels: Labels | None = None
    records: Records | None = None

    def __post_init__(self) -> None:
        for name in ("value_keys", "weights", "times", "ids", "levels", "watermarks"):
            getattr(self, name).setflags(write=False)

    def __reduce__(self) -> tuple[type[SketchState], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field) for field in self.__dataclass_fields__)

    def __len__(self) -> int:
        return len(self.times)

    def digest_parts(self) -> Iterable[Any]:
        """Return more bytes that differ if states differ."""
        return ()

    def digest(self) -> str:
        """SHA-256 over parameters, watermarks and rows, in hex. It stays the same in later wire
        versions.
        """
        return digest_of([self])


def digest_of(states: Sequence[SketchState]) -> str:
    """Return SHA-256, in hex, over the states of all repetitions: equal for equal sketches."""
    params = states[0].params
    digest = hashlib.sha256(params.fingerprint)
    digest.update(params.capacity.to_bytes(8, "little"))
    for s in states:
        digest.update(len(s).to_bytes(8, "little"))
        for part in s.digest_parts():
            digest.update(part)
        for column in (s.watermarks, s.times, s.ids, s.weights):
            digest.update(np.ascontiguousarray(column, "<i8").data)
        if s.records is None:
            digest.update(np.ascontiguousarray(s.value_keys, "<i8").data)
        else:
            for part in s.records.digest_parts():
                digest.update(part)
    return digest.hexdigest()


def params_of_copies(states: Sequence[SketchState]) -> SketchParams:
    """Return the parameters that one sketch's states share.

    Raises:
        ParameterError: not exactly one state for each repetition, in order.
    """
    found = [state.copy for state in states]
    wanted = list(range(states[0].params.samples)) if states else [0]
    if found != wanted:
        raise ParameterError(f"states are of the copies {found}; expected those of {wanted}")
    params = states[0].params
    for state in states[1:]:
        if state.params != params:
            raise ParameterError(
                f"copy {state.copy} has {state.params}, copy 0 has {params}; expected one sketch"
            )
    return params


def with_joint_records(states: Sequence[SketchState]) -> tuple[SketchState, ...]:
    """Return a sketch's states with one column table for all. Each state's row numbers continue
    after the state before.
    """
    given = tuple(states)
    if len(given) == 1 or given[0].records is None:
        return given
    joint = concatenated([state.records for state in given if state.records is not None])
    found, start = [], 0
    for state in given:
        numbers = np.arange(start, start + len(state), dtype=np.int64)
        found.append(replace(state, value_keys=numbers, records=joint))
        start += len(state)
    return tuple(found)


FAMILY = 1  # decay chosen at query time


def stream_of(params: SketchParams, copy: int = 0, *, plausible: bool = True) -> _native.Stream:
    """Return the sketch parameters that the kernels need to check it."""
    return _native.Stream(
        minhit.plan(params, copy).native, max_weight=params.max_weight, capacity=params.capacity,
        floats=params.value_type == "float64", plausible=plausible,
    )  # fmt: skip
