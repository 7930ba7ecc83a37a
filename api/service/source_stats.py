"""Source statistics: posts, delays, gaps and rejections that one process has seen since its start.

A post changes a few numbers for its source, and reading the statistics reads nothing else. So an
operator may query them as often as needed. They are not on disk: a restart forgets them, and
several processes each have their own. The journal knows each source's post totals.

**Late** is the age that the newest observation in a post had when the post was accepted, by this
machine's clock. It is the post's delay minus the amount by which the source's clock is ahead. A
delay is never negative, so the least value bounds the clock: it is ahead by at least that, negated.

**Silent** is a source that has posted nothing for ``SILENT_GAPS`` usual gaps between its posts, and
for ``SILENT_S``. The usual gap is known from ``KNOWN_POSTS`` posts on.

A client may make up names. So a bounded number of sources is kept, the most recent ones. A source
with rejections only never displaces a source with accepted posts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from api.journal.model import SourceKey

__all__ = ["KNOWN_POSTS", "LATE_S", "MOST_KEPT", "SILENT_GAPS", "SILENT_S", "Sender", "Senders"]

LATE_S = (1, 10, 60, 600, 3600, 6 * 3600, 86_400)
"""Posts are counted by lateness: up to each of these, and beyond the last."""

MOST_KEPT = 8192
"""Maximum sources with accepted posts, over all streams. An eighth as many with rejections only."""

SILENT_GAPS, SILENT_S, KNOWN_POSTS = 5, 10.0, 4

_NEWEST_GAP = 1 / 8  # of the usual one: what the newest counts


@dataclass(eq=False, slots=True)
class Sender:
    """One source.

    Attributes:
        posts: requests with accepted sketches that the journal did not contain.
        late: these posts, by lateness: one number more than ``LATE_S`` has.
        latest_late_s, least_late_s: lateness of the last post, and the least. None where there is
            no clock.
        last_us: when the last one was accepted.
        gap_s: the usual time between two, the newer ones counting more.
        refused: posts and observations, by reason.
        refused_us: when the last rejection was.
    """

    posts: int = 0
    late: list[int] = field(default_factory=lambda: [0] * (len(LATE_S) + 1))
    latest_late_s: float | None = None
    least_late_s: float | None = None
    last_us: int | None = None
    gap_s: float | None = None
    refused: Counter[str] = field(default_factory=Counter)
    refused_us: int | None = None

    def take(self, now_us: int, late_s: float | None) -> None:
        """Record an accepted post."""
        self.posts += 1
        if self.last_us is not None:
            gap_s = max(0.0, (now_us - self.last_us) / 1e6)
            usual = gap_s if self.gap_s is None else self.gap_s
            self.gap_s = usual + _NEWEST_GAP * (gap_s - usual)
        self.last_us = now_us
        if late_s is not None:
            self.late[bisect_left(LATE_S, late_s)] += 1
            self.latest_late_s = late_s
            least = self.least_late_s
            self.least_late_s = late_s if least is None else min(least, late_s)

    def is_silent(self, now_us: int) -> bool | None:
        """Return whether it has been quiet for unusually long, or None if the usual gap is
        unknown.
        """
        if self.last_us is None or self.gap_s is None or self.posts < KNOWN_POSTS:
            return None
        return (now_us - self.last_us) / 1e6 > max(SILENT_S, SILENT_GAPS * self.gap_s)


class Senders:
    """The sources in all streams, by stream id and name.

    One thread, the event loop's, calls the methods that change it.

    Args:
        since_us: now.
    """

    def __init__(self, since_us: int) -> None:
        self.since_us = since_us
        self.refused: Counter[str] = Counter()  # of all sources, those forgotten as well
        self._posting: OrderedDict[SourceKey, Sender] = OrderedDict()
        self._refused_only: OrderedDict[SourceKey, Sender] = OrderedDict()
        self._names: dict[int, list[str]] = {}  # of all these, by stream and in order

    def took(self, key: SourceKey, now_us: int, late_s: float | None) -> None:
        """Record an accepted post from a source. O(1)."""
        sender = self._posting.get(key)
        if sender is None:
            sender = self._refused_only.pop(key, None)
            if sender is None:
                sender = Sender()
                self._enter(key)
            self._posting[key] = sender
        self._posting.move_to_end(key)
        if len(self._posting) > MOST_KEPT:
            self._forget(self._posting.popitem(last=False)[0])
        sender.take(now_us, late_s)

    def refuse(self, key: SourceKey, reason: str, count: int, now_us: int) -> None:
        """Record a rejected post, or rejected observations. The reason is a constant of the
        program. O(1). The name is empty where the client named no valid source.
        """
        self.refused[reason] += count
        sender = self._posting.get(key)
        if sender is None:
            if key not in self._refused_only:
                self._enter(key)
            sender = self._refused_only.setdefault(key, Sender())
            self._refused_only.move_to_end(key)
            if len(self._refused_only) > MOST_KEPT // 8:
                self._forget(self._refused_only.popitem(last=False)[0])
        sender.refused[reason] += count
        sender.refused_us = now_us

    def of_stream(self, stream_id: int) -> dict[str, Sender]:
        """Return the sources in a stream, by name. O(result). On any thread."""
        names = list(self._names.get(stream_id, ()))
        found = {name: self.sender(stream_id, name) for name in names}
        return {name: sender for name, sender in found.items() if sender is not None}

    def sender(self, stream_id: int, source: str) -> Sender | None:
        """Return one source, if it is known. O(1). On any thread."""
        key = stream_id, source
        return self._posting.get(key) or self._refused_only.get(key)

    def names_after(self, stream_id: int, name: str, limit: int) -> list[str]:
        """Return a stream's source names after a given one, in order, at most ``limit``. O(result).
        On any thread.
        """
        names = self._names.get(stream_id, [])
        begin = bisect_right(names, name)
        return names[begin : begin + limit]

    def _enter(self, key: SourceKey) -> None:
        insort(self._names.setdefault(key[0], []), key[1])

    def _forget(self, key: SourceKey) -> None:
        names = self._names[key[0]]
        del names[bisect_left(names, key[1])]
        if not names:
            del self._names[key[0]]
