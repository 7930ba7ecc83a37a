"""The monitors in a sensor's stream: the data that it may hold back, its posting times, and its
reports.

A state machine around a :class:`~decaysketch.monitor.BudgetSite`, without I/O except for one small
file. The site is the sensor. It holds back the data that its store has and the aggregator has not.
Rows are weighed when they are accepted, at a time that the aggregator's clock has certainly
reached: then no age is too large, and no weight too small.

*On disk* are the data that outlive a process: the incarnation, a count of this spool's processes,
and the known monitors. A grant does not outlive it. The aggregator drops an incarnation's grants as
soon as it hears of the next one. So a new process may hold back nothing, and posts all data that it
finds at once. A spool without a count begins at the milliseconds since 1970. So a source with a new
spool, or without the file, is past all its earlier counts.

*How it hears of monitors.* It receives events while an event stream is open, and also responses to
its reports. Without events it asks once a minute, so it hears of a new or redefined monitor by
then. If several responses in a row leave the same report to make, it repeats the report with
backoff: an aggregator that grants nothing is not asked without end.
"""

from __future__ import annotations

import json
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.client.clock import AggregatorClock
from decaysketch.client.delivery import Backoff
from decaysketch.client.policy import Policy
from decaysketch.client.spool import Spool
from decaysketch.client.status import HeldBack
from decaysketch.errors import ParameterError
from decaysketch.families import Recipe
from decaysketch.monitor import Answer, BudgetSite, Report, Threshold, spec_from_dict
from decaysketch.monitor.fields import mapping_of, monitor_name, whole
from decaysketch.monitor.site import Due

__all__ = ["Watch"]

_log = logging.getLogger("decaysketch.client")

_ASK_S = 60.0  # where no events come
_FRUITLESS = 4  # answers in a row that leave the same to say

Columns = tuple[npt.NDArray[Any], npt.NDArray[Any] | None, npt.NDArray[Any] | None]


class Watch:
    """A sensor as a site of monitors. Thread-safe.

    Args:
        spool: keeps ``monitors.json``. The caller of :meth:`begin` and :meth:`save` holds its lock.
        policy: for backoff.
        aggregator_clock: the store's.
        clock: returns steady seconds.
        randomness: for the backoff.
        wall: seconds since 1970.

    Attributes:
        unsaved: whether :meth:`save` has something to write.
        reports: answered reports, with and without rows.
    """

    def __init__(
        self,
        spool: Spool,
        policy: Policy,
        aggregator_clock: AggregatorClock,
        *,
        clock: Callable[[], float],
        randomness: random.Random,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.unsaved, self.reports = False, 0
        self._spool, self._aggregator_clock = spool, aggregator_clock
        self._clock, self._wall = clock, wall
        self._lock = threading.RLock()
        self._backoff = Backoff(policy.backoff_s, policy.max_backoff_s, randomness)
        self._site: BudgetSite | None = None
        self._recipe: Recipe | None = None
        self._following = False
        self._fruitless = 0
        self._not_before = self._asked_at = -math.inf

    # ---------------------------------------------------------------------------------- on the disk

    def begin(self, recipe: Recipe) -> None:
        """Become a site in a stream from now on, in a new incarnation.

        Raises:
            OSError: the disk failed. Nothing has begun.
        """
        kept = self._spool.read_monitors() or {}
        with self._lock:
            count = kept.get("incarnation")
            inc = count + 1 if isinstance(count, int) else int(self._wall() * 1000)
            site = BudgetSite(recipe, inc=inc)
            for name, epoch, spec in _definitions(kept, recipe):
                site.define(name, epoch, spec, self._clock())
            self._spool.write_monitors(_form(site))
            self._site, self._recipe = site, recipe

    def save(self) -> None:
        """Write the known monitors to disk.

        Raises:
            OSError: the disk failed. The monitors are still unsaved.
        """
        with self._lock:
            if self._site is not None and self.unsaved:
                self._spool.write_monitors(_form(self._site))
                self.unsaved = False

    # -------------------------------------------------------------------------------- observations

    def accepted(self, arguments: Mapping[str, Any]) -> bool:
        """Weigh rows that the store has accepted. Return whether there is something to do.

        Rows that cannot be weighed are posted at once.
        """
        with self._lock:
            site, recipe = self._site, self._recipe
            if site is None or recipe is None or not site.monitors:
                return False
            now, clock = self._aggregator_clock.not_before(recipe.params.time_unit), self._clock()
            try:
                for times, values, weights in _columns(arguments, recipe):
                    site.observe(times, values, weights, now=now, clock=clock)
            except Exception:  # of a spec that is not ours: the rows were taken all the same
                _log.exception("rows have no weight for a monitor, so they are posted at once")
                for name in site.monitors:
                    site.recall(name, site.definition(name)[0])
            return site.due(clock) == "post"

    def sealing(self) -> None:
        """Mark a seal: rows accepted so far go into deltas, and later rows do not."""
        with self._lock:
            if self._site is not None:
                self._site.seal(self._clock())

    # ---------------------------------------------------------------------------------- obligations

    def due(self) -> Due | None:
        """Return whether to post all data, or only to report. None: nothing."""
        with self._lock:
            if self._site is None:
                return None
            now = self._clock()
            due = self._site.due(now)
            if due == "post":
                return due
            if due == "renew" or (not self._following and now >= self._asked_at + _ASK_S):
                return "renew" if now >= self._not_before else None
            return None

    def wake_at(self) -> float:
        """Return when it is due next, if nothing happens before. Infinite: never."""
        with self._lock:
            if self._site is None:
                return math.inf
            now = self._clock()
            at = self._site.wake(now)
            if not self._following:
                at = min(at, max(self._asked_at + _ASK_S, now))
            return at if self._site.due(now) == "post" else max(at, self._not_before)

    def report(self, *, posting: bool) -> Report:
        """Return the report to send now. ``posting``: with the last sealed data, or after it."""
        with self._lock:
            assert self._site is not None, "due, and so begun"
            self._asked_at = self._clock()
            return self._site.report(self._asked_at, posting=posting, sealed=True)

    @property
    def begun(self) -> bool:
        """Return whether there is a site that reports."""
        return self._site is not None

    def failed(self, report: Report) -> None:
        """Note that a report has no response. If it was answered, nothing happens."""
        with self._lock:
            if self._site is not None and report.inc == self._site.inc:
                self._site.failed(report.seq)

    def answered(self, report: Report, fields: Mapping[str, Any]) -> None:
        """Apply the aggregator's response to a report.

        Raises:
            ParameterError: the grant is not usable. The site continues with its previous one.
        """
        with self._lock:
            if self._site is None or report.inc != self._site.inc:
                return
            self.reports += 1
            clock, before = self._clock(), self._known()
            try:
                self._site.answered(report.seq, Answer.from_dict(fields), clock)
            except ParameterError:
                self._site.answered(report.seq, Answer(), clock)  # its rows are there all the same
                raise
            finally:
                self._fruitless = self._fruitless + 1 if self._site.due(clock) == "renew" else 0
                if self._fruitless < _FRUITLESS:
                    self._backoff.reset()
                else:
                    self._not_before = clock + self._backoff.next_s()
                self.unsaved |= before != self._known()

    # --------------------------------------------------------------------------------------- events

    def follows(self, is_open: bool) -> None:
        """Set whether events come from now on."""
        with self._lock:
            self._following = is_open

    def hear(self, kind: str, data: str) -> None:
        """Apply an event.

        Raises:
            ParameterError: its data are not usable. Nothing has changed.
        """
        if kind not in ("define", "recall", "gone"):
            return
        try:
            form = mapping_of(kind, json.loads(data))
        except (ValueError, RecursionError):
            raise ParameterError(f"an event {kind} is not JSON: {data!r:.100}") from None
        name = monitor_name(form.get("monitor"))
        with self._lock:
            site, recipe = self._site, self._recipe
            if site is None or recipe is None:
                return
            before = self._known()
            if kind == "gone":
                site.gone(name)
            elif kind == "recall":
                site.recall(name, whole("epoch", form.get("epoch")))
            else:
                spec, epoch = spec_from_dict(form.get("spec")), whole("epoch", form.get("epoch"))
                if isinstance(spec, Threshold):
                    spec.check_recipe(recipe)
                    site.define(name, epoch, spec, self._clock())
            self.unsaved |= before != self._known()

    # ----------------------------------------------------------------------------------- its report

    def held(self) -> tuple[HeldBack, ...]:
        """Return the data held back for each monitor, and the allowance."""
        with self._lock:
            if self._site is None:
                return ()
            site, clock = self._site, self._clock()
            return tuple(
                HeldBack(
                    name, site.definition(name)[0], site.pending(name, clock),
                    site.allowance(name, clock), site.lease_s(name, clock),
                )
                for name in site.monitors
            )  # fmt: skip

    def _known(self) -> dict[str, int]:
        assert self._site is not None, "asked of one that has begun"
        return {name: self._site.definition(name)[0] for name in self._site.monitors}


def _form(site: BudgetSite) -> dict[str, Any]:
    known = {name: site.definition(name) for name in site.monitors}
    monitors = {name: {"epoch": e, "spec": spec.to_dict()} for name, (e, spec) in known.items()}
    return {"incarnation": site.inc, "monitors": monitors}


def _definitions(form: Mapping[str, Any], recipe: Recipe) -> Iterator[tuple[str, int, Threshold]]:
    """Return the monitors that an earlier process knew in this stream."""
    for name, each in form.get("monitors", {}).items():
        try:
            spec = spec_from_dict(each["spec"])
            if isinstance(spec, Threshold):
                spec.check_recipe(recipe)
                yield monitor_name(name), whole("epoch", each["epoch"]), spec
        except ParameterError as fault:
            _log.warning("monitor %r of an earlier process is skipped: %s", name, fault)


def _columns(arguments: Mapping[str, Any], recipe: Recipe) -> Iterator[Columns]:
    """Return an accepted update's times, values and weights. Rows without values are separate,
    because they would change the type of the others.
    """
    kind = recipe.kind
    times = np.atleast_1d(np.asarray(arguments["timestamps"]))
    values = arguments.get("values")
    if kind.input.named_by == "sequence":
        elements = np.broadcast_to(np.asarray(values), times.shape)
        # An element is its own weight where its family adds them up.
        yield times, elements, elements if "sum" in kind.questions else None
        return
    weights = np.broadcast_to(np.asarray(arguments.get("weights", 1)), times.shape)
    if values is None:
        yield times, None, weights
        return
    column = np.ma.getdata(values)
    missing = np.ma.getmaskarray(np.ma.asarray(values))
    if column.dtype == object:
        missing = missing | np.array([value is None for value in column.ravel()])
    missing = np.broadcast_to(missing, times.shape)
    column = np.broadcast_to(column, times.shape)
    if missing.any():
        yield times[missing], None, weights[missing]
        times, column, weights = times[~missing], column[~missing], weights[~missing]
    if times.size:
        yield times, np.asarray(column.tolist()) if column.dtype == object else column, weights
