"""Derived streams, which the raw observations of a stream feed here, over every protocol.

A derived stream is a complete stream (the derivation is in :mod:`decaysketch.ingest.views`). So it
supports all operations of a stream, and survives the process. One transaction contains the post to
the stream and the posts to its derived streams.
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
"""What the names of the two views of a stream end in: last readings, and names of devices."""


ROWS_OF_A_NAME = 11
"""What a device of the view of names takes with a name of 40 letters, in rows of 25 bytes."""


def view_forms(
    name: str, params: Params, parts: Sequence[int], capacity: int
) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The views of devices of a stream: name, recipe as JSON has it, and what it is a view of.

    Args:
        name: of the stream.
        params: of it.
        parts: of its ids, which together name a device.
        capacity: devices that are kept.
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
