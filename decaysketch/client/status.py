"""What a sensor says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Event", "HeldBack", "Status"]


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What a sensor holds back of one monitor.

    Attributes:
        monitor, epoch: which.
        weight: of what is not acknowledged, at most; infinite until what the sensor had when it
            heard of the monitor has been posted.
        allowance: what it may hold back now.
        lease_s: for so long, if nothing is heard.
    """

    monitor: str
    epoch: int
    weight: float
    allowance: float
    lease_s: float


@dataclass(frozen=True, slots=True)
class Status:
    """How things stand with what a sensor was given.

    Attributes:
        running: whether there is a thread or task that sends.
        unsynced_rows: observations in memory alone; a crash loses them.
        synced_rows: observations on disk that are in no delta yet.
        pending_deltas: deltas that wait to be acknowledged.
        pending_bytes: their size, and that of the log.
        spool_bytes: size of all that is in the spool, what was set aside included.
        held: of the deltas that wait, those that are tried again by themselves, once a minute: the
            aggregator or something on the way does not take them now (times ahead of its clock,
            too long), or the disk does not give them back.
        rejected: deltas set aside because the server refused them, in ``rejected/``.
        damaged: things set aside because they could not be read, in ``damaged/``.
        paused: why nothing is sent although there is something to send; None: nothing is wrong.
        last_error: the last failure since the last acknowledgement; None: there was none.
        last_token: ``token`` of the last acknowledgement: a query that names it sees that post.
        posts: posts acknowledged since the start.
        posted_bytes: sum of their sizes.
        failed_bytes: sizes of posts that failed or of which nobody knows.
        next_number: number of the next element, where the sensor numbers them; else None.
        repaired: what this process found damaged in the spool or missing, and how it went on, each
            in a sentence.
        reports: answered reports to monitors, those that came with a post included.
        monitors: what is held back of each monitor of the stream, where the sensor is their site.
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
        """Everything that was given is acknowledged, or was set aside."""
        return not (self.unsynced_rows or self.synced_rows or self.pending_deltas)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in the background.

    Attributes:
        kind: "acknowledged", "failed" (will be tried again), "paused", "held" (that delta alone
            is tried again later), "rejected", "damaged".
        detail: what, in one sentence.
        fields: what the server said, where it said something.
    """

    kind: Literal["acknowledged", "failed", "paused", "held", "rejected", "damaged"]
    detail: str
    fields: dict[str, Any] | None = None
