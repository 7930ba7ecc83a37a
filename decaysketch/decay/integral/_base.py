"""The base class of integral decays, and how expiry ages are read from the step table."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.decay.integral import _work
from decaysketch.decay.integral._steps import MAX_AGE, MAX_WEIGHT, StepTable
from decaysketch.errors import ParameterError

__all__ = ["Decomposable", "IntegralDecay"]

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

_TABLES_KEPT = 16  # tables of decays that are not in use, or are in use twice


class IntegralDecay(ABC):
    """An integral decay: a value, hashable and comparable, that never changes."""

    @abstractmethod
    def __call__(self, weights: npt.ArrayLike, ages: npt.ArrayLike) -> Int64Array:
        """f, exactly.

        Args:
            weights: integers 0..2^31; they broadcast with ``ages``.
            ages: integers 0..2^63 - 1.

        Returns:
            int64 of the broadcast shape.

        Raises:
            ParameterError: a column that is not of integers, or out of its range.
        """

    @abstractmethod
    def _table(self, max_weight: int) -> StepTable: ...

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, with a ``kind``; see :func:`from_dict`."""

    def _guess(self, ratios: Float64Array) -> Float64Array | None:
        """Roughly min{x : w g(x) < Delta + 1} for ratios w / (Delta + 1) >= 1, if g has an inverse.
        It is off by at most one step wherever float64 can distinguish the steps.
        """
        return None

    @property
    def has_closed_form(self) -> bool:
        """Whether expiry starts from an inverse of the decay rather than a binary search."""
        return self._guess(np.ones(0)) is not None

    def steps(self, max_weight: int) -> StepTable:
        """The step table for weights up to ``max_weight``, computed once and stored in the decay.

        Raises:
            ParameterError: more than 2^20 steps or an age beyond 2^62, detected before computing,
                or f(max_weight, 0) is 0.
        """
        check_integer("max_weight", max_weight, 1, MAX_WEIGHT)
        held: dict[int, _Kept] = self.__dict__.setdefault("_held", {})
        kept = held.get(max_weight) or _KEPT.get(self, max_weight)
        if kept is None:
            with _work.counted() as work:
                table = self._table(max_weight)
            if len(table) < 2:
                raise ParameterError(f"f({max_weight}, 0) of {self!r} is 0; expected more")
            kept = _Kept(table, work.spent)
            _KEPT.put(self, max_weight, kept)
        else:
            _work.spend(kept.operations)
        held[max_weight] = kept
        return kept.table

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_held"}

    def step_bound(self, max_weight: int) -> int:
        """A bound on the number of steps that :meth:`steps` would have to compute. It is 0 if they
        are given or few. O(1).
        """
        return 0

    def expiry_ages(
        self, weights: npt.ArrayLike, positions: npt.ArrayLike, max_weight: int
    ) -> Int64Array:
        """Return the age at which each observation loses the integer at a position (Lemma 3.5).

        Args:
            weights: int64[n], 1..max_weight.
            positions: int64[n], position >= 0 of the first selected integer (the paper's Delta).
            max_weight: the largest weight of the sketch.

        Returns:
            int64[n], ``min{x : f(weight, x) <= position}``, which is one of the table's ages.
            O(log steps) each. An inverse of the decay saves most of the search.

        Raises:
            ParameterError: a column that does not contain integers, or is out of its range.
        """
        steps = self.steps(max_weight)
        w = integer_column("weights", weights, 1, max_weight)
        delta = integer_column("positions", positions, 0, MAX_AGE)
        w, delta = np.broadcast_arrays(w, delta)
        guess = self._guess(np.maximum(w / (delta + 1.0), 1.0))
        if guess is not None:
            ages = np.minimum(guess, float(1 << 62)).astype(np.int64)
            found = np.minimum(np.searchsorted(steps.ages, ages), len(steps) - 1)
            for _ in range(2):  # a guess is rarely off by one, hardly ever by two
                found = found + (steps.at(w, found) > delta)
                found = found - (steps.at(w, np.maximum(found - 1, 0)) <= delta) * (found > 0)
            before = steps.at(w, np.maximum(found - 1, 0)) > delta
            if ((steps.at(w, found) <= delta) & (before | (found == 0))).all():
                return steps.ages[found]
        return steps.ages[_first_step_at_most(steps, w, delta)]


def _first_step_at_most(steps: StepTable, weights: Int64Array, positions: Int64Array) -> Int64Array:
    """First step with f(weight, .) <= position, by binary search over the steps."""
    low = np.zeros(weights.shape, dtype=np.int64)
    high = np.full(weights.shape, len(steps) - 1, dtype=np.int64)  # f is 0 there
    while (low < high).any():
        middle = (low + high) >> 1
        reached = steps.at(weights, middle) <= positions
        high = np.where(reached, middle, high)
        low = np.where(reached, low, np.minimum(middle + 1, high))
    return low


class _Kept(NamedTuple):
    table: StepTable
    operations: int  # that it took


class _Tables:
    """The last computed step tables, for equal decays. Thread-safe.

    Each decay stores its own table, however many decays there are. So a stream does not compute its
    table again for every sketch that is posted to it.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[IntegralDecay, int], _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, decay: IntegralDecay, max_weight: int) -> _Kept | None:
        with self._lock:
            kept = self._kept.get((decay, max_weight))
            if kept is not None:
                self._kept.move_to_end((decay, max_weight))
            return kept

    def put(self, decay: IntegralDecay, max_weight: int, kept: _Kept) -> None:
        with self._lock:
            self._kept[decay, max_weight] = kept
            if len(self._kept) > _TABLES_KEPT:
                self._kept.popitem(last=False)


_KEPT = _Tables()


class Decomposable(IntegralDecay):
    """``f(w, x) = floor(w g(x))``, read through the largest fraction <= g(x) of bounded order."""

    @abstractmethod
    def _fraction(self, age: int, order: int) -> tuple[int, int]:
        """(P, Q): the largest fraction <= g(age) of denominator <= order, in lowest terms."""

    def __call__(self, weights: npt.ArrayLike, ages: npt.ArrayLike) -> Int64Array:
        w = integer_column("weights", weights, 0, MAX_WEIGHT)
        x = integer_column("ages", ages, 0, (1 << 63) - 1)
        order = max(int(w.max(initial=1)), 1)
        distinct, where = np.unique(x, return_inverse=True)
        pairs = [self._fraction(int(age), order) for age in distinct]
        rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)[where.reshape(x.shape)]
        found: Int64Array = np.asarray(w * rows[..., 0] // rows[..., 1])
        return found


# ---------------------------------------------------------------------------------------- checking


def integer_column(name: str, given: npt.ArrayLike, low: int, high: int) -> Int64Array:
    """``given`` as int64, within bounds."""
    column = np.asarray(given)
    if column.dtype.kind not in "iu" and column.size:
        raise ParameterError(f"{name} has dtype {column.dtype}; expected integers")
    if column.size and (column.min() < low or column.max() > high):
        wrong = column[(column < low) | (column > high)].flat[0]
        raise ParameterError(f"{name} holds {wrong}; expected {low} to {high}")
    return column.astype(np.int64, copy=False)


def check_integer(name: str, value: object, low: int, high: int) -> int:
    """``value`` as an int, within bounds."""
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ParameterError(f"{name} is {value!r}; expected an integer from {low} to {high}")
    return value


def check_last_age(decay: IntegralDecay, age: int) -> None:
    """Reject a decay that is not 0 from ``age`` <= MAX_AGE on."""
    if age > MAX_AGE:
        raise ParameterError(
            f"{decay!r} is still positive at age {MAX_AGE}; expected 0 from some earlier age on: "
            "take a coarser time unit, a smaller max_weight or another decay"
        )
