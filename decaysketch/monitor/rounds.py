"""Rounds: a function of the average over all sources' counters, monitored with one number per
source.

A round has a reference e, the average of the sources' offers, and its zone (:mod:`.safe`). Sources
keep ``phi_i = phi(D_i)`` and a bound. The hub keeps the sum of bounds at 0 or less
(:mod:`decaysketch.monitor.charges`), so that f(e) is within theta of f for the *current* counts.

1. A source beyond its bound reports phi, one number. The answer gives it space from the reserve.
2. When the reserve is below 1 % of ``-n phi(0)``, the hub *polls*: sources give up the part that
   they do not use. While ``sum phi < 0.1 n phi(0)`` the rest is distributed again.
3. Otherwise a *new round* begins. Sources offer their counters, or only those that changed since
   the last round if the hub has the others. The hub averages them and sends e with the first
   bounds.

*Any network.* A message contains the current state, never an event, and a sender that waits for an
answer repeats it. So losses, duplicates, delays and any order only delay (:meth:`RoundSite.due`,
:meth:`RoundHub.due`). A source offers one vector per round, however often it is polled, and drifts
from that. A new incarnation of a source's process knows none, and the hub begins a new round. The
hub vouches (:meth:`RoundHub.state`) only if every source is in its round, was heard lately, and has
no open report that the hub knows of.

*Guarantee.* At any moment at which no report is under way and every source is in the round,
``(1 - theta) f <= f(e) <= (1 + theta) f``. If all of a source's reports are lost, the hub names it
as silent once its lease is over.

*Stored elsewhere.* :meth:`RoundHub.saved` is the hub's complete state as JSON, and
:meth:`RoundHub.resumed` builds the same hub from it, in any process: a hub that stores its state
after each message, before it sends the responses, may be killed at any moment.
:meth:`RoundHub.message_for` is the message that a source needs now, for a transport in which the
hub only responds.

State machines without I/O. Times are seconds on the caller's steady clock, and clocks of source and
hub are never compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Self

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

_USED_UP = 0.01  # of -n phi(0): with less in reserve, poll all sources
_SPENT = 0.1  # of it: with less left in total, begin a new round
_RENEW = 0.6  # of a lease
_NO_ROUND = -1
_DOUBLINGS = 11


class Report(NamedTuple):
    """Source to hub: its state in a round. Without one (-1) it requests admission."""

    site: str
    inc: int
    seq: int
    epoch: int
    phi: float
    bound: float
    polled: bool


class Offer(NamedTuple):
    """Source to hub: counters for a later round. The hub has all others."""

    site: str
    inc: int
    seq: int
    epoch: int
    whole: bool
    cells: tuple[int, ...]
    values: tuple[float, ...]


class Answer(NamedTuple):
    """Hub to source: the bound to keep, in answer to its report ``seq``."""

    inc: int
    seq: int
    epoch: int
    bound: float


class Poll(NamedTuple):
    """Hub to source: keep no more than you use, and report that number."""

    epoch: int


class Collect(NamedTuple):
    """Hub to source: offer counters for this round, all of them if nothing else is known."""

    epoch: int
    whole: bool


class Start(NamedTuple):
    """Hub to source: the round begins at this estimate, with this bound."""

    inc: int
    epoch: int
    estimate: Float64Array
    bound: float


FromSite = Report | Offer
ToSite = Answer | Poll | Collect | Start


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundState:
    """The state that the hub vouches for.

    Attributes:
        certain: whether the value is within theta.
        value: f of the sum over all sources' counters as the round began, n^2 f(e). None before the
            first.
        low, high: its range while certain.
        epoch: the round's epoch.
        silent: sources that were not heard in this round, or not for a lease.
        until: the time at which a source becomes silent unless it is heard again.
    """

    certain: bool
    value: float | None
    low: float
    high: float
    epoch: int
    silent: tuple[str, ...]
    until: float


def longer(retry_s: float, tries: int) -> float:
    """How long a source waits for an answer after this number of unanswered messages, in seconds:
    twice as long each time, up to about an hour for a ``retry_s`` of 2.
    """
    return retry_s * 2.0 ** min(max(tries - 1, 0), _DOUBLINGS)


class RoundSite:
    """One source: its counters, and the time for each message about them. Not thread-safe.

    Args:
        name: the source's name.
        zone_of: builds the zone of a round from its estimate, equally at hub and sources.
        size: number of counters, over all matrices.
        inc: incarnation, higher whenever the process starts without this object.
        retry_s: how long the source waits for an answer, twice as long after each missing one.
            Only the answer to the newest report counts. So a round trip longer than any
            wait would keep the answer from the source forever.
        lease_s: how long the hub trusts a report from the source.
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
        self._touched: set[int] = set()  # cells changed since the last confirmed report
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
        """phi of the drift since the round began. 0 outside a round."""
        return 0.0 if self._drift is None else self._drift.phi()

    @property
    def settled(self) -> bool:
        """Whether the source is in a round, offers nothing for a later one, and is within its
        bound. O(depth).
        """
        return self._drift is not None and self._offer is None and self.phi <= self.bound

    def put(self, cell: int, value: float) -> None:
        """Set a counter, by its index in the flat list. O(1)."""
        self.values[cell] = value
        self._touched.add(cell)
        if self._offer is not None:
            self._since_offer.add(cell)
        if self._drift is not None:
            self._drift.put(cell, value)

    def add(self, cell: int, by: float) -> None:
        """Add to a counter, or subtract from it. O(1)."""
        self.put(cell, self.values[cell] + by)

    def become(self, counters: npt.ArrayLike) -> None:
        """Set all counters. The changed ones are updated. O(size)."""
        given = np.asarray(counters, np.float64).ravel()
        for cell in np.flatnonzero(given != self.values).tolist():
            self.put(cell, float(given[cell]))

    def due(self, now: float) -> FromSite | None:
        """Return the message to send now, or None. Call it after every change, and at intervals.

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
        """Accept a message from the hub, with any age and any number of times."""
        if isinstance(message, Answer):
            latest = message.inc == self.inc and message.seq == self._seq
            if latest and message.epoch == self.epoch and self._offer is None:
                # A lease begins when the report was sent: its answer may have been long under way.
                self.bound, self._waits, self._answered = message.bound, False, self._sent
                self._tries = 0
        elif isinstance(message, Poll):
            if message.epoch == self.epoch and self._offer is None:
                self._polled, self._waits = True, False
        elif isinstance(message, Collect):
            self._make_offer(message)
        else:
            self._begin(message)

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

    def _begin(self, start: Start) -> None:
        offer = self._offer
        if start.inc != self.inc or offer is None or offer.epoch != start.epoch:
            return
        self.epoch, self.bound = start.epoch, start.bound
        self._drift = self._zone_of(start.estimate).follow(self._offered)
        for cell in self._since_offer:
            self._drift.put(cell, self.values[cell])
        self._touched, self._offer = self._since_offer, None
        self._waits, self._polled, self._confirm, self._answered = False, False, True, self._sent
        self._tries = 0


@dataclass(slots=True)
class _Account:
    """The hub's data about one source."""

    inc: int = _NO_ROUND
    seq: int = _NO_ROUND  # of its latest message, of this incarnation
    values: Float64Array | None = None
    offered: int = _NO_ROUND  # the round that these are for
    epoch: int = _NO_ROUND  # that it was heard in
    polled: bool = False
    first: float = -math.inf  # bound of its start
    heard: float = -math.inf
    asked: float = -math.inf  # time of the last poll that has no response yet


class RoundHub:
    """The hub of one monitor: the sources' bounds, and the state that it vouches for. Not
    thread-safe.

    Args:
        sites: names of all sources that take part.
        zone_of: builds the zone of a round from its estimate.
        shape: matrices, depth and width of the sources' counters.
        epoch: one more than any earlier one, if a hub starts without its state.
        retry_s, lease_s: as for the sources.
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
        """The bounds that sources may assume, in the current round."""
        return self._charges

    def receive(self, message: FromSite, now: float) -> list[tuple[str, ToSite]]:
        """Accept a message with any age. Return the messages to send, with their receivers.

        Raises:
            ParameterError: a source that takes no part, or invalid numbers.
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
            if self.phase != "collecting":  # the start of its last process is lost
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
        """Return messages to repeat because they were not answered. Call it at intervals.
        O(sites).
        """
        out: list[tuple[str, ToSite]] = []
        for site, account in self._accounts.items():
            if now - account.asked >= self._retry_s and self._waits_for(account):
                account.asked = now
                out.append((site, self._say(site, account)))
        return out

    def message_for(self, site: str) -> ToSite | None:
        """Return the message that the hub waits for this source to answer, or None. O(1)."""
        account = self._accounts[site]
        return self._say(site, account) if self._waits_for(account) else None

    def _waits_for(self, account: _Account) -> bool:
        if self.phase == "collecting":
            return account.offered != self.epoch
        return account.epoch != self.epoch or (self.phase == "polling" and not account.polled)

    def saved(self) -> dict[str, Any]:
        """The complete state as JSON-ready form, for :meth:`resumed`. O(sites x size)."""
        accounts = {}
        for site, account in self._accounts.items():
            accounts[site] = {name: _stored(getattr(account, name)) for name in _FIELDS}
        return {
            "epoch": self.epoch, "rounds": self.rounds, "polls": self.polls, "phase": self.phase,
            "estimate": None if self.zone is None else self.zone.estimate.ravel().tolist(),
            "charges": self._charges.saved(), "accounts": accounts,
        }  # fmt: skip

    @classmethod
    def resumed(
        cls, zone_of: ZoneMaker, shape: tuple[int, int, int], saved: Mapping[str, Any], *,
        retry_s: float = 2.0, lease_s: float = math.inf,
    ) -> Self:  # fmt: skip
        """Return the hub whose state :meth:`saved` returned.

        Args:
            saved: the state. The times in it are on the present caller's clock, too.
            zone_of, shape, retry_s, lease_s: as for the hub that was saved.
        """
        hub = cls(
            saved["accounts"], zone_of, shape, epoch=saved["epoch"], retry_s=retry_s,
            lease_s=lease_s,
        )  # fmt: skip
        hub.rounds, hub.polls, hub.phase = saved["rounds"], saved["polls"], saved["phase"]
        if saved["estimate"] is not None:
            hub.zone = zone_of(np.array(saved["estimate"], np.float64).reshape(shape))
        hub._charges = Charges.resumed(saved["charges"])
        for site, given in saved["accounts"].items():
            hub._accounts[site] = _Account(**{name: _read(name, x) for name, x in given.items()})
        return hub

    def state(self, now: float) -> RoundState:
        """The state that the hub vouches for now. O(sites)."""
        silent = tuple(
            site
            for site, account in self._accounts.items()
            if account.epoch != self.epoch or now - account.heard > self._lease_s
        )
        heard = (each.heard for site, each in self._accounts.items() if site not in silent)
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
            until=min(heard, default=math.inf) + self._lease_s,
        )  # fmt: skip

    def _within(self) -> bool:
        return self._charges.total <= 1e-9 * self._room

    @property
    def _room(self) -> float:
        """``-n phi(0)``, the space at the start of a round."""
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
                return self._poll(now, {site})
            self._charges.give(site)
        elif news and not self._within():  # a source kept a bound from before it was polled
            return self._poll(now)
        bound = self._charges.charge(site)
        return [(site, Answer(report.inc, report.seq, self.epoch, bound))]

    def _poll(self, now: float, beyond: Set[str] = frozenset()) -> list[tuple[str, ToSite]]:
        """Poll all sources but those beyond their bounds. These have already reported the part that
        they use.
        """
        self.phase = "polling"
        self.polls += 1
        for name, account in self._accounts.items():
            account.polled, account.asked = name in beyond, now
        asked = [(name, Poll(self.epoch)) for name in self._accounts if name not in beyond]
        return [*asked] or self._end_poll(now)

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
        """The current state, for a source that does not know it."""
        if self.phase == "collecting":
            return Collect(self.epoch, account.values is None)
        if account.epoch == self.epoch:
            return Poll(self.epoch)
        assert self.zone is not None, "a round that began has a zone"
        return Start(account.inc, self.epoch, self.zone.estimate, account.first)


_FIELDS = tuple(each.name for each in fields(_Account))
_EVER = ("first", "heard", "asked")  # attributes of an account that may be before everything


def _stored(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if value == -math.inf else value


def _read(name: str, value: Any) -> Any:
    if name in _EVER and value is None:
        return -math.inf
    return np.array(value, np.float64) if isinstance(value, list) else value
