"""The work for computing a decay, counted in operations: the same count on every machine.

An operation costs about as much as adding two 128-bit fractions, some 5 microseconds on a usual
core. Longer work counts for more: a product of 4,096-bit numbers, or a root found by bisection,
counts by its size. So no text has a low count and a high cost. Stored results count as if they were
computed again, so the count does not depend on earlier work in the process.

Each thread of control has its own count (:mod:`contextvars`). A caller that computes for somebody
else bounds the count, and may pause in between::

    with at_most(1 << 17):
        integral.from_dict(fields).steps(max_weight)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from decaysketch.errors import ParameterError

__all__ = ["Allowance", "also", "at_most", "counted", "largest_table", "spend"]

_CELLS_OF_AN_OPERATION = 8  # so many values of a table may an allowance hold, for each operation


class _Counts(Protocol):
    def spend(self, operations: int) -> None: ...


_COUNTING: ContextVar[tuple[_Counts, ...]] = ContextVar("counting", default=())


def spend(operations: int) -> None:
    """Count operations that were done or follow. Pass 0 if their number is bounded elsewhere.

    Raises:
        ParameterError: an active counter allows fewer.
    """
    for each in _COUNTING.get():
        each.spend(operations)


class Allowance:
    """A limit on operations in total.

    Args:
        operations: the limit.
        meanwhile: called again and again during the work. It may wait, or raise to end the work.
    """

    def __init__(self, operations: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.operations = operations
        self.spent = 0
        self._meanwhile = meanwhile

    def spend(self, operations: int) -> None:
        """Count operations."""
        self.spent += operations
        self._meanwhile()
        if self.spent > self.operations:
            raise ParameterError(
                f"the decay takes more than {self.operations} operations to compute here; expected "
                "fewer: take a coarser time unit, a smaller max_weight or another decay"
            )


class _Count:
    """A count of operations without a limit."""

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, operations: int) -> None:
        self.spent += operations


@contextmanager
def at_most(operations: int, meanwhile: Callable[[], None] = lambda: None) -> Iterator[Allowance]:
    """Bound the computation inside the context; see :class:`Allowance`.

    Raises:
        ParameterError: the next operation would exceed the limit.
    """
    allowance = Allowance(operations, meanwhile)
    with also(allowance):
        yield allowance


@contextmanager
def counted() -> Iterator[_Count]:
    """Count the computation inside the context, in addition to other counters."""
    count = _Count()
    with also(count):
        yield count


@contextmanager
def also(counts: _Counts) -> Iterator[None]:
    """Let ``counts`` count the work inside the context, in addition to all active counters."""
    token = _COUNTING.set((*_COUNTING.get(), counts))
    try:
        yield
    finally:
        _COUNTING.reset(token)


def largest_table(cells: int) -> int:
    """The maximum number of values in a table: ``cells``, or fewer if an active counter allows
    less.
    """
    allowed = [
        each.operations * _CELLS_OF_AN_OPERATION
        for each in _COUNTING.get()
        if isinstance(each, Allowance)
    ]
    return min([cells, *allowed])
