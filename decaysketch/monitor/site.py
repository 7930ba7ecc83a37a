"""The side of a site: what it may hold back, and when it has to say something. No I/O.

A site keeps of every monitor the grant that it acts on, and a bound of what it has not posted
(:mod:`~decaysketch.monitor.pending`). As soon as that exceeds the allowance it is due to post. It
has no allowance before its first grant, after its lease, and in a new process; a lease counts from
*sending* the report that it answers, by a steady clock, while the hub's counts from receiving, so
it ends first at the site whatever clocks say.

Who drives a site has one loop: rows go to :meth:`BudgetSite.observe`; :meth:`~BudgetSite.due` says
whether to post or to renew; :meth:`~BudgetSite.report` makes the report that is sent along, and
:meth:`~BudgetSite.answered` takes what came back. Every attempt to send is a report of its own.
Where rows go on coming while what is to be sent is packed, :meth:`~BudgetSite.seal` says which are
in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy.typing as npt

from decaysketch.contract.recipe import Recipe
from decaysketch.monitor.fields import MAX_MONITORS
from decaysketch.monitor.messages import Answer, Grant, Held, Report
from decaysketch.monitor.pending import CLOCK_RATE, Pending
from decaysketch.monitor.spec import Threshold, spec_from_dict

__all__ = ["BudgetSite", "Due"]

Due = Literal["post", "renew"]
"""To post everything with a report, or to report alone."""

_RENEW = 0.6  # of a lease
_GIVEN_BACK = 0.9  # a grant smaller than this share of the last is confirmed at once
_UNANSWERED = 16  # reports whose sending is remembered


@dataclass(slots=True)
class _Watched:
    """One monitor at a site."""

    epoch: int
    spec: Threshold
    pending: Pending
    held: Held | None = None
    allowance: float = 0.0
    until: float = -math.inf
    renew_at: float = -math.inf
    wants: Due | None = "post"
    told: Due | None = None  # what a report was for that is not answered

    @property
    def wanted(self) -> Due | None:
        """What has to be done, where a report that is under way does not arrive."""
        return "post" if "post" in (self.wants, self.told) else self.wants or self.told

    def allowed(self, clock: float) -> float:
        return self.allowance if clock < self.until else 0.0


class BudgetSite:
    """A site of a stream, with all monitors of it.

    Args:
        recipe: of the stream.
        inc: incarnation: larger than that of every process before, counted on disk.
        answer_s: so long an answer is waited for before the site is due again.

    Not for several threads at once.
    """

    def __init__(self, recipe: Recipe, *, inc: int, answer_s: float = 10.0) -> None:
        self._recipe = recipe
        self._answer_s = answer_s
        self.inc = inc
        self.seq = 0
        self._watched: dict[str, _Watched] = {}
        self._sent: dict[int, float] = {}
        self._flight: tuple[int, float] | None = None
        self._asks = True  # a new process asks once which monitors there are

    @property
    def monitors(self) -> tuple[str, ...]:
        """Names of the monitors that it knows."""
        return tuple(self._watched)

    def definition(self, monitor: str) -> tuple[int, Threshold]:
        """Epoch and spec of a monitor that it knows."""
        known = self._watched[monitor]
        return known.epoch, known.spec

    def lease_s(self, monitor: str, clock: float) -> float:
        """What is left of its lease of a monitor; 0 where it has none."""
        return max(self._watched[monitor].until - clock, 0.0)

    def held(self, monitor: str) -> Held | None:
        """Number of the grant that it holds of a monitor."""
        return self._watched[monitor].held

    def allowance(self, monitor: str, clock: float) -> float:
        """What it may hold back of a monitor now."""
        return self._watched[monitor].allowed(clock)

    def pending(self, monitor: str, clock: float) -> float:
        """What it holds back of a monitor now, at most."""
        return self._watched[monitor].pending.weight(clock)

    # --------------------------------------------------------------------------- what happens to it

    def observe(
        self, times: npt.ArrayLike, values: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None, *, now: float, clock: float,
    ) -> None:  # fmt: skip
        """Rows that were taken and are not posted.

        Args:
            times: of the rows, shape (n,), in the stream's unit.
            values: of the rows, NaN where there is none; None: no row has one.
            weights: of the rows; of the family ``sum``, its values. None: each has 1.
            now: the stream's time, in its unit, not later than the hub's.
            clock: steady time in seconds.

        Complexity: O(rows) for each monitor.
        """
        for each in self._watched.values():
            each.pending.observe(times, values, weights, now, clock)

    def define(self, monitor: str, epoch: int, spec: Threshold, clock: float) -> None:
        """A monitor that is new, or has a new epoch; of an older one nothing happens.

        What the site holds counts as infinite until it has been posted once.
        """
        known = self._watched.get(monitor)
        if known is None and len(self._watched) >= MAX_MONITORS:
            return
        if known is None or epoch > known.epoch:
            pending = Pending(spec, self._recipe, clock, known=False)
            self._watched[monitor] = _Watched(epoch, spec, pending)

    def gone(self, monitor: str) -> None:
        """A monitor that is no more; also one that was not known."""
        self._watched.pop(monitor, None)

    def recall(self, monitor: str, epoch: int) -> None:
        """The hub wants what there is, to divide the allowances again."""
        known = self._watched.get(monitor)
        if known is not None and epoch == known.epoch:
            known.wants = "post"

    # ---------------------------------------------------------------------------- what it has to do

    def due(self, clock: float) -> Due | None:
        """What has to be done now. O(monitors)."""
        if self._flight is not None and clock - self._flight[1] < self._answer_s:
            return None
        wanted: Due | None = "renew" if self._asks else None
        for each in self._watched.values():
            if each.wanted == "post" or each.pending.weight(clock) > each.allowed(clock):
                return "post"
            if each.wanted == "renew" or clock >= each.renew_at:
                wanted = "renew"
        return wanted

    def wake(self, clock: float) -> float:
        """When it is due next, if nothing happens before; infinite where it never is."""
        if self.due(clock) is not None:
            return clock
        if self._flight is not None and clock - self._flight[1] < self._answer_s:
            return self._flight[1] + self._answer_s
        times = [min(each.renew_at, each.until) for each in self._watched.values()]
        return min((max(at, clock) for at in times), default=math.inf)

    def seal(self, clock: float) -> None:
        """What was observed so far, and not acknowledged, is packed now."""
        for each in self._watched.values():
            each.pending.seal(clock)

    def report(self, clock: float, *, posting: bool, sealed: bool = False) -> Report:
        """What to say now.

        Args:
            clock: just before it is sent.
            posting: whether everything that was observed so far, and not acknowledged, travels with
                it or before it. Where that takes several posts the report goes with the last one.
            sealed: of a posting report: what was there at the last :meth:`seal`, no later rows.
        """
        if posting and not sealed:
            self.seal(clock)
        self.seq += 1
        self._sent[self.seq] = clock
        while len(self._sent) > _UNANSWERED:
            del self._sent[next(iter(self._sent))]
        self._flight = (self.seq, clock)
        for each in self._watched.values():
            if posting:
                each.pending.send(self.seq, clock)
            wanted = each.wanted
            can_do = posting or wanted == "renew"
            each.told, each.wants = (wanted, None) if can_do else (None, wanted)
        held = {
            name: each.held
            for name, each in self._watched.items()
            # What confirms a grant vouches for the rows that were there before it.
            if each.held is not None
            and (each.pending.vouched if posting else math.isfinite(each.pending.weight(clock)))
        }
        return Report(self.inc, self.seq, held)

    def failed(self, seq: int) -> None:
        """A report came to nothing, for certain: what it was for is due again, at once."""
        if self._flight is not None and self._flight[0] == seq:
            self._flight = None

    def answered(self, seq: int, answer: Answer, clock: float) -> None:
        """The hub has taken a report, and its rows are safe there.

        Args:
            seq: of the report, as it was sent.
            answer: which may be late, and of any report of this stream and source.
            clock: now.

        Raises:
            ParameterError: a grant has a spec that none is.
        """
        for each in self._watched.values():
            each.pending.posted(seq)
        self._asks = False
        if self._flight is not None and self._flight[0] == seq:
            self._flight = None
            for each in self._watched.values():
                each.told = None
        self._gone(answer.gone)
        for grant in answer.grants:
            self._take(grant, clock)

    def _gone(self, names: Iterable[str]) -> None:
        for name in names:
            self.gone(name)

    def _take(self, grant: Grant, clock: float) -> None:
        sent = self._sent.get(grant.seq)
        if grant.inc != self.inc or sent is None:
            return
        if grant.spec is not None:
            spec = spec_from_dict(grant.spec)
            if isinstance(spec, Threshold):
                spec.check_recipe(self._recipe)
                self.define(grant.monitor, grant.epoch, spec, clock)
        known = self._watched.get(grant.monitor)
        if known is None or known.epoch != grant.epoch:
            return
        if known.held is not None and grant.held <= known.held:
            return  # an older one; the hub may have given its allowance to others
        lasts = grant.lease_s * (1.0 - CLOCK_RATE)
        shrunk = grant.allowance < _GIVEN_BACK * known.allowance
        if (known.held is None or shrunk) and known.wants is None:
            known.wants = "renew"  # the hub charges it for the old one until it hears of this
        known.held, known.allowance = grant.held, grant.allowance
        known.until, known.renew_at = sent + lasts, sent + _RENEW * lasts
