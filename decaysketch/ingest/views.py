"""The input of a derived stream: the device and the value of each observation.

A derived stream has its own ids, which are devices alone (:class:`decaysketch.Devices`). Any
program that has the parts of an observation's id can feed it: the server, from raw posts, and a
bridge, which hashes ids itself. Both use this module, and produce the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.hashing import RepeatedKeys
from decaysketch.core.labels import label_of
from decaysketch.errors import ParameterError
from decaysketch.ingest.columns import Batch, Form, check

__all__ = ["MAX_PART", "MAX_PARTS", "ViewOf", "of_devices"]

MAX_PART, MAX_PARTS = 7, 4
"""The last part of an id that there may be, and how many together may name a device."""


@dataclass(frozen=True)
class ViewOf:
    """The input of a derived stream.

    Attributes:
        of: name of the stream that feeds it.
        parts: of the ids, which together name a device.
        names: whether the derived stream contains each device's name, instead of its last value.
    """

    of: str
    parts: tuple[int, ...]
    names: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        said: dict[str, Any] = {"of": self.of, "id": list(self.parts)}
        return said | {"names": True} if self.names else said

    @classmethod
    def from_dict(cls, given: Any) -> ViewOf:
        """Parse the JSON form, which may be anything.

        Raises:
            ParameterError: it is invalid.
        """
        if type(given) is dict:
            of, parts, names = given.get("of"), given.get("id"), given.get("names", False)
            if (
                type(of) is str
                and type(parts) is list
                and 1 <= len(parts) <= MAX_PARTS
                and all(type(part) is int and 0 <= part <= MAX_PART for part in parts)
                and type(names) is bool
            ):
                return cls(of, tuple(parts), names)
        raise ParameterError(
            f"view_of is {str(given)[:200]!r}; expected the name of a stream as 'of', and as 'id' "
            f"a list of 1 to {MAX_PARTS} parts, 0 to {MAX_PART}"
        )


def of_devices(batch: Batch, rows: npt.NDArray[np.int64], view: ViewOf, form: Form) -> Batch:
    """Return the rows of a derived stream. O(observations).

    Args:
        batch: checked observations, with the time unit and, unless the derived stream contains
            names, the value type of the derived stream.
        rows: numbers of accepted rows, rising.
        view: its definition.
        form: required form of its rows.

    Returns:
        Those with a device.
    """
    places = batch.sound[rows]
    devices: list[tuple[Any, ...]] | None = None
    columns: tuple[Any, ...] | None = None
    last = max(view.parts)
    if batch.parts is None:
        keys = [batch.keys.get(place, ()) for place in places.tolist()]
        has = [len(key) > last for key in keys]
        devices = [
            tuple(key[part] for part in view.parts)
            for key, is_ in zip(keys, has, strict=True)
            if is_
        ]
        places, rows = places[has], rows[has]
    elif len(batch.parts) > last:
        columns = tuple(_rows(batch.parts[part], places) for part in view.parts if len(places))
    else:
        places, rows = places[:0], rows[:0]
    count = len(places)
    values, missing = batch.values[places], batch.missing[places]
    if view.names:
        values, missing = _names(devices, columns, count), np.zeros(count, np.bool_)
    given = Batch(
        batch.rows,
        batch.positions[rows],
        values,
        missing,
        np.ones(count, np.int64),
        batch.times[places],
        np.zeros(count, np.int64),
        keys={} if devices is None else dict(enumerate(devices)),
        parts=columns,
    )
    return check(given, form)


def _rows(column: Any, places: npt.NDArray[np.intp]) -> Any:
    if isinstance(column, RepeatedKeys):
        return RepeatedKeys(column.entries, column.codes[places])
    return column[places]


def _names(
    devices: Sequence[tuple[Any, ...]] | None, columns: tuple[Any, ...] | None, rows: int
) -> npt.NDArray[Any]:
    """Return device names as texts."""
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
        names[row] = label_of(device[0] if len(device) == 1 else device)
    return names
