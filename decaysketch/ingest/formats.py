"""The mappings of all formats, and their checks against a stream.

:mod:`decaysketch.ingest.message_formats` lists the formats whose body is one message. Their
mappings are ``AnyMap``. Only a server receives bodies with many readings: their mappings are in
``_MapOfStream`` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self, Union

from pydantic import BaseModel, ConfigDict, Field, model_validator

from decaysketch.core.column_types import ColumnTypes
from decaysketch.errors import ParameterError
from decaysketch.families import Recipe
from decaysketch.ingest.documents import (
    DEVICE,
    LORAWAN,
    DocumentMap,
    Message,
    opened_or_told,
)
from decaysketch.ingest.line_protocol import LineMap
from decaysketch.ingest.mapping import Map
from decaysketch.ingest.message_formats import MESSAGE_FORMATS
from decaysketch.ingest.otlp import OtlpMap
from decaysketch.ingest.readings import Parsed
from decaysketch.ingest.remote_write import RemoteWriteMap
from decaysketch.ingest.series import SeriesIndex, SeriesMap, entity_of

__all__ = [
    "AnyMap",
    "Mappings",
    "check_suited",
    "check_suits",
    "ingest_of",
    "mappings_of",
    "parse_message",
]

if TYPE_CHECKING:  # a type checker cannot read a table
    AnyMap = DocumentMap
    _MapOfStream = DocumentMap | LineMap | OtlpMap | RemoteWriteMap
else:
    _OF_MESSAGES = tuple(each.mapping for each in MESSAGE_FORMATS.values())
    AnyMap = Annotated[Union[_OF_MESSAGES], Field(discriminator="format")]  # noqa: UP007
    _MapOfStream = Annotated[
        Union[(*_OF_MESSAGES, LineMap, OtlpMap, RemoteWriteMap)],
        Field(discriminator="format"),
    ]


class Mappings(BaseModel):
    """``ingest`` of a stream: mappings from other formats to its readings."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    map: Annotated[tuple[_MapOfStream, ...], Field(strict=False, min_length=1, max_length=20)]

    @property
    def series(self) -> Mapping[str, SeriesIndex[Any]]:
        """The time series mappings, by their format, in a stream without columns."""
        return self.indexes(())

    def indexes(self, types: ColumnTypes) -> Mapping[str, SeriesIndex[Any]]:
        """Return the time series mappings, compiled once, by their format.

        Args:
            types: declared columns.

        Raises:
            ParameterError: a mapping fills a column that the stream does not declare.
        """
        if types not in self._compiled:
            self._compiled[types] = {
                format: SeriesIndex(maps, types) for format, maps in self._by_format().items()
            }
        return self._compiled[types]

    @cached_property
    def _compiled(self) -> dict[ColumnTypes, Mapping[str, SeriesIndex[Any]]]:
        return {}

    def _by_format(self) -> dict[str, list[SeriesMap]]:
        found: dict[str, list[SeriesMap]] = {}
        for each in self.map:
            if isinstance(each, SeriesMap):
                found.setdefault(each.format, []).append(each)
        return found

    @model_validator(mode="after")
    def _names_one_entity(self) -> Self:
        for maps in self._by_format().values():
            entity_of(maps)
        return self

    @model_validator(mode="after")
    def _names_nothing_of_a_bridge(self) -> Self:
        for place, each in enumerate(self.map):
            for name in ("stream", "topics"):
                if given := getattr(each, name, None):
                    raise ValueError(
                        f"map[{place}].{name} is {given!r}; the mapping of a stream has no stream "
                        "and no topics"
                    )
        return self


def check_suits(mappings: Mappings | None, recipe: Recipe) -> None:
    """Reject mappings whose readings have no meaning in a stream.

    Raises:
        ParameterError: see :func:`check_suited`.
    """
    for place, each in enumerate(() if mappings is None else mappings.map):
        check_suited(each, recipe, f"map[{place}]")


def check_suited(mapping: Map, recipe: Recipe, place: str) -> None:
    """Reject a mapping whose readings have no meaning in a stream.

    Raises:
        ParameterError: the mapping has fields of series, and the stream samples no series; or it
            does, and the mapping makes a series of each frame, or fills an attribute that is not
            declared; or the mapping does not fill the stream's columns.
    """
    _check_fills(mapping, recipe, place)
    series = recipe.kind.input.series
    for name, given in mapping.of_series.items():
        if not series:
            raise ParameterError(
                f"{place}.{name} is {given!r:.80}, and the family is {recipe.family!r}; expected "
                "the family 'series'"
            )
    if not series or not isinstance(mapping, DocumentMap):
        return
    if LORAWAN in mapping.id_paths:
        raise ParameterError(
            f"{place}.id has {LORAWAN!r}, which names a frame; expected '{DEVICE}', or paths that "
            "name the device, because an id of the family 'series' names a series; or give `kind` "
            "and no id"
        )
    declared = getattr(recipe.params, "attributes", ())
    if unknown := [name for name in mapping.attributes if name not in declared]:
        raise ParameterError(
            f"{place}.attributes has {unknown[0]!r:.80}; the stream has "
            f"{', '.join(declared) or 'none: declare them in its params'}"
        )


def _check_fills(mapping: Map, recipe: Recipe, place: str) -> None:
    """Reject a mapping that does not fill the declared columns.

    Raises:
        ParameterError: likewise.
    """
    types: ColumnTypes = getattr(recipe.params, "columns", ())
    if mapping.columns is None and types:
        listed = ", ".join(f"{name} {kind}" for name, kind in types)
        raise ParameterError(
            f'{place} has no columns, and the stream declares {listed}; expected \'"columns": '
            '"*"\', a list of columns, or sources by column, instead of a value'
        )
    if mapping.columns is None:
        return
    if not types:
        raise ParameterError(
            f"{place}.columns is given, and the stream declares no columns; expected a stream "
            'whose params have "columns", such as {"temp": "float64", "site": "text"}'
        )
    try:
        mapping.check_fills(types)
    except ParameterError as fault:
        raise ParameterError(f"{place}.{fault}") from None


def ingest_of(mappings: Mappings | None) -> dict[str, Any] | None:
    """Return mappings as JSON, without unset fields."""
    if mappings is None:
        return None
    return mappings.model_dump(mode="json", exclude_defaults=True)


def mappings_of(ingest: Mapping[str, Any] | None) -> Mappings | None:
    """Parse the result of :func:`ingest_of`."""
    return None if ingest is None else Mappings.model_validate(ingest)


def parse_message(message: Message, format: str, maps: Iterable[DocumentMap]) -> Parsed:
    """Return the readings in a message, by mappings of its format. Never raises, for any bytes.
    O(length).
    """
    parsed = Parsed()
    opened = opened_or_told(MESSAGE_FORMATS[format].open_message, message, parsed)
    if opened is not None:
        parsed.off += opened.off
        for each in maps:
            each.read(opened, parsed)
    return parsed
