"""How two columns of pieces relate: covariance, correlation and slope, with entities as clusters.

Results and influences are as in :mod:`~decaysketch.query.relations`, for pieces with values
``x`` and ``y`` and masses. An entity's influence is the sum over its pieces, because all
pieces of one entity are sampled together (:mod:`~decaysketch.query.clusters`).

The slope is the regression of ``x`` on ``y``, ``sum dx dy / sum dy^2``, with the influence
``dy (dx - b dy) / sum dy^2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from decaysketch.query.clusters import Clusters, scaled_down
from decaysketch.query.estimate import Estimate, check_confidence
from decaysketch.query.relations import is_level

__all__ = ["TwoColumns"]

Float64Array = npt.NDArray[np.float64]

_NEARLY = 1e-12  # rounding, in standard deviations
_ANY = (-math.inf, math.inf)
_SIGNED = (-1.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class TwoColumns:
    """Two values for each piece.

    Attributes:
        clusters: the pieces by entity.
        x, y: float64[n], below 1, so that no product overflows.
        masses: float64[n], none negative.
        magnitudes: the values are ``x 2^i`` and ``y 2^j``.
    """

    clusters: Clusters
    x: Float64Array
    y: Float64Array
    masses: Float64Array
    magnitudes: tuple[int, int]

    @classmethod
    def of(cls, clusters: Clusters, x: Float64Array, y: Float64Array, masses: Float64Array) -> Self:
        """Return the columns for any finite values."""
        (x, i), (y, j) = scaled_down(x), scaled_down(y)
        return cls(clusters, x, y, masses, (i, j))

    def covariance(self, confidence: float) -> Estimate:
        """Return the covariance, with the estimated covariance between both means added, since the
        products are too small by it.

        Raises:
            ParameterError: the confidence is not between 0 and 1.
        """
        return self._covariance(check_confidence(confidence)).over(sum(self.magnitudes))

    def _covariance(self, confidence: float) -> Estimate:
        shares, dx, dy = self._centred()
        if not len(shares):
            return self._plain(math.nan, _ANY, confidence)
        value = float((shares * dx * dy).sum())
        if self.clusters.reach.exact:
            return self._plain(value, _ANY, confidence)
        if self._level:
            return self._plain(value, _ANY, confidence, "equal-values")
        own = shares * self.clusters.probabilities  # of a piece, as if it were sampled surely
        fitted = self.clusters.covariance(own * dx, own * dy)
        influence = own * (dx * dy - value)
        return self.clusters.smooth(
            value + fitted, influence, own, confidence=confidence, few=self._few(own, dx, dy)
        )

    def correlation(self, confidence: float) -> Estimate:
        """Return Pearson's correlation. Errors: as :meth:`covariance`."""
        confidence = check_confidence(confidence)
        shares, dx, dy = self._centred()
        spreads = [float((shares * each * each).sum()) for each in (dx, dy)]
        if not len(shares) or self._level or not min(spreads) > 0.0:
            caveat = "equal-values" if len(shares) else None
            return self._plain(math.nan, _SIGNED, confidence, caveat)
        u, v = (each / math.sqrt(spread) for each, spread in zip((dx, dy), spreads, strict=True))
        value = min(max(float((shares * u * v).sum()), -1.0), 1.0)
        if self.clusters.reach.exact:
            return self._plain(value, _SIGNED, confidence)
        rest = 1.0 - value * value
        if rest <= _NEARLY:  # all pieces lie on a line
            return self._plain(value, _SIGNED, confidence, "equal-values")
        own = shares * self.clusters.probabilities
        squares = 0.5 * (u * u + v * v)
        found = self.clusters.smooth(
            math.atanh(value), own * (u * v - value * squares) / rest, own * (1.0 + squares),
            confidence=confidence, few=self._few(own, dx, dy),
        )  # fmt: skip
        return replace(
            found, value=value, lower=min(math.tanh(found.lower), value),
            upper=max(math.tanh(found.upper), value), stderr=found.stderr * rest,
        )  # fmt: skip

    def slope(self, confidence: float) -> Estimate:
        """Return the least-squares slope of ``x`` on ``y``. Errors: as :meth:`covariance`."""
        i, j = self.magnitudes
        return self._slope(check_confidence(confidence)).over(i - j)

    def _slope(self, confidence: float) -> Estimate:
        shares, dx, dy = self._centred()
        spread = float((shares * dy * dy).sum())
        if not len(shares) or is_level(self.y) or not spread > 0.0:
            caveat = "equal-values" if len(shares) else None
            return self._plain(math.nan, _ANY, confidence, caveat)
        value = float((shares * dx * dy).sum()) / spread
        if self.clusters.reach.exact:
            return self._plain(value, _ANY, confidence)
        residuals = dx - value * dy
        if not np.abs(residuals).max() > _NEARLY * np.ptp(self.x):
            return self._plain(value, _ANY, confidence, "equal-values")
        own = shares * self.clusters.probabilities
        return self.clusters.smooth(
            value, own * dy * residuals / spread, own * (1.0 + dy * dy / spread),
            confidence=confidence, few=self._few(own, dx, dy),
        )  # fmt: skip

    def _few(self, masses: Float64Array, *distances: Float64Array) -> bool:
        """Return whether a few entities decide a deviation."""
        return any(self.clusters.decided_by_few(each, masses) for each in distances)

    @property
    def _level(self) -> bool:
        return is_level(self.x) or is_level(self.y)

    def _centred(self) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Return each piece's share in the mass, and both columns around their means. Nothing if
        there is no mass."""
        estimates = self.masses / self.clusters.probabilities
        total = float(estimates.sum())
        if not total > 0.0:
            return (np.zeros(0),) * 3
        shares = estimates / total
        dx, dy = (each - float((shares * each).sum()) for each in (self.x, self.y))
        return shares, dx, dy

    def _plain(
        self, value: float, bounds: tuple[float, float], confidence: float,
        caveat: str | None = None,
    ) -> Estimate:  # fmt: skip
        return self.clusters.plain(value, self.masses, bounds, confidence, caveat)
