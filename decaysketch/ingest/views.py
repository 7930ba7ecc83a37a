"""The definition of a derived stream: the device and the value of each observation.

A derived stream has its own ids: devices alone (:class:`decaysketch.Devices`). Any program that has
the parts of an observation's id can feed it. The server feeds it from raw posts. A bridge feeds it,
too, because it hashes ids itself. Both use :func:`decaysketch.ingest.columns.of_devices`, so they
produce the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from decaysketch.errors import ParameterError

__all__ = ["MAX_PART", "MAX_PARTS", "ViewOf"]

MAX_PART, MAX_PARTS = 7, 4
"""Largest index of an id part, and largest number of parts in a device name."""


@dataclass(frozen=True)
class ViewOf:
    """The input of a derived stream.

    Attributes:
        of: name of the stream that feeds it.
        parts: indexes of the id parts that together name a device.
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
        """Parse the JSON form. The input may be any object.

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
