"""Sketches for many keys in one stream, handled together: an optional part of a family.

For some hundred thousand small sketches the cost is not their rows but an object for each of them.
A family that can store, merge, write and read them by complete columns sets ``Family.many``. Other
families have an object for each key. The result is the same, byte for byte.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.contract.sketch import Sketch
from decaysketch.contract.snapshot import Tally
from decaysketch.core.arrays import Column

__all__ = ["HeldByKey", "Many", "ManyKeys", "Merged"]

BoolArray = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


class Many(ABC):
    """Sketch states for many keys, numbered from 0."""

    @abstractmethod
    def encode(self) -> tuple[Bytes, Int64Array]:
        """Return the ``to_bytes`` result of each sketch: the bytes end to end, and offsets into
        them, one more than there are sketches.
        """

    @abstractmethod
    def digests(self) -> list[str]:
        """Return the ``digest`` of each sketch."""

    @abstractmethod
    def tallies(self) -> list[Tally]:
        """Return ``snapshot().tally()`` for each sketch."""

    @abstractmethod
    def sketch(self, number: int) -> Sketch:
        """Return one of them as an independent sketch."""


class Merged(NamedTuple):
    """The result of a merge key by key.

    Attributes:
        sketches: one for each key.
        done: bool[keys]. A key is not done if one of its sketches is not flawless and plain. Its
            other entries have no meaning. Read its sketches one by one: this either merges them or
            reports the fault.
        replaced: int64[keys], see :attr:`HeldByKey.replaced`.
    """

    sketches: Many
    done: BoolArray
    replaced: Int64Array


class HeldByKey(ABC):
    """Rows for many keys, numbered from 0, before they enter sketches."""

    @abstractmethod
    def add(
        self,
        keys: int,
        codes: Int32Array,
        columns: Mapping[str, Column],
        left_out: BoolArray,
    ) -> None:
        """Store validated rows. The arrays may be kept, and must not change afterwards.

        Args:
            keys: the current number of keys.
            codes: int32[n], the key number for each row.
            columns: arguments of the sketches' ``update``, each with n rows.
            left_out: bool[n], rows to skip.
        """

    @abstractmethod
    def compact(self) -> None:
        """Bring every key to its state. O(rows held + keys)."""

    @property
    @abstractmethod
    def held(self) -> int:
        """Number of remaining rows for all keys. Compacts."""

    @property
    @abstractmethod
    def replaced(self) -> Int64Array:
        """int64[keys]: readings that a later reading with the same id replaced, far away in time
        (:mod:`decaysketch.core.duplicates`). Compacts.
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of memory at the peak of the next compaction."""

    @abstractmethod
    def ranges(self, rows: int, keys: int) -> list[tuple[int, int]]:
        """Return ranges of key numbers with about this maximum of rows, or keys. Compacts."""

    @abstractmethod
    def sketches(self, start: int, stop: int) -> Many:
        """Return the states for the keys ``start`` to ``stop - 1``. Compacts."""


class ManyKeys(ABC):
    """Joint handling of the sketches in one stream."""

    @abstractmethod
    def hold(self, memory_bytes: int | None) -> HeldByKey:
        """Return an empty container for rows.

        Args:
            memory_bytes: compacts before it stores more, where it can. None: no limit.
        """

    @abstractmethod
    def merge(self, data: Bytes, offsets: Int64Array, keys: Int32Array, count: int) -> Merged:
        """Merge sketches that lie in one buffer, key by key.

        Args:
            data: the bytes.
            offsets: int64[sketches + 1] into them.
            keys: int32[sketches], the key number for each, ascending and below ``count``.
            count: number of keys.
        """
