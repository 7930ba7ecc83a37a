"""The columns of a sample, as expressions read them (:mod:`decaysketch.core.text.expression`).

Today every stream has one value, so there are four columns: ``v`` (the value), ``w`` (the weight),
``time`` and ``age``. A stream with more columns adds names in :func:`schema_of` and
:class:`SampleTable`. Nothing else changes.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from decaysketch.core.distinct import Distinct
from decaysketch.core.labels import values_of
from decaysketch.core.text.expression import Column, Kind, Schema
from decaysketch.query.sample import Sample

__all__ = ["SampleTable", "schema_of"]


def schema_of(value_type: str, time_unit: str) -> Schema:
    """Return the columns of a stream with one value.

    Args:
        value_type: "int64", "float64" or "label".
        time_unit: unit of its times.
    """
    value: Kind = "text" if value_type == "label" else "number"
    return Schema((("v", value), ("w", "number"), ("time", "time"), ("age", "number")), time_unit)


class SampleTable:
    """The rows of a sample as a table, in column order.

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
            self._found[name] = getattr(self, f"_{name}")
        return self._found[name]

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
