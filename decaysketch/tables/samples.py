"""A sketch's weighted sample as an Arrow table, for any engine that reads Arrow.

Sums over ``mass`` estimate decayed weights. So ``sum(mass * temp) / sum(mass)`` is the decayed mean
of a column, and ``sum(mass / weight)`` the decayed count.

An engine does not compute intervals, and it does not know that rows are a sample: ``count(*)``
counts stored rows, and a group without a stored row has no result. Queries to the sketch have
intervals and a bound for unseen groups.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from decaysketch.contract.snapshot import Sampled
from decaysketch.core.observations import MISSING_KEY, decode_values
from decaysketch.core.records import Records
from decaysketch.core.time_units import NANOSECONDS, Instant
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError
from decaysketch.families import BuiltWith, Sketch
from decaysketch.query.sample import Sample, pool
from decaysketch.tables.sql.decoded import decoded
from decaysketch.tables.sql.signatures import recipes_of

__all__ = ["METADATA", "decayed_sample", "sample_table"]

METADATA = b"decaysketch"
"""Key of the schema metadata: JSON with ``decay``, ``now``, ``time_unit``, ``step``, ``exact`` and
``caveat``."""

_CAVEAT = (
    "A sample: sums over mass estimate decayed weights, without an interval. count(*) counts "
    "stored rows. A group without a stored row is absent."
)
_OURS = ("weight", "time", "mass", "variance", "jump", "exact")


def decayed_sample(
    sketch: Sketch | bytes,
    decay: Decay | str | None,
    now: Any = None,
    streams: Iterable[BuiltWith] = (),
) -> pa.Table:
    """Return :func:`sample_table` of a sketch or its bytes. ``streams`` are parameters for bytes
    that cannot be read without them.
    """
    if isinstance(sketch, bytes | bytearray | memoryview):
        sketch = decoded(bytes(sketch), recipes_of(streams))
    return sample_table(sketch, decay, now)


def sample_table(sketch: Sketch, decay: Decay | str | None, now: Instant | None = None) -> pa.Table:
    """Return the rows that a decay gives weight to, newest first.

    Args:
        sketch: of a family that stores rows.
        decay: a decay, or its text. None if the sketch has a fixed one.
        now: query time, in the stream's unit or a moment.

    Returns:
        ``value``, or the declared columns, with a null for a missing value, and the columns
        ``weight`` (int64), ``time`` (a timestamp in UTC if the unit has a clock), ``mass``
        (float64, estimated decayed weight), ``variance`` (float64, of that mass), ``jump``
        (float64, the mass of one more sampled hit) and ``exact`` (bool). A declared column with one
        of these names is called ``"mass (column)"``. The schema metadata has :data:`METADATA`.

    Raises:
        ParameterError: the family stores no rows for samples, or an invalid decay or time.
        UnanswerableQueryError: rows with weight were discarded.

    Complexity: O(rows * columns).
    """
    snapshot = sketch.snapshot()
    if not isinstance(snapshot, Sampled):
        raise ParameterError(f"a {type(sketch).__name__} has no sample; it answers queries alone")
    sample = pool(snapshot.samples(*snapshot.asked(decay, now))).rescaled(0)
    unit = sketch.params.time_unit
    columns = dict(_values(sample)) | {
        "weight": pa.array(sample.weights),
        "time": _times(sample.times, unit),
        "mass": pa.array(sample.masses),
        "variance": pa.array(sample.variances),
        "jump": pa.array(sample.jumps),
        "exact": pa.array(np.arange(len(sample)) < sample.exact_rows),
    }
    facts = {
        "decay": repr(sample.decay), "now": sample.now, "time_unit": unit, "step": sample.step,
        "exact": sample.exact, "caveat": _CAVEAT,
    }  # fmt: skip
    return pa.table(columns).replace_schema_metadata({METADATA: json.dumps(facts)})


def _values(sample: Sample) -> Iterator[tuple[str, pa.Array]]:
    if sample.records is None:
        values = sample.values.tolist() if sample.values.dtype.kind == "O" else sample.values
        yield "value", pa.array(values, mask=sample.missing)
        return
    for name, _ in sample.records.types:
        column = _record(sample.records, name, sample.value_keys)
        yield (f"{name} (column)" if name in _OURS else name), column


def _record(records: Records, name: str, rows: npt.NDArray[np.int64]) -> pa.Array:
    column, kind = records.column(name), dict(records.types)[name]
    keys = column.keys[rows]
    missing = keys == MISSING_KEY
    if kind == "text":
        places = pa.array(np.where(missing, 0, keys), mask=missing)
        return pa.DictionaryArray.from_arrays(places, pa.array(list(column.texts), pa.string()))
    if kind == "bool":
        return pa.array(keys == 1, mask=missing)
    values, _ = decode_values(keys, kind)
    return pa.array(values, mask=missing)


def _times(times: npt.NDArray[np.int64], unit: str) -> pa.Array:
    """Return times as timestamps in UTC, or as integers where that is not possible."""
    if unit in ("ns", "us", "ms", "s"):
        return pa.array(times).cast(pa.timestamp(unit, "UTC"))
    if unit not in NANOSECONDS:
        return pa.array(times)
    seconds = NANOSECONDS[unit] // NANOSECONDS["s"]
    if len(times) and int(np.abs(times).max()) > (1 << 62) // seconds:
        return pa.array(times)
    return pa.array(times * np.int64(seconds)).cast(pa.timestamp("s", "UTC"))
