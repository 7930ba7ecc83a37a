"""What a view of a stream is fed: of each observation the device that it is of, and what it said.

A view is a stream of its own, whose ids are devices alone (:class:`decaysketch.Devices`),
fed by the raw observations of another one, whichever road they come by. So all that a stream can do
it can, and nothing of it is lost with a process. It is posted to before the observations are
acknowledged; whoever was not told that they were posts them again, and copies change nothing: no
transaction has to hold both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from api.ingest.building import build
from api.service.drafts import Incoming
from api.service.streams import Stream
from decaysketch import Devices, SketchParams
from decaysketch.core.hashing import RepeatedKeys
from decaysketch.families import DEFAULT, Params
from decaysketch.ingest.columns import Batch, Form, Raw, check

__all__ = ["DEVICES", "NAMES", "Fed", "feed", "view_forms"]

DEVICES, NAMES = ".devices", ".devices.names"
"""What the names of the two views of a stream end in: last readings, and names of devices."""

_NAMED = "names"


@dataclass(frozen=True)
class Fed:
    """What a view is fed.

    Attributes:
        view: the stream.
        incoming: the sketch; None where no observation is of a device.
        without: so many observations are of none.
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
    of: dict[str, Any] = {"of": name, "id": list(parts)}
    found = []
    for ending, kind, said in (
        (DEVICES, params.value_type, of),
        (NAMES, "label", of | {_NAMED: True}),
    ):
        own = SketchParams(capacity=capacity, seed=seed, time_unit=unit, value_type=kind)
        found.append((f"{name}{ending}", {"family": DEFAULT, "params": own.to_dict()}, said))
    return found


def feed(views: Sequence[Stream], raw: Raw, batch: Batch, form: Form) -> list[Fed]:
    """Sketches of the sound observations of a body, for each view. O(observations)."""
    found = []
    for view in views:
        said = view.row.view
        assert said is not None
        given = _of_devices(raw, batch, said)
        form_of_view = Form(
            view.recipe, form.source, form.latest, form.max_rows, view.row.bind_keys, form.lead
        )
        fed = check(given, form_of_view)
        incoming = None
        if len(fed.positions):
            sketch = build(view, form.source, fed.columns)
            incoming = Incoming(sketch.to_bytes(), sketch.snapshot())
        found.append(Fed(view, incoming, len(batch.positions) - len(fed.positions)))
    return found


def _of_devices(raw: Raw, batch: Batch, said: Mapping[str, Any]) -> Raw:
    """The sound rows whose ids have the parts that name a device, with these in place of them."""
    parts: Sequence[int] = said["id"]
    sound = np.flatnonzero(np.isin(raw.positions, batch.positions))
    devices: list[tuple[Any, ...]] | None = None
    columns: tuple[Any, ...] | None = None
    if raw.parts is None:
        keys = [raw.keys.get(place, ()) for place in sound.tolist()]
        has = [len(key) > max(parts) for key in keys]
        devices = [
            tuple(key[part] for part in parts) for key, is_ in zip(keys, has, strict=True) if is_
        ]
        places = sound[has]
    else:
        places = sound if len(raw.parts) > max(parts) else sound[:0]
        columns = tuple(_rows(raw.parts[part], places) for part in parts if len(places))
    rows = len(places)
    values, missing = raw.values[places], raw.missing[places]
    if said.get(_NAMED):
        values, missing = _names(devices, columns, rows), np.zeros(rows, np.bool_)
    return Raw(
        raw.rows,
        raw.positions[places],
        values,
        missing,
        np.ones(rows, np.int64),
        raw.times[places],
        np.zeros(rows, np.int64),
        keys={} if devices is None else dict(enumerate(devices)),
        parts=columns,
    )


def _rows(column: Any, places: npt.NDArray[np.intp]) -> Any:
    if isinstance(column, RepeatedKeys):
        return RepeatedKeys(column.entries, column.codes[places])
    return column[places]


def _names(
    devices: list[tuple[Any, ...]] | None, columns: tuple[Any, ...] | None, rows: int
) -> npt.NDArray[Any]:
    """Of devices, as texts."""
    names = np.empty(rows, object)
    if columns is not None:
        listed = [
            [column.entries[code] for code in column.codes.tolist()]
            if isinstance(column, RepeatedKeys)
            else column.tolist()
            for column in columns
        ]
        devices = list(zip(*listed, strict=True))
    for row, device in enumerate(devices or ()):
        names[row] = Devices.name_of(device[0] if len(device) == 1 else device)
    return names
