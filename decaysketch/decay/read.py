"""Every spelling of a decay, including units. Python, SQL, the command line, HTTP and Spark share
this reader.

=========================================================  =======================================
``none``, ``window(3600)``, ``window(width=1h)``           a kind, its parameters by place or name
``exponential(half_life=15min)``, ``exponential(rate=2)``  a length of time may have a unit
``polynomial(1, scale=10s)``
``piecewise([(1min, 1), (1h, 0.5)], beyond=0.1)``          pairs of an age and a weight
``expression("1/(1 + x/60)")``, ``1/(1 + x/60)``           a formula in the age ``x``
``{"kind": "window", "width": 3600}``                      JSON, as :meth:`Decay.to_dict` gives it
=========================================================  =======================================

A number without a unit is in the stream's time unit. A number with a unit (``ns us ms s min m h d
w``, also several, ``1h30m``) is converted exactly, or rejected. In JSON it is a text,
``{"kind": "window", "width": "1h30m"}``. ``str(decay)`` is a spelling of the decay, if it is not
longer than :data:`MAX_TEXT`, and reading it gives an equal decay. Fixed decays
(:mod:`decaysketch.decay.integral`)
are spelled alike: ``halving(10)``, ``exponential(half_life="1/3")``,
``expression("max(w - x, 0)", max_weight=9)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from decaysketch.core.text.grammar import NUMBER, Token, Tokens, json_object, shortened
from decaysketch.core.time_units import (
    LENGTHS,
    NANOSECONDS,
    check_clocked,
    decimal_of,
    is_length,
    length_of,
    unit_meant,
)
from decaysketch.decay import functions
from decaysketch.decay.functions import Decay
from decaysketch.decay.symbolic import expression
from decaysketch.decay.terms import FUNCTIONS
from decaysketch.errors import ParameterError

__all__ = [
    "MAX_TEXT",
    "Kind",
    "built",
    "decay_in",
    "decay_of",
    "did_you_mean",
    "fields_of",
    "from_dict",
    "has_units",
    "kind_of",
    "parse",
]

MAX_TEXT = 20_000
"""Characters of a text."""

_REMEMBERED = 200  # characters of a text that is parsed once
_MAX_VALUES = 4096  # of a text, with those of steps

# Of every kind that a text may name, the parameters that may be given by place.
_PLACED = {
    "window": ("width",),
    "exponential": (),
    "polynomial": ("exponent", "scale"),
    "none": (),
    "piecewise": ("steps", "beyond"),
    "expression": ("text",),
    "halving": ("period",),
}
_TIMES = {"width", "half_life", "scale", "period"}  # parameters that may have a unit
_PLAIN = {"exponent", "rate", "beyond"}  # and those that have none; others are refused by name
_FRACTION = re.compile(r"[0-9]+/[0-9]+")  # of a time unit, as fixed decays spell it
_CALLED = re.compile(r"\s*(?:integral\.)?([A-Za-z_]{3,40})\s*\(")
_HALF_LIFE = re.compile(
    r"\s*(?:integral\.)?(?:half_?li[fv]e\s*\(\s*(?P<length>[^()=,]{1,40})|"
    r"exp\s*\(\s*(?P<unit>[0-9.]{1,20}\s*[a-z]{1,12})\s*)\)\s*$",
    re.I,
)  # exp(1h) is no expression, for an expression has no units
_NAMED = re.compile(r"[a-z]\s*=[^=]")  # which no expression has
_KIND = re.compile(r"\s*(?:integral\.)?([a-z]+)\s*(?:\(|$)")
_TOKEN = re.compile(
    rf"""(?P<number>[+-]?{NUMBER})
    | (?P<text>'[^']*'|"[^"]*")
    | (?P<word>[A-Za-z_]+(?:\.[A-Za-z_]+)*)
    | (?P<sign>[()\[\],=])""",
    re.VERBOSE,
)


class Kind(NamedTuple):
    """The constructor for decays of a kind, and its fields in JSON."""

    make: Callable[..., Any]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


_KINDS = {
    "window": Kind(functions.window, ("width",)),
    "exponential": Kind(functions.exponential, (), ("rate", "half_life")),
    "polynomial": Kind(functions.polynomial, ("exponent",), ("scale",)),
    "none": Kind(functions.none),
    "piecewise": Kind(functions.piecewise, ("steps",), ("beyond",)),
    "expression": Kind(expression, ("text",)),
}


def parse(text: str | Mapping[str, Any], time_unit: str | None = None) -> Decay:
    """Return the decay that a text, or a dictionary, spells. The module's table lists the
    spellings.

    Args:
        text: at most :data:`MAX_TEXT` characters, or a dictionary from :meth:`Decay.to_dict`.
        time_unit: unit of the stream that the query reads. None: the text may have no units.

    Raises:
        ParameterError: the text has no known spelling, a duration does not convert to the
            stream's unit, or a parameter is outside its domain. The message names the place and
            the permitted input there.

    Complexity: O(characters). For the text of an expression see :mod:`decaysketch.decay.symbolic`.

    Example:
        >>> parse("exponential(half_life=15min)", "s")
        exponential(half_life=900)
        >>> parse("1/(1 + x/60)")
        expression('1/(1 + x/60)')
    """
    if isinstance(text, str) and len(text) <= _REMEMBERED:
        return _remembered(text, time_unit)
    return _parsed(text, time_unit)


@lru_cache(maxsize=256)
def _remembered(text: str, time_unit: str | None) -> Decay:
    """Parse a text. The same short text is parsed once, however many queries use it."""
    return _parsed(text, time_unit)


def _parsed(text: str | Mapping[str, Any], time_unit: str | None) -> Decay:
    try:
        decay = from_dict(fields_of(text, time_unit))
        return decay if time_unit is None else decay.bound(time_unit)
    except ParameterError as fault:
        if isinstance(text, str) and kind_of(text) is None and not _is_json(text):
            raise ParameterError(
                f"decay {shortened(text)} is none of {', '.join(_KINDS)}"
                f"{did_you_mean(text, _KINDS)}, and as an expression: {fault}"
            ) from None
        raise


def has_units(text: str | Mapping[str, Any]) -> bool:
    """Whether a decay that :func:`parse` reads has its own units."""
    try:
        return isinstance(parse(text), functions.Deferred)
    except ParameterError:
        return True  # for which there is no unit of a stream


def decay_in(asked: Any, time_unit: str) -> Any:
    """Return a query's decay in the stream's unit, from any spelling. An argument that is not a
    decay is returned unchanged, for other code to check.

    Raises:
        ParameterError: as :func:`parse`.
    """
    if isinstance(asked, str | Mapping):
        return parse(asked, time_unit)
    return asked.bound(time_unit) if isinstance(asked, Decay) else asked


def decay_of(given: object, time_unit: str | None = None) -> Decay:
    """Return the decay in an unchecked definition: a decay, or any spelling.

    Raises:
        ParameterError: it is neither, or as :func:`parse`.
    """
    if isinstance(given, Decay):
        return given
    if not isinstance(given, str | Mapping):
        raise ParameterError(f"decay is {shortened(repr(given))}; expected a text or an object")
    return parse(given, time_unit)


def from_dict(fields: Mapping[str, Any]) -> Decay:
    """Inverse of :meth:`Decay.to_dict`.

    Raises:
        ParameterError: an unknown kind or field, a missing field, or a field outside its domain.
            The message names it.

    Example:
        >>> from_dict({"kind": "exponential", "half_life": 60})
        exponential(half_life=60)
    """
    decay: Decay = built(fields, _KINDS)
    return decay


def built(fields: Mapping[str, Any], kinds: Mapping[str, Kind], apart: tuple[str, ...] = ()) -> Any:
    """Build a decay of some kind from its fields.

    Args:
        kinds: the known kinds.
        apart: further kinds, which other code builds.

    Raises:
        ParameterError: an unknown kind or field, or a missing one.
    """
    remaining = dict(fields)
    kind = remaining.pop("kind", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise ParameterError(
            f"kind is {kind!r}; expected one of {', '.join(sorted([*kinds, *apart]))}"
        )
    make, required, optional = kinds[kind]
    if unknown := sorted(map(str, remaining.keys() - {*required, *optional})):
        raise ParameterError(
            f"unknown field {unknown[0]!r} of decay {kind!r}; "
            f"known are {sorted((*required, *optional))}"
        )
    if missing := [name for name in required if name not in remaining]:
        raise ParameterError(f"{missing[0]} of decay {kind!r} is missing")
    return make(**remaining)


def kind_of(text: str) -> str | None:
    """Return the kind that a text names, without parsing it. None for JSON and for an
    expression.
    """
    found = _KIND.match(text)
    return found[1] if found and found[1] in _PLACED else None


def did_you_mean(text: str, kinds: Iterable[str]) -> str:
    """Return a hint for a message that rejects a text as an expression: the kind that it nearly
    names. The hint is empty if there is none.

    Example:
        >>> did_you_mean("exp(half_life=6h)", ["window", "exponential"])
        ' (did you mean exponential?)'
        >>> did_you_mean("halflife(1h)", ["window", "exponential"])
        ' (did you mean exponential(half_life=1h)?)'
        >>> did_you_mean("exp(1h)", ["window", "exponential"])
        ' (did you mean exponential(half_life=1h)?)'
        >>> did_you_mean("exp(-x/6h)", ["window", "exponential"])
        ''
    """
    if half := _HALF_LIFE.match(text):
        length = half["length"] or half["unit"]
        return f" (did you mean exponential(half_life={length.strip()})?)"
    found = _CALLED.match(text)
    if found is None or (found[1] in FUNCTIONS and not _NAMED.search(text)):
        return ""
    word = found[1].lower()
    near = [kind for kind in kinds if kind.startswith(word) or word.startswith(kind)]
    near += get_close_matches(word, kinds, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def fields_of(
    text: str | Mapping[str, Any], time_unit: str | None, *, fixed: bool = False
) -> dict[str, Any]:
    """Return a spelled decay as a dictionary with a ``kind``, with all lengths of time in one unit.

    Args:
        text, time_unit: see :func:`parse`.
        fixed: for an integral decay: part of a time unit becomes an exact fraction, ``"1/3"``.

    Raises:
        ParameterError: see :func:`parse`. Field names and domains are not checked.
    """
    if isinstance(text, Mapping):
        return _fixed_fields(text, time_unit) if fixed else dict(text)
    if isinstance(text, str):
        if _is_json(text):
            return fields_of(json_object("decay", text, MAX_TEXT), time_unit, fixed=fixed)
        if kind_of(text) is None:
            return {"kind": "expression", "text": text.strip()}
    tokens = Tokens(_TOKEN, "the decay", text, MAX_TEXT, _MAX_VALUES, "values")
    fields = _Call(tokens, time_unit, fixed).fields()
    return _fixed_fields(fields, time_unit) if fixed else fields


def _fixed_fields(form: Mapping[str, Any], time_unit: str | None) -> dict[str, Any]:
    """Fields of a fixed decay. Its lengths are exact: lengths with a unit become fractions."""
    fields = dict(form)
    for name in _TIMES & fields.keys():
        given = fields[name]
        if is_length(given) and not (isinstance(given, str) and _FRACTION.fullmatch(given)):
            if time_unit is None:
                raise ParameterError(
                    f"{name} is {given!r:.100}; expected a number, for the stream's unit is not "
                    "known here"
                )
            fields[name] = _exactly(length_of(name, given) / check_clocked(name, given, time_unit))
    return fields


def _exactly(length: Fraction) -> int | str:
    whole = length.denominator == 1
    return int(length) if whole else f"{length.numerator}/{length.denominator}"


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


class _Call(NamedTuple):
    """A kind with its parameters, as tokens."""

    tokens: Tokens
    time_unit: str | None
    fixed: bool

    def fields(self) -> dict[str, Any]:
        prefixed = [f"integral.{kind}" for kind in _PLACED] if self.fixed else []
        word = self.tokens.want(f"one of {', '.join(_PLACED)}", "word", *_PLACED, *prefixed)
        kind = word.text.removeprefix("integral.")
        fields: dict[str, Any] = {"kind": kind}
        if self.tokens.take("sign", "(") and not self.tokens.take("sign", ")"):
            places = list(_PLACED[kind])
            self._parameter(fields, places)
            while not self.tokens.take("sign", ")"):
                self.tokens.want("a comma or )", "sign", ",")
                self._parameter(fields, places)
        self.tokens.want("the end", "end")
        return fields

    def _parameter(self, fields: dict[str, Any], places: list[str]) -> None:
        if name := self.tokens.take("word"):
            self.tokens.want("= and a value", "sign", "=")
        elif not places:
            raise self.tokens.unexpected("name=value, such as half_life=1h")
        parameter = name.text if name else places.pop(0)
        if parameter in fields:
            raise self.tokens.unexpected(f"{parameter} once")
        if quoted := self.tokens.take("text"):
            fields[parameter] = quoted.text[1:-1]
        elif parameter == "steps":
            fields[parameter] = self._steps()
        else:
            fields[parameter] = self._number(has_unit=parameter not in _PLAIN)

    def _steps(self) -> list[list[Any]]:
        steps: list[list[Any]] = []
        self.tokens.want("[", "sign", "[")
        while not self.tokens.take("sign", "]"):
            if steps:
                self.tokens.want("a comma or ]", "sign", ",")
            opened = self.tokens.want("a pair (age, weight)", "sign", "(", "[").text
            close = ")" if opened == "(" else "]"
            age = self._number(has_unit=True)
            self.tokens.want("a comma", "sign", ",")
            steps.append([age, self._number(has_unit=False)])
            self.tokens.want(close, "sign", close)
        return steps

    def _number(self, *, has_unit: bool) -> int | float | str:
        self.tokens.count()
        number = self.tokens.want("a number", "number")
        if self.tokens.next.kind != "word":
            return number.number
        if not has_unit:
            raise self.tokens.unexpected("a number without a unit")
        return self._length(number)

    def _length(self, number: Token) -> int | float | str:
        """A length of time in the stream's unit, as an integer if it is one."""
        if self.time_unit is None:
            raise self.tokens.unexpected("no unit, for the stream's is not known here")
        length, written, first = Fraction(0), "", number.at
        part: Token | None = number
        while part is not None:
            if self.tokens.next.text not in LENGTHS or self.time_unit not in NANOSECONDS:
                meant = unit_meant(self.tokens.next.text)
                raise self.tokens.unexpected(
                    f"a unit that can be converted to the stream's unit {self.time_unit!r}; "
                    f"known are {', '.join(LENGTHS)}"
                    + (f"; did you mean {part.text}{meant}?" if meant else "")
                )
            unit = self.tokens.want("a unit", "word").text
            length += Fraction(part.text) * LENGTHS[unit]
            written += part.text + unit
            part = None
            if self.tokens.next.text[:1].isdigit():
                self.tokens.count()
                part = self.tokens.take("number")
        length /= NANOSECONDS[self.time_unit]
        if self.fixed:
            return _exactly(length)
        decimal = decimal_of(length)
        if decimal is None:
            raise self.tokens.refusal(
                first,
                repr(written),
                f"a decimal number of the stream's unit {self.time_unit!r}; it is {length} of them",
            )
        return decimal
