"""The hub's side of alerts: the allowances of sources, and the states that they permit. No I/O, no
state.

For every monitor and source the hub keeps an :class:`Account`, a frozen value. A source is
*charged* the largest allowance that it may still assume. A grant counts from its creation. It is
dropped only when a report shows that the source has a later one, or is a new process. So the sum
of charges bounds the weight that all sources hold back on any network. With the bounds
in :mod:`~decaysketch.monitor.bounds`

* *firing* implies that the aggregate is at the threshold or within the tolerance, and *calm* that
  it is short of it. This covers all rows, except rows at sources that are over their allowance,
  so that their reports are under way. If more rows cannot undo a state, it covers these rows, too:
  that a count or a sum is above, whether the monitor fires for that or is calm.
* every other state is *uncertain*, with the reason: silent sources, by name; the allowances,
  if smaller ones would decide (these sources are recalled); or the sketch.

A stream without sources that take part needs none of this. :meth:`Monitor.plain` compares the
query's interval with the threshold.

Shares are proportional to the square root of a source's rate, which minimises the reports from all
sources together. Far from the threshold sources may hold back 70 % of the free weight, each its
share. Near it, they may hold back nearly all.

An account belongs to one epoch. If accounts were lost, or the spec was changed, the epoch must be
one that was never in use. Then the hub vouches for no source before it has reported under it. Times
are the hub's own, in seconds, and survive its restarts. If its clock is set back, leases last
longer by as much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.contract.family import Recipe
from decaysketch.decay.area import area
from decaysketch.errors import ParameterError
from decaysketch.monitor.alert import Verdict
from decaysketch.monitor.bounds import AnyForm, Reading, Room, room
from decaysketch.monitor.fields import (
    mapping_of,
    monitor_name,
    number,
    sequence_of,
    take_known,
    whole,
)
from decaysketch.monitor.messages import Grant, Report
from decaysketch.monitor.pending import unit_s
from decaysketch.monitor.spec import Threshold
from decaysketch.query.dispatch import View, read_predicate
from decaysketch.query.estimate import Estimate

__all__ = ["Account", "Expected", "Granted", "Monitor", "State"]

_FAR = 0.7  # of a site's share, far from the line
_NEAR = 0.97
_STARVED = 0.05  # of the tolerance: if less is free for a source, recall grants of others
_MOST_GRANTS = 8  # grants that an account distinguishes
_SUMS = ("count", "sum", "total")
_LEAST_SHARE = 1.0 / 4096.0  # of a key that is searched for
_NO_LIFETIME_S = 3600.0  # where the decay has none


@dataclass(frozen=True, slots=True)
class Account:
    """The hub's data about one source, for one monitor.

    Attributes:
        epoch: the monitor's epoch, when the account was last written.
        inc, seq: numbers of the latest report. -1 before there was one.
        serial: number of the latest grant.
        grants: (serial, allowance) of all grants that the source may act on.
        until: time when the lease ends, in seconds on the hub's clock.
        confirmed: whether the source has shown that it has a grant in the epoch.
        rate: rows per decay lifetime, estimated from the posts so far.
        last: time of the latest report.
    """

    epoch: int = 0
    inc: int = -1
    seq: int = -1
    serial: int = 0
    grants: tuple[tuple[int, float], ...] = ()
    until: float = 0.0
    confirmed: bool = False
    rate: float = 1.0
    last: float = 0.0

    @property
    def charge(self) -> float:
        """The maximum weight that the source may hold back."""
        return max([allowance for _, allowance in self.grants], default=0.0)

    def of(self, epoch: int) -> Account:
        """The account under an epoch. An older one keeps only its report numbers and its rate."""
        if self.epoch == epoch:
            return self
        return replace(self, epoch=epoch, serial=0, grants=(), until=0.0, confirmed=False)

    def to_dict(self) -> dict[str, Any]:
        """JSON form, for a database row."""
        return {
            "epoch": self.epoch,
            "inc": self.inc,
            "seq": self.seq,
            "serial": self.serial,
            "grants": [list(grant) for grant in self.grants],
            "until": self.until,
            "confirmed": self.confirmed,
            "rate": self.rate,
            "last": self.last,
        }

    @classmethod
    def from_dict(cls, form: object) -> Self:
        """Inverse of :meth:`to_dict`.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain.
        """
        form = mapping_of("account", form)
        take_known("account", form, list(cls.__slots__))
        if not isinstance(form["confirmed"], bool):
            raise ParameterError(f"confirmed is {form['confirmed']!r:.100}; expected true or false")
        grants = []
        for each in sequence_of("grants", form["grants"], _MOST_GRANTS):
            pair = sequence_of("a grant", each, 2)
            if len(pair) != 2:
                raise ParameterError(f"a grant has {len(pair)} numbers; expected 2")
            grants.append((whole("serial of a grant", pair[0]), number("allowance", pair[1], 0.0)))
        inc, seq = (-1 if form[n] == -1 else whole(n, form[n]) for n in ("inc", "seq"))
        return cls(
            whole("epoch", form["epoch"]),
            inc,
            seq,
            whole("serial", form["serial"]),
            tuple(grants),
            number("until", form["until"]),
            form["confirmed"],
            number("rate", form["rate"], 0.0),
            number("last", form["last"]),
        )


_UNKNOWN = Account()


class Granted(NamedTuple):
    """The answer to a report, for one monitor.

    Attributes:
        account: the source's new account.
        grant: for the source. It includes ``spec`` if the source does not know the epoch.
        recall: sources with weight that this one would need. They must post now.
    """

    account: Account
    grant: Grant
    recall: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """A monitor's state.

    Attributes:
        verdict: "calm", "firing" or "uncertain".
        reason: why it is uncertain: "silent", "allowances" or "sketch"; else None.
        value: the estimate from the hub's data, or None if it is undefined.
        lower, upper: bounds that include the sketch's interval and the weight that sources may hold
            back, or None if there is none.
        threshold: the spec's threshold.
        pending_at_most: maximum weight that the sources heard may hold back together.
        silent: sources without current information.
        recall: sources that must post now.
    """

    verdict: Verdict
    reason: str | None
    value: float | None
    lower: float | None
    upper: float | None
    threshold: float
    pending_at_most: float
    silent: tuple[str, ...] = ()
    recall: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "state": self.verdict,
            "reason": self.reason,
            "value": self.value,
            "lower": self.lower,
            "upper": self.upper,
            "threshold": self.threshold,
            "pending_at_most": self.pending_at_most,
            "silent": list(self.silent),
        }


class Expected(NamedTuple):
    """The expected reports for a monitor, per lifetime of its decay.

    Attributes:
        near: posts, while the aggregate is near the threshold.
        renewals: maximum number of reports that only keep leases.
        without: posts if every row were posted at once.
    """

    near: float
    renewals: float
    without: float


@dataclass(frozen=True)
class Monitor:
    """A spec in force on a stream: functions on accounts, readings and the time.

    Attributes:
        name: its name.
        epoch: +1 whenever the spec is changed or accounts were lost.
        spec: the monitor's definition.
        lifetime_s: the time that the decay reaches back, in seconds, about.
        restricted: whether the query needs the spec's modifiers.
    """

    name: str
    epoch: int
    spec: Threshold
    lifetime_s: float = _NO_LIFETIME_S
    restricted: bool = False

    @classmethod
    def of(cls, name: str, epoch: int, spec: Threshold, recipe: Recipe) -> Self:
        """Return a monitor for a stream.

        Raises:
            ParameterError: a name or epoch outside its domain, or the stream's sketches do not
                support the spec's query, or not with the guarantee.
        """
        spec.check_recipe(recipe)
        lifetime = _NO_LIFETIME_S
        if spec.decay is not None:
            span = area(spec.decay) * unit_s(recipe)
            lifetime = span if 0.0 < span < math.inf else lifetime
        epoch = whole("epoch", epoch)
        return cls(monitor_name(name), epoch, spec, lifetime, spec.restricts(recipe))

    # ------------------------------------------------------------------------------------- reading

    def ask(self, view: View, *, confidence: float = 0.95) -> Estimate:
        """Return the result of the spec's query, in its own unit.

        Args:
            view, confidence: as in :meth:`read`.

        Raises:
            UnanswerableQueryError: the sketch has discarded data that the query needs.
        """
        spec = self.spec
        found: Any
        if spec.where is not None and not self.restricted:
            function = _where(spec.question, spec.where)
            found = view.ask("total", confidence=confidence, function=function)
        elif spec.question == "top_key_share":
            found = _top_key_share(view, spec.threshold, confidence)
        else:
            if self.restricted:
                view = view.modified(spec.modifiers)
            found = view.ask(spec.aggregate, confidence=confidence, **spec.arguments)
            if spec.q is not None or spec.key is not None:
                (found,) = found
        estimate: Estimate = found
        return estimate

    def read(self, view: View, *, confidence: float = 0.95) -> Reading:
        """Read the aggregate from a sketch.

        Args:
            view: view of the stream's sketch under the spec's decay, at the current time.
            confidence: of the interval. If two results are needed each has half the rest.

        Raises:
            UnanswerableQueryError: the sketch has discarded the data for the query.
        """
        spec = self.spec
        if spec.question in _SUMS:
            return self.reading_of(self.ask(view, confidence=confidence))
        each = 1.0 - (1.0 - confidence) / 2.0
        if isinstance(spec.form, AnyForm):
            found = self.ask(view, confidence=confidence)
            return _reading(found, exact=found.exact)
        weight = _weight(view, each)
        if weight.value <= 0.0:
            return Reading.of(math.nan)
        if spec.question == "mean":
            found = view.ask("mean", confidence=each)
        else:
            found = view.ask("selectivity", confidence=each, predicate=_inside(spec))
        return _reading(found, max(weight.lower, 0.0), exact=found.exact and weight.exact)

    def reading_of(self, found: Estimate) -> Reading:
        """Return the reading that follows from :meth:`ask` alone. O(1).

        For a mean, share, rank or quantile the value is NaN. With NaN, the hub grants nothing to a
        source. Their bounds need a weight that the estimate lacks.
        """
        if self.spec.question not in _SUMS:
            return Reading.of(math.nan)
        return _reading(found, least=-math.inf if self.spec.question == "total" else 0.0)

    # ------------------------------------------------------------------------------------- granting

    def grant(
        self, accounts: Mapping[str, Account], source: str, report: Report, reading: Reading,
        *, now: float, rows: int = 0,
    ) -> Granted | None:  # fmt: skip
        """Return the answer to a report.

        Args:
            accounts: one for each admitted source that takes part, and no others. A source that
                is expected and never reported has ``Account()``.
            source: name of the reporting source.
            report: the report. Its rows, if any, are in the journal.
            reading: the aggregate's reading. A reading that is not the latest costs reports, and
                breaks no guarantee.
            now: the hub's time in seconds.
            rows: number of rows that arrived with the report.

        Returns:
            None if nothing is granted: to a report that a later one has overtaken, and to a source
            that the spec does not list. A repetition of the latest report gets the same grant
            again.

        Complexity: O(sites).
        """
        if source not in self._sites(accounts):
            return None
        account = accounts.get(source, _UNKNOWN).of(self.epoch)
        held = report.held.get(self.name)
        spec = None if held is not None and held.epoch == self.epoch else self.spec.to_dict()
        if report.number == (account.inc, account.seq) and account.grants:
            serial, allowance = account.grants[-1]
            return Granted(account, self._message(report, serial, allowance, spec))
        if report.number <= (account.inc, account.seq):
            return None
        account = self._heard(account, report, now, rows)
        others = {
            name: other.of(self.epoch)
            for name, other in accounts.items()
            if name != source and name in self._sites(accounts)
        }
        free, share, space = self._share(account, others, reading)
        near = space.total <= 2.0 * space.least
        allowance = min(free, _NEAR * space.total * share) if near else _FAR * free * share
        allowance = max(allowance, 0.0)
        serial = account.serial + 1
        granted = replace(
            account,
            serial=serial,
            grants=_kept((*account.grants, (serial, allowance))),
            until=now + self.spec.lease_s,
        )
        starved = free < _STARVED * space.least
        starved = starved and not self.spec.aim.fires_at(reading, math.inf)
        recall = tuple(name for name, other in others.items() if other.charge > 0.0)
        message = self._message(report, serial, allowance, spec)
        return Granted(granted, message, recall if starved else ())

    def _heard(self, account: Account, report: Report, now: float, rows: int) -> Account:
        """The account, updated by a new report."""
        grants, confirmed = account.grants, account.confirmed
        if report.inc != account.inc:
            grants, confirmed = (), False  # a new process holds nothing
        held = report.held.get(self.name)
        if held is not None and held.epoch == self.epoch and held.serial <= account.serial:
            grants = tuple(grant for grant in grants if grant[0] >= held.serial)
            confirmed = True
        passed = max(now - account.last, 0.0)
        rate = account.rate * math.exp(-passed / self.lifetime_s) + rows
        return replace(
            account, inc=report.inc, seq=report.seq, grants=grants, confirmed=confirmed,
            rate=rate, last=now,
        )  # fmt: skip

    def _share(
        self, account: Account, others: Mapping[str, Account], reading: Reading
    ) -> tuple[float, float, Room]:
        """The weight that the others leave, the source's share in the total, and the available
        weight.
        """
        space = room(self.spec.aim, reading)
        free = max(space.total - sum(other.charge for other in others.values()), 0.0)
        own = math.sqrt(account.rate)
        everyone = own + sum(math.sqrt(other.rate) for other in others.values())
        return free, own / everyone if everyone > 0.0 else 1.0, space

    def _message(
        self, report: Report, serial: int, allowance: float, spec: Mapping[str, Any] | None
    ) -> Grant:
        return Grant(
            self.name, report.inc, report.seq, self.epoch, serial, allowance, self.spec.lease_s,
            spec,
        )  # fmt: skip

    def _sites(self, accounts: Mapping[str, Account]) -> Mapping[str, Account] | frozenset[str]:
        listed = self.spec.sites
        return accounts if listed is None else frozenset(accounts).intersection(listed)

    # ---------------------------------------------------------------------------------------- state

    def plain(self, found: Estimate) -> State:
        """Return the state if no source takes part, by the query's interval alone.

        Args:
            found: as :meth:`ask` returned it.

        Complexity: O(1).
        """
        spec, line = self.spec, self.spec.threshold
        above, empty = spec.above is not None, math.isnan(found.value)
        reached = found.lower >= line if above else found.upper <= line
        short = found.upper < line if above else found.lower > line
        verdict: Verdict = "firing" if reached else "calm" if short or empty else "uncertain"
        ends = (found.value, found.lower, found.upper)
        value, lower, upper = (_finite(each) for each in ends)
        reason = "sketch" if verdict == "uncertain" else None
        return State(verdict, reason, value, lower, upper, line, 0.0)

    def held_back(self, accounts: Mapping[str, Account], now: float) -> float:
        """Return the maximum weight that all sources may hold back together, infinite if one is
        silent. O(sites).
        """
        return self.charged(accounts, now)[0]

    def shown(self, view: View, state: State, u: float, *, confidence: float = 0.95) -> State:
        """Return a quantile monitor's state in values, where :meth:`state` works in ranks.

        Let D be the hub's weight, and u the weight that is held back. A rank r in the
        hub's data is between ``r D / (D + u)`` and ``(r D + u) / (D + u)`` in the union. So the
        q-quantile lies between the quantiles for ``q - (1 - q) u / D`` and ``q (1 + u / D)``.

        Args:
            view, confidence: as in :meth:`read`.
            state: as :meth:`state` returned it. For other queries it is returned unchanged.
            u: as :meth:`held_back` returned it.
        """
        q = self.spec.q
        if q is None or self.spec.modified:
            return state
        weight = _weight(view, confidence).lower
        share = math.inf if weight <= 0.0 else u / weight
        asked = [q, q - (1.0 - q) * share, q * (1.0 + share)]
        known = [min(max(each, 0.0), 1.0) for each in asked] if weight > 0.0 else []
        found = view.ask("quantile", confidence=confidence, q=known) if known else ()
        value, lower, upper = (each for each in found) if found else (None, None, None)
        return replace(
            state,
            value=None if value is None else _finite(value.value),
            lower=None if lower is None or asked[1] < 0.0 else _finite(lower.lower),
            upper=None if upper is None or asked[2] > 1.0 else _finite(upper.upper),
            threshold=self.spec.threshold,
        )

    def charged(
        self, accounts: Mapping[str, Account], now: float
    ) -> tuple[float, list[str], dict[str, float]]:
        """The largest weight held back, the silent sites, and each site's charge. O(sites)."""
        silent, charged = [], {}
        for name in self._sites(accounts):
            account = accounts.get(name, _UNKNOWN).of(self.epoch)
            if now >= account.until or not account.confirmed:
                silent.append(name)
            charged[name] = account.charge
        u = math.inf if silent else math.fsum(charged.values())
        return u, sorted(silent), charged

    def state(self, accounts: Mapping[str, Account], reading: Reading, now: float) -> State:
        """Return the state.

        Args:
            accounts: as in :meth:`grant`.
            reading: of the stream's current sketch, at ``now``.
            now: the hub's time in seconds.

        Complexity: O(sites).
        """
        u, silent, charged = self.charged(accounts, now)
        charges = math.fsum(charged.values())
        aim = self.spec.aim
        verdict: Verdict = "uncertain"
        if aim.fires_at(reading, u):
            verdict = "firing"
        elif aim.calm_at(reading, u):
            verdict = "calm"
        reason: str | None = None
        recall: tuple[str, ...] = ()
        if verdict == "uncertain":
            tells = aim.fires_at(reading, 0.0) or aim.calm_at(reading, 0.0)
            reason = "silent" if silent else "allowances" if tells else "sketch"
            if reason == "allowances":
                recall = tuple(sorted(name for name, charge in charged.items() if charge > 0.0))
        low, high = aim.bounds(reading, u)
        return State(
            verdict, reason, _finite(reading.value), _finite(low), _finite(high), aim.line,
            charges, tuple(silent), recall,
        )  # fmt: skip

    def expected(self, rates: Sequence[float]) -> Expected:
        """Return the monitor's expected cost.

        Near the threshold a source with rate r (decayed weight that it receives in a lifetime of
        the decay) and allowance a posts r / a times. Shares by the square root make that ``(sum
        sqrt r)^2`` over the weight that the tolerance leaves, for sums ``within * threshold``. For
        a mean, the remaining weight is a share of the weight, and that weight is assumed to be the
        sum of the rates, as if no two sources received the same rows.

        Args:
            rates: each source's rate.
        """
        weight = float(sum(rates))
        aim = self.spec.aim
        lower, upper = sorted((aim.line, aim.fires))
        least = aim.form.between(lower, upper, weight)
        near = (
            math.fsum(math.sqrt(rate) for rate in rates) ** 2 / least if least > 0.0 else math.inf
        )
        renewals = len(rates) * self.lifetime_s / (0.6 * self.spec.lease_s)
        return Expected(min(near, weight), renewals, weight)


def _kept(grants: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    """Keep at most this number, with the oldest combined in one: it counts as long as the latest
    and as much as the largest of them.
    """
    extra = len(grants) - _MOST_GRANTS
    if extra <= 0:
        return grants
    first = grants[: extra + 1]
    return ((first[-1][0], max(allowance for _, allowance in first)), *grants[extra + 1 :])


def _where(question: str, text: str) -> Any:
    """The sum over the observations that satisfy a predicate."""
    holds = read_predicate(text)

    def chosen(values: npt.NDArray[Any], weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        held = holds(values, weights)
        if question == "count":
            return held
        column = weights if question == "sum" else values
        return np.where(held, column.astype(np.float64), 0.0)

    return chosen


def _weight(view: View, confidence: float) -> Estimate:
    """The decayed weight of the observations with a value."""
    found: Estimate = view.ask(
        "total", confidence=confidence, function=lambda _values, weights: weights
    )
    return found


def _top_key_share(view: View, line: float, confidence: float) -> Estimate:
    """The largest share that one key has.

    A key that a search for the share phi does not list has a smaller share, with certainty. So the
    first search that lists a key bounds the others. The listed keys share the rest.
    """
    for phi in (line / 4.0, line / 64.0, _LEAST_SHARE):
        keys = view.ask("heavy_keys", confidence=confidence, phi=phi).keys.tolist()
        if not keys:
            continue
        each = 1.0 - (1.0 - confidence) / len(keys)
        shares: list[Estimate] = view.ask("key_share", confidence=each, keys=keys)
        top = max(shares, key=lambda share: share.value)
        lower = max(share.lower for share in shares)
        upper = max(phi, *(share.upper for share in shares))
        return replace(top, lower=lower, upper=upper, confidence=confidence, exact=False)
    total: Estimate = view.ask("key_total", confidence=confidence)
    if total.value <= 0.0:
        return replace(total, value=math.nan, lower=-math.inf, upper=math.inf, exact=False)
    # All are below this share. The bound is the value.
    most = _LEAST_SHARE
    return replace(total, value=most, lower=0.0, upper=most, sure_upper=most, exact=False)


def _inside(spec: Threshold) -> Any:
    """The predicate for the monitored share."""
    if spec.question == "share":
        return spec.predicate
    line = spec.threshold if spec.question == "quantile" else spec.value
    if spec.question == "quantile" and spec.above is not None:
        return lambda values, _weights: np.asarray(values < line)
    return lambda values, _weights: np.asarray(values <= line)


def _reading(
    found: Estimate, weight: float = 0.0, *, least: float = -math.inf, exact: bool | None = None
) -> Reading:
    lower = max(found.lower, least)
    return Reading(found.value, lower, found.upper, weight, found.exact if exact is None else exact)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
