"""Count at intervals the observations that replace observations from another source.

An observation is its identity, and the latest duplicate replaces earlier ones. So a source that
knows another source's device key can post it with a later time. The honest observation is then gone
from windows that end before, and no result shows it. Duplicates that came by several paths are
equal and replace nothing. Duplicates that were re-stamped on the way do, and look the same to this
count.

The count depends on the sources' content, not on events: a start, a replay or another replica reach
the same count. It takes a pass over a stream's rows. So it runs next to all other work, for streams
that have changed, and for at most ``MOST_ROWS`` rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from api.service.observer import Observer
from api.service.streams import Stream, Streams
from api.service.threads import Compute
from decaysketch.contract.snapshot import Rowed
from decaysketch.core.row_status import Identified, count_replacing

__all__ = ["MOST_ROWS", "Replacements"]

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
            except Exception:  # whatever it is, this process serves without it
                _log.exception("cannot count what sources of %r replace", stream.name)
                replacing = None
            stream.replacing = replacing
            if replacing is not None:
                self._observer.replacing(stream.name, sum(replacing.values()))


async def _at_once(function: Callable[[Stream], T], stream: Stream) -> T:
    await asyncio.sleep(0)  # there may be thousands
    return function(stream)


def _replacing(stream: Stream) -> Mapping[str, int] | None:
    """Return the count per source, or None where there are too many rows."""
    nameless = stream.recipe.kind.input.named_by == "key"  # rows, and none stands for another
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
