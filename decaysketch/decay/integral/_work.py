"""How much work it is to compute a decay, counted in operations: the same on every machine.

An operation is about what a sum of two fractions of 128 bits costs, some 5 microseconds of a usual
core. What takes longer counts for more: a product of numbers of 4,096 bits, or a root found by
bisection, counts by its size, so that no text is cheap by the count and dear by the clock. Results
that are kept are counted as if they were computed again, so that it does not matter what a process
has computed before.

The counting is per thread of control (:mod:`contextvars`). Whoever computes for somebody else
bounds it, and may take pauses in it::

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
    """So many operations were done, or are about to be; 0 where their number is bounded elsewhere.

    Raises:
        ParameterError: that is more than somebody allows who counts.
    """
    for each in _COUNTING.get():
        each.spend(operations)


class Allowance:
    """Operations that may be done, in all.

    Args:
        operations: that many.
        meanwhile: called again and again while they are done; it may wait, or raise to end it all.
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
    """Operations, and no bound of them."""

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, operations: int) -> None:
        self.spent += operations


@contextmanager
def at_most(operations: int, meanwhile: Callable[[], None] = lambda: None) -> Iterator[Allowance]:
    """Bound what is computed within; see :class:`Allowance`.

    Raises:
        ParameterError: where the next operation would be one too many.
    """
    allowance = Allowance(operations, meanwhile)
    with also(allowance):
        yield allowance


@contextmanager
def counted() -> Iterator[_Count]:
    """Count what is computed within, whoever else does."""
    count = _Count()
    with also(count):
        yield count


@contextmanager
def also(counts: _Counts) -> Iterator[None]:
    """Let ``counts`` count what is done within, beside all that count already."""
    token = _COUNTING.set((*_COUNTING.get(), counts))
    try:
        yield
    finally:
        _COUNTING.reset(token)


def largest_table(cells: int) -> int:
    """The most values that a table may have: ``cells``, or fewer where somebody allows less."""
    allowed = [
        each.operations * _CELLS_OF_AN_OPERATION
        for each in _COUNTING.get()
        if isinstance(each, Allowance)
    ]
    return min([cells, *allowed])
