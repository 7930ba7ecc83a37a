"""One example of every family, and how observations are given to it: what laws and studies need.

Whatever holds for every family is tested and measured from :data:`EXAMPLES` alone, which reads what
families say of themselves: a new one gets the laws, a golden file and hostile bytes by being
listed. All else (which variants there are, rows that suit them, the order of the columns) follows
from that and from the fields of the parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from decaysketch.errors import ParameterError
from decaysketch.families import FAMILIES, Family, Recipe

__all__ = [
    "EXAMPLES",
    "Example",
    "Row",
    "columns",
    "example_of",
    "feed",
    "forms",
    "stream",
    "variants",
    "with_fields",
]


class Row(NamedTuple):
    """One observation of whatever family; what the family does not take is None."""

    value: float | int | str | None
    weight: int | None
    time: int
    name: Any  # an id, (source, number), or of events (source, epoch, key)


@dataclass(frozen=True)
class Example:
    """A family as those see it who feed it.

    Attributes:
        recipe: small, so that few observations overflow it.
        named_by: how rows are named, so that copies are known.
        value: whether a row has one; None: the family takes no values.
        weight: the parameter that bounds weights; None: the family takes no weights.
        clock: whether sketches are told the time.
        idempotent: whether merging the same again changes nothing.
        weighted: whether rows have weights that nothing bounds.
    """

    recipe: Recipe
    named_by: Literal["id", "source and number", "key"]
    value: Literal["optional", "required"] | None
    weight: str | None
    clock: bool
    idempotent: bool = True
    weighted: bool = False

    @property
    def counts_once(self) -> bool:
        """Whether a row that comes again changes nothing: not where nothing names it."""
        return self.idempotent and self.named_by != "key"

    def has(self, field: str) -> bool:
        """Whether the parameters have a field of that name."""
        return field in {each.name for each in fields(self.recipe.params)}


_NAMES: Final[Mapping[str, Any]] = {
    "ids": "id", "sequence": "source and number", "key": "key"
}  # fmt: skip


def example_of(family: Family) -> Example:
    """What a family says of itself. A bounded value is fed like a weight."""
    taken = family.input
    return Example(
        family.example,
        _NAMES[taken.named_by],
        None if taken.value_bound or taken.value == "none" else taken.value,
        taken.value_bound or taken.weight_bound,
        clock=taken.clock,
        idempotent=family.promises.idempotent,
        weighted=taken.weighted,
    )


#: By name of the family.
EXAMPLES: Final[Mapping[str, Example]] = {
    name: example_of(family) for name, family in FAMILIES.items()
}

_VARIANTS: Final[Mapping[str, dict[str, Any]]] = {
    "one": {"capacity": 1},
    "copies": {"copies": 2, "capacity": 8},
    "secret": {"id_key": bytes(range(16))},
    "integers": {"value_type": "int64"},
    "labels": {"value_type": "label"},
    "window": {"max_window": 100},
    "nested": {"eager_from_level": 3},
    "hashed": {"key_bits": None},
    "histograms": {"slots": 2, "kind": "eh"},
    "horizon": {"horizon": 100, "hold": 10},
}


def with_fields(recipe: Recipe, **changes: Any) -> Recipe | None:
    """The recipe with some parameters replaced; None where the family does not take them so."""
    if not changes.keys() <= {each.name for each in fields(recipe.params)}:
        return None
    try:
        changed: Recipe = replace(recipe, params=replace(recipe.params, **changes))  # type: ignore[type-var]
        changed.empty()
    except ParameterError:
        return None
    return changed


def variants(example: Example) -> dict[str, Recipe]:
    """The example and what else its family can be, by name; that of the example is ""."""
    found = {name: with_fields(example.recipe, **f) for name, f in _VARIANTS.items()}
    return {"": example.recipe} | {name: each for name, each in found.items() if each is not None}


def stream(example: Example, recipe: Recipe, rows: int, seed: int = 0) -> list[Row]:
    """So many observations, no two of one name, the same for the same arguments."""
    draw = np.random.default_rng(seed)
    times = np.sort(draw.integers(0, 200, rows)).tolist()
    values, weights = draw.integers(0, 40, rows).tolist(), draw.integers(1, 10, rows).tolist()
    kind = getattr(recipe.params, "value_type", "float64")
    forms: dict[str, Callable[[int], Any]] = {
        "int64": int, "float64": lambda value: value / 2, "label": lambda value: f"E{value}"
    }  # fmt: skip
    return [
        Row(
            None if example.value is None else forms[kind](value),
            None if example.weight is None and not example.weighted else weight,
            time,
            _name(example, number),
        )
        for number, (value, weight, time) in enumerate(zip(values, weights, times, strict=True))
    ]


def _name(example: Example, number: int) -> Any:
    if example.named_by == "key":
        return ("s", 0, number % 11)
    return number if example.named_by == "id" else ("s", number)


def columns(
    example: Example, recipe: Recipe, rows: Sequence[Row]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``update`` for a batch: arrays, and values masked where there are none."""
    names = [row.name for row in rows]
    if example.named_by == "key":
        of_rows = [
            (key, row.time, row.weight) for row, (_, _, key) in zip(rows, names, strict=True)
        ]
        given = tuple(np.array(of_rows, np.int64).reshape(-1, 3).T)
        whose = {"source": [each for each, _, _ in names], "epoch": [each for _, each, _ in names]}
        return given, whose
    taken: list[Any] = []
    if example.value is not None:
        kind = getattr(recipe.params, "value_type", "float64")
        missing = [row.value is None for row in rows]
        known = [0 if row.value is None else row.value for row in rows]
        values = np.array(known, object if kind == "label" else kind)
        taken.append(np.ma.MaskedArray(values, mask=missing) if any(missing) else values)
    if example.weight is not None:
        taken.append(np.array([row.weight for row in rows], np.int64))
    taken.append(np.array([row.time for row in rows], np.int64))
    if example.named_by == "id":
        return (*taken, np.array(names, np.int64)), {}
    numbers = np.array([number for _, number in names], np.int64)
    return (*taken, numbers), {"source": [source for source, _ in names]}


def _single(example: Example, row: Row) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``update`` for one observation: numbers."""
    if example.named_by == "key":
        source, epoch, key = row.name
        return (key, row.time, row.weight), {"source": source, "epoch": epoch}
    given = ((example.value, row.value), (example.weight, row.weight), ("time", row.time))
    taken = [content for takes, content in given if takes is not None]
    if example.named_by == "id":
        return (*taken, row.name), {}
    source, number = row.name
    return (*taken, number), {"source": source}


def feed(
    sketch: Any,
    example: Example,
    recipe: Recipe,
    rows: Sequence[Row],
    batches: Sequence[int] | None = None,
    told: Sequence[int] = (),
) -> Any:
    """Feed rows in batches of the given sizes, cyclically (None: one batch), and tell it the times.

    A batch of one is given as numbers. The times are told between the batches or with them, where
    ``update`` takes them, and the rest of them at last. Returns the sketch.
    """
    with_batch = "now" in inspect.signature(sketch.update).parameters
    start = turn = 0
    while start < len(rows):
        size = batches[turn % len(batches)] if batches else len(rows)
        part = rows[start : start + size]
        given, named = _single(example, part[0]) if size == 1 else columns(example, recipe, part)
        if turn < len(told) and with_batch:
            named["now"] = told[turn]
        sketch.update(*given, **named)
        if turn < len(told) and not with_batch:
            sketch.advance(told[turn])
        start, turn = start + size, turn + 1
    for now in told[turn:]:
        sketch.advance(now)
    return sketch


def forms(sketch: Any) -> list[bytes]:
    """Its bytes; then those without parameters, where the family has that form."""
    found = [sketch.to_bytes()]
    if "embed_params" in inspect.signature(sketch.to_bytes).parameters:
        found.append(sketch.to_bytes(embed_params=False))
    return found
