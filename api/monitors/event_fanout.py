"""Events that wait for a stream's followers.

A mailbox keeps only the newest event per kind and monitor. So the monitor count bounds it, even if
it is read slowly: an event describes the present state, and an older one adds nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["Mailbox", "Mailboxes"]


class Mailbox:
    """One connection's mailbox.

    Args:
        source: the site that follows. None: a person does.
    """

    def __init__(self, source: str | None) -> None:
        self.source = source
        self._waiting: dict[tuple[str, str], bytes] = {}
        self._filled = asyncio.Event()

    def put(self, kind: str, monitor: str, data: Mapping[str, Any]) -> None:
        """Put an event. It replaces a waiting event with the same kind and monitor."""
        self._waiting.pop((kind, monitor), None)
        self._waiting[kind, monitor] = json.dumps(data, separators=(",", ":")).encode()
        self._filled.set()

    async def wait(self, within_s: float) -> bool:
        """Return whether an event is there within so many seconds."""
        try:
            async with asyncio.timeout(within_s):
                return await self._filled.wait()
        except TimeoutError:
            return False

    def take(self) -> list[tuple[str, bytes]]:
        """Return the waiting events, oldest first: kinds and their data."""
        waiting, self._waiting = self._waiting, {}
        self._filled.clear()
        return [(kind, data) for (kind, _), data in waiting.items()]


class Mailboxes:
    """All connections' mailboxes, by the id of the followed stream."""

    def __init__(self) -> None:
        self._of: dict[int, set[Mailbox]] = {}

    @contextmanager
    def opened(self, stream_id: int, source: str | None) -> Iterator[Mailbox]:
        """Open a mailbox as long as the context lasts."""
        mailbox = Mailbox(source)
        self._of.setdefault(stream_id, set()).add(mailbox)
        try:
            yield mailbox
        finally:
            self._of[stream_id].discard(mailbox)
            if not self._of[stream_id]:
                del self._of[stream_id]

    @property
    def followed(self) -> set[int]:
        """Return the streams that people follow, by id."""
        return {number for number, of in self._of.items() if any(b.source is None for b in of)}

    def to_sites(
        self,
        stream_id: int,
        kind: str,
        monitor: str,
        data: Mapping[str, Any],
        sources: Collection[str] | None = None,
    ) -> None:
        """Send to the following sites. If ``sources`` are given, send only to these."""
        for each in self._of.get(stream_id, ()):
            if each.source is not None and (sources is None or each.source in sources):
                each.put(kind, monitor, data)

    def to_people(self, stream_id: int, kind: str, monitor: str, data: Mapping[str, Any]) -> None:
        """Send to all other followers."""
        for each in self._of.get(stream_id, ()):
            if each.source is None:
                each.put(kind, monitor, data)
