"""The named decays, and the base class of all decays."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from decaysketch.core.time_units import Length, duration, is_length, length_of, spelled
from decaysketch.errors import ParameterError

__all__ = [
    "Decay",
    "Deferred",
    "Exponential",
    "NoDecay",
    "Piecewise",
    "Polynomial",
    "Window",
    "check_decay",
    "exponential",
    "none",
    "piecewise",
    "polynomial",
    "window",
]

Float64Array = npt.NDArray[np.float64]

# Fourth powers of weights between 2^-160 and 2^160, times squared counts, are floats far from
# their limits.
_ORDINARY = 160
_FURTHEST = 1 << 40  # binary logarithms below this are not distinguished


def check_decay(given: Any) -> Decay:
    """Return a decay unchanged.

    Raises:
        ParameterError: the argument is not a decay.
    """
    if not isinstance(given, Decay):
        raise ParameterError(
            f"decay is {given!r:.100}; expected a Decay or its text, such as 'window(1h)'. The "
            "decay comes after the other arguments: quantile(0.95, 'window(1h)')"
        )
    return given


class Decay(ABC):
    """A non-negative, finite, non-increasing function of age.

    A subclass defines :meth:`__call__`, :attr:`support` and :meth:`to_dict`. Make it immutable, and
    equal to another decay if both are the same function.
    """

    @abstractmethod
    def __call__(self, ages: npt.ArrayLike) -> Float64Array:
        """Weights at ages.

        Args:
            ages: integers or real numbers >= 0, up to 2^63, of any shape.

        Returns:
            float64 of the same shape, finite and >= 0, non-increasing in the age. O(1) each.
        """

    @property
    @abstractmethod
    def support(self) -> float:
        """The largest age with positive weight, or infinity if there is none."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, with a ``kind``."""

    def bound(self, time_unit: str) -> Decay:
        """Return the decay in a stream's unit: itself, unless it is :class:`Deferred`.

        Raises:
            ParameterError: the decay cannot be converted to the unit, or a length is not a number
                in it.
        """
        return self

    def magnitude(self, age: int) -> int:
        """Return about the binary logarithm of the weight at an age, if the weight is so small, or
        so large, that its powers do not fit in float64. Otherwise return 0, also if the weight is
        0.
        """
        weight = float(self(np.array([age]))[0])
        if not 0.0 < weight < math.inf:
            return 0
        return _far_from_1(math.frexp(weight)[1])

    def scaled(self, ages: npt.ArrayLike, reference: int) -> Float64Array:
        """Return weights over ``2^magnitude(reference)``, infinite at ages far below that.

        A decay that knows its logarithm supports any age. Other decays use their float64 weights,
        which may be 0.
        """
        magnitude = self.magnitude(reference)
        with np.errstate(over="ignore"):
            return np.ldexp(self(ages), -magnitude) if magnitude else self(ages)


@dataclass(frozen=True)
class Window(Decay):
    """See :func:`window`."""

    width: float

    def __post_init__(self) -> None:
        _keep_number(self, "width", zero_allowed=True)

    def __call__(self, ages: npt.ArrayLike) -> Float64Array:
        column = _ages(ages)
        inside: npt.NDArray[np.bool_] = column <= _edges(column, [self.width])[0]
        return inside.astype(np.float64)

    def magnitude(self, age: int) -> int:
        return 0  # weights are 0 and 1

    @property
    def support(self) -> float:
        return float(self.width)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "window", "width": self.width}

    def __repr__(self) -> str:
        return f"window({self.width!r})"


@dataclass(frozen=True)
class Exponential(Decay):
    """See :func:`exponential`. Exactly one of the two fields is set."""

    rate: float | None = None
    half_life: float | None = None

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.half_life is None):
            raise ParameterError(
                f"rate is {self.rate!r} and half_life is {self.half_life!r}; expected one of them"
            )
        _keep_number(self, "rate" if self.half_life is None else "half_life")

    def __call__(self, ages: npt.ArrayLike) -> Float64Array:
        column = _ages(ages).astype(np.float64)  # a fresh array: the steps below work in place
        with np.errstate(over="ignore"):  # an exponent of -inf is a weight of 0
            if self.half_life is None:
                assert self.rate is not None
                column *= -float(self.rate)
                return np.exp(column, out=column)
            column /= -float(self.half_life)
            return np.exp2(column, out=column)

    def magnitude(self, age: int) -> int:
        return _far_from_1(self._log2(age))

    def scaled(self, ages: npt.ArrayLike, reference: int) -> Float64Array:
        if not self.magnitude(reference):
            return self(ages)
        # g(x) = g(r) g(x - r), and g(r) = 2^(whole + rest).
        weights = self(_after(reference, ages))
        weights *= _rest_of_power(self._log2(reference))
        return weights

    def _log2(self, age: int) -> float:
        if self.half_life is None:
            assert self.rate is not None
            return -float(age) * (float(self.rate) / math.log(2.0))
        with np.errstate(over="ignore"):
            return float(np.float64(-age) / float(self.half_life))

    @property
    def support(self) -> float:
        return math.inf

    def to_dict(self) -> dict[str, Any]:
        if self.half_life is None:
            return {"kind": "exponential", "rate": self.rate}
        return {"kind": "exponential", "half_life": self.half_life}

    def __repr__(self) -> str:
        if self.half_life is None:
            return f"exponential(rate={self.rate!r})"
        return f"exponential(half_life={self.half_life!r})"


@dataclass(frozen=True)
class Polynomial(Decay):
    """See :func:`polynomial`."""

    exponent: float
    scale: float = 1

    def __post_init__(self) -> None:
        _keep_number(self, "exponent")
        _keep_number(self, "scale")

    def __call__(self, ages: npt.ArrayLike) -> Float64Array:
        column = _ages(ages).astype(np.float64)
        with np.errstate(over="ignore"):
            column /= float(self.scale)
            column += 1.0
            if self.exponent == 1:
                return np.reciprocal(column, out=column)
            return np.power(column, -float(self.exponent), out=column)

    def magnitude(self, age: int) -> int:
        return _far_from_1(self._log2(age))

    def scaled(self, ages: npt.ArrayLike, reference: int) -> Float64Array:
        if not self.magnitude(reference):
            return self(ages)
        # g(x) = g(r) (1 + (x - r) / (scale + r))^-exponent, and g(r) = 2^(whole + rest).
        column = _after(reference, ages).astype(np.float64)
        with np.errstate(over="ignore"):
            column /= float(self.scale) + float(reference)
            np.log1p(column, out=column)
            column *= -float(self.exponent)
            np.exp(column, out=column)
        column *= _rest_of_power(self._log2(reference))
        return column

    def _log2(self, age: int) -> float:
        with np.errstate(over="ignore"):
            ratio = np.float64(age) / float(self.scale)
            return float(np.log1p(ratio) / math.log(2.0) * -float(self.exponent))

    @property
    def support(self) -> float:
        return math.inf

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "polynomial", "exponent": self.exponent, "scale": self.scale}

    def __repr__(self) -> str:
        scale = "" if self.scale == 1 else f", scale={self.scale!r}"
        return f"polynomial({self.exponent!r}{scale})"


@dataclass(frozen=True)
class NoDecay(Decay):
    """See :func:`none`."""

    def __call__(self, ages: npt.ArrayLike) -> Float64Array:
        return np.ones(_ages(ages).shape, dtype=np.float64)

    def magnitude(self, age: int) -> int:
        return 0

    @property
    def support(self) -> float:
        return math.inf

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "none"}

    def __repr__(self) -> str:
        return "none()"


@dataclass(frozen=True)
class Piecewise(Decay):
    """See :func:`piecewise`."""

    steps: tuple[tuple[float, float], ...]
    beyond: float = 0

    def __post_init__(self) -> None:
        given = self.steps
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence) or not given:
            raise ParameterError(f"steps is {given!r}; expected one or more pairs (age, weight)")
        steps = []
        for k, step in enumerate(given):
            if isinstance(step, (str, bytes)) or not isinstance(step, Sequence) or len(step) != 2:
                raise ParameterError(f"steps[{k}] is {step!r}; expected a pair (age, weight)")
            age = _number(f"steps[{k}] age", step[0], zero_allowed=True)
            steps.append((age, _number(f"steps[{k}] weight", step[1], zero_allowed=True)))
        object.__setattr__(self, "steps", tuple(steps))
        _keep_number(self, "beyond", zero_allowed=True)
        for k, (young, old) in enumerate(pairwise([age for age, _ in steps])):
            if old <= young:
                raise ParameterError(f"steps[{k + 1}] age is {old!r}; expected more than {young!r}")
        weights = [weight for _, weight in steps] + [self.beyond]
        for k, (heavy, light) in enumerate(pairwise(weights)):
            if light > heavy:
                name = "beyond" if k == len(steps) - 1 else f"steps[{k + 1}] weight"
                raise ParameterError(f"{name} is {light!r}; expected at most {heavy!r}")

    def __call__(self, ages: npt.ArrayLike) -> Float64Array:
        column = _ages(ages)
        edges = _edges(column, [age for age, _ in self.steps])
        weights = np.array([float(w) for _, w in self.steps] + [float(self.beyond)])
        return weights[np.searchsorted(edges, column, side="left")]

    @property
    def support(self) -> float:
        if self.beyond > 0:
            return math.inf
        return max((float(age) for age, weight in self.steps if weight > 0), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "piecewise",
            "steps": [list(step) for step in self.steps],
            "beyond": self.beyond,
        }

    def __repr__(self) -> str:
        beyond = f", beyond={self.beyond!r}" if self.beyond else ""
        return f"piecewise({list(self.steps)!r}{beyond})"


@dataclass(frozen=True)
class Deferred(Decay):
    """A decay whose lengths of time have their own units, such as ``window("1h")``.

    It has weights only after :meth:`bound` has set the stream's unit. Queries do that.

    Attributes:
        kind: kind of the decay.
        given: its parameters by name, in order: numbers, and nanoseconds as a ``Fraction`` for
            lengths with a unit. Steps are pairs (age, weight).
    """

    kind: str
    given: tuple[tuple[str, Any], ...]

    def __post_init__(self) -> None:
        lengths = [each for name, each in self.given if name in _LENGTHS]
        for name, each in self.given:
            if name == "steps":
                lengths += [age for age, _ in each]
        if all(isinstance(each, Fraction) for each in lengths):
            try:
                self.bound("ns")  # rejects arguments outside their domain in every unit
            except ParameterError as refused:  # the text names converted numbers
                raise ParameterError(f"{self!r}, in nanoseconds: {refused}") from refused

    def bound(self, time_unit: str) -> Decay:
        found: Decay = _MADE[self.kind](
            **{name: _in_unit(name, each, time_unit) for name, each in self.given}
        )
        return found

    def __call__(self, ages: npt.ArrayLike) -> Float64Array:
        raise self._unbound()

    @property
    def support(self) -> float:
        raise self._unbound()

    def _unbound(self) -> ParameterError:
        return ParameterError(
            f"{self!r} has lengths with units, and the stream's unit is not known here; "
            "bound('s') gives the decay of a stream of seconds"
        )

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind} | {name: _said(each) for name, each in self.given}

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(map(self._argument, self.given))})"

    def _argument(self, given: tuple[str, Any]) -> str:
        name, value = given
        if name != "steps":
            return f"{name}={_said(value)}"
        pairs = ", ".join(f"({_said(age)}, {weight!r})" for age, weight in value)
        return f"steps=[{pairs}]"


_LENGTHS = ("width", "half_life", "scale")
_MADE: dict[str, Any] = {
    "window": Window,
    "exponential": Exponential,
    "polynomial": Polynomial,
    "piecewise": Piecewise,
}


def _in_unit(name: str, given: Any, unit: str) -> Any:
    if name == "steps":
        return [(_in_unit("steps age", age, unit), weight) for age, weight in given]
    return duration(spelled(given), unit, name=name) if isinstance(given, Fraction) else given


def _said(given: Any) -> Any:
    """Return the form for JSON and texts."""
    if isinstance(given, Fraction):
        return spelled(given)
    return [[_said(age), weight] for age, weight in given] if isinstance(given, tuple) else given


def _kept(name: str, given: Any) -> Any:
    return length_of(name, given) if is_length(given) else _number(name, given, zero_allowed=True)


# ------------------------------------------------------------------------------------ constructors


@overload
def window(width: float) -> Window: ...


@overload
def window(width: Length) -> Decay: ...


def window(width: Length) -> Decay:
    """Sliding window: weight 1 up to an age of ``width``, inclusive, then 0.

    Args:
        width: finite number >= 0, in the stream's time unit, or a length of time with a unit, such
            as "1h30m" or a timedelta (:func:`decaysketch.duration`).

    Example:
        >>> window(60)([0, 60, 61]).tolist()
        [1.0, 1.0, 0.0]
        >>> window("1h30m"), window("1h30m").bound("min")
        (window(width=1h30m), window(90))
    """
    if is_length(width):
        return Deferred("window", (("width", length_of("width", width)),))
    return Window(width)  # type: ignore[arg-type]  # a number, or refused there


@overload
def exponential(*, rate: float | None = None, half_life: float | None = None) -> Exponential: ...


@overload
def exponential(*, rate: float | None = None, half_life: Length | None = None) -> Decay: ...


def exponential(*, rate: float | None = None, half_life: Length | None = None) -> Decay:
    """Exponential decay, ``exp(-rate x)`` or ``2^(-x / half_life)``. Pass exactly one parameter.

    Args:
        rate: finite number > 0, per time unit.
        half_life: finite number > 0, in time units, or with a unit, such as "1h".

    Example:
        >>> exponential(half_life=60)([0, 60, 120]).tolist()
        [1.0, 0.5, 0.25]
    """
    if is_length(half_life):
        given: tuple[tuple[str, Any], ...] = (("half_life", length_of("half_life", half_life)),)
        return Deferred("exponential", given if rate is None else (("rate", rate), *given))
    return Exponential(rate, half_life)  # type: ignore[arg-type]  # a number, or refused there


@overload
def polynomial(exponent: float, scale: float = 1) -> Polynomial: ...


@overload
def polynomial(exponent: float, scale: Length = 1) -> Decay: ...


def polynomial(exponent: float, scale: Length = 1) -> Decay:
    """Polynomial decay, ``(1 + x / scale)^-exponent``.

    Args:
        exponent: finite number > 0.
        scale: finite number > 0: the age, in time units or with a unit such as "10s", at which the
            weight is ``2^-exponent``.

    Example:
        >>> polynomial(1, scale=60)([0, 60, 180]).tolist()
        [1.0, 0.5, 0.25]
    """
    if is_length(scale):
        given = (("exponent", exponent), ("scale", length_of("scale", scale)))
        return Deferred("polynomial", given)
    return Polynomial(exponent, scale)  # type: ignore[arg-type]  # a number, or refused there


def none() -> NoDecay:
    """No decay: weight 1 at every age."""
    return NoDecay()


@overload
def piecewise(steps: Sequence[Sequence[float]], beyond: float = 0) -> Piecewise: ...


@overload
def piecewise(steps: Sequence[Sequence[Any]], beyond: float = 0) -> Decay: ...


def piecewise(steps: Sequence[Sequence[Any]], beyond: float = 0) -> Decay:
    """Steps: the weight of the first pair (age, weight) whose age is not exceeded.

    Args:
        steps: pairs (age, weight). Ages are >= 0 and rising, in time units or with a unit ("1min").
            Weights are >= 0 and not rising.
        beyond: weight after the last step, at most the last step's weight.

    Example:
        >>> piecewise([(60, 1.0), (3600, 0.25)])([60, 61, 3601]).tolist()
        [1.0, 0.25, 0.0]
    """
    pairs = [
        step
        for step in (steps if isinstance(steps, Sequence) else ())
        if not isinstance(step, str | bytes) and isinstance(step, Sequence) and len(step) == 2
    ]
    if pairs and len(pairs) == len(steps) and any(is_length(age) for age, _ in pairs):
        kept = tuple(
            (_kept(f"steps[{k}] age", age), weight) for k, (age, weight) in enumerate(pairs)
        )
        return Deferred("piecewise", (("steps", kept), ("beyond", beyond)))
    return Piecewise(steps, beyond)  # type: ignore[arg-type]  # pairs become tuples there


# ---------------------------------------------------------------------------------------- checking


def _number(name: str, value: object, *, zero_allowed: bool = False) -> float:
    """Return ``value`` as a plain int or float, within the requested domain."""
    if isinstance(value, (np.integer, np.floating)):
        value = value.item()
    domain = "a finite number >= 0" if zero_allowed else "a finite number > 0"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ParameterError(f"{name} is {value!r}; expected {domain}")
    try:
        as_float = float(value)
    except OverflowError:
        as_float = math.inf
    if not (math.isfinite(as_float) and (as_float > 0 or (zero_allowed and as_float == 0))):
        raise ParameterError(f"{name} is {value!r}; expected {domain}")
    return value


def _keep_number(decay: Decay, name: str, *, zero_allowed: bool = False) -> None:
    value = _number(name, getattr(decay, name), zero_allowed=zero_allowed)
    object.__setattr__(decay, name, value)


def _ages(ages: npt.ArrayLike) -> npt.NDArray[Any]:
    """Ages as an array of integers or float64; never rounds an integer."""
    column = np.asarray(ages)
    return column if column.dtype.kind in "iu" else column.astype(np.float64, copy=False)


def _edges(ages: npt.NDArray[Any], edges: Sequence[float]) -> npt.NDArray[Any]:
    """Edges in the type of the ages, so that integer ages beyond 2^53 compare exactly.

    An integer age is at most ``e`` exactly if it is at most ``floor(e)``.
    """
    if ages.dtype.kind not in "iu":
        return np.array(edges, dtype=np.float64)
    largest = int(np.iinfo(ages.dtype).max)
    return np.array([min(math.floor(edge), largest) for edge in edges], dtype=ages.dtype)


# ----------------------------------------------------------------------------------------- scaling


def _far_from_1(log2: float) -> int:
    """The magnitude for a weight with that binary logarithm; see :meth:`Decay.magnitude`."""
    if abs(log2) <= _ORDINARY:
        return 0
    return math.floor(max(log2, -_FURTHEST)) if log2 > -math.inf else -_FURTHEST


def _rest_of_power(log2: float) -> float:
    """The factor that remains of a weight over ``2^magnitude``: 1 to 2, or 1 beyond all floats."""
    return 2.0 ** (log2 - math.floor(log2)) if log2 > -_FURTHEST else 1.0


def _after(reference: int, ages: npt.ArrayLike) -> npt.NDArray[Any]:
    """Ages less an age, exact if they are integers."""
    column = _ages(ages)
    if column.dtype.kind in "iu":
        return (column.astype(np.uint64) - np.uint64(reference)).view(np.int64)
    return column - float(reference)
