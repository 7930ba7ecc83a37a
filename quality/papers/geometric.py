"""The geometric method, corrected: the reference, and the baseline of what is built here.

Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window data streams" (VLDB
Journal 24, 2015), section 6, after Sharfman, Schuster and Keren (SIGMOD 2006). Every site looks at
a *summary* x_i of how its counters moved, plus a slack, and stays silent while x_i is inside; all
slacks together are 0, so what holds of each holds, by convexity, of the average.

* :class:`Sphere`: the drift itself, as many numbers as counters; the ball over it is on one side.
* :class:`SafeZone`: the drift; ``phi <= 0`` of :mod:`decaysketch.monitor.safe`.
* :class:`NormBounds` (section 6.4): how long, in each row, what rose and what fell is: 2 numbers a
  row.
* :class:`ProductBounds`: the same of two streams and their inner product: 4 numbers a row.

*Two phases.* A site that is outside sends its summary. The hub asks others, in random order, until
the average of those asked is inside, and hands that average back: each of them shifts its slack by
the difference to what it *reported*. If no average is inside, sites send their counters, and the
hub the new estimate.

*Corrections* to the print: v is the average of sites' counters on both sides of the bounds (E1);
what rose and fell is counted from the site's own reference, not from the global one (E2); the upper
query bounds ``N + d`` and the lower one ``N - d`` (E3); slacks refer to what was reported (G1).
Items (section 6.3) are in :mod:`quality.papers.geometric_items`.

Links are taken to deliver each message once and in order; :mod:`decaysketch.monitor.rounds` does
not need that, and sends less.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.errors import ParameterError
from decaysketch.monitor.safe import InnerProductZone, SelfJoinZone, Zone

__all__ = [
    "Ask",
    "Balance",
    "Counters",
    "Full",
    "GeometricHub",
    "GeometricSite",
    "NormBounds",
    "ProductBounds",
    "SafeZone",
    "Sphere",
    "Summary",
    "Test",
    "TestMaker",
    "Want",
]

Float64Array = npt.NDArray[np.float64]
Upper = Literal["hyperplane", "best row"]
TestMaker = Callable[[npt.NDArray[np.float64]], "Test"]
"""From an estimate, float64[matrices, depth, width], to what sites look at."""


class Follower(ABC):
    """A site's summary, kept up with its counters."""

    @abstractmethod
    def put(self, cell: int, before: float, after: float) -> None:
        """A counter changed. O(1)."""

    @abstractmethod
    def is_inside(self) -> bool:
        """Of the summary with its slack. O(depth)."""

    @abstractmethod
    def x(self) -> Float64Array:
        """The summary with its slack."""

    @abstractmethod
    def shift(self, by: Float64Array) -> None:
        """More slack."""


class Test(ABC):
    """What sites look at, from one estimate on.

    Attributes:
        zone: of the estimate.
        carries_vectors: whether summaries say how every counter moved.
    """

    __test__ = False  # no case of pytest's
    carries_vectors: bool

    def __init__(self, zone: Zone) -> None:
        self.zone = zone

    @abstractmethod
    def follow(self, reference: Sequence[float]) -> Follower:
        """From these counters of a site, with no slack."""

    @abstractmethod
    def is_inside(self, x: Float64Array) -> bool:
        """Of one summary. The set of those that are is convex, and for an average of drifts whose
        summaries are in it the answer is right."""


# ------------------------------------------------------------------------------ as many as counters


class _DriftTest(Test):
    carries_vectors = True

    def follow(self, reference: Sequence[float]) -> _Drifting:
        return _Drifting(self, reference)

    def is_inside(self, x: Float64Array) -> bool:
        followed = _Drifting(self, [0.0] * x.size)
        followed.shift(x)
        return followed.is_inside()

    @abstractmethod
    def judge(self, followed: _Drifting) -> bool: ...


class _Drifting(Follower):
    """The drift, as :mod:`decaysketch.monitor.safe` follows it."""

    def __init__(self, test: _DriftTest, reference: Sequence[float]) -> None:
        self._test, self._reference = test, np.array(reference, np.float64)
        self._slack = np.zeros(len(reference))
        self._values = self._reference.copy()
        self.drift = test.zone.follow(reference)

    def put(self, cell: int, before: float, after: float) -> None:
        self._values[cell] = after
        self.drift.put(cell, after)

    def is_inside(self) -> bool:
        return self._test.judge(self)

    def x(self) -> Float64Array:
        return self.drift.moved()

    def shift(self, by: Float64Array) -> None:
        self._slack += by.ravel()
        self.drift = self._test.zone.follow((self._reference - self._slack).tolist())
        self.drift.become(self._values)


class SafeZone(_DriftTest):
    """``phi <= 0``."""

    def judge(self, followed: _Drifting) -> bool:
        return followed.drift.phi() <= 0.0


class Sphere(_DriftTest):
    """The ball whose ends are e and e + x is all within the bounds; of self-joins.

    The set is not convex, but the balls of sites cover the hull of their drifts (Sharfman et al.).
    An average that the hub tries is the one point that all of those asked then hold.
    """

    def __init__(self, zone: Zone) -> None:
        if not isinstance(zone, SelfJoinZone):
            raise ParameterError(f"zone is {zone!r}; the sphere test is of a SelfJoinZone")
        super().__init__(zone)

    def judge(self, followed: _Drifting) -> bool:
        zone, drift = self.zone, followed.drift
        assert isinstance(zone, SelfJoinZone)
        dots: list[float] = drift.dots  # type: ignore[attr-defined]
        squares: list[float] = drift.squares  # type: ignore[attr-defined]
        radius = 0.5 * math.sqrt(max(sum(squares), 0.0))
        centres = [
            math.sqrt(max(norm * norm + dot + 0.25 * square, 0.0))
            for norm, dot, square in zip(zone.norms, dots, squares, strict=True)
        ]
        return min(centres) + radius <= zone.outer and min(centres) - radius >= zone.inner


# ---------------------------------------------------------------------------------- 2 numbers a row


class _NormTest(Test):
    """Summaries are float64[matrices, 2, depth]: lengths of what rose, and of what fell."""

    carries_vectors = False

    def follow(self, reference: Sequence[float]) -> _Norms:
        return _Norms(self, reference)


class _Norms(Follower):
    """Lengths of ``max(v_i, ref_i) - ref_i`` and of ``ref_i - min(v_i, ref_i)``, row by row."""

    def __init__(self, test: _NormTest, reference: Sequence[float]) -> None:
        self._test, self._reference = test, list(reference)
        matrices, depth, self._width = test.zone.shape
        self._depth = depth
        self._rose = [0.0] * (matrices * depth)
        self._fell = [0.0] * (matrices * depth)
        self._slack = np.zeros((matrices, 2, depth))

    def put(self, cell: int, before: float, after: float) -> None:
        was, now = before - self._reference[cell], after - self._reference[cell]
        row = cell // self._width
        self._rose[row] += max(now, 0.0) ** 2 - max(was, 0.0) ** 2
        self._fell[row] += min(now, 0.0) ** 2 - min(was, 0.0) ** 2

    def is_inside(self) -> bool:
        return self._test.is_inside(self.x())

    def x(self) -> Float64Array:
        squares = np.array([self._rose, self._fell]).reshape(2, -1, self._depth)
        lengths: Float64Array = np.sqrt(np.maximum(squares, 0.0)).swapaxes(0, 1) + self._slack
        return lengths

    def shift(self, by: Float64Array) -> None:
        self._slack += by


class NormBounds(_NormTest):
    """Self-joins: ``N - dl >= L`` in all rows, and ``N + du`` on the inner side of the upper bound.

    Args:
        zone: of the estimate.
        upper: "hyperplane", section 6.5: through the nearest point of what is forbidden; or "best
            row": the least one stays below, which is as good where rows drift together (G4).
    """

    def __init__(self, zone: Zone, upper: Upper = "hyperplane") -> None:
        if not isinstance(zone, SelfJoinZone):
            raise ParameterError(f"zone is {zone!r}; norm bounds are of a SelfJoinZone")
        super().__init__(zone)
        self._upper = upper
        self._n = zone.norms
        self._inner, self._outer, self._row = zone.inner, zone.outer, zone.row
        self._p = [max(norm, zone.outer) for norm in self._n]

    def is_inside(self, x: Float64Array) -> bool:
        (rose, fell), n = x[0].tolist(), self._n
        if any(norm - each < self._inner for norm, each in zip(n, fell, strict=True)):
            return False
        if self._upper == "best row":
            return bool(n[self._row] + rose[self._row] <= self._outer)
        side = sum(
            (p - norm) * (norm + each - p) for p, norm, each in zip(self._p, n, rose, strict=True)
        )
        return bool(side <= 0.0)


class ProductBounds(_NormTest):
    """Inner products, by lengths of both streams' changes.

    With A, B the lengths of a row of a and b: what falls takes at most ``A dl_b + B dl_a`` away,
    and what rises lets the product be at most ``f + A du_b + B du_a + du_a du_b``. That is no
    convex bound; by the means of ``1 + du_a / A`` and ``1 + du_b / B``, arithmetic and geometric,
    it is kept where their half sum is at most ``sqrt(1 + (U - f) / (A B))``.
    """

    def __init__(self, zone: Zone) -> None:
        if not isinstance(zone, InnerProductZone):
            raise ParameterError(f"zone is {zone!r}; product bounds are of an InnerProductZone")
        super().__init__(zone)
        self._rows = zone.of_rows(zone.estimate).tolist()
        lengths = np.sqrt(np.square(zone.estimate).sum(axis=2))
        self._a, self._b = lengths.tolist()
        self._row, self._inner, self._outer = zone.row, zone.low, zone.high

    def is_inside(self, x: Float64Array) -> bool:
        ((a_rose, a_fell), (b_rose, b_fell)) = x.tolist()
        for product, a, b, da, db in zip(self._rows, self._a, self._b, a_fell, b_fell, strict=True):
            if product - a * db - b * da < self._inner:
                return False
        row = self._row
        a, b = self._a[row], self._b[row]
        if not a * b > 0.0:
            return not (a_rose[row] or b_rose[row])
        mean = 1.0 + 0.5 * (a_rose[row] / a + b_rose[row] / b)
        return bool(mean * mean <= 1.0 + (self._outer - self._rows[row]) / (a * b))


# ------------------------------------------------------------------------------------- the protocol


class Summary(NamedTuple):
    """Site to hub: it is outside, or was asked."""

    site: str
    epoch: int
    asked: bool
    x: Float64Array
    changed: int  # counters that are not what they were at the last estimate


class Counters(NamedTuple):
    """Site to hub: all of them; ``changed`` of them are not what they were."""

    site: str
    epoch: int
    values: Float64Array
    changed: int


class Ask(NamedTuple):
    """Hub to site: your summary."""

    epoch: int


class Balance(NamedTuple):
    """Hub to site: hold the average instead of what you reported."""

    epoch: int
    mean: Float64Array


class Want(NamedTuple):
    """Hub to site: your counters."""

    epoch: int


class Full(NamedTuple):
    """Hub to site: the new estimate; slacks are 0."""

    epoch: int
    estimate: Float64Array


class GeometricSite:
    """One site. Not thread-safe.

    Args:
        name: of the site.
        test_of: makes the test of an estimate; the same at hub and sites.
        size: counters, of all matrices.
    """

    def __init__(self, name: str, test_of: TestMaker, size: int) -> None:
        self.name = name
        self.values = [0.0] * size
        self._test_of = test_of
        self._epoch = -1
        self._follower: Follower | None = None
        self._touched: set[int] = set()  # since the last estimate
        self._told: list[float] | None = None  # its counters as it reported
        self._since: set[int] = set()  # that changed after it did
        self._reported: Float64Array | None = None

    @property
    def x(self) -> Float64Array | None:
        """The summary with its slack."""
        return None if self._follower is None else self._follower.x()

    def put(self, cell: int, value: float) -> None:
        """A counter, by its place in the flat list, has this value now. O(1)."""
        before = self.values[cell]
        self.values[cell] = value
        self._touched.add(cell)
        if self._told is not None:
            self._since.add(cell)
        if self._follower is not None:
            self._follower.put(cell, before, value)

    def add(self, cell: int, by: float) -> None:
        """A counter rose or fell."""
        self.put(cell, self.values[cell] + by)

    def due(self) -> Summary | None:
        """What to send, after a change. O(depth)."""
        if self._told is not None or self._follower is None or self._follower.is_inside():
            return None
        return self._summary(asked=False)

    def _summary(self, *, asked: bool) -> Summary:
        """Whatever moves from here on moves beside what is reported."""
        assert self._follower is not None, "the hub asks after a first estimate"
        self._reported = self._follower.x()
        self._tell()
        return Summary(self.name, self._epoch, asked, self._reported, len(self._touched))

    def _tell(self) -> None:
        self._told, self._since = self.values.copy(), set()

    def receive(self, message: Ask | Balance | Want | Full) -> Summary | Counters | None:
        """Take a message of the hub; what to answer."""
        if isinstance(message, Full):
            self._begin(message)
            return None
        if isinstance(message, Want):
            self._tell()
            return Counters(self.name, message.epoch, np.array(self.values), len(self._touched))
        if isinstance(message, Ask):
            return self._summary(asked=True)
        assert self._follower is not None, "an average is of what was reported"
        assert self._reported is not None, "an average is of what was reported"
        self._follower.shift(message.mean - self._reported)
        self._told = None
        return None

    def _begin(self, full: Full) -> None:
        assert self._told is not None, "an estimate is of what was told"
        self._epoch = full.epoch
        self._follower = self._test_of(full.estimate).follow(self._told)
        for cell in self._since:
            self._follower.put(cell, self._told[cell], self.values[cell])
        self._touched, self._since, self._told = self._since, set(), None


class GeometricHub:
    """The hub. Not thread-safe.

    Args:
        sites: names of all that take part.
        test_of: from an estimate to its test, as at the sites.
        shape: matrices, depth and width.
        seed: of the order in which sites are asked.
    """

    def __init__(
        self, sites: Iterable[str], test_of: TestMaker, shape: tuple[int, int, int], seed: int = 0
    ) -> None:
        self._sites = list(sites)
        if not self._sites:
            raise ParameterError("sites are none; expected one or more")
        self._test_of, self._shape = test_of, shape
        self._rng = random.Random(seed)
        self.test: Test | None = None
        self.epoch = 0
        self.first_phases = self.second_phases = 0
        self._summaries: dict[str, Float64Array] = {}
        self._vectors: dict[str, Float64Array] = {}
        self._left: list[str] = []
        self._waiting: list[Summary] = []  # who was outside while others were balanced

    def begin(self) -> list[tuple[str, Want]]:
        """Ask all sites for their counters."""
        self._vectors = {}
        return [(site, Want(self.epoch)) for site in self._sites]

    def receive(
        self, message: Summary | Counters
    ) -> Sequence[tuple[str, Ask | Balance | Want | Full]]:
        """Take a message; what to send to whom."""
        if isinstance(message, Counters):
            self._vectors[message.site] = message.values
            return self._full() if len(self._vectors) == len(self._sites) else []
        if message.epoch != self.epoch:
            return []
        if not message.asked:
            if self._summaries:
                self._waiting.append(message)
                return []
            self.first_phases += 1
            self._left = [site for site in self._sites if site != message.site]
            self._rng.shuffle(self._left)
        self._summaries[message.site] = message.x
        return self._go_on()

    def _go_on(self) -> Sequence[tuple[str, Ask | Balance | Want | Full]]:
        assert self.test is not None, "sites report after a first estimate"
        mean = np.mean(list(self._summaries.values()), axis=0)
        if len(self._summaries) > 1 and self.test.is_inside(mean):
            asked, self._summaries = list(self._summaries), {}
            out: list[tuple[str, Ask | Balance | Want | Full]] = [
                (site, Balance(self.epoch, mean)) for site in asked
            ]
            waiting, self._waiting = self._waiting, []
            for message in waiting:
                if message.site not in asked:
                    out += self.receive(message)
            return out
        if self._left:
            return [(self._left.pop(), Ask(self.epoch))]
        self.second_phases += 1
        if self.test.carries_vectors:  # slacks are 0 together: the average says all
            return self._publish(self.test.zone.estimate + mean)
        return self.begin()

    def _full(self) -> Sequence[tuple[str, Full]]:
        mean = np.mean(list(self._vectors.values()), axis=0)
        return self._publish(mean.reshape(self._shape))

    def _publish(self, estimate: Float64Array) -> Sequence[tuple[str, Full]]:
        self._summaries, self._waiting, self._left = {}, [], []
        self.test = self._test_of(np.maximum(estimate, 0.0))
        self.epoch += 1
        return [(site, Full(self.epoch, self.test.zone.estimate)) for site in self._sites]
