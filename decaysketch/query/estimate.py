"""A result with its interval, and the mathematics for the intervals.

Every query returns an :class:`Estimate`. Its interval aims to contain the true result with the
stated confidence, over the choice of the hash function. All intervals have one origin. A sum over
masses with one sign, seen as a sample, has a gamma interval (:func:`part_interval`).
Every aggregate is a contrast of two such parts (:func:`contrast`, :func:`share_interval`). Their
coverage is measured (``python -m quality.intervals``), not proved. See ``docs/estimators.md``.

The functions in this module take and return plain numbers or arrays. They do not depend on
sketches.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.special import gammaincinv, ndtri, stdtrit
from decaysketch.errors import ParameterError

__all__ = [
    "CAVEATS",
    "Estimate",
    "Interval",
    "as_of",
    "check_confidence",
    "contrast",
    "first_true",
    "gamma_quantile",
    "inequality",
    "part_half",
    "part_interval",
    "rank_balance",
    "share_interval",
    "wider",
    "wider_by",
]

Float64Array = npt.NDArray[np.float64]

_NUMBERS = (int, float, np.integer, np.floating)

# E x^3 E x / (E x^2)^2 of the distances x of a normal variable from its mean: hits of such sizes
# count as equal (theirs is 1). It is 1.5 for exponential sizes, 2.7 for log-normal ones.
_MILD = 4.0 / math.pi


#: All names in ``caveats`` of an estimate, with their meanings.
CAVEATS: Mapping[str, str] = MappingProxyType(
    {
        "assumes-independence": "messages that no source heard have no bound without an assumption "
        "about the sources: the range spans several models and may miss the true number",
        "bucket-values": "values are histogram buckets: the result uses their middles, and the "
        "interval allows for any value within them, but may be too narrow for a variance, or for "
        "a condition that rises and falls",
        "clocks-disagree": "the times of duplicates differ so much that few messages have a known "
        "set of sources",
        "crowded-ids": "the ids fill more than a quarter of their space, so hits of different "
        "observations are not independent: use two more id_bits",
        "decay-on-grid": "the decay was checked on a grid of ages, not proved to fall everywhere",
        "equal-values": "all sampled values are equal: the range of other values is unknown",
        "faded": "weights are below the range of a 64-bit float, or negligible next to newer rows",
        "few-series": "a few series, or a single one, decide the result: it may be off by more "
        "than the interval shows, more often than stated: use a resolution or a larger capacity",
        "few-rows": "a few retained observations decide the result: it may be off by more than the "
        "interval shows, more often than stated",
        "hidden-restarts": "counters stay below earlier values for longer than clocks usually "
        "differ: if they restart within the guard, their counts between two restarts are missing. "
        "Feed start times, or set guard=0 for a single collector",
        "no-overlap": "no two sources heard the same message: the number of unheard messages has "
        "no upper bound, and its lower bound comes from a model alone",
        "rare": "less than 0.1 % of the messages would be unheard: only the lower bound is "
        "meaningful",
        "silences": "a source heard nothing in a period in which others heard messages: it may "
        "have been down, and this lowers its shares",
        "small-group": "the group has fewer than 20 retained rows: its interval is wide, and a few "
        "more rows may change the estimate much",
        "span-cut": "the window begins inside a time span for which only the extreme value is "
        "stored: both bounds are guaranteed, and the result may lie anywhere between them",
        "unequal-weights": "much lighter observations than the sampled ones may be missing: the "
        "result assumes weights like the sampled ones, and if these differ much, the interval "
        "allows for as many light observations as could be missing",
        "weights-disagree": "an id has several weights: each counts as a separate message, so "
        "exclusive counts are too high",
        "weight-on-grid": "the largest weight of discarded rows was read on a grid of times, or "
        "from the retained rows, and is not proved",
    }
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated number and its interval.

    ``<``, ``<=``, ``>`` and ``>=`` compare the value with a number, and ignore the interval. Two
    estimates are not ordered: two intervals do not show whether their difference is 0. ``b - a``
    does, if both come from one sketch: it has a joint interval, as the sketch method ``compare``.
    Without a joint interval it raises :class:`~decaysketch.errors.ParameterError`.

    Attributes:
        value: the estimate. ``float(estimate)`` gives it too. NaN if the aggregate is not
            defined (the mean of nothing).
        lower: lower bound of the interval.
        upper: upper bound of the interval. A bound is infinite if the sample gives none.
        stderr: standard error. If nothing was sampled, the standard error of a single hit.
        confidence: intended probability that the interval contains the true result.
        exact: nothing was sampled: value, lower and upper are the result itself (up to
            ``collision_bias``, and to floating-point rounding).
        rows: retained observations that were read. 0, with a count of 0 and a mean of NaN, if none
            lies in the queried range, as before the oldest. That is no caveat, because the interval
            shows whether there was none, or none was retained.
        collision_bias: relative share of observations expected to be lost because two keys have one
            id, if ids are hashed keys (:func:`~decaysketch.observation_ids`). Distinct numbers used
            as ids lose none.
        caveats: names of reasons to trust the interval less than it states, or for a missing bound,
            in order. :data:`CAVEATS` explains them. Most results have none.
        sure_upper: guaranteed upper bound: the result is no larger, with certainty. Counters have
            such a bound, samples have none (None).
        changed: for two compared results, whether the interval excludes that they are equal. None
            if nothing was compared.
        now: the query time, if the query named none and the newest was used. Not compared, and not
            in :meth:`to_dict`: it is part of the query.
        asked: the query, for differences. Neither compared nor stored.
    """

    value: float
    lower: float
    upper: float
    stderr: float
    confidence: float
    exact: bool
    rows: int
    collision_bias: float
    caveats: tuple[str, ...] = ()
    sure_upper: float | None = None
    changed: bool | None = None
    now: int | None = field(default=None, compare=False)
    asked: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.caveats, tuple):  # as JSON gives them
            object.__setattr__(self, "caveats", tuple(self.caveats))

    def __float__(self) -> float:
        return self.value

    def __format__(self, spec: str) -> str:
        """Return the value in a number format, as in ``f"{estimate:.2f}"``. Without one, return
        ``str``.
        """
        return format(self.value, spec) if spec else str(self)

    def __sub__(self, other: object) -> Estimate:
        """Return the difference. A number moves the interval. An estimate from the same sketch
        gives a joint interval.
        """
        if isinstance(other, _NUMBERS):
            return self._moved(float(other))
        if not isinstance(other, Estimate):
            return NotImplemented
        if self.asked is None or other.asked is None:
            raise ParameterError(
                "these estimates have no joint interval: it needs two results of a sketch's own "
                "methods, such as mean. Use the sketch method compare, or subtract the values: "
                "float(b) - float(a)"
            )
        found: Estimate = self.asked.less(other.asked)
        return found

    def _moved(self, by: float) -> Estimate:
        sure = None if self.sure_upper is None else self.sure_upper - by
        return replace(
            self, value=self.value - by, lower=self.lower - by, upper=self.upper - by,
            sure_upper=sure, asked=None,
        )  # fmt: skip

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple(
            None if each.name == "asked" else getattr(self, each.name) for each in fields(self)
        )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for each, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, each.name, value)

    def __lt__(self, other: object) -> bool:
        return bool(self.value < other) if isinstance(other, _NUMBERS) else NotImplemented

    def __le__(self, other: object) -> bool:
        return bool(self.value <= other) if isinstance(other, _NUMBERS) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return bool(self.value > other) if isinstance(other, _NUMBERS) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return bool(self.value >= other) if isinstance(other, _NUMBERS) else NotImplemented

    def __repr__(self) -> str:
        caveats = f", but {', '.join(self.caveats)}" if self.caveats else ""
        if self.now is not None:
            caveats += f", now={self.now}"
        if self.exact:
            return f"Estimate({self.value:.6g}, exact, {self.rows} rows{caveats})"
        surely = "" if self.sure_upper is None else f", surely at most {self.sure_upper:.6g}"
        return (
            f"Estimate({self.value:.6g}, {100 * self.confidence:.4g} % in "
            f"[{self.lower:.6g}, {self.upper:.6g}]{surely}, {self.rows} rows{caveats})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form. Values that are not finite are None. ``caveats``,
        ``sure_upper`` and ``changed`` are included if there are any.
        """
        found: dict[str, Any] = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name in _STORED
            if (value := getattr(self, name)) is not None or name not in ("sure_upper", "changed")
        }
        return found | {"caveats": list(self.caveats)} if self.caveats else found

    def over(self, magnitude: int) -> Estimate:
        """Return the estimate times ``2^magnitude``. If a number falls below the smallest normal
        float64, the bounds contain the lost digits, and the result is not exact.
        """
        if not magnitude:
            return self
        ends = (self.value, self.lower, self.upper, self.stderr)
        with np.errstate(over="ignore"):
            value, lower, upper, stderr = (float(np.ldexp(end, magnitude)) for end in ends)
        lost = any(
            end != 0.0 and abs(found) < sys.float_info.min
            for end, found in zip(ends, (value, lower, upper, stderr), strict=True)
        )
        surely = self._most_over(magnitude)
        if not lost:
            return replace(
                self, value=value, lower=lower, upper=upper, stderr=stderr, sure_upper=surely
            )
        least = 0.0 if self.lower >= 0.0 else -math.inf
        most = 0.0 if self.upper <= 0.0 else math.inf
        return replace(
            self,
            value=value,
            lower=max(math.nextafter(lower, -math.inf), least),
            upper=min(math.nextafter(upper, math.inf), most),
            stderr=math.nextafter(stderr, math.inf),
            exact=False,
            caveats=(*self.caveats, "faded"),
            sure_upper=surely,
        )

    def _most_over(self, magnitude: int) -> float | None:
        """Return the guaranteed upper bound times ``2^magnitude``, rounded up if that is not a
        normal float64.
        """
        if self.sure_upper is None:
            return None
        with np.errstate(over="ignore"):
            most = float(np.ldexp(self.sure_upper, magnitude))
        lost = self.sure_upper > 0.0 and most < sys.float_info.min
        return math.nextafter(most, math.inf) if lost else most


_STORED = tuple(
    each.name for each in fields(Estimate) if each.name not in ("caveats", "now", "asked")
)


def as_of(now: int, found: Any) -> Any:
    """Set the time in a result's estimates: in the result itself, or in its parts."""
    if isinstance(found, Estimate):
        return replace(found, now=now)
    if isinstance(found, list):
        return [as_of(now, each) for each in found]
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return type(found)(*(as_of(now, each) for each in found))
    return found


class Interval(NamedTuple):
    """An estimate and its interval bounds: numbers or arrays."""

    value: Any
    lower: Any
    upper: Any


def check_confidence(confidence: float) -> float:
    """Return ``confidence`` as a float.

    Raises:
        ParameterError: it is not a number strictly between 0 and 1.
    """
    number = isinstance(confidence, (int, float, np.integer, np.floating))
    if not number or isinstance(confidence, bool) or not 0.0 < confidence < 1.0:
        raise ParameterError(f"confidence is {confidence!r}; expected a number between 0 and 1")
    return float(confidence)


def part_interval(
    exact: npt.ArrayLike,
    sampled: npt.ArrayLike,
    variance: npt.ArrayLike,
    step: npt.ArrayLike,
    thinning: Any,
    certain: npt.ArrayLike,
    confidence: float,
    *,
    skew: npt.ArrayLike | None = None,
    unequal: npt.ArrayLike | None = None,
    seen: npt.ArrayLike | None = None,
) -> Interval:
    """Return the interval for a sum over non-negative masses: an exact part and a sampled one.

    The sampled part is a weighted sum over rare hits. If all hits have one size, the interval is
    Jeffreys' interval for a Poisson mean: the quantiles of a gamma variable with half a hit more
    than was seen. If hits have several sizes, it uses the gamma variable with the same mean and
    variance, and the half hit is one of the largest, as in Fay and Feuer 1997. (Their interval adds
    a complete hit at the upper bound and none at the lower bound. It covers more than it states.)
    The interval is therefore never 0 +- 0.

    If hits differ in size, the estimate and its variance lack large hits that were not seen. The
    upper bound then adds up to a complete hit, depending on how far the third moment exceeds the
    gamma variable's third moment.

    Args:
        exact: known mass, >= 0.
        sampled: estimates of the sampled mass, >= 0.
        variance: their estimated variances.
        step: the largest mass that one more hit may add, >= 0. 0 where nothing is sampled.
        thinning: variance of a hit over ``step^2``: 1 for rare hits.
        certain: part of the sampled mass that was really seen: a lower bound.
        confidence: between 0 and 1.
        skew: third moments of the sampled mass, see :func:`inequality`. None if all hits have one
            size, or nearly.
        unequal: replaces the inequality of hits that the skew shows.
        seen: the largest mass of a hit that was seen, where that is less than ``step``.
    """
    known, y, k = (np.asarray(column, dtype=np.float64) for column in (exact, sampled, step))
    spread = np.maximum(variance, 0.0)
    tail = 0.5 * (1.0 - confidence)
    least = k if seen is None else np.asarray(seen, dtype=np.float64)
    if unequal is None:
        unequal = 1.0 if skew is None else inequality(y, spread, skew)
    unseen = np.clip(0.5 * np.asarray(unequal) / _MILD, 0.5, 1.0)
    lower = _lower_end(y, spread, least, thinning, tail, certain)
    upper = _upper_end(y, spread, k, thinning, tail, unseen)
    return Interval(known + y, known + lower, known + upper)


def part_half(
    end: Literal["lower", "upper"],
    exact: npt.ArrayLike,
    sampled: npt.ArrayLike,
    variance: npt.ArrayLike,
    step: npt.ArrayLike,
    thinning: Any,
    confidence: float,
) -> Interval:
    """Return :func:`part_interval` with one of its ends alone, in half the time. The other end is
    the estimate.
    """
    known, y, k = (np.asarray(column, dtype=np.float64) for column in (exact, sampled, step))
    spread, tail = np.maximum(variance, 0.0), 0.5 * (1.0 - confidence)
    if end == "lower":
        return Interval(known + y, known + _lower_end(y, spread, k, thinning, tail, 0.0), known + y)
    return Interval(known + y, known + y, known + _upper_end(y, spread, k, thinning, tail, 0.5))


def _lower_end(
    y: Float64Array,
    spread: Float64Array,
    step: Float64Array,
    thinning: Any,
    tail: float,
    certain: npt.ArrayLike,
) -> Any:
    # A hit that was seen is no larger than all that was seen: without this, a step far beyond the
    # sampled mass would lift the lower end up to the estimate.
    lower = gamma_quantile(y, spread, np.minimum(step, y), 0.5, thinning, tail)
    return np.minimum(np.maximum(lower, certain), y)


def _upper_end(
    y: Float64Array, spread: Float64Array, step: Float64Array, thinning: Any, tail: float,
    unseen: Any,
) -> Any:  # fmt: skip
    return np.maximum(gamma_quantile(y, spread, step, unseen, thinning, 1.0 - tail), y)


def inequality(
    sampled: npt.ArrayLike, variance: npt.ArrayLike, third: npt.ArrayLike, larger: Any = 0.0
) -> Any:
    """Return how unequal hits are: the third moment of a sampled mass over the third moment of the
    gamma variable with its mean and variance. 1 if all hits have one size, larger otherwise.

    Args:
        sampled: estimates of the sampled mass.
        variance: their estimated variances.
        third: their third moments about the mean, estimated like the variances: the sum of variance
            times hit size.
        larger: the size of a hit that may be missing, if it is larger than all hits seen. Half a
            hit then counts as seen.
    """
    half = 0.5 * larger
    mean, second = np.asarray(sampled) + half, np.asarray(variance) + half * larger
    square = second * second
    moment = np.asarray(third) + half * larger * larger
    return moment * mean / np.where(square > 0.0, square, np.inf)


def gamma_quantile(
    y: Float64Array,
    variance: Float64Array,
    step: Float64Array,
    unseen: Any,
    thinning: Any,
    level: float,
) -> Float64Array:
    """Return the gamma quantile for mean ``y``, the variance, and additional hits."""
    mean = y + unseen * step
    scale = (variance + unseen * thinning * step * step) / np.where(mean > 0.0, mean, 1.0)
    shape = mean / np.where(scale > 0.0, scale, 1.0)
    some = scale > 0.0
    if np.ndim(some) and not np.all(some):  # as the negative parts of counts
        quantile = np.array(np.broadcast_to(y, mean.shape), dtype=np.float64)
        quantile[some] = gammaincinv(shape[some], level) * scale[some]
    else:
        quantile = np.where(some, gammaincinv(shape, level) * scale, y)
    return np.where(np.isfinite(quantile), quantile, 0.0)  # amounts near the smallest float64


def contrast(positive: Interval, negative: Interval) -> Interval:
    """Return the interval for ``P - N`` from the intervals for P and N.

    The method is MOVER (Zou and Donner 2008). The distance to a bound is the root of the summed
    squared distances of the parts, each towards the bound that moves the difference that way.
    """
    value = positive.value - negative.value
    return Interval(
        value,
        value - np.hypot(positive.value - positive.lower, negative.upper - negative.value),
        value + np.hypot(positive.upper - positive.value, negative.value - negative.lower),
    )


def wider(parts: Float64Array, confidence: float) -> float:
    """Return Student's quantile over the normal one, for a variance with these parts, float64[n].

    It has ``2 V^2 / sum v^2`` degrees of freedom for a variance V with the parts v (Satterthwaite
    1946).
    """
    return float(wider_by((parts * parts).sum(), parts.sum(), confidence))


def wider_by(
    squares: npt.ArrayLike, variance: npt.ArrayLike, confidence: float
) -> npt.NDArray[np.float64]:
    """Return the same as :func:`wider`, for variances and the sums over their squared parts."""
    some = np.asarray(squares) > 0.0
    freedom = 2.0 * np.square(variance) / np.where(some, squares, 1.0)
    level = 0.5 + 0.5 * confidence
    return np.where(some, stdtrit(np.maximum(freedom, 1.0), level) / ndtri(level), 1.0)


def rank_balance(part: Interval, rest: Interval, q: float) -> Interval:
    """Return the interval for ``(1 - q) A - q C``: it contains 0 if A / (A + C) may be q."""
    return contrast(
        Interval(*((1.0 - q) * end for end in part)), Interval(*(q * end for end in rest))
    )


def first_true(start: int, stop: int, holds: Callable[[int], bool]) -> int:
    """Return the first of start..stop - 1 from which a monotone condition holds, else stop."""
    return bisect_left(range(stop), True, lo=start, key=holds)


def share_interval(part: Interval, rest: Interval) -> Interval:
    """Return the interval for ``A / (A + C)`` from the intervals for A and C. Neither is negative.

    A share q is in the interval if the interval for the contrast ``(1 - q) A - q C`` contains 0.
    Unlike Wilson's interval with an effective sample size, it uses the exact share in either part,
    and the effect of one more hit in either.
    """
    a, c = part.value, rest.value
    total = a + c
    value = a / np.where(total > 0.0, total, 1.0)
    upper = _share_limit(a, c, part.upper - a, c - rest.lower)
    lower = 1.0 - _share_limit(c, a, rest.upper - c, a - part.lower)
    value = np.where(total > 0.0, value, np.nan)
    return Interval(
        value,
        np.where(total > 0.0, np.clip(lower, 0.0, value), 0.0),
        np.where(total > 0.0, np.clip(upper, value, 1.0), 1.0),
    )


def _share_limit(a: Any, c: Any, rise: Any, fall: Any) -> Any:
    """Return the root q in [a / (a + c), 1] of ``(1 - q) a - q c + hypot((1 - q) rise, q fall)``.

    ``fall <= c``, so the expression is >= 0 at one bound and <= 0 at the other. Squared:
    ``f q^2 - 2 h q + e = 0``. The form below is the root in between.
    """
    total = a + c
    f = total * total - rise * rise - fall * fall
    h = a * total - rise * rise
    e = a * a - rise * rise
    # h^2 - e f, written so that small distances do not cancel.
    root = np.sqrt(np.maximum(rise * rise * c * c + fall * fall * e, 0.0))
    # Two forms of one root: each where it does not cancel.
    ahead = h >= 0.0
    top = np.where(ahead, h + root, e)
    bottom = np.where(ahead, f, h - root)
    return np.where(bottom != 0.0, top / np.where(bottom != 0.0, bottom, 1.0), 1.0)
