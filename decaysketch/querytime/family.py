"""The family ``decay``: sketches whose decay is chosen at query time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from decaysketch.contract.family import (
    Blob,
    Family,
    Head,
    Input,
    Joining,
    Own,
    Promises,
    Recipe,
    refuse_decay,
    take_fields,
)
from decaysketch.core.codec.reading import Header
from decaysketch.core.params import OBJECTIVES, OPTIONS, Form, SketchParams
from decaysketch.decay.integral import IntegralDecay
from decaysketch.querytime import rows, wire
from decaysketch.querytime.sketch import DecaySketch
from decaysketch.querytime.snapshot import QueryTimeSnapshot
from decaysketch.querytime.together import many_keys

__all__ = ["FAMILY", "DecayRecipe"]

_STRATUM_ROWS = 8  # memory that a stratum takes in addition to its rows, in rows


@dataclass(frozen=True)
class DecayRecipe(Recipe):
    """Sketches whose decay is chosen at query time."""

    family = "decay"
    sketch_type = DecaySketch
    params_type = SketchParams

    params: SketchParams

    @classmethod
    def read(
        cls, blob: Blob, *, params: Own | None, decay: IntegralDecay | None, id_key: bytes | None
    ) -> DecaySketch:
        refuse_decay(decay)
        return DecaySketch.from_bytes(blob, params=params, id_key=id_key)

    def decode_snapshot(self, blob: Blob) -> QueryTimeSnapshot:
        self._check_family(blob)
        return QueryTimeSnapshot(wire.decode(blob, params=self.params), DecaySketch.from_state)

    @classmethod
    def parse(cls, form: Form, *, id_key: bytes | None, table: IntegralDecay | None) -> Self:
        take_fields(form, "params")
        return cls(SketchParams.from_dict(form["params"], id_key=id_key))


def _head(header: Header) -> Head:
    """Return a sketch's cost. A stratum takes memory in addition to its rows."""
    found = Head.of(DecayRecipe.family, header)
    return replace(found, beside=_STRATUM_ROWS * header.strata) if header.strata else found


FAMILY = Family(
    name=DecayRecipe.family,
    doc="each query chooses the decay.",
    number=wire.FAMILY,
    sketch=DecaySketch,
    params=SketchParams,
    recipe=DecayRecipe,
    peek=lambda blob: _head(wire.peek(blob)),
    input=Input(
        named_by="ids",
        value="optional",
        ranges=True,
        weight_bound="max_weight",
        clock=False,
        decay="query",
    ),
    options=(*OPTIONS, OBJECTIVES),
    questions=DecaySketch.questions,
    promises=Promises(idempotent=True, canonical=True, lossless=True),
    make_example=lambda: DecayRecipe(SketchParams(max_weight=9, id_bits=16, capacity=16)),
    documented={
        "params": {
            "max_weight": 999,
            "id_bits": 40,
            "capacity": 24000,
            "seed": 42,
            "time_unit": "us",
            "value_type": "float64",
        }
    },
    release_scratch=rows.release_scratch,
    many=many_keys,
    joining=Joining.of("decaysketch.querytime.joint"),
)
