"""Parts of a JSON document as times, id parts, integers and texts."""

from __future__ import annotations

import json
from datetime import tzinfo
from math import isfinite
from typing import Any, NamedTuple

from decaysketch.core.plausible_times import in_another_unit
from decaysketch.core.text_values import (
    TextError,
    epoch_nanoseconds,
    integer_of,
    moment_of,
    number_of,
)
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.ingest.mapping import shown
from decaysketch.ingest.paths import ABSENT
from decaysketch.ingest.readings import RefusedError

__all__ = ["Clock", "attribute_text", "integer", "key_part", "moment"]

_EXACT = 1 << 53


class Clock(NamedTuple):
    """The format of a mapping's times.

    Attributes:
        unit: of numbers; None: times are texts.
        zone: of texts that name none.
        format: of ``strptime``.
        check_units: whether a number that would be a date in another unit is rejected.
    """

    unit: str | None = None
    zone: tzinfo | None = None
    format: str | None = None
    check_units: bool = True


_ANY_CLOCK = Clock()


def moment(given: Any, name: str, clock: Clock = _ANY_CLOCK) -> int:
    """Return the nanoseconds since 1970-01-01 UTC for a time in a message.

    Args:
        given: a number or a text.
        name: for error messages.
        clock: the format of times.

    Raises:
        RefusedError: it is no time, or it has no zone.
    """
    kind = type(given)
    try:
        if clock.unit is not None:
            if kind is int or (kind is float and isfinite(given)):
                return _checked(given, name, clock)
            if kind is str and not _is_date(given):
                return _checked(number_of(given), name, clock, given)
        if kind is not str:
            wanted = (
                f"a number of {clock.unit}" if clock.unit else f"a text such as {_SUCH}; a number "
                "needs `time_unit` in the mapping"
            )  # fmt: skip
            raise RefusedError(f"{name} is {shown(given)}; expected {wanted}")
        found = moment_of(given, clock.zone, clock.format)
    except TextError as fault:
        raise RefusedError(f"{name} {fault}") from None
    if not found.zoned:
        raise RefusedError(
            f"{name} is {shown(given)} without a zone; expected a time with its zone, such as "
            f"{_SUCH}, or set `time_zone` in the mapping, such as 'Europe/Berlin' or 'UTC'"
        )
    return found.ns


def _is_date(text: str) -> bool:
    """Return whether a text is a date and not a number."""
    return any(each in text for each in "-:/") and "e-" not in text.lower()


def _checked(number: int | float, name: str, clock: Clock, text: str | None = None) -> int:
    """Return the nanoseconds for a number in the clock's unit.

    Raises:
        RefusedError: it would be a date in another unit.
    """
    unit = clock.unit
    assert unit is not None
    found = epoch_nanoseconds(number if text is None else text, unit)
    if clock.check_units and (other := in_another_unit(unit, found // NANOSECONDS[unit])):
        raise RefusedError(
            f"{name} is {shown(number)}, which does not look like {unit}{other}; set `time_unit`, "
            "or `check_units = false` if it is right"
        )
    return found


_SUCH = "'2026-01-31T12:00:00Z'"


def key_part(given: Any, name: str) -> str | int:
    """Return a part of an id. JSON writers that know floats alone write 7.0 for 7. A fraction, such
    as a time in seconds, becomes its shortest decimal, as text.
    """
    if type(given) is float and isfinite(given):
        is_whole = given.is_integer() and abs(given) <= _EXACT
        return int(given) if is_whole else repr(given)
    if given is ABSENT:
        raise RefusedError(f"there is no {name}, which the id needs")
    if type(given) not in (str, int) or given == "":
        raise RefusedError(f"{name} is {shown(given)}; expected a number or a text as an id part")
    part: str | int = given
    return part


def integer(given: Any, name: str) -> int:
    if type(given) is float and given.is_integer() and abs(given) <= _EXACT:
        return int(given)
    if type(given) is str:
        try:
            return integer_of(given)
        except TextError as fault:
            raise RefusedError(f"{name} is the weight, and {fault}") from None
    if type(given) is not int:
        reason = "there is none" if given is ABSENT else f"it is {shown(given)}"
        raise RefusedError(f"{name} is the weight, and {reason}; expected an integer")
    return given


def attribute_text(given: Any, name: str) -> str | None:
    """Return an attribute as text. Numbers and truth values become their JSON. None: null.

    Raises:
        RefusedError: it is an object or an array.
    """
    if given is ABSENT or given is None:
        return None
    if type(given) is str:
        return given
    if type(given) not in (bool, int, float):
        raise RefusedError(f"{name} is {shown(given)}; expected a text or a number")
    return json.dumps(given)
