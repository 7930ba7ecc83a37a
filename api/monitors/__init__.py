"""Thresholds on streams that are watched while sites post rarely, top-k lists of what sites count,
and who is told.

- ``store``: rows of monitors and of the accounts of their sites
- ``engine``: grants in the transactions of posts, states found out again and again
- ``defining``: whether there is room for one more of either, and refusals
- ``list_rows``, ``lists``: top-k lists, what their sites said, and rounds that go on
- ``mailboxes``: events for those who follow
- ``alerts``, ``outbox``, ``webhooks``: what is told of an alert, until it was, and where to

The protocols are the library's (:mod:`decaysketch.monitor`, :mod:`decaysketch.topk`); here are
rows, requests and clocks.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from api.journal.storage import Storage
from api.monitors.engine import Monitors
from api.monitors.lists import Lists
from api.monitors.outbox import Outbox
from api.monitors.webhooks import Webhooks
from api.service.aggregator import Aggregator
from api.service.background import Background
from api.settings import Settings

__all__ = ["Lists", "Monitors", "start"]


async def start(
    aggregator: Aggregator, storage: Storage, settings: Settings, stack: AsyncExitStack
) -> tuple[Monitors, Lists]:
    """Begin to watch, and to send what waits; ``stack`` ends it, before the database is closed."""
    webhooks = Webhooks.of(settings)
    outbox = Outbox(
        storage,
        webhooks.send,
        now_us=aggregator.now_us,
        give_up_s=settings.webhook_give_up_s,
        observer=aggregator.observer,
    )
    monitors = Monitors(aggregator, storage, outbox, webhooks, settings)
    lists = Lists(aggregator, storage, monitors.mailboxes, settings)
    await monitors.look()
    await lists.look()
    background = Background(aggregator.observer)
    stack.push_async_callback(outbox.close)
    stack.push_async_callback(background.close)
    background.run("monitors", monitors.watch)
    background.run("top-k lists", lists.watch)
    background.run("webhooks", outbox.watch)
    return monitors, lists
