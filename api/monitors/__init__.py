"""Monitors: thresholds on streams whose sites post rarely, top-k lists over sites, and alerts.

- ``store``: rows for monitors and for their sites' accounts
- ``engine``: grants in the posts' transactions, and repeated state evaluation
- ``defining``: capacity checks for new definitions, and rejections
- ``function_rows``, ``functions``: functions across sources, their hubs and exchanges
- ``function_alerts``, ``function_metrics``: messages about them, and their gauges
- ``list_rows``, ``lists``: top-k lists, their sites' reports, and rounds
- ``mailboxes``: events for followers
- ``alerts``, ``outbox``, ``webhooks``: messages about an alert, their delivery, and the receivers

The protocols are the library's (:mod:`decaysketch.monitor`, :mod:`decaysketch.topk`). This package
has rows, requests and clocks.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from api.journal.storage import Storage
from api.monitors.engine import Monitors
from api.monitors.functions import Functions
from api.monitors.outbox import Outbox
from api.monitors.topk import Lists
from api.monitors.webhooks import Webhooks
from api.service.aggregator import Aggregator
from api.service.threads import Background
from api.settings import Settings

__all__ = ["Functions", "Lists", "Monitors", "start"]


async def start(
    aggregator: Aggregator, storage: Storage, settings: Settings, stack: AsyncExitStack
) -> tuple[Monitors, Lists, Functions]:
    """Start the evaluation, and the delivery of waiting alerts. ``stack`` stops both before it
    closes the database.
    """
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
    functions = Functions(aggregator, storage, monitors.mailboxes, outbox, webhooks)
    await monitors.look()
    await lists.look()
    await functions.look()
    background = Background(aggregator.observer)
    stack.push_async_callback(outbox.close)
    stack.push_async_callback(background.close)
    background.run("monitors", monitors.watch)
    background.run("top-k lists", lists.watch)
    background.run("functions", functions.watch)
    background.run("webhooks", outbox.watch)
    return monitors, lists, functions
