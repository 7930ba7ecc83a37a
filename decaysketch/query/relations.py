"""How columns relate: ratio, covariance, correlation and linear regression, for all groups at once.

A sample without groups is one group.

Each is a smooth function over decayed sums. Its interval comes from its linearisation: a row's
*influence* is the shift in the result per unit mass. The interval is the one for every signed sum
(:func:`~decaysketch.query.aggregates.signed_sum`), around the result.

============= ==================================================================================
ratio         ``(x - R y) / Y``
covariance    ``(dx dy - c) / W``
correlation   ``(u v - r (u^2 + v^2) / 2) / (W (1 - r^2))`` on Fisher's scale ``atanh r``, with
              ``u`` and ``v`` in standard deviations. The bounds are transformed back
regression    ``(X' M X)^-1 x e`` with the residual ``e``, from a QR factorisation of centred and
              scaled columns
============= ==================================================================================

``M`` contains the masses, ``W`` is their sum, and ``Y`` the decayed sum over ``y``.

*Few rows.* A row pulls the fit towards itself. So each influence is over ``1 - leverage``, as if
the row were not in the fit (the jackknife, MacKinnon and White 1985, HC3). The variance is an
estimate too. So bounds are wider by Student's t over the normal quantile, with ``2 V^2 / sum v^2``
degrees of freedom, for a variance ``V`` with the parts ``v`` (Satterthwaite 1946).

Rows with a null do not count. A condition counts as 1 or 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.text.expression import MAX_OPERATIONS, Bound, Kind, bind
from decaysketch.errors import ParameterError
from decaysketch.query import aggregates
from decaysketch.query.aggregates import LEAST_REST, OUTWEIGHED
from decaysketch.query.columns import SampleTable
from decaysketch.query.estimate import Interval, check_confidence, wider_by
from decaysketch.query.group_sums import (
    EstimateLists,
    Estimates,
    LightRows,
    Parts,
    Sizes,
    Terms,
    estimates_of,
    extremes,
    largest,
)
from decaysketch.query.modifiers import schema_of_sample
from decaysketch.query.sample import Columns, Sample

__all__ = [
    "KINDS",
    "MOST_COLUMNS",
    "alone",
    "correlation",
    "covariance",
    "fault_of_columns",
    "is_level",
    "ratio",
    "regression",
]

MOST_COLUMNS = 9
"""Columns in a regression, with the explained one."""

KINDS: tuple[Kind, ...] = ("number", "truth", "time")
"""Types that a column may have."""

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

_NEARLY = 1e-12  # rounding, in standard deviations
_CONDITION = 1e8  # above it, a scaled column is a combination of others


def alone(relation: Callable[..., Any]) -> Callable[..., Any]:
    """Return a relation for one sample, as its only group."""

    def ask(sample: Sample, columns: Sequence[str], *, confidence: float = 0.95) -> Any:
        confidence = check_confidence(confidence)
        return relation(Parts.alone(sample, confidence), columns)[0]

    return ask


class _Rows(NamedTuple):
    """Sample rows without a null, known masses first.

    Attributes:
        parts: these rows by group.
        columns: their masses.
        group: the group of each.
        data: float64[n] for each column.
    """

    parts: Parts
    columns: Columns
    group: IntArray
    data: list[Float64Array]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Rows of each group."""
        return np.bincount(self.group, minlength=self.parts.size)

    @property
    def weight(self) -> Float64Array:
        """Each group's mass."""
        return self.parts.sum(self.group, self.columns.masses)

    def sum(self, column: Float64Array) -> Float64Array:
        """Return a column's decayed sum by group."""
        return self.parts.sum(self.group, self.columns.masses * column)

    def is_level(self, column: Float64Array) -> BoolArray:
        """Return the groups in which a column has one value."""
        low, high = extremes(self.group, column, self.parts.size)
        return np.asarray(high - low <= _NEARLY * np.maximum(np.abs(low), np.abs(high)))

    def faded(self, weight: Float64Array) -> BoolArray:
        """Return the groups where one more hit may outweigh all stored rows."""
        return np.asarray(self.parts.step * OUTWEIGHED > weight)

    def estimates(
        self, value: Float64Array, influence: Float64Array, leverage: Float64Array,
        unbounded: Sequence[tuple[str, BoolArray]], *, of_unit: bool = False,
        shape: _Shape | None = None, within: Sequence[Float64Array] = (),
    ) -> Estimates:  # fmt: skip
        """Return the estimates for a smooth function over sums.

        Args:
            value: the results, NaN where undefined.
            influence: float64[n], the shift in the result per unit mass.
            leverage: float64[n], each row's share in its own fit.
            unbounded: caveats, each with its groups. Their results have no bound but the range.
            of_unit: the sums are over observations, not over their weights.
            shape: the intervals' scale. None: the results' scale.
            within: float64[n], influences on sums that the function is of. A few rows decide the
                result if they decide one of them.
        """
        parts, columns, group, size = self.parts, self.columns, self.group, self.parts.size
        shape = (
            _Shape(value, np.ones(size), np.asarray, -math.inf, math.inf)
            if shape is None
            else shape
        )
        x = influence / np.maximum(1.0 - leverage, LEAST_REST)
        open_groups = np.any([groups for _, groups in unbounded], axis=0) | np.isnan(value)
        x = np.where(open_groups[group], 0.0, x)
        terms = Terms.of(parts, columns, group, x)
        if of_unit and parts.sample.weighted:
            around, missed = self._over_weights(x, terms)
        else:
            sizes = Sizes.of(parts, columns, group, x).largest()
            around, missed = terms.signed(parts, terms.hits(parts, sizes=sizes)), []
        tail = slice(columns.exact, None)
        parts_of_variance = columns.variances[tail] * x[tail] * x[tail]
        wider = wider_by(
            parts.sum(group[tail], parts_of_variance * parts_of_variance),
            parts.sum(group[tail], parts_of_variance), parts.level,
        )  # fmt: skip
        middle, spread, step = shape.middle, around.spread, around.step
        lower = shape.back(middle - wider * (around.ends.value - around.ends.lower))
        upper = shape.back(middle + wider * (around.ends.upper - around.ends.value))
        half = 0.5 * (shape.most - shape.least)
        spread = np.where(open_groups, half * half, spread * shape.slope**2)
        step = np.where(open_groups, 0.0, step * shape.slope)
        ends = Interval(
            value, np.where(open_groups, shape.least, lower),
            np.where(open_groups, shape.most, upper),
        )  # fmt: skip
        decided = [around.few, *(self._few(each, leverage, open_groups) for each in within)]
        few = np.asarray(np.any(decided, axis=0))
        few = few if not missed else few & ~missed[0]
        caveats = [("few-rows", few & ~open_groups)]
        if missed:
            caveats.insert(0, ("unequal-weights", (missed[0] | missed[1]) & ~open_groups))
        return estimates_of(
            parts, ends, spread, step, self.counts, [*unbounded, *caveats],
            least=shape.least, most=shape.most,
        )  # fmt: skip

    def _few(
        self, influence: Float64Array, leverage: Float64Array, open_groups: BoolArray
    ) -> BoolArray:
        """Return the groups where a few rows decide a sum."""
        x = influence / np.maximum(1.0 - leverage, LEAST_REST)
        x = np.where(open_groups[self.group], 0.0, x)
        return Terms.of(self.parts, self.columns, self.group, x).few

    def _over_weights(self, x: Float64Array, terms: Terms) -> tuple[Any, list[BoolArray]]:
        """Return the sums of x, a function over weights, and the groups in which light observations
        are seldom seen or would decide the sum.
        """
        parts, columns, group, size = self.parts, self.columns, self.group, self.parts.size
        function = x * columns.weights
        of_rows = Sizes.of(parts, columns, group, function, over_weights=True)
        light_rows = LightRows(parts, columns, group, function)
        unequal = light_rows.unequal(terms, parts.step, lambda some: x[some])
        sizes = [
            np.where(unequal, np.maximum(usual, most), usual)
            for usual, most in zip(of_rows.largest(over_weights=True), of_rows[:2], strict=True)
        ]
        around = terms.signed(parts, terms.hits(parts, sizes=sizes), larger=light_rows.larger)
        light = parts.step * largest(group, np.abs(function), size)
        decisive = aggregates.may_miss_light(parts.sample, light, around.step, around.spread)
        return around, [unequal, decisive & ~unequal]


def is_level(column: Float64Array) -> bool:
    """Return whether a column has one value, but for rounding."""
    return bool(np.ptp(column) <= _NEARLY * np.abs(column).max())


class _Shape(NamedTuple):
    """The scale on which intervals are symmetric.

    Attributes:
        middle: the results there.
        slope: how fast results change with it.
        back: returns results.
        least, most: the range of results.
    """

    middle: Float64Array
    slope: Float64Array
    back: Callable[[Float64Array], Float64Array]
    least: float
    most: float


def _read(parts: Parts, columns: Sequence[str], *, counted: bool = False) -> _Rows:
    """Return the rows without a null. With ``counted``, sums are over observations.

    Raises:
        ParameterError: a text cannot be read, is no number, or is infinite for a row.
    """
    schema = schema_of_sample(parts.sample)
    bounds = [bind("column", text, schema, *KINDS) for text in columns]
    operations = sum(bound.operations for bound in bounds)
    if operations > MAX_OPERATIONS:
        raise ParameterError(
            f"columns have {operations} operations together; expected at most {MAX_OPERATIONS}"
        )
    data = _evaluated(parts.sample, bounds)
    if np.isnan(data).any():
        parts = parts.only(lambda each: np.all(~np.isnan(_evaluated(each, bounds)), axis=0))
        data = _evaluated(parts.sample, bounds)
    if counted:  # after the columns are read, since it has weights of 1
        parts = parts.per_observation()
    sample = parts.sample
    beside = [sample.beside(column, valued=False) for column in data]
    return _Rows(parts, sample.columns, parts.beside(valued=False), beside)


def _evaluated(sample: Sample, bounds: Sequence[Bound]) -> Float64Array:
    """Return float64[columns, n], NaN where null."""
    table = SampleTable(sample)
    data = np.array([bound(table).floats for bound in bounds])
    if np.isinf(data).any():
        column, row = (int(place[0]) for place in np.nonzero(np.isinf(data)))
        raise ParameterError(
            f"columns[{column}] {bounds[column].text!r} is {data[column, row]} for a row of time "
            f"{int(sample.times[row])}; expected finite numbers, or null"
        )
    return data


@np.errstate(all="ignore")
def ratio(parts: Parts, columns: Sequence[str]) -> Estimates:
    """Return a column's decayed sum over another's, by group.

    Args:
        parts: observations and masses, by group.
        columns: two expressions: the numerator and the denominator.

    Raises:
        ParameterError: an expression cannot be read, is no number, or is infinite for a row.

    Complexity: O(operations * n).
    """
    rows = _read(parts, columns, counted=True)
    group = rows.group
    over = rows.columns.weights if rows.parts.sample.weighted else 1.0  # as :func:`total`
    x, y = (column / over for column in rows.data)
    below = rows.sum(y)
    value = np.where(below != 0.0, rows.sum(x) / below, np.nan)
    rest = x - value[group] * y
    there = below != 0.0
    equal = there & ~(largest(group, np.abs(rest), rows.parts.size) > 0.0)  # the same for each row
    faded = there & ~equal & rows.faded(rows.weight)
    unbounded = [("equal-values", equal), ("faded", faded)]
    below = below[group]
    return rows.estimates(
        value, rest / below, rows.columns.masses * y / below, unbounded, of_unit=True
    )


class _Centred(NamedTuple):
    """Two columns around their means."""

    dx: Float64Array
    dy: Float64Array
    weight: Float64Array
    level: BoolArray

    @classmethod
    def of(cls, rows: _Rows) -> _Centred:
        weight = rows.weight
        x, y = (column - (rows.sum(column) / weight)[rows.group] for column in rows.data)
        level = rows.is_level(rows.data[0]) | rows.is_level(rows.data[1])
        return cls(x, y, weight, level)


@np.errstate(all="ignore")
def covariance(parts: Parts, columns: Sequence[str]) -> Estimates:
    """Return the covariance between two columns, weighted by decayed weight (divided by W).

    Args, errors and complexity are as in :func:`ratio`. As in
    :func:`~decaysketch.query.aggregates.variance`, the result adds the covariance between the
    fitted means, since the products are too small by it.
    """
    rows = _read(parts, columns)
    pair, group = _Centred.of(rows), rows.group
    weight, some = pair.weight, pair.weight > 0.0
    products = pair.dx * pair.dy
    value = np.where(some, rows.sum(products) / weight, np.nan)
    level = some & pair.level
    faded = some & ~level & rows.faded(weight)
    exact = ~(rows.parts.step > 0.0)
    fitted = rows.parts.sum(group, rows.columns.variances * products) / weight**2
    fitted = np.where(exact | level | faded, 0.0, fitted)
    influence = (products - value[group]) / weight[group]
    unbounded = [("equal-values", level), ("faded", faded)]
    return rows.estimates(value + fitted, influence, rows.columns.masses / weight[group], unbounded)


@np.errstate(all="ignore")
def correlation(parts: Parts, columns: Sequence[str]) -> Estimates:
    """Return Pearson's correlation between two columns, weighted by decayed weight.

    Args, errors and complexity are as in :func:`ratio`. Both deviations are as uncertain as
    variances: a heavy tail may lack its largest rows, and no row in the products shows it.
    """
    rows = _read(parts, columns)
    pair, group = _Centred.of(rows), rows.group
    weight, some = pair.weight, pair.weight > 0.0
    u, v = (each / np.sqrt(rows.sum(each * each) / weight)[group] for each in (pair.dx, pair.dy))
    value = np.clip(rows.sum(u * v) / weight, -1.0, 1.0)
    value = np.where(some & ~pair.level, value, np.nan)
    rest = 1.0 - value * value
    level = some & (pair.level | (rest <= _NEARLY))  # all read rows may lie on a line
    faded = some & ~level & rows.faded(weight)
    over, slope = weight[group], rest[group]
    influence = (u * v - 0.5 * value[group] * (u * u + v * v)) / (over * slope)
    leverage = rows.columns.masses * (1.0 + 0.5 * (u * u + v * v)) / over
    found = rows.estimates(
        value, influence, np.minimum(leverage, 1.0), [("equal-values", level), ("faded", faded)],
        shape=_Shape(np.arctanh(value), rest, np.tanh, -1.0, 1.0),
        within=[(each * each - 1.0) / over for each in (u, v)],
    )  # fmt: skip
    found.stderr[level & pair.level & ~found.exact] = 1.0  # half the range
    return found


# -------------------------------------------------------------------------------------- regression


class _Fit(NamedTuple):
    """Least-squares fits.

    Attributes:
        coefficients: float64[k + 1, groups], the intercept first. NaN without a fit.
        influences: float64[k + 1, n].
        leverage: float64[n].
        residuals: float64[n].
        squares: float64[n] for each explaining column, in variances around its mean.
    """

    coefficients: Float64Array
    influences: Float64Array
    leverage: Float64Array
    residuals: Float64Array
    squares: list[Float64Array]

    @classmethod
    def of(cls, rows: _Rows) -> _Fit:
        """Return the fits. A group has none if a column is a combination from others."""
        y, *xs = rows.data
        group, weight, root = rows.group, rows.weight, np.sqrt(rows.columns.masses)
        centres = [rows.sum(x) / weight for x in xs]
        centred = [x - centre[group] for x, centre in zip(xs, centres, strict=True)]
        scales = [np.sqrt(rows.sum(x * x) / weight) for x in centred]
        fits = (weight > 0.0) & (rows.counts > len(xs))
        for x, scale in zip(xs, scales, strict=True):
            fits &= (scale > 0.0) & ~rows.is_level(x)
        design = np.column_stack(
            [np.ones(len(y)), *(x / s[group] for x, s in zip(centred, scales, strict=True))]
        )
        middle = rows.sum(y) / weight
        inner = y - middle[group]
        beta, inverse, leverage = _factored(design, root, inner, group, fits)
        residuals = inner - _times(design, beta, group)
        # From centred and scaled columns to the given ones.
        size, width = len(weight), len(rows.data)
        back = np.zeros((size, width, width))
        back[:, 0, 0] = 1.0
        for place, (centre, scale) in enumerate(zip(centres, scales, strict=True), 1):
            back[:, place, place] = 1.0 / scale
            back[:, 0, place] = -centre / scale
        coefficients = np.einsum("gij,gj->ig", back, beta)
        coefficients[0] += middle
        turned = inverse @ inverse.transpose(0, 2, 1) @ back.transpose(0, 2, 1)
        influences = np.array(
            [_times(design, turned[:, :, place], group) * residuals for place in range(width)]
        )
        squares = [design[:, place] * design[:, place] for place in range(1, width)]
        return cls(coefficients, influences, leverage, residuals, squares)


def _times(design: Float64Array, by: Float64Array, group: IntArray) -> Float64Array:
    """Return each row times its group's coefficients."""
    found = np.zeros(len(group))
    for place in range(design.shape[1]):
        found += design[:, place] * by[group, place]
    return found


def _factored(
    design: Float64Array, root: Float64Array, inner: Float64Array, group: IntArray, fits: BoolArray
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return each group's coefficients, its inverse factor R and its rows' leverages, from a QR
    factorisation. They are NaN for groups that do not fit, or with a column that combines others.
    """
    width = design.shape[1]
    beta = np.full((len(fits), width), np.nan)
    inverse = np.full((len(fits), width, width), np.nan)
    leverage = np.full(len(group), np.nan)
    order = np.argsort(group.astype(np.uint16), kind="stable")  # 10,000 groups at most
    ends = np.cumsum(np.bincount(group, minlength=len(fits)))
    starts = np.concatenate([[0], ends[:-1]])
    scaled, wanted = (design * root[:, None])[order], (inner * root)[order]
    fitted = np.flatnonzero(fits)
    if not len(fitted):
        return beta, inverse, leverage
    factors, right = [], []
    for number in fitted.tolist():
        rows = slice(starts[number], ends[number])
        q, r = np.linalg.qr(scaled[rows])
        factors.append(r)
        right.append(wanted[rows] @ q)
        leverage[order[rows]] = np.einsum("ij,ij->i", q, q)
    stack = np.array(factors)
    firm = np.linalg.cond(stack) <= _CONDITION
    inverse[fitted[firm]] = np.linalg.inv(stack[firm])
    beta[fitted[firm]] = np.einsum("gij,gj->gi", inverse[fitted[firm]], np.array(right)[firm])
    return beta, inverse, leverage


@np.errstate(all="ignore")
def regression(parts: Parts, columns: Sequence[str]) -> EstimateLists:
    """Return the coefficients for linear regressions by least squares, by decayed weight.

    Args:
        parts: observations and masses, by group.
        columns: the explained column, then 1 to 8 columns that explain it.

    Returns:
        The intercept, then the slope for each explaining column.

    Raises:
        ParameterError: see :func:`ratio`.

    Complexity: O(n k^2) for k columns.
    """
    rows = _read(parts, columns)
    group, size, weight = rows.group, rows.parts.size, rows.weight
    fit, some = _Fit.of(rows), rows.weight > 0.0
    planes = some & np.isnan(fit.coefficients[0])  # more than one plane fits
    low, high = extremes(group, rows.data[0], size)
    farthest = largest(group, np.nan_to_num(np.abs(fit.residuals)), size)
    flat = some & ~planes & ~(farthest > _NEARLY * (high - low))
    faded = some & ~planes & ~flat & rows.faded(weight)
    unbounded = [("equal-values", planes | flat), ("faded", faded)]
    within = [(each - 1.0) / weight[group] for each in fit.squares]
    found = [
        rows.estimates(value, influence, fit.leverage, unbounded, within=within)
        for value, influence in zip(fit.coefficients, fit.influences, strict=True)
    ]
    return EstimateLists(tuple(found))


def fault_of_columns(given: Any, fewest: int, most: int) -> str | None:
    """Return the reason why an argument lists no columns, or None."""
    listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else None
    expected = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    if listed is None or not all(isinstance(each, str) and each for each in listed):
        return f"columns are {given!r:.200}; expected {expected} texts, none empty"
    if not fewest <= len(listed) <= most:
        return f"columns are {listed!r:.200}; expected {expected} texts"
    return None
