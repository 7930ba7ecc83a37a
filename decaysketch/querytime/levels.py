"""A sketch's part at high levels: every source chooses the same observations.

An observation's top level depends on its id and weight alone. So sources that forward only
observations with top level ``L`` or above forward a sample of all observations, each with
probability ``p_L``, and their sketches stay comparable (:mod:`decaysketch.sources`).

:func:`part` is the canonical state for these observations. The sets ``T_0`` to ``T_L`` in
:mod:`decaysketch.querytime.state` are then one set, so their watermarks equal level ``L``'s.
Rows and watermarks above are unchanged. It follows that ``part`` and merge commute.

A reader of such a part must know ``L``: levels below it lack observations that no watermark
reports. :func:`complete_from` marks these levels as discarded at all times. No bytes hold such
watermarks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from decaysketch.core.labels import LabelBook
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.params import SketchParams
from decaysketch.errors import ParameterError
from decaysketch.querytime.state import SketchState

__all__ = ["check_from_level", "complete_from", "part"]


def check_from_level(params: SketchParams, level: int) -> None:
    """Reject a level without rows in any sketch with these parameters.

    Raises:
        ParameterError: there is no such level, or they keep more than one sample: with repetitions,
            two objectives or strata, an observation has no single level.
    """
    if not 0 <= level <= params.levels:
        raise ParameterError(f"from_level is {level!r}; expected 0 to {params.levels}")
    kept = {
        "copies": params.copies > 1, "objectives": len(params.objectives) > 1,
        "strata": bool(params.strata),
    }  # fmt: skip
    several = [name for name, is_set in kept.items() if is_set]
    if level and several:
        raise ParameterError(
            f"from_level is {level} and {several[0]} is {getattr(params, several[0])!r}; expected "
            "one of them: these sketches have several samples"
        )


def part(state: SketchState, level: int) -> SketchState:
    """Return the canonical state for the observations with this top level or above. O(rows).

    Raises:
        ParameterError: see :func:`check_from_level`.
    """
    check_from_level(state.params, level)
    kept = state.levels >= level
    marks = state.watermarks.copy()
    marks[:level] = marks[level]
    columns = {
        name: getattr(state, name)[kept]
        for name in ("value_keys", "weights", "times", "ids", "levels")
    }
    records, labels = state.records, state.labels
    if records is not None:
        records = records[columns["value_keys"]].canonical()
        columns["value_keys"] = np.arange(len(records), dtype=np.int64)
    if labels is not None:
        book = LabelBook()
        book.join([labels])
        labels = book.held([columns["value_keys"]])
    return replace(state, **columns, watermarks=marks, records=records, labels=labels)


def complete_from(states: Sequence[SketchState], level: int) -> list[SketchState]:
    """Return states that claim nothing about lower levels, for queries. Errors as :func:`part`."""
    found = []
    for state in states:
        above = part(state, level)
        marks = above.watermarks.copy()
        marks[:level] = TIME_LIMIT
        found.append(replace(above, watermarks=marks))
    return found
