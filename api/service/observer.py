"""A listener to internal events: an event is a method."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["RELAY_FAILURES", "RELAY_STATES", "Observer"]

RELAY_STATES = ("passed_on", "waiting", "paused", "more")
RELAY_FAILURES = ("unanswered", "held", "paused", "refused")


class Observer:
    """A listener that ignores every event. ``Metrics`` overrides the events that it counts."""

    def posted(self, stream: str, source: str, bodies: int, size: int, rows: int) -> None:
        """Sketches were acknowledged that the journal did not contain."""

    def refused(self, stream: str, reason: str, count: int = 1) -> None:
        """A post or observations were rejected."""

    def skipped(self, stream: str, kind: str, count: int) -> None:
        """By the stream's mappings, parts in a body with another format do not belong to it."""

    def disagreeing(self, stream: str, rows: int) -> None:
        """Observations were accepted that share identity and time with another one, and have
        another value.
        """

    def suspicious(self, stream: str, kind: str, count: int) -> None:
        """Suspicious readings were accepted. See :mod:`api.service.source_stats`."""

    def dropped(self, stream: str, column: str, reason: str, count: int) -> None:
        """Values filled no column. ``column`` is a declared one, or empty."""

    def left_out(self, stream: str) -> None:
        """A part in an acknowledged post contradicts present content, and is not in the stream."""

    def observations(self, stream: str, source: str, verdict: str, rows: int) -> None:
        """Raw observations received their row status."""

    def replacing(self, stream: str, rows: int) -> None:
        """A number of rows replace rows from another source."""

    def committed(self, posts: int, size: int, seconds: float) -> None:
        """A journal transaction succeeded."""

    def unwritten(self) -> None:
        """A journal transaction failed."""

    def failed(self, task: str) -> None:
        """Background work raised an unexpected exception."""

    def folded(self, posts: int, seconds: float) -> None:
        """Posts were merged, by one k-way merge."""

    def backlog(self, posts: int) -> None:
        """Posts that wait to be merged."""

    def lag(self, rows: int) -> None:
        """Journal rows that the last poll found unread."""

    def compacted(self, seconds: float, rows: int) -> None:
        """Snapshots were written and rows deleted."""

    def reloaded(self) -> None:
        """Snapshots were read: at the start, or because a compaction overtook this process."""

    def torn(self) -> None:
        """A snapshot could not be read. The previous one and the journal replaced it."""

    def waiting(self, queue: str, change: int) -> None:
        """The number of time slices that wait in a queue changed."""

    def rejected(self, queue: str, of: str) -> None:
        """A request was rejected, since it reached the limit for its ``caller``, or for ``all``."""

    def watched(
        self,
        stream: str,
        monitor: str,
        states: tuple[str, str],
        bounds: tuple[float | None, float | None, float],
        silent: int,
    ) -> None:
        """A monitor was evaluated: its state and alert phase, its lower bound, upper bound and
        threshold, and how many sites are silent.
        """

    def unwatched(self, stream: str, monitor: str) -> None:
        """A monitor was deleted."""

    def recalled(self, stream: str) -> None:
        """The server asked participating sources to post, so that a state is known."""

    def webhook_failed(self, *, given_up: bool) -> None:
        """An alert was not delivered this time, or is not tried again."""

    def relayed(self, stream: str, size: int, *, whole: bool) -> None:
        """The upstream has accepted a stream's new part, or the complete stream."""

    def relay_failed(self, reason: str) -> None:
        """A request to the upstream failed. ``reason`` is in ``RELAY_FAILURES``."""

    def relay_let_go(self, stream: str) -> None:
        """A stream's new part was dropped to free its space. The relay will send the complete
        stream.
        """

    def relay_stands(self, states: Mapping[str, int], oldest_s: float, rows: int) -> None:
        """The relay reports its stream count per state (``RELAY_STATES``), the oldest stream's
        waiting time, and the number of waiting rows.
        """
