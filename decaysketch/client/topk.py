"""TopKSensor: one source of a top-k list in an aggregator.

It counts events exactly (:class:`~decaysketch.topk.Tally`) and answers the aggregator over HTTP.
Each request contains the complete state, so any of them may be lost, repeated or overtaken. Call
:meth:`TopKSensor.step` again and again.

A list is certain about the counts of its sources. A source therefore stays silent for a round that
reaches back before its count began, and the list names it as missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import httpx2
import numpy.typing as npt

from decaysketch import decay
from decaysketch.client.requesting import fields_of
from decaysketch.decay.read import from_dict
from decaysketch.errors import ParameterError
from decaysketch.topk import Ask, Post, Tally, TopKSite
from decaysketch.topk.ranking import Item

__all__ = ["TopKSensor"]


class TopKSensor:
    """A source of a top-k list, for one thread.

    Args:
        client: an httpx2 client with the aggregator's base URL and the API key.
        stream: name of the list's stream.
        topk: list name.
        source: name of this source.
        counting_since: events before this time may be missing, such as after a restart. None: all
            events are counted.

    Example::

        with httpx2.Client(base_url=url, headers={"authorization": f"Bearer {key}"}) as client:
            site = TopKSensor(client, "ward-7", "talkers", "gateway-3")
            while True:
                site.update(*events_since_then())
                site.step()
                time.sleep(0.5)
    """

    def __init__(
        self,
        client: httpx2.Client,
        stream: str,
        topk: str,
        source: str,
        *,
        counting_since: int | None = None,
    ) -> None:
        self._client, self._topk, self._source = client, topk, source
        self._path = f"/v1/streams/{quote(stream, safe='')}/topk/{quote(topk, safe='')}"
        self._tally = Tally(decay.none())  # keeps all until the list gives the decay
        self._complete_since = -math.inf if counting_since is None else float(counting_since)
        self._inc = 0
        self._epoch: int | None = None
        self._site = TopKSite(source, 0)
        self._as_of: int | None = None  # of the last post in this epoch

    def update(self, items: Sequence[Item], timestamps: npt.ArrayLike) -> None:
        """Count events in any order.

        Args:
            items: text, or integers up to 2^53.
            timestamps: in the stream's time unit.

        Raises:
            ParameterError, ObservationError: invalid items or times. Nothing was counted. O(n).
        """
        self._tally.update(items, timestamps)

    def step(self) -> bool:
        """Read the current request and answer it.

        Call it several times per round. Most rounds take one exchange, some take three.

        Returns:
            False if the aggregator was unreachable or requested a pause. Call again later.

        Raises:
            PostRefusedError: the list does not exist, this source is not in it, or the key does not
                cover it.
        """
        ask = self._ask("GET", "ask")
        if ask is None or (ask.epoch != self._epoch and not self._define(ask.epoch)):
            return False
        post = self._site.take(ask)
        if post is None:
            post = self._counted(ask.as_of)
        while post is not None:
            ask = self._ask("POST", "posts", json=post.to_dict())
            if ask is None:
                return False
            if ask.epoch != self._epoch:  # the counts belong to another definition
                return True
            post = self._site.take(ask)
        return True

    def _counted(self, as_of: int | None) -> Post | None:
        """Return the post for a new round, or None."""
        if as_of is None or (self._as_of is not None and as_of <= self._as_of):
            return None
        if as_of - self._tally.decay.support < self._complete_since:
            return None
        post = self._site.post(self._tally.at(as_of), as_of)
        self._as_of = as_of
        if math.isfinite(self._tally.decay.support):
            self._tally.advance(as_of)
            forgotten = as_of - self._tally.decay.support
            self._complete_since = max(self._complete_since, forgotten)
        return post

    def _define(self, epoch: int) -> bool:
        """Read the list's definition. Return whether it matches the request."""
        state = self._fields("GET", "", {"topk": self._topk})
        if state is None or state["epoch"] != epoch:
            return False
        self._tally.decay = from_dict(state["spec"]["decay"])
        # Larger than the number of any earlier process at this source, if its clock is right.
        # Otherwise the hub ignores its messages until the next round.
        self._inc = max(self._inc + 1, time.time_ns() // 1000)
        self._site = TopKSite(self._source, self._inc, entries=state["entries"])
        self._epoch, self._as_of = epoch, None
        return True

    def _ask(self, method: str, what: str, **sent: Any) -> Ask | None:
        params = {"source": self._source}
        fields = self._fields(method, f"/{what}", {}, params=params, **sent)
        if fields is None:
            return None
        try:
            return Ask.from_dict(fields)
        except ParameterError:
            return None  # a proxy has answered

    def _fields(
        self, method: str, path: str, expected: dict[str, str], **sent: Any
    ) -> dict[str, Any] | None:
        return fields_of(self._client, method, self._path + path, expected, **sent)
