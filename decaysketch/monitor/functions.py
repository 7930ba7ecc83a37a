"""Functions across sources as a service hosts them: a definition, its hub, and one source.

A :class:`FunctionSpec` names a function over all sources' counters: their self-join, the inner
product with a second stream, or the frequent items. :class:`FunctionHub` is the hub for any of
them behind one exchange: messages from one source in, messages for that source out. Its state is
JSON, so that a service stores it after every exchange. :class:`FunctionSource` reads the counters
from an ECM-sketch (Papapetrou, Garofalakis and Deligiannakis 2015, section 6), in a layer with
hashed keys.

*Epochs.* A definition has an epoch, higher after every redefinition or restored backup. Messages
from another epoch are ignored, and a source begins again. So nothing relies on a bound from an
earlier definition.

*Guarantees*: see :mod:`.rounds` and :mod:`.frequent`. They refer to counters. A result is
certain only while every source was heard within the lease.

*Cost.* A source reports its number of arrivals. Where messages cost more than these, the hub begins
a new epoch in which sources *post* their sketches, and :func:`read_posts` reads the function from
them (:mod:`.function_costs`). In such an epoch a source exchanges no messages: an exchange means
that all that it counted before is posted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.monitor.fields import sequence_of, whole
from decaysketch.monitor.frequent import (
    FrequentHub,
    FrequentSite,
    ItemAnswer,
    ItemBegin,
    ItemReport,
    default_bound,
)
from decaysketch.monitor.function_costs import Costs
from decaysketch.monitor.function_messages import form_of, from_site, to_site
from decaysketch.monitor.function_spec import MAX_FUNCTION_SITES, FunctionSpec
from decaysketch.monitor.rounds import Answer, RoundHub, RoundSite

__all__ = [
    "MAX_FUNCTION_SITES",
    "FunctionHub",
    "FunctionSource",
    "FunctionSpec",
    "FunctionState",
    "read_posts",
]

_MOST_MESSAGES: Final = 1_000  # of one exchange
_RETRY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionState:
    """The result that the hub vouches for.

    Attributes:
        certain: whether the guarantee holds now.
        value: the function as the round began. None before the first round, and for frequent items.
        low, high: its range while certain. None without a value, and where there is no bound.
        frequent: items that are called frequent. None for other kinds.
        silent: sources that were not heard in this round, or not within the lease.
        messages, arrivals: messages in both directions, or posts, and arrivals that sources
            reported.
        posts: whether sources post their sketches, because messages cost more.
        costly: whether messages outnumber arrivals of late, and sources cannot post.
        until_s: the time at which a source becomes silent unless it is heard again.
    """

    certain: bool
    value: float | None
    low: float | None
    high: float | None
    frequent: tuple[int, ...] | None
    silent: tuple[str, ...]
    messages: int
    arrivals: int
    posts: bool
    costly: bool
    until_s: float


class FunctionHub:
    """The hub of one function. Not thread-safe.

    Args:
        spec: the definition.
        depth, width: rows and columns of a source's counters.
        epoch: of the definition.
        saved: the state that :attr:`saved` returned under this epoch. None: a new hub.
        costs: of a new hub, with other limits than the default.

    Attributes:
        epoch: higher after an exchange in which sources begin to post, or cease to. Store it with
            the state. Sources begin again.

    Raises:
        ParameterError: too many counters.
    """

    def __init__(
        self, spec: FunctionSpec, depth: int, width: int, epoch: int,
        saved: Mapping[str, Any] | None = None, *, costs: Costs | None = None,
    ) -> None:  # fmt: skip
        self.spec, self.epoch = spec, epoch
        self._shape = spec.shape(depth, width)
        self._heard: dict[str, float] = dict(saved["heard"]) if saved else {}
        self._messages = saved["messages"] if saved else 0
        self._arrivals = saved["arrivals"] if saved else 0
        self._costs = Costs(**saved["costs"]) if saved else costs or Costs()
        # Answers for sources that did not ask, until their next exchange.
        self._kept: dict[str, list[dict[str, Any]]] = dict(saved["kept"]) if saved else {}
        self._rounds: RoundHub | None = None
        self._items: FrequentHub | None = None
        self._begin(None if saved is None else saved["hub"])

    def _begin(self, saved: Mapping[str, Any] | None) -> None:
        """Begin, or go on with, the protocol of this kind. Where sources post there is none."""
        spec = self.spec
        self._rounds = self._items = None
        if self.posts:
            return
        if spec.kind == "frequent":
            assert spec.threshold is not None
            self._items = (
                FrequentHub.resumed(spec.threshold, spec.theta, saved) if saved
                else FrequentHub(spec.sites, spec.threshold, spec.theta)
            )  # fmt: skip
        else:
            # The numbers of rounds begin at the epoch: none is used under two definitions.
            zone_of, shape, lease_s = spec.zone_of, self._shape, spec.lease_s
            self._rounds = (
                RoundHub.resumed(zone_of, shape, saved, lease_s=lease_s) if saved
                else RoundHub(spec.sites, zone_of, shape, epoch=self.epoch, lease_s=lease_s)
            )  # fmt: skip

    @property
    def posts(self) -> bool:
        """Whether sources post their sketches in this epoch."""
        return self._costs.posts

    @property
    def saved(self) -> dict[str, Any]:
        """The complete state as JSON-ready form. O(sites x counters)."""
        hub = self._rounds if self._rounds is not None else self._items
        return {
            "hub": None if hub is None else hub.saved(), "heard": self._heard, "kept": self._kept,
            "messages": self._messages, "arrivals": self._arrivals, "costs": self._costs.saved(),
        }  # fmt: skip

    def exchange(
        self, site: str, messages: Sequence[object], now_s: float, *, arrivals: int = 0,
        posts: int = 0,
    ) -> tuple[list[dict[str, Any]], bool]:  # fmt: skip
        """Accept messages from a source, with any age. Return those for it, and whether the state
        changed, so that it must be stored before they are sent.

        Args:
            site: the source.
            messages: its messages as JSON, oldest first. None where sources post: all that it
                counted is posted.
            now_s: seconds on a clock that all processes of the hub share.
            arrivals: the number of events at the source since its last exchange.
            posts: the number of sketches that it posted since then.

        Raises:
            ParameterError: the source takes no part, or a message is invalid. Nothing changed.
        """
        read = self._checked(site, messages)
        kept = self._kept.pop(site, [])
        answers: list[Any] = [to_site(form) for form in kept]
        for each in read:
            for to, said in self._receive(each, now_s):
                if to == site:
                    answers.append(said)
                elif isinstance(said, (Answer, ItemAnswer)):
                    self._keep(to, said)
        if self._items is not None or not answers:
            answers += [each for each in self._waiting(site) if each not in answers]
        stale = now_s - self._heard.get(site, -math.inf) >= self.spec.lease_s / 4
        changed = bool(read or answers) or arrivals > 0 or posts > 0 or stale
        if changed:
            self._heard[site] = now_s
            if self._count(len(read) + len(answers) + posts, arrivals, now_s):
                return [], True
        return [form_of(each) for each in answers], changed

    def _checked(self, site: str, messages: Sequence[object]) -> list[Any]:
        if site not in self.spec.sites:
            raise ParameterError(
                f"site is {site!r}; expected one of the {len(self.spec.sites)} sites"
            )
        read = [from_site(each) for each in sequence_of("messages", messages, _MOST_MESSAGES)]
        if read and self.posts:
            raise ParameterError(f"messages has {len(read)} entries; expected none: sources post")
        for each in read:
            if each.site != site:
                raise ParameterError(f"site of a message is {each.site!r}; expected {site!r}")
            self._check_kind(each)
        return read

    def _count(self, messages: int, arrivals: int, now_s: float) -> bool:
        """Record costs. Return whether another epoch begins for them."""
        self._messages += messages
        self._arrivals += arrivals
        if not self._costs.add(messages, arrivals, can_post=self.spec.can_post):
            return False
        # Rounds number from the epoch upwards. No number is used twice.
        used = self.epoch if self._rounds is None else self._rounds.epoch
        self.epoch = max(used + 1, int(now_s * 1e6))
        self._heard, self._kept = {}, {}
        self._begin(None)
        return True

    def _keep(self, site: str, answer: Answer | ItemAnswer) -> None:
        """Keep an answer instead of an older one about the same. Polls and rounds need no keeping:
        the hub knows for whom it waits.
        """
        item = answer.item if isinstance(answer, ItemAnswer) else None
        others = [each for each in self._kept.get(site, ()) if each.get("item") != item]
        self._kept[site] = [*others, form_of(answer)][-_MOST_MESSAGES:]

    def _check_kind(self, message: Any) -> None:
        if isinstance(message, ItemBegin | ItemReport) != (self._items is not None):
            raise ParameterError(f"a message is none of a function of kind {self.spec.kind}")
        if isinstance(message, ItemReport) and not isinstance(message.item, int):
            raise ParameterError("an item is a text; expected the key as an integer")

    def _receive(self, message: Any, now_s: float) -> list[tuple[str, Any]]:
        if self._rounds is not None:
            return list(self._rounds.receive(message, now_s))
        assert self._items is not None
        return list(self._items.receive(message, (), now_s))

    def _waiting(self, site: str) -> list[Any]:
        if self._rounds is not None:
            said = self._rounds.message_for(site)
            return [] if said is None else [said]
        if self._items is not None:
            return list(self._items.messages_for(site))[:_MOST_MESSAGES]
        return []

    @property
    def waiting(self) -> list[str]:
        """The sources that should exchange now, because the hub has messages for them. O(sites)."""
        return [site for site in self.spec.sites if self._kept.get(site) or self._waiting(site)]

    def state(self, now_s: float) -> FunctionState:
        """Return the result that the hub vouches for. O(sites). Where sources post, the value is
        missing: see :func:`read_posts`.
        """
        lease_s = self.spec.lease_s
        heard = {site: self._heard.get(site, -math.inf) for site in self.spec.sites}
        silent = {site for site, at in heard.items() if now_s - at > lease_s}
        until_s = min((at for site, at in heard.items() if site not in silent), default=math.inf)
        until_s += lease_s
        value = low = high = None
        frequent: tuple[int, ...] | None = None
        certain = not silent
        if self._rounds is not None:
            found = self._rounds.state(now_s)
            silent |= set(found.silent)
            until_s = min(until_s, found.until)
            certain = found.certain and not silent
            if found.value is not None:
                value, low = found.value, found.low
                high = found.high if found.high < math.inf else None
        elif self._items is not None:
            frequent = tuple(sorted(each for each in self._items.frequent if isinstance(each, int)))
        return FunctionState(
            certain=certain, value=value, low=low, high=high, frequent=frequent,
            silent=tuple(sorted(silent)), messages=self._messages, arrivals=self._arrivals,
            posts=self.posts, costly=self._costs.costly, until_s=until_s,
        )  # fmt: skip


def read_posts(
    state: FunctionState, spec: FunctionSpec, snapshots: Sequence[Any], now: int
) -> FunctionState:
    """Return a state with the result that the sources' posted sketches have.

    Args:
        state: of a hub whose sources post.
        spec: its definition.
        snapshots: of ECM-sketches with the posts of the function's sources alone, the second
            stream's behind. A guarantee is about their counters.
        now: time in the stream's unit.

    Returns: The function of the sum over all counters, exact. Frequent items: those whose merged
        counters reach the threshold. It is uncertain if more items may reach it than can be listed.
    """
    if spec.kind == "frequent":
        view = snapshots[0].at(spec.decay, now, estimator="minimum")
        try:
            found = view.heavy_keys(None, spec.threshold, confidence=0.95)
        except UnanswerableQueryError:
            return replace(state, certain=False, frequent=())
        reached = found.keys[found.counts.value >= spec.threshold]
        return replace(state, frequent=tuple(sorted(reached.tolist())))
    grids = [each.grid(spec.decay, now=now) for each in snapshots]
    value = spec.zone.of(np.stack([grid.leaf.value for grid in grids]))
    return replace(state, value=value, low=value, high=value)


class FunctionSource:
    """One source of a function. Not thread-safe.

    Args:
        spec: the definition.
        layers: the counters' layer and the seed of its hash functions: ``grid.leaf`` of an
            ECM-sketch has both.
        name: the source's name, one of the spec's.
        inc: incarnation, higher whenever the process starts without this object.

    Example::

        source = FunctionSource(spec, sketch.grid(spec.decay).leaf, "north", time.time_ns() // 1000)
        sketch.update(keys, times)
        source.look([sketch.grid(spec.decay)], keys)
        answer = post({"messages": source.due(time.monotonic())})
        source.receive(answer["messages"], time.monotonic())
    """

    def __init__(self, spec: FunctionSpec, leaf: Any, name: str, inc: int) -> None:
        self.spec, self.name, self.inc = spec, name, inc
        self._leaf = leaf
        depth, width = leaf.layer.depth, leaf.layer.width
        self._shape = spec.shape(depth, width)
        self._rows = np.arange(depth, dtype=np.int64) * width
        size = math.prod(self._shape)
        self._site: RoundSite | None = None
        self._items: FrequentSite | None = None
        if spec.kind == "frequent":
            assert spec.threshold is not None
            default = default_bound(spec.threshold, spec.theta, len(spec.sites))
            self._items = FrequentSite(name, size, default, inc=inc, retry_s=_RETRY_S)
        else:
            self._site = RoundSite(
                name, spec.zone_of, size, inc=inc, retry_s=_RETRY_S, lease_s=spec.lease_s
            )

    @property
    def unreported(self) -> float | None:
        """For frequent items: up to this estimate, the source does not report an item. In your
        first call of :meth:`look`, pass every key whose estimate may exceed it.
        """
        return None if self._items is None else self._items.default

    @property
    def settled(self) -> bool:
        """Whether no report is under way: the hub's certain result is about these counters."""
        if self._site is not None:
            return self._site.settled
        assert self._items is not None
        return self._items.settled

    def look(self, grids: Iterable[Any], arrived: npt.ArrayLike = ()) -> None:
        """Read counters.

        Args:
            grids: of the sketch under the spec's decay, at one time. For an inner product, of both
                streams' sketches.
            arrived: uint64[m], keys that came since the last call: integer keys.
        """
        counters = np.stack([grid.leaf.value for grid in grids]).ravel()
        if self._site is not None:
            self._site.become(counters)
            return
        assert self._items is not None
        for cell in np.flatnonzero(counters != self._items.values).tolist():
            self._items.put(cell, float(counters[cell]))
        keys = np.unique(np.asarray(arrived, np.uint64))
        for key, cells in zip(keys.tolist(), self._cells(keys), strict=True):
            self._items.arrived(key, cells)

    def _cells(self, keys: npt.NDArray[np.uint64]) -> list[list[int]]:
        columns = self._leaf.columns(keys).astype(np.int64) + self._rows[:, None]
        found: list[list[int]] = columns.T.tolist()
        return found

    def due(self, now_s: float) -> list[dict[str, Any]]:
        """Return the messages to send now, as JSON. ``now_s``: seconds on a steady clock."""
        if self._site is not None:
            said = self._site.due(now_s)
            return [] if said is None else [form_of(said)]
        assert self._items is not None
        return [form_of(each) for each in self._items.due(now_s)[:_MOST_MESSAGES]]

    def receive(self, messages: Sequence[object], now_s: float) -> None:
        """Accept the hub's messages, as JSON, of any age and any number of times.

        Raises:
            ParameterError: a message is invalid.
        """
        for form in messages:
            message: Any = to_site(form, self._shape)
            if self._site is not None:
                self._site.receive(message, now_s)
                continue
            assert self._items is not None
            if hasattr(message, "cells"):  # the hub does not know the hash functions
                cells = self._cells(np.array([whole("item", message.item)], np.uint64))[0]
                message = message._replace(cells=tuple(cells))
            self._items.receive(message, now_s)
