"""The family ``integral``: sketches for one integral decay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from decaysketch.contract.family import (
    Blob,
    Family,
    Head,
    Input,
    Joining,
    Own,
    Promises,
    Recipe,
    take_fields,
)
from decaysketch.core.params import OPTIONS, Differences, Form, SketchParams
from decaysketch.decay import integral
from decaysketch.decay.integral import IntegralDecay, StepTable
from decaysketch.decay.read import fields_of
from decaysketch.integral import rows, wire
from decaysketch.integral.sketch import IntegralDecaySketch, check_build
from decaysketch.integral.state import spec_of

__all__ = ["FAMILY", "IntegralRecipe"]


@dataclass(frozen=True)
class IntegralRecipe(Recipe):
    """Sketches for one integral decay."""

    family = "integral"
    sketch_type = IntegralDecaySketch
    params_type = SketchParams

    params: SketchParams
    decay: IntegralDecay

    def steps(self) -> StepTable:
        return self.decay.steps(self.params.max_weight)

    def _new(self) -> IntegralDecaySketch:
        return IntegralDecaySketch(self.params, self.decay)

    @classmethod
    def read(
        cls, blob: Blob, *, params: Own | None, decay: IntegralDecay | None, id_key: bytes | None
    ) -> IntegralDecaySketch:
        return IntegralDecaySketch.from_bytes(blob, params=params, decay=decay, id_key=id_key)

    @classmethod
    def parse(cls, form: Form, *, id_key: bytes | None, table: IntegralDecay | None) -> Self:
        take_fields(form, "params", "decay")
        params = SketchParams.from_dict(form["params"], id_key=id_key)
        check_build(params)
        decay = fields_of(form["decay"], params.time_unit, fixed=True)
        return cls(params, integral.from_dict(decay, table=table))

    @classmethod
    def of(cls, sketch: Own) -> Self:
        return cls(sketch.params, sketch.decay)

    @classmethod
    def built_with(cls, params: object, decay: IntegralDecay | None) -> Self | None:
        if type(params) is not SketchParams or decay is None:
            return None
        return cls(params, decay)

    @classmethod
    def normal_form(cls, form: Form, *, id_key: bytes | None, read_decay: bool) -> dict[str, Any]:
        take_fields(form, "params", "decay")
        params = SketchParams.from_dict(form["params"], id_key=id_key)
        decay = fields_of(form["decay"], params.time_unit, fixed=True)
        if read_decay:
            decay = integral.normal_form(decay)
        return {"family": cls.family, "params": params.to_dict(), "decay": decay}

    def differences(self, other: Recipe) -> Differences:
        differences = super().differences(other)
        if isinstance(other, IntegralRecipe) and spec_of(self.decay) != spec_of(other.decay):
            differences["decay"] = (self.decay, other.decay)
        return differences

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "decay": self.decay.to_dict()}


FAMILY = Family(
    name=IntegralRecipe.family,
    doc="one integral decay for all queries.",
    number=wire.FAMILY,
    sketch=IntegralDecaySketch,
    params=SketchParams,
    recipe=IntegralRecipe,
    peek=lambda blob: Head.of(IntegralRecipe.family, wire.peek(blob)),
    input=Input(
        named_by="ids",
        value="optional",
        ranges=True,
        weight_bound="max_weight",
        clock=True,
        decay="fixed",
    ),
    options=OPTIONS,
    questions=IntegralDecaySketch.questions,
    promises=Promises(idempotent=True, canonical=True, lossless=True),
    make_example=lambda: IntegralRecipe(
        SketchParams(max_weight=9, id_bits=16, capacity=16), integral.exponential(half_life=20)
    ),
    documented={
        "params": {"max_weight": 999, "capacity": 8000, "seed": 42},
        "decay": {"kind": "exponential", "half_life": 3600},
    },
    row_cost=4,  # with its events
    release_scratch=rows.release_scratch,
    joining=Joining.of("decaysketch.integral.joint", by_level=False),
)
