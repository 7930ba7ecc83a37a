"""Check whether memory has space for a post's rows, before the post is journaled.

Acknowledged rows are stored for good, and read again at every start. So the server rejects a post
that would not fit. Most posts fit regardless of their content, as their row count shows. Near a
limit the server finds out exactly, one post at a time: it merges waiting sketches, returns unused
space, and merges the post into a copy. It accepts a post that adds nothing new even when memory is
full, so that a client that repeats a post learns that it is stored.

Every process counts for itself, including the posts of other processes that it has read. It reads
the journal first where that may matter. Several processes may exceed a limit by the posts that they
are accepting at the time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from api.errors import NoRoomError, TooManySourcesError
from api.journal.log import Post
from api.service.budget import PART_ROWS, ROW_BYTES, Memory
from api.service.committer import rows_of, size_of
from api.service.streams import Scoped, Stream, Streams
from api.service.threads import Compute
from decaysketch.core.labels import BYTES_BESIDE_TEXT

__all__ = ["Admission", "RowLimits"]

_UNBOUNDED = 1 << 62


@dataclass(frozen=True, kw_only=True)
class RowLimits:
    """Row limits in memory. See the settings with these names."""

    max_post_rows: int = _UNBOUNDED
    max_inflight_rows: int = _UNBOUNDED
    max_sketch_rows: int = _UNBOUNDED
    max_stream_rows: int = _UNBOUNDED
    max_resident_rows: int = _UNBOUNDED
    max_key_rows: int = _UNBOUNDED
    max_read_rows: int = _UNBOUNDED
    max_sources: int = _UNBOUNDED


class Admission:
    """Memory space for the posts in one process.

    Args:
        limits: how much there is.
        memory: the rows in memory.
        compute: runs the merging.
        catch_up: reads rows that other processes have committed.
        when_taken: calls a function once this process has taken a journal row.
        streams: all existing streams.
    """

    def __init__(
        self,
        limits: RowLimits,
        memory: Memory,
        compute: Compute,
        catch_up: Callable[[], Awaitable[object]],
        when_taken: Callable[[int, Callable[[], None]], None],
        streams: Callable[[], Streams],
    ) -> None:
        self._limits = limits
        self._memory = memory
        self._compute = compute
        self._catch_up = catch_up
        self._when_taken = when_taken
        self._streams = streams
        self._exactly = asyncio.Lock()
        # Admitted, and not taken yet.
        self._rows = 0
        self._of_stream: Counter[Stream] = Counter()
        self._of_source: Counter[tuple[Stream, str]] = Counter()
        self._new: Counter[tuple[Stream, str]] = Counter()

    async def admit(
        self,
        stream: Stream,
        source: str,
        posts: Sequence[Post],
        caller: Scoped | None = None,
        last_row: Callable[[], int] = lambda: 0,
    ) -> Callable[[], None]:
        """Reserve space for these posts, which ``caller`` sends.

        Returns:
            A function that releases it, as soon as this process has taken the journal row
            ``last_row()``.

        Raises:
            Exception: the fault of the sketches, if they had to be decoded.
            TooManySourcesError: the source is new, and the source count is at its limit.
            NoRoomError: naming the limit, and how many rows there would be.
        """
        rows = stream.recipe.kind.row_cost * rows_of(posts) + _label_rows(stream, posts)
        growth = stream.most_growth(source, rows)
        if self._fault(stream, source, growth, caller, spare=2) is not None:
            growth = await self._exact(stream, source, posts, growth, caller)
        # Both the stream and the source count rows that wait for a merge.
        held = max(0, growth[0]) + max(0, growth[1]) + PART_ROWS * len(posts)
        new = int(stream.source(source) is None)
        self._change(stream, source, held, new)
        release = partial(self._change, stream, source, -held, -new)
        return lambda: self._when_taken(last_row(), release)

    async def check_stream(self, name: str, rows: int) -> None:
        """Raise NoRoomError if there is no space for a new stream that takes so many rows."""
        limit = self._limits.max_resident_rows
        if self._memory.resident.rows + self._rows + rows <= limit:
            return
        async with self._exactly:
            await self._settle_all()
        present = self._memory.resident.rows + self._rows
        if present + rows > limit:
            where = f"this server, with stream {name!r},"
            raise NoRoomError(where, "max_resident_rows", present + rows, limit)

    async def _settle_all(self) -> None:
        for each in list(self._memory.unsettled):
            await self._compute(each.settle)

    def _change(self, stream: Stream, source: str, rows: int, sources: int) -> None:
        """Add rows and new sources that are admitted and not accepted yet."""
        self._rows += rows
        self._of_stream[stream] += rows
        self._of_source[stream, source] += rows
        self._new[stream, source] += sources
        if not self._of_source[stream, source]:
            del self._of_source[stream, source], self._new[stream, source]
        if not self._of_stream[stream]:
            del self._of_stream[stream]

    async def _exact(
        self,
        stream: Stream,
        source: str,
        posts: Sequence[Post],
        most: tuple[int, int],
        caller: Scoped | None,
    ) -> tuple[int, int]:
        await self._catch_up()
        self._check_sources(stream, source)
        if self._fault(stream, source, most, caller) is None:
            return most
        async with self._exactly:
            await self._compute(stream.settle, source)
            self._check_sources(stream, source)
            if self._fault(stream, source, most, caller) is None:
                return most
            growth = await self._compute(_growth, stream, source, posts)
            fault = self._fault(stream, source, growth, caller)
            if fault is not None and fault[1] == "max_stream_rows":
                await self._compute(stream.settle)
                fault = self._fault(stream, source, growth, caller)
            if fault is not None and fault[1] in ("max_key_rows", "max_resident_rows"):
                await self._settle_all()
                fault = self._fault(stream, source, growth, caller)
            if fault is not None:
                raise NoRoomError(*fault)
            self._check_sources(stream, source)  # another post may have added a source
            return growth

    def _seen_rows(self, caller: Scoped | None, enough: int) -> int:
        """Return the rows in all streams that a key permits, or in all streams if there are few."""
        present = self._memory.resident.rows + self._rows
        if caller is None or present <= enough:
            return 0 if caller is None else present
        coming = (rows for each, rows in self._of_stream.items() if caller.sees(each.name))
        return self._streams().rows_in_scope(caller) + sum(coming)

    def _check_sources(self, stream: Stream, source: str) -> None:
        if stream.source(source) is not None:
            return
        coming = {name for (each, name), new in self._new.items() if new and each is stream}
        count = stream.source_count + sum(
            name != source and stream.source(name) is None for name in coming
        )
        if count >= self._limits.max_sources:
            raise TooManySourcesError(stream.name, count, self._limits.max_sources)

    def _fault(
        self,
        stream: Stream,
        source: str,
        growth: tuple[int, int],
        caller: Scoped | None,
        spare: int = 1,
    ) -> tuple[str, str, int, int] | None:
        """Return the place that would contain too many rows, the setting, the row count, and the
        limit. With ``spare`` 2, half the limit is too many already, for rows and for sources.
        """
        limits, more = self._limits, sum(growth)
        of_source, joined = stream.held(source)
        of_stream, name = self._of_stream[stream], stream.name
        coming = self._of_source[stream, source]
        for where, field, present, change in (
            (
                f"the sketch of source {source!r} of stream {name!r}",
                "max_sketch_rows",
                of_source + coming,
                growth[0],
            ),
            (
                f"the merged sketch of stream {name!r}",
                "max_sketch_rows",
                joined + of_stream,
                growth[1],
            ),
            (f"stream {name!r}", "max_stream_rows", stream.rows + of_stream, more),
            ("this server", "max_resident_rows", self._memory.resident.rows + self._rows, more),
            (
                "the streams of this key",
                "max_key_rows",
                self._seen_rows(caller, limits.max_key_rows // spare - more),
                more,
            ),
        ):
            limit = getattr(limits, field)
            if change > 0 and present + change > limit // spare:
                return where, field, present + change, limit
        if spare > 1 and stream.source(source) is None:
            count = stream.source_count + len(self._new)
            if count >= limits.max_sources // spare:
                return f"stream {name!r}", "max_sources", count, limits.max_sources
        return None


def _label_rows(stream: Stream, posts: Sequence[Post]) -> int:
    """Return the most that sketch labels take, as rows. One byte on the wire may be the letter that
    makes every other letter in its text 4 bytes long.
    """
    if getattr(stream.recipe.params, "value_type", "") != "label":
        return 0
    return -(-(BYTES_BESIDE_TEXT * rows_of(posts) + 4 * size_of(posts)) // ROW_BYTES)


def _growth(stream: Stream, source: str, posts: Sequence[Post]) -> tuple[int, int]:
    return stream.growth(source, [post.decode() for post in posts])
