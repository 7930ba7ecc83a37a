"""The source's side of alerts: how much it may hold back, and when it must report. No I/O.

For every monitor a source keeps the grant that it acts on, and a bound on its unposted weight
(:mod:`~decaysketch.monitor.pending`). As soon as that exceeds the allowance it is due to post. It
has no allowance before its first grant, after its lease, and in a new process. A lease counts from
*sending* the report that it answers, by a steady clock, while the hub counts from receiving it. So
it ends first at the source, for any clocks.

Drive a source in one loop. Pass rows to :meth:`BudgetSite.observe`. :meth:`~BudgetSite.due` returns
whether to post or to renew. :meth:`~BudgetSite.report` makes the report to send along, and
:meth:`~BudgetSite.answered` accepts the answer. Every attempt to send has its own report.
If rows continue to arrive while a post is packed, call :meth:`~BudgetSite.seal` to mark the rows in
it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy.typing as npt

from decaysketch.contract.family import Recipe
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
    """One monitor at a source."""

    epoch: int
    spec: Threshold
    pending: Pending
    held: Held | None = None
    allowance: float = 0.0
    until: float = -math.inf
    renew_at: float = -math.inf
    wants: Due | None = "post"
    told: Due | None = None  # reason of a report without a response

    @property
    def wanted(self) -> Due | None:
        """The required action if a report that is under way does not arrive."""
        return "post" if "post" in (self.wants, self.told) else self.wants or self.told

    def allowed(self, clock: float) -> float:
        return self.allowance if clock < self.until else 0.0


class BudgetSite:
    """A source of a stream, with all the stream's monitors.

    Args:
        recipe: the stream's sketch configuration.
        inc: incarnation: larger than in every process before, counted on disk.
        answer_s: time to wait for an answer before the source is due again.

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
        """Names of the known monitors."""
        return tuple(self._watched)

    def definition(self, monitor: str) -> tuple[int, Threshold]:
        """Epoch and spec of a known monitor."""
        known = self._watched[monitor]
        return known.epoch, known.spec

    def lease_s(self, monitor: str, clock: float) -> float:
        """The remaining lease for a monitor. 0 if there is none."""
        return max(self._watched[monitor].until - clock, 0.0)

    def held(self, monitor: str) -> Held | None:
        """Number of its grant for a monitor."""
        return self._watched[monitor].held

    def allowance(self, monitor: str, clock: float) -> float:
        """The weight that it may hold back for a monitor now."""
        return self._watched[monitor].allowed(clock)

    def pending(self, monitor: str, clock: float) -> float:
        """Maximum weight that it holds back for a monitor now."""
        return self._watched[monitor].pending.weight(clock)

    # --------------------------------------------------------------------------------------- input

    def observe(
        self, times: npt.ArrayLike, values: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None, *, now: float, clock: float,
    ) -> None:  # fmt: skip
        """Add rows that were accepted and are not posted.

        Args:
            times: the rows' times, shape (n,), in the stream's unit.
            values: the rows' values, NaN if there is none. None: no row has one.
            weights: the rows' weights, or for the family ``sum``, its values. None: each has 1.
            now: the stream's time, in its unit, not later than the hub's.
            clock: steady time in seconds.

        Complexity: O(rows) for each monitor.
        """
        for each in self._watched.values():
            each.pending.observe(times, values, weights, now, clock)

    def define(self, monitor: str, epoch: int, spec: Threshold, clock: float) -> None:
        """Add a monitor that is new, or has a new epoch. An older epoch changes nothing.

        The source's unposted weight counts as infinite until it has been posted once.
        """
        known = self._watched.get(monitor)
        if known is None and len(self._watched) >= MAX_MONITORS:
            return
        if known is None or epoch > known.epoch:
            pending = Pending(spec, self._recipe, clock, known=False)
            self._watched[monitor] = _Watched(epoch, spec, pending)

    def gone(self, monitor: str) -> None:
        """Remove a deleted monitor. It may be unknown."""
        self._watched.pop(monitor, None)

    def recall(self, monitor: str, epoch: int) -> None:
        """The hub requests the unposted rows, to divide the allowances again."""
        known = self._watched.get(monitor)
        if known is not None and epoch == known.epoch:
            known.wants = "post"

    # -------------------------------------------------------------------------------------- output

    def due(self, clock: float) -> Due | None:
        """Return the required action now. O(monitors)."""
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
        """When it is due next, if nothing happens before. Infinite if it never is."""
        if self.due(clock) is not None:
            return clock
        if self._flight is not None and clock - self._flight[1] < self._answer_s:
            return self._flight[1] + self._answer_s
        times = [min(each.renew_at, each.until) for each in self._watched.values()]
        return min((max(at, clock) for at in times), default=math.inf)

    def seal(self, clock: float) -> None:
        """Mark all observed rows that are not acknowledged as packed."""
        for each in self._watched.values():
            each.pending.seal(clock)

    def report(self, clock: float, *, posting: bool, sealed: bool = False) -> Report:
        """Return the report to send now.

        Args:
            clock: just before it is sent.
            posting: whether all observed rows that are not acknowledged travel with
                it or before it. If that takes several posts the report goes with the last one.
            sealed: for a posting report: it carries the rows up to the last :meth:`seal`, no later
                rows.
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
            # A report that confirms a grant also covers the rows before it.
            if each.held is not None
            and (each.pending.vouched if posting else math.isfinite(each.pending.weight(clock)))
        }
        return Report(self.inc, self.seq, held)

    def failed(self, seq: int) -> None:
        """A report has certainly failed: its action is due again, at once."""
        if self._flight is not None and self._flight[0] == seq:
            self._flight = None

    def answered(self, seq: int, answer: Answer, clock: float) -> None:
        """The hub has accepted a report, and its rows are safe there.

        Args:
            seq: number of the report, as it was sent.
            answer: the answer. It may be late, and for any report from this stream and source.
            clock: now.

        Raises:
            ParameterError: a grant has an invalid spec.
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
