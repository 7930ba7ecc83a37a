"""Compile, or load from the cache, what requests run, so that none of them waits for it."""

from __future__ import annotations

import logging
from typing import Any

from decaysketch import decay
from decaysketch.core import compiling, distinct
from decaysketch.families import FAMILIES

__all__ = ["warm_up"]

_log = logging.getLogger("api")


def warm_up() -> None:
    """Judge, build, read, merge and ask one small sketch of each family."""
    with compiling.progress(_log.info):
        _run_all()


def _run_all() -> None:
    distinct.warm_up()
    numbers = [1, 2]
    for family in FAMILIES.values():
        recipe = family.example
        values = [1, 2] if recipe.params.value_type == "int64" else [1.0, 2.0]
        columns: list[Any] = [values, numbers, numbers, numbers]
        named: dict[str, Any] = {}
        if family.input.named_by == "sequence":
            columns, named = [values, numbers], {"sequence": numbers, "source": "warm-up"}
        sketch = recipe.empty()
        sketch.verdicts(*columns, **named)
        sketch.update(*columns, **named)
        read = recipe.decode(sketch.to_bytes()).snapshot()
        asked = recipe.empty()
        for each in (read, sketch):  # the second answer has less to compute
            asked.merge(each)
            asked.snapshot().at(decay.window(5), 2)
