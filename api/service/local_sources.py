"""Rows in families that count per site: this process is the site, one for each source.

A single event for a key has no name, so only delivering a state is idempotent: a site counts, and
each new state replaces the previous one. So the server counts a post of rows in the sketch for its
source's site, and journals the complete new state. If that is rejected, the site continues from the
old state. The row numbers, and the request digest in the ledger, show the rows that were posted
before. A repeated post counts nothing.

A site is (source, epoch). Each process draws the epoch, so that no two processes count under one
name. It draws another one when it is unknown whether the last state was journaled, since two sites
that continue from one another's past would be a fork. The counts of an old epoch stay.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from api.errors import BusyError, ServiceError
from api.service.budget import BUFFER_ROWS, ROW_BYTES, Memory
from api.service.streams import Stream
from decaysketch.errors import DecaySketchError
from decaysketch.families import Sketch

__all__ = ["MOST_SITES", "Site", "Sites"]

_log = logging.getLogger(__name__)

MOST_SITES = 4096  # that are kept; one that comes back later begins another epoch

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Site:
    """The place where one source's rows are counted.

    Attributes:
        source: the row owner.
        epoch: the number of its beginning.
        sketch: all rows counted and journaled. Do not change it.
    """

    source: str
    epoch: int
    sketch: Sketch
    stream: Stream
    revocation: int | None  # the last of its source when it began
    rows: int = 0  # as they are counted in memory
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def check(self) -> None:
        """Raise BusyError if its source was revoked since it began. Its earlier counts are gone,
        and the rows must be counted again.
        """
        if not self.is_current:
            raise BusyError

    @property
    def is_current(self) -> bool:
        """Return whether its counts are still in the stream."""
        return self.stream.revocation(self.source) == self.revocation


class Sites:
    """The sites in one process.

    Args:
        memory: where their rows are counted.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._epoch = secrets.randbits(64)
        self._sites: OrderedDict[tuple[int, str], Site] = OrderedDict()
        self._tasks: set[asyncio.Task[object]] = set()

    async def count(
        self,
        stream: Stream,
        source: str,
        post: Callable[[Site], Awaitable[tuple[T, Sketch | None]]],
    ) -> T:
        """Count rows from a source, one post after the other. This continues if the client has
        left.

        Args:
            stream: the destination.
            source: the row owner.
            post: counts them in a copy of the site's sketch and journals it.
                It returns the response, and the sketch from which the site continues. None: the
                same sketch.

        Raises:
            Exception: any exception from ``post``. Unless it is a rejection, the outcome is
                unknown, and the site begins again.
        """
        task = asyncio.ensure_future(self._count(stream, source, post))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the waiting request has received it

    async def _count(
        self,
        stream: Stream,
        source: str,
        post: Callable[[Site], Awaitable[tuple[T, Sketch | None]]],
    ) -> T:
        while True:
            site = self._site(stream, source)
            async with site.counting:
                if self._sites.get((stream.id, source)) is not site or not site.is_current:
                    continue  # its request was cancelled
                try:
                    answer, sketch = await post(site)
                except (ServiceError, DecaySketchError):  # nothing was journaled
                    raise
                except BaseException:
                    self._give_up(site)
                    _log.warning(
                        "source %r of stream %r begins a new epoch, because it is unknown whether "
                        "its last rows were stored", source, stream.name,
                    )  # fmt: skip
                    raise
                if sketch is not None:
                    site.sketch = sketch
                    self._weigh(site, BUFFER_ROWS + -(-sketch.nbytes // ROW_BYTES))
                return answer

    def _site(self, stream: Stream, source: str) -> Site:
        key = stream.id, source
        site = self._sites.get(key)
        if site is not None and not site.is_current:
            self._give_up(site)
            site = None
        if site is None:
            site = Site(
                source, self._epoch, stream.recipe.empty(), stream, stream.revocation(source)
            )
            self._sites[key] = site
            self._weigh(site, BUFFER_ROWS)
            self._give_up_idle()
        self._sites.move_to_end(key)
        return site

    def _give_up_idle(self) -> None:
        idle = [each for each in self._sites.values() if not each.counting.locked()]
        for site in idle[: max(0, len(self._sites) - MOST_SITES)]:
            self._give_up(site)

    def _give_up(self, site: Site) -> None:
        """Forget a site. Sites that begin from now on have another epoch."""
        self._weigh(site, 0)
        self._sites.pop((site.stream.id, site.source), None)
        self._epoch = secrets.randbits(64)

    def _weigh(self, site: Site, rows: int) -> None:
        self._memory.resident.change(rows - site.rows)
        site.rows = rows
