"""TopKSensor: one site of a top-k list that an aggregator keeps.

It counts events exactly (:class:`~decaysketch.topk.Tally`) and says what it is asked for, over
HTTP. Each request says how things are, so any of them may be lost, repeated or overtaken, and
nothing has to be remembered of it: :meth:`TopKSensor.step` is called again and again.

A list is certain of what its sites counted. So a site says nothing of a round that reaches back to
before it began to count, or to what it has forgotten: the list then names it among those it is
without.
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
from decaysketch.client.delivery import Answer, Later, Taken, judge
from decaysketch.client.posting import PostRefusedError, problem_kind
from decaysketch.decay.read import from_dict
from decaysketch.errors import ParameterError
from decaysketch.topk import Ask, Post, Tally, TopKSite
from decaysketch.topk.ranking import Item

__all__ = ["TopKSensor"]


class TopKSensor:
    """A site. One thread at a time uses it.

    Args:
        client: an httpx2 client whose base URL is the aggregator's; it brings the API key.
        stream: name of the stream that the list is of.
        topk: name of the list.
        source: name of this site.
        counting_since: events before this time may be missing, as after a restart that lost them;
            None: all are, or will be, counted.

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
        self._tally = Tally(decay.none())  # keeps all, until the list says what weighs anything
        self._complete_since = -math.inf if counting_since is None else float(counting_since)
        self._inc = 0
        self._epoch: int | None = None
        self._site = TopKSite(source, 0)
        self._as_of: int | None = None  # of the last post in this epoch

    def update(self, items: Sequence[Item], timestamps: npt.ArrayLike) -> None:
        """Count events, in any order.

        Args:
            items: texts or integers within 2^53, as the list has them.
            timestamps: in the time unit of the stream.

        Raises:
            ParameterError, ObservationError: no such items or times; nothing was counted. O(n).
        """
        self._tally.update(items, timestamps)

    def step(self) -> bool:
        """Ask what is wanted, and say it.

        To be called several times in each round: there is an exchange to most, and some need three.

        Returns:
            False: the aggregator was not reached, or asked for patience; call again later.

        Raises:
            PostRefusedError: there is no such list, this is no site of it, or the key does not
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
            if ask.epoch != self._epoch:  # and what was counted is of another definition
                return True
            post = self._site.take(ask)
        return True

    def _counted(self, as_of: int | None) -> Post | None:
        """What to say of a round that nothing was said of; None: nothing may be, or it was."""
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
        """Read what the list is of; whether it is what was asked about."""
        state = self._fields("GET", "", {"topk": self._topk})
        if state is None or state["epoch"] != epoch:
            return False
        self._tally.decay = from_dict(state["spec"]["decay"])
        # Larger than that of any process of this site before, as far as its clock is right; where
        # not, what is said is not heard until the next round.
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
            return None  # somebody else has answered, on the way

    def _fields(
        self, method: str, path: str, expected: dict[str, str], **sent: Any
    ) -> dict[str, Any] | None:
        """What an answer says; None: nobody knows, and the same may be sent again."""
        try:
            answer = self._client.request(method, self._path + path, **sent)
        except httpx2.RequestError:
            return None
        headers = {name.lower(): value for name, value in answer.headers.items()}
        outcome = judge(Answer(answer.status_code, headers, answer.content), expected)
        if isinstance(outcome, Taken):
            return outcome.fields
        if isinstance(outcome, Later):
            return None
        raise PostRefusedError(
            f"{method} {self._path}{path} was refused: {outcome.reason}", answer.status_code,
            problem_kind(answer),
        )  # fmt: skip
