"""Readers for fields in JSON or headers: each field is checked, and rejected by name.

Specs, reports and grants come from strangers. Every reader here takes one value. It either returns
it in its own type or raises a :class:`~decaysketch.errors.ParameterError` that names the field,
the given value and the permitted values. The limits below bound time and memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from decaysketch.core.text.grammar import shortened
from decaysketch.errors import ParameterError

__all__ = [
    "LARGEST",
    "MAX_MONITORS",
    "MAX_SITES",
    "NAME",
    "mapping_of",
    "monitor_name",
    "number",
    "sequence_of",
    "take_known",
    "text_of",
    "url_of",
    "whole",
]

_URL = r"https?://[!-~]{1,1990}"

NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""Regular expression of the name of a monitor, which is that of a stream."""

LARGEST: Final = 2**53 - 1
"""Of whole numbers: every reader of JSON has these exactly."""

MAX_MONITORS: Final = 32
"""Monitors of a stream, so that a header names them all."""

MAX_SITES: Final = 10_000
"""Sites that a spec may list."""

_NAME = re.compile(NAME)


def monitor_name(given: object, field: str = "monitor") -> str:
    """A monitor's name."""
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise ParameterError(f"{field} is {_shown(given)}; expected {NAME}")
    return given


def whole(field: str, given: object) -> int:
    """An integer from 0 to :data:`LARGEST`."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= LARGEST:
        raise ParameterError(
            f"{field} is {_shown(given)}; expected a whole number from 0 to {LARGEST}"
        )
    return given


def number(
    field: str, given: object, least: float = -math.inf, most: float = math.inf,
    *, above: float | None = None, below: float | None = None,
) -> float:  # fmt: skip
    """A finite number in a range.

    Args:
        least, most: inclusive bounds.
        above, below: exclusive bounds.
    """
    found = math.nan
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        try:
            found = float(given)
        except OverflowError:
            found = math.inf
    inside = least <= found <= most and math.isfinite(found)
    inside = inside and (above is None or found > above) and (below is None or found < below)
    if not inside:
        bounds = [
            f"{word} {end:g}"
            for word, end in (("at least", least), ("at most", most), ("above", above),
                              ("below", below))
            if end is not None and math.isfinite(end)
        ]  # fmt: skip
        raise ParameterError(
            f"{field} is {_shown(given)}; expected {' and '.join(['a finite number', *bounds])}"
        )
    return found


def text_of(field: str, given: object, pattern: str, expected: str) -> str:
    """A text with a given form.

    Args:
        pattern: regular expression for the complete text, linear to match.
        expected: the same in words.
    """
    if not isinstance(given, str) or not re.fullmatch(pattern, given):
        raise ParameterError(f"{field} is {_shown(given)}; expected {expected}")
    return given


def url_of(field: str, given: object) -> str:
    """A URL that a service may call. The service decides whether it is permitted."""
    return text_of(field, given, _URL, "an http or https URL")


def mapping_of(field: str, given: object) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(given, Mapping):
        raise ParameterError(f"{field} is {_shown(given)}; expected an object")
    return given


def sequence_of(field: str, given: object, most: int) -> Sequence[Any]:
    """A JSON list with a maximum number of entries."""
    if not isinstance(given, (list, tuple)):
        raise ParameterError(f"{field} is {_shown(given)}; expected a list")
    if len(given) > most:
        raise ParameterError(f"{field} has {len(given)} entries; expected at most {most}")
    return given


def take_known(
    what: str, form: Mapping[str, Any], required: Sequence[str], optional: Sequence[str] = ()
) -> None:
    """Reject unknown fields, and a missing required field."""
    known = {*required, *optional}
    if unknown := [name for name in form if name not in known]:
        raise ParameterError(
            f"unknown field {_shown(unknown[0])} of {what}; known are {', '.join(sorted(known))}"
        )
    if missing := [name for name in required if name not in form]:
        raise ParameterError(f"{missing[0]} of {what} is missing")


def _shown(given: object) -> str:
    if isinstance(given, str):
        return shortened(given)
    if isinstance(given, int) and abs(given) > LARGEST:
        return "a whole number beyond 2^53"
    if isinstance(given, (list, tuple, Mapping)):
        return f"a {type(given).__name__} of {len(given)}"
    return shortened(repr(given)).strip("'\"")
