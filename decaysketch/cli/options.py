"""Options that programs generate from tables and groups, so that no program lists them itself.

A command is a function whose arguments may be

* ``parameters``: an option for each parameter of any family. Each family reads its own, and an
  option for another family is rejected.
* ``columns``: an option for each field of a :class:`~decaysketch.tables.ColumnMapping`.
* a *group*: a ``NamedTuple`` marked by :func:`group`, with an option for each field.

:func:`generated` gives typer the complete signature, and calls the command with the arguments put
together again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import partial, update_wrapper
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import typer

from decaysketch.cli.output import CommandError
from decaysketch.core.params import Option
from decaysketch.families import FAMILIES, Recipe
from decaysketch.tables import ColumnMapping
from decaysketch.tables.records import ALL, read_columns

__all__ = ["Columns", "Parameters", "generated", "group", "mapping_from_options", "names"]

Parameters = dict[str, Any]
"""Parameters of a family that were given, by name."""

_SITE = (
    "site_column",
    "The source that counts the rows, if keys are counted. Default: one source.",
)
Group = TypeVar("Group", bound=tuple[Any, ...])
_GROUPS: set[type] = set()


class Columns(NamedTuple):
    """Options for a log's columns, as texts by the mapping's field.

    Attributes:
        given: those that were given.
        defaults: the program's.
    """

    given: Mapping[str, str]
    defaults: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """Return a text. None: none."""
        return self.given.get(name, self.defaults.get(name)) or None


def group(made: type[Group]) -> type[Group]:
    """Mark a named tuple whose fields are options."""
    _GROUPS.add(made)
    return made


def generated(
    parameters: Mapping[str, Any], columns: Mapping[str, str]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command its generated options.

    Args:
        parameters: defaults for parameters, in families that have them.
        columns: defaults for columns, by field.

    Returns:
        A decorator of functions.
    """
    return partial(_Generated, parameters=parameters, columns=columns)


class _Generated:
    """A command as typer sees it. Typer reads the options from the signature."""

    def __init__(
        self,
        command: Callable[..., None],
        parameters: Mapping[str, Any],
        columns: Mapping[str, str],
    ) -> None:
        self._command, self._columns = command, columns
        self._own = inspect.signature(command, eval_str=True).parameters
        self._options: dict[str, list[inspect.Parameter]] = {
            "parameters": _parameter_options(parameters), "columns": _column_options(columns)
        }  # fmt: skip
        for name, argument in self._own.items():
            if argument.annotation in _GROUPS:
                self._options[name] = _group_options(argument.annotation)
        update_wrapper(self, command)

    @property
    def __signature__(self) -> inspect.Signature:
        arguments: list[inspect.Parameter] = []
        for name, argument in self._own.items():
            named = argument.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            arguments += self._options.get(name, [named])
        return inspect.Signature(arguments)

    def __call__(self, **arguments: Any) -> None:
        for place, argument in self._own.items():
            if place not in self._options:
                continue
            given = {each.name: arguments.pop(each.name) for each in self._options[place]}
            said = {name: value for name, value in given.items() if value is not None}
            if place == "parameters":
                arguments[place] = said
            elif place == "columns":
                arguments[place] = Columns(_by_field(said), self._columns)
            else:
                arguments[place] = argument.annotation(**given)
        self._command(**arguments)


def _option(name: str, kind: Any, text: str, default: Any = None) -> inspect.Parameter:
    """Return an option whose default stands in its help, so that None means "not given"."""
    if default is not None and default != "":
        text = f"{text.removesuffix('.')}; {default} if not given."
    annotation = Annotated[kind | None, typer.Option(help=text)]  # a value to typer, not a type
    kinds = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kinds, default=None, annotation=annotation)


def _group_options(made: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(made, include_extras=True)
    empty, kind = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(
            name, kind, default=made._field_defaults.get(name, empty), annotation=hints[name]
        )
        for name in made._fields
    ]


def _parameter_options(defaults: Mapping[str, Any]) -> list[inspect.Parameter]:
    options: dict[str, Option] = {}
    for family in FAMILIES.values():
        for option in family.options:
            options.setdefault(option.name, option)
    arguments = []
    for name, option in options.items():
        of = [
            family.name for family in FAMILIES.values()
            if any(name == each.name for each in family.options)
        ]  # fmt: skip
        text = option.doc if len(of) == len(FAMILIES) else f"For {', '.join(of)}: {option.doc}"
        default = defaults.get(name, option.default)
        arguments.append(_option(name, option.type, text, None if default is ... else default))
    return arguments


def _column_options(defaults: Mapping[str, str]) -> list[inspect.Parameter]:
    found = []
    for each in _option_fields():
        if each.name == "source":
            found.append(_option(_SITE[0], str, _SITE[1]))
        default = defaults.get(each.name)
        found.append(_option(each.metadata["option"], str, each.metadata["doc"], default))
    return found


def _option_fields() -> list[Field[Any]]:
    return [each for each in fields(ColumnMapping) if each.metadata]


def _by_field(given: Mapping[str, str]) -> dict[str, str]:
    field_of = {each.metadata["option"]: each.name for each in _option_fields()}
    field_of[_SITE[0]] = "site"
    return {field_of[name]: text for name, text in given.items()}


# ------------------------------------------------------------------------------------- the mapping


def names(text: str) -> tuple[str, ...]:
    """Parse column names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def mapping_from_options(recipe: Recipe, given: Columns) -> ColumnMapping:
    """Return the meaning of a log's columns for a family. Texts are empty for none.

    Columns that the family has no use for are not read: ids where it counts keys, a value where the
    stream has declared columns.

    Raises:
        CommandError: a site, and the family does not count by site.
        ParameterError: see :class:`~decaysketch.tables.ColumnMapping`.
    """
    taken, text = recipe.kind.input, given.text
    numbered, counted = taken.named_by == "sequence", taken.named_by == "key"
    site, value, columns = text("site"), text("value"), text("columns") or ""
    if site and not taken.sited:
        raise CommandError(
            f"--site-column is {site!r}; the family {recipe.family} does not count by site"
        )
    if getattr(recipe.params, "columns", ()):
        value = given.given.get("value") or None
    return ColumnMapping(
        time=text("time") or "",
        ids=names(text("ids") or "") if taken.named_by == "ids" else (),
        entity=names(text("entity") or ""),
        start=text("start"),
        key=names(text("key") or "") if counted else (),
        source=text("source") if numbered else site,
        sequence=text("sequence") if numbered else None,
        value=None if taken.value == "none" else value,
        columns=() if columns == ALL else tuple(read_columns(columns)[0].items()),
        weight=text("weight"),
        fallback_time=text("fallback_time"),
        time_unit=text("time_unit"),
        time_zone=text("time_zone"),
        time_format=text("time_format"),
        decimal=text("decimal") or ".",
        thousands=text("thousands") or "",
        casts=tuple((name, "text") for name in names(text("casts") or "")),
    )
