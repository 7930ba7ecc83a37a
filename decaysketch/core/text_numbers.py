"""A column's distinct texts, by number.

Numbers never enter a state or bytes. Texts that no row has are dropped from time to time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["TextNumbers"]

Int64Array = npt.NDArray[np.int64]

_BYTES_BESIDE_TEXT = 100  # of memory that a text takes in addition to its object


class TextNumbers:
    """A number for each text, in arrival order."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._text_bytes = 0
        self._ranks = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes."""
        return len(self._numbers) * _BYTES_BESIDE_TEXT + self._text_bytes

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts in number order."""
        return tuple(self._numbers)

    def unknown(self, texts: Iterable[str]) -> int:
        """Return how many texts have no number."""
        return sum(text not in self._numbers for text in texts)

    def numbered(self, texts: Iterable[str]) -> Int64Array:
        """Return a number for each text. New texts get one."""
        known, found = self._numbers, []
        for text in texts:
            number = known.get(text)
            if number is None:
                number = known[text] = len(known)
                self._text_bytes += sys.getsizeof(text)
            found.append(number)
        return np.array(found, np.int64)

    def ranks(self) -> Int64Array:
        """Return each number's place among the rising texts."""
        if len(self._ranks) != len(self._numbers):
            order = [self._numbers[text] for text in sorted(self._numbers)]
            self._ranks = np.empty(len(order), np.int64)
            self._ranks[order] = np.arange(len(order))
        return self._ranks

    def keep(self, used: Int64Array) -> Int64Array:
        """Drop the other texts. Return the new number for each old number, rising."""
        texts = self.texts
        renumbered = np.zeros(len(texts), np.int64)
        renumbered[used] = np.arange(len(used))
        self.__init__()  # type: ignore[misc]
        self.numbered(texts[number] for number in used.tolist())
        return renumbered
