"""Common fields of all mappings: the stream of the readings, and the meaning of their numbers.

A value is a number, or one of the texts and numbers in ``missing``, or null. The last two mean that
the observation exists and has no value. Booleans are 0 and 1. ``scale`` multiplies the value. In a
stream of labels, whose mappings set ``labels``, it is a text. With ``columns``, rows have one
value per column (:mod:`decaysketch.ingest.record_columns`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from decaysketch.core.column_types import MAX_COLUMNS, ColumnTypes
from decaysketch.ingest.readings import RefusedError
from decaysketch.ingest.record_columns import Filling

__all__ = ["STREAM", "Map", "Text", "Texts", "shown", "without_echoes"]

STREAM = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"

Text = Annotated[str, Field(min_length=1, max_length=1000)]
Texts = Annotated[tuple[Text, ...], Field(strict=False, max_length=100)]
_Columns = (
    Text
    | Annotated[tuple[Text, ...], Field(strict=False, min_length=1, max_length=MAX_COLUMNS)]
    | Annotated[dict[Text, Text], Field(min_length=1, max_length=MAX_COLUMNS)]
)
_Sentinel = Annotated[str, Field(max_length=1000)] | int | float

_SHOWN = 60


def shown(given: object) -> str:
    """Return untrusted input as text for an error message."""
    if type(given) in (dict, list):  # their text may be long
        return f"an {'object' if type(given) is dict else 'array'}"
    if isinstance(given, bytes):
        given = given[: _SHOWN + 1].decode("utf-8", "backslashreplace")
    text = repr(given[: _SHOWN + 1] if isinstance(given, str) else given)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def without_echoes(faults: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return pydantic's errors, except "list too short" if it also reports entries of the list."""
    found = list(faults)
    above = {fault["loc"][:depth] for fault in found for depth in range(len(fault["loc"]))}
    return [each for each in found if each["type"] != "too_short" or each["loc"] not in above]


class Map(BaseModel):
    """The readings in a message that belong to one stream. A format adds its own fields.

    Attributes:
        reads: fields that select the readings, except their source.
        named_by: fields that define the parts of their ids.
    """

    reads: ClassVar[tuple[str, ...]]
    named_by: ClassVar[tuple[str, ...]]

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    format: str
    stream: str | None = Field(
        default=None,
        pattern=STREAM,
        description="For a bridge: the stream that receives the readings. Not allowed in the "
        "mapping of a stream.",
    )
    scale: float = Field(default=1.0, description="Factor for all values.")
    missing: Annotated[tuple[_Sentinel, ...], Field(strict=False, max_length=100)] = Field(
        default=(), description="Values that mean a missing value, such as -999 or an empty text."
    )

    kind: Literal["counter", "gauge", "state"] | None = Field(
        default=None,
        description="Only in the family `series`: the meaning of the values. A reading without a "
        "value, such as a stale marker, then ends the previous one. OTLP reads "
        "cumulative sums as counters.",
    )
    labels: bool = Field(
        default=False, description="Values are texts, for a stream whose `value_type` is `label`."
    )
    columns: _Columns | None = Field(
        default=None,
        description="For a stream with columns: the columns that each observation fills. `*`: "
        "every declared column, by its name. Or a list of names, or sources by "
        "column name.",
    )

    @field_validator("scale")
    @classmethod
    def _is_no_zero(cls, scale: float) -> float:
        if scale == 0:
            raise ValueError("scale is 0; expected another number")
        return scale

    @cached_property
    def identity(self) -> str:
        """Equal for equal mappings."""
        return self.model_dump_json()

    @model_validator(mode="after")
    def _scales_no_labels(self) -> Self:
        if self.labels and self.scale != 1.0:
            raise ValueError(f"scale is {self.scale}, and values are labels; expected none")
        return self

    @model_validator(mode="after")
    def _fills_columns_or_values(self) -> Self:
        if self.columns is not None:
            if self.scale != 1.0:
                raise ValueError(
                    f"scale is {self.scale}, and columns is given; scale the column in the query, "
                    f"such as 'mean(temp * {self.scale})'"
                )
            if self.labels:
                raise ValueError("labels is true, and columns is given; expected a text column")
            if self.kind is not None:
                raise ValueError(f"kind is {self.kind!r}, and columns is given; expected only one")
        return self

    @property
    def of_series(self) -> Mapping[str, Any]:
        """Fields for series only, with their values."""
        return {} if self.kind is None else {"kind": self.kind}

    @property
    def columns_omitted(self) -> frozenset[str]:
        """Names that are no column because duplicates differ in them."""
        return frozenset()

    def check_fills(self, types: ColumnTypes) -> None:
        """Raises ParameterError: ``columns`` names a column that a stream does not declare."""
        if self.columns is not None:
            Filling(self.columns, types)

    def check_columns(self) -> None:
        """Raises ValueError: ``columns`` names a source that differs between duplicates."""
        if self.columns is None or isinstance(self.columns, str):
            return
        sources = self.columns.values() if isinstance(self.columns, Mapping) else self.columns
        for name in sorted(self.columns_omitted.intersection(sources)):
            raise ValueError(
                f"columns has {name!r}, and ids do not contain it, because it differs between "
                "duplicates; expected columns that duplicates agree on"
            )

    def present(self, given: Any) -> Any:
        """Return a value that fills a column, or None if it means "no value"."""
        return None if self.missing and type(given) in _PLAIN and given in self.missing else given

    def value_of(self, given: Any) -> Any:
        """Return the value for a part of a body. None: missing.

        Raises:
            RefusedError: it is no number, or no text if values are labels.
        """
        kind = type(given)
        if given is None or (self.missing and kind in _PLAIN and given in self.missing):
            return None
        if self.labels:
            if kind is not str:
                raise RefusedError(f"is {shown(given)}; expected a text")
            return given
        if kind is bool:
            given = int(given)
        elif kind is not int and (kind is not float or not math.isfinite(given)):
            raise RefusedError(f"is {shown(given)}; expected a number")
        number: float | int = given
        return number if self.scale == 1.0 else number * self.scale


_PLAIN = (int, float, str)
