"""Derived streams. A stream's raw observations feed them here, over every protocol.

A derived stream is a complete stream (the derivation is in :mod:`decaysketch.ingest.views`). So it
supports all stream operations, and survives the process. One transaction contains the post to the
stream and the posts to its derived streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decaysketch import SketchParams
from decaysketch.errors import ParameterError
from decaysketch.families import DEFAULT, Params
from decaysketch.ingest.views import ViewOf

__all__ = ["DEVICES", "NAMES", "ROWS_OF_A_NAME", "view_forms"]

DEVICES, NAMES = ".devices", ".devices.names"
"""Name endings of a stream's two derived streams: last readings, and device names."""


ROWS_OF_A_NAME = 11
"""Size of a device with a 40-letter name in the name view, in 25-byte rows."""


def view_forms(
    name: str, params: Params, parts: Sequence[int], capacity: int
) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return a stream's device views: name, sketch configuration as JSON, and origin.

    Args:
        name: the stream name.
        params: its parameters.
        parts: the id parts that together name a device.
        capacity: the number of devices to keep.
    """
    if columns := getattr(params, "columns", ()):
        raise ParameterError(
            f"views is given and columns is {dict(columns)!r:.80}; expected one of them: "
            "group by a column when you query"
        )
    seed, unit = params.seed, params.time_unit
    found = []
    for ending, kind, names in ((DEVICES, params.value_type, False), (NAMES, "label", True)):
        own = SketchParams(capacity=capacity, seed=seed, time_unit=unit, value_type=kind)
        form = {"family": DEFAULT, "params": own.to_dict()}
        found.append((f"{name}{ending}", form, ViewOf(name, tuple(parts), names).to_dict()))
    return found
