"""A decay from a text, and properties derived from it.

:mod:`~decaysketch.decay.terms` reads ``expression("1/(1 + log(1 + x/60))")``. The term is checked
to be a decay, and evaluated column by column. A text that also contains the weight w, f(w, x), is
accepted if it is w g(x) (decomposable decay, Cormode, Tirthapura and Xu, definition 1.3), found by
collecting the powers of w.

Guarantees. The function is finite, >= 0 and non-increasing at every age >= 0 if
:mod:`~decaysketch.decay.shape` could prove it. Then ``verified`` is ``"symbolic"``. Otherwise the
weights were checked at some 3,400 ages from 0 to 2^63 and wherever a condition between them
changes. Then ``verified`` is ``"grid"``, and a rise between two of these ages is possible. Weights
are clipped to [0, g(0)] and never infinite or NaN. Apart from that, they fall up to the rounding of
their arithmetic. Integer ages beyond 2^53 are rounded to floats.

The limits of :mod:`~decaysketch.decay.terms` bound the time for reading, proof and grid. Nothing is
solved, simplified or integrated. The first expression imports sympy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from decaysketch.decay.functions import Decay, Float64Array
from decaysketch.decay.terms import MAX_TEXT, term_of
from decaysketch.errors import ParameterError

if TYPE_CHECKING:
    from decaysketch.decay.normal import Term

__all__ = ["Expression", "decompose", "expression", "inverse"]

_OLDEST = 2.0**63
_TOLERANCE = 1e-12  # relative rise of a weight on the grid that rounding explains
_NOISE = 1e-15  # of the weight at age 0: rounding error in a difference of equals
_MAX_TURNS = 64  # sign changes of one condition


@dataclass(frozen=True)
class Expression(Decay):
    """See :func:`expression`.

    At an age without a weight, a pole that the grid missed, it raises a ParameterError that names
    the age.

    Attributes:
        text: g in normal form. Equal normal forms have equal texts, however they were written.
    """

    text: str
    _checked: _Checked = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            kind = type(self.text).__name__
            raise ParameterError(f"text is of type {kind}; expected a text such as 'exp(-x/60)'")
        checked = _check(self.text)
        object.__setattr__(self, "text", checked.text)
        object.__setattr__(self, "_checked", checked)

    def __call__(self, ages: npt.ArrayLike) -> Float64Array:
        column = np.asarray(ages, dtype=np.float64)
        weights = self._checked.weights(column)
        if not np.isfinite(weights).all():
            where = column[~np.isfinite(weights)].flat[0]
            raise ParameterError(f"{self!r} has no finite weight at age {where}")
        np.clip(weights, 0.0, self._checked.top, out=weights)
        if self.support < math.inf:
            weights[column > self.support] = 0.0
        return weights

    @property
    def support(self) -> float:
        """The largest float age with positive weight, or infinity from 2^63 on."""
        return self._checked.support

    @property
    def verified(self) -> Literal["symbolic", "grid"]:
        """``"symbolic"``: proved to be a decay. ``"grid"``: checked at some ages, see the
        module.
        """
        return self._checked.verified

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "expression", "text": self.text}

    def __repr__(self) -> str:
        return f"expression({self.text!r})"

    def __reduce__(self) -> tuple[Callable[[str], Expression], tuple[str]]:
        return expression, (self.text,)


def expression(text: str) -> Expression:
    """Return the decay that a text defines.

    Args:
        text: g in the age x, finite, >= 0 and non-increasing at every x >= 0, or w times such a g.
            Syntax: :mod:`~decaysketch.decay.terms`.

    Raises:
        ParameterError: the text cannot be read, is not w g(x), or its g is not a decay. The message
            names the word, or the age.

    Example:
        >>> expression("1/(1 + x/60)")([0, 60, 180]).tolist()
        [1.0, 0.5, 0.25]
        >>> expression("w * exp(-0.01*x)")
        expression('exp(-x/100)')
    """
    return Expression(text)


# --------------------------------------------------------------------------------------- symbols


def decompose(term: Term) -> Term | None:
    """Return ``g`` if a term is ``w * g`` and g does not depend on w, else None if that is not
    found.

    Args:
        term: result of :func:`~decaysketch.decay.terms.term_of` for the names w and x.

    Returns:
        g in x alone, for w > 0; 0 for 0. Linear in the size of the term.

    Example:
        >>> decompose(term_of("w*exp(-x) + sqrt(4*w**2 * x)", ("w", "x")))
        sqrt(4*x) + exp(-x)
    """
    degree, rest = _powers_of_w(term) or (None, None)
    return rest if degree == 1 or rest == 0 else None


def _powers_of_w(term: Term) -> tuple[Term, Term] | None:
    """Return (d, rest) if the term is ``w**d * rest`` for w > 0, with no w in the rest."""
    import sympy  # type: ignore[import-untyped]

    from decaysketch.decay import normal

    w = normal.symbol("w")
    if w not in term.free_symbols:
        return sympy.S.Zero, term
    if term == w:
        return sympy.S.One, sympy.S.One
    if isinstance(term, sympy.Pow) and term.args[1].is_Rational:
        if (inner := _powers_of_w(term.args[0])) is None:
            return None
        exponent = term.args[1]
        return inner[0] * exponent, normal.power(inner[1], exponent)
    if isinstance(term, sympy.Piecewise):
        (then, condition), (otherwise, _) = term.args
        sides = _of_one_degree(condition.args)
        values = _of_one_degree((then, otherwise))
        if sides is None or values is None:
            return None
        test = normal.compare(sides[1][0], condition.rel_op, sides[1][1])
        return values[0], normal.where(test, *values[1])
    if isinstance(term, sympy.Mul):
        factors = [_powers_of_w(each) for each in term.args]
        known = [factor for factor in factors if factor is not None]
        if len(known) < len(factors):
            return None
        return sum(degree for degree, _ in known), normal.multiply(*(rest for _, rest in known))
    together = {sympy.Add: normal.add, sympy.Min: normal.minimum, sympy.Max: normal.maximum}
    if term.func not in together or (parts := _of_one_degree(term.args)) is None:
        return None
    return parts[0], together[term.func](*parts[1])


def _of_one_degree(terms: tuple[Term, ...]) -> tuple[Term, list[Term]] | None:
    """Return the power of w that all non-zero terms share, and the rests."""
    parts = [_powers_of_w(each) for each in terms]
    known = [part for part in parts if part is not None]
    degrees = {degree for degree, rest in known if rest != 0}
    if len(known) < len(parts) or len(degrees) > 1:
        return None
    return (degrees.pop() if degrees else 0), [rest for _, rest in known]


def inverse(g: Term) -> Term | None:
    """Return the age at which g falls to y, as a term in the symbol y, or None if it is not found.

    It undoes one operation after the other, so it inverts terms that name x once, such as
    ``1/(1 + log(1 + x/60))``. The result is tested on numbers.

    Args:
        g: result of :func:`~decaysketch.decay.terms.term_of` for the name x.

    Example:
        >>> inverse(term_of("exp(-x/60)"))
        -60*log(y)
    """
    import sympy

    from decaysketch.decay import normal

    age, value, term = normal.symbol("x"), normal.symbol("y"), g
    try:
        while term != age:
            holders = [each for each in term.args if age in each.free_symbols]
            if len(holders) != 1:
                return None
            (inner,) = holders
            others = [each for each in term.args if each is not inner]
            if isinstance(term, sympy.Add):
                value = normal.subtract(value, normal.add(*others))
            elif isinstance(term, sympy.Mul):
                value = normal.divide(value, normal.multiply(*others))
            elif isinstance(term, sympy.exp):
                value = normal.log(value)
            elif isinstance(term, sympy.log):
                value = normal.exp(value)
            elif isinstance(term, sympy.Pow) and inner is term.args[1]:
                value = normal.divide(normal.log(value), normal.log(term.args[0]))
            elif isinstance(term, sympy.Pow) and term.args[1].is_Rational:
                value = normal.power(value, 1 / term.args[1])
            else:
                return None
            term = inner
    except ParameterError:  # a number that grows too large
        return None
    return value if _is_inverse(value, g) else None


def _is_inverse(age_of: Term, g: Term) -> bool:
    from decaysketch.decay.evaluate import evaluator

    weight = evaluator(g)
    with np.errstate(all="ignore"):
        grid = np.concatenate([np.arange(20.0), np.geomspace(20, 1e9, 30)])
        heights = np.concatenate([weight(grid), weight(grid[:1]) * np.linspace(0.01, 1.0, 30)])
        heights = heights[np.isfinite(heights) & (heights > 1e-290)]
        ages = evaluator(age_of)(heights)
        tried = np.isfinite(ages) & (ages >= 0)
        again = weight(ages[tried])
    agree = np.abs(again - heights[tried]) <= 1e-6 * heights[tried]
    return bool(np.count_nonzero(tried) >= 3 and agree.all())


# ---------------------------------------------------------------------------------------- checks


@dataclass(frozen=True)
class _Checked:
    text: str
    verified: Literal["symbolic", "grid"]
    evaluate: Callable[[Float64Array], Float64Array]
    top: float  # g(0)
    support: float

    def weights(self, ages: Float64Array) -> Float64Array:
        """A new column with the text's values, not yet clipped."""
        return _values(self.evaluate, ages)


def _values(evaluate: Callable[[Float64Array], Float64Array], ages: Float64Array) -> Float64Array:
    weights = np.empty(ages.shape, dtype=np.float64)
    with np.errstate(all="ignore"):  # an overflow below a division is a weight of 0
        weights[...] = evaluate(ages)
    return weights


@lru_cache(maxsize=256)
def _check(text: str) -> _Checked:
    from decaysketch.decay import normal, shape
    from decaysketch.decay.evaluate import evaluator

    term = term_of(text, ("w", "x"))
    if normal.symbol("w") in term.free_symbols:
        if (g := decompose(term)) is None:
            raise ParameterError(
                f"the expression {text!r} is not found to be w * g(x); a decay chosen at query "
                "time is, an IntegralDecaySketch takes other functions of w and x"
            )
        term = g
    written = normal.text_of(term)
    if len(written) > MAX_TEXT:
        raise ParameterError(
            f"the expression has {len(written)} characters in normal form; expected at most "
            f"{MAX_TEXT}"
        )
    evaluate = evaluator(term)
    proved = shape.is_decay(term)
    _check_grid(written, evaluate, _grid(term), proved=proved)
    return _Checked(
        text=written,
        verified="symbolic" if proved else "grid",
        evaluate=evaluate,
        top=float(_values(evaluate, np.zeros(1))[0]),
        support=_support(evaluate),
    )


def _check_grid(
    text: str,
    evaluate: Callable[[Float64Array], Float64Array],
    ages: Float64Array,
    *,
    proved: bool,
) -> None:
    """Check that floats can hold the weights and, without a proof, that they fall."""
    weights = _values(evaluate, ages)

    def refuse(at: npt.NDArray[np.bool_], what: str, expected: str) -> None:
        if at.any():
            k = int(np.argmax(at))
            weight, age = weights[k], ages[k]
            raise ParameterError(
                f"the expression {text!r} {what} {weight:.6g} at age {age:.17g}; expected "
                f"{expected}"
            )

    refuse(~np.isfinite(weights), "is", "a finite weight, as 64-bit floats compute it")
    noise = _NOISE * abs(weights[0])
    refuse(weights < -noise, "is", "a weight >= 0")
    if not proved:
        least = np.minimum.accumulate(weights)[:-1]
        rises = np.zeros(len(ages), dtype=np.bool_)
        rises[1:] = weights[1:] > least * (1.0 + _TOLERANCE) + noise
        refuse(rises, "rises to", "weights that do not rise with age")


def _grid(term: Term) -> Float64Array:
    """Ages to check: every integer at first, then 32 per octave, and every change of a
    condition.
    """
    ages = np.concatenate(
        [
            np.arange(0.0, 1025.0),
            np.arange(0.5, 64.0),
            np.exp2(np.arange(-320, 63 * 32 + 1) / 32.0),
        ]
    )
    ages = np.unique(ages)
    return np.unique(np.concatenate([ages, *(_turns(each, ages) for each in _conditions(term))]))


def _conditions(term: Term) -> list[Term]:
    found, pending = [], [term]
    while pending:
        each = pending.pop()
        found += [each] if each.is_Relational else []
        pending.extend(each.args)
    return found


def _turns(condition: Term, ages: Float64Array) -> Float64Array:
    """The last age before and the first after a condition changes, and the integers around."""
    import sympy

    from decaysketch.decay.evaluate import evaluator

    test = evaluator(
        sympy.Piecewise((sympy.S.One, condition), (sympy.S.Zero, True), evaluate=False)
    )
    holds = _values(test, ages)
    turns = np.flatnonzero(holds[1:] != holds[:-1])[:_MAX_TURNS]
    before, after = ages[turns].view(np.int64), ages[turns + 1].view(np.int64)
    while (open_ := after - before > 1).any():  # floats >= 0 are ordered as their bits are
        middle = np.where(open_, before + (after - before) // 2, before)
        same = _values(test, middle.view(np.float64)) == holds[turns]
        before, after = np.where(same, middle, before), np.where(same, after, middle)
    edges = np.concatenate([before.view(np.float64), after.view(np.float64)])
    around: Float64Array = np.concatenate([edges, np.floor(edges), np.ceil(edges)])
    return around


def _support(evaluate: Callable[[Float64Array], Float64Array]) -> float:
    """The largest float with positive weight, by bisection."""
    if _values(evaluate, np.array([_OLDEST]))[0] > 0:
        return math.inf
    low, high = np.array([0.0]).view(np.int64), np.array([_OLDEST]).view(np.int64)
    while high[0] - low[0] > 1:
        middle = low + (high - low) // 2
        positive = _values(evaluate, middle.view(np.float64))[0] > 0
        low, high = (middle, high) if positive else (low, middle)
    return float(low.view(np.float64)[0])
