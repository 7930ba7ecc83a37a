"""Decays from dictionaries: every kind that a :meth:`Decay.to_dict` may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from decaysketch.decay.functions import (
    Decay,
    exponential,
    none,
    piecewise,
    polynomial,
    window,
)
from decaysketch.decay.symbolic import expression
from decaysketch.errors import ParameterError

__all__ = ["from_dict"]

_KINDS: dict[str, tuple[Callable[..., Decay], frozenset[str]]] = {
    "window": (window, frozenset({"width"})),
    "exponential": (exponential, frozenset({"rate", "half_life"})),
    "polynomial": (polynomial, frozenset({"exponent", "scale"})),
    "none": (none, frozenset()),
    "piecewise": (piecewise, frozenset({"steps", "beyond"})),
    "expression": (expression, frozenset({"text"})),
}
_REQUIRED = {
    "window": "width",
    "polynomial": "exponent",
    "piecewise": "steps",
    "expression": "text",
}


def from_dict(fields: Mapping[str, Any]) -> Decay:
    """Inverse of :meth:`Decay.to_dict`.

    Raises:
        ParameterError: an unknown kind or field, a missing field, or a field outside its domain;
            the message names it.

    Example:
        >>> from_dict({"kind": "exponential", "half_life": 60})
        exponential(half_life=60)
    """
    remaining = dict(fields)
    kind = remaining.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ParameterError(f"kind is {kind!r}; expected one of {', '.join(sorted(_KINDS))}")
    make, known = _KINDS[kind]
    if unknown := sorted(map(str, remaining.keys() - known)):
        raise ParameterError(
            f"unknown field {unknown[0]!r} of decay {kind!r}; known are {sorted(known)}"
        )
    required = _REQUIRED.get(kind)
    if required is not None and required not in remaining:
        raise ParameterError(f"{required} of decay {kind!r} is missing")
    return make(**remaining)
