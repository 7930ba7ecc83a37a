"""Queries on highs and lows under one decay and at one time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from decaysketch.core.observations import TIME_LIMIT, decode_values
from decaysketch.decay import Decay
from decaysketch.errors import UnanswerableQueryError
from decaysketch.extremes import _native
from decaysketch.extremes.rows import Staircase
from decaysketch.extremes.state import ExtremesState
from decaysketch.query.estimate import Estimate, check_confidence
from decaysketch.query.extremes import ExtremeView, Observed

__all__ = ["StairView"]

_DRAW_S = 1e-5  # processor seconds, measured


@dataclass(frozen=True, slots=True, eq=False)
class StairView(ExtremeView):
    """Highs and lows in a window. Immutable. Any thread may read it.

    Attributes:
        state: the stored rows.
        highs, lows: its highs and lows.
        decay, asked: the query's decay and time. No row is later than that time.
    """

    state: ExtremesState
    highs: Staircase
    lows: Staircase
    decay: Decay
    asked: int

    @property
    def now(self) -> int:
        return self.asked

    @property
    def verified(self) -> Literal["proof", "grid"]:
        return "grid" if getattr(self.decay, "verified", None) == "grid" else "proof"

    @property
    def drawn_s(self) -> float:
        return _DRAW_S

    @property
    def _since(self) -> int:
        """The earliest time with weight under the decay."""
        if self.decay.support >= 2.0 * TIME_LIMIT:
            return -TIME_LIMIT
        return max(self.asked - int(self.decay.support), -TIME_LIMIT)

    def _found(self, stairs: Staircase) -> tuple[int, int | None]:
        """Return the first step since then, and the one before it if its span reaches into the
        window. The index is the number of steps if there is no such step.
        """
        since = self._since
        first = int(stairs.times.searchsorted(since))
        if first in (0, len(stairs.times)):  # nothing before, or nothing since
            return first, None
        before = int(stairs.times[first - 1])
        newest, spans = int(stairs.times[-1]), self.state.params.capacity
        cut = _native.end_of_span(before, newest, spans) >= since
        return first, first - 1 if cut else None

    def extreme(self, largest: bool, *, confidence: float) -> Estimate:
        confidence = check_confidence(confidence)
        stairs = self.highs if largest else self.lows
        step, beyond = self._found(stairs)
        if step == len(stairs.times):
            return Estimate(math.nan, math.nan, math.nan, 0.0, confidence, True, 0, 0.0)
        value = self._value(stairs, step)
        if beyond is None:
            return Estimate(value, value, value, 0.0, confidence, True, 1, 0.0)
        end = self._value(stairs, beyond)
        lower, upper = (value, end) if largest else (end, value)
        return Estimate(
            value, lower, upper, 0.5 * (upper - lower), confidence, False, 2, 0.0,
            caveats=("span-cut",),
        )  # fmt: skip

    def observed(self, largest: bool) -> Observed | None:
        stairs = self.highs if largest else self.lows
        step, beyond = self._found(stairs)
        if step == len(stairs.times):
            return None
        if beyond is not None:
            what = "largest" if largest else "least"
            raise UnanswerableQueryError(
                f"since time {self._since} ({self.state.params.time_unit}) the {what} value may be "
                f"any from {self._value(stairs, step)!r} to {self._value(stairs, beyond)!r}: the "
                "window begins inside of a span of which one row is kept; a larger capacity has "
                "shorter ones"
            )
        return Observed(self._value(stairs, step), int(stairs.times[step]))

    def _value(self, stairs: Staircase, step: int) -> float:
        keys = stairs.value_keys[step : step + 1]
        values, _ = decode_values(np.ascontiguousarray(keys), self.state.params.value_type)
        value: float = values.tolist()[0]
        return value
