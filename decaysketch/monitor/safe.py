"""Safe functions: one convex number per source. Their sum shows whether a result still holds.

Sources have counters v_i (a Count-Min with ``depth`` rows, ``width`` columns), and the monitored
value is f at their average v. At the start of a round v was ``e``. A source knows how far its own
counters moved since, D_i, and ``v = e + avg D_i``. A function phi is *safe* if it is convex,
``phi(0) < 0``, and ``phi(D) <= 0`` implies that f(e + D) is where f(e) allows. Then
``sum phi(D_i) <= 0`` implies, by convexity, that ``phi(avg D_i) <= 0``. The sources only need to
keep that sum together.

*Guarantee.* While phi <= 0, ``(1 - theta) f <= f(e) <= (1 + theta) f``, that is, f lies from
``f(e) / (1 + theta)`` to ``f(e) / (1 - theta)``. No probability is involved.

*Self-join*, ``f = min over rows of |v[row]|^2``. Upper: some row stays in its ball, namely the
smallest, r: ``|e[r] + D[r]| - U``. Lower: each row stays beyond a plane across it,
``L - <e[row], e[row] + D[row]> / |e[row]|``. phi is the largest of these. Each falls or rises by no
more than the drift is long.

*Inner product*, ``f = min over rows of <a[row], b[row]>``, with p = (a + b) / 2 and q = (a - b) /
2, whose squares differ by it: ``|p|^2 - |q|^2``. Upper, for the smallest row: the hyperbola
``|p| = sqrt(H + |q|^2)`` by its tangent at q0, ``|p| - (H + <q, q0>) / sqrt(H + |q0|^2)``. Lower,
for each row: ``sqrt(B + |q|^2) - <p, p0> / |p0|``. With a = b it is the self-join.

After Samoladas and Garofalakis, "Functional geometric monitoring for distributed streams" (EDBT
2019). They have safe functions for the median of rows, and the minimum makes them simpler. Only
inner products and squares of a drift are read, so an update costs O(1) per row.

*Limit.* A relative bound has no space at f(e) = 0: phi(0) is 0 there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from decaysketch.errors import ParameterError

__all__ = ["Drift", "InnerProductZone", "SelfJoinZone", "Zone", "check_theta"]

_ROUNDING = 2.0**-44  # relative, of sums of squares

Float64Array = npt.NDArray[np.float64]


def check_theta(theta: float) -> float:
    """Return a relative error.

    Raises:
        ParameterError: it is not above 0 and below 1.
    """
    if isinstance(theta, bool) or not isinstance(theta, int | float) or not 0.0 < theta < 1.0:
        raise ParameterError(f"theta is {theta!r}; expected a number above 0 and below 1")
    return float(theta)


class Zone(ABC):
    """The region of the average in which the round's result holds.

    Attributes:
        estimate: float64[matrices, depth, width], e: one matrix, or the matrices a and b.
        theta: permitted relative error.
        value: f(e).
        low, high: the range of f while phi <= 0.
        rest: phi(0), at most 0.
        rounding: of phi, which is smaller by it.
    """

    matrices: int  #: of counters that a site holds

    def __init__(self, estimate: npt.ArrayLike, theta: float) -> None:
        """O(depth width).

        Raises:
            ParameterError: an invalid shape, counters that are not finite numbers of at
                least 0, or an invalid theta.
        """
        self.theta = check_theta(theta)
        self.estimate = np.array(estimate, np.float64, ndmin=3)
        if self.estimate.ndim != 3 or len(self.estimate) != self.matrices:
            raise ParameterError(
                f"estimate has shape {np.shape(estimate)}; expected {self.matrices} matrices"
            )
        if not (self.estimate.size and 0.0 <= self.estimate.min() <= self.estimate.max() < np.inf):
            raise ParameterError("estimate: expected counters, finite numbers of at least 0")
        self.estimate.setflags(write=False)
        rows = self.of_rows(self.estimate)
        self._row = int(rows.argmin())
        self.value = float(rows[self._row])
        self.low, self.high = self.value / (1.0 + self.theta), self.value / (1.0 - self.theta)
        # phi is a difference of norms. Rounded up, it would be above 0 where f is 0, without end.
        self.rounding = _ROUNDING * math.sqrt(float(np.square(self.estimate).sum()))

    @property
    def shape(self) -> tuple[int, int, int]:
        """matrices, depth, width."""
        matrices, depth, width = self.estimate.shape
        return matrices, depth, width

    @property
    @abstractmethod
    def rest(self) -> float: ...

    @classmethod
    @abstractmethod
    def of_rows(cls, counters: Float64Array) -> Float64Array:
        """float64[depth], f by row, for float64[matrices, depth, width]."""

    @classmethod
    def of(cls, counters: Float64Array) -> float:
        """f at float64[matrices, depth, width]."""
        return float(cls.of_rows(counters).min())

    @abstractmethod
    def follow(self, start: Sequence[float]) -> Drift:
        """Return a source's drift from its counters at the start of the round, as one flat list.

        A slack may be subtracted from ``start``. The drift then begins with it.
        """

    def phi(self, drift: npt.ArrayLike) -> float:
        """phi at a drift, float64[matrices, depth, width], from scratch. O(depth width)."""
        moved = np.array(drift, np.float64, ndmin=3)
        followed = self.follow([0.0] * moved.size)
        followed.become(moved)
        return followed.phi()


class Drift(ABC):
    """How far one source's counters moved, with the sums that phi reads. Not thread-safe."""

    def __init__(self, zone: Zone, start: Sequence[float]) -> None:
        if len(start) != zone.estimate.size:
            raise ParameterError(
                f"start has {len(start)} counters; expected {zone.estimate.size}, of {zone.shape}"
            )
        self.zone = zone
        self._start = list(start)
        self._moved = [0.0] * len(self._start)
        _, self._depth, self._width = zone.shape

    @abstractmethod
    def put(self, cell: int, value: float) -> None:
        """Set a counter, by its index in the flat list. O(1)."""

    @abstractmethod
    def phi(self) -> float:
        """O(depth)."""

    def become(self, counters: npt.ArrayLike) -> None:
        """Set all counters. O(depth width)."""
        for cell, value in enumerate(np.asarray(counters, np.float64).ravel().tolist()):
            self.put(cell, value)

    def moved(self) -> Float64Array:
        """float64[matrices, depth, width]: the drift itself."""
        return np.array(self._moved).reshape(self.zone.shape)


class SelfJoinZone(Zone):
    """Zone for the self-join size."""

    matrices = 1

    def __init__(self, estimate: npt.ArrayLike, theta: float) -> None:
        super().__init__(estimate, theta)
        self.row = self._row  # r*
        self.norms: list[float] = np.sqrt(self.of_rows(self.estimate)).tolist()  # N
        self.inner, self.outer = math.sqrt(self.low), math.sqrt(self.high)  # L, U

    @classmethod
    def of_rows(cls, counters: Float64Array) -> Float64Array:
        squares: Float64Array = np.square(counters[0]).sum(axis=1)
        return squares

    @property
    def rest(self) -> float:
        return self.phi_of([0.0] * len(self.norms), [0.0] * len(self.norms))

    def follow(self, start: Sequence[float]) -> SelfJoinDrift:
        return SelfJoinDrift(self, start)

    def phi_of(self, dots: Sequence[float], squares: Sequence[float]) -> float:
        """phi at a drift with these ``<e[row], D[row]>`` and ``|D[row]|^2``."""
        row, norms = self.row, self.norms
        worst = math.sqrt(max(norms[row] ** 2 + 2.0 * dots[row] + squares[row], 0.0)) - self.outer
        for norm, dot in zip(norms, dots, strict=True):
            if norm > 0.0:
                worst = max(worst, self.inner - norm - dot / norm)
        return worst - self.rounding


class SelfJoinDrift(Drift):
    """Drift for one matrix. It keeps ``dots``, ``<e[row], D[row]>``, and ``squares``,
    ``|D[row]|^2``.
    """

    zone: SelfJoinZone

    def __init__(self, zone: SelfJoinZone, start: Sequence[float]) -> None:
        super().__init__(zone, start)
        self._estimate: list[float] = zone.estimate.ravel().tolist()
        self.dots, self.squares = [0.0] * self._depth, [0.0] * self._depth

    def put(self, cell: int, value: float) -> None:
        before, after = self._moved[cell], value - self._start[cell]
        row = cell // self._width
        self._moved[cell] = after
        self.dots[row] += self._estimate[cell] * (after - before)
        self.squares[row] += after * after - before * before

    def phi(self) -> float:
        return self.zone.phi_of(self.dots, self.squares)


class InnerProductZone(Zone):
    """Zone for the inner product of two streams: matrices a and b."""

    matrices = 2

    def __init__(self, estimate: npt.ArrayLike, theta: float) -> None:
        super().__init__(estimate, theta)
        self.row = self._row
        a, b = self.estimate
        self.halves = 0.5 * (a + b), 0.5 * (a - b)  # p0, q0
        p, q = (np.square(half).sum(axis=1) for half in self.halves)
        self.sums: list[float] = np.sqrt(p).tolist()  # |p0[row]|
        self.gaps: list[float] = q.tolist()  # |q0[row]|^2

    @classmethod
    def of_rows(cls, counters: Float64Array) -> Float64Array:
        products: Float64Array = (counters[0] * counters[1]).sum(axis=1)
        return products

    @property
    def rest(self) -> float:
        nothing = [0.0] * len(self.sums)
        return self.phi_of(nothing, nothing, nothing, nothing)

    def follow(self, start: Sequence[float]) -> InnerProductDrift:
        return InnerProductDrift(self, start)

    def phi_of(
        self,
        sum_dots: Sequence[float],
        sum_squares: Sequence[float],
        gap_dots: Sequence[float],
        gap_squares: Sequence[float],
    ) -> float:
        """phi at a drift with these ``<p0, P>``, ``|P|^2``, ``<q0, Q>`` and ``|Q|^2``, by rows, for
        its p and q.
        """
        row = self.row
        length = math.sqrt(max(self.sums[row] ** 2 + 2.0 * sum_dots[row] + sum_squares[row], 0.0))
        tangent = self.high + self.gaps[row]
        worst = length
        if tangent > 0.0:
            worst -= (tangent + gap_dots[row]) / math.sqrt(tangent)
        for norm, gap, dot, gap_dot, square in zip(
            self.sums, self.gaps, sum_dots, gap_dots, gap_squares, strict=True
        ):
            if norm > 0.0 and self.low > 0.0:
                edge = math.sqrt(max(self.low + gap + 2.0 * gap_dot + square, 0.0))
                worst = max(worst, edge - norm - dot / norm)
        return worst - self.rounding


class InnerProductDrift(Drift):
    """Drift for two matrices. It keeps products and squares for their half sum and half
    difference.
    """

    zone: InnerProductZone

    def __init__(self, zone: InnerProductZone, start: Sequence[float]) -> None:
        super().__init__(zone, start)
        self._cells = self._depth * self._width
        self._p, self._q = (half.ravel().tolist() for half in zone.halves)
        self.sum_dots, self.sum_squares, self.gap_dots, self.gap_squares = (
            [0.0] * self._depth for _ in range(4)
        )

    def put(self, cell: int, value: float) -> None:
        cells, moved = self._cells, self._moved
        at = cell if cell < cells else cell - cells
        row = at // self._width
        a, b = moved[at], moved[at + cells]
        moved[cell] = value - self._start[cell]
        a_now, b_now = moved[at], moved[at + cells]
        p, q, p_now, q_now = (
            0.5 * (a + b),
            0.5 * (a - b),
            0.5 * (a_now + b_now),
            0.5 * (a_now - b_now),
        )
        self.sum_dots[row] += self._p[at] * (p_now - p)
        self.sum_squares[row] += p_now * p_now - p * p
        self.gap_dots[row] += self._q[at] * (q_now - q)
        self.gap_squares[row] += q_now * q_now - q * q

    def phi(self) -> float:
        return self.zone.phi_of(self.sum_dots, self.sum_squares, self.gap_dots, self.gap_squares)
