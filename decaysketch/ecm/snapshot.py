"""Sources' states as they were at one moment: immutable, to be read from any thread."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Generic, TypeVar

from decaysketch.ecm import wire
from decaysketch.ecm.params import ECMParams
from decaysketch.ecm.questions import AskedOfCells
from decaysketch.ecm.state import ECMState, Source, name_of

__all__ = ["ECMSnapshot"]

S = TypeVar("S", covariant=True)


class ECMSnapshot(AskedOfCells, Generic[S]):
    """An immutable :class:`~decaysketch.ecm.ECMSketch`, or collection; asked like one.

    Args:
        params: of the stream.
        states: of the sources, each with its epoch.
        thaw: makes one of its own of it.
    """

    def __init__(
        self,
        params: ECMParams,
        states: Sequence[ECMState],
        thaw: Callable[[ECMSnapshot[S]], S],
    ) -> None:
        super().__init__()
        self._params = params
        self._thaw = thaw
        ordered = sorted(states, key=lambda state: (name_of(state.source), state.epoch))
        #: States by (source, epoch), in their order.
        self.entries: Mapping[tuple[Source, int], ECMState] = MappingProxyType(
            {state.identity: state for state in ordered}
        )

    @property
    def params(self) -> ECMParams:
        return self._params

    def _states(self) -> Sequence[ECMState]:
        return list(self.entries.values())

    def __len__(self) -> int:
        """Entries."""
        return len(self.entries)

    @cached_property
    def clock(self) -> int | None:
        clocks = [state.clock for state in self.entries.values() if state.clock is not None]
        return max(clocks, default=None)

    @cached_property
    def newest(self) -> int | None:
        """The latest time of an event; None where there is none."""
        times = [state.newest for state in self.entries.values() if state.newest is not None]
        return max(times, default=None)

    @cached_property
    def seen(self) -> int:
        """Weight of all that was counted."""
        return sum(state.seen for state in self.entries.values())

    @property
    def too_late(self) -> int:
        """Weight of all that was older than every lane of its source, and refused."""
        return sum(state.too_late for state in self.entries.values())

    @property
    def horizon(self) -> int | None:
        """How far back it answers."""
        return self.params.horizon

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all states, in hex: equal for equal ones, whatever the wire version."""
        digest = hashlib.sha256(self.params.fingerprint)
        digest.update(self.params.capacity.to_bytes(8, "little"))
        for state in self.entries.values():
            digest.update(bytes.fromhex(state.digest))
        return digest.hexdigest()

    @cached_property
    def size_bytes(self) -> int:
        """Length on the wire."""
        return len(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Canonical bytes: equal states give equal bytes on every platform. O(times)."""
        return wire.encode(self.params, self.entries.values())

    def thaw(self) -> S:
        """One of its own with this state."""
        return self._thaw(self)
