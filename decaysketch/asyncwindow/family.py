"""The families ``sum`` and ``median``: samplers of elements that their sources have numbered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from decaysketch.asyncwindow import rows, wire
from decaysketch.asyncwindow.params import OPTIONS, AsyncParams, MedianParams, SumParams
from decaysketch.asyncwindow.sketch import MedianSampler, Sampler, SumSampler
from decaysketch.contract.family import Blob, Family, Head, Input, Promises
from decaysketch.contract.recipe import Own, Recipe, refuse_decay, take_fields
from decaysketch.core.params import Form
from decaysketch.decay.integral import IntegralDecay
from decaysketch.errors import IncompatibleSketchError, ParameterError

__all__ = ["MEDIAN", "SUM", "MedianRecipe", "SumRecipe"]


class _SamplerRecipe(Recipe):
    """What the recipes of both asynchronous samplers have in common."""

    def empty(self, now: int | None = None) -> Sampler[Any]:
        sampler: Sampler[Any] = self.sketch_type(self.params)
        if now is not None:
            sampler.advance(now)
        return sampler

    @classmethod
    def read(
        cls, blob: Blob, *, params: Own | None, decay: IntegralDecay | None, id_key: bytes | None
    ) -> Sampler[Any]:
        refuse_decay(decay)
        if id_key is not None:
            raise IncompatibleSketchError(
                {"id_key": ("given", "none, elements are keyed by the seed")}
            )
        sampler: Sampler[Any] = cls.sketch_type.from_bytes(blob, params=params)
        return sampler

    @classmethod
    def parse(cls, form: Form, *, id_key: bytes | None, table: IntegralDecay | None) -> Self:
        take_fields(form, "params")
        if id_key is not None:
            raise ParameterError(f"id_key is given; family {cls.family!r} is keyed by its seed")
        fields = {"kind": cls.family, **form["params"]}
        if fields["kind"] != cls.family:
            raise ParameterError(f"kind is {fields['kind']!r}; expected the family, {cls.family!r}")
        return cls(AsyncParams.from_dict(fields))  # type: ignore[call-arg]


@dataclass(frozen=True)
class SumRecipe(_SamplerRecipe):
    """Samplers of sums over any recent window."""

    family = "sum"
    sketch_type = SumSampler
    params_type = SumParams

    params: SumParams


@dataclass(frozen=True)
class MedianRecipe(_SamplerRecipe):
    """Samplers of quantiles over any recent window."""

    family = "median"
    sketch_type = MedianSampler
    params_type = MedianParams

    params: MedianParams


def _family(recipe: type[Recipe], example: Recipe, value_bound: str | None, doc: str) -> Family:
    kind = recipe.family
    bound = OPTIONS[kind][0].name

    return Family(
        name=kind,
        doc=doc,
        number=wire.FAMILIES[kind],
        sketch=recipe.sketch_type,
        params=recipe.params_type,
        recipe=recipe,
        peek=lambda blob: Head.of(kind, wire.peek(blob, kind=kind)),
        input=Input(
            named_by="sequence",
            value="required",
            value_bound=value_bound,
            clock=True,
            decay="query",
            age_bound="max_window",
        ),
        options=OPTIONS[kind],
        questions=recipe.sketch_type.questions,
        promises=Promises(idempotent=True, canonical=True, lossless=True),
        make_example=lambda: example,
        documented={"params": {bound: 10**9, "capacity": 2000, "max_window": 3600}},
        release_scratch=rows.release_scratch,
    )


SUM = _family(
    SumRecipe,
    SumRecipe(SumParams(max_sum=10_000, capacity=8)),
    "max_sum",
    "sums of positive integers over any window.",
)
MEDIAN = _family(
    MedianRecipe,
    MedianRecipe(MedianParams(max_count=1000, capacity=8)),
    None,
    "quantiles over any window.",
)
