"""SenML (RFC 8428), a toy of a message format: steps 1 and 2 of the section "Add a message format"
in ``docs/architecture.md``. ``sitecustomize.py`` has step 3, the line.

A message is an array of records. A base name, base time or base unit counts for its record and all
later ones. ``records`` of the document contains each record with its full name, time and unit, and
``readings`` the values of each device and time, by name.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from decaysketch.ingest.documents import DocumentMap, Message, Opened, document_of
from decaysketch.ingest.mapping import shown
from decaysketch.ingest.paths import Here
from decaysketch.ingest.readings import RefusedError

__all__ = ["SenmlMap", "open_message"]

_RELATIVE = 1 << 28  # RFC 8428, 4.5.3: a smaller time is relative to the arrival
_SECONDARY = {"mV": ("V", 1e-3), "kPa": ("Pa", 1e3)}  # RFC 8798: units, with their factors


class SenmlMap(DocumentMap):
    """A reading of a SenML pack."""

    format: Literal["senml"] = Field(description="SenML, RFC 8428, as JSON.")


def open_message(message: Message) -> Opened:
    """Open a pack.

    Raises:
        RefusedError: the message is no array of objects.
    """
    pack = document_of(message.body)
    if type(pack) is not list or not all(type(each) is dict for each in pack):
        raise RefusedError(f"is {shown(pack)}; expected a SenML pack, an array of records")
    base: dict[str, Any] = {}
    records = []
    for each in pack:
        base |= {name: each[name] for name in ("bn", "bt", "bu") if name in each}
        if "n" in each or "v" in each:
            records.append(_record(each, base, message.arrival_ns))
    readings: dict[tuple[str, str], dict[str, Any]] = {}
    for each in records:
        key = (str(each["device"]), str(each["time"]))
        row = readings.setdefault(key, {"device": each["device"], "time": each["time"]})
        row.setdefault("values", {})[str(each["name"])] = each["value"]
    document = {"records": records, "readings": list(readings.values())}
    return Opened(Here(document, message.topic), message)


def _record(given: dict[str, Any], base: dict[str, Any], arrival_ns: int | None) -> dict[str, Any]:
    """A record with its base values. The mapping rejects values that are no texts or numbers."""
    begin, offset = base.get("bt", 0), given.get("t", 0)
    numbers = type(begin) in (int, float) and type(offset) in (int, float)
    time: Any = begin + offset if numbers else offset
    if numbers and time < _RELATIVE and arrival_ns is not None:
        time += arrival_ns / 1e9
    value, unit = given.get("v"), given.get("u", base.get("bu"))
    if type(unit) is str and unit in _SECONDARY and type(value) in (int, float):
        unit, value = _SECONDARY[unit][0], value * _SECONDARY[unit][1]
    return {
        "device": base.get("bn"),
        "name": given.get("n", ""),
        "time": time,
        "unit": unit,
        "value": value,
    }
