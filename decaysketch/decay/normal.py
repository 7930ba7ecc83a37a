"""The terms of an expression, in one normal form, and their text.

Terms are sympy trees, built with sympy's own evaluation switched off. That evaluation (roots,
comparisons, floors of constants, minima over many terms) has no bound, and a text may come from
anybody. The few rules below replace it. Each is linear in its operands. They keep rationals exact
and small, flatten and sort sums and products, collect like terms and like powers, and gather
exponentials, ``exp(x) / exp(2 x) = exp(-x)``. This also avoids overflows. Two texts with the same
normal form are the same decay. Two texts with different normal forms may still be the same
function.

As in every such system, a rule may close a gap in the domain: ``x / x`` is 1, also at 0.

:func:`text_of` writes a term so that reading it gives the same term again.

Importing this module imports sympy. That takes half a second. Import it only when you need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import log2
from typing import Any, TypeAlias

try:
    import sympy  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "decays written as expressions need sympy: pip install sympy", name=error.name
    ) from error

from decaysketch.errors import ParameterError

__all__ = [
    "MAX_BITS",
    "Term",
    "add",
    "ceil",
    "compare",
    "divide",
    "exp",
    "floor",
    "floor_divide",
    "log",
    "maximum",
    "minimum",
    "multiply",
    "number",
    "pi",
    "power",
    "sqrt",
    "subtract",
    "symbol",
    "text_of",
    "where",
]

Term: TypeAlias = Any  # sympy.Expr; sympy publishes no types

MAX_BITS = 256
"""Bits of the numerator and of the denominator of any number: about 77 decimal digits."""

_ZERO, _ONE, _E = sympy.S.Zero, sympy.S.One, sympy.E
_RELATIONS: dict[str, Callable[..., Any]] = {
    "<": sympy.StrictLessThan,
    "<=": sympy.LessThan,
    ">": sympy.StrictGreaterThan,
    ">=": sympy.GreaterThan,
}


# ----------------------------------------------------------------------------------------- leaves


def symbol(name: str) -> Term:
    """The variable with that name. It is non-negative, as ages and weights are."""
    return sympy.Symbol(name, nonnegative=True)


def number(numerator: int, denominator: int = 1) -> Term:
    """The rational number. The denominator must not be 0.

    Raises:
        ParameterError: its terms do not fit in :data:`MAX_BITS` bits.
    """
    return _small(sympy.Rational(numerator, denominator))


def pi() -> Term:
    """The number pi."""
    return sympy.pi


def _small(value: Term) -> Term:
    if max(int(value.p).bit_length(), int(value.q).bit_length()) > MAX_BITS:
        raise ParameterError(
            f"the expression has a number of more than {MAX_BITS} bits above or below its fraction "
            f"line; expected at most {MAX_BITS}"
        )
    return value


# ------------------------------------------------------------------------------------- arithmetic


def add(*operands: Term) -> Term:
    """The sum, like terms collected."""
    constant = _ZERO
    coefficients: dict[Term, Term] = {}
    pending = [(_ONE, operand) for operand in reversed(operands)]
    while pending:
        outer, term = pending.pop()
        inner, rest = _split(term)
        coefficient = _small(outer * inner)
        if isinstance(rest, sympy.Add):  # a factor is drawn into a sum within a sum
            pending.extend((coefficient, each) for each in rest.args)
        elif rest is _ONE:
            constant = _small(constant + coefficient)
        else:
            coefficients[rest] = _small(coefficients.get(rest, _ZERO) + coefficient)
    terms = sorted((_scaled(c, rest) for rest, c in coefficients.items() if c != 0), key=text_of)
    return _joined(sympy.Add, [constant, *terms] if constant != 0 else terms, _ZERO)


def subtract(left: Term, right: Term) -> Term:
    """``left - right``."""
    return add(left, multiply(sympy.S.NegativeOne, right))


def multiply(*operands: Term) -> Term:
    """The product, like powers collected."""
    coefficient = _ONE
    alike: dict[Term, list[Term]] = {}  # by their base
    pending = list(reversed(operands))
    while pending:
        operand = pending.pop()
        if isinstance(operand, sympy.Mul):
            pending.extend(operand.args)
        elif operand.is_Rational:
            coefficient = _small(coefficient * operand)
        else:
            alike.setdefault(_base_and_exponent(operand)[0], []).append(operand)
    if coefficient == 0:
        return _ZERO
    factors: list[Term] = []
    for base, powers in alike.items():
        if len(powers) == 1:  # in normal form already, with all its parts
            factors += powers
            continue
        exponent = add(*(_base_and_exponent(each)[1] for each in powers))
        inner, rest = _split(power(base, exponent))
        coefficient = _small(coefficient * inner)
        factors += [] if rest is _ONE else rest.args if isinstance(rest, sympy.Mul) else [rest]
    return _scaled(coefficient, _joined(sympy.Mul, sorted(factors, key=text_of), _ONE))


def _base_and_exponent(factor: Term) -> tuple[Term, Term]:
    if isinstance(factor, sympy.exp):
        return _E, factor.args[0]
    if isinstance(factor, sympy.Pow) and factor.args[1].is_Rational:
        return factor.args[0], factor.args[1]
    return factor, _ONE


def divide(left: Term, right: Term) -> Term:
    """``left / right``."""
    return multiply(left, power(right, sympy.S.NegativeOne))


def floor_divide(left: Term, right: Term) -> Term:
    """``floor(left / right)``."""
    return floor(divide(left, right))


def power(base: Term, exponent: Term) -> Term:
    """``base ** exponent``, the real one.

    Raises:
        ParameterError: a power of a constant that is not real, or too large.
    """
    if base is _E:
        return exp(exponent)
    if not exponent.is_Rational:
        if not base.is_Rational:
            return sympy.Pow(base, exponent, evaluate=False)
        if base <= 0:
            raise ParameterError(
                f"the expression raises {text_of(base)} to a varying power; expected a base > 0"
            )
        return _ONE if base == 1 else sympy.Pow(base, exponent, evaluate=False)
    if exponent == 1:
        return base
    if base.is_Rational:
        return _power_of_numbers(base, exponent)
    if exponent == 0:
        return _ONE
    if isinstance(base, sympy.exp):
        return exp(multiply(exponent, base.args[0]))
    if isinstance(base, sympy.Pow):
        inner, nested = base.args
        if exponent.is_Integer or inner.is_Symbol or (inner.is_Rational and inner > 0):
            return power(inner, multiply(nested, exponent))
    if isinstance(base, sympy.Mul) and exponent == -1:
        return multiply(*(power(each, exponent) for each in base.args))
    return sympy.Pow(base, exponent, evaluate=False)


def _power_of_numbers(base: Term, exponent: Term) -> Term:
    if base == 0:
        if exponent <= 0:
            raise ParameterError("the expression divides by 0")
        return _ZERO
    if base < 0 and not exponent.is_Integer:
        raise ParameterError(
            f"the expression raises {text_of(base)} to the power {text_of(exponent)}, "
            "which is no real number"
        )
    bits = max(log2(abs(int(base.p))), log2(int(base.q))) * abs(float(exponent))
    if bits > MAX_BITS:
        raise ParameterError(
            f"the expression has a power of about {bits:.3g} bits; expected at most {MAX_BITS}"
        )
    if exponent.is_Integer:
        return _small(base**exponent)
    return _ONE if base == 1 else sympy.Pow(base, exponent, evaluate=False)


# -------------------------------------------------------------------------------------- functions


def sqrt(argument: Term) -> Term:
    """The square root."""
    return power(argument, sympy.S.Half)


def exp(argument: Term) -> Term:
    """``e ** argument``. Logarithms in it become powers."""
    argument = add(argument)
    if argument == 0:
        return _ONE
    if argument == 1:
        return _E
    terms = argument.args if isinstance(argument, sympy.Add) else (argument,)
    powers, rest = [], []
    for term in terms:
        coefficient, inner = _split(term)
        if isinstance(inner, sympy.log):
            powers.append(power(inner.args[0], coefficient))
        else:
            rest.append(term)
    if powers:
        return multiply(exp(_joined(sympy.Add, rest, _ZERO)), *powers)
    return sympy.exp(argument, evaluate=False)


def log(argument: Term) -> Term:
    """Natural logarithm.

    Raises:
        ParameterError: the argument is a constant <= 0.
    """
    if argument.is_Rational and argument <= 0:
        raise ParameterError(f"the expression takes the logarithm of {text_of(argument)}")
    if argument == 1:
        return _ZERO
    if argument is _E:
        return _ONE
    if isinstance(argument, sympy.exp):
        return argument.args[0]
    return sympy.log(argument, evaluate=False)


def floor(argument: Term) -> Term:
    """The largest integer not above."""
    if argument.is_Rational:
        return sympy.Integer(argument.p // argument.q)
    return sympy.floor(argument, evaluate=False)


def ceil(argument: Term) -> Term:
    """The least integer not below."""
    if argument.is_Rational:
        return sympy.Integer(-(-argument.p // argument.q))
    return sympy.ceiling(argument, evaluate=False)


def minimum(*operands: Term) -> Term:
    """The smallest operand."""
    return _lattice(sympy.Min, operands, min)


def maximum(*operands: Term) -> Term:
    """The largest operand."""
    return _lattice(sympy.Max, operands, max)


def _lattice(kind: Any, operands: Iterable[Term], pick: Callable[..., Term]) -> Term:
    terms: set[Term] = set()
    for operand in operands:
        terms.update(operand.args if isinstance(operand, kind) else (operand,))
    numbers = {term for term in terms if term.is_Rational}
    rest = terms - numbers
    if numbers:
        rest.add(pick(numbers))
    return rest.pop() if len(rest) == 1 else kind(*rest, evaluate=False)


def compare(left: Term, relation: str, right: Term) -> Term:
    """A condition for :func:`where`, or its truth if both operands are numbers."""
    if left.is_Rational and right.is_Rational:
        difference = left - right
        truths = {
            "<": difference < 0,
            "<=": difference <= 0,
            ">": difference > 0,
            ">=": difference >= 0,
        }
        return truths[relation]
    return _RELATIONS[relation](left, right, evaluate=False)


def where(condition: Term, then: Term, otherwise: Term) -> Term:
    """``then`` where the condition holds, else ``otherwise``.

    Raises:
        ParameterError: the condition contains a ``where``, and sympy would multiply the cases out.
    """
    if condition.atoms(sympy.Piecewise):
        raise ParameterError(
            "the expression has where within the condition of a where; expected it outside"
        )
    if condition in (sympy.true, sympy.false):
        return then if condition else otherwise
    if then == otherwise:
        return then
    return sympy.Piecewise((then, condition), (otherwise, True), evaluate=False)


def _split(term: Term) -> tuple[Term, Term]:
    """Split a term into its rational factor and the rest, with rational factor 1."""
    if term.is_Rational:
        return term, _ONE
    if isinstance(term, sympy.Mul) and term.args[0].is_Rational:
        return term.args[0], _joined(sympy.Mul, term.args[1:], _ONE)
    return _ONE, term


def _scaled(coefficient: Term, rest: Term) -> Term:
    """Inverse of :func:`_split`."""
    if coefficient == 1:
        return rest
    if rest is _ONE:
        return coefficient
    factors = rest.args if isinstance(rest, sympy.Mul) else (rest,)
    return sympy.Mul(coefficient, *factors, evaluate=False)


def _joined(kind: Any, terms: Any, empty: Term) -> Term:
    if not terms:
        return empty
    return terms[0] if len(terms) == 1 else kind(*terms, evaluate=False)


# ------------------------------------------------------------------------------------------- text

_NAMES = {
    sympy.exp: "exp",
    sympy.log: "log",
    sympy.floor: "floor",
    sympy.ceiling: "ceil",
    sympy.Min: "min",
    sympy.Max: "max",
}
_SUM, _PRODUCT, _SIGN, _ATOM = range(4)  # how tightly a text binds


def text_of(term: Term) -> str:
    """The term as a text that reads as the same term."""
    return _text(term)[0]


def _text(term: Term) -> tuple[str, int]:
    if term.is_Rational:
        binds = _ATOM if term.q == 1 else _PRODUCT
        return f"{term.p}" if term.q == 1 else f"{term.p}/{term.q}", _SIGN if term < 0 else binds
    if term.is_Symbol:
        return term.name, _ATOM
    if term is _E:
        return "e", _ATOM
    if term is sympy.pi:
        return "pi", _ATOM
    if isinstance(term, sympy.Add):
        text = " + ".join(_bound(each, _PRODUCT) for each in term.args)
        return text.replace("+ -", "- "), _SUM
    if isinstance(term, (sympy.Mul, sympy.Pow)):
        return _text_of_product(term)
    if isinstance(term, sympy.Piecewise):
        (then, condition), (otherwise, _) = term.args
        left, right = (text_of(each) for each in condition.args)
        test = f"{left} {condition.rel_op} {right}"
        return f"where({test}, {text_of(then)}, {text_of(otherwise)})", _ATOM
    inner = ", ".join(sorted(map(text_of, term.args)))
    return f"{_NAMES[term.func]}({inner})", _ATOM


def _text_of_product(term: Term) -> tuple[str, int]:
    coefficient, rest = _split(term)
    above, below = [], []
    for factor in rest.args if isinstance(rest, sympy.Mul) else [rest]:
        base, exponent = factor.args if isinstance(factor, sympy.Pow) else (factor, _ONE)
        if exponent.is_Rational and exponent < 0:
            below.append(_text_of_power(base, -exponent))
        else:
            above.append(_text_of_power(base, exponent))
    if abs(coefficient.p) != 1 or not above:
        above.insert(0, str(abs(coefficient.p)))
    if coefficient.q != 1:
        below.insert(0, str(coefficient.q))
    text = ("-" if coefficient < 0 else "") + "*".join(above)
    if below:
        text += "/" + (below[0] if len(below) == 1 else f"({'*'.join(below)})")
    if coefficient < 0:
        return text, _SIGN
    return text, _PRODUCT if below or len(above) > 1 else _binding_of_power(rest)


def _text_of_power(base: Term, exponent: Term) -> str:
    if exponent == 1:
        return _bound(base, _ATOM)
    if exponent.is_Rational and exponent == sympy.S.Half:
        return f"sqrt({text_of(base)})"
    return f"{_bound(base, _ATOM)}**{_bound(exponent, _ATOM)}"


def _binding_of_power(term: Term) -> int:
    if isinstance(term, sympy.Pow) and term.args[1] != sympy.S.Half:
        return _PRODUCT  # a power of a power needs brackets
    return _ATOM


def _bound(term: Term, least: int) -> str:
    """The text, in brackets if it binds less tightly than its surroundings."""
    text, binds = _text(term)
    if least == _PRODUCT:  # in a sum
        return f"({text})" if binds == _SUM else text
    return text if binds == _ATOM else f"({text})"
