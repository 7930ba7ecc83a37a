"""What may go wrong many times a second, said once a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["Seldom"]

_EVERY_S = 60.0


class Seldom:
    """Says something at once, and for a minute after it only counts how often it would have been
    said again. The next line tells how often that was.

    Args:
        log: where it is said.
        clock: seconds, from any beginning.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._said_at = float("-inf")
        self._unsaid = 0

    def say(self, level: int, message: str, *arguments: object) -> None:
        """Say it, unless something was said a moment ago."""
        if self._clock() - self._said_at < _EVERY_S:
            self._unsaid += 1
            return
        if self._unsaid:
            message += " (and %d times more since the last such line)"
            arguments = (*arguments, self._unsaid)
        self._said_at, self._unsaid = self._clock(), 0
        self._log.log(level, message, *arguments)

    def over(self) -> int:
        """It has passed: what comes next is said at once. How often it was not said."""
        unsaid, self._unsaid = self._unsaid, 0
        self._said_at = float("-inf")
        return unsaid
