"""Rounds: a function of the average of all sites' counters, watched with one number a site.

A round has a reference e, the average of what sites offered, and its zone (:mod:`.safe`). Sites
hold ``phi_i = phi(D_i)`` and a bound; the hub keeps the sum of bounds at 0 or less
(:mod:`decaysketch.monitor.charges`), so that f(e) is within theta of f of what sites count *now*.

1. A site beyond its bound reports phi, one number; the answer gives it room out of the reserve.
2. When the reserve is below 1 % of ``-n phi(0)``, the hub *polls*: sites give up what they do not
   use. While ``sum phi < 0.1 n phi(0)`` the rest is shared out anew.
3. Else a *new round*: sites offer their counters, those that changed since the last round where the
   hub has the others; the hub averages them and sends e with the first bounds.

*Any network.* A message says how things stand, never what happened, and whoever waits for an answer
says it again: losses, copies, delays and any order only delay (:meth:`RoundSite.due`,
:meth:`RoundHub.due`). A site offers one vector a round, however often it is asked, and drifts from
that; a new incarnation of a site's process knows none, and the hub begins a new round. The hub
vouches (:meth:`RoundHub.state`) only where every site is in its round, was heard lately, and is
in no report that the hub knows of.

*Promise.* At any moment at which no report is under way and every site is in the round,
``(1 - theta) f <= f(e) <= (1 + theta) f``. A site whose reports are all lost is named as silent
once its lease is over.

State machines without I/O: times are seconds of the caller's steady clock, and clocks of site and
hub are never compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.errors import ParameterError
from decaysketch.monitor.charges import Charges
from decaysketch.monitor.safe import Drift, Zone

__all__ = [
    "Answer",
    "Collect",
    "Offer",
    "Poll",
    "Report",
    "RoundHub",
    "RoundSite",
    "RoundState",
    "Start",
    "ZoneMaker",
]

Float64Array = npt.NDArray[np.float64]
ZoneMaker = Callable[[npt.NDArray[np.float64]], Zone]

_USED_UP = 0.01  # of -n phi(0): with less in reserve all are asked
_SPENT = 0.1  # of it: with less left in all a new round begins
_RENEW = 0.6  # of a lease
_NO_ROUND = -1
_DOUBLINGS = 11


class Report(NamedTuple):
    """Site to hub: how it stands in a round; without one (-1) it asks to be taken in."""

    site: str
    inc: int
    seq: int
    epoch: int
    phi: float
    bound: float
    polled: bool


class Offer(NamedTuple):
    """Site to hub: counters for a round to come, of which the hub has all but these."""

    site: str
    inc: int
    seq: int
    epoch: int
    whole: bool
    cells: tuple[int, ...]
    values: tuple[float, ...]


class Answer(NamedTuple):
    """Hub to site: the bound to hold, in answer to its report ``seq``."""

    inc: int
    seq: int
    epoch: int
    bound: float


class Poll(NamedTuple):
    """Hub to site: hold no more than you use, and say what that is."""

    epoch: int


class Collect(NamedTuple):
    """Hub to site: offer counters for this round, all of them if nothing else is known."""

    epoch: int
    whole: bool


class Start(NamedTuple):
    """Hub to site: the round begins at this estimate, with this bound."""

    inc: int
    epoch: int
    estimate: Float64Array
    bound: float


FromSite = Report | Offer
ToSite = Answer | Poll | Collect | Start


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundState:
    """What the hub vouches for.

    Attributes:
        certain: whether the value is within theta.
        value: f of the sum of all sites' counters as the round began, n^2 f(e); None before the
            first.
        low, high: where it is while certain.
        epoch: of the round.
        silent: sites that were not heard in this round, or not for a lease.
    """

    certain: bool
    value: float | None
    low: float
    high: float
    epoch: int
    silent: tuple[str, ...]


def longer(retry_s: float, tries: int) -> float:
    """How long a site waits for an answer after so many messages without one, in seconds: twice as
    long each time, up to about an hour for a ``retry_s`` of 2."""
    return retry_s * 2.0 ** min(max(tries - 1, 0), _DOUBLINGS)


class RoundSite:
    """One site: counters, and when to say what about them. Not thread-safe.

    Args:
        name: of the site.
        zone_of: makes the zone of a round from its estimate; the same at hub and sites.
        size: counters, of all matrices.
        inc: incarnation, higher whenever the process starts without this object.
        retry_s: how long the site waits for an answer, twice as long after each that did not come:
            only the answer to the newest report counts, so a round trip that is longer than any
            wait would keep the site from its answer for ever.
        lease_s: how long the hub takes the site's word.
    """

    def __init__(
        self, name: str, zone_of: ZoneMaker, size: int, *, inc: int = 0,
        retry_s: float = 2.0, lease_s: float = math.inf,
    ) -> None:  # fmt: skip
        self.name, self.inc = name, inc
        self.values = [0.0] * size
        self.epoch = _NO_ROUND
        self.bound = 0.0
        self._zone_of = zone_of
        self._retry_s, self._lease_s = retry_s, lease_s
        self._drift: Drift | None = None
        self._touched: set[int] = set()  # since what the hub surely has
        self._offer: Offer | None = None
        self._offered: list[float] = []
        self._since_offer: set[int] = set()
        self._seq = 0
        self._sent = -math.inf  # the message that waits for its answer
        self._answered = -math.inf
        self._waits = False
        self._tries = 0  # messages since the last answer
        self._polled = False
        self._confirm = True

    @property
    def phi(self) -> float:
        """phi of what moved since the round began; 0 outside of a round."""
        return 0.0 if self._drift is None else self._drift.phi()

    def put(self, cell: int, value: float) -> None:
        """A counter, by its place in the flat list of all, has this value now. O(1)."""
        self.values[cell] = value
        self._touched.add(cell)
        if self._offer is not None:
            self._since_offer.add(cell)
        if self._drift is not None:
            self._drift.put(cell, value)

    def add(self, cell: int, by: float) -> None:
        """A counter rose or fell. O(1)."""
        self.put(cell, self.values[cell] + by)

    def become(self, counters: npt.ArrayLike) -> None:
        """All counters have these values now: what changed is taken. O(size)."""
        given = np.asarray(counters, np.float64).ravel()
        for cell in np.flatnonzero(given != self.values).tolist():
            self.put(cell, float(given[cell]))

    def due(self, now: float) -> FromSite | None:
        """What to send now; None for nothing. Ask after every change, and every now and then.

        O(depth) in general.
        """
        if self._waits and now - self._sent < longer(self._retry_s, self._tries):
            return None
        if self._offer is not None:
            self._wait(now)
            return self._offer
        phi = self.phi
        renew = now - self._answered >= _RENEW * self._lease_s
        if not (phi > self.bound or self._waits or self._polled or self._confirm or renew):
            return None
        self._seq += 1
        self._wait(now)
        polled, self._polled, self._confirm = self._polled, False, False
        if polled:
            self.bound = min(self.bound, phi)
        return Report(self.name, self.inc, self._seq, self.epoch, phi, self.bound, polled)

    def _wait(self, now: float) -> None:
        self._waits, self._sent = True, now
        self._tries += 1

    def receive(self, message: ToSite, now: float) -> None:
        """Take a message of the hub, of any age and any number of times."""
        if isinstance(message, Answer):
            latest = message.inc == self.inc and message.seq == self._seq
            if latest and message.epoch == self.epoch and self._offer is None:
                self.bound, self._waits, self._answered = message.bound, False, now
                self._tries = 0
        elif isinstance(message, Poll):
            if message.epoch == self.epoch and self._offer is None:
                self._polled, self._waits = True, False
        elif isinstance(message, Collect):
            self._make_offer(message)
        else:
            self._begin(message, now)

    def _make_offer(self, asked: Collect) -> None:
        offer = self._offer
        if asked.epoch <= self.epoch:
            return
        if offer is not None and asked.epoch < offer.epoch:
            return
        if offer is not None and asked.epoch == offer.epoch and (offer.whole or not asked.whole):
            self._waits = False
            return
        if offer is None or offer.epoch != asked.epoch:
            self._offered, self._since_offer = self.values.copy(), set()
        whole = asked.whole or self.epoch == _NO_ROUND
        cells = range(len(self.values)) if whole else sorted(self._touched)
        self._seq += 1
        self._offer = Offer(
            self.name, self.inc, self._seq, asked.epoch, whole,
            tuple(cells), tuple(self._offered[cell] for cell in cells),
        )  # fmt: skip
        self._waits = False

    def _begin(self, start: Start, now: float) -> None:
        offer = self._offer
        if start.inc != self.inc or offer is None or offer.epoch != start.epoch:
            return
        self.epoch, self.bound = start.epoch, start.bound
        self._drift = self._zone_of(start.estimate).follow(self._offered)
        for cell in self._since_offer:
            self._drift.put(cell, self.values[cell])
        self._touched, self._offer = self._since_offer, None
        self._waits, self._polled, self._confirm, self._answered = False, False, True, now
        self._tries = 0


@dataclass(slots=True)
class _Account:
    """What the hub knows of one site."""

    inc: int = _NO_ROUND
    seq: int = _NO_ROUND  # of its latest message, of this incarnation
    values: Float64Array | None = None
    offered: int = _NO_ROUND  # the round that these are for
    epoch: int = _NO_ROUND  # that it was heard in
    polled: bool = False
    first: float = -math.inf  # bound of its start
    heard: float = -math.inf
    asked: float = -math.inf  # when it was told last what it does not answer


class RoundHub:
    """The hub of one monitor: who holds what, and what is vouched for. Not thread-safe.

    Args:
        sites: names of all that take part.
        zone_of: makes the zone of a round from its estimate.
        shape: matrices, depth and width of what sites count.
        epoch: one more than any that was used before, where a hub starts without its state.
        retry_s, lease_s: as the sites'.
    """

    def __init__(
        self, sites: Iterable[str], zone_of: ZoneMaker, shape: tuple[int, int, int], *,
        epoch: int = 0, retry_s: float = 2.0, lease_s: float = math.inf,
    ) -> None:  # fmt: skip
        self._accounts = {site: _Account() for site in sites}
        if not self._accounts:
            raise ParameterError("sites are none; expected one or more")
        self._zone_of, self._shape = zone_of, shape
        self._retry_s, self._lease_s = retry_s, lease_s
        self.epoch = epoch
        self.rounds = self.polls = 0
        self.phase: Literal["watching", "polling", "collecting"] = "collecting"
        self.zone: Zone | None = None
        self._charges = Charges(self._accounts, 0.0)

    @property
    def charges(self) -> Charges:
        """What sites may believe, of the present round."""
        return self._charges

    def receive(self, message: FromSite, now: float) -> list[tuple[str, ToSite]]:
        """Take a message of any age; what to send to whom.

        Raises:
            ParameterError: of a site that takes no part, or numbers that are none.
        """
        account = self._accounts.get(message.site)
        if account is None:
            raise ParameterError(
                f"site is {message.site!r}; expected one of {', '.join(self._accounts)}"
            )
        if (message.inc, message.seq) < (account.inc, account.seq):
            return []
        if message.inc > account.inc:
            self._accounts[message.site] = account = _Account(message.inc)
            if self.phase != "collecting":  # what its last process began with is lost
                account.seq, account.heard = message.seq, now
                return self._collect(now)
        news = message.seq > account.seq
        account.seq, account.heard = message.seq, now
        if isinstance(message, Offer):
            return self._offered(message, account, now)
        if not math.isfinite(message.phi):
            raise ParameterError(f"phi is {message.phi!r}; expected a finite number")
        return self._reported(message, account, news, now)

    def due(self, now: float) -> list[tuple[str, ToSite]]:
        """What is said again because it was not answered. Ask every now and then. O(sites)."""
        out: list[tuple[str, ToSite]] = []
        for site, account in self._accounts.items():
            if now - account.asked < self._retry_s:
                continue
            if self.phase == "collecting":
                waits = account.offered != self.epoch
            else:
                waits = account.epoch != self.epoch or (
                    self.phase == "polling" and not account.polled
                )
            if waits:
                account.asked = now
                out.append((site, self._say(site, account)))
        return out

    def state(self, now: float) -> RoundState:
        """What is vouched for now. O(sites)."""
        silent = tuple(
            site
            for site, account in self._accounts.items()
            if account.epoch != self.epoch or now - account.heard > self._lease_s
        )
        squared = len(self._accounts) ** 2
        value, low, high = math.nan, 0.0, math.inf
        if self.zone is not None:
            value, low, high = (
                squared * each for each in (self.zone.value, self.zone.low, self.zone.high)
            )
        certain = self.phase != "collecting" and not silent and self._within()
        return RoundState(
            certain=certain, value=None if self.zone is None else value,
            low=low, high=high, epoch=self.epoch, silent=silent,
        )  # fmt: skip

    def _within(self) -> bool:
        return self._charges.total <= 1e-9 * self._room

    @property
    def _room(self) -> float:
        """``-n phi(0)``, what a round begins with."""
        return 0.0 if self.zone is None else -len(self._accounts) * self.zone.rest

    # -------------------------------------------------------------------------------------- reports

    def _reported(
        self, report: Report, account: _Account, news: bool, now: float
    ) -> list[tuple[str, ToSite]]:
        site = report.site
        if self.phase == "collecting":
            account.asked = now
            return [(site, self._say(site, account))] if account.offered != self.epoch else []
        if report.epoch != self.epoch:
            account.asked = now
            return [(site, self._say(site, account))]
        account.epoch = self.epoch
        if news:
            self._charges.take(site, report.seq, report.phi, report.bound)
        if self.phase == "polling":
            account.polled |= report.polled and news
            return self._end_poll(now)
        if report.phi > report.bound and news:
            if self._charges.reserve <= _USED_UP * self._room:
                return self._poll(site, now)
            self._charges.give(site)
        bound = self._charges.charge(site)
        return [(site, Answer(report.inc, report.seq, self.epoch, bound))]

    def _poll(self, site: str, now: float) -> list[tuple[str, ToSite]]:
        """Ask all others; who is beyond its bound has said already what it uses."""
        self.phase = "polling"
        self.polls += 1
        for name, account in self._accounts.items():
            account.polled, account.asked = name == site, now
        if len(self._accounts) == 1:
            return self._end_poll(now)
        return [(name, Poll(self.epoch)) for name in self._accounts if name != site]

    def _end_poll(self, now: float) -> list[tuple[str, ToSite]]:
        if not all(account.polled for account in self._accounts.values()):
            return []
        if -self._charges.known <= _SPENT * self._room:
            return self._collect(now)
        self.phase = "watching"
        bounds = self._charges.share_out()
        return [
            (site, Answer(account.inc, account.seq, self.epoch, bounds[site]))
            for site, account in self._accounts.items()
        ]

    # --------------------------------------------------------------------------------------- rounds

    def _collect(self, now: float) -> list[tuple[str, ToSite]]:
        self.phase = "collecting"
        self.epoch += 1
        for account in self._accounts.values():
            account.asked = now
        return [(site, self._say(site, account)) for site, account in self._accounts.items()]

    def _offered(self, offer: Offer, account: _Account, now: float) -> list[tuple[str, ToSite]]:
        if offer.epoch != self.epoch or (account.values is None and not offer.whole):
            account.asked = now
            return [(offer.site, self._say(offer.site, account))]
        if self.phase != "collecting":
            return [(offer.site, self._say(offer.site, account))]
        if account.offered != self.epoch:
            account.values = self._filled(offer, account.values)
            account.offered = self.epoch
        if any(each.offered != self.epoch for each in self._accounts.values()):
            return []
        return self._start(now)

    def _filled(self, offer: Offer, known: Float64Array | None) -> Float64Array:
        values = np.zeros(math.prod(self._shape)) if known is None else known.copy()
        cells, given = np.array(offer.cells, np.int64), np.array(offer.values, np.float64)
        if len(cells) != len(given) or (
            len(cells) and not 0 <= cells.min() <= cells.max() < len(values)
        ):
            raise ParameterError(
                f"cells of {offer.site!r} are {len(cells)} for {len(given)} values; expected one "
                f"for each, from 0 to {len(values) - 1}"
            )
        if not (np.isfinite(given).all() and (given >= 0.0).all()):
            raise ParameterError(f"values of {offer.site!r}: expected finite numbers of at least 0")
        values[cells] = given
        return values

    def _start(self, now: float) -> list[tuple[str, ToSite]]:
        vectors = [account.values for account in self._accounts.values()]
        estimate = np.mean([each for each in vectors if each is not None], axis=0)
        self.zone = zone = self._zone_of(estimate.reshape(self._shape))
        self.phase = "watching"
        self.rounds += 1
        self._charges.restart(0.0, zone.rest)
        bounds = self._charges.share_out()
        for site, account in self._accounts.items():
            account.first, account.asked, account.polled = bounds[site], now, False
        return [(site, self._say(site, account)) for site, account in self._accounts.items()]

    def _say(self, site: str, account: _Account) -> ToSite:
        """How things stand, to a site that does not know."""
        if self.phase == "collecting":
            return Collect(self.epoch, account.values is None)
        if account.epoch == self.epoch:
            return Poll(self.epoch)
        assert self.zone is not None, "a round that began has a zone"
        return Start(account.inc, self.epoch, self.zone.estimate, account.first)
