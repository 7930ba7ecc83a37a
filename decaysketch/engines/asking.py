"""The Python functions of the questions: signatures and documentation, whatever makes columns.

Of each function of :data:`~decaysketch.engines.questions.FUNCTIONS` there are two, the second of
which, ``<name>_value``, gives values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from decaysketch.engines.questions import FUNCTIONS
from decaysketch.families import BuiltWith, Recipe, recipe_of

__all__ = ["NAMES", "Asked", "asking", "recipes_of"]

#: Every function of a question, by the name that it has in every engine.
NAMES = tuple(called for name in FUNCTIONS for called in (name, f"{name}_value"))


class Asked(NamedTuple):
    """A call of a function of a question.

    Attributes:
        function: its name.
        argument: those of the question itself; one at the most.
        decay, now, confidence: as they were given; the confidence may be None.
        recipes: of the streams that were given.
    """

    function: str
    argument: tuple[Any, ...]
    decay: Any
    now: Any
    confidence: Any
    recipes: tuple[Recipe, ...]


class Ask(Protocol):
    """How an engine asks a sketch, or columns of them, given as whatever it has for these."""

    def __call__(self, sketch: Any, asked: Asked, /) -> Any: ...


def asking(called: str, ask: Ask, arguments: str) -> Callable[..., Any]:
    """The function of a question, ``(sketch, decay, now)`` or ``(sketch, argument, decay, now)``.

    Args:
        called: one of :data:`NAMES`.
        ask: what it does.
        arguments: their documentation; ``{argument}`` stands for that of the question's own.
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
    """What sketches of these streams are read by."""
    return tuple(recipe_of(stream) for stream in streams)
