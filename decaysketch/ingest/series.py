"""Common parts of time series mappings, for all protocols.

A series has a name and labels (tags, attributes, labels). Its readings differ in their time.
Collectors of one source add labels of their own, which no id may contain. Some collectors add the
time themselves, and two of them never add the same.

A body contains common parts of series once (a resource, a table of texts). So some twenty bytes
may represent a series whose text is as long as the body. The reader makes no text that is too long
for an id, and bounds all texts in a body together (:class:`SeriesTexts`).

The mappings of a stream are compiled once (:class:`SeriesIndex`). The search for the readers of a
series costs a look-up for each label that any mapping requires, for any number of mappings and
of texts that each lists.
"""

from __future__ import annotations

import json
import sys
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from decaysketch.core.column_types import ColumnTypes
from decaysketch.core.hashing import MAX_KEY_BYTES
from decaysketch.core.time_units import NANOSECONDS, length_of
from decaysketch.errors import ParameterError
from decaysketch.ingest._native import Names, Samples
from decaysketch.ingest.mapping import Map, Texts
from decaysketch.ingest.readings import RefusedError
from decaysketch.ingest.record_columns import EVERY, Filling

__all__ = [
    "MOST_PLAN_BYTES",
    "MOST_TEXT_BYTES",
    "Generation",
    "Name",
    "Plans",
    "Readers",
    "SeriesIndex",
    "SeriesMap",
    "SeriesTexts",
    "entity_of",
    "forget_plans",
    "plans_of",
    "size_of",
    "text_of",
]

MOST_PLAN_BYTES = 1 << 26
"""Memory of all plans of a process (64 MiB, about 90,000 series)."""
MOST_TEXT_BYTES = 1 << 24
"""Of memory, for the texts of all series of a body."""

_LONGEST_NAME = 1 << 12  # bytes; ids cannot contain a longer one

Name = Annotated[str, Field(min_length=1, max_length=1000)]


class SeriesMap(Map):
    """The series that a mapping reads. A protocol adds its names for labels."""

    where: dict[Name, Name | Texts] = Field(
        default={},
        max_length=20,
        description="Labels (tags, attributes) and their required values, one or a list.",
    )
    dedup: str | None = Field(
        default=None,
        max_length=100,
        description="A length such as `10s`. The stream counts the latest reading in each period "
        "of this length since 1970. For collectors that set the time themselves.",
    )

    entity: Texts = Field(
        default=(),
        description="In the family `series`: labels that name the device to which several series "
        "belong, also in other streams. Default: each series, without its bucket (`le`).",
    )

    measured: ClassVar[str] = ""
    """Source name of a reading's value, if a reading has one value."""

    @field_validator("dedup")
    @classmethod
    def _is_a_length(cls, text: str | None) -> str | None:
        if text is not None and length_of("dedup", text) < NANOSECONDS["ms"]:
            raise ValueError(f"dedup is {text!r}; expected at least a millisecond")
        return text

    @property
    def changes(self) -> bool:
        """Whether the mapping changes values."""
        return bool(self.missing) or self.scale != 1.0

    @cached_property
    def period_ns(self) -> int:
        return 1 if self.dedup is None else int(length_of("dedup", self.dedup))

    @property
    @abstractmethod
    def series_name(self) -> str | None:
        """The name that its series have: a measurement, a metric. None: any name that no other
        mapping of the stream has.
        """

    @property
    def of_series(self) -> Mapping[str, Any]:
        """Fields for series only, with their values."""
        return {**super().of_series, **({"entity": self.entity} if self.entity else {})}

    @model_validator(mode="after")
    def _names_entities_by_kept_labels(self) -> Self:
        if self.entity and self.kind is None:
            raise ValueError(
                f"entity is {self.entity!r:.200}, and kind is missing; expected a kind"
            )
        if lost := [name for name in self.entity if name in self.columns_omitted]:
            raise ValueError(
                f"entity has {lost[0]!r:.80}, and ids do not contain it, because duplicates differ "
                "in it; expected labels that duplicates agree on"
            )
        return self

    @model_validator(mode="after")
    def _columns_are_names(self) -> Self:
        if isinstance(self.columns, str) and self.columns != EVERY:
            raise ValueError(
                f"columns is {self.columns!r:.80}; expected '*', a list of names, or sources by "
                "column name"
            )
        self.check_columns()
        return self

    def check_fills(self, types: ColumnTypes) -> None:
        """Raises ParameterError: likewise, or no column contains the value."""
        super().check_fills(types)
        if self.columns == EVERY and self.measured and self.measured not in dict(types):
            raise ParameterError(
                f"columns is '*', and the stream declares no column {self.measured!r}, which the "
                f"protocol fills with the measured number; declare '{self.measured} float64', or "
                "list the columns"
            )


Int64Array = npt.NDArray[np.int64]

M = TypeVar("M", bound=SeriesMap)
K = TypeVar("K")


class _Condition(NamedTuple):
    """The mappings' conditions on one label. Bits represent mappings.

    Attributes:
        name: the label's name.
        satisfied: by its text, the mappings that it satisfies.
        asking: the mappings with a condition on the label.
    """

    name: str
    satisfied: Mapping[str | None, int]
    asking: int


class Readers(Generic[M]):
    """The mappings for one series name.

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
        """Return the readers for series that all have these labels. No series can overrule them."""
        found: Readers[M] = Readers(())
        found.maps, found._bits = self.maps, self._bits
        for each in self._conditions:
            if each.name in labels:
                found._bits &= each.satisfied.get(labels[each.name], 0) | ~each.asking
            else:
                found._conditions.append(each)
        return found

    def wanting(self, labels: Mapping[str, str]) -> list[M]:
        """Return the mappings that read series with these labels. O(labels with any condition)."""
        bits = self._bits
        for name, satisfied, asking in self._conditions:
            if bits & asking:
                bits &= satisfied.get(labels.get(name), 0) | ~asking
        return [each for place, each in enumerate(self.maps) if bits >> place & 1] if bits else []


def entity_of(maps: Sequence[SeriesMap]) -> tuple[str, ...]:
    """Return the labels that name the entity, for mappings with one format in a stream.

    Raises:
        ParameterError: they differ.
    """
    found = maps[0].entity if maps else ()
    for each in maps:
        if each.entity != found:
            raise ParameterError(
                f"entity is {list(each.entity)!r:.200}, and another mapping with the format "
                f"{each.format!r} has {list(found)!r:.200}; expected the same labels in both"
            )
    return found


class SeriesIndex(Generic[M]):
    """A stream's mappings in one format, by series name.

    Args:
        maps: the mappings.
        types: declared columns of the stream.

    Raises:
        ParameterError: a mapping fills a column that the stream does not declare, or two mappings
            name the entity by different labels.

    Attributes:
        maps: in their order.
        entity: the labels that name the entity. Empty: each series is one.
        polled: whether one of them keeps one reading for each period.
    """

    def __init__(self, maps: Iterable[M], types: ColumnTypes = ()) -> None:
        self.maps = tuple(maps)
        self.polled = any(each.dedup is not None for each in self.maps)
        self.entity = entity_of(self.maps)
        named: dict[str | None, list[M]] = {}
        for each in self.maps:
            named.setdefault(each.series_name, []).append(each)
        self._readers = {name: Readers(some) for name, some in named.items()}
        self._of_others = self._readers.pop(None, None)
        self._fillings = {
            id(each): Filling(each.columns, types, each.missing)
            for each in self.maps
            if each.columns is not None
        }

    def filling(self, of: M) -> Filling | None:
        """Return the columns that a mapping fills. None: it reads single values."""
        return self._fillings.get(id(of))

    @classmethod
    def of(cls, maps: Iterable[M] | SeriesIndex[M]) -> SeriesIndex[M]:
        """Return an index as it is, or make one for some mappings."""
        return maps if isinstance(maps, SeriesIndex) else cls(maps)

    def __len__(self) -> int:
        return len(self.maps)

    def readers(self, name: str) -> Readers[M] | None:
        """Return the mappings for a name. None: there are none."""
        return self._readers.get(name, self._of_others)


class _Sized(Protocol):
    @property
    def bytes(self) -> int:
        """Memory for the plan with its key and texts, about."""

    @property
    def group(self) -> Hashable:
        """Equal for plans that differ in nothing but the texts of their series."""


P = TypeVar("P", bound=_Sized)


class Generation(Generic[K, P]):
    """Plans by key, and by number if the key is a byte string in a context.

    Attributes:
        names: the byte strings' numbers.
        plans: their plans.
        groups: int64, their groups, as numbers.
        of_group: a plan per group.
        by_key: the plans for all other keys.
        bytes: memory for all, about.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.plans: list[P] = []
        self.groups = np.zeros(64, np.int64)
        self.of_group: list[P] = []
        self.by_key: dict[K, P] = {}
        self.bytes = 0
        self._numbers: dict[Hashable, int] = {}
        self._contexts: dict[Hashable, int] = {None: 0}

    def __len__(self) -> int:
        return len(self.plans) + len(self.by_key)

    def number(self, text: bytes, context: Hashable) -> int:
        """Return a byte string's number. -1: it has none."""
        of = self._contexts.get(context)
        return -1 if of is None else self.names.find(text, of)

    def numbers(
        self, text: bytes, begins: Int64Array, ends: Int64Array, context: Hashable
    ) -> Int64Array:
        """Return numbers for parts of a text, -1 for those without."""
        of = self._contexts.get(context)
        if of is None:
            return np.full(len(begins), -1, np.int64)
        return self.names.find_all(
            text, np.ascontiguousarray(begins), np.ascontiguousarray(ends), of
        )

    def append(self, text: bytes, context: Hashable, plan: P) -> None:
        """Add a byte string that is not there."""
        number = self.names.add(text, self._contexts.setdefault(context, len(self._contexts)))
        if number == len(self.groups):
            self.groups = np.resize(self.groups, 2 * number)
        group = self._numbers.setdefault(plan.group, len(self._numbers))
        if group == len(self.of_group):
            self.of_group.append(plan)
        self.groups[number] = group
        self.plans.append(plan)


class Plans(Generic[K, P]):
    """The plans for series in one stream's bodies, by series as the protocol writes it.

    Most bodies have the same series as the body before. So plans stay from body to body, and all
    plans in a process share MOST_PLAN_BYTES. Two generations: a plan that is used moves to the
    younger one. When there is no capacity, the younger one becomes the older one, which is dropped.
    Threads may share plans: a plan never changes, and a lost plan is computed again.

    A key is anything hashable, or a byte string in a context, which is anything hashable. A byte
    string has a number in the younger generation, so that one call finds all series in a body.

    Args:
        used: the budget that these plans share; None: one body has them.

    Attributes:
        recent: the younger generation.
        bytes: memory for both generations, about.
    """

    def __init__(self, used: _Used | None = None) -> None:
        self._used = used or _Used()
        self.recent: Generation[K, P] = Generation()
        self.bytes = 0
        self._older: Generation[K, P] = Generation()
        self._closed = False

    def get(self, key: K) -> P | None:
        """Return the plan for a series. O(1)."""
        found = self.recent.by_key.get(key)
        if found is None and (found := self._older.by_key.get(key)) is not None:
            self.keep(key, found)
        return found

    def keep(self, key: K, plan: P) -> None:
        """Keep a plan, unless it is very large. O(1)."""
        with _lock:
            if self._has_room(plan.bytes):
                self.recent.by_key[key] = plan

    def named(self, text: bytes, context: Hashable = None) -> P | None:
        """Return the plan for a byte string. O(length)."""
        if len(text) > _LONGEST_NAME:
            return self.get(cast(K, (text, context)))
        with _lock:
            number = self.recent.number(text, context)
            if number >= 0:
                return self.recent.plans[number]
            number = self._older.number(text, context)
            found = None if number < 0 else self._older.plans[number]
        if found is not None:
            self.keep_named(text, found, context)
        return found

    def keep_named(self, text: bytes, plan: P, context: Hashable = None) -> None:
        """Keep a plan for a byte string, unless it is very large. O(length). A long one has no
        number.
        """
        if len(text) > _LONGEST_NAME:
            self.keep(cast(K, (text, context)), plan)
            return
        with _lock:
            if self.recent.number(text, context) < 0 and self._has_room(plan.bytes):
                self.recent.append(text, context, plan)

    def numbers(
        self, text: bytes, begins: Int64Array, ends: Int64Array, context: Hashable = None
    ) -> tuple[Generation[K, P], Int64Array]:
        """Return numbers for parts of a text, -1 if there is no plan, and the generation that has
        these numbers. O(length).
        """
        with _lock:
            return self.recent, self.recent.numbers(text, begins, ends, context)

    def _has_room(self, size: int) -> bool:
        """Count a new plan. Return False if it must not be stored."""
        if self._closed or size > MOST_PLAN_BYTES // 64:
            return False
        if self._used.bytes + size > MOST_PLAN_BYTES and self._used is _used:
            _make_room(size, self)
        half = self.recent.bytes + size > MOST_PLAN_BYTES // 2
        if half or self._used.bytes + size > MOST_PLAN_BYTES:
            self._change(-self._older.bytes)
            self._older, self.recent = self.recent, Generation()
        self.recent.bytes += size
        self._change(size)
        return True

    def close(self) -> None:
        """Drop all plans, and store none from now on. The lock is held."""
        self._closed = True
        self.recent, self._older = Generation(), Generation()
        self._change(-self.bytes)

    def _change(self, size: int) -> None:
        self.bytes += size
        self._used.bytes += size


class _Single(_Sized, Protocol):
    @property
    def only(self) -> object | None:
        """The single target, if it reads every finite number unchanged."""


S = TypeVar("S", bound=_Single)


def read_by_one(
    plans: Plans[Any, S], text: bytes, samples: Samples, context: Hashable = None
) -> tuple[list[S], Int64Array, Int64Array]:
    """Find the samples that one target reads as they are. The others are not plain from now on.

    Args:
        text: the scanned body, or the scanned part of it.

    Returns:
        The distinct plans, the position of each sample's plan among them, and the samples' numbers.
    """
    rows = np.flatnonzero(samples.plain)
    begins, ends = samples.labels[:, rows]
    generation, numbers = plans.numbers(text, begins, ends, context)
    only = np.array([each.only is not None for each in generation.of_group] or [False])
    known = (numbers >= 0) & only[generation.groups[np.maximum(numbers, 0)]]
    samples.plain[rows] = known
    series, of_row = np.unique(numbers[known], return_inverse=True)
    return [generation.plans[each] for each in series.tolist()], of_row, rows[known]


class _Used:
    """Memory for plans that share a budget, about."""

    bytes = 0


_MOST_SETS = 200  # of plans
_kept: OrderedDict[Hashable, tuple[Plans[Any, Any], tuple[Any, ...]]] = OrderedDict()
_used = _Used()
_lock = threading.Lock()


def plans_of(kind: str, indexes: Sequence[SeriesIndex[Any]]) -> Plans[Any, Any]:
    """Return the plans that earlier bodies left for these mappings. O(sets of plans).

    Args:
        kind: the plans' kind.
        indexes: the mappings for each stream; the same objects for the next body.
    """
    key = (kind, *map(id, indexes))
    with _lock:
        if key not in _kept:
            _kept[key] = Plans(_used), tuple(indexes)  # which keeps the ids theirs
        _kept.move_to_end(key)
        while len(_kept) > _MOST_SETS:
            _kept.popitem(last=False)[1][0].close()
        return _kept[key][0]


def _make_room(size: int, asking: Plans[Any, Any]) -> None:
    """Drop the plans that were not used for longest, from other sets. The lock is held."""
    while _used.bytes + size > MOST_PLAN_BYTES:
        key, (oldest, _) = next(iter(_kept.items()))
        if oldest is asking:
            return
        del _kept[key]
        oldest.close()


def forget_plans() -> None:
    """Drop the plans of all streams, for tests and benchmarks."""
    with _lock:
        while _kept:
            _kept.popitem()[1][0].close()


def size_of(texts: Iterable[str | bytes]) -> int:
    """Return the memory for texts, in bytes."""
    return sum(map(sys.getsizeof, texts))


def text_of(labels: Mapping[str, Any]) -> str:
    """Return labels as one text. No other labels have the same."""
    return json.dumps(labels, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


class SeriesTexts:
    """The series texts in one body, within their length limits."""

    def __init__(self) -> None:
        self._bytes = 0

    def of(self, labels: Mapping[str, str], left_out: frozenset[str]) -> str:
        """Return the text for labels, without dropped ones. Raises RefusedError as
        :meth:`checked` does.
        """
        size = sum(len(name) + len(text) for name, text in labels.items())
        size -= sum(len(name) + len(labels[name]) for name in left_out if name in labels)
        self.check(size)
        kept = {name: text for name, text in labels.items() if name not in left_out}
        return self.checked(text_of(kept))

    def checked(self, *parts: str) -> str:
        """Return a text with these parts. O(1) if they are too long.

        Raises:
            RefusedError: it is too long, or all texts are together.
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
        """Raises RefusedError: a text with this length, not made yet, is too long, or there are too
        many others.
        """
        self._bound(characters)  # a character is a byte at the least
        if self.full:
            raise RefusedError(
                f"the series names in the body take more than {MOST_TEXT_BYTES} bytes of memory "
                "together; send fewer series at a time"
            )

    def _bound(self, size: int) -> None:
        if size > MAX_KEY_BYTES:
            raise RefusedError(
                f"the series name has {size} bytes or more; expected at most {MAX_KEY_BYTES}: "
                "drop some of its labels in the mapping"
            )
