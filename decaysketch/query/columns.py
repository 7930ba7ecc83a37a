"""Sample columns, as expressions read them (:mod:`decaysketch.core.text.expression`).

A stream with one value has four columns: ``v`` (the value), ``w`` (the weight), ``time`` and
``age``. In a stream with columns, these replace ``v``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from decaysketch.core.column_types import ColumnTypes
from decaysketch.core.distinct import Distinct
from decaysketch.core.labels import values_of
from decaysketch.core.observations import MISSING_KEY, decode_values
from decaysketch.core.text.expression import Column, Kind, Schema
from decaysketch.query.sample import Sample

__all__ = ["SampleTable", "schema_of"]

_OTHERS = ("w", "time", "age")  # names in addition to the declared columns


_KINDS: Mapping[str, Kind] = {
    "float64": "number", "int64": "number", "bool": "truth", "text": "text", "label": "text",
}  # fmt: skip


def schema_of(value_type: str, time_unit: str, columns: ColumnTypes = ()) -> Schema:
    """Return a stream's columns as expressions read them.

    Args:
        value_type: "int64", "float64", "label", or "record" for a stream with columns.
        time_unit: unit of its times.
        columns: the declared columns.
    """
    named = columns or (("v", value_type),)
    own: list[tuple[str, Kind]] = [(name, _KINDS[kind]) for name, kind in named]
    return Schema((*own, ("w", "number"), ("time", "time"), ("age", "number")), time_unit)


class SampleTable:
    """Sample rows as a table, in column order.

    Args:
        sample: the rows.
    """

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._found: dict[str, Column] = {}

    @property
    def now(self) -> int:
        return self._sample.now

    def __len__(self) -> int:
        return len(self._sample)

    def column(self, name: str) -> Column:
        if name not in self._found:
            records = self._sample.records
            own = records is None or name in _OTHERS
            self._found[name] = getattr(self, f"_{name}") if own else self._record(name)
        return self._found[name]

    def _record(self, name: str) -> Column:
        """Return a declared column."""
        records = self._sample.records
        assert records is not None
        column, kind = records.column(name), dict(records.types)[name]
        keys = column.keys[self._sample.value_keys]
        missing = keys == MISSING_KEY
        null = missing if missing.any() else None
        if kind == "text":
            return Column(keys if null is None else np.where(null, -1, keys), null, column.texts)
        if kind == "bool":
            return Column(keys == 1, null)
        values, _ = decode_values(keys, kind)
        return Column(values, null)

    @cached_property
    def _v(self) -> Column:
        sample = self._sample
        missing = sample.missing
        null = missing if missing.any() else None
        if sample.labels is None:
            return Column(sample.values, null)
        keys = Distinct()
        codes = keys.number(sample.value_keys).astype(np.intp)
        texts, absent = values_of(keys.distinct[: keys.count], "label", sample.labels)
        codes = np.where(absent[codes], -1, codes)
        return Column(codes, null, texts.tolist())

    @cached_property
    def _w(self) -> Column:
        return Column(self._sample.weights)

    @cached_property
    def _time(self) -> Column:
        return Column(self._sample.times)

    @cached_property
    def _age(self) -> Column:
        return Column(self._sample.now - self._sample.times)
