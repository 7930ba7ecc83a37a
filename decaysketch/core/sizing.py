"""The required sketch size for a wanted accuracy.

*Wanted*: with probability ``1 - delta`` over the choice of the hash, the estimate for a decayed
weight sum is off by less than ``epsilon`` times the sum ("sum"). Or the estimate for a share
(selectivity, rank, value frequency, and for a quantile, its rank) is off by less than ``epsilon``
("share"). This holds for one result: among ``n`` results, each is off with probability ``delta``.

*Practical* (one repetition): errors are about normal with the relative variance ``kappa /
capacity``, so ``capacity = kappa z^2 / epsilon^2`` with ``z`` the normal ``1 - delta / 2``
quantile. The worst ``kappa`` are about 2 and 1/2: if a level has just overflowed, the query reads
the next one, which contains about half as many rows, ``capacity / 2``. There is rarely more than
one hit per row, so the relative variance is about ``2 / capacity``. The variance for a share ``q``
is ``q (1 - q) <= 1/4`` of it. That holds if all observations have one time. If they are spread over
time, the recent part is read from lower levels, and measurements show about a third. See
:data:`KAPPA`.

*Proven* (several repetitions, queried with ``combine="median"``): Cormode, Tirthapura and Xu show
by Chebyshev's inequality, from pairwise independence alone, that a repetition with capacity ``60 /
epsilon^2`` (sums, Theorem 3.11, and sliding windows at query time, 4.1) or ``492 / epsilon^2``
(shares, Theorem 3.26) is off with probability below 1/3. The median of ``k`` repetitions, ``k``
odd, is off only if ``(k + 1) / 2`` repetitions are, so with probability at most ``P[Bin(k, 1/3) >=
(k + 1) / 2]``.

This module knows no parameters. :meth:`SketchParams.for_accuracy` is its interface.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal, NamedTuple, get_args

from decaysketch.core.special import ndtri
from decaysketch.errors import ParameterError

__all__ = [
    "CAPACITY_BY_KEY",
    "DEFAULT_ACCURACY",
    "DEFAULT_BY_KEY",
    "DEFAULT_CAPACITY",
    "DELTA",
    "KAPPA",
    "MAX_CAPACITY",
    "MAX_COPIES",
    "MAX_ID_BITS",
    "UNIVERSE_LIMIT",
    "Aggregate",
    "Mode",
    "Size",
    "accuracy_of",
    "capacity_for",
    "median_failure",
    "most_id_bits",
    "read_accuracy",
    "size_for",
]

Mode = Literal["practical", "proven"]
Aggregate = Literal["sum", "share"]

MAX_CAPACITY = 1 << 20  # (M + 1) capacities of rows can be numbered by 26 bits
MAX_COPIES = 64
MAX_ID_BITS = 56
UNIVERSE_LIMIT = (1 << 61) // 20  # p < 20 Y must stay below 2^61

# Capacity times the largest mean squared error, relative for sums, absolute for shares. The limits
# of the argument above; the worst that `python -m quality.sizing --hashes 300` found (a standard
# error of 8 %) were 1.74 and 0.51 with all observations at one time, 0.75 and 0.24 otherwise.
KAPPA: dict[Aggregate, float] = {"sum": 2.0, "share": 0.5}

_PROVEN = {"sum": (60, "Theorem 3.11"), "share": (492, "Theorem 3.26")}
_COPY_FAILS = Fraction(1, 3)
_BIAS_SHARE = 0.1  # of the standard error that ids which collide may take away


class Size(NamedTuple):
    """The parameters for a wanted accuracy."""

    capacity: int
    copies: int
    id_bits: int


DEFAULT_ACCURACY = 0.02
"""Default accuracy of a sketch: 2 % in 19 of 20 results."""

DEFAULT_BY_KEY = 0.05
"""Default accuracy with one sketch per key: the capacity then counts once per key."""

DELTA = 0.05
"""Probability of a larger error, if only an accuracy is given."""

_Z = 1.959963984540054
"""``ndtri(1 - DELTA / 2)``, without SciPy. Its import takes longer than most builds."""

DEFAULT_CAPACITY = 19_208
"""``capacity_for(DEFAULT_ACCURACY)``."""

CAPACITY_BY_KEY = 3_074
"""``capacity_for(DEFAULT_BY_KEY)``."""


def capacity_for(accuracy: float | str) -> int:
    """Return the smallest capacity for sums within an accuracy in 19 of 20 results ("practical").

    Args:
        accuracy: a number, 0.02, or as people write it, "2%".

    Raises:
        ParameterError: no number between 0 and 1, or one that needs too large a capacity.

    Example:
        >>> capacity_for(0.02), capacity_for("5%")
        (19208, 3074)
    """
    share = _share("accuracy", read_accuracy(accuracy) if isinstance(accuracy, str) else accuracy)
    return _practical("accuracy", share, "sum", _Z)


def accuracy_of(capacity: int) -> float:
    """Return the accuracy that a capacity gives, the inverse of :func:`capacity_for`.

    Example:
        >>> round(accuracy_of(19_208), 4), round(accuracy_of(4_000), 3)
        (0.02, 0.044)
    """
    return math.sqrt(KAPPA["sum"] / capacity) * _Z


def most_id_bits(max_weight: int) -> int:
    """Return the most id bits that leave space for the weights.

    Example:
        >>> most_id_bits(1), most_id_bits(999)
        (56, 46)
    """
    return min(MAX_ID_BITS, (UNIVERSE_LIMIT // max_weight).bit_length() - 1)


def least_id_bits(expected: int, capacity: int, max_weight: int) -> int:
    """Return the fewest id bits for an expected volume. A row stores its id, so fewer bits make
    smaller sketches.

    Hashed ids that collide lose a share ``expected / 2^(id_bits + 1)`` of the observations. The
    result allows a tenth of the standard error that the capacity leaves (:data:`KAPPA`), and at
    most a quarter of the id space in use.

    Args:
        expected: number of distinct observations in the stream's life, at least 1.
        capacity: rows per level.
        max_weight: largest weight.

    Raises:
        ParameterError: ``expected`` is no such number, or needs more bits than ``max_weight``
            leaves. The message names the largest number that fits.

    Example:
        >>> least_id_bits(1_000_000, DEFAULT_CAPACITY, 1)
        29
    """
    if isinstance(expected, bool) or not isinstance(expected, int) or expected < 1:
        raise ParameterError(f"expected is {expected!r:.40}; expected an integer of 1 or more")
    allowed = _BIAS_SHARE * math.sqrt(KAPPA["sum"] / capacity)
    allowed = min(allowed, 2.0**-3)  # a quarter of the space is in use: n / 2^(bits + 1) = 1 / 8
    most = most_id_bits(max_weight)
    for bits in range(most + 1):
        if expected <= allowed * 2.0 ** (bits + 1):
            return bits
    raise ParameterError(
        f"expected is {expected}; expected at most {int(allowed * 2.0 ** (most + 1))}: ids have at "
        f"most {most} bits with max_weight {max_weight}, and collisions of more would lose a share "
        f"above {allowed:.2g}, a tenth of the standard error at capacity {capacity}"
    )


def read_accuracy(text: str) -> float:
    """Parse an accuracy as people write it: ``2%`` or ``0.02``.

    Raises:
        ParameterError: it is no number between 0 and 1.
    """
    number = text.strip()
    try:
        found = float(number.removesuffix("%")) / (100.0 if number.endswith("%") else 1.0)
    except ValueError:
        found = math.nan
    if not 0.0 < found < 1.0:
        raise ParameterError(f"accuracy is {text!r}; expected such as '2%' or 0.02")
    return found


def size_for(
    epsilon: float,
    delta: float,
    *,
    max_weight: int,
    expected: int,
    mode: Mode = "practical",
    aggregate: Aggregate = "sum",
) -> Size:
    """Return capacity, repetitions and id bits. Arguments as ``SketchParams.for_accuracy``.

    Raises:
        ParameterError: an argument is outside its domain, or the sketch would be too large. The
            message names values that would fit.
    """
    epsilon, delta = _share("epsilon", epsilon), _share("delta", delta)
    if mode not in get_args(Mode):
        raise ParameterError(f"mode is {mode!r}; expected one of {', '.join(get_args(Mode))}")
    if aggregate not in get_args(Aggregate):
        raise ParameterError(
            f"aggregate is {aggregate!r}; expected one of {', '.join(get_args(Aggregate))}"
        )
    z = ndtri(1.0 - 0.5 * delta)
    if mode == "practical":
        capacity, copies = _practical("epsilon", epsilon, aggregate, z), 1
    else:
        constant, theorem = _PROVEN[aggregate]
        copies, why = _copies_for(delta), f"{constant} / epsilon^2 of {theorem}"
        capacity = _capacity("epsilon", epsilon, float(constant), why)
    return Size(capacity, copies, _id_bits_for(max_weight, expected, epsilon, delta, z))


def _practical(name: str, epsilon: float, aggregate: Aggregate, z: float) -> int:
    kappa = KAPPA[aggregate]
    why = f"{kappa:g} z^2 / {name}^2 with z = {z:.4g}"
    return _capacity(name, epsilon, kappa * z * z, why)


def _capacity(name: str, epsilon: float, factor: float, why: str) -> int:
    # The relative 1e-9 is for rounding: 60 / 0.05^2 is 24,000, not 24,001.
    capacity = max(1, math.ceil(factor / (epsilon * epsilon) * (1.0 - 1e-9)))
    if capacity > MAX_CAPACITY:
        smallest = math.sqrt(factor / MAX_CAPACITY)
        raise ParameterError(
            f"{name} is {epsilon!r}, which takes a capacity of {capacity} ({why}); expected at "
            f"most {MAX_CAPACITY}, that is an {name} of {smallest:.2g} or more"
        )
    return capacity


def _id_bits_for(max_weight: int, expected: int, epsilon: float, delta: float, z: float) -> int:
    """Return the most bits that leave space for the weights, for the fewest possible collisions."""
    for name, number in (("max_weight", max_weight), ("expected", expected)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ParameterError(f"{name} is {number!r}; expected an integer of 1 or more")
    ids = UNIVERSE_LIMIT // max_weight
    if not ids:
        raise ParameterError(f"max_weight is {max_weight}; expected at most {UNIVERSE_LIMIT}")
    bits = most_id_bits(max_weight)
    bias = expected / 2.0 ** (bits + 1)
    allowed = _BIAS_SHARE * epsilon / z
    if bias > allowed:
        raise ParameterError(
            f"expected is {expected} and a share of {bias:.2g} would be lost to collisions of "
            f"{bits}-bit ids (max_weight {max_weight} leaves no more bits); expected at most "
            f"{allowed:.2g}, a tenth of the standard error epsilon / z for epsilon {epsilon!r} "
            f"and delta {delta!r}"
        )
    return bits


def _copies_for(delta: float) -> int:
    for copies in range(1, MAX_COPIES + 1, 2):
        if median_failure(copies) <= delta:
            return copies
    most = MAX_COPIES - 1 + MAX_COPIES % 2
    raise ParameterError(
        f"delta is {delta!r}; expected {float(median_failure(most)):.2g} or more, what the median "
        f"of {most} copies reaches"
    )


def median_failure(copies: int) -> Fraction:
    """Return ``P[Bin(k, 1/3) >= (k + 1) / 2]`` for odd ``k``, exactly: half the repetitions
    fail.
    """
    fails, holds = _COPY_FAILS, 1 - _COPY_FAILS
    return sum(
        (
            math.comb(copies, j) * fails**j * holds ** (copies - j)
            for j in range((copies + 1) // 2, copies + 1)
        ),
        Fraction(0),
    )


def _share(name: str, value: Any) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0.0 < value < 1.0:
        raise ParameterError(f"{name} is {value!r}; expected a number between 0 and 1")
    return float(value)
