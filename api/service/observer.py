"""A listener to what happens inside: an event is a method."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["RELAY_FAILURES", "RELAY_STATES", "Observer"]

RELAY_STATES = ("passed_on", "waiting", "paused", "more")
RELAY_FAILURES = ("unanswered", "held", "paused", "refused")


class Observer:
    """A listener that ignores every event; ``Metrics`` overrides those that it counts."""

    def posted(self, stream: str, source: str, bodies: int, size: int, rows: int) -> None:
        """Sketches were acknowledged that the journal did not hold."""

    def refused(self, stream: str, reason: str, count: int = 1) -> None:
        """Something was refused."""

    def skipped(self, stream: str, kind: str, count: int) -> None:
        """Of bodies of other formats something was not of the stream, by its maps."""

    def disagreeing(self, stream: str, rows: int) -> None:
        """Observations were taken that have the identity and the time of another, and another
        value."""

    def suspicious(self, stream: str, kind: str, count: int) -> None:
        """Readings were accepted that are suspicious; see :mod:`api.service.notes`."""

    def left_out(self, stream: str) -> None:
        """A part of an acknowledged post contradicts what was there, and is not in the stream."""

    def observations(self, stream: str, source: str, verdict: str, rows: int) -> None:
        """What became of raw observations."""

    def replacing(self, stream: str, rows: int) -> None:
        """So many rows of sources stand in place of what another source has posted."""

    def committed(self, posts: int, size: int, seconds: float) -> None:
        """A transaction of the journal ended well."""

    def unwritten(self) -> None:
        """A transaction of the journal failed."""

    def failed(self, task: str) -> None:
        """Something in the background raised what it should not."""

    def folded(self, posts: int, seconds: float) -> None:
        """Posts were merged, by one k-way merge."""

    def backlog(self, posts: int) -> None:
        """Posts that wait to be merged."""

    def lag(self, rows: int) -> None:
        """Rows of the journal that were not read when looking for news."""

    def compacted(self, seconds: float, rows: int) -> None:
        """Snapshots were written and rows deleted."""

    def reloaded(self) -> None:
        """Snapshots were read: at the start, or because a compaction overtook this process."""

    def torn(self) -> None:
        """A snapshot could not be read; the one before it and the journal stood in."""

    def waiting(self, queue: str, change: int) -> None:
        """So many more turns wait in a queue, or fewer."""

    def turned_away(self, queue: str, of: str) -> None:
        """A request was refused, since as much was under way as may be: of its ``caller``, or of
        ``all``."""

    def watched(
        self,
        stream: str,
        monitor: str,
        states: tuple[str, str],
        bounds: tuple[float | None, float | None, float],
        silent: int,
    ) -> None:
        """A monitor was evaluated: its state and alert phase, its lower bound, upper bound and
        threshold, and how many sites are silent."""

    def unwatched(self, stream: str, monitor: str) -> None:
        """A monitor is no more."""

    def recalled(self, stream: str) -> None:
        """Sites were asked to post, so that a state is known."""

    def webhook_failed(self, *, given_up: bool) -> None:
        """An alert was not delivered this time, or is not tried again."""

    def relayed(self, stream: str, size: int, *, whole: bool) -> None:
        """The upstream has taken what was new of a stream, or the whole of it."""

    def relay_failed(self, reason: str) -> None:
        """A request to the upstream did not end well; ``reason`` is one of ``RELAY_FAILURES``."""

    def relay_let_go(self, stream: str) -> None:
        """What was new of a stream was let go of for the room that it took: the whole is sent."""

    def relay_stands(self, states: Mapping[str, int], oldest_s: float, rows: int) -> None:
        """How many streams are in each of ``RELAY_STATES``, how long the oldest that waits does,
        and how many rows wait."""
