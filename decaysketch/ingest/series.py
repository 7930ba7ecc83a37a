"""What maps of time series have in common, whichever protocol brings these.

A series is a name and what it is labelled with (tags, attributes, labels); its readings differ in
their time. Collectors of one source add labels of their own, which no id may have in it, and some
stamp by themselves: two of them never stamp alike.

What series have in common is in a body once (a resource, a table of texts), so that some twenty
bytes may stand for a series whose text is as long as the body. No text is made that is too long for
an id, and those of a body are bounded together (:class:`SeriesTexts`).

The mappings of a stream are compiled once (:class:`SeriesIndex`). To find those that read a series
costs a look-up for each label that any of them asks for, whatever the number of mappings and of
the texts that each of them lists.
"""

from __future__ import annotations

import json
import sys
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import zip_longest
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from pydantic import Field, field_validator

from decaysketch.core.hashing import MAX_KEY_BYTES
from decaysketch.core.time_units import NANOSECONDS, length_of
from decaysketch.ingest.mapping import Map, Texts
from decaysketch.ingest.readings import RefusedError

__all__ = [
    "MOST_TEXT_BYTES",
    "PLANS_KEPT",
    "Name",
    "Plans",
    "Readers",
    "SeriesIndex",
    "SeriesMap",
    "SeriesTexts",
    "text_of",
]

PLANS_KEPT = 50_000
"""Of a body, so many mappings of its series are known at a time; each takes at most 300 bytes."""
MOST_TEXT_BYTES = 1 << 24
"""Of memory, for the texts of all series of a body."""

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

    @property
    @abstractmethod
    def series_name(self) -> str:
        """Of the series that it reads: a measurement, a metric."""


M = TypeVar("M", bound=SeriesMap)
K = TypeVar("K")
P = TypeVar("P")


class _Condition(NamedTuple):
    """What mappings ask of one label; bits stand for mappings.

    Attributes:
        name: of the label.
        satisfied: by its text, the mappings that it satisfies.
        asking: the mappings that ask for the label.
    """

    name: str
    satisfied: Mapping[str | None, int]
    asking: int


class Readers(Generic[M]):
    """The mappings of one name of a series.

    Attributes:
        maps: in their order.
    """

    def __init__(self, maps: Iterable[M]) -> None:
        self.maps = tuple(maps)
        self._bits = (1 << len(self.maps)) - 1
        # The first label of each mapping, then the second: most series are rejected by the first.
        turns = zip_longest(*(each.where for each in self.maps))
        asked = dict.fromkeys(name for turn in turns for name in turn if name is not None)
        self._conditions = [self._condition(name) for name in asked]

    def _condition(self, name: str) -> _Condition:
        satisfied: dict[str | None, int] = {}
        asking = 0
        for place, each in enumerate(self.maps):
            given = each.where.get(name)
            if given is not None:
                asking |= 1 << place
                for text in {given} if isinstance(given, str) else set(given):
                    satisfied[text] = satisfied.get(text, 0) | 1 << place
        return _Condition(name, satisfied, asking)

    def given(self, labels: Mapping[str, str]) -> Readers[M]:
        """These, for series that all have these labels: no series can overrule them."""
        found: Readers[M] = Readers(())
        found.maps, found._bits = self.maps, self._bits
        for each in self._conditions:
            if each.name in labels:
                found._bits &= each.satisfied.get(labels[each.name], 0) | ~each.asking
            else:
                found._conditions.append(each)
        return found

    def wanting(self, labels: Mapping[str, str]) -> list[M]:
        """Those that read series of these labels. O(labels that any of them asks for)."""
        bits = self._bits
        for name, satisfied, asking in self._conditions:
            if bits & asking:
                bits &= satisfied.get(labels.get(name), 0) | ~asking
        return [each for place, each in enumerate(self.maps) if bits >> place & 1] if bits else []


class SeriesIndex(Generic[M]):
    """The mappings of one format of a stream, by the name of the series that they read.

    Attributes:
        maps: in their order.
        polled: whether one of them keeps one reading of each period.
    """

    def __init__(self, maps: Iterable[M]) -> None:
        self.maps = tuple(maps)
        self.polled = any(each.dedup is not None for each in self.maps)
        named: dict[str, list[M]] = {}
        for each in self.maps:
            named.setdefault(each.series_name, []).append(each)
        self._readers = {name: Readers(some) for name, some in named.items()}

    @classmethod
    def of(cls, maps: Iterable[M] | SeriesIndex[M]) -> SeriesIndex[M]:
        """An index as it is, or that of some mappings."""
        return maps if isinstance(maps, SeriesIndex) else cls(maps)

    def __len__(self) -> int:
        return len(self.maps)

    def readers(self, name: str) -> Readers[M] | None:
        """The mappings of a name; None: there are none."""
        return self._readers.get(name)


class Plans(Generic[K, P]):
    """What is known of the series of a body, forgotten where it takes too much memory."""

    def __init__(self) -> None:
        self._plans: dict[K, P] = {}
        self._parts = 0

    def get(self, key: K) -> P | None:
        """That of a series."""
        return self._plans.get(key)

    def keep(self, key: K, plan: P, parts: int) -> P:
        """Know it from now on; of so many mappings."""
        self._parts += 1 + parts
        if self._parts > PLANS_KEPT:
            self._plans.clear()
            self._parts = 1 + parts
        self._plans[key] = plan
        return plan


def text_of(labels: Mapping[str, Any]) -> str:
    """Labels as one text: no others have the same."""
    return json.dumps(labels, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


class SeriesTexts:
    """The texts of the series of one body, as long as they may be."""

    def __init__(self) -> None:
        self._bytes = 0

    def of(self, labels: Mapping[str, str], left_out: frozenset[str]) -> str:
        """That of labels, some of them left out. Raises RefusedError as :meth:`checked` does."""
        size = sum(len(name) + len(text) for name, text in labels.items())
        size -= sum(len(name) + len(labels[name]) for name in left_out if name in labels)
        self.check(size)
        kept = {name: text for name, text in labels.items() if name not in left_out}
        return self.checked(text_of(kept))

    def checked(self, *parts: str) -> str:
        """A text of these parts. O(1) where they are too long.

        Raises:
            RefusedError: it is too long, or they are together.
        """
        self.check(sum(map(len, parts)))
        text = "".join(parts)
        self._bound(len(text.encode("utf-8", "surrogatepass")))
        self._bytes += sys.getsizeof(text)
        self.check(0)
        return text

    @property
    def full(self) -> bool:
        """Whether the texts of the body are too long together."""
        return self._bytes > MOST_TEXT_BYTES

    def check(self, characters: int) -> None:
        """Raises RefusedError: a text of so many characters, not made yet, is too long, or there
        are too many others."""
        self._bound(characters)  # a character is a byte at the least
        if self.full:
            raise RefusedError(
                f"what names the series of the body takes more than {MOST_TEXT_BYTES} bytes of "
                "memory together; send fewer of them at a time"
            )

    def _bound(self, size: int) -> None:
        if size > MAX_KEY_BYTES:
            raise RefusedError(
                f"what names the series is {size} bytes long or more; at most {MAX_KEY_BYTES} are "
                "taken: leave some of its labels out by the map"
            )
