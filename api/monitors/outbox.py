"""Alerts to be sent: rows of the database until a receiver has accepted them.

A row is written in the transaction that changes the state it reports, and deleted after a
successful response. So every change is sent at least once, even if any process dies in between, and
may be sent again: its ``id`` and ``sequence`` show that. Messages of one alert are sent in their
order, one after the other. An undeliverable message delays no other alert, and a slow receiver no
other receiver.

A process takes a row by moving its next time past the duration of a request, if no other process
has. So one of several processes sends it. If that process dies, the others take over at that time.
Failures are retried after twice as long each time, up to ``_LONGEST_S``, with some random
variation. A message older than ``give_up_s`` is dropped, logged and counted.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import sqlalchemy as sa

from api.journal.log import StorageError
from api.journal.monitor_tables import outbox as _table
from api.journal.storage import Storage, Writer
from api.logs import Seldom
from api.monitors.webhooks import TIMEOUT_S, WebhookError
from api.origins import Origin
from api.service.observer import Observer

__all__ = ["MOST_WAITING", "Alert", "Outbox", "insert"]

_log = logging.getLogger(__name__)

MOST_WAITING = 100
"""Maximum waiting messages for one alert. Beyond that, the oldest are dropped."""

_TAKEN_S = 3 * TIMEOUT_S
_FIRST_S, _LONGEST_S = 2.0, 600.0
_LOOK_S = 1.0
_c = _table.c

Send = Callable[[str, bytes, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Alert:
    """A message to send.

    Attributes:
        name: of the alert: never that of another monitor.
        sequence: its number among those of this name.
        url: the destination.
        body: the content.
    """

    name: str
    sequence: int
    url: str
    body: bytes = field(repr=False)


def insert(tx: Writer, alert: Alert, now_us: int) -> int:
    """Put an alert into the outbox, in the open transaction. Return how many older ones of its name
    were dropped for it.
    """
    old = sa.and_(_c.alert == alert.name, _c.sequence <= alert.sequence - MOST_WAITING)
    given_up = tx.execute(_table.delete().where(old))
    tx.execute(
        _table.insert().values(
            alert=alert.name,
            sequence=alert.sequence,
            url=alert.url,
            created_us=now_us,
            attempts=0,
            next_us=now_us,
            body=alert.body,
        )
    )
    return given_up


class Outbox:
    """Sends the alerts in the outbox.

    Args:
        storage: the database.
        send: sends one request. It raises WebhookError.
        now_us: the clock.
        give_up_s: the age at which an alert is no longer sent.
        observer: receives failures.
    """

    def __init__(
        self,
        storage: Storage,
        send: Send,
        *,
        now_us: Callable[[], int],
        give_up_s: float,
        observer: Observer,
    ) -> None:
        self._storage = storage
        self._send = send
        self._now_us = now_us
        self._give_up_us = int(give_up_s * 1e6)
        self._observer = observer
        self._filled = asyncio.Event()
        self._sending: dict[str, asyncio.Task[None]] = {}  # one of each origin
        self._failing = Seldom(_log)

    def wake(self) -> None:
        """Signal a new alert."""
        self._filled.set()

    async def watch(self) -> None:
        """Begin to send due alerts, once: as soon as there is a new one, or after a second."""
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._filled.wait()
        except TimeoutError:
            pass
        self._filled.clear()
        try:
            await self.begin()
        except StorageError as error:
            self._failing.say(logging.ERROR, "alerts wait, the outbox cannot be read: %s", error)
        else:
            self._failing.over()

    async def begin(self) -> None:
        """Begin to send the oldest alert of each origin that is due, where none is under way."""
        now_us = self._now_us()
        oldest = sa.select(sa.func.min(_c.id)).group_by(_c.alert)
        due = sa.select(_c.id, _c.url, _c.created_us, _c.attempts, _c.next_us).where(
            _c.id.in_(oldest), _c.next_us <= now_us
        )
        rows = await self._storage.read(lambda rx: rx.select(due.order_by(_c.next_us, _c.id)))
        for row in rows:
            origin = str(Origin.of(row.url))
            if origin not in self._sending:
                task = asyncio.create_task(self._deliver(row), name=f"webhook to {origin}")
                self._sending[origin] = task
                task.add_done_callback(partial(self._ended, origin))

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        while self._sending:
            await asyncio.wait(self._sending.values())
            await asyncio.sleep(0)

    async def close(self) -> None:
        """End the requests under way. They are sent again later."""
        for task in (tasks := list(self._sending.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, origin: str, task: asyncio.Task[None]) -> None:
        del self._sending[origin]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failing.say(logging.ERROR, "an alert to %s waits: %s", origin, error)
        else:
            self._filled.set()  # the next one of this origin may be due

    async def _deliver(self, row: sa.Row[tuple[int, str, int, int, int]]) -> None:
        now_us = self._now_us()
        if now_us - row.created_us > self._give_up_us:
            if await self._change(_table.delete().where(_c.id == row.id)):
                _log.error("an alert to %s is dropped after %d tries", row.url, row.attempts)
                self._observer.webhook_failed(given_up=True)
            return
        taken = _table.update().values(
            attempts=row.attempts + 1, next_us=now_us + int(_TAKEN_S * 1e6)
        )
        mine = sa.and_(_c.id == row.id, _c.next_us == row.next_us, _c.attempts == row.attempts)
        if not await self._change(taken.where(mine)):
            return  # another process has it
        if (body := await self._body(row.id)) is None:
            return  # given up for newer ones
        try:
            await self._send(row.url, body, now_us // 1_000_000)
        except WebhookError as error:
            wait_s = min(_FIRST_S * 2 ** min(row.attempts, 16), _LONGEST_S)
            wait_s *= random.uniform(0.5, 1.0)  # so that not all come back at once
            later = self._now_us() + int(wait_s * 1e6)
            await self._change(_table.update().values(next_us=later).where(_c.id == row.id))
            _log.warning("an alert to %s was rejected: %s", row.url, error)
            self._observer.webhook_failed(given_up=False)
        else:
            await self._change(_table.delete().where(_c.id == row.id))

    async def _body(self, number: int) -> bytes | None:
        query = sa.select(_c.body).where(_c.id == number)
        found: Sequence[sa.Row[tuple[bytes]]] = await self._storage.read(
            lambda rx: rx.select(query)
        )
        return found[0].body if found else None

    async def _change(self, statement: sa.UpdateBase) -> int:
        def change(tx: Writer) -> int:
            tx.lock_head()
            return tx.execute(statement)

        return await self._storage.write(change)
