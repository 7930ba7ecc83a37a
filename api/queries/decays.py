"""Decays in requests.

Their domains are the library's business: each model builds the library's decay, and reports the
library's rejection at the place in the request. Decays with a few numbers are built while the
request is read, and used directly. Checking a long step list takes 2 ms. Reading and checking an
expression text takes 50 ms. So that is done later, where it delays no other request, and once for
all equal texts (``planning``, and the route for curves). The same holds for decays written as a
text, because their units are the stream's.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Annotated, Any, Literal, Self, TypeGuard

from pydantic import (
    Discriminator,
    Field,
    PlainValidator,
    PrivateAttr,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from api.schemas import FIELDS, TEXT, DecayText, RequestModel, text_or_fields
from decaysketch import decay as decays
from decaysketch.decay.read import kind_of
from decaysketch.decay.terms import MAX_TEXT

__all__ = [
    "MOST_STEPS",
    "AnyDecay",
    "AnyNumber",
    "DecayModel",
    "ExpressionDecay",
    "NonNegative",
    "Positive",
    "decay_asked",
    "is_expression",
]

MOST_STEPS = 1000
"""Maximum steps in a decay."""


def _number(value: Any) -> int | float:
    """Return a finite JSON number. An integer stays an integer, because ages may need all 63
    bits.
    """
    if not isinstance(value, bool) and isinstance(value, (int, float)):
        with suppress(OverflowError):  # an integer beyond every double
            if math.isfinite(value):
                return value
    raise PydanticCustomError("finite_number", "Input should be a finite number")


def _number_of(**schema: Any) -> Any:
    return WithJsonSchema({"type": "number"} | schema)


def _length(value: Any) -> int | float | str:
    """Return a number, or a text with a unit. The library reads the text once the stream's unit
    is known.
    """
    return value if isinstance(value, str) else _number(value)


def _length_of(**schema: Any) -> Any:
    text = {"type": "string", "maxLength": 100, "examples": ["1h30m", "90s"]}
    return WithJsonSchema({"anyOf": [{"type": "number"} | schema, text]})


AnyNumber = Annotated[int | float, PlainValidator(_number), _number_of()]
NonNegative = Annotated[int | float, PlainValidator(_number), _number_of(minimum=0)]
Positive = Annotated[int | float, PlainValidator(_number), _number_of(exclusiveMinimum=0)]
Age = Annotated[int | float | str, PlainValidator(_length), _length_of(minimum=0)]
PositiveAge = Annotated[int | float | str, PlainValidator(_length), _length_of(exclusiveMinimum=0)]


class DecayModel(RequestModel):
    """Base of the decays."""

    def to_library(self) -> decays.Decay:
        """Return the library's decay. It checks the domain of every field.

        Raises:
            ParameterError: a field is outside its domain.
        """
        return decays.from_dict(self.fields())

    def fields(self) -> dict[str, Any]:
        """Return the fields in the form of the library's ``to_dict``."""
        return {name: value for name, value in self if value is not None}


class _CheckedDecay(DecayModel):
    _decay: decays.Decay = PrivateAttr()

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._decay = super().to_library()
        return self

    def to_library(self) -> decays.Decay:
        return self._decay


class WindowDecay(_CheckedDecay):
    """Weight 1 up to age `width`, inclusive, then 0."""

    kind: Literal["window"]
    width: Age


class ExponentialDecay(_CheckedDecay):
    """`exp(-rate * age)` or `2^(-age / half_life)`. Give one of the two."""

    kind: Literal["exponential"]
    rate: Positive | None = None
    half_life: PositiveAge | None = None


class PolynomialDecay(_CheckedDecay):
    """`(1 + age / scale)^-exponent`."""

    kind: Literal["polynomial"]
    exponent: Positive
    scale: PositiveAge = 1


class NoDecay(_CheckedDecay):
    """Weight 1 at every age."""

    kind: Literal["none"]


class PiecewiseDecay(DecayModel):
    """Each step has a weight up to its age. After the last step, the weight is `beyond`."""

    kind: Literal["piecewise"]
    steps: list[Annotated[list[Age], Field(min_length=2, max_length=2)]] = Field(
        min_length=1,
        max_length=MOST_STEPS,
        fail_fast=True,
        description="Pairs `[age, weight]`: ages rise, weights do not.",
    )
    beyond: NonNegative = 0


class ExpressionDecay(DecayModel):
    """An expression in the age `x`: finite, >= 0, and not rising. It is parsed, never executed."""

    kind: Literal["expression"]
    text: str = Field(
        min_length=1,
        max_length=MAX_TEXT,
        description="`+ - * / // **`, decimal numbers, `e`, `pi`; `exp log ln sqrt floor ceil min "
        "max`; `where(x <= 60, then, otherwise)`.",
        examples=["1/(1 + log(1 + x/60))"],
    )


AnyDecay = Annotated[
    Annotated[
        Annotated[
            WindowDecay
            | ExponentialDecay
            | PolynomialDecay
            | NoDecay
            | PiecewiseDecay
            | ExpressionDecay,
            Field(discriminator="kind"),
        ],
        Tag(FIELDS),
    ]
    | Annotated[DecayText, Tag(TEXT)],
    Discriminator(text_or_fields),
    Field(description="Weight of an observation as a function of its age."),
]


def decay_asked(asked: DecayModel | str, time_unit: str | None) -> decays.Decay:
    """Return the library's decay.

    Args:
        asked: an :data:`AnyDecay`.
        time_unit: the stream's unit, used for texts and lengths with units. None: units are not
            allowed.

    Raises:
        ParameterError: it is none.
    """
    if isinstance(asked, str):
        return decays.parse(asked, time_unit)
    decay = asked.to_library()
    return decay if time_unit is None else decay.bound(time_unit)


def is_expression(asked: DecayModel | str | None) -> TypeGuard[ExpressionDecay | str]:
    """Return whether it may take a twentieth of a second to read. The check itself is quick."""
    if isinstance(asked, str):
        return kind_of(asked) in (None, "expression")
    return isinstance(asked, ExpressionDecay)
