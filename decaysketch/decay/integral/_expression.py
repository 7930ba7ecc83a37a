"""Integral decays from a text, ``"floor(w * exp(-x/60))"``, with the mathematical floor.

A text ``floor(w g(x))`` with a g that is proved to be a decay becomes exact fractions, for any
max_weight. Any other text is evaluated for every weight and age into a table, and each value is
checked. The table is 0 from the first age on at which the text is 0 for max_weight. Later values
are not checked. If these are too many values, and the text has the form ``max(min(w - a(x), b(x)),
0)``, the table contains ``a`` and ``b`` (:mod:`._clipped`).

Texts arrive over networks. A limit on operations bounds the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from decaysketch.decay.integral import _exact, _work
from decaysketch.decay.integral._base import Decomposable, check_integer, check_last_age
from decaysketch.decay.integral._listed import Table, check_table
from decaysketch.decay.integral._steps import MAX_AGE, StepTable
from decaysketch.decay.terms import term_of
from decaysketch.errors import ParameterError

if TYPE_CHECKING:
    from decaysketch.decay.integral import _clipped
    from decaysketch.decay.integral._evaluate import Value
    from decaysketch.decay.normal import Term

__all__ = ["MAX_OPERATIONS", "Expression", "ExpressionTable", "expression", "normal_text"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

MAX_OPERATIONS = 1 << 18
"""Operations that reading the values of a text may take: a matter of seconds. Who reads texts of
others may allow fewer, see :func:`at_most`."""

_LONG_GAP = 4  # ages of one fraction
_LEAST_BITS, _MAX_BITS = 1 << 7, 1 << 12  # of an enclosure


@dataclass(frozen=True)
class Expression(Decomposable):
    """See :func:`decaysketch.decay.integral.expression`; ``floor(w g(x))``.

    Attributes:
        text: f in normal form. Equal normal forms have equal texts.
    """

    text: str
    _read: _Read = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        read = _read(self.text)
        if read.g is None or not read.proved:
            raise ParameterError(f"text is {self.text!r}; expected floor(w g(x)), g proved to fall")
        object.__setattr__(self, "text", read.text)
        object.__setattr__(self, "_read", read)

    def _fraction(self, age: int, order: int) -> tuple[int, int]:
        with _Meter(repr(self), self._read.size, order) as meter:
            return self._metered(age, order, meter)

    def _metered(self, age: int, order: int, meter: _Meter) -> tuple[int, int]:
        assert self._read.g is not None
        return _largest_fraction(self._read.g, age, order, meter, floored=self._read.floored)

    def _table(self, max_weight: int) -> StepTable:
        with _Meter(repr(self), self._read.size, max_weight) as meter:

            def fraction(age: int) -> tuple[int, int]:
                return self._metered(age, max_weight, meter)

            if fraction(MAX_AGE)[0]:
                check_last_age(self, MAX_AGE + 1)
            age, current, gap = 0, fraction(0), 1
            rows = [(0, *current)]
            while current[0]:
                later, current = self._next(fraction, age, current, gap)
                age, gap = later, later - age
                rows.append((age, *current))
        return StepTable.of_fractions(max_weight, rows)

    def _next(
        self,
        fraction: Callable[[int], tuple[int, int]],
        age: int,
        current: tuple[int, int],
        gap: int,
    ) -> tuple[int, tuple[int, int]]:
        """Return the first age with another fraction than ``current`` (the fraction at ``age``),
        and that fraction.

        ``gap``: the ages that the previous fraction covered. After a long one, if g has an inverse,
        the search starts near the age that the inverse gives instead of the next age.
        """
        same, other, stride = age, age + 1, 1
        guess = None
        if gap > _LONG_GAP:
            guess = self._guess(np.array([current[1] / current[0]]))
        found = current if guess is not None else fraction(other)
        if found == current:
            if guess is None:
                same = other
                guess = self._guess(np.array([current[1] / current[0]]))
            if guess is not None:
                other = min(max(int(guess[0]) - 1, same + 1), MAX_AGE)
            else:
                other += 1
            found = fraction(other)
        while found == current:  # ahead by doubling, then back by halving
            same, other, stride = other, min(other + stride, MAX_AGE), 2 * stride
            found = fraction(other)
        while other - same > 1:
            middle = (same + other) // 2
            at_middle = fraction(middle)
            if at_middle == current:
                same = middle
            else:
                other, found = middle, at_middle
        return other, found

    def _guess(self, ratios: Float64Array) -> Float64Array | None:
        if self._read.age_of is None:
            return None
        with np.errstate(all="ignore"):
            ages = np.asarray(self._read.age_of(1.0 / ratios))
        return np.where(np.isfinite(ages), np.floor(ages.clip(0, 2.0**62)) + 1.0, 0.0)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "expression", "text": self.text}

    def __repr__(self) -> str:
        return f"integral.expression({self.text!r})"

    def __reduce__(self) -> tuple[type[Expression], tuple[str]]:
        return Expression, (self.text,)


@dataclass(frozen=True)
class ExpressionTable(Table):
    """See :func:`decaysketch.decay.integral.expression`; a table of its values.

    Attributes:
        text: f in normal form.
        operations: number of operations that its values took.
        cells: number of values computed, for every weight and age.
    """

    text: str
    operations: int = field(default=0, compare=False, repr=False)
    cells: int = field(default=0, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "expression", "text": self.text, "max_weight": self.full.max_weight}

    def __repr__(self) -> str:
        return f"integral.expression({self.text!r}, max_weight={self.full.max_weight})"


def expression(text: str, max_weight: int | None, largest: int) -> Expression | ExpressionTable:
    """Return a text's decay; a table, if needed, has at most ``largest`` cells."""
    if not isinstance(text, str):  # before the lookup by its hash
        raise ParameterError(f"the expression is of type {type(text).__name__}; expected a text")
    read = _read(text)
    if read.g is not None and read.proved:
        return Expression(text)
    if max_weight is None:
        raise ParameterError(
            f"max_weight is None; expected an integer, as {text!r} is not floor(w g(x)) with a g "
            "that is proved to be a decay"
        )
    check_integer("max_weight", max_weight, 1, largest)
    largest = _work.largest_table(largest)
    kept = _TABLES.get((read.text, max_weight))
    if kept is not None and kept.cells <= largest:
        _work.spend(kept.operations)
        return kept
    with _work.counted() as work:
        table = _clipped_table(read, max_weight)
        if table is None:
            with _Meter(repr(read.text), read.size, max_weight) as meter:
                columns = _tabled(read, max_weight, largest, meter)
            table = check_table("f", np.stack(columns, axis=1), largest).full
            cells = len(columns) * (max_weight + 1)
        else:
            cells = 0
    decay = ExpressionTable(table, read.text, work.spent, cells)
    return _TABLES.setdefault((read.text, max_weight), decay)


# The tables in use. A caller with an equal text receives the same table.
_TABLES: WeakValueDictionary[tuple[str, int], ExpressionTable] = WeakValueDictionary()


def normal_text(text: str) -> tuple[str, bool]:
    """Return a text in normal form, and whether its values need a table."""
    read = _read(text)
    return read.text, read.g is None or not read.proved


def _clipped_table(read: _Read, max_weight: int) -> StepTable | None:
    """The table of losses and caps, if a text has this form and too many values for a table of all.

    Every value of a usual table takes as many operations as the text has.
    """
    from decaysketch.decay.integral import _clipped

    part = read.clipped
    ages = MAX_OPERATIONS // max(read.size * max_weight, 1)  # that a table of all may have
    if part is None or part.loss is None or (ages > 0 and not part.rational):
        return None
    with _Meter(repr(read.text), read.size, max_weight) as meter:
        curves = _clipped.Curves(
            loss=_curve(part.loss, meter),
            cap=None if part.cap is None else _curve(part.cap, meter),
            max_weight=max_weight, floored=part.floored, proved=part.proved,
            name=f"integral.expression({read.text!r}, max_weight={max_weight})",
        )  # fmt: skip
        try:
            return None if ages > 0 and curves.ends_by(ages - 1) else curves.steps()
        except _clipped.UnclippedError:
            return None


def _curve(term: Term, meter: _Meter) -> Callable[[Int64Array], Int64Array]:
    """A term in x with integers as values, for columns of ages: at once, or one by one."""
    from decaysketch.decay.integral import _clipped
    from decaysketch.decay.integral._evaluate import compiled

    f = compiled(term)
    together = _clipped.columns(term) if _clipped.is_rational(term) else None

    def evaluate(ages: Int64Array) -> Int64Array:
        if together is not None:
            try:
                return together(ages)
            except (_clipped.LongNumberError, ValueError, ZeroDivisionError):
                pass  # as numbers of any length, or with an error that names the age
        values = (_whole(f, 0, age, meter) for age in ages.tolist())
        return np.array([min(max(value, -MAX_AGE), MAX_AGE) for value in values], np.int64)

    return evaluate


def _tabled(read: _Read, max_weight: int, largest: int, meter: _Meter) -> list[Int64Array]:
    weights = np.arange(max_weight + 1, dtype=np.int64)
    columns: list[Int64Array] = []
    while not columns or columns[-1][-1]:
        age = len(columns)
        if (age + 1) * (max_weight + 1) > largest:
            raise meter.too_many()
        if read.g is not None:
            p, q = _largest_fraction(read.g, age, max_weight, meter, floored=read.floored)
            columns.append(weights * p // q)
        else:
            if read.size * max_weight > MAX_OPERATIONS:
                raise meter.too_many()
            values = [_whole(read.f, weight, age, meter) for weight in range(1, max_weight + 1)]
            if not 0 <= min(values) <= max(values) <= max_weight:
                wrong = next(k for k, value in enumerate(values) if not 0 <= value <= max_weight)
                raise ParameterError(
                    f"f({wrong + 1}, {age}) is {values[wrong]}; expected 0 to {max_weight}"
                )
            columns.append(np.array([0, *values], dtype=np.int64))
    return columns


class _Meter:
    """Counts the operations that reading a text's values has taken so far.

    An operation on 128 bits counts as one. With more bits, it counts as the square of the ratio.
    Operations that take more than that count the rest themselves, inside this context
    (:mod:`._work`).
    """

    def __init__(self, name: str, size: int, max_weight: int) -> None:
        self._name = name
        self._size = size
        self._max_weight = max_weight
        self._spent = 0

    def __enter__(self) -> Self:
        self._entered = _work.also(self)
        self._entered.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._entered.__exit__(*raised)

    def read(self, bits: int) -> None:
        """Count one reading of the text."""
        _work.spend(self._size * (bits // _LEAST_BITS) ** 2)

    def spend(self, operations: int) -> None:
        """Count operations."""
        self._spent += operations
        if self._spent > MAX_OPERATIONS:
            raise self.too_many()

    def too_many(self) -> ParameterError:
        return ParameterError(
            f"{self._name} takes more than {MAX_OPERATIONS} operations for weights to "
            f"{self._max_weight}; expected fewer: take a coarser time unit, a smaller max_weight "
            "or another decay"
        )


# ----------------------------------------------------------------------------- reading and values


Evaluate = Callable[[int, int, int], "Value"]


@dataclass(frozen=True)
class _Read:
    text: str  # normal form
    size: int  # operations of f
    f: Evaluate
    floored: bool  # the text is floor(...)
    g: Evaluate | None  # where f = floor(w g), or w g
    proved: bool  # g is a decay
    age_of: Callable[[Float64Array], Float64Array] | None  # the inverse of g
    clipped: _clipped.Clipped | None  # where f is no w g


@lru_cache(maxsize=64)
def _read(text: str) -> _Read:
    term = term_of(text, ("w", "x"))
    # sympy, imported with the first text
    import sympy  # type: ignore[import-untyped]

    from decaysketch.decay.evaluate import evaluator
    from decaysketch.decay.integral._clipped import split
    from decaysketch.decay.integral._evaluate import compiled
    from decaysketch.decay.normal import text_of
    from decaysketch.decay.shape import is_decay
    from decaysketch.decay.symbolic import decompose, inverse

    normal = text_of(term)
    if normal != text:
        try:
            term_of(normal, ("w", "x"))
        except ParameterError as fault:  # to_dict would give a text that cannot be read
            raise ParameterError(
                f"the expression {text!r} is {normal!r} in normal form, which is refused: {fault}"
            ) from None
    floored = isinstance(term, sympy.floor)
    g: Term | None = decompose(term.args[0] if floored else term)
    proved = g is not None and is_decay(g)
    back = inverse(g) if proved else None
    return _Read(
        text=normal,
        size=sum(1 for each in sympy.preorder_traversal(term) if each.args),
        f=compiled(term),
        floored=floored,
        g=None if g is None else compiled(g),
        proved=proved,
        age_of=None if back is None else evaluator(back),
        clipped=None if g is not None else split(term),
    )


def _decided(decide: Callable[[int], Any], what: str, meter: _Meter) -> Any:
    """Return the result of ``decide(bits)``, with as many bits as needed."""
    from decaysketch.decay.integral._evaluate import UndecidedError

    bits = _LEAST_BITS
    while bits <= _MAX_BITS:
        meter.read(bits)
        try:
            return decide(bits)
        except UndecidedError:
            bits *= 2
    raise ParameterError(
        f"{what} cannot be told from a number it may be equal to, with {_MAX_BITS} bits; write it "
        "as a power of a fraction, as 2**(-x/60)"
    )


def _whole(f: Evaluate, weight: int, age: int, meter: _Meter) -> int:
    value = _decided(lambda bits: f(weight, age, bits), f"f({weight}, {age})", meter)
    if isinstance(value, Fraction) and value.denominator == 1:
        return int(value)
    raise ParameterError(f"f({weight}, {age}) is no integer; expected floor(...)")


def _largest_fraction(
    g: Evaluate, age: int, order: int, meter: _Meter, *, floored: bool
) -> tuple[int, int]:
    from decaysketch.decay.integral._evaluate import UndecidedError

    def decide(bits: int) -> tuple[int, int]:
        value = g(0, age, bits)
        if isinstance(value, Fraction):
            if not 0 <= value <= 1:
                raise ParameterError(f"g({age}) is {value}; expected 0 to 1")
            if not floored and value.denominator > 1:
                raise ParameterError(f"g({age}) is {value}; expected floor(w g(x)), an integer")
            if value.denominator <= order:
                return value.numerator, value.denominator
            _work.spend(value.denominator.bit_length() >> 7)
            return _exact.farey_floor(value.numerator, value.denominator, order)[:2]
        low, high = value
        one = 1 << bits
        if high < 0 or low > one:
            raise ParameterError(f"g({age}) is about {low / one:.6g}; expected 0 to 1")
        if low < 0 or high > one:
            raise UndecidedError
        if not floored:
            raise ParameterError(f"g({age}) is no integer; expected floor(w g(x))")
        p, q, r, s = _exact.farey_floor(min(low, one - 1), one, order)
        if high * s >= r << bits:
            raise UndecidedError
        return p, q

    answer: tuple[int, int] = _decided(decide, f"g({age})", meter)
    return answer
