"""Texts from engines as library objects: decays and sketch configurations.

Anyone who may write a query may send such texts. :mod:`decaysketch.core.text.grammar` reads them,
as for all interfaces. This module caches them, because an engine sends the same text in every row.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from decaysketch.core.params import SketchParams
from decaysketch.core.sizing import CAPACITY_BY_KEY
from decaysketch.core.text.grammar import json_object
from decaysketch.decay import Decay, parse
from decaysketch.decay.read import MAX_TEXT
from decaysketch.errors import ParameterError
from decaysketch.families import DEFAULT, FAMILIES, Recipe, recipe_from_dict

__all__ = ["decay_of", "recipe_of_text", "text_of"]

decay_of = lru_cache(maxsize=256)(parse)
"""See :func:`decaysketch.decay.parse`."""


def text_of(decay: Any) -> Any:
    """Return a decay as a text that :func:`decay_of` reads, and anything else unchanged."""
    return json.dumps(decay.to_dict()) if isinstance(decay, Decay) else decay


@lru_cache(maxsize=64)
def recipe_of_text(text: str) -> Recipe:
    """Parse a sketch configuration from JSON: the parameters of a ``DecaySketch``, or
    ``{"family": ..., "params": {...}}``, for an integral decay with ``"decay"``, as a text
    or a dictionary. If ids are hashed, ``"accuracy"`` may replace the capacity. Without either, the
    capacity is the one for a sketch among many.

    Raises:
        ParameterError: no JSON, an unknown field, a missing one, or one outside its domain.
    """
    fields = json_object("stream", text, MAX_TEXT)
    if "params" not in fields:
        fields = {"params": fields}
    if not isinstance(fields.get("family", ""), str):
        raise ParameterError(f"family is {fields['family']!r}; expected a text")
    named, params = fields.get("family", DEFAULT), fields["params"]
    hashed = named in FAMILIES and FAMILIES[named].params is SketchParams
    if hashed and isinstance(params, dict) and not params.keys() & {"accuracy", "capacity"}:
        fields = {**fields, "params": {**params, "capacity": CAPACITY_BY_KEY}}
    return recipe_from_dict(fields)
