"""What SQL says as a text, as what the library takes: decays, and what a sketch is built with.

Texts may come from anybody who may write a query. None is executed: a decay by name is held against
one regular expression, an expression goes to :mod:`decaysketch.decay.parse`, JSON to the library's
``from_dict``; lengths are limited first.

=========================================================  =======================================
``window(3600)``, ``window(1h)``                           by name; a unit converts to the stream's
``exponential(half_life=15min)``, ``exponential(rate=2)``
``polynomial(2)``, ``polynomial(2, scale=1d)``, ``none``
``1/(1 + log(1 + x/60))``                                  an expression in the age ``x``
``{"kind": "piecewise", "steps": [[60, 1], [3600, 0.5]]}``  JSON, as an aggregator takes it
=========================================================  =======================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from decaysketch import decay as decays
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError
from decaysketch.families import Recipe, recipe_from_dict

__all__ = ["MAX_TEXT", "decay_of", "recipe_of_text"]

MAX_TEXT = 20_000
"""Characters of a text."""

_CALL = re.compile(r"([a-z]+)\s*(?:\(([^()]*)\))?")
_ARGUMENT = re.compile(
    r"\s*(?:([a-z_]+)\s*=\s*)?"
    r"([+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:[eE][+-]?\d{1,3})?)\s*([a-z]{0,8})\s*"
)
# Of the decays that have a name, the parameters that may be given by place.
_PLACED = {"window": ("width",), "exponential": (), "polynomial": ("exponent", "scale"), "none": ()}
_TIMES = {"width", "half_life", "scale"}  # parameters that are ages, and may have a unit


@lru_cache(maxsize=256)
def decay_of(text: str, time_unit: str) -> Decay:
    """The decay that a text names.

    Args:
        text: as the table of this module lists them.
        time_unit: of the stream that is asked.

    Raises:
        ParameterError: none of these forms, or a decay outside its domain.

    Example:
        >>> decay_of("exponential(half_life=15min)", "s")
        exponential(half_life=900)
    """
    _check_length("decay", text)
    stripped = text.strip()
    if stripped.startswith("{"):
        return decays.from_dict(_json_object("decay", stripped))
    call = _CALL.fullmatch(stripped)
    if call is None or call[1] not in _PLACED:
        try:
            return decays.expression(stripped)
        except ParameterError as fault:
            raise ParameterError(
                f"decay {_shortened(text)} is none of {', '.join(_PLACED)}, and as an expression: "
                f"{fault}"
            ) from None
    name = call[1]
    fields: dict[str, Any] = {"kind": name}
    places = iter(_PLACED[name])
    for part in (call[2] or "").split(",") if (call[2] or "").strip() else ():
        argument = _ARGUMENT.fullmatch(part)
        if argument is None:
            raise ParameterError(
                f"decay {text!r} has {part.strip()!r}; expected a number, or name=number"
            )
        parameter = argument[1] or next(places, None)
        if parameter is None:
            raise ParameterError(f"decay {text!r}: {part.strip()!r} needs a name, name=number")
        if parameter in fields:
            raise ParameterError(f"decay {text!r} gives {parameter} twice")
        number = _number(argument[2])
        if unit := argument[3]:
            number = _converted(text, parameter, argument[2], unit, time_unit)
        fields[parameter] = number
    return decays.from_dict(fields)


@lru_cache(maxsize=64)
def recipe_of_text(text: str) -> Recipe:
    """What a sketch is built with, from JSON: the parameters of a ``DecaySketch``, or
    ``{"family": ..., "params": {...}}``, for an integral decay with ``"decay": {...}``.

    Raises:
        ParameterError: no JSON, an unknown field, a missing one, or one outside its domain.
    """
    _check_length("stream", text)
    fields = _json_object("stream", text)
    if "params" not in fields:
        fields = {"params": fields}
    if not isinstance(fields.get("family", ""), str):
        raise ParameterError(f"family is {fields['family']!r}; expected a text")
    return recipe_from_dict(fields)


def _check_length(name: str, text: str) -> None:
    if len(text) > MAX_TEXT:
        raise ParameterError(f"{name} has {len(text)} characters; expected at most {MAX_TEXT}")


def _json_object(name: str, text: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as fault:
        reason = fault if isinstance(fault, ValueError) else "nested too deep"
        raise ParameterError(f"{name} {_shortened(text)} is not JSON: {reason}") from None
    if not isinstance(fields, dict):
        raise ParameterError(f"{name} is {_shortened(text)}; expected a JSON object")
    return fields


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _converted(text: str, parameter: str, number: str, unit: str, time_unit: str) -> int | float:
    """A length of time in the stream's unit, an integer where it is one."""
    if parameter not in _TIMES:
        raise ParameterError(f"decay {text!r}: {parameter} takes no unit; it has {unit!r}")
    if unit not in NANOSECONDS or time_unit not in NANOSECONDS:
        raise ParameterError(
            f"decay {text!r}: {unit!r} cannot be converted to the stream's unit {time_unit!r}; "
            f"known are {', '.join(NANOSECONDS)}"
        )
    length = Fraction(number) * NANOSECONDS[unit] / NANOSECONDS[time_unit]
    return int(length) if length.denominator == 1 else float(length)
