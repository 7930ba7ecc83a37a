"""The step table: the form of an integral decay that kernels read, for one largest weight.

An integral decay ``f(w, x)`` with weights up to ``max_weight`` is constant between finitely many
ages. A table stores those ages. For each step it stores either one fraction ``P / Q`` with
``f(w, x) = floor(w P / Q)`` (decomposable decay), or a loss and a cap with ``f(w, x) = max(min(w -
loss, cap), 0)``, or the value for every weight. Products stay below
2^62, so reading it is exact int64 arithmetic, and its digest identifies the decay on every
platform.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_AGE", "MAX_STEPS", "MAX_WEIGHT", "StepTable"]

Int64Array = npt.NDArray[np.int64]

MAX_STEPS = 1 << 20
MAX_AGE = (1 << 62) - 1  # |t| <= 2^62, so t + age fits into int64
MAX_WEIGHT = 1 << 31


@dataclass(frozen=True, eq=False)
class StepTable:
    """An integral decay with weights up to ``max_weight``. Its arrays are read-only.

    Attributes:
        max_weight: the largest weight that the table covers.
        ages: int64[k], k >= 2, rising from 0. ``f(w, .)`` is constant from one age to before the
            next, and 0 for every weight from the last one on.
        numerators: int64[k]. ``f(w, x) = w * numerators[s] // denominators[s]`` at step ``s``.
            Empty if the decay is not decomposable.
        denominators: int64[k], at most ``max_weight``.
        values: int64[max_weight + 1, k], ``f(w, x) = values[w, s]``, if the decay is neither
            decomposable nor clipped, else None.
        losses, caps: int64[k] each if the decay is clipped, else None: ``f(w, x) =
            max(min(w - losses[s], caps[s]), 0)`` for weights above 0.
        digest: 16 bytes, equal exactly if the tables are equal: BLAKE2b (16 bytes, person
            ``ds-steps-1``) of ``max_weight``, ``k`` and the form as uint64 (0 decomposable, 1
            values, 2 clipped),
            then the arrays in the order above, row by row, as int64, all little-endian.
    """

    max_weight: int
    ages: Int64Array
    numerators: Int64Array
    denominators: Int64Array
    values: Int64Array | None
    digest: bytes
    losses: Int64Array | None = None
    caps: Int64Array | None = None

    @classmethod
    def of_fractions(cls, max_weight: int, steps: Sequence[tuple[int, int, int]]) -> StepTable:
        """Build from rows (age, numerator, denominator). Equal neighbours become one step."""
        rows = np.array(steps, dtype=np.int64).reshape(-1, 3)
        changes = np.ones(len(rows), dtype=bool)
        changes[1:] = (rows[1:, 1:] != rows[:-1, 1:]).any(axis=1)
        ages, numerators, denominators = (column[changes].copy() for column in rows.T)
        return _sealed(max_weight, ages, numerators, denominators, None)

    @classmethod
    def of_values(cls, max_weight: int, ages: Int64Array, values: Int64Array) -> StepTable:
        """Build from one column per age, with rows for the weights 0..max_weight. Equal neighbours
        become one step.
        """
        changes = np.ones(len(ages), dtype=bool)
        changes[1:] = (values[:, 1:] != values[:, :-1]).any(axis=0)
        none = np.empty(0, dtype=np.int64)
        table = np.ascontiguousarray(values[:, changes], dtype=np.int64)
        return _sealed(max_weight, ages[changes], none, none.copy(), table)

    @classmethod
    def of_clipped(
        cls, max_weight: int, ages: Int64Array, losses: Int64Array, caps: Int64Array
    ) -> StepTable:
        """Build from one row per age. Equal neighbours become one step."""
        changes = np.ones(len(ages), dtype=bool)
        changes[1:] = (np.diff(losses) != 0) | (np.diff(caps) != 0)
        none = np.empty(0, dtype=np.int64)
        clipped = losses[changes], caps[changes]
        return _sealed(max_weight, ages[changes], none, none.copy(), None, *clipped)

    @property
    def nbytes(self) -> int:
        """Bytes of its columns."""
        columns = (
            self.ages,
            self.numerators,
            self.denominators,
            self.values,
            self.losses,
            self.caps,
        )
        return sum(column.nbytes for column in columns if column is not None)

    def restricted(self, max_weight: int) -> StepTable:
        """Return the table of values, or the clipped one, for smaller weights."""
        if self.values is not None:
            return StepTable.of_values(max_weight, self.ages, self.values[: max_weight + 1])
        assert self.losses is not None
        assert self.caps is not None
        losses = np.minimum(self.losses, max_weight)
        caps = np.minimum(self.caps, max_weight - losses)
        losses = np.where(caps > 0, losses, max_weight)
        return StepTable.of_clipped(max_weight, self.ages, losses, caps)

    def at(self, weights: Int64Array, steps: Int64Array) -> Int64Array:
        """f at steps of the table. The two arguments broadcast."""
        if self.values is not None:
            return self.values[weights, steps]
        if self.losses is not None and self.caps is not None:
            left = np.minimum(weights - self.losses[steps], self.caps[steps])
            return np.where(weights > 0, np.maximum(left, 0), 0)
        return weights * self.numerators[steps] // self.denominators[steps]

    def __len__(self) -> int:
        """Number of steps, k."""
        return len(self.ages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepTable) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Callable[..., StepTable], tuple[Any, ...]]:
        return _sealed, (
            self.max_weight, self.ages, self.numerators, self.denominators, self.values,
            self.losses, self.caps,
        )  # fmt: skip


def _sealed(
    max_weight: int,
    ages: Int64Array,
    numerators: Int64Array,
    denominators: Int64Array,
    values: Int64Array | None,
    losses: Int64Array | None = None,
    caps: Int64Array | None = None,
) -> StepTable:
    digest = hashlib.blake2b(digest_size=16, person=b"ds-steps-1")
    form = 2 if losses is not None else int(values is not None)
    digest.update(struct.pack("<QQQ", max_weight, len(ages), form))
    for column in (ages, numerators, denominators, values, losses, caps):
        if column is not None:
            digest.update(column.astype("<i8", copy=False).tobytes())
            column.setflags(write=False)
    return StepTable(
        max_weight, ages, numerators, denominators, values, digest.digest(), losses, caps
    )
