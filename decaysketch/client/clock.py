"""The time of the aggregator, by the ``Date`` of its answers, for sensors whose own may be wrong.

What is dated past what the stream admits is refused by the sensor, row by row and at once; the
aggregator could only refuse the whole delta that it is in, and all that was merged with it. The
estimate is never early: the clock of this machine may step forward, and then more is let pass,
which the aggregator judges.

A clock that a sketch is told may lie ahead by less than a time may, or the stream would forget by
it what is not due. A sketch that is told an earlier time forgets later and loses nothing, so a
sensor whose own clock is ahead tells its sketches the aggregator's: what they hold is taken at
once, and not when its time has come.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np

from decaysketch.core.plausible_times import in_another_unit
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import ObservationError
from decaysketch.monitor.pending import CLOCK_RATE

__all__ = ["AggregatorClock"]

_WHOLE_SECONDS = 1.0  # what a Date leaves out


class AggregatorClock:
    """What a stream admits, as far as is known.

    Attributes:
        max_skew_s: how far past the aggregator's clock a time may lie; None: any, or not known.
        max_lead_s: how far a clock may; None: any, or not known.
    """

    def __init__(
        self,
        steady: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.max_skew_s: float | None = None
        self.max_lead_s: float | None = None
        self._steady, self._wall = steady, wall
        self._heard: tuple[float, float, float] | None = None

    def hear(self, headers: Mapping[str, str]) -> None:
        """Take the time from an answer of the aggregator."""
        try:
            moment = parsedate_to_datetime(headers.get("date", ""))
            date = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
        except (ValueError, OverflowError):
            return
        self._heard = date, self._steady(), self._wall()

    def latest(self, unit: str) -> int | None:
        """The latest time that is admitted; None where any is, or where that is not known."""
        size, now_s = NANOSECONDS.get(unit), self._now_s()
        if now_s is None or self.max_skew_s is None or size is None:
            return None
        return int((now_s + _WHOLE_SECONDS + self.max_skew_s) * 1e9 // size)

    def _now_s(self) -> float | None:
        """By the last ``Date``, so up to a second early."""
        if self._heard is None:
            return None
        date, steady, wall = self._heard
        # A steady clock may stop while the machine sleeps.
        return date + max(self._steady() - steady, self._wall() - wall)

    def not_before(self, unit: str) -> float:
        """A time that the aggregator's clock has reached, by which ages are never too large; of no
        ``Date`` yet, minus infinity.

        By the steady clock alone, which may stop while the machine sleeps, and may be fast.
        """
        heard, size = self._heard, NANOSECONDS.get(unit)
        if heard is None or size is None:
            return -math.inf
        date, steady, _ = heard
        return (date + (self._steady() - steady) * (1.0 - CLOCK_RATE)) * 1e9 / size

    def to_tell(self, now: int, unit: str) -> int:
        """The clock that a sketch is told at ``now``: what the aggregator takes of it."""
        size, now_s = NANOSECONDS.get(unit), self._now_s()
        if now_s is None or self.max_lead_s is None or size is None:
            return now
        return min(now, int((now_s + self.max_lead_s) * 1e9 // size))

    def check(self, arguments: Mapping[str, Any], unit: str) -> None:
        """Refuse an update that has times past what is admitted.

        Args:
            arguments: of ``update``; rows later than its ``not_after`` are not looked at.
            unit: of the stream's times.

        Raises:
            ObservationError: naming the row, its time and the latest that is admitted.
        """
        latest = self.latest(unit)
        if latest is None:
            return
        why = (
            f"{latest} {unit}, {self.max_skew_s:g} s past the clock of the aggregator "
            "(max_clock_skew_s of the stream)"
        )
        now = arguments.get("now")
        if isinstance(now, int) and now > latest:
            raise ObservationError(
                f"now is {now}; expected at most {why}{in_another_unit(unit, now)}",
                column="now", value=now,
            )  # fmt: skip
        times = np.atleast_1d(np.asarray(arguments.get("timestamps", ())))
        if times.dtype.kind not in "iu":
            return  # the sketch says what is wrong with them
        late = times > latest
        if (not_after := arguments.get("not_after")) is not None:
            late &= times <= not_after
        if late.any():
            row = int(late.argmax())
            raise ObservationError(
                f"timestamps[{row}] is {times[row]}; expected at most {why}"
                f"{in_another_unit(unit, int(times[row]))}",
                column="timestamps", row=row, value=int(times[row]),
            )  # fmt: skip
