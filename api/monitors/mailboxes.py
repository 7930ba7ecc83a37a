"""What is to be sent to those who follow the events of a stream.

A mailbox holds of each kind of event and monitor the newest alone, so that it is bounded by the
number of monitors however slowly it is read: an event says what is so now, and an older one nothing
besides.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["Mailbox", "Mailboxes"]


class Mailbox:
    """Of one connection.

    Args:
        source: whose, where a site follows; None: a person does.
    """

    def __init__(self, source: str | None) -> None:
        self.source = source
        self._waiting: dict[tuple[str, str], bytes] = {}
        self._filled = asyncio.Event()

    def put(self, kind: str, monitor: str, data: Mapping[str, Any]) -> None:
        """Put an event in the place of the one of its kind and monitor, if one waits."""
        self._waiting.pop((kind, monitor), None)
        self._waiting[kind, monitor] = json.dumps(data, separators=(",", ":")).encode()
        self._filled.set()

    async def wait(self, within_s: float) -> bool:
        """Whether something is there within so many seconds."""
        try:
            async with asyncio.timeout(within_s):
                return await self._filled.wait()
        except TimeoutError:
            return False

    def take(self) -> list[tuple[str, bytes]]:
        """What waits, oldest first: kinds and their data."""
        waiting, self._waiting = self._waiting, {}
        self._filled.clear()
        return [(kind, data) for (kind, _), data in waiting.items()]


class Mailboxes:
    """Of all connections, by the id of the stream they follow."""

    def __init__(self) -> None:
        self._of: dict[int, set[Mailbox]] = {}

    @contextmanager
    def opened(self, stream_id: int, source: str | None) -> Iterator[Mailbox]:
        """One more, as long as the context lasts."""
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
        """Streams that people follow, by id."""
        return {number for number, of in self._of.items() if any(b.source is None for b in of)}

    def to_sites(
        self,
        stream_id: int,
        kind: str,
        monitor: str,
        data: Mapping[str, Any],
        sources: Collection[str] | None = None,
    ) -> None:
        """To the sites that follow; to those of ``sources`` alone, if any are given."""
        for each in self._of.get(stream_id, ()):
            if each.source is not None and (sources is None or each.source in sources):
                each.put(kind, monitor, data)

    def to_people(self, stream_id: int, kind: str, monitor: str, data: Mapping[str, Any]) -> None:
        """To everybody else."""
        for each in self._of.get(stream_id, ()):
            if each.source is None:
                each.put(kind, monitor, data)
