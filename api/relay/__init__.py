"""Forwarding the accepted data of this aggregator to another one.

- ``upstream``: requests to the other one
- ``relay``: the forwarded data, and the times

The client package interprets responses (:mod:`decaysketch.client.delivery`), and the library merges
sketches.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from api.journal.storage import Storage
from api.relay.relay import Relay
from api.relay.upstream import Upstream
from api.service.aggregator import Aggregator
from api.service.threads import Background
from api.settings import Settings

__all__ = ["Relay", "Upstream", "start"]


async def start(
    aggregator: Aggregator, storage: Storage, settings: Settings, stack: AsyncExitStack
) -> Relay:
    """Start to forward. ``stack`` ends it, after it has forwarded the last posts."""
    upstream = Upstream(settings)
    stack.push_async_callback(upstream.close)
    relay = Relay(aggregator, storage, upstream, settings)
    background = Background(aggregator.observer)
    stack.push_async_callback(relay.finish)
    stack.push_async_callback(background.close)
    background.run("relay", relay.watch)
    return relay
