"""What maps of time series have in common, whichever protocol brings these.

A series is a name and what it is labelled with (tags, attributes, labels); its readings differ in
their time. Collectors of one source add labels of their own, which no id may have in it, and some
stamp by themselves: two of them never stamp alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

from pydantic import Field, field_validator

from decaysketch.core.time_units import NANOSECONDS, length_of
from decaysketch.ingest.mapping import Map, Texts

__all__ = ["Name", "SeriesMap"]

Name = Annotated[str, Field(min_length=1, max_length=1000)]


class SeriesMap(Map):
    """Which series are read; a protocol adds what its labels are called."""

    where: dict[Name, Name | Texts] = Field(
        default={},
        max_length=20,
        description="Labels (tags, attributes), and what they must be, or one of what.",
    )
    dedup: str | None = Field(
        default=None,
        max_length=100,
        description="A length such as `10s`: of each period of it, counted from 1970, there is one "
        "reading, the latest. For collectors that stamp by themselves.",
    )

    @field_validator("dedup")
    @classmethod
    def _is_a_length(cls, text: str | None) -> str | None:
        if text is not None and length_of("dedup", text) < NANOSECONDS["ms"]:
            raise ValueError(f"dedup is {text!r}; expected a millisecond at the least")
        return text

    @property
    def changes(self) -> bool:
        """Whether values are others than those that were sent."""
        return bool(self.missing) or self.scale != 1.0

    @cached_property
    def period_ns(self) -> int:
        return 1 if self.dedup is None else int(length_of("dedup", self.dedup))

    def wants(self, labels: Mapping[str, str]) -> bool:
        """Whether it reads series of these labels."""
        return all(
            labels.get(name) in ((given,) if isinstance(given, str) else given)
            for name, given in self.where.items()
        )
