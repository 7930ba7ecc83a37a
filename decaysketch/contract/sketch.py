"""What every sketch can do, whatever its family; what it can be asked comes with its questions."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from decaysketch.contract.snapshot import Snapshot
from decaysketch.core.view import Summarized

__all__ = ["Sketch"]


class Sketch(Summarized):
    """A mergeable summary of the observations of a stream. Not safe to use from two threads."""

    @property
    @abstractmethod
    def params(self) -> Any:
        """Build parameters; ``params.capacity`` is the capacity in force."""

    @abstractmethod
    def update(self, *columns: Any, **options: Any) -> None:
        """Fold in observations: columns, or one observation as plain numbers."""

    @abstractmethod
    def verdicts(self, *columns: Any, **options: Any) -> npt.NDArray[np.int8]:
        """What :meth:`update` with a batch would do with each row; nothing is changed.

        Returns:
            int8[n]: a :class:`~decaysketch.core.verdicts.Verdict` for each row.
        """

    @abstractmethod
    def merge(self, *others: Any) -> None:
        """Fold in everything that ``others``, or what they are snapshots of, saw; none is changed.

        Raises:
            IncompatibleSketchError: naming all that differs; this sketch is unchanged.
            TypeError: one of them is no sketch of this family.
        """

    @abstractmethod
    def resize(self, capacity: int) -> None:
        """Shrink to a smaller capacity: the state that building with it would have given.

        Raises:
            ParameterError: a capacity larger than the present one; what was discarded is gone.
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the rows, room for more included; snapshots come on top."""

    @abstractmethod
    def trim(self) -> None:
        """Give back what no row needs. Changes no state. O(rows)."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """What is held now, immutable, to be read from any thread."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Canonical bytes: equal states give equal bytes on every platform."""

    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of the state, in hex: equal for equal states, whatever the wire version."""

    @abstractmethod
    def copy(self) -> Self:
        """An independent sketch with the same state."""

    @abstractmethod
    def stats(self) -> Any:
        """What was fed and what is held, as figures by name."""

    @abstractmethod
    def __len__(self) -> int:
        """Rows held."""
