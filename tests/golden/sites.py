"""Collections of the states of sites, as the JSON beside their bytes says them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from decaysketch.core.observations import TIME_LIMIT
from decaysketch.ecm.reorder import Events
from decaysketch.ecm.state import CellColumns, CollectionState, ECMState, Lane, LaneColumns

_PLAIN = ("source", "epoch", "clock", "too_late", "moved", "merges", "slack")


def description(about: str, state: CollectionState) -> dict[str, Any]:
    """What the bytes say."""
    return {
        "about": about,
        "params": state.params.to_dict(),
        "fingerprint": state.params.fingerprint.hex(),
        "clock": state.clock,
        "told": state.told,
        "kept": len(state),
        "digest": state.digest(),
        "entries": [_entry(each) for each in state.entries],
    }


def _entry(state: ECMState) -> dict[str, Any]:
    held = (state.held.times, state.held.words, state.held.weights)
    lanes = [
        {
            "first": lane.columns.first,
            "clock": lane.columns.clock,
            "layers (ones, old ranks, times)": [
                [column.tolist() for column in layer] for layer in lane.columns.layers(state.params)
            ],
        }
        for lane in state.lanes
    ]
    events = [list(row) for row in zip(*(column.tolist() for column in held), strict=True)]
    said = {name: getattr(state, name) for name in _PLAIN}
    return {**said, "held (time, word, weight)": events, "lanes": lanes}


def state_said(params: Any, said: Mapping[str, Any]) -> CollectionState:
    """The state, from the JSON alone."""
    entries = [_entry_said(params, each) for each in said["entries"]]
    return CollectionState.of(params, entries, said["told"])


def _entry_said(params: Any, said: Mapping[str, Any]) -> ECMState:
    edge = None
    if params.horizon is not None:
        edge = max(said["clock"] - params.horizon, -TIME_LIMIT)
    lanes = []
    for lane in said["lanes"]:
        layers = [
            CellColumns(*(np.array(column, np.int64) for column in layer))
            for layer in lane["layers (ones, old ranks, times)"]
        ]
        columns = LaneColumns.of(lane["first"], lane["clock"], layers)
        lanes.append(Lane(params, edge, columns=columns))
    held = said["held (time, word, weight)"]
    times, words, weights = zip(*held, strict=True) if held else ((), (), ())
    events = Events(
        np.array(words, np.uint64), np.array(times, np.int64), np.array(weights, np.int64)
    )
    plain = {name: said[name] for name in _PLAIN}
    return ECMState(params=params, lanes=tuple(lanes), held=events, **plain)
