"""A body's rows as one object, from the reader to the sketch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.labels import EncodedLabels
from decaysketch.core.row_check import Refusal
from decaysketch.ingest.readings import Parsed
from decaysketch.ingest.record_columns import Dropped

__all__ = ["Batch", "Columns", "Key", "SeriesFields"]

Int64Array = npt.NDArray[np.int64]
Key = tuple[str | bytes | int, ...]

_NO_INTEGERS: Final[Any] = partial(np.zeros, 0, np.int64)
_NO_FLAGS: Final[Any] = partial(np.zeros, 0, np.bool_)


class Columns(NamedTuple):
    """Observations that a sketch of the stream accepts."""

    values: Any  # an array, masked where missing; EncodedValues where some are ranges
    weights: Int64Array
    times: Int64Array
    ids: npt.NDArray[Any]  # int64; where rows are events of keys, uint64: the words of these


@dataclass(eq=False)
class SeriesFields:
    """Columns that only series rows have, for a body's rows.

    Attributes:
        starts: int64[n] in the stream's unit, ``NO_START`` if there is none. None: no row has one.
        entity_ids: by place in the columns, entities that are integers.
        entity_keys: likewise, entities that are keys.
        entity_parts: a column for each part, if all entities are keys of one kind.
        attributes: by name, a text or null for each row. None: all are null.
    """

    starts: Int64Array | None = None
    entity_ids: dict[int, int] = field(default_factory=dict)
    entity_keys: dict[int, Key] = field(default_factory=dict)
    entity_parts: tuple[Any, ...] | None = None
    attributes: dict[str, EncodedLabels] | None = None


@dataclass(eq=False)
class Batch:
    """A body's rows, from the reader to the sketch.

    The reader makes it, and leaves out rows with a wrong type.
    :func:`~decaysketch.ingest.columns.check` adds the accepted rows, and sketching each row's
    status.

    Attributes:
        rows: their number in the body.
        positions: each row's position in the body, once checked each accepted row's.
        values: 0 where missing; for labels objects, an empty text where missing. With declared
            columns: :class:`~decaysketch.core.records.Records`, or a mapping for each row.
        keys: for rows with a key as id; their ``ids`` mean nothing.
        parts: a column for each part, if all ids are keys with parts alike; then there are no
            ``keys``.
        refusals: the rejected rows, once checked all of them in order.
        ranges: value keys for rows with a range. Their ``values`` are middles.
        zoneless: whether times that name no zone were read as UTC.
        dropped: values that fill no column, by column name and reason.
        of_series: columns that only series rows have.
        told: from a parser, the rejected and skipped parts.
        sound: once checked, the place in the reader's columns of each accepted row.
        columns: once checked, the accepted rows.
        more: once checked, further keywords for ``update``.
        statuses: a ``Verdict`` for each row in the body, or the number after the last verdict for a
            rejected one.
        without_device: once sketched, the number of accepted rows without a device, by derived
            stream's name.
        disagreeing: once sketched, rows that share identity and time with another row, in the body
            or in the source's earlier posts, and have another value.
        replaced: once sketched, readings that replaced, or were replaced by, another reading with
            their id, likewise.
        undated: rows outside the years 1990 to 2100, if others are inside.
        joined: how many different times the identities have, and how many identities there are.
    """

    rows: int = 0
    positions: Int64Array = field(default_factory=_NO_INTEGERS)
    values: Any = ()
    missing: npt.NDArray[np.bool_] = field(default_factory=_NO_FLAGS)
    weights: Int64Array = field(default_factory=_NO_INTEGERS)
    times: Int64Array = field(default_factory=_NO_INTEGERS)
    ids: Int64Array = field(default_factory=_NO_INTEGERS)
    keys: dict[int, Key] = field(default_factory=dict)  # by place in the columns
    refusals: list[Refusal] = field(default_factory=list)
    parts: tuple[Any, ...] | None = None
    ranges: dict[int, int] = field(default_factory=dict)  # by place in the columns
    zoneless: bool = False
    dropped: Dropped = field(default_factory=Counter)
    of_series: SeriesFields | None = None
    told: Parsed = field(default_factory=Parsed)
    sound: Int64Array = field(init=False)
    columns: Columns = field(init=False)
    more: Mapping[str, Any] = field(init=False)
    statuses: npt.NDArray[np.int8] = field(init=False)
    without_device: dict[str, int] = field(default_factory=dict, init=False)
    disagreeing: int = field(default=0, init=False)
    replaced: int = field(default=0, init=False)
    undated: int = field(default=0, init=False)
    joined: tuple[int, int] = field(default=(0, 0), init=False)
