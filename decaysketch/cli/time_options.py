"""The times in a ``decaysketch query``: one time, under each of several decays, a range of times,
or two moments that are compared.

A moment is written as in ``--now``, and a length of time as in decays, so that a range
or a comparison reads like its query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import typer

from decaysketch import families
from decaysketch.cli.output import CommandError
from decaysketch.cli.recipes import parse_decay
from decaysketch.core.plausible_times import dated, told
from decaysketch.core.time_units import duration, instant
from decaysketch.decay import Decay, none, window
from decaysketch.errors import ParameterError
from decaysketch.families import Sketch
from decaysketch.query.dispatch import View
from decaysketch.query.modifiers import Modifiers
from decaysketch.query.pair_view import PairView, RangeView, range_moment
from decaysketch.query.query_syntax import is_integer
from decaysketch.query.shapes import Question

__all__ = [
    "Chosen",
    "How",
    "Moments",
    "Start",
    "Stop",
    "VersusAgo",
    "VersusDecay",
    "VersusNow",
]

Chosen = tuple[str, Decay | None]  # a decay as it was given; None: that of the sketch

Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="With --to, replaces decay and time: all rows from this time, before --to.",
    ),
]
Stop = Annotated[str | None, typer.Option("--to", help="See --from.")]
VersusAgo = Annotated[
    str | None,
    typer.Option(help="Compare with the time this long before the query's time, such as 1h."),
]
VersusNow = Annotated[
    str | None, typer.Option(help="Compare with another time, in the form of --now.")
]
VersusDecay = Annotated[
    str | None, typer.Option(help="The decay at the other time. Default: the same decay.")
]
How = Annotated[
    str | None,
    typer.Option(help="The result: difference (minus the other time), or ratio (divided by it)."),
]


@dataclass(frozen=True)
class _Versus:
    then: int
    decay: Decay | None
    named: str | None
    how: Any  # checked by the query


@dataclass(frozen=True)
class Moments:
    """The times in queries to a sketch.

    Attributes:
        now: the query time.
        decays: the decays to query under, by name.
        length: the queried range's length, if there is one.
        versus: the moment to compare with, if there is one.
    """

    now: int
    decays: Sequence[Chosen]
    length: int | None = None
    versus: _Versus | None = None

    @classmethod
    def of(cls, sketch: Sketch, now: str, decays: Sequence[Chosen]) -> Moments:
        """Return one time, under each of some decays, or under none.

        Raises:
            CommandError: a decay, although the sketch has a fixed one.
        """
        if families.recipe_of(sketch).decay is not None:
            if decays:
                raise CommandError("the decay of this sketch is fixed; give none")
            decays = [("its own", None)]
        return cls(_time(sketch, "--now", now), decays or [("none", none())])

    @classmethod
    def of_range(cls, sketch: Sketch, start: str | None, stop: str | None) -> Moments:
        """Return the range from one time on, before another.

        Raises:
            CommandError: a bound is missing, or the sketch's decay is fixed.
            ParameterError: invalid times, or an empty range.
        """
        if start is None or stop is None:
            raise CommandError(f"give {'--from' if start is None else '--to'} as well")
        if families.recipe_of(sketch).decay is not None:
            raise CommandError("the decay of this sketch is fixed, so --from and --to do not apply")
        first, end = _time(sketch, "--from", start), _time(sketch, "--to", stop)
        width, now = range_moment(first, end)
        return cls(now, [(f"[{start}, {stop})", window(width))], end - first)

    def against(
        self, sketch: Sketch, now: str | None, ago: str | None, decay: str | None, how: str | None
    ) -> Moments:
        """Return the same, compared with another moment.

        Raises:
            CommandError: not exactly one of a time and a length.
            ParameterError: these, or the decay, are invalid.
        """
        if (now is None) == (ago is None):
            raise CommandError("give one of --versus-now and --versus-ago")
        unit = sketch.params.time_unit
        then = (
            self.now - _length(unit, ago)
            if ago is not None
            else _time(sketch, "--versus-now", now or "")
        )
        chosen = None if decay is None else parse_decay(decay, unit)
        versus = _Versus(then, chosen, decay, how or "difference")
        return Moments(self.now, self.decays, versus=versus)

    @property
    def all(self) -> list[int]:
        """All its times."""
        if self.versus is not None:
            return [self.now, self.versus.then]
        return [self.now] if self.length is None else [self.now + 1 - self.length, self.now]

    def asks(self, sketch: Sketch) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Return the query function for each decay, with the signature of a view's ``ask``, with
        the query's modifiers.
        """
        for name, decay in self.decays:
            if self.versus is not None:
                given: Any = decay
                then = given if self.versus.decay is None else self.versus.decay
                pair = sketch.against((given, self.now), (then, self.versus.then))
                yield name, partial(_ask_pair, pair, self.versus.how)
            elif self.length is not None:
                yield name, partial(_ask, RangeView(sketch.at(decay, self.now), self.length))
            else:
                yield name, partial(_ask, sketch.at(decay, self.now))

    def told(self, unit: str) -> str:
        """Return readable text."""
        if self.length is not None:
            return f"from {told(unit, self.all[0])}, before {told(unit, self.now + 1)}"
        if self.versus is None:
            return f"now {told(unit, self.now)}"
        word = "over" if self.versus.how == "ratio" else "less"
        under = f" under {self.versus.named}" if self.versus.named else ""
        return f"now {told(unit, self.now)} {word} that of {told(unit, self.versus.then)}{under}"

    def to_dict(self, unit: str) -> dict[str, Any]:
        """JSON-ready form."""
        form: dict[str, Any] = {"now": self.now, "now_date": dated(unit, self.now)}
        if self.length is not None:
            form |= {"from": self.now + 1 - self.length, "to": self.now + 1}
        if self.versus is not None:
            then = self.versus.then
            form["versus"] = {"now": then, "now_date": dated(unit, then)}
            if self.versus.named is not None:
                form["versus"]["decay"] = self.versus.named
            form["how"] = self.versus.how
        return form


def _ask(view: View, question: Question[Any], *, modifiers: Modifiers, **given: Any) -> Any:
    return view.modified(modifiers).ask(question, **given)


def _ask_pair(
    pair: PairView, how: Any, question: Question[Any], *, modifiers: Modifiers, **given: Any
) -> Any:
    more = {name: getattr(modifiers, name) for name in ("where", "of", "versus")}
    if replace(modifiers, where=None, of=None, versus=None):
        raise CommandError(
            "a comparison of two times has no set, by or weight; query each time separately"
        )
    how = how if modifiers.versus is None else modifiers.how
    return pair.ask(question, how, **more, **given)


def _time(sketch: Sketch, option: str, text: str) -> int:
    if is_integer(text):
        return int(text)
    if text == "latest":
        return sketch.snapshot().latest
    try:
        return instant(text, sketch.params.time_unit, name=option)
    except ParameterError as fault:
        raise CommandError(f"{fault}; latest is the newest stored time") from None


def _length(unit: str, text: str) -> int:
    found = int(text) if is_integer(text) else duration(text, unit, name="--versus-ago")
    if not isinstance(found, int) or found < 0:
        raise CommandError(
            f"--versus-ago is {text!r}; expected a length of time of whole {unit}, >= 0"
        )
    return found
