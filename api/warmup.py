"""Compile, or load from the cache, what requests run, so that none of them waits for it."""

from __future__ import annotations

import logging
from typing import Any

from api.families import snapshot_of
from decaysketch import SketchParams, decay
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.core import compiling, distinct
from decaysketch.families import Recipe, recipe_of

__all__ = ["warm_up"]

_log = logging.getLogger("api")


def warm_up() -> None:
    """Judge, build, read, merge and ask one small sketch of each family."""
    with compiling.progress(_log.info):
        _run_all()


def _run_all() -> None:
    distinct.warm_up()
    params = SketchParams(max_weight=2, id_bits=8, capacity=8)
    values, numbers = [1.0, 2.0], [1, 2]
    element: dict[str, Any] = {"sequence": numbers, "source": "warm-up"}
    examples: list[tuple[Recipe[Any], list[Any], dict[str, Any]]] = [
        (recipe_of(params), [values, numbers, numbers, numbers], {}),
        (recipe_of(params, decay.integral.window(5)), [values, numbers, numbers, numbers], {}),
        (recipe_of(SumParams(max_sum=100, capacity=8)), [numbers, numbers], element),
        (recipe_of(MedianParams(max_count=100, capacity=8)), [values, numbers], element),
    ]
    for recipe, columns, named in examples:
        sketch = recipe.empty()
        sketch.verdicts(*columns, **named)
        sketch.update(*columns, **named)
        read = snapshot_of(recipe.decode(sketch.to_bytes()))
        asked = recipe.empty()
        for each in (read.thaw(), sketch):  # the second answer has less to compute
            asked.merge(each)
            snapshot_of(asked).at(decay.window(5), 2)
