"""The family ``series``: counters, time-weighted averages, states, gaps and sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from decaysketch.contract.family import (
    Blob,
    Family,
    Head,
    Input,
    Own,
    Promises,
    Recipe,
    refuse_decay,
    take_fields,
)
from decaysketch.decay.integral import IntegralDecay
from decaysketch.series import rows, wire
from decaysketch.series.params import OPTIONS, SeriesParams
from decaysketch.series.sketch import SeriesSketch

__all__ = ["FAMILY", "SeriesRecipe"]


@dataclass(frozen=True)
class SeriesRecipe(Recipe):
    """Samples of series."""

    family = "series"
    sketch_type = SeriesSketch
    params_type = SeriesParams

    params: SeriesParams

    @classmethod
    def read(
        cls, blob: Blob, *, params: Own | None, decay: IntegralDecay | None, id_key: bytes | None
    ) -> SeriesSketch:
        refuse_decay(decay)
        return SeriesSketch.from_bytes(blob, params=params, id_key=id_key)

    @classmethod
    def parse(
        cls, form: Mapping[str, Any], *, id_key: bytes | None, table: IntegralDecay | None
    ) -> Self:
        take_fields(form, "params")
        return cls(SeriesParams.from_dict(form["params"], id_key=id_key))


FAMILY = Family(
    name=SeriesRecipe.family,
    doc="increase of counters, time-weighted averages, time in states, gaps and sessions.",
    number=wire.FAMILY,
    sketch=SeriesSketch,
    params=SeriesParams,
    recipe=SeriesRecipe,
    peek=lambda blob: Head.of(SeriesRecipe.family, wire.peek(blob)),
    input=Input(
        named_by="ids",
        series=True,
        joined=False,
        value="optional",
        weight_bound="max_weight",
        clock=False,
        decay="query",
    ),
    options=OPTIONS,
    questions=SeriesSketch.questions,
    promises=Promises(idempotent=True, canonical=True, lossless=True),
    make_example=lambda: SeriesRecipe(
        SeriesParams(max_weight=9, id_bits=16, capacity=10, resolution=3)
    ),
    documented={"params": {"capacity": 20_000, "resolution": 60, "time_unit": "s"}},
    row_cost=2,
    release_scratch=rows.release_scratch,
)
