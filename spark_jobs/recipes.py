"""What the options of a program say a sketch is built with, and how its rows are named.

Each family reads the options that are its own; one of another family is refused where it was given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decaysketch.batch import ColumnMapping
from decaysketch.errors import ParameterError
from decaysketch.families import FAMILIES, Recipe, recipe_from_dict
from spark_jobs.console import JobError

__all__ = ["mapping_from_options", "names", "recipe_from_options"]

_OF_OBSERVATIONS = (
    "max_weight", "id_bits", "capacity", "seed", "time_unit", "value_type", "keyed_by"
)  # fmt: skip
_OPTIONS = {
    "decay": _OF_OBSERVATIONS,
    "integral": _OF_OBSERVATIONS,
    "sum": ("max_sum", "max_window", "capacity", "seed", "time_unit"),
    "median": ("max_count", "max_window", "capacity", "seed", "time_unit", "value_type"),
}
_NAMED_BY = {
    "decay": ("ids",),
    "integral": ("ids",),
    "sum": ("source", "sequence"),
    "median": ("source", "sequence"),
}


def names(text: str) -> tuple[str, ...]:
    """Names of columns, with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def recipe_from_options(
    family: str,
    params_file: Path | None,
    decay: str | None,
    id_key: bytes | None,
    **options: Any,
) -> Recipe[Any]:
    """The recipe of a family.

    Args:
        family: its name.
        params_file: parameters as JSON; None: they are in ``options``.
        decay: an integral decay as JSON, or the path of a file of it; None for the other families.
        id_key: the stream's secret, where it has one.
        options: every parameter of any family; None where not given.

    Raises:
        JobError: a file without JSON, or an option that the family has no use for.
        ParameterError: a value outside its domain, or a missing one.
    """
    own = _of_family(_OPTIONS, family)
    params: dict[str, Any]
    if params_file is not None:
        params = _json_object(params_file.read_text(encoding="utf-8"), str(params_file))
    else:
        for name in ("max_sum", "max_count", "max_window"):
            if options[name] is not None and name not in own:
                raise JobError(f"--{name.replace('_', '-')} has no use for the family {family}")
        given = {**options, "keyed_by": "seed" if id_key is None else "secret"}
        params = {name: given[name] for name in own if given[name] is not None}
    form: dict[str, Any] = {"family": family, "params": params}
    if decay is not None:
        inline = decay.lstrip().startswith("{")
        text = decay if inline else Path(decay).read_text(encoding="utf-8")
        form["decay"] = _json_object(text, "--decay" if inline else decay)
    return recipe_from_dict(form, id_key=id_key)


def mapping_from_options(family: str, **columns: Any) -> ColumnMapping:
    """The columns that a family reads; see :class:`~decaysketch.batch.ColumnMapping`."""
    other = {"ids", "source", "sequence"} - set(_of_family(_NAMED_BY, family))
    return ColumnMapping(**{name: given for name, given in columns.items() if name not in other})


def _of_family(table: Mapping[str, tuple[str, ...]], family: str) -> tuple[str, ...]:
    if family not in table:
        raise ParameterError(f"family is {family!r}; expected one of {', '.join(FAMILIES)}")
    return table[family]


def _json_object(text: str, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as fault:
        raise JobError(f"{place} is not JSON: {fault}") from None
    if not isinstance(fields, dict):
        raise JobError(f"{place} does not hold an object of parameters")
    return fields
