"""Raw observations as columns, checked row by row: what is wrong with one refuses that one alone.

A reader (JSON, Arrow) brings rows into the columns of :class:`Raw` and refuses what has the wrong
type; :func:`to_columns` does so with the readings of any other format. Bounds are checked here, for
all readers alike.

Ids
    An integer below ``2^id_bits`` is the id itself. Anything else is a key: text, bytes, or several
    parts, text or integers. Its id is ``decaysketch.observation_ids(part, part, ...)`` of the
    stream's parameters, the same that a sensor computes which builds sketches. The source that
    posts is not part of it: copies of a message that come by other paths are copies.
Bound keys
    Unless the stream binds keys to sources: then the source is the part before the first, and an
    integer alone is a key of one part as well. Parts are hashed one by one, each as what it is, so
    no key of one source is that of another, whatever is in them.
Events
    Where rows are events of a key, which is called so then, they have no id: the key is an integer,
    text, or several parts, and a row that comes again counts again.
Numbers
    Where a family's elements are numbered there are no keys: with the source that posts, a number
    names an element for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.contract.family import Input
from decaysketch.core.hashing import MAX_KEY_BYTES, RepeatedKeys
from decaysketch.core.labels import fault_of_label
from decaysketch.core.observations import TIME_LIMIT, observation_ids
from decaysketch.core.plausible_times import in_another_unit
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import ParameterError
from decaysketch.families import Recipe
from decaysketch.ingest.mapping import shown
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import Reading

__all__ = [
    "EXACT_IN_FLOAT",
    "FIELDS",
    "INT64_LIMIT",
    "REFUSALS_LISTED",
    "Batch",
    "Columns",
    "Form",
    "Key",
    "Lead",
    "Raw",
    "Refusal",
    "check",
    "check_takes_readings",
    "fault_of_key",
    "points_to_columns",
    "to_columns",
    "value_column",
]

FIELDS = ("value", "weight", "time", "id")
_EVENT_FIELDS = ("weight", "time", "key")
_MOST_WEIGHT = 1 << 40  # of an event, where no parameter bounds it
INT64_LIMIT = 1 << 63
EXACT_IN_FLOAT = 1 << 53
REFUSALS_LISTED = 1000  # of one post, the first of them; of the others nobody asks for the value

Int64Array = npt.NDArray[np.int64]
Key = tuple[str | bytes | int, ...]


class Lead(NamedTuple):
    """How far a time may lie ahead of the clock of this machine.

    Attributes:
        seconds: so far.
        setting: that says so.
    """

    seconds: float
    setting: str


@dataclass(frozen=True)
class Form:
    """What the observations of a stream must look like, as its family says.

    Attributes:
        recipe: of the stream.
        source: who posts.
        latest: the latest time that is taken; None: any.
        max_rows: most observations of one post.
        bind_keys: whether an id says something under this source alone.
        lead: of ``latest``, for who is told that a time is later; None: it is of no clock.
        zone: of times that name none.
    """

    recipe: Recipe
    source: str
    latest: int | None
    max_rows: int
    bind_keys: bool = False
    lead: Lead | None = None
    zone: tzinfo | None = None

    @property
    def params(self) -> Any:
        """Parameters of the stream."""
        return self.recipe.params

    @property
    def fields(self) -> tuple[str, ...]:
        """Names that a row may have; the last one says what it is, or is about."""
        return _EVENT_FIELDS if self.counts_keys else FIELDS

    @property
    def counts_keys(self) -> bool:
        """Whether rows are events of a key."""
        return self._input.named_by == "key"

    @property
    def integers(self) -> bool:
        """Whether values are integers."""
        integers: bool = self.params.value_type == "int64"
        return integers

    @property
    def labels(self) -> bool:
        """Whether values are labels: texts."""
        labels: bool = self.params.value_type == "label"
        return labels

    @property
    def takes_keys(self) -> bool:
        """Whether an id may be a key, which is hashed."""
        if self.counts_keys:
            return self._key_bits is None
        return self._input.named_by == "ids"

    @property
    def names_series(self) -> bool:
        """Whether an id names the series of a row, and so has no time in it."""
        return self._input.series

    @property
    def needs_values(self) -> bool:
        """Whether a value may not be missing."""
        return self._input.value == "required"

    @property
    def max_weight(self) -> int:
        """Largest weight."""
        if self._input.weighted:
            return _MOST_WEIGHT
        bound = self._input.weight_bound
        return 1 if bound is None else getattr(self.params, bound)

    @property
    def values(self) -> tuple[int, int] | None:
        """Bounds of values, where there are any."""
        bound = self._input.value_bound
        return None if bound is None else (1, getattr(self.params, bound))

    @property
    def min_id(self) -> int:
        """Least integer that is an id."""
        return -INT64_LIMIT if self.counts_keys and self.takes_keys else 0

    @property
    def max_id(self) -> int:
        """Largest integer that is an id."""
        if self.counts_keys:
            return min(1 << (self._key_bits or 64), INT64_LIMIT) - 1
        return (1 << self.params.id_bits) - 1 if self.takes_keys else INT64_LIMIT - 1

    @property
    def _key_bits(self) -> int | None:
        """Of keys that are integers alone."""
        bits: int | None = getattr(self.params, "key_bits", None)
        return bits

    @property
    def _input(self) -> Input:
        return self.recipe.kind.input


class Refusal(NamedTuple):
    """A row that was not taken, by the first fault found."""

    row: int
    field: str
    reason: str
    value: Any = None
    expected: Any = None


@dataclass
class Raw:
    """Rows of the right types, beside those that were refused.

    Attributes:
        rows: how many there were in the body.
        positions: which row of the body each is.
        values: 0 where missing; of labels objects, an empty text where missing.
        keys: of those whose id is a key; their ``ids`` mean nothing.
        parts: where all ids are keys of the same kind, a column of each part, and no ``keys``.
        polled: whether they are of periods, of each of which one stays: others of the same time may
            have other values.
    """

    rows: int
    positions: Int64Array
    values: npt.NDArray[Any]
    missing: npt.NDArray[np.bool_]
    weights: Int64Array
    times: Int64Array
    ids: Int64Array
    keys: dict[int, Key] = field(default_factory=dict)  # by place in the columns
    refusals: list[Refusal] = field(default_factory=list)
    parts: tuple[Any, ...] | None = None
    polled: bool = False


class Columns(NamedTuple):
    """Observations that a sketch of the stream takes."""

    values: npt.NDArray[Any]  # masked where missing
    weights: Int64Array
    times: Int64Array
    ids: npt.NDArray[Any]  # int64; where rows are events of keys, uint64: the words of these


@dataclass(frozen=True)
class Batch:
    """What a body held.

    Attributes:
        rows: observations in the body.
        columns: those that are taken.
        positions: which row of the body each of these is.
        refusals: the others, in order.
    """

    rows: int
    columns: Columns
    positions: Int64Array
    refusals: list[Refusal]


class _Checks:
    """Rows that are good so far, and refusals of the others."""

    def __init__(self, raw: Raw) -> None:
        self.good = np.ones(len(raw.positions), dtype=bool)
        self.refusals = list(raw.refusals)
        self._positions = raw.positions

    def refuse(
        self,
        at_fault: npt.NDArray[np.bool_],
        name: str,
        column: npt.NDArray[Any] | None,
        reason: str | Callable[[Any], str],
        expected: Any,
    ) -> None:
        places = np.flatnonzero(at_fault & self.good).tolist()
        for place in places:
            value = None if column is None else column[place : place + 1].tolist()[0]
            row = int(self._positions[place])
            why = reason if isinstance(reason, str) else reason(value)
            self.refusals.append(Refusal(row, name, why, value, expected))
        self.good[places] = False


def check(raw: Raw, form: Form) -> Batch:
    """Check the bounds of every row; keys become ids. O(rows)."""
    checks = _Checks(raw)
    if form.needs_values:
        checks.refuse(raw.missing, "value", None, "missing", "a number")
    if form.values is not None:
        low, high = form.values
        outside = (raw.values < low) | (raw.values > high)
        checks.refuse(outside, "value", raw.values, "out of bounds", f"{low} to {high}")
    if form.labels:
        _check_labels(raw.values, checks)
    elif form.integers:
        lowest = raw.values == -INT64_LIMIT
        checks.refuse(lowest, "value", raw.values, "stands for a missing value", "above -2^63")
    else:
        checks.refuse(~np.isfinite(raw.values), "value", raw.values, "not finite", "a number")
    outside = (raw.weights < 1) | (raw.weights > form.max_weight)
    checks.refuse(outside, "weight", raw.weights, "out of bounds", f"1 to {form.max_weight}")
    outside = (raw.times < -TIME_LIMIT) | (raw.times > TIME_LIMIT)
    checks.refuse(outside, "time", raw.times, "out of bounds", "at most 2^62 in magnitude")
    if form.latest is not None:
        late = raw.times > form.latest
        checks.refuse(late, "time", raw.times, partial(_ahead, form, form.latest), form.latest)
    plain = np.full(len(raw.ids), raw.parts is None)
    plain[list(raw.keys)] = False
    low, high = form.min_id, form.max_id
    outside = plain & ((raw.ids < low) | (raw.ids > high))
    checks.refuse(outside, form.fields[-1], raw.ids, "out of bounds", f"{low} to {high}")

    ids = raw.ids.copy()
    if form.counts_keys:
        plain &= checks.good
        ids = ids.view(np.uint64)
        ids[plain] = form.params.words_of(raw.ids[plain])
    if raw.parts is not None and len(ids):
        ids = _ids(list(raw.parts), len(ids), form)
    for places, parts in _by_kind(raw.keys):
        ids[places] = _ids(parts, len(places), form)
    if form.bind_keys and plain.any():
        ids[plain] = _ids([raw.ids[plain]], int(plain.sum()), form)
    values = np.ma.masked_array(raw.values, mask=raw.missing) if raw.missing.any() else raw.values
    columns = (values, raw.weights, raw.times, ids)
    return Batch(
        raw.rows,
        Columns(*(column[checks.good] for column in columns)),
        raw.positions[checks.good],
        sorted(checks.refusals),
    )


def _ahead(form: Form, latest: int, time: int) -> str:
    """What is wrong with a time past the latest one."""
    unit = form.params.time_unit
    other = in_another_unit(unit, time)
    if other or form.lead is None:
        return f"too far in the future{other}"
    ahead_s = form.lead.seconds + (time - latest) * NANOSECONDS[unit] / NANOSECONDS["s"]
    return (
        f"too far in the future, {ahead_s:.0f} s ahead of the clock here; at most "
        f"{form.lead.seconds:g} ({form.lead.setting})"
    )


def _check_labels(values: npt.NDArray[Any], checks: _Checks) -> None:
    listed = values.tolist()
    faults = {label: fault for label in set(listed) if (fault := fault_of_label(label))}
    for reason in sorted({*faults.values()}) if faults else ():
        at_fault = np.array([faults.get(label) == reason for label in listed], dtype=bool)
        checks.refuse(at_fault, "value", None, reason, "a text")


def _ids(parts: list[Any], rows: int, form: Form) -> npt.NDArray[Any]:
    if form.counts_keys:
        words: npt.NDArray[np.uint64] = form.params.words_of(tuple(parts))
        return words
    if form.bind_keys:
        codes = np.zeros(rows, dtype=np.int64)
        parts = [RepeatedKeys([form.source], codes), *parts]
    return observation_ids(*parts, params=form.params)


def _by_kind(keys: dict[int, Key]) -> Iterable[tuple[list[int], list[Any]]]:
    """Keys of equal kinds of parts together: their places, and a column for each part."""
    kinds: dict[tuple[type, ...], list[int]] = {}
    for place, key in keys.items():
        kinds.setdefault(tuple(map(type, key)), []).append(place)
    for kind, places in kinds.items():
        parts: list[Any] = []
        for number, part in enumerate(kind):
            column = [keys[place][number] for place in places]
            parts.append(np.array(column, dtype=np.int64 if part is int else object))
        yield places, parts


def fault_of_key(key: Key) -> str | None:
    """What is wrong with a key whose parts have the right types."""
    for part in key:
        if isinstance(part, int):
            if not -INT64_LIMIT <= part < INT64_LIMIT:
                return "beyond 64 bits"
        elif not part:
            return "empty"
        elif len(part) * 4 > MAX_KEY_BYTES:
            data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
            if len(data) > MAX_KEY_BYTES:
                return f"{len(data)} bytes long, at most {MAX_KEY_BYTES} are allowed"
    return None


# ----------------------------------------------------------------------------------------- readings


def check_takes_readings(recipe: Recipe) -> None:
    """Refuse a stream that readings mean nothing to.

    Raises:
        ParameterError: its rows have no ids that are hashed, or its unit of time has no wall clock.
    """
    kind, unit = recipe.kind, recipe.params.time_unit
    if kind.input.named_by != "ids":
        raise ParameterError(
            f"the family is {kind.name!r}, whose rows are named by {kind.input.named_by}; expected "
            "one whose rows have ids, such as 'decay': messages that come twice are told by these"
        )
    if unit not in NANOSECONDS:
        raise ParameterError(
            f"time_unit is {unit!r}, which has no wall clock; expected one of "
            f"{', '.join(NANOSECONDS)}: messages have times of a clock"
        )


def to_columns(readings: Sequence[Reading], form: Form) -> Raw:
    """The columns of readings, which :func:`check` takes next; times are rounded down to the unit.

    Refused are values and weights of another type, texts for numbers and the other way round among
    them, or beyond 64 bits. Where values are integers, a float that is whole is one: there are
    writers of JSON that know floats alone. Refusals name the reading by its place in the sequence.
    O(readings).
    """
    keys, values, times_ns, weights = _transposed(readings)
    faults = _faults(values, times_ns, weights, form)
    for place, key in enumerate(keys):
        if reason := fault_of_key(key):
            faults.setdefault(place, (form.fields[-1], reason, list(key)))
    places = _sound(len(readings), faults)
    if faults:
        keys, values, times_ns, weights = _transposed([readings[place] for place in places])
    raw = _raw(len(readings), places, values, times_ns, weights, faults, form)
    raw.keys = dict(enumerate(keys))
    return raw


_NO_TEXT = "-"


def points_to_columns(points: Points, form: Form) -> Raw:
    """The same of readings that are columns already."""
    values, times_ns, weights = points.values, points.times_ns, points.weights
    faults = _faults(values, times_ns, weights, form)
    unsound = {}
    sound = {name for name in dict.fromkeys(points.fields) if fault_of_key((name,)) is None}
    for code, key in enumerate(zip(points.series, points.fields, strict=True)):
        short = 0 < len(key[0]) <= MAX_KEY_BYTES // 4 and key[1] in sound
        if not short and (reason := fault_of_key(key)):
            unsound[code] = (form.fields[-1], reason, list(key))
    if unsound:
        for place, code in enumerate(points.codes):
            if code in unsound:
                faults.setdefault(place, unsound[code])
    places = _sound(len(points), faults)
    codes, numbers = points.codes, points.numbers
    if faults:
        codes, numbers = [codes[each] for each in places], [numbers[each] for each in places]
        values, times_ns = [values[each] for each in places], [times_ns[each] for each in places]
        weights = [weights[each] for each in places]
    raw = _raw(len(points), places, values, times_ns, weights, faults, form)
    of_each = np.array(codes, dtype=np.int64)
    raw.parts = tuple(
        # A text that no row has any more must not be hashed: it may be one that cannot be.
        RepeatedKeys([_NO_TEXT if code in unsound else text for code, text in column], of_each)
        for column in map(enumerate, (points.series, points.fields))
    )
    if not form.names_series:
        raw.parts += (np.array(numbers, dtype=np.int64),)
    return raw


def _sound(rows: int, faults: Mapping[int, object]) -> list[int]:
    return [place for place in range(rows) if place not in faults] if faults else list(range(rows))


def _raw(
    rows: int,
    places: list[int],
    values: Sequence[Any],
    times_ns: Sequence[int],
    weights: Sequence[int],
    faults: Mapping[int, tuple[Any, ...]],
    form: Form,
) -> Raw:
    """Columns of what has no fault, without keys."""
    missing = np.zeros(len(places), dtype=bool)
    if None in values:
        missing = np.array([value is None for value in values], dtype=bool)
        values = [("" if form.labels else 0) if value is None else value for value in values]
    return Raw(
        rows,
        np.array(places, dtype=np.int64),
        value_column(values, form),
        missing,
        np.array(weights, dtype=np.int64),
        np.array(times_ns, dtype=np.int64) // NANOSECONDS[form.params.time_unit],
        np.zeros(len(places), dtype=np.int64),
        refusals=[Refusal(place, *faults[place]) for place in sorted(faults)],
    )


def value_column(values: Sequence[Any], form: Form) -> npt.NDArray[Any]:
    """A column of values of the right type."""
    if not form.labels:
        return np.array(values, dtype=np.int64 if form.integers else np.float64)
    column = np.empty(len(values), object)  # which NumPy would make texts of fixed length of
    column[:] = values
    return column


def _transposed(readings: Sequence[Reading]) -> tuple[Sequence[Any], ...]:
    return tuple(zip(*readings, strict=True))[:4] if readings else ((), (), (), ())


def _faults(
    values: Sequence[Any], times_ns: Sequence[int], weights: Sequence[int], form: Form
) -> dict[int, tuple[Any, ...]]:
    """The first thing that is wrong with the numbers of each reading, by its place."""
    found: dict[int, tuple[Any, ...]] = {}
    for name, column in (("weight", weights), ("time", times_ns)):
        if column and not -INT64_LIMIT <= min(column) <= max(column) < INT64_LIMIT:
            for place, number in enumerate(column):
                if not -INT64_LIMIT <= number < INT64_LIMIT:
                    found.setdefault(place, (name, "beyond 64 bits", number))
    if form.labels or form.integers or not {float, type(None)}.issuperset(map(type, values)):
        for place, value in enumerate(values):
            if value is not None and (reason := _fault_of_value(value, form)):
                found.setdefault(place, ("value", reason, value))
    return found


def _fault_of_value(value: float | int | str, form: Form) -> str | None:
    if isinstance(value, str) or form.labels:
        if isinstance(value, str) and form.labels:
            return None
        return f"is {shown(value)}; expected a {'text' if form.labels else 'number'}"
    if not form.integers:
        inexact = type(value) is int and not -EXACT_IN_FLOAT <= value <= EXACT_IN_FLOAT
        return "not exact as float64" if inexact else None
    if type(value) is float and not value.is_integer():  # NaN and infinities among them
        return "no integer"
    return None if -INT64_LIMIT <= value < INT64_LIMIT else "beyond 64 bits"
