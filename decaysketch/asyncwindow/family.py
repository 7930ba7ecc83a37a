"""The families ``sum`` and ``median``: samplers for elements that their sources have numbered."""

from __future__ import annotations

from dataclasses import dataclass

from decaysketch.asyncwindow import rows, wire
from decaysketch.asyncwindow.params import OPTIONS, AsyncParams, MedianParams, SumParams
from decaysketch.asyncwindow.sketch import MedianSampler, SumSampler
from decaysketch.contract.family import Family, Head, Input, Own, Promises, Recipe, SeededRecipe
from decaysketch.core.params import Form
from decaysketch.errors import ParameterError

__all__ = ["MEDIAN", "SUM", "MedianRecipe", "SumRecipe"]


class _SamplerRecipe(SeededRecipe):
    """Common parts of both samplers' sketch configurations."""

    hashed = "elements are keyed"

    @classmethod
    def params_of(cls, fields: Form) -> Own:
        fields = {"kind": cls.family, **fields}
        if fields["kind"] != cls.family:
            raise ParameterError(f"kind is {fields['kind']!r}; expected the family, {cls.family!r}")
        return AsyncParams.from_dict(fields)


@dataclass(frozen=True)
class SumRecipe(_SamplerRecipe):
    """Samplers for sums over any recent window."""

    family = "sum"
    sketch_type = SumSampler
    params_type = SumParams

    params: SumParams


@dataclass(frozen=True)
class MedianRecipe(_SamplerRecipe):
    """Samplers for quantiles over any recent window."""

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
