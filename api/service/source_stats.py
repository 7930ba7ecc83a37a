"""Counts of posts by source, of suspicious readings, and of replaced ones, by one process.

A *source* has posts, delays, gaps and rejections since the process started.

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

**Suspicious** readings are accepted, and counted for each post and each stream. A post may be sound
and still lose something: a reading replaces another one, a clock is wrong, nothing distinguishes
two replicas. The server stores such readings, because nothing in one post tells a fault from a
choice. Values may also fill no column, and are dropped. It counts them, reports them in the
response where the protocol has a place for it, and repeats the sum in ``warnings`` of the stream
and in the metric ``decaysketch_suspicious_total``, since the process started or the mappings
changed.

**Replaced** observations are counted at intervals. An observation is its identity, and the latest
duplicate replaces earlier ones. So a source that knows another source's device key can post it with
a later time. The honest observation is then gone from windows that end before, and no result shows
it. Duplicates that came by several paths are equal and replace nothing. Duplicates that were
re-stamped on the way do, and look the same to this count.

The count depends on the sources' content, not on events: a start, a replay or another replica reach
the same count. It takes a pass over a stream's rows. So it runs next to all other work, for streams
that have changed, and for at most ``MOST_ROWS`` rows.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from api.journal.log import SourceKey
from api.service.observer import Observer
from api.service.threads import Compute
from decaysketch.contract.snapshot import Rowed
from decaysketch.core.duplicates import count_replacing, replaced_readings
from decaysketch.core.row_check import Identified
from decaysketch.ingest.documents import LORAWAN, DocumentMap
from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.record_columns import Dropped, drop

if TYPE_CHECKING:
    from api.service.streams import Stream, Streams

__all__ = [
    "KNOWN_POSTS",
    "LATE_S",
    "MOST_KEPT",
    "MOST_ROWS",
    "SILENT_GAPS",
    "SILENT_S",
    "Notes",
    "Replacements",
    "Sender",
    "Senders",
    "notes_of",
    "warnings_of",
    "warnings_of_columns",
]

LATE_S = (1, 10, 60, 600, 3600, 6 * 3600, 86_400)
"""Posts are counted by lateness: up to each of these, and beyond the last."""

MOST_KEPT = 8192
"""Maximum sources with accepted posts, over all streams. An eighth as many with rejections only."""

SILENT_GAPS, SILENT_S, KNOWN_POSTS = 5, 10.0, 4

_NEWEST_GAP = 1 / 8  # weight of the newest gap in the usual one


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
    """Statistics of all sources, by stream id and source name.

    Only the event loop's thread calls the methods that change them.

    Args:
        since_us: time at which counting begins.
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


_NAMES_KEPT = 20  # gateways and attributes of a stream
_REPLACED, _UNDATED, _CLOCK, _INSTANCE = "replaced", "undated", "gateway-clock", "instance"


@dataclass
class Notes:
    """Counts of suspicious readings.

    Attributes:
        counts: by kind: ``replaced``, ``undated``, ``gateway-clock``, ``instance``.
        gateways: gateways with an untrusted clock, with their last reported time.
        attributes: attributes that would distinguish replicas and are in no id.
        dropped: values that fill no column, by column name and reason.
    """

    counts: Counter[str] = field(default_factory=Counter)
    gateways: dict[str, str] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    dropped: Dropped = field(default_factory=Counter)

    def add(self, other: Notes) -> None:
        """Add the counts of a post."""
        self.counts.update(other.counts)
        for name, said in other.gateways.items():
            if name in self.gateways or len(self.gateways) < _NAMES_KEPT:
                self.gateways[name] = said
        self.attributes |= other.attributes
        for (column, reason), count in other.dropped.items():
            drop(self.dropped, column, reason, count)


def notes_of(
    *,
    replaced: int = 0,
    undated: int = 0,
    off: Iterable[tuple[str, str]] = (),
    unnamed: Mapping[str, int] | None = None,
    dropped: Mapping[tuple[str, str], int] | None = None,
) -> Notes:
    """Return the counts of a post.

    Args:
        replaced: readings that a reading of the same id and a time far away replaced.
        undated: readings outside the years 1990 to 2100.
        off: gateways with an untrusted clock, with their reported time.
        unnamed: readings that nothing distinguishes from those of other replicas, by the attribute
            that would.
        dropped: values that fill no column, by column name and reason.
    """
    off = list(off)
    unnamed = unnamed or {}
    found = {
        _REPLACED: replaced, _UNDATED: undated, _CLOCK: len(off), _INSTANCE: sum(unnamed.values()),
    }  # fmt: skip
    counts = Counter({kind: count for kind, count in found.items() if count})
    gateways = {name or "without a name": said for name, said in off[:_NAMES_KEPT]}
    return Notes(counts, gateways, set(unnamed), Counter(dropped))


def warnings_of(notes: Notes, held: int, mappings: Mappings | None) -> list[str]:
    """Return sentences for people.

    Args:
        notes: of a post or a stream.
        held: rows that are left of them.
        mappings: of the stream.
    """
    said = []
    if (replaced := replaced_readings(notes.counts[_REPLACED], held)) is not None:
        said.append(replaced + _reset(mappings))
    if undated := notes.counts[_UNDATED]:
        said.append(
            f"{_many(undated, 'reading')} outside the years 1990 to 2100: a device has a wrong "
            "clock, or the times are in another unit; windows that end now do not contain them"
        )
    if notes.gateways:
        each = ", ".join(f"{name!r} ({said})" for name, said in notes.gateways.items())
        said.append(
            f"the times of {_many(notes.counts[_CLOCK], 'reception')} were not used, because the "
            f"clocks of these gateways are wrong: {each}; set their clocks"
        )
    if notes.attributes:
        names = ", ".join(sorted(notes.attributes))
        said.append(
            f"{_many(notes.counts[_INSTANCE], 'data point')} from resources whose ids do not "
            f"distinguish replicas, so replicas count as one: set {names} on each replica and add "
            "it to `resource_keys` of the mapping"
        )
    return [*said, *warnings_of_columns(notes.dropped)]


def warnings_of_columns(dropped: Mapping[tuple[str, str], int]) -> list[str]:
    """Return a sentence for each reason, with the columns and their counts."""
    said = []
    for reason, (sentence, remedy) in _REASONS.items():
        counts = {name: count for (name, why), count in dropped.items() if why == reason}
        if counts:
            listed = sorted(counts.items(), key=lambda each: (not each[0], -each[1]))
            named = ", ".join(f"{name or 'others'} ({count:,})" for name, count in listed[:20])
            said.append(f"values {sentence} were dropped, by column: {named}; {remedy}")
    return said


_REASONS = {
    "undeclared": (
        "without a declared column",
        "list the wanted columns in `columns` of the mapping, or declare these in a new stream",
    ),
    "type": ("of another type than their column", "declare the column with the sent type"),
    "not-finite": ("that are not finite", "null replaces them"),
    "range": ("outside the range of their type", "declare the column as int64 or text"),
    "too-long": ("longer than 1,024 bytes", "drop the column, or send shorter texts"),
    "too-many": (
        "beyond 256 members of an object, or with names longer than 128 bytes",
        "name the wanted paths in `columns` of the mapping",
    ),
}


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _reset(mappings: Mappings | None) -> str:
    """Return the remedy for devices without sessions."""
    for each in () if mappings is None else mappings.map:
        if not isinstance(each, DocumentMap) or each.reset is not None:
            continue
        if LORAWAN in each.id_paths:
            return (
                "; for devices with ABP set `reset` in the mapping, no longer than the shortest "
                "time between two restarts"
            )
    return ""


_log = logging.getLogger(__name__)

MOST_ROWS = 1 << 20  # of the sources of a stream together; 60 bytes each while they are counted

T = TypeVar("T")

_SHARE = 20  # of the time, one part at most


class Replacements:
    """Counts for every stream. See the module.

    Args:
        streams: sets their ``replacing``.
        compute: runs the counting.
        observer: receives the count for a stream.
    """

    def __init__(self, streams: Streams, compute: Compute, observer: Observer) -> None:
        self._streams, self._compute, self._observer = streams, compute, observer
        self._changed: dict[int, None] = {}  # an ordered set of ids, which keeps no stream alive

    def changed(self, stream: Stream) -> None:
        """Count a stream again in the next round."""
        self._changed[stream.id] = None

    async def watch(self, every_s: float) -> None:
        """Count once, and wait. A round takes place every ``every_s`` seconds, or less often, so
        that it uses little time.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self.count()
        await asyncio.sleep(max(every_s, _SHARE * (loop.time() - began)))

    async def count(self) -> None:
        """Count where a stream has changed since the last round. O(changed streams)."""
        changed, self._changed = self._changed, {}
        for stream_id in changed:
            stream = self._streams.by_id(stream_id)
            if stream is None:  # deleted since
                continue
            try:
                # Of one source nothing is counted, and most of many streams have one.
                compute = self._compute if stream.source_count > 1 else _at_once
                replacing = await compute(_replacing, stream)
            except Exception:  # after any error, the server runs without this count
                _log.exception("cannot count the rows that sources of %r replace", stream.name)
                replacing = None
            stream.replacing = replacing
            if replacing is not None:
                self._observer.replacing(stream.name, sum(replacing.values()))


async def _at_once(function: Callable[[Stream], T], stream: Stream) -> T:
    await asyncio.sleep(0)  # there may be thousands
    return function(stream)


def _replacing(stream: Stream) -> Mapping[str, int] | None:
    """Return the count per source, or None where there are too many rows."""
    nameless = stream.recipe.kind.input.named_by == "key"  # no row replaces another
    if nameless or stream.source_count < 2:
        return dict.fromkeys(stream.source_names, 0)
    held: dict[str, Identified] = {}
    rows = 0
    for name in stream.source_names:
        source = stream.source(name)
        if source is None:  # dropped since
            continue
        merged = source[0].merged()
        assert isinstance(merged, Rowed), "rows that something names are held"
        held[name] = merged.identified
        rows += len(held[name].times)
        if rows > MOST_ROWS:
            return None
    counts = count_replacing(list(held.values()))
    return dict(zip(held, counts, strict=True))
