"""Frequent items over all sources: budgets on each source's own counters for an item.

A source's estimate for an item is its smallest cell (in a Count-Min sketch), f_i. The sum of these
is at most the smallest of the summed cells. So it is nearer to the truth than the merged sketch
would be, and it is one number: no geometry is needed. For each item the hub keeps (:mod:`.charges`)

    sum f_i <= threshold (1 + theta)     while the item is not called frequent
    sum f_i >= threshold (1 - theta)     while it is

A source that leaves its bound reports, and the answer gives it space. When there is none, all
sources report their estimates. The item is called frequent if they sum to the threshold, and new
bounds are given. With fewer than 8 sources all are polled at once, since that is cheaper there
(measured).

*Guarantee* (Papapetrou, Garofalakis and Deligiannakis 2015, Lemma 1, with guaranteed bounds in
place of its probable ones): an item that is not called frequent was counted less than, or just,
``threshold (1 + theta)`` times. For an item that is, local estimates sum to
``threshold (1 - theta)`` at least, and collisions are part of that. Both hold except for reports
that are under way.

*When a source checks an item.* An item that is not frequent only at its own arrivals: counts that
others add to its cells are no occurrence of it. A frequent one whenever one of its cells falls.

*A source that starts* without memory knows no bounds. It begins with its incarnation
(:class:`ItemBegin`), after which the hub polls all sources about all items, and it checks every
item that may exceed the bound for items without messages.

*A report that is late.* A source numbers its reports about all items. When the hub drops an item,
it forgets which reports about it are old. So a report about an unknown item counts only if it is
the source's newest. The source repeats any other that matters.

*Limit.* If an item was once above ``threshold (1 + theta) / (2 n)`` at a source, the hub stores it
until all sources are polled about it and have little of it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

from decaysketch.errors import ParameterError
from decaysketch.monitor.charges import Charges
from decaysketch.monitor.rounds import longer
from decaysketch.monitor.safe import check_theta

__all__ = [
    "FrequentHub",
    "FrequentSite",
    "ItemAnswer",
    "ItemBegin",
    "ItemBegun",
    "ItemPoll",
    "ItemReport",
    "default_bound",
]

Item = Hashable
Side = Literal["below", "above", "still"]
"""Where a site's estimate is to be: at most, at least, or just the bound."""

POLL_ALL_BELOW = 8  # sites
_USED_UP = 0.02  # of theta times the threshold: with less in reserve, poll all sources


class ItemBegin(NamedTuple):
    """Source to hub: it begins, without memory of any earlier incarnation."""

    site: str
    inc: int


class ItemBegun(NamedTuple):
    """Hub to source: it knows this incarnation."""

    inc: int


class ItemReport(NamedTuple):
    """Source to hub: its estimate for an item, and the bound that it keeps."""

    site: str
    inc: int
    seq: int
    item: Item
    estimate: float
    side: Side
    bound: float
    polled: bool


class ItemAnswer(NamedTuple):
    """Hub to source: the bound for an item, in answer to a report."""

    inc: int
    seq: int
    item: Item
    side: Side
    bound: float


class ItemPoll(NamedTuple):
    """Hub to source: keep your current estimate for this item, and report it. The caller must know
    its cells, as for an arrival.
    """

    item: Item
    cells: tuple[int, ...]


def check_threshold(threshold: float) -> float:
    """Reject an invalid threshold.

    Raises:
        ParameterError: naming it.
    """
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise ParameterError(f"threshold is {threshold!r}; expected a number above 0")
    if not 0.0 < threshold < math.inf:
        raise ParameterError(f"threshold is {threshold!r}; expected a number above 0")
    return float(threshold)


def default_bound(threshold: float, theta: float, sites: int) -> float:
    """The bound on a source's estimate for an item without messages yet."""
    most = check_threshold(threshold) * (1.0 + check_theta(theta))
    return most / sites if sites < POLL_ALL_BELOW else most / (2 * sites)


@dataclass(slots=True)
class _Held:
    """The bound that a source keeps for one item."""

    cells: tuple[int, ...]
    side: Side
    bound: float
    seq: int = 0
    sent: float = -math.inf
    waits: bool = False
    polled: bool = False
    tries: int = 0  # reports since the last answer


_FromHub = ItemAnswer | ItemPoll | ItemBegun


class FrequentSite:
    """One source: its counters, and the items that the hub named. Not thread-safe.

    Args:
        name: the source's name.
        size: number of counters, ``depth x width``, as one flat list.
        default: :func:`default_bound`, the same at all sources and the hub.
        inc: incarnation, higher whenever the process starts without this object.
        retry_s: how long the source waits for an answer, twice as long after each missing one.
    """

    def __init__(
        self, name: str, size: int, default: float, *, inc: int = 0, retry_s: float = 2.0
    ) -> None:
        self.name, self.inc, self.default = name, inc, default
        self.values = [0.0] * size
        self._retry_s = retry_s
        self._items: dict[Item, _Held] = {}
        self._watchers: dict[int, set[Item]] = {}  # by cell, those that are not "below"
        self._look: dict[Item, None] = {}  # in order, items that may have something to say
        self._seq = 0
        self._begun = False
        self._sent, self._tries = -math.inf, 0  # of the begin

    @property
    def settled(self) -> bool:
        """Whether the hub knows this process, and :meth:`due` found nothing to report. O(1)."""
        return self._begun and not self._look

    def estimate(self, cells: Sequence[int]) -> float:
        """The smallest of these counters."""
        return min(self.values[cell] for cell in cells)

    def put(self, cell: int, value: float) -> None:
        """Set a counter. O(items monitored at it)."""
        if value != self.values[cell]:
            self.values[cell] = value
            for item in self._watchers.get(cell, ()):
                self._look[item] = None

    def add(self, cell: int, by: float) -> None:
        """Add to a counter, or subtract from it."""
        self.put(cell, self.values[cell] + by)

    def arrived(self, item: Item, cells: Sequence[int]) -> None:
        """Handle an item's arrival, after its cells have been increased. O(depth)."""
        if item in self._items:
            self._look[item] = None
        elif self.estimate(cells) > self.default:
            self._items[item] = _Held(tuple(cells), "below", self.default)
            self._look[item] = None

    def due(self, now: float) -> list[ItemBegin | ItemReport]:
        """Return the messages to send now. O(depth) for each item that may have one."""
        out: list[ItemBegin | ItemReport] = []
        if not self._begun and now - self._sent >= longer(self._retry_s, self._tries):
            self._sent, self._tries = now, self._tries + 1
            out.append(ItemBegin(self.name, self.inc))
        for item in list(self._look):
            held = self._items[item]
            estimate = self.estimate(held.cells)
            if not (self._left(held, estimate) or held.polled or held.waits):
                del self._look[item]
                continue
            wait = longer(self._retry_s, held.tries)
            if held.waits and not held.polled and now - held.sent < wait:
                continue
            self._seq += 1
            if held.polled:
                self._hold(item, held, "still", estimate)
            out.append(
                ItemReport(
                    self.name, self.inc, self._seq, item, estimate, held.side, held.bound,
                    held.polled,
                )
            )  # fmt: skip
            held.seq, held.sent, held.waits, held.polled = self._seq, now, True, False
            held.tries += 1
        return out

    @staticmethod
    def _left(held: _Held, estimate: float) -> bool:
        if held.side == "below":
            return estimate > held.bound
        return estimate < held.bound if held.side == "above" else estimate != held.bound

    def _hold(self, item: Item, held: _Held, side: Side, bound: float) -> None:
        held.side, held.bound = side, bound
        for cell in held.cells:
            if side != "below":
                self._watchers.setdefault(cell, set()).add(item)
            elif cell in self._watchers:
                self._watchers[cell].discard(item)

    def receive(self, message: _FromHub, now: float) -> None:
        """Accept a message from the hub, with any age and any number of times."""
        if isinstance(message, ItemBegun):
            self._begun |= message.inc == self.inc
            return
        held = self._items.get(message.item)
        if isinstance(message, ItemPoll):
            if held is None:
                held = self._items[message.item] = _Held(message.cells, "below", self.default)
            held.polled = True
            self._look[message.item] = None
            return
        if held is None or (message.inc, message.seq) != (self.inc, held.seq):
            return
        held.waits, held.tries = False, 0
        self._look[message.item] = None
        self._hold(message.item, held, message.side, message.bound)
        plain = message.side == "below" and message.bound == self.default
        if plain and self.estimate(held.cells) <= self.default:  # as if no source had reported it
            del self._items[message.item]
            del self._look[message.item]


@dataclass(slots=True)
class _Known:
    """A hub's data about one item."""

    cells: tuple[int, ...]
    charges: Charges
    frequent: bool = False
    asked: float = -math.inf
    missing: set[str] = field(default_factory=set)  # of those who were asked


class FrequentHub:
    """Tracks which items are frequent. Not thread-safe.

    Args:
        sites: names of all sources that take part.
        threshold: a count, over all sources.
        theta: permitted relative error.
        retry_s: time after which a poll is repeated.

    Raises:
        ParameterError: no sources, or an invalid threshold or theta.
    """

    def __init__(
        self, sites: Iterable[str], threshold: float, theta: float, *, retry_s: float = 2.0
    ) -> None:
        self._incs = dict.fromkeys(sites, -1)
        self._newest = dict(self._incs)  # report of each source, about any item
        if not self._incs:
            raise ParameterError("sites are none; expected one or more")
        self.threshold, self.theta = check_threshold(threshold), check_theta(theta)
        self.default = default_bound(threshold, theta, len(self._incs))
        self.most, self.least = threshold * (1.0 + theta), threshold * (1.0 - theta)
        self.polls = 0
        self._retry_s = retry_s
        self._known: dict[Item, _Known] = {}
        self._frequent: set[Item] = set()

    @property
    def frequent(self) -> frozenset[Item]:
        """The items that are called frequent now."""
        return frozenset(self._frequent)

    def __len__(self) -> int:
        """Number of known items."""
        return len(self._known)

    def receive(
        self, report: ItemBegin | ItemReport, cells: Sequence[int], now: float
    ) -> list[tuple[str, _FromHub]]:
        """Accept a message with any age. Return the messages to send, with their receivers.

        Args:
            report: a source's begin or report.
            cells: the item's cells, by the hub's own hash functions.
            now: seconds on a steady clock.

        Raises:
            ParameterError: a source that takes no part, or an invalid estimate.
        """
        site = report.site
        if site not in self._incs:
            raise ParameterError(f"site is {site!r}; expected one of {', '.join(self._incs)}")
        out: list[tuple[str, _FromHub]] = []
        if isinstance(report, ItemReport):
            self._check(report)
        elif report.inc >= self._incs[site]:
            out.append((site, ItemBegun(report.inc)))
        if report.inc < self._incs[site]:
            return out
        if report.inc > self._incs[site]:
            if self._incs[site] >= 0:  # grants to its last process are lost
                for item, known in self._known.items():
                    out += self._ask(item, known, set(self._incs), now)
            self._incs[site] = report.inc
        if isinstance(report, ItemBegin):
            return out
        newest, order = self._newest[site], report.inc << 53 | report.seq
        self._newest[site] = max(order, newest)
        known = self._known.get(report.item)  # type: ignore[assignment]
        if known is None:
            if order <= newest:  # perhaps of an item that was dropped since: it comes again
                return out
            if report.estimate <= self.default:
                out.append((site, self._answer_default(report)))
                return out
            older = self._newest | {site: newest}
            charges = Charges(self._incs, self.most, self.default, older)
            known = self._known[report.item] = _Known(tuple(cells), charges)
        out += self._take(report, known, now)
        return out

    @staticmethod
    def _check(report: ItemReport) -> None:
        if not 0.0 <= report.estimate < math.inf or not math.isfinite(report.bound):
            raise ParameterError(
                f"estimate is {report.estimate!r} and bound {report.bound!r}; expected finite "
                "numbers, the estimate at least 0"
            )

    def due(self, now: float) -> list[tuple[str, ItemAnswer | ItemPoll]]:
        """Return polls to repeat because they were not answered. O(items)."""
        out: list[tuple[str, ItemAnswer | ItemPoll]] = []
        for item, known in self._known.items():
            if known.missing and now - known.asked >= self._retry_s:
                out += self._ask(item, known, known.missing, now)
        return out

    def messages_for(self, site: str) -> list[ItemPoll]:
        """Return the polls that the hub waits for this source to answer. O(items)."""
        return [
            ItemPoll(item, known.cells)
            for item, known in self._known.items()
            if site in known.missing
        ]

    def saved(self) -> dict[str, Any]:
        """The complete state as JSON-ready form, for :meth:`resumed`. Items must be integers or
        texts. O(items x sites).
        """
        items = [
            {
                "item": item, "cells": list(known.cells), "frequent": known.frequent,
                "asked": known.asked if known.asked > -math.inf else None,
                "missing": sorted(known.missing), "charges": known.charges.saved(),
            }
            for item, known in self._known.items()
        ]  # fmt: skip
        return {
            "incs": dict(self._incs), "newest": dict(self._newest), "polls": self.polls,
            "items": items,
        }  # fmt: skip

    @classmethod
    def resumed(
        cls, threshold: float, theta: float, saved: Mapping[str, Any], *, retry_s: float = 2.0
    ) -> Self:
        """Return the hub whose state :meth:`saved` returned.

        Args:
            threshold, theta, retry_s: as for the hub that was saved.
            saved: the state. The times in it are on the present caller's clock, too.
        """
        hub = cls(saved["incs"], threshold, theta, retry_s=retry_s)
        hub._incs, hub.polls = dict(saved["incs"]), saved["polls"]
        hub._newest |= saved.get("newest", {})
        for each in saved["items"]:
            asked = -math.inf if each["asked"] is None else each["asked"]
            hub._known[each["item"]] = _Known(
                tuple(each["cells"]), Charges.resumed(each["charges"]), each["frequent"], asked,
                set(each["missing"]),
            )  # fmt: skip
        hub._frequent = {each["item"] for each in saved["items"] if each["frequent"]}
        return hub

    def _answer_default(self, report: ItemReport) -> ItemAnswer:
        return ItemAnswer(report.inc, report.seq, report.item, "below", self.default)

    def _take(
        self, report: ItemReport, known: _Known, now: float
    ) -> list[tuple[str, ItemAnswer | ItemPoll]]:
        site, charges = report.site, known.charges
        sign = -1.0 if known.frequent else 1.0
        phi = sign * report.estimate
        if report.side in ("still", "above" if known.frequent else "below"):
            bound = sign * report.bound
        else:  # it holds itself to nothing that is of use here
            bound = 0.0 if known.frequent else math.inf
        news = charges.take(site, report.inc << 53 | report.seq, phi, bound)
        if known.missing:
            if news and report.polled:
                known.missing.discard(site)
                if not known.missing:
                    return self._end_poll(report.item, known)
            return []
        if news and charges.reserve <= _USED_UP * self.theta * self.threshold:
            self.polls += 1
            rest = set(self._incs) - ({site} if report.polled or phi >= bound else set())
            return self._ask(report.item, known, rest, now) or self._end_poll(report.item, known)
        if news and (phi > bound or report.side == "still"):
            charges.give(site)
        return [(site, self._answer(site, report.item, known))]

    def _answer(self, site: str, item: Item, known: _Known) -> ItemAnswer:
        charge, order = known.charges.charge(site), known.charges.seq(site)
        inc, seq = order >> 53, order & ((1 << 53) - 1)
        if known.frequent:
            return ItemAnswer(inc, seq, item, "above", -charge)
        return ItemAnswer(inc, seq, item, "below", charge)

    @staticmethod
    def _ask(
        item: Item, known: _Known, sites: set[str], now: float
    ) -> list[tuple[str, ItemAnswer | ItemPoll]]:
        """Poll these for their estimates."""
        known.missing, known.asked = sites, now
        return [(site, ItemPoll(item, known.cells)) for site in sorted(sites)]

    def _end_poll(self, item: Item, known: _Known) -> list[tuple[str, ItemAnswer | ItemPoll]]:
        charges = known.charges
        sign = -1.0 if known.frequent else 1.0
        found = {site: sign * charges.phi(site) for site in self._incs}
        total = math.fsum(found.values())
        if total < 0.5 * self.most and max(found.values()) <= self.default:
            del self._known[item]
            self._frequent.discard(item)
            out: list[tuple[str, ItemAnswer | ItemPoll]] = []
            for site in self._incs:
                order = charges.seq(site)
                inc, seq = order >> 53, order & ((1 << 53) - 1)
                out.append((site, ItemAnswer(inc, seq, item, "below", self.default)))
            return out
        known.frequent = total >= self.threshold
        (self._frequent.add if known.frequent else self._frequent.discard)(item)
        turned = -1.0 if known.frequent else 1.0
        charges.turn(turned * (self.least if known.frequent else self.most), turned != sign)
        if len(self._incs) < POLL_ALL_BELOW:
            charges.split()
        else:
            charges.share_out()
        return [(site, self._answer(site, item, known)) for site in self._incs]
