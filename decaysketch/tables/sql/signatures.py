"""The Python query functions: signatures and documentation, for any column engine.

Each function in :data:`~decaysketch.tables.sql.queries.FUNCTIONS` has two forms. The second,
``<name>_value``, returns values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from decaysketch.families import BuiltWith, Recipe, recipe_of
from decaysketch.tables.sql.queries import FUNCTIONS

__all__ = ["NAMES", "Asked", "asking", "recipes_of"]

#: Every function of a question, by the name that it has in every engine.
NAMES = tuple(called for name in FUNCTIONS for called in (name, f"{name}_value"))


class Asked(NamedTuple):
    """A call of a query function.

    Attributes:
        function: its name.
        argument: the query's own; one at the most.
        decay, now, confidence: as they were given; the confidence may be None.
        recipes: sketch configurations of the given streams.
    """

    function: str
    argument: tuple[Any, ...]
    decay: Any
    now: Any
    confidence: Any
    recipes: tuple[Recipe, ...]


class Ask(Protocol):
    """An engine's way to query a sketch, or columns of sketches, in the engine's own type."""

    def __call__(self, sketch: Any, asked: Asked, /) -> Any: ...


def asking(called: str, ask: Ask, arguments: str) -> Callable[..., Any]:
    """Return a query function, ``(sketch, decay, now)`` or ``(sketch, argument, decay, now)``.

    Args:
        called: one of :data:`NAMES`.
        ask: its action.
        arguments: their documentation; ``{argument}`` represents the query's own argument.
    """
    form = FUNCTIONS[called.removesuffix("_value")]

    def without(
        sketch: Any, decay: Any, now: Any, *,
        confidence: Any = None, streams: Iterable[BuiltWith] = (),
    ) -> Any:  # fmt: skip
        return ask(sketch, Asked(called, (), decay, now, confidence, recipes_of(streams)))

    def with_argument(
        sketch: Any, argument: Any, decay: Any, now: Any, *,
        confidence: Any = None, streams: Iterable[BuiltWith] = (),
    ) -> Any:  # fmt: skip
        asked = Asked(called, (argument,), decay, now, confidence, recipes_of(streams))
        return ask(sketch, asked)

    leading = form.question.leading
    function = without if form.argument is None else with_argument
    function.__name__ = function.__qualname__ = called
    answer = "Values alone." if called not in FUNCTIONS else "With intervals."
    argument = ""
    if form.argument is not None and leading is not None:
        argument = f"\n        argument: ``{leading.name}``. {leading.doc}"
    function.__doc__ = f"{form.question.doc} {answer}{arguments.format(argument=argument)}"
    return function


def recipes_of(streams: Iterable[BuiltWith]) -> tuple[Recipe, ...]:
    """Return the sketch configurations for reading sketches of these streams."""
    return tuple(recipe_of(stream) for stream in streams)
