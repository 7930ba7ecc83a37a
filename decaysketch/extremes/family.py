"""The family ``extremes``: the smallest and the largest value in any window that ends now."""

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
from decaysketch.extremes import rows, wire
from decaysketch.extremes.params import OPTIONS, ExtremesParams
from decaysketch.extremes.sketch import ExtremesSketch

__all__ = ["FAMILY", "ExtremesRecipe"]


@dataclass(frozen=True)
class ExtremesRecipe(Recipe):
    """Sketches for extremes."""

    family = "extremes"
    sketch_type = ExtremesSketch
    params_type = ExtremesParams

    params: ExtremesParams

    @classmethod
    def read(
        cls, blob: Blob, *, params: Own | None, decay: IntegralDecay | None, id_key: bytes | None
    ) -> ExtremesSketch:
        refuse_decay(decay)
        return ExtremesSketch.from_bytes(blob, params=params, id_key=id_key)

    @classmethod
    def parse(
        cls, form: Mapping[str, Any], *, id_key: bytes | None, table: IntegralDecay | None
    ) -> Self:
        take_fields(form, "params")
        return cls(ExtremesParams.from_dict(form["params"], id_key=id_key))


FAMILY = Family(
    name=ExtremesRecipe.family,
    doc="the smallest and the largest value in any window that ends now.",
    number=wire.FAMILY,
    sketch=ExtremesSketch,
    params=ExtremesParams,
    recipe=ExtremesRecipe,
    peek=lambda blob: Head.of(ExtremesRecipe.family, wire.peek(blob)),
    input=Input(
        named_by="ids",
        joined=False,
        value="required",
        weight_bound="max_weight",
        clock=False,
        decay="query",
    ),
    options=OPTIONS,
    questions=ExtremesSketch.questions,
    promises=Promises(idempotent=True, canonical=True, lossless=True),
    make_example=lambda: ExtremesRecipe(ExtremesParams(max_weight=9, id_bits=16, capacity=4)),
    documented={"params": {"capacity": 512, "time_unit": "s"}},
    release_scratch=rows.release_scratch,
)
