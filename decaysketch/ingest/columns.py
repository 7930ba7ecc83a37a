"""Raw observations as columns, checked row by row. A fault rejects only its own row.

A reader (JSON, Arrow) puts rows into the columns of a :class:`Batch` and rejects wrong types.
:func:`to_columns` does this for the readings of all other formats. This module checks bounds, for
all readers alike.

Ids
    An integer below ``2^id_bits`` is the id itself. Anything else is a key: text, bytes, or several
    parts, text or integers. Its id is ``decaysketch.observation_ids(part, part, ...)`` with the
    stream's parameters. A sensor that builds sketches computes the same. The source that posts is
    not part of it: messages that arrive by several paths are duplicates.
Bound keys
    A stream may bind keys to sources. Then the source is the part before the first, and a single
    integer is a key of one part as well. Parts are hashed one by one, each with its type. So no key
    of one source equals a key of another, for any content.
Events
    If rows are events of a key, they have no id. The key is an integer, text, or several parts, and
    a row that arrives again counts again.
Numbers
    If a family's elements are numbered, there are no keys. The posting source and a number name an
    element for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.contract.family import Input
from decaysketch.core.column_types import ColumnTypes
from decaysketch.core.hashing import MAX_KEY_BYTES, RepeatedKeys
from decaysketch.core.labels import MAX_LABEL_BYTES, EncodedLabels, fault_of_label, label_of
from decaysketch.core.observations import MISSING_KEY, encode_values, observation_ids
from decaysketch.core.plausible_times import in_another_unit
from decaysketch.core.ranges import EncodedValues, Range, key_of
from decaysketch.core.records import Records, encode_records
from decaysketch.core.row_check import (
    BEYOND_64_BITS,
    EXACT_IN_FLOAT,
    MISSING,
    NO_INTEGER,
    NOT_EXACT,
    TIMES,
    Limit,
    Refusal,
    RowCheck,
    ids_of_bits,
)
from decaysketch.core.strata import Strata, beyond_limit
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.core.withdrawals import WITHDRAWN
from decaysketch.errors import ParameterError
from decaysketch.families import Recipe
from decaysketch.ingest.batch import Batch, Columns, Key, SeriesFields
from decaysketch.ingest.mapping import shown
from decaysketch.ingest.points import Integers, PointColumns, Points, Values
from decaysketch.ingest.readings import Reading, SeriesPart
from decaysketch.ingest.record_columns import ColumnValues, Dropped, columns_of, records_of
from decaysketch.ingest.series_rows import (
    NO_START,
    entity_labels,
    entity_texts,
    fields_of_points,
    fields_of_readings,
)
from decaysketch.ingest.views import ViewOf

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
    "Refusal",
    "check",
    "check_takes_readings",
    "drop_read",
    "fault_of_key",
    "of_devices",
    "points_to_columns",
    "to_columns",
    "value_column",
]

FIELDS = ("value", "weight", "time", "id")
_SERIES_FIELDS = ("value", "weight", "start", "entity", "attributes", "time", "id")
_EVENT_FIELDS = ("weight", "time", "key")
_MOST_WEIGHT = 1 << 40  # of an event, where no parameter bounds it
INT64_LIMIT = 1 << 63
REFUSALS_LISTED = 1000  # in one post; later ones are only counted

Int64Array = npt.NDArray[np.int64]


class Lead(NamedTuple):
    """The limit by which a time may lie ahead of the clock of this machine.

    Attributes:
        seconds: the limit.
        setting: its name in the configuration.
    """

    seconds: float
    setting: str


@dataclass(frozen=True)
class Form:
    """The required form of a stream's observations, given by its family.

    Attributes:
        recipe: the stream's sketch configuration.
        source: the source that posts.
        latest: the latest accepted time; None: any.
        max_rows: most observations in one post.
        bind_keys: whether an id is unique only within this source.
        lead: the reason for ``latest``, for error messages; None: it depends on no clock.
        zone: for times that name none.
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
        """Names that a row may have. The last one is the id, or its replacement."""
        if self.columns:
            return ("columns", *FIELDS[1:])
        if self.names_series:
            return _SERIES_FIELDS
        return _EVENT_FIELDS if self.counts_keys else FIELDS

    @property
    def columns(self) -> ColumnTypes:
        """Declared columns, if rows have them instead of a value."""
        columns: ColumnTypes = getattr(self.params, "columns", ())
        return columns

    @property
    def attributes(self) -> tuple[str, ...]:
        """Declared series attributes."""
        attributes: tuple[str, ...] = getattr(self.params, "attributes", ())
        return attributes

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
        """Whether an id may be a key. Keys are hashed."""
        if self.counts_keys:
            return self._key_bits is None
        return self._input.named_by == "ids"

    @property
    def names_series(self) -> bool:
        """Whether an id names the series of a row, and so contains no time."""
        return self._input.series

    @property
    def takes_ranges(self) -> bool:
        """Whether a value may be a range."""
        return self._input.ranges and self.params.value_type == "float64"

    @property
    def needs_values(self) -> bool:
        """Whether a value may not be missing."""
        return self._input.value == "required"

    @property
    def weights(self) -> Limit:
        """Weight limit."""
        bound = self._input.weight_bound
        if self._input.weighted:
            return Limit(1, _MOST_WEIGHT, f"1 to {_MOST_WEIGHT}")
        if bound is None:
            return Limit(1, 1, "1")
        return Limit.named(1, getattr(self.params, bound), bound)

    @property
    def values(self) -> Limit | None:
        """Value limit, if there is any."""
        bound = self._input.value_bound
        return None if bound is None else Limit.named(1, getattr(self.params, bound), bound)

    @property
    def ids(self) -> Limit:
        """Limit for integers that are ids."""
        if self.counts_keys:
            low = -INT64_LIMIT if self.takes_keys else 0
            bits = min(self._key_bits or 63, 63)
            return Limit.named(low, (1 << bits) - 1, f"2^{bits} - 1")
        return ids_of_bits(self.params.id_bits if self.takes_keys else 63)

    @property
    def _key_bits(self) -> int | None:
        """Bits of keys that are single integers."""
        bits: int | None = getattr(self.params, "key_bits", None)
        return bits

    @property
    def _input(self) -> Input:
        return self.recipe.kind.input


def check(raw: Batch, form: Form) -> Batch:
    """Check the bounds of every row, and turn keys into ids. Return the same batch. O(rows)."""
    checks = RowCheck(len(raw.positions), raw.positions)
    _check_values(raw, form, checks)
    checks.within(raw.weights, "weight", form.weights)
    checks.within(raw.times, "time", TIMES)
    if (latest := form.latest) is not None:
        late = raw.times > latest
        checks.refuse(late, "time", lambda row: _ahead(form, latest, int(raw.times[row])))
    if raw.of_series is not None:
        _check_series(raw.of_series, raw, form, checks)
    plain = np.full(len(raw.ids), raw.parts is None)
    if raw.parts is None:
        plain[list(raw.keys)] = False
        checks.within(np.where(plain, raw.ids, 0), form.fields[-1], form.ids)
    good = checks.accepted

    ids = raw.ids.copy()
    if form.counts_keys:
        plain &= good
        ids = ids.view(np.uint64)
        ids[plain] = form.params.words_of(raw.ids[plain])
    if raw.parts is not None and len(ids):
        ids = _ids(list(raw.parts), len(ids), form)
    for places, parts in _by_kind(raw.keys):
        ids[places] = _ids(parts, len(places), form)
    if form.bind_keys and plain.any():
        ids[plain] = _ids([raw.ids[plain]], int(plain.sum()), form)
    values: Any = raw.values
    if form.columns:
        values = encode_records(values, form.columns, len(ids))
        _check_revisions(values, form, checks)
        good = checks.accepted
    elif raw.missing.any():
        values = np.ma.masked_array(values, mask=raw.missing)
    columns = Columns(values, raw.weights, raw.times, ids)
    if not good.all():
        columns = Columns(*(column[good] for column in columns))
    if raw.ranges:
        columns = columns._replace(values=_encoded(columns.values, raw, good))
    raw.columns, raw.sound, raw.positions = columns, np.flatnonzero(good), raw.positions[good]
    raw.refusals = sorted([*raw.refusals, *checks.refusals()])
    raw.more = _more(raw, ids, form, good)
    return raw


def drop_read(batch: Batch) -> None:
    """Free the reader's columns, once nothing is derived from them any more."""
    batch.values, batch.missing = (), np.zeros(0, np.bool_)
    batch.keys, batch.parts, batch.of_series = {}, None, None


def _check_values(raw: Batch, form: Form, checks: RowCheck) -> None:
    """Check values. Readers have checked those of declared columns, by name and type."""
    if form.needs_values:
        checks.refuse(raw.missing, "value", lambda row: (MISSING, None, "a number"))
    if form.values is not None:
        checks.within(raw.values, "value", form.values)
    if form.columns:
        return
    if form.labels:
        _check_labels(raw.values, checks)
    elif form.integers:
        checks.not_reserved(raw.values, "value")
    else:
        checks.finite(raw.values, "value")


def _check_revisions(records: Records, form: Form, checks: RowCheck) -> None:
    name = getattr(form.params, "revision", None)
    if name is not None:
        keys = records.column(name).keys
        given = np.where(keys == MISSING_KEY, 0, keys)
        checks.within(given, f"columns.{name}", Limit(0, WITHDRAWN - 1, f"0 to {WITHDRAWN - 1}"))


def refuse_new_strata(batch: Batch, form: Form, known: Strata) -> None:
    """Reject the rows with a new stratum beyond the stream's limit. O(rows).

    Args:
        batch: the checked rows.
        form: the required row form, with strata.
        known: strata that the stream has.
    """
    params, records = form.params, batch.columns.values
    if not len(batch.positions):
        return
    beyond = beyond_limit(params, known, records)
    if not beyond.any():
        return
    rows, column = np.flatnonzero(beyond), records.column(params.strata[0])
    refusals = [
        Refusal(
            int(batch.positions[row]), f"columns.{params.strata[0]}", "too many strata",
            None if column.keys[row] < 0 else column.texts[column.keys[row]],
            f"at most {params.max_strata} strata, and there are {len(known)}",
        )
        for row in rows.tolist()
    ]  # fmt: skip
    batch.columns = Columns(*(each[~beyond] for each in batch.columns))
    batch.positions, batch.sound = batch.positions[~beyond], batch.sound[~beyond]
    batch.refusals = sorted([*batch.refusals, *refusals])


def _check_series(found: SeriesFields, raw: Batch, form: Form, checks: RowCheck) -> None:
    """Check starts, entities, and attribute lengths."""
    if found.attributes:
        sizes = np.zeros(len(raw.times), np.int64)
        for column in found.attributes.values():
            # A negative number is a null, and reads the last entry.
            lengths = np.array([*(len(text.encode()) for text in column.texts), 0], np.int64)
            sizes += lengths[np.maximum(column.numbers, -1)]
        most = Limit(0, MAX_LABEL_BYTES, f"at most {MAX_LABEL_BYTES} bytes")
        checks.within(sizes, "attributes", most, "too long together")
    if found.starts is not None:
        given = found.starts != NO_START
        starts = np.where(given, found.starts, raw.times)
        checks.within(starts, "start", TIMES)
        checks.refuse(
            starts > raw.times, "start",
            lambda row: ("after the time", int(starts[row]), "at most the time of the row"),
        )  # fmt: skip
    if found.entity_ids:
        places = np.array(list(found.entity_ids))
        entities = np.zeros(len(raw.times), np.int64)
        entities[places] = list(found.entity_ids.values())
        checks.within(entities, "entity", form.ids)


def _more(
    raw: Batch, ids: npt.NDArray[Any], form: Form, good: npt.NDArray[np.bool_]
) -> dict[str, Any]:
    """Return the columns that only series rows have, as keywords for ``update``."""
    found = raw.of_series
    if found is None:
        return {}
    more: dict[str, Any] = {}
    if found.starts is not None:
        more["starts"] = found.starts[good]
    if found.entity_parts is not None and len(ids):
        more["entities"] = _ids(list(found.entity_parts), len(ids), form)[good]
    elif found.entity_ids or found.entity_keys:
        entities = ids.copy()
        if plain := found.entity_ids:
            numbers = np.array(list(plain.values()), np.int64)
            entities[list(plain)] = _ids([numbers], len(plain), form) if form.bind_keys else numbers
        for places, parts in _by_kind(found.entity_keys):
            entities[places] = _ids(parts, len(places), form)
        more["entities"] = entities[good]
    if found.attributes is not None:
        more["attributes"] = {
            name: EncodedLabels(column.texts, column.numbers[good])
            for name, column in found.attributes.items()
        }
    return more


def _encoded(values: npt.NDArray[Any], raw: Batch, good: npt.NDArray[np.bool_]) -> EncodedValues:
    """Return value keys for sound rows, with ranges."""
    keys = encode_values(values, "float64")
    of_range = np.zeros(len(good), np.int64)
    of_range[list(raw.ranges)] = list(raw.ranges.values())
    of_range = of_range[good]
    return EncodedValues(np.where(of_range > 0, of_range, keys))


def _ahead(form: Form, latest: int, time: int) -> tuple[str, int, int]:
    """Return the fault in a time past the latest one."""
    unit = form.params.time_unit
    other = in_another_unit(unit, time)
    if other or form.lead is None:
        return f"too far in the future{other}", time, latest
    ahead_s = form.lead.seconds + (time - latest) * NANOSECONDS[unit] / NANOSECONDS["s"]
    reason = (
        f"too far in the future, {ahead_s:.0f} s ahead of this machine's clock; at most "
        f"{form.lead.seconds:g} ({form.lead.setting})"
    )
    return reason, time, latest


def _check_labels(values: npt.NDArray[Any], checks: RowCheck) -> None:
    listed = values.tolist()
    faults = {label: fault for label in set(listed) if (fault := fault_of_label(label))}
    if faults:
        at_fault = np.array([label in faults for label in listed], dtype=bool)
        checks.refuse(at_fault, "value", lambda row: (faults[listed[row]], None, "a text"))


def _ids(parts: list[Any], rows: int, form: Form) -> npt.NDArray[Any]:
    if form.counts_keys:
        words: npt.NDArray[np.uint64] = form.params.words_of(tuple(parts))
        return words
    if form.bind_keys:
        codes = np.zeros(rows, dtype=np.int64)
        parts = [RepeatedKeys([form.source], codes), *parts]
    return observation_ids(*parts, params=form.params)


def _by_kind(keys: dict[int, Key]) -> Iterable[tuple[list[int], list[Any]]]:
    """Group keys by the types of their parts: their positions, and a column for each part."""
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
    """Return the fault of a key whose parts have the right types."""
    for part in key:
        if isinstance(part, int):
            if not -INT64_LIMIT <= part < INT64_LIMIT:
                return BEYOND_64_BITS
        elif not part:
            return "empty"
        elif len(part) * 4 > MAX_KEY_BYTES:
            data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
            if len(data) > MAX_KEY_BYTES:
                return f"{len(data)} bytes long, at most {MAX_KEY_BYTES} are allowed"
    return None


# ---------------------------------------------------------------------------------- derived streams


def of_devices(
    batch: Batch, rows: Int64Array, view: ViewOf, form: Form
) -> tuple[Int64Array, Columns]:
    """Return a derived stream's rows. O(observations).

    They are within all its bounds, since the stream that feeds it has the same ones. Only a device
    name may be too long for a label.

    Args:
        batch: checked observations, with the time unit and, unless the derived stream contains
            names, the value type of the derived stream.
        rows: numbers of accepted rows, rising.
        view: its definition.
        form: required form of its rows.

    Returns:
        The numbers of the rows with a device, and their columns.
    """
    rows, devices, columns = _devices(batch, rows, view)
    places = batch.sound[rows]
    values, missing = batch.values[places], batch.missing[places]
    ids = np.zeros(len(rows), np.int64)
    if columns and len(rows):
        ids = _ids(list(columns), len(rows), form)
    for some, parts in _by_kind(dict(enumerate(devices))):
        ids[some] = _ids(parts, len(some), form)
    if view.names:
        values = _names_of(devices, columns, len(rows))
    elif missing.any():
        values = np.ma.masked_array(values, mask=missing)
    found = Columns(values, np.ones(len(rows), np.int64), batch.times[places], ids)
    if view.names:
        good = ~np.isin(values, [name for name in set(values.tolist()) if fault_of_label(name)])
        rows, found = rows[good], Columns(*(column[good] for column in found))
    return rows, found


def _devices(
    batch: Batch, rows: Int64Array, view: ViewOf
) -> tuple[Int64Array, list[tuple[Any, ...]], tuple[Any, ...]]:
    """Return the rows with a device, and the device's key parts: for each row, or by column."""
    last = max(view.parts)
    if batch.parts is None:
        keys = [batch.keys.get(place, ()) for place in batch.sound[rows].tolist()]
        has = [len(key) > last for key in keys]
        devices = [tuple(key[part] for part in view.parts) for key in keys if len(key) > last]
        return rows[has], devices, ()
    if len(batch.parts) <= last:
        return rows[:0], [], ()
    places = batch.sound[rows]
    return rows, [], tuple(_rows_of(batch.parts[part], places) for part in view.parts)


def _rows_of(column: Any, places: npt.NDArray[np.intp]) -> Any:
    if isinstance(column, RepeatedKeys):
        return RepeatedKeys(column.entries, column.codes[places])
    return column[places]


def _names_of(
    devices: Sequence[tuple[Any, ...]], columns: tuple[Any, ...], rows: int
) -> npt.NDArray[Any]:
    """Return device names as texts."""
    names = np.empty(rows, object)
    if columns:
        listed = [
            [column.entries[code] for code in column.codes.tolist()]
            if isinstance(column, RepeatedKeys)
            else column.tolist()
            for column in columns
        ]
        devices = list(zip(*listed, strict=True))
    for row, device in enumerate(devices):
        names[row] = label_of(device[0] if len(device) == 1 else device)
    return names


# ----------------------------------------------------------------------------------------- readings


def check_takes_readings(recipe: Recipe) -> None:
    """Reject a stream that cannot contain readings.

    Raises:
        ParameterError: its rows have no hashed ids, or its time unit has no wall clock.
    """
    kind, unit = recipe.kind, recipe.params.time_unit
    if kind.input.named_by != "ids":
        raise ParameterError(
            f"the family is {kind.name!r}, and its rows are identified by {kind.input.named_by}; "
            "expected a family with ids, such as 'decay', because ids identify repeated messages"
        )
    if unit not in NANOSECONDS:
        raise ParameterError(
            f"time_unit is {unit!r}, which has no wall clock; expected one of "
            f"{', '.join(NANOSECONDS)}, because messages have dates"
        )


def to_columns(readings: Sequence[Reading], form: Form) -> Batch:
    """Return readings as columns, the input for :func:`check`. Times are rounded down to the
    unit.

    Values and weights of another type are rejected, including texts for numbers and numbers for
    texts, or integers beyond 64 bits. If values are integers, a float that is integral is accepted,
    because some JSON writers know floats alone. Refusals name the reading by its position in the
    sequence. O(readings).
    """
    keys, values, times_ns, weights, series = _transposed(readings)
    faults = _faults(values, times_ns, weights, form)
    for place, key in enumerate(keys):
        if reason := fault_of_key(key):
            faults.setdefault(place, (form.fields[-1], reason, list(key)))
    if form.names_series:
        for place, part in enumerate(series):
            if part is not None and (fault := _fault_of_series(part)):
                faults.setdefault(place, fault)
    places = _sound(len(readings), faults)
    if faults:
        kept = [readings[place] for place in places]
        keys, values, times_ns, weights, series = _transposed(kept)
    raw = Batch(len(readings))
    if form.columns:
        records = columns_of(values, form.columns, raw.dropped)
        _fill(raw, places, (), times_ns, weights, faults, form)
        raw.values = records
    else:
        _fill(raw, places, values, times_ns, weights, faults, form)
    raw.keys = dict(enumerate(keys))
    if form.names_series:
        unit_ns = NANOSECONDS[form.params.time_unit]
        raw.of_series = fields_of_readings(series, form.attributes, unit_ns)
    return raw


def _fault_of_series(part: SeriesPart) -> tuple[Any, ...] | None:
    """Return the first fault in the columns that only series have."""
    if part.start_ns is not None and not -INT64_LIMIT <= part.start_ns < INT64_LIMIT:
        return "start", "beyond 64 bits", part.start_ns
    if part.entity is not None and (reason := fault_of_key(part.entity)):
        return "entity", reason, list(part.entity)
    for name, text in part.attributes.items():
        if reason := fault_of_label(text):
            return f"attributes.{name}", reason, text
    return None


_NO_TEXT = "-"


def points_to_columns(points: Points, form: Form) -> Points:
    """Do the same for readings that are columns already. Return the same points."""
    columns = points.readings()
    values = _values_of(columns, form)
    faults = _faults(values, columns.times_ns, columns.weights, form)
    parts = (points.series, points.fields) if any(points.fields) else (points.series,)
    unsound = _unsound(points, len(parts), form)
    if unsound:
        for place in np.flatnonzero(np.isin(columns.codes, list(unsound))).tolist():
            faults.setdefault(place, unsound[int(columns.codes[place])])
    places = _sound(len(points), faults)
    of_each, numbers, times_ns, weights = (
        _some(column, places, len(points))
        for column in (columns.codes, columns.numbers, columns.times_ns, columns.weights)
    )
    values = _some(values, places, len(points))
    _fill(points, places, values, times_ns, weights, faults, form)
    if form.columns:
        points.values, points.dropped = _records_of(points, places, form)
    points.parts = tuple(
        # A text that no row has any more must not be hashed: it may be one that cannot be.
        RepeatedKeys(
            [_NO_TEXT if code in unsound else text for code, text in enumerate(column)]
            if unsound else column,
            of_each,
        )
        for column in parts
    )  # fmt: skip
    if not form.names_series:
        points.parts += (np.array(numbers, dtype=np.int64),)
        return points

    unit_ns = NANOSECONDS[form.params.time_unit]
    points.of_series = fields_of_points(points, of_each, places.tolist(), form.attributes, unit_ns)
    if points.entity:
        points.of_series.entity_parts = tuple(
            RepeatedKeys([text or _NO_TEXT for text in column], of_each)
            for column in entity_labels(points)
        )
    elif (texts := entity_texts(points)) is not None:
        texts = [_NO_TEXT if code in unsound else text for code, text in enumerate(texts)]
        points.of_series.entity_parts = (RepeatedKeys(texts, of_each), *points.parts[1:])
    return points


def _values_of(columns: PointColumns, form: Form) -> Values:
    """Return the values, as an array only if its type is right. None: there are none."""
    values = columns.values
    if form.columns:
        return None
    if values is None:
        return [None] * len(columns.codes)
    if isinstance(values, list):
        return values
    wide = values.dtype.kind == "i" and len(values) and (
        max(-int(values.min()), int(values.max())) > EXACT_IN_FLOAT
    )  # fmt: skip
    exact = values.dtype.kind == "i" if form.integers else not wide
    return values.tolist() if form.labels or not exact else values


def _unsound(points: Points, parts: int, form: Form) -> dict[int, tuple[Any, ...]]:
    """Return faults by code, for series that cannot be keys, or lack an entity."""
    found = _no_keys(points, parts, form)
    return _without_entity(points) | found if points.entity else found


def _without_entity(points: Points) -> dict[int, tuple[Any, ...]]:
    found = {}
    for name, texts in zip(points.entity, entity_labels(points), strict=True):
        for code, text in enumerate(texts):
            if text is None:
                reason = f"has no label {name!r:.80} in the series id"
                found[code] = ("entity", reason, [points.series[code]])
    return found


def _no_keys(points: Points, parts: int, form: Form) -> dict[int, tuple[Any, ...]]:
    names = {name for name in dict.fromkeys(points.fields) if fault_of_key((name,)) is not None}
    lengths = list(map(len, points.series))
    if not (parts == 2 and names) and (
        not lengths or 0 < min(lengths) <= max(lengths) <= MAX_KEY_BYTES // 4
    ):
        return {}
    found = {}
    for code, key in enumerate(zip(points.series, points.fields, strict=True)):
        if reason := fault_of_key(key[:parts]):
            found[code] = (form.fields[-1], reason, list(key[:parts]))
    return found


def _some(column: Any, places: Int64Array, rows: int) -> Any:
    """Return a column's sound rows."""
    if column is None or len(places) == rows:
        return column
    if isinstance(column, np.ndarray):
        return column[places]
    return [column[place] for place in places.tolist()]


def _records_of(points: Points, places: Int64Array, form: Form) -> tuple[Any, Dropped]:
    """Return all columns, and counts for values that fill none."""
    dropped = Counter(points.told.dropped)
    codes, cells = points.readings().codes, points.cells_by_column()
    records = records_of(form.columns, codes, points.layouts, cells, dropped)
    return (records if len(places) == len(codes) else records[places]), dropped


def _sound(rows: int, faults: Mapping[int, object]) -> Int64Array:
    """Return the rows without a fault."""
    every = np.arange(rows, dtype=np.int64)
    return np.delete(every, list(faults)) if faults else every


def _fill(
    batch: Batch,
    places: Int64Array,
    values: Values | Sequence[Any],
    times_ns: Integers | Sequence[int],
    weights: Integers | Sequence[int],
    faults: Mapping[int, tuple[Any, ...]],
    form: Form,
) -> None:
    """Add columns for the rows without a fault, without keys."""
    missing = np.zeros(len(places), dtype=bool)
    ranges: dict[int, int] = {}
    values = () if values is None else values
    listed = not isinstance(values, np.ndarray)
    if listed and Range in set(map(type, values)):
        ranges = {at: key_of(each) for at, each in enumerate(values) if type(each) is Range}
        values = [each.middle if type(each) is Range else each for each in values]
    if listed and None in values:
        missing = np.array([value is None for value in values], dtype=bool)
        values = [("" if form.labels else 0) if value is None else value for value in values]
    batch.positions, batch.missing, batch.ranges = places, missing, ranges
    batch.values = value_column(values, form)
    batch.weights = np.array(weights, dtype=np.int64)
    batch.times = np.array(times_ns, dtype=np.int64) // NANOSECONDS[form.params.time_unit]
    batch.ids = np.zeros(len(places), dtype=np.int64)
    batch.refusals = [Refusal(place, *faults[place]) for place in sorted(faults)]


def value_column(values: npt.NDArray[Any] | Sequence[Any], form: Form) -> npt.NDArray[Any]:
    """Return a column of values with the right type."""
    if not (form.labels or form.columns):
        return np.array(values, dtype=np.int64 if form.integers else np.float64)
    column = np.empty(len(values), object)  # which NumPy would make texts of fixed length of
    column[:] = values
    return column


def _transposed(readings: Sequence[Reading]) -> tuple[Sequence[Any], ...]:
    """Return keys, values, times, weights, and columns for series."""
    if not readings:
        return (), (), (), (), ()
    keys, values, times_ns, weights, _, series = zip(*readings, strict=True)
    return keys, values, times_ns, weights, series


def _faults(
    values: Values | Sequence[Any],
    times_ns: Integers | Sequence[int],
    weights: Integers | Sequence[int],
    form: Form,
) -> dict[int, tuple[Any, ...]]:
    """Return the first fault in each reading's numbers, by its position. An array has none."""
    found: dict[int, tuple[Any, ...]] = {}
    for name, column in (("weight", weights), ("time", times_ns)):
        if isinstance(column, np.ndarray):
            continue
        if column and not -INT64_LIMIT <= min(column) <= max(column) < INT64_LIMIT:
            for place, number in enumerate(column):
                if not -INT64_LIMIT <= number < INT64_LIMIT:
                    found.setdefault(place, (name, BEYOND_64_BITS, number))
    if values is None or isinstance(values, np.ndarray):
        return found
    if form.columns:
        for place, value in enumerate(values):
            if type(value) is not ColumnValues:
                found.setdefault(place, ("value", f"is {shown(value)}; expected columns", value))
    elif form.labels or form.integers or not {float, type(None)}.issuperset(map(type, values)):
        for place, value in enumerate(values):
            if value is not None and (reason := _fault_of_value(value, form)):
                found.setdefault(place, ("value", reason, value))
    return found


def _fault_of_value(value: float | int | str | Range | ColumnValues, form: Form) -> str | None:
    if isinstance(value, Range):
        return None if form.takes_ranges else _fault_of_range(value, form)
    if isinstance(value, ColumnValues):
        return "has columns, and the stream has none"
    if isinstance(value, str) or form.labels:
        if isinstance(value, str) and form.labels:
            return None
        return f"is {shown(value)}; expected a {'text' if form.labels else 'number'}"
    if not form.integers:
        inexact = type(value) is int and not -EXACT_IN_FLOAT <= value <= EXACT_IN_FLOAT
        return NOT_EXACT if inexact else None
    if type(value) is float and not value.is_integer():  # NaN and infinities among them
        return NO_INTEGER
    return None if -INT64_LIMIT <= value < INT64_LIMIT else BEYOND_64_BITS


def _fault_of_range(value: Range, form: Form) -> str:
    """Return why a stream has no ranges."""
    given = f"is a range, {value.low:g} to {value.high:g}, from a histogram bucket"
    family, value_type = form.recipe.kind.name, form.params.value_type
    if value_type != "float64":
        return f"{given}; the stream's value_type is {value_type!r}; expected 'float64'"
    return f"{given}; the stream's family is {family!r}; expected 'decay' or 'integral'"
