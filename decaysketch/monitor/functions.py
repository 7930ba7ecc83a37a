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

*Cost.* A source reports its number of arrivals. If all messages together are more than these,
:attr:`FunctionState.costly` shows it: then let the sources post their sketches, and query those.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.core.text.grammar import shortened
from decaysketch.decay import Decay
from decaysketch.decay.read import parse
from decaysketch.errors import ParameterError
from decaysketch.monitor.fields import mapping_of, number, sequence_of, take_known, whole
from decaysketch.monitor.frequent import (
    FrequentHub,
    FrequentSite,
    ItemAnswer,
    ItemReport,
    check_threshold,
    default_bound,
)
from decaysketch.monitor.function_messages import form_of, from_site, to_site
from decaysketch.monitor.rounds import Answer, RoundHub, RoundSite, ZoneMaker
from decaysketch.monitor.safe import InnerProductZone, SelfJoinZone, check_theta
from decaysketch.topk.messages import check_site

__all__ = ["MAX_FUNCTION_SITES", "FunctionHub", "FunctionSource", "FunctionSpec", "FunctionState"]

Kind = Literal["self_join", "inner_product", "frequent"]

MAX_FUNCTION_SITES: Final = 256
"""Sources of one function. Beyond 128, a message per arrival is often cheaper."""

MAX_COUNTERS: Final = 1 << 18
"""Counters of all sources of one function."""

_MOST_MESSAGES = 1_000  # of one exchange
_FEWEST_ARRIVALS = 1_000  # before costs are compared
_RETRY_S = 2.0


@dataclass(frozen=True, kw_only=True)
class FunctionSpec:
    """A function over all sources' counters.

    Attributes:
        kind: "self_join", "inner_product" or "frequent".
        decay: weight of an event by age. Any spelling is accepted (:mod:`decaysketch.decay.read`).
        theta: permitted relative error, above 0 and below 1.
        sites: the sources that count, each event at one source.
        threshold: for "frequent": the decayed count over all sources. None for other kinds.
        lease_s: time in seconds after which a source that was not heard is silent, 5 to 86,400.

    Raises:
        ParameterError: a field outside its domain.
    """

    kind: Kind
    decay: Decay
    theta: float
    sites: tuple[str, ...]
    threshold: float | None = None
    lease_s: float = 60.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ParameterError(
                f"kind is {self.kind!r}; expected one of {', '.join(get_args(Kind))}"
            )
        if isinstance(self.decay, (str, Mapping)):
            object.__setattr__(self, "decay", parse(self.decay))
        if not isinstance(self.decay, Decay):
            raise ParameterError(f"decay is {self.decay!r}; expected a decay")
        check_theta(self.theta)
        names = sequence_of("sites", self.sites, MAX_FUNCTION_SITES)
        for name in names:
            check_site("a site", name)
        if not names or len(set(names)) < len(names):
            raise ParameterError(f"sites has {len(names)} entries; expected one or more, each once")
        object.__setattr__(self, "sites", tuple(sorted(names)))
        if (self.kind == "frequent") != (self.threshold is not None):
            raise ParameterError(
                f"threshold is {self.threshold!r} for the kind {self.kind}; expected one for "
                "the kind frequent, and none for others"
            )
        if self.threshold is not None:
            check_threshold(self.threshold)
        number("lease_s", self.lease_s, 5.0, 86_400.0)

    @property
    def zone_of(self) -> ZoneMaker:
        """The zone of a round."""
        theta = self.theta
        if self.kind == "inner_product":
            return lambda estimate: InnerProductZone(estimate, theta)
        return lambda estimate: SelfJoinZone(estimate, theta)

    def shape(self, depth: int, width: int) -> tuple[int, int, int]:
        """Matrices, depth and width of a source's counters.

        Raises:
            ParameterError: all sources together have more than :data:`MAX_COUNTERS`.
        """
        matrices = 2 if self.kind == "inner_product" else 1
        if len(self.sites) * matrices * depth * width > MAX_COUNTERS:
            raise ParameterError(
                f"{len(self.sites)} sites have {matrices * depth * width} counters each; expected "
                f"at most {MAX_COUNTERS} in all: take a narrower sketch or fewer sites"
            )
        return matrices, depth, width

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, with all fields."""
        return {
            "kind": self.kind, "decay": self.decay.to_dict(), "theta": self.theta,
            "sites": list(self.sites), "threshold": self.threshold, "lease_s": self.lease_s,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, form: object, *, time_unit: str | None = None) -> Self:
        """Read a JSON form. Nothing in it is trusted.

        Args:
            time_unit: the stream's unit, if the decay may be a text with units.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain.
        """
        given = mapping_of("a function", form)
        known = [each.name for each in fields(cls)]
        take_known("a function", given, known[:4], known[4:])
        decay = given["decay"]
        if not isinstance(decay, (str, Mapping)):
            raise ParameterError(f"decay is {shortened(repr(decay))}; expected a text or an object")
        return cls(**{**given, "decay": parse(decay, time_unit)})


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionState:
    """The result that the hub vouches for.

    Attributes:
        certain: whether the guarantee holds now.
        value: the function as the round began. None before the first round, and for frequent items.
        low, high: its range while certain. None without a value, and where there is no bound.
        frequent: items that are called frequent. None for other kinds.
        silent: sources that were not heard in this round, or not within the lease.
        messages, arrivals: messages in both directions, and arrivals that sources reported.
        costly: whether the messages are more than the arrivals.
    """

    certain: bool
    value: float | None
    low: float | None
    high: float | None
    frequent: tuple[int, ...] | None
    silent: tuple[str, ...]
    messages: int
    arrivals: int
    costly: bool


class FunctionHub:
    """The hub of one function. Not thread-safe.

    Args:
        spec: the definition.
        depth, width: rows and columns of a source's counters.
        epoch: of the definition.
        saved: the state that :attr:`saved` returned under this epoch. None: a new hub.

    Raises:
        ParameterError: too many counters.
    """

    def __init__(
        self, spec: FunctionSpec, depth: int, width: int, epoch: int,
        saved: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.spec, self.epoch = spec, epoch
        self._depth, self._width = depth, width
        shape = spec.shape(depth, width)
        self._heard: dict[str, float] = dict(saved["heard"]) if saved else {}
        self._messages = saved["messages"] if saved else 0
        self._arrivals = saved["arrivals"] if saved else 0
        # Answers for sources that did not ask, until their next exchange.
        self._kept: dict[str, list[dict[str, Any]]] = dict(saved["kept"]) if saved else {}
        self._rounds: RoundHub | None = None
        self._items: FrequentHub | None = None
        if spec.threshold is not None:
            self._items = (
                FrequentHub.resumed(spec.threshold, spec.theta, saved["hub"]) if saved
                else FrequentHub(spec.sites, spec.threshold, spec.theta)
            )  # fmt: skip
        else:
            # The numbers of rounds begin at the epoch: none is used under two definitions.
            self._rounds = (
                RoundHub.resumed(spec.zone_of, shape, saved["hub"], lease_s=spec.lease_s) if saved
                else RoundHub(spec.sites, spec.zone_of, shape, epoch=epoch, lease_s=spec.lease_s)
            )  # fmt: skip

    @property
    def saved(self) -> dict[str, Any]:
        """The complete state as JSON-ready form. O(sites x counters)."""
        hub = self._rounds if self._rounds is not None else self._items
        assert hub is not None
        return {
            "hub": hub.saved(), "heard": self._heard, "kept": self._kept,
            "messages": self._messages, "arrivals": self._arrivals,
        }  # fmt: skip

    def exchange(
        self, site: str, messages: Sequence[object], now_s: float, *, arrivals: int = 0
    ) -> tuple[list[dict[str, Any]], bool]:
        """Accept messages from a source, with any age. Return those for it, and whether the state
        changed, so that it must be stored before they are sent.

        Args:
            site: the source.
            messages: its messages as JSON, oldest first.
            now_s: seconds on a clock that all processes of the hub share.
            arrivals: the number of events at the source since its last exchange.

        Raises:
            ParameterError: the source takes no part, or a message is invalid. Nothing changed.
        """
        if site not in self.spec.sites:
            raise ParameterError(
                f"site is {site!r}; expected one of the {len(self.spec.sites)} sites"
            )
        read = [from_site(each) for each in sequence_of("messages", messages, _MOST_MESSAGES)]
        for each in read:
            if each.site != site:
                raise ParameterError(f"site of a message is {each.site!r}; expected {site!r}")
            self._check_kind(each)
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
        changed = bool(read or kept) or arrivals > 0 or stale
        if changed:
            self._heard[site] = now_s
            self._messages += len(read) + len(answers)
            self._arrivals += arrivals
        return [form_of(each) for each in answers], changed

    def _keep(self, site: str, answer: Answer | ItemAnswer) -> None:
        """Keep an answer instead of an older one about the same. Polls and rounds need no keeping:
        the hub knows for whom it waits.
        """
        item = answer.item if isinstance(answer, ItemAnswer) else None
        others = [each for each in self._kept.get(site, ()) if each.get("item") != item]
        self._kept[site] = [*others, form_of(answer)][-_MOST_MESSAGES:]

    def _check_kind(self, message: Any) -> None:
        if isinstance(message, ItemReport) != (self._items is not None):
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
        assert self._items is not None
        return list(self._items.messages_for(site))[:_MOST_MESSAGES]

    @property
    def waiting(self) -> list[str]:
        """The sources that should exchange now, although they may have nothing to say. O(sites)."""
        return [site for site in self.spec.sites if self._kept.get(site) or self._waiting(site)]

    def state(self, now_s: float) -> FunctionState:
        """Return the result that the hub vouches for. O(sites)."""
        lease_s = self.spec.lease_s
        silent = {
            site for site in self.spec.sites if now_s - self._heard.get(site, -math.inf) > lease_s
        }
        value = low = high = None
        frequent: tuple[int, ...] | None = None
        certain = not silent
        if self._rounds is not None:
            found = self._rounds.state(now_s)
            silent |= set(found.silent)
            certain = found.certain and not silent
            if found.value is not None:
                value, low = found.value, found.low
                high = found.high if found.high < math.inf else None
        elif self._items is not None:
            frequent = tuple(sorted(each for each in self._items.frequent if isinstance(each, int)))
        return FunctionState(
            certain=certain, value=value, low=low, high=high, frequent=frequent,
            silent=tuple(sorted(silent)), messages=self._messages, arrivals=self._arrivals,
            costly=self._messages > max(self._arrivals, _FEWEST_ARRIVALS),
        )  # fmt: skip


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
        if spec.threshold is not None:
            default = default_bound(spec.threshold, spec.theta, len(spec.sites))
            self._items = FrequentSite(name, size, default, inc=inc, retry_s=_RETRY_S)
        else:
            self._site = RoundSite(
                name, spec.zone_of, size, inc=inc, retry_s=_RETRY_S, lease_s=spec.lease_s
            )

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
