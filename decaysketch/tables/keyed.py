"""Tables in, one sketch for each key out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from decaysketch import families
from decaysketch.contract.many import HeldByKey, Many
from decaysketch.core.duplicates import replaced_readings
from decaysketch.core.params import check_integer
from decaysketch.core.plausible_times import of_another_clock
from decaysketch.core.row_check import undated
from decaysketch.errors import (
    DisagreeingCopiesWarning,
    FewSeriesWarning,
    OtherTypeError,
    ParameterError,
    TimeUnitWarning,
    TimeZoneWarning,
    UnlikelyClockWarning,
)
from decaysketch.families import BuiltWith, Sketch
from decaysketch.tables import _native
from decaysketch.tables.columns import Entry, is_binary, is_text, kind_of_keys
from decaysketch.tables.duplicates import doubt_of_ids
from decaysketch.tables.filters import RowFilter
from decaysketch.tables.log_reader import LogColumns, declared_columns
from decaysketch.tables.log_times import doubt_of_log, refuse_other_unit, zoneless
from decaysketch.tables.mapping import ColumnMapping
from decaysketch.tables.numbering import KeyNumbers
from decaysketch.tables.row_sources import by_code, epochs_of_keys

__all__ = [
    "RESULT_FIELDS",
    "KeyedBuilder",
    "advice_on",
    "key_fields",
    "sketches_by_key",
    "warnings_of",
]

Key = tuple[Entry, ...]  # one of each key column
Int64Array = npt.NDArray[np.int64]

#: The columns next to the keys in a sketch table: delivery counts, and the sketch. ``replaced``
#: counts readings that a later one with their id replaced (:mod:`decaysketch.core.duplicates`),
#: ``undated`` times outside 1990 to 2099, ``zoneless`` times without a zone, read as UTC.
RESULT_FIELDS = (
    pa.field("rows", pa.int64()),
    pa.field("missing_values", pa.int64()),
    pa.field("fallback_times", pa.int64()),
    pa.field("refused", pa.int64()),
    pa.field("replaced", pa.int64()),
    pa.field("undated", pa.int64()),
    pa.field("zoneless", pa.int64()),
    pa.field("sketch", pa.binary()),
    pa.field("digest", pa.string()),
)
COUNTS = tuple(field.name for field in RESULT_FIELDS if pa.types.is_int64(field.type))
_READ = COUNTS[:4]  # those that one kernel counts

_ADVISED = 16  # sketches that are checked for advice
_SKETCHES_AT_A_TIME = 64  # sketch objects forwarded at a time
_ROWS_AT_A_TIME = 1 << 17  # rows of jointly stored sketches forwarded at a time
_KEYS_AT_A_TIME = 1 << 13  # keys forwarded at a time
_BYTES_OF_A_SKETCH = 60_000  # with its first row capacity
_BYTES_OF_A_HELD_ROW = 48
_BYTES_OF_SITES = 4_000  # of a sketch by site, before it holds anything
_LEAST_MEMORY = 1 << 20


def key_fields(schema: pa.Schema, keys: Sequence[str]) -> list[pa.Field]:
    """Return the result's key columns for a log with this schema, with their plain types.

    Raises:
        ParameterError: a missing column, a type that cannot be grouped by, or a name that the
            result needs for itself.
    """
    taken = {field.name for field in RESULT_FIELDS}
    fields = []
    for name in keys:
        if name not in schema.names:
            raise ParameterError(f"no column {name!r}; there are {', '.join(schema.names)}")
        if name in taken:
            raise ParameterError(f"cannot group by a column named {name!r}; rename it")
        fields.append(pa.field(name, _plain_type(name, schema.field(name).type)))
    return fields


def _plain_type(name: str, kind: pa.DataType) -> pa.DataType:
    """Return the type that represents a key for any way of reading the log."""
    if pa.types.is_dictionary(kind):
        return _plain_type(name, kind.value_type)
    if pa.types.is_integer(kind):
        return pa.int64()
    if is_text(kind):
        return pa.string()
    if is_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_boolean(kind) or pa.types.is_date32(kind):
        return kind
    raise ParameterError(
        f"cannot group by {name!r}, which is of type {kind}; expected integers, text, bytes, "
        "booleans, dates or timestamps"
    )


class KeyedBuilder:
    """Merges tables of a log into one sketch for each distinct key.

    Args:
        params: parameters for every sketch, which select the sketch kind, or a sketch
            configuration. See :func:`decaysketch.families.recipe_of`.
        mapping: the meaning of the log's columns.
        keys: columns to group by. None: one sketch over everything, under the key ``()``. A null is
            a key like any other.
        now: the time that every sketch gets. None: no time. Sketches with different times merge to
            the sketch of a build with the latest one.
        only: the accepted rows. The others are ignored.
        refused: "raise" for a row that no sketch can accept, or drop it and "count" it.
        memory_bytes: about how much memory to use before :attr:`full`. None: no limit.
        site: the site of all rows, if the family counts by site and the mapping has no site column.
        epoch: the epoch of the rows' sites. Give each log part that is built separately its own
            epoch (:func:`decaysketch.tables.epoch_of`). The rows of each key have an epoch that
            follows from it and the key.
        check_units: reject a table, before it accepts any row, if its times are unlikely in their
            unit, with few exceptions. Otherwise this only sets :attr:`doubt`.
        check_ids: check whether rows with one id are duplicates
            (:mod:`decaysketch.tables.duplicates`), until there is a warning.

    Raises:
        ParameterError: the parameters, the mapping and ``now`` do not belong together, or
            ``refused`` or ``memory_bytes`` is invalid.

    Attributes:
        recipe: the sketch configuration of every sketch.
        sited: whether the family counts by site.
        doubt_of_ids: reason why rows with one id are unlikely duplicates, if checked. None: they
            are duplicates.
        kinds: content of the columns that name rows: "integers", "text", "bytes" or "timestamps".
        doubt: reason why the times are unlikely in their unit, once there were such. None: there
            were none. A :class:`~decaysketch.TimeUnitWarning` reports it too, once.

    Grouped rows are stored together if the family can (:mod:`decaysketch.contract.many`): a key
    then costs little more than its rows. Other sketches are an object for each key.
    """

    def __init__(
        self,
        params: BuiltWith,
        mapping: ColumnMapping,
        keys: Sequence[str] = (),
        *,
        now: int | None = None,
        only: RowFilter | None = None,
        refused: Literal["raise", "count"] = "raise",
        memory_bytes: int | None = None,
        site: str | int = 0,
        epoch: int = 0,
        check_units: bool = False,
        check_ids: bool = False,
    ) -> None:
        if refused not in ("raise", "count"):
            raise ParameterError(f"refused is {refused!r}; expected 'raise' or 'count'")
        if memory_bytes is not None:
            check_integer("memory_bytes", memory_bytes, _LEAST_MEMORY, 1 << 62)
        self.recipe = families.recipe_of(params)
        self.recipe.empty(now)  # rejects an impossible configuration before any rows
        mapping = mapping.complete(self.recipe)
        mapping.check(self.recipe)
        self.sited = self.recipe.kind.input.sited
        if (site or epoch) and not self.sited:
            raise ParameterError(
                f"site is {site!r} and epoch is {epoch}; the family {self.recipe.family!r} does "
                "not count by site"
            )
        if site and mapping.source is not None:
            raise ParameterError(
                f"site is {site!r} and source is {mapping.source!r}; expected one of them"
            )
        self._epoch = epoch
        self._check_units = check_units
        self._check_ids = check_ids
        self._site = {"source": site, "epoch": epoch} if self.sited else {}
        self.mapping = mapping
        self.keys = tuple(keys)
        self.now = now
        self.only = only
        self.refused: Literal["raise", "count"] = refused
        self.memory_bytes = memory_bytes
        self.doubt: str | None = None
        self.doubt_of_ids: str | None = None
        self.kinds: dict[str, str] = {}
        self._undated: tuple[int, int] | None = None  # the oldest and the newest
        many = self.recipe.kind.many
        self._many = many(self.recipe.params) if many is not None and self.keys else None
        self._fields: list[pa.Field] = []
        self.clear()

    def clear(self) -> None:
        """Forget all rows, after they were forwarded."""
        self._numbers: KeyNumbers | None = None
        self._counts = np.zeros((0, len(_READ)), dtype=np.int64)
        self._odd_times = np.zeros((2, 0), dtype=np.int64)  # undated and zoneless ones, by key
        self._sketches: dict[int, Sketch] = {}
        self._epochs: list[int] = []  # of the keys, where they are counted by site
        self._rows: HeldByKey | None = None
        if self._many is not None:
            self._rows = self._many.hold(self.memory_bytes)
        self._of_no_key: dict[Key, Sketch] = {}

    @property
    def columns(self) -> list[str]:
        """The columns of the log that are read."""
        compared = self.only.columns if self.only is not None else ()
        return list(dict.fromkeys((*self.mapping.names, *self.keys, *compared)))

    @property
    def text_columns(self) -> list[str]:
        """The log's columns for declared texts. They are best read as dictionaries."""
        kinds = dict(declared_columns(self.recipe.params))
        return [column for name, column in self.mapping.columns if kinds[name] == "text"]

    def add(self, table: pa.Table | pa.RecordBatch) -> None:
        """Merge a table. Amortised O(rows log max_weight).

        Raises:
            ObservationError: a row is rejected, and rejections are not counted. The complete table
                is rejected.
            ParameterError: a column is missing or unsuitable, or a key column has another type than
                before.
            OtherUnitError: times are unlikely in their unit, and that is checked.
            OtherTypeError: a column that names rows contains another kind of keys than before, and
                so other names.
        """
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        fields = key_fields(self.mapping.typed_schema(table.schema), self.keys)
        if self._numbers is not None:
            for before, found in zip(self._fields, fields, strict=True):
                if found != before:
                    raise OtherTypeError(found.name, str(before.type), str(found.type))
        self._fields = fields
        log = self.mapping.read(table, self.recipe, only=self.only, refused=self.refused)
        if not log.table.num_rows:
            return
        if self._check_units:
            refuse_other_unit(log, self.mapping, table.schema, self.recipe.params)
        if self.doubt is None:
            self.doubt = doubt_of_log(log, self.mapping, table.schema, self.recipe.params)
            if self.doubt is not None:
                advice = "; give the unit with the mapping's time_unit"
                warnings.warn(self.doubt + advice, TimeUnitWarning, stacklevel=2)
        kinds = self.kinds | self._kinds(log.table.schema)
        for name, before in self.kinds.items():
            if kinds[name] != before:
                raise OtherTypeError(name, before, kinds[name])
        if self._numbers is None:
            self._numbers = KeyNumbers(fields)
        try:
            codes = self._numbers.number(log.table)
        except (pa.ArrowInvalid, UnicodeDecodeError) as fault:
            raise ParameterError(f"key columns {', '.join(self.keys)}: {fault}") from None
        self.kinds = kinds
        if self._check_ids and self.doubt_of_ids is None:
            self.doubt_of_ids = doubt_of_ids(log, self.mapping, self.recipe, codes)
        self._count(codes, log)
        self._count_odd_times(codes, log)
        if self._rows is not None:
            self._rows.add(len(self._numbers), codes, log.columns, log.left_out)
        else:
            for code, rows in by_code(codes):
                if code not in self._sketches:
                    self._sketches[code] = self.recipe.empty(self.now)
                log.update(self._sketches[code], rows, **self._site_of(code))

    def _count_odd_times(self, codes: npt.NDArray[np.int32], log: LogColumns) -> None:
        """Count the times that come from clocks that were not set, and those without a zone."""
        assert self._numbers is not None
        known = self._odd_times.shape[1]
        if len(self._numbers) > known:
            self._odd_times = np.pad(self._odd_times, ((0, 0), (0, len(self._numbers) - known)))
        times = log.columns["timestamps"]
        outside = undated(self.recipe.params.time_unit, times) & ~log.refused
        for counts, mask in zip(self._odd_times, (outside, log.zoneless), strict=True):
            if mask.any():
                counts += np.bincount(codes[mask], minlength=len(counts))
        if outside.any():
            found = times[outside]
            oldest, newest = self._undated or (found[0], found[0])
            self._undated = int(min(oldest, found.min())), int(max(newest, found.max()))

    def warnings(self) -> dict[type[UserWarning], str]:
        """Return the log's faults, from its counts since the last :meth:`clear`. See
        :func:`warnings_of`. O(rows stored).
        """
        held = 0 if self._rows is None else self._rows.held
        held += sum(map(len, self._sketches.values()))
        undated, zoneless = self._odd_times.sum(axis=1).tolist()
        odd = {"replaced": int(self._replaced().sum()), "undated": undated, "zoneless": zoneless}
        unit = self.recipe.params.time_unit
        found = warnings_of(self.totals | odd, held, self.mapping, unit, self._undated)
        if self.recipe.kind.input.series and (advice := self._advice()) is not None:
            found[FewSeriesWarning] = advice
        return found

    def _advice(self) -> str | None:
        """Return the advice for the first sketch that has one, among the first few."""
        for code in islice(self._sketches, _ADVISED):
            advice = self._sketches[code].snapshot().advice
            if advice is not None:
                return advice_on(advice, self.keys)
        return None

    def _kinds(self, schema: pa.Schema) -> dict[str, str]:
        types = {name: schema.field(name).type for name in self.mapping.naming}
        return {name: kind_of_keys(kind) for name, kind in types.items() if kind != pa.null()}

    def _site_of(self, code: int) -> dict[str, Any]:
        """Return the site for a key's rows, unless the mapping has a column for it."""
        if not (self.sited and self.keys):
            return self._site
        assert self._numbers is not None
        known = len(self._epochs)
        if code >= known:
            new = self._numbers.keys(known, len(self._numbers))
            self._epochs += epochs_of_keys(new, self._epoch)
        return self._site | {"epoch": self._epochs[code]}

    def _count(self, codes: npt.NDArray[np.int32], log: LogColumns) -> None:
        assert self._numbers is not None
        known = len(self._numbers)
        if known > len(self._counts):
            grown = np.zeros((max(known, 2 * len(self._counts)), len(_READ)), dtype=np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        missing, fallback, refused = (
            mask.view(np.uint8) for mask in (log.missing, log.fallback, log.refused)
        )
        _native.count_by_key(codes, missing, fallback, refused, self._counts)

    # ------------------------------------------------------------------------------------ memory

    @property
    def full(self) -> bool:
        """Whether it uses more than ``memory_bytes``. Then forward :meth:`batches` and
        :meth:`clear`. For a family that counts by site, this could count a site in two parts with
        one name, so forward :meth:`finished` instead.
        """
        if self.memory_bytes is None or self._numbers is None:
            return False
        if self._nbytes() <= self.memory_bytes:
            return False
        if self._rows is not None:
            self._rows.compact()
            return self._nbytes() > self.memory_bytes // 2
        return True

    def _nbytes(self) -> int:
        """Return the bytes of memory in use, about."""
        assert self._numbers is not None
        known = len(self._numbers)
        total = self._counts.nbytes + self._numbers.nbytes
        if self._rows is not None:
            return total + self._rows.nbytes
        if self.sited:
            return total + sum(_BYTES_OF_SITES + each.nbytes for each in self._sketches.values())
        capacity = int(self.recipe.params.capacity)
        # Final size of a bag: a multiple of its retained rows. Their number grows with the
        # logarithm of all rows.
        rows = self._counts[:known, 0]
        doublings = np.log2(np.maximum(rows / capacity, 1))
        held = np.minimum(rows, 5 * np.maximum(16_384, capacity * (1 + doublings)))
        return total + int((_BYTES_OF_A_SKETCH + _BYTES_OF_A_HELD_ROW * held).sum())

    # ------------------------------------------------------------------------------------- result

    @property
    def sketches(self) -> dict[Key, Sketch]:
        """Return the sketches by key, a tuple with one Python object for each key column."""
        keys = self._keys()
        if not self.keys:
            for code, sketch in self._sketches.items():
                self._of_no_key[keys[code]] = sketch
            return self._of_no_key
        if self._rows is None:
            return {keys[code]: sketch for code, sketch in sorted(self._sketches.items())}
        states = self._rows.sketches(0, len(keys))
        return {key: states.sketch(code) for code, key in enumerate(keys)}

    @property
    def counts(self) -> dict[Key, Int64Array]:
        """For each sketch ``[rows, missing_values, fallback_times, refused]``, counted over the
        deliveries that were read (including duplicates: these count work, not observations).
        """
        return {key: self._counts[code] for code, key in enumerate(self._keys())}

    def _replaced(self) -> Int64Array:
        """Return the number of replaced readings for each key. O(rows stored)."""
        if self._rows is not None:
            return self._rows.replaced
        return np.array([each.replaced for _, each in sorted(self._sketches.items())], np.int64)

    @property
    def totals(self) -> dict[str, int]:
        """The sums of :attr:`counts`, by name."""
        sums = self._counts.sum(axis=0).tolist()
        return dict(zip(_READ, sums, strict=True))

    def _keys(self) -> list[Key]:
        if self._numbers is None:
            return []
        columns = [column.to_pylist() for column in self._numbers.keys(0, len(self._numbers))]
        return list(zip(*columns, strict=True)) if columns else [()]

    def batches(self, *, digests: bool = True, forget: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the sketches as rows: the key columns, then :data:`RESULT_FIELDS`.

        Args:
            digests: False leaves the digests null, for sketches that are merged right away.
            forget: drop forwarded sketches, which may then use more memory than before. Call
                :meth:`clear` before you add more rows.
        """
        if self._numbers is None:
            return
        if self._rows is None:
            for start in range(0, len(self._numbers), _SKETCHES_AT_A_TIME):
                stop = min(start + _SKETCHES_AT_A_TIME, len(self._numbers))
                yield self._encoded(start, stop, digests, forget)
            return
        replaced = self._replaced()
        for start, stop in self._rows.ranges(_ROWS_AT_A_TIME, _KEYS_AT_A_TIME):
            many = self._rows.sketches(start, stop)
            named = many.digests() if digests else None
            yield self._batch(start, blobs_of(many), replaced[start:stop], named)

    def finished(self, *, digests: bool = True) -> Iterator[pa.RecordBatch]:
        """Return and forget all keys except the last one, as rows like :meth:`batches`. If rows
        arrive in key order, these keys are complete.
        """
        if self._numbers is None or len(self._numbers) < 2 or self._rows is not None:
            return
        last = len(self._numbers) - 1
        key, sketch = self._numbers.keys(last, last + 1), self._sketches[last]
        counts, epochs = self._counts[last : last + 1].copy(), self._epochs[last : last + 1]
        odd_times = self._odd_times[:, last : last + 1].copy()
        for start in range(0, last, _SKETCHES_AT_A_TIME):
            stop = min(start + _SKETCHES_AT_A_TIME, last)
            yield self._encoded(start, stop, digests, forget=True)
        self.clear()
        self._numbers = KeyNumbers(self._fields)
        self._numbers.number(pa.Table.from_arrays(key, schema=pa.schema(self._fields)))
        self._sketches[0], self._counts, self._epochs = sketch, counts, epochs
        self._odd_times = odd_times

    def _encoded(self, start: int, stop: int, digests: bool, forget: bool) -> pa.RecordBatch:
        blobs, replaced, named = [], [], []
        for code in range(start, stop):
            sketch = self._sketches.pop(code) if forget else self._sketches[code]
            blobs.append(sketch.to_bytes())
            replaced.append(sketch.replaced)
            if digests:
                named.append(sketch.digest())
        encoded = pa.array(blobs, pa.binary())
        return self._batch(start, encoded, np.array(replaced, np.int64), named if digests else None)

    def _batch(
        self, start: int, blobs: pa.Array, replaced: Int64Array, digests: list[str] | None
    ) -> pa.RecordBatch:
        assert self._numbers is not None
        stop = start + len(blobs)
        columns = [*self._counts[start:stop].T, replaced, *self._odd_times[:, start:stop]]
        counts = [pa.array(np.ascontiguousarray(column)) for column in columns]
        named = pa.nulls(len(blobs), pa.string()) if digests is None else pa.array(digests)
        return pa.RecordBatch.from_arrays(
            [*self._numbers.keys(start, stop), *counts, blobs, named],
            schema=pa.schema([*self._fields, *RESULT_FIELDS]),
        )


def warnings_of(
    counts: Mapping[str, int],
    held: int | None,
    mapping: ColumnMapping,
    unit: str,
    undated: tuple[int, int] | None = None,
) -> dict[type[UserWarning], str]:
    """Return a log's faults, which its counts show, each by its warning category.

    Args:
        counts: sums of the columns in :data:`RESULT_FIELDS`.
        held: rows that the sketches store, if it is known.
        mapping: the mapping that read the log.
        unit: of the sketches' times.
        undated: the oldest and the newest time outside 1990 to 2099, if they are known.
    """
    rows = counts["rows"] if held is None else held
    found = {
        DisagreeingCopiesWarning: replaced_readings(
            counts["replaced"], rows, mapping.ids, read=held is None
        ),
        TimeZoneWarning: zoneless(mapping.time) if counts["zoneless"] else None,
        UnlikelyClockWarning: of_another_clock(unit, counts["rows"], counts["undated"], undated),
    }
    return {category: said for category, said in found.items() if said is not None}


def advice_on(advice: str, keys: Sequence[str]) -> str:
    """Return a sketch's advice as that of a build by keys."""
    return f"in one of the sketches: {advice}" if keys else advice


def blobs_of(many: Many) -> pa.Array:
    """Return the bytes of many sketches as a column."""
    buffer, offsets = many.encode()
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ParameterError(f"{offsets[-1]} bytes of sketches at once; take a smaller capacity")
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1,
        [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(buffer)],
    )  # fmt: skip


def sketches_by_key(
    table: pa.Table | pa.RecordBatch,
    params: BuiltWith,
    mapping: ColumnMapping,
    keys: Sequence[str] = (),
    *,
    now: int | None = None,
    site: str | int = 0,
    epoch: int = 0,
) -> dict[Key, Any]:  # sketches of the class that ``params`` select
    """Build one sketch for each distinct key in a table.

    Args:
        table: a delivery log, in any order, with any number of duplicates.
        params, mapping, keys, now, site, epoch: see :class:`KeyedBuilder`.

    Returns:
        The sketches by key: a tuple with one entry for each key column.

    Raises:
        ObservationError, ParameterError: see :class:`KeyedBuilder` and :meth:`KeyedBuilder.add`.
    """
    builder = KeyedBuilder(params, mapping, keys, now=now, site=site, epoch=epoch)
    builder.add(table)
    return builder.sketches
