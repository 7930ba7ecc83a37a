"""What maps of time series have in common, whichever protocol brings these.

A series is a name and what it is labelled with (tags, attributes, labels); its readings differ in
their time. Collectors of one source add labels of their own, which no id may have in it, and some
stamp by themselves: two of them never stamp alike.

What series have in common is in a body once (a resource, a table of texts), so that some twenty
bytes may stand for a series whose text is as long as the body. No text is made that is too long for
an id, and those of a body are bounded together (:class:`SeriesTexts`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, field_validator

from decaysketch.core.hashing import MAX_KEY_BYTES
from decaysketch.core.time_units import NANOSECONDS, length_of
from decaysketch.ingest.mapping import Map, Texts
from decaysketch.ingest.readings import RefusedError

__all__ = ["MOST_TEXT_BYTES", "Name", "SeriesMap", "SeriesTexts", "text_of"]

MOST_TEXT_BYTES = 1 << 25
"""Of the texts of all series of a body."""

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


def text_of(labels: Mapping[str, Any]) -> str:
    """Labels as one text: no others have the same."""
    return json.dumps(labels, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


class SeriesTexts:
    """The texts of the series of one body, as long as they may be."""

    def __init__(self) -> None:
        self._bytes = 0

    def of(self, labels: Mapping[str, str]) -> str:
        """That of labels. Raises RefusedError as :meth:`checked` does."""
        self._bound(sum(len(name) + len(text) for name, text in labels.items()))
        return self.checked(text_of(labels))

    def checked(self, *parts: str) -> str:
        """A text of these parts. O(1) where one of them is too long.

        Raises:
            RefusedError: it is too long, or they are together.
        """
        # A letter is a byte at the least.
        self._bound(sum(map(len, parts)))
        text = "".join(parts)
        size = len(text.encode("utf-8", "surrogatepass"))
        self._bound(size)
        self._bytes += size
        if self._bytes > MOST_TEXT_BYTES:
            raise RefusedError(
                f"what names the series of the body is longer than {MOST_TEXT_BYTES} bytes "
                "together; send fewer of them at a time"
            )
        return text

    def _bound(self, size: int) -> None:
        if size > MAX_KEY_BYTES:
            raise RefusedError(
                f"what names the series is {size} bytes long or more; at most {MAX_KEY_BYTES} are "
                "taken: leave some of its labels out by the map"
            )
