"""Estimate the aggregator's clock from ``Date`` headers, because a device's clock may be wrong.

A client rejects rows dated after the latest accepted time, one by one. The aggregator could only
reject the complete delta. The estimate is never early. If this machine's clock jumps forward, more
rows pass, and the aggregator decides.

A sketch's clock may run ahead by less than a row's time, or the stream would drop data too early. A
sketch with an earlier clock drops data later and loses nothing. So a client with a fast clock sets
its sketches to the aggregator's time, and the aggregator accepts them at once.
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

_WHOLE_SECONDS = 1.0  # a Date header has full seconds


class AggregatorClock:
    """The limits of a stream, as far as they are known.

    Attributes:
        max_skew_s: seconds that a row's time may lie ahead of the aggregator's clock. None:
            unlimited or unknown.
        max_lead_s: the same for a sketch's clock.
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
        """Read the time from a response."""
        try:
            moment = parsedate_to_datetime(headers.get("date", ""))
            date = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
        except (ValueError, OverflowError):
            return
        self._heard = date, self._steady(), self._wall()

    def latest(self, unit: str) -> int | None:
        """Return the latest accepted time, or None if unlimited or unknown."""
        size, now_s = NANOSECONDS.get(unit), self._now_s()
        if now_s is None or self.max_skew_s is None or size is None:
            return None
        return int((now_s + _WHOLE_SECONDS + self.max_skew_s) * 1e9 // size)

    def _now_s(self) -> float | None:
        """Return the time of the last ``Date``, up to a second early."""
        if self._heard is None:
            return None
        date, steady, wall = self._heard
        # A steady clock may stop while the machine sleeps.
        return date + max(self._steady() - steady, self._wall() - wall)

    def not_before(self, unit: str) -> float:
        """Return a time that the aggregator's clock has passed, so ages are never too large.

        Minus infinity before the first ``Date``. It uses the monotonic clock, which may stop during
        sleep and may be fast.
        """
        heard, size = self._heard, NANOSECONDS.get(unit)
        if heard is None or size is None:
            return -math.inf
        date, steady, _ = heard
        return (date + (self._steady() - steady) * (1.0 - CLOCK_RATE)) * 1e9 / size

    def to_tell(self, now: int, unit: str) -> int:
        """Return the clock to set at ``now``, limited to the aggregator's limit."""
        size, now_s = NANOSECONDS.get(unit), self._now_s()
        if now_s is None or self.max_lead_s is None or size is None:
            return now
        return min(now, int((now_s + self.max_lead_s) * 1e9 // size))

    def check(self, arguments: Mapping[str, Any], unit: str) -> None:
        """Reject an update with times after the latest accepted time.

        Args:
            arguments: of ``update``. Rows after its ``not_after`` are ignored.
            unit: the stream's time unit.

        Raises:
            ObservationError: names the row, its time and the latest accepted time.
        """
        latest = self.latest(unit)
        if latest is None:
            return
        why = (
            f"{latest} {unit}, {self.max_skew_s:g} s past the aggregator's clock "
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
            return  # the sketch reports their fault
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
