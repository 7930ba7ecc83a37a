"""Status and events of a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Event", "HeldBack", "Status"]


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Data that a source holds back for one monitor.

    Attributes:
        monitor, epoch: the monitor.
        weight: upper bound on the unacknowledged weight. Infinite until the data from before the
            client learned about the monitor are posted.
        allowance: weight that it may hold back now.
        lease_s: seconds until the allowance ends without a response.
    """

    monitor: str
    epoch: int
    weight: float
    allowance: float
    lease_s: float


@dataclass(frozen=True, slots=True)
class Status:
    """Progress for the observations that a client received.

    Attributes:
        running: whether a thread or task sends.
        unsynced_rows: observations in memory only. A crash loses them.
        synced_rows: observations on disk that are not in a delta yet.
        pending_deltas: deltas without acknowledgement.
        pending_bytes: size of those deltas and the log.
        spool_bytes: size of everything in the spool.
        held: pending deltas that are retried separately once a minute. The aggregator or a proxy
            rejects them for now (times ahead of its clock, too long), or the disk cannot read them.
        rejected: deltas in ``rejected/``.
        damaged: files in ``damaged/``.
        paused: why nothing is sent although data are pending. None: no problem.
        last_error: the last failure since the last acknowledgement, or None.
        last_token: token of the last acknowledgement, for read-your-writes.
        posts: acknowledged posts since the start.
        posted_bytes: their size.
        failed_bytes: size of posts that failed or have an unknown outcome.
        next_number: number of the next element if the client numbers them, otherwise None.
        repaired: repairs of the spool by this process, one sentence each.
        reports: answered reports to monitors, with or without a post.
        monitors: data held back per monitor, for a participating source.
    """

    running: bool
    unsynced_rows: int
    synced_rows: int
    pending_deltas: int
    pending_bytes: int
    spool_bytes: int
    held: int
    rejected: int
    damaged: int
    paused: str | None
    last_error: str | None
    last_token: str | None
    posts: int
    posted_bytes: int
    failed_bytes: int
    next_number: int | None
    repaired: tuple[str, ...] = ()
    reports: int = 0
    monitors: tuple[HeldBack, ...] = ()

    @property
    def done(self) -> bool:
        """Whether everything was acknowledged or moved aside."""
        return not (self.unsynced_rows or self.synced_rows or self.pending_deltas)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in the background.

    Attributes:
        kind: "acknowledged", "failed" (will be retried), "paused", "held" (only that delta is
            retried later), "rejected", "damaged".
        detail: one sentence.
        fields: the server's response, if any.
    """

    kind: Literal["acknowledged", "failed", "paused", "held", "rejected", "damaged"]
    detail: str
    fields: dict[str, Any] | None = None
