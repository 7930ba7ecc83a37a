"""How columns relate: ratio, covariance, correlation and linear regression.

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
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.text.expression import MAX_OPERATIONS, Bound, Kind, bind
from decaysketch.errors import ParameterError
from decaysketch.query.aggregates import (
    LEAST_REST,
    approximate,
    exactly,
    hits_of,
    is_outweighed,
    signed_sum,
    unbounded,
    undefined,
)
from decaysketch.query.columns import SampleTable
from decaysketch.query.estimate import Estimate, Interval, check_confidence, wider
from decaysketch.query.modifiers import schema_of_sample
from decaysketch.query.sample import Columns, Sample

__all__ = [
    "KINDS",
    "MOST_COLUMNS",
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

Float64Array = npt.NDArray[np.float64]

_NEARLY = 1e-12  # rounding, in standard deviations
_CONDITION = 1e8  # above it, a scaled column is a combination of others


class _Rows(NamedTuple):
    """Sample rows without a null.

    Attributes:
        sample: these rows, known masses first.
        columns: their masses.
        data: float64[n] for each column.
        confidence: the intervals' confidence.
    """

    sample: Sample
    columns: Columns
    data: list[Float64Array]
    confidence: float

    @property
    def masses(self) -> Float64Array:
        return self.columns.masses

    @property
    def weight(self) -> float:
        return float(self.masses.sum())

    def sum(self, column: Float64Array) -> float:
        """Return a column's decayed sum."""
        return float((self.masses * column).sum())

    def undefined(self, least: float = -math.inf, most: float = math.inf) -> Estimate:
        found = undefined(self.sample, self.confidence, least, most)
        return replace(found, rows=len(self.masses))

    def unbounded(
        self, value: float, caveat: str, least: float = -math.inf, most: float = math.inf
    ) -> Estimate:
        rows = len(self.masses)
        return unbounded(self.sample, value, least, most, self.confidence, rows, caveat)

    def estimate(
        self, value: float, influence: Float64Array, leverage: Float64Array, *,
        of_unit: bool = False,
    ) -> Estimate:  # fmt: skip
        """Return the estimate for a smooth function over sums.

        Args:
            value: the result.
            influence: float64[n], the shift in the result per unit mass.
            leverage: float64[n], each row's share in its own fit.
            of_unit: the sums are over observations, not over their weights.
        """
        sample, columns = self.sample, self.columns
        x = influence / np.maximum(1.0 - leverage, LEAST_REST)
        function = x * columns.weights if of_unit and sample.weighted else None
        hits = hits_of(sample, columns, x, function, (0.0, 0.0), np.empty(0))
        around, spread, step, caveats = signed_sum(
            sample, columns, x, None, self.confidence, hits, function
        )
        tail = slice(columns.exact, None)
        more = wider(columns.variances[tail] * x[tail] * x[tail], self.confidence)
        ends = Interval(
            value,
            value - more * float(around.value - around.lower),
            value + more * float(around.upper - around.value),
        )
        return approximate(sample, ends, spread, step, self.confidence, len(x), caveats)


def _read(
    sample: Sample, columns: Sequence[str], confidence: float, *, counted: bool = False
) -> _Rows:
    """Return the rows without a null. With ``counted``, sums are over observations.

    Raises:
        ParameterError: a text cannot be read, is no number, or is infinite for a row.
    """
    confidence = check_confidence(confidence)
    schema = schema_of_sample(sample)
    bounds = [bind("column", text, schema, *KINDS) for text in columns]
    operations = sum(bound.operations for bound in bounds)
    if operations > MAX_OPERATIONS:
        raise ParameterError(
            f"columns have {operations} operations together; expected at most {MAX_OPERATIONS}"
        )
    data = _evaluated(sample, bounds)
    if np.isnan(data).any():
        sample = sample.only(lambda each: np.all(~np.isnan(_evaluated(each, bounds)), axis=0))
        data = _evaluated(sample, bounds)
    if counted:  # after the columns are read, since it has weights of 1
        sample = sample.counted
    beside = [sample.beside(column, valued=False) for column in data]
    return _Rows(sample, sample.columns, beside, confidence)


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


def ratio(sample: Sample, columns: Sequence[str], *, confidence: float = 0.95) -> Estimate:
    """Return a column's decayed sum over another's.

    Args:
        sample: observations and masses.
        columns: two expressions: the numerator and the denominator.
        confidence: the interval's confidence.

    Raises:
        ParameterError: an expression cannot be read, is no number, or is infinite for a row.

    Complexity: O(operations * n).
    """
    rows = _read(sample, columns, confidence, counted=True)
    x, y = (_of_unit(rows, column) for column in rows.data)
    below = rows.sum(y)
    if not below:
        return rows.undefined()
    value = rows.sum(x) / below
    if rows.sample.exact:
        return exactly(rows.sample, value, rows.confidence, len(x))
    if not np.any(x - value * y):  # as where each row has the same ratio
        return rows.unbounded(value, "equal-values")
    if is_outweighed(rows.sample, rows.weight):
        return rows.unbounded(value, "faded")
    influence, leverage = (x - value * y) / below, rows.masses * y / below
    return rows.estimate(value, influence, leverage, of_unit=True)


def _of_unit(rows: _Rows, column: Float64Array) -> Float64Array:
    """Return a column for a unit of weight: sums are over observations, as :func:`total`."""
    return column / rows.columns.weights if rows.sample.weighted else column


class _Centred(NamedTuple):
    """Two columns around their means."""

    rows: _Rows
    dx: Float64Array
    dy: Float64Array

    @classmethod
    def of(cls, rows: _Rows) -> _Centred:
        weight = rows.weight
        x, y = rows.data
        return cls(rows, x - rows.sum(x) / weight, y - rows.sum(y) / weight)

    @property
    def level(self) -> bool:
        """Whether a column has one value."""
        return any(is_level(column) for column in self.rows.data)


def is_level(column: Float64Array) -> bool:
    """Return whether a column has one value, but for rounding."""
    return bool(np.ptp(column) <= _NEARLY * np.abs(column).max())


def covariance(sample: Sample, columns: Sequence[str], *, confidence: float = 0.95) -> Estimate:
    """Return the covariance between two columns, weighted by decayed weight (divided by W).

    Args, errors and complexity are as in :func:`ratio`. As in
    :func:`~decaysketch.query.aggregates.variance`, the result adds the covariance between the
    fitted means, since the products are too small by it.
    """
    rows = _read(sample, columns, confidence)
    weight = rows.weight
    if not weight > 0.0:
        return rows.undefined()
    pair = _Centred.of(rows)
    products = pair.dx * pair.dy
    value = rows.sum(products) / weight
    if rows.sample.exact:
        return exactly(rows.sample, value, rows.confidence, len(products))
    if pair.level:
        return rows.unbounded(value, "equal-values")
    if is_outweighed(rows.sample, weight):
        return rows.unbounded(value, "faded")
    fitted = float((rows.columns.variances * products).sum()) / weight**2
    influence = (products - value) / weight
    return rows.estimate(value + fitted, influence, rows.masses / weight)


def correlation(sample: Sample, columns: Sequence[str], *, confidence: float = 0.95) -> Estimate:
    """Return Pearson's correlation between two columns, weighted by decayed weight.

    Args, errors and complexity are as in :func:`ratio`.
    """
    rows = _read(sample, columns, confidence)
    weight = rows.weight
    if not weight > 0.0:
        return rows.undefined(-1.0, 1.0)
    pair = _Centred.of(rows)
    if pair.level:
        return rows.undefined(-1.0, 1.0) if rows.sample.exact else _one_value(rows)
    u, v = (each / math.sqrt(rows.sum(each * each) / weight) for each in (pair.dx, pair.dy))
    value = min(max(rows.sum(u * v) / weight, -1.0), 1.0)
    if rows.sample.exact:
        return exactly(rows.sample, value, rows.confidence, len(u))
    rest = 1.0 - value * value
    if rest <= _NEARLY:  # all read rows lie on a line
        return rows.unbounded(value, "equal-values", -1.0, 1.0)
    if is_outweighed(rows.sample, weight):
        return rows.unbounded(value, "faded", -1.0, 1.0)
    influence = (u * v - 0.5 * value * (u * u + v * v)) / (weight * rest)
    leverage = rows.masses * (1.0 + 0.5 * (u * u + v * v)) / weight
    found = rows.estimate(math.atanh(value), influence, np.minimum(leverage, 1.0))
    return replace(
        found, value=value, lower=math.tanh(found.lower), upper=math.tanh(found.upper),
        stderr=found.stderr * rest,
    )  # fmt: skip


def _one_value(rows: _Rows) -> Estimate:
    return rows.unbounded(math.nan, "equal-values", -1.0, 1.0)


# -------------------------------------------------------------------------------------- regression


class _Fit(NamedTuple):
    """A least-squares fit.

    Attributes:
        coefficients: float64[k + 1], the intercept first.
        influences: float64[k + 1, n].
        leverage: float64[n].
        residuals: float64[n].
    """

    coefficients: Float64Array
    influences: Float64Array
    leverage: Float64Array
    residuals: Float64Array

    @classmethod
    def of(cls, rows: _Rows) -> _Fit | None:
        """Return the fit, or None if a column is a combination from others."""
        y, *xs = rows.data
        weight, root = rows.weight, np.sqrt(rows.masses)
        centres = np.array([rows.sum(x) / weight for x in xs])
        centred = [x - centre for x, centre in zip(xs, centres, strict=True)]
        scales = np.sqrt([rows.sum(x * x) / weight for x in centred])
        if len(y) <= len(xs) or not np.all(scales > 0.0) or any(map(is_level, xs)):
            return None
        design = np.column_stack(
            [np.ones(len(y)), *(x / s for x, s in zip(centred, scales, strict=True))]
        )
        q, r = np.linalg.qr(design * root[:, None])
        if np.linalg.cond(r) > _CONDITION:
            return None
        inverse = np.linalg.inv(r)
        middle = rows.sum(y) / weight
        beta = inverse @ (q.T @ ((y - middle) * root))
        residuals = y - middle - design @ beta
        # From centred and scaled columns to the given ones.
        back = np.diag(np.concatenate([[1.0], 1.0 / scales]))
        back[0, 1:] = -centres / scales
        coefficients = back @ beta
        coefficients[0] += middle
        pulls = (design @ (inverse @ inverse.T) @ back.T).T * residuals
        return cls(coefficients, pulls, (q * q).sum(axis=1), residuals)


def regression(
    sample: Sample, columns: Sequence[str], *, confidence: float = 0.95
) -> list[Estimate]:
    """Return the coefficients for a linear regression by least squares, by decayed weight.

    Args:
        sample: observations and masses.
        columns: the explained column, then 1 to 8 columns that explain it.
        confidence: each interval's confidence.

    Returns:
        The intercept, then the slope for each explaining column.

    Raises:
        ParameterError: see :func:`ratio`.

    Complexity: O(n k^2) for k columns.
    """
    rows = _read(sample, columns, confidence)
    if not rows.weight > 0.0:
        return [rows.undefined()] * len(columns)
    fit = _Fit.of(rows)
    if fit is None:  # more than one plane fits
        if rows.sample.exact:
            return [rows.undefined()] * len(columns)
        return [rows.unbounded(math.nan, "equal-values")] * len(columns)
    values = fit.coefficients.tolist()
    if rows.sample.exact:
        n = len(fit.residuals)
        return [exactly(rows.sample, value, rows.confidence, n) for value in values]
    scale = float(np.ptp(rows.data[0]))
    if not float(np.abs(fit.residuals).max()) > _NEARLY * scale:
        return [rows.unbounded(value, "equal-values") for value in values]
    if is_outweighed(rows.sample, rows.weight):
        return [rows.unbounded(value, "faded") for value in values]
    return [
        rows.estimate(value, influence, fit.leverage)
        for value, influence in zip(values, fit.influences, strict=True)
    ]


def fault_of_columns(given: Any, fewest: int, most: int) -> str | None:
    """Return the reason why an argument lists no columns, or None."""
    listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else None
    expected = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    if listed is None or not all(isinstance(each, str) and each for each in listed):
        return f"columns are {given!r:.200}; expected {expected} texts, none empty"
    if not fewest <= len(listed) <= most:
        return f"columns are {listed!r:.200}; expected {expected} texts"
    return None
