"""Budgets that no caller can use up alone.

A caller may always have one request under way, as large as the budget. Beyond that it has a quarter
of the budget for itself, and more only as long as half of the budget stays free. So one caller
always leaves half to the others. A caller is a key. Without keys all requests belong to one caller,
and it has the complete budget.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Shares", "charged_caller", "charging"]

_charged: ContextVar[str | None] = ContextVar("_charged", default=None)


@contextmanager
def charging(caller: str) -> Iterator[None]:
    """Charge the work of this thread to a caller, as long as the context lasts."""
    token = _charged.set(caller)
    try:
        yield
    finally:
        _charged.reset(token)


def charged_caller() -> str | None:
    """Return the caller that the work of this thread is charged to. None: the server itself."""
    return _charged.get()


class Shares:
    """A budget of bytes, rows or posts. Thread-safe.

    Args:
        limit: how much there is.

    Attributes:
        taken: the amount in use.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._by: Counter[str] = Counter()
        self._lock = threading.Lock()

    def fits(self, caller: str | None, amount: int, own: int = 0) -> bool:
        """Return whether a request may take so much more.

        Args:
            caller: the owner of the request.
            amount: so much more.
            own: the amount that the request has taken before.
        """
        if self.taken == own:
            return True  # it is alone: no limit is below what a single request may have
        taken = self.taken + amount
        if taken > self.limit:
            return False
        if caller is None or self._by[caller] == own:
            return True
        return self._by[caller] + amount <= self.limit // 4 or taken <= self.limit // 2

    def crowded(self, caller: str | None) -> bool:
        """Return whether a caller may take no more at all, where a request may exceed the
        budget.
        """
        if self.taken >= self.limit:
            return True
        if caller is None:
            return False
        return self._by[caller] * 4 >= self.limit and self.taken * 2 >= self.limit

    def change(self, caller: str | None, amount: int) -> None:
        """Take so much more, or give it back."""
        with self._lock:
            self.taken += amount
            if caller is not None:
                self._by[caller] += amount
                if not self._by[caller]:
                    del self._by[caller]

    def settle(self, taken: int) -> None:
        """Set the amount in use, divided among the callers in the same proportion as before.
        O(callers).
        """
        with self._lock:
            share = taken / self.taken if self.taken else 0.0
            shares = ((caller, round(amount * share)) for caller, amount in self._by.items())
            self._by = Counter({caller: amount for caller, amount in shares if amount > 0})
            self.taken = taken
