"""Derived streams, which the raw observations of a stream feed here, over every protocol.

A derived stream is a complete stream (the derivation is in :mod:`decaysketch.ingest.views`). So it
supports all operations of a stream, and survives the process. It is posted to before the
observations are acknowledged. A client without acknowledgement posts them again, and duplicates
change nothing: no transaction has to contain both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api.ingest.building import add
from api.service.posts import Incoming
from api.service.streams import Stream
from decaysketch import SketchParams
from decaysketch.families import DEFAULT, Params
from decaysketch.ingest.columns import Batch, Form, Raw
from decaysketch.ingest.readings import Steps
from decaysketch.ingest.views import ViewOf, of_devices

__all__ = ["DEVICES", "NAMES", "ROWS_OF_A_NAME", "Fed", "feed", "view_forms"]

DEVICES, NAMES = ".devices", ".devices.names"
"""What the names of the two views of a stream end in: last readings, and names of devices."""


ROWS_OF_A_NAME = 11
"""What a device of the view of names takes with a name of 40 letters, in rows of 25 bytes."""

_ROWS_A_STEP = 1 << 12  # about 10 ms where names are long


@dataclass(frozen=True)
class Fed:
    """The input of a derived stream.

    Attributes:
        view: the stream.
        incoming: the sketch; None where no observation has a device.
        without: number of observations without a device.
    """

    view: Stream
    incoming: Incoming | None
    without: int


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
    seed, unit = params.seed, params.time_unit
    found = []
    for ending, kind, names in ((DEVICES, params.value_type, False), (NAMES, "label", True)):
        own = SketchParams(capacity=capacity, seed=seed, time_unit=unit, value_type=kind)
        form = {"family": DEFAULT, "params": own.to_dict()}
        found.append((f"{name}{ending}", form, ViewOf(name, tuple(parts), names).to_dict()))
    return found


def feed(views: Sequence[Stream], raw: Raw, batch: Batch, form: Form) -> Steps[list[Fed]]:
    """Return a sketch of the accepted observations for each derived stream, in steps of
    ``_ROWS_A_STEP`` rows. O(observations).
    """
    found = []
    for view in views:
        fed = yield from _fed(view, raw, batch, form)
        found.append(fed)
    return found


def _fed(view: Stream, raw: Raw, batch: Batch, form: Form) -> Steps[Fed]:
    of_view = Form(
        view.recipe, form.source, form.latest, form.max_rows, view.row.bind_keys, form.lead
    )
    definition, sketch = ViewOf.from_dict(view.row.view), view.recipe.empty()
    accepted, rows = batch.positions, 0
    for begin in range(0, len(accepted), _ROWS_A_STEP):
        yield
        part = of_devices(raw, accepted[begin : begin + _ROWS_A_STEP], definition, of_view)
        rows += len(part.positions)
        yield
        add(sketch, view, form.source, part.columns)
    yield
    incoming = Incoming(sketch.to_bytes(), sketch.snapshot()) if rows else None
    return Fed(view, incoming, len(accepted) - rows)
