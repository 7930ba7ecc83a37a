"""Sketches of many keys of one stream, handled together: what a family may hand in besides.

For some hundred thousand small sketches the cost is not their rows but an object for each of them.
A family that can hold, merge, write and read them by whole columns says so in ``Family.many``; of
any other there is an object for each key. What comes out is the same, byte for byte.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from decaysketch.contract.sketch import Sketch
from decaysketch.contract.snapshot import Tally
from decaysketch.core.arrays import Column

__all__ = ["HeldByKey", "Many", "ManyKeys"]

BoolArray = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


class Many(ABC):
    """States of the sketches of many keys, numbered from 0."""

    @abstractmethod
    def encode(self) -> tuple[Bytes, Int64Array]:
        """What ``to_bytes`` of each sketch gives: the bytes end to end, and offsets into them, one
        more than there are sketches."""

    @abstractmethod
    def digests(self) -> list[str]:
        """What ``digest`` of each sketch gives."""

    @abstractmethod
    def tallies(self) -> list[Tally]:
        """What ``snapshot().tally()`` of each sketch gives."""

    @abstractmethod
    def sketch(self, number: int) -> Sketch:
        """One of them, as a sketch of its own."""


class HeldByKey(ABC):
    """Rows of many keys, numbered from 0, on their way into sketches."""

    @abstractmethod
    def add(
        self,
        keys: int,
        codes: Int32Array,
        columns: Mapping[str, Column],
        left_out: BoolArray,
    ) -> None:
        """Take validated rows; the arrays may be kept, and must not change afterwards.

        Args:
            keys: how many keys there are by now.
            codes: int32[n], the number of the key of each row.
            columns: arguments of the sketches' ``update``, each of n rows.
            left_out: bool[n], rows that are not taken.
        """

    @abstractmethod
    def compact(self) -> None:
        """Bring every key to its state. O(rows held + keys)."""

    @property
    @abstractmethod
    def held(self) -> int:
        """Rows of all keys that are left; compacts."""

    @property
    @abstractmethod
    def replaced(self) -> int:
        """Readings that a later one of the same id replaced, far away in time
        (:mod:`decaysketch.core.replaced`), of all keys; compacts."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of memory, at the height of the next compaction."""

    @abstractmethod
    def ranges(self, rows: int, keys: int) -> list[tuple[int, int]]:
        """Ranges of numbers of keys that hold about so many rows, or keys, at most; compacts."""

    @abstractmethod
    def sketches(self, start: int, stop: int) -> Many:
        """The states of the keys numbered ``start`` to ``stop - 1``; compacts."""


class ManyKeys(ABC):
    """How sketches of one stream are handled together."""

    @abstractmethod
    def hold(self, memory_bytes: int | None) -> HeldByKey:
        """Nothing yet, to be filled.

        Args:
            memory_bytes: compacts before it takes more, where it can; None: no limit.
        """

    @abstractmethod
    def merge(
        self, data: Bytes, offsets: Int64Array, keys: Int32Array, count: int
    ) -> tuple[Many, BoolArray]:
        """Merge sketches that lie in one buffer, key by key.

        Args:
            data: the bytes.
            offsets: int64[sketches + 1] into them.
            keys: int32[sketches], the number of the key of each, ascending and below ``count``.
            count: how many keys there are.

        Returns:
            (merged, done bool[count]). Of a key that is not done, one of whose sketches is anything
            but flawless and plain, the state has no meaning: its sketches are to be read one by
            one, which either merges them or says what is wrong.
        """
