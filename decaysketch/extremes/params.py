"""Parameters that all builders of one extremes stream share, with the fields of a ``DecaySketch``.

So one reading feeds both sketches, with the same columns, over every protocol. Ids are read and not
stored, and weights only say that a row counts. Here the capacity counts spans of time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from decaysketch.core.params import OPTIONS as SHARED
from decaysketch.core.params import SketchParams
from decaysketch.errors import ParameterError

__all__ = ["DEFAULT_CAPACITY", "OPTIONS", "ExtremesParams"]

DEFAULT_CAPACITY = 512


@dataclass(frozen=True)
class ExtremesParams(SketchParams):
    """Build parameters for an :class:`~decaysketch.extremes.ExtremesSketch`.

    Args:
        capacity: spans of time that are distinguished at each length, at most 2^20. The start of a
            window is known to within ``1 / (capacity - 1)`` of the window, and exactly while no
            span is longer than a unit of time. Default 512.
        max_weight, id_bits, seed, time_unit, id_mix, id_key: as in
            :class:`~decaysketch.SketchParams`. They are checked, and change no result.
        value_type: "float64" (default) or "int64". Labels have no order.
        copies: 1.

    Raises:
        ParameterError: a field is outside its domain. The message names it and the value.
    """

    capacity: int = DEFAULT_CAPACITY

    def __post_init__(self, accuracy: float | str | None, expected: int | None) -> None:
        if accuracy is not None:
            raise ParameterError(
                f"accuracy is {accuracy!r}; expected none: for_window says how far off a window "
                "may begin"
            )
        super().__post_init__(accuracy, expected)
        if self.copies != 1:
            raise ParameterError(f"copies is {self.copies}; expected 1: extremes hash nothing")
        if self.value_type == "label":
            raise ParameterError(
                "value_type is 'label', and labels have no order; expected 'float64' or 'int64'"
            )

    @classmethod
    def for_window(cls, epsilon: float, **fields: Any) -> Self:
        """Return parameters for the smallest sketch that knows a window's start to within a share
        of its width.

        Args:
            epsilon: the share, between 0 and 1.
            fields: other fields.

        Raises:
            ParameterError: an argument outside its domain.

        Example:
            >>> ExtremesParams.for_window(0.01).capacity
            101
        """
        if not isinstance(epsilon, (int, float)) or not 0.0 < epsilon < 1.0:
            raise ParameterError(f"epsilon is {epsilon!r}; expected a number between 0 and 1")
        return cls(capacity=math.ceil(1.0 / epsilon) + 1, **fields)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], *, id_key: bytes | None = None) -> Self:
        if fields.get("accuracy") is not None:
            raise ParameterError(
                f"accuracy is {fields['accuracy']!r}, which is one of sums; expected a capacity"
            )
        return super().from_dict(fields, id_key=id_key)


#: The parameters of :class:`ExtremesParams`, but for the secret.
OPTIONS = tuple(
    replace(each, default=DEFAULT_CAPACITY, doc="Time spans stored for each length.")
    if each.name == "capacity"
    else replace(each, choices=("int64", "float64"), doc="Type of the values.")
    if each.name == "value_type"
    else each
    for each in SHARED
    if each.name != "copies"
)
