"""What sketches, their snapshots and collections can be asked, by key and not by word."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from decaysketch.answers.estimate import Estimate
from decaysketch.core.observations import check_time
from decaysketch.decay import Decay
from decaysketch.ecm import grids
from decaysketch.ecm.dyadic import MOST_KEYS, HeavyKeys
from decaysketch.ecm.grids import Estimator, Grid
from decaysketch.ecm.params import ECMParams
from decaysketch.ecm.points import Counts
from decaysketch.ecm.state import ECMState, Source
from decaysketch.ecm.view import View
from decaysketch.errors import ParameterError, UnanswerableQueryError

__all__ = ["AskedOfCells"]

_REMEMBERED = 8  # grids


class AskedOfCells(ABC):
    """Something that holds states of sources, whose cells add up to an answer.

    Every question takes a decay, chosen when it is asked: any that does not rise with the age;
    ``decay.window(w)`` is the window [now - w, now]. ``now`` is the time of the query, by default
    the latest that was seen; what came later is not counted. ``sources`` chooses among those of a
    collection (all of their epochs); None takes all.
    """

    def __init__(self) -> None:
        self._grids: dict[tuple[Decay, int, frozenset[Source] | None], Grid] = {}
        self._asking = threading.Lock()

    @property
    @abstractmethod
    def params(self) -> ECMParams:
        """Build parameters."""

    @property
    @abstractmethod
    def clock(self) -> int | None:
        """The latest time that was seen or told; None before the first."""

    @abstractmethod
    def _states(self) -> Sequence[ECMState]:
        """What is held now."""

    def _changed(self) -> None:
        """What is held is another than that of the grids."""
        self._grids = {}

    # ---------------------------------------------------------------------------------------- grids

    def grid(
        self,
        decay: Decay,
        *,
        now: int | None = None,
        sources: Iterable[Source] | None = None,
    ) -> Grid:
        """The cells of every layer under a decay and at a time, as arrays; see
        :class:`~decaysketch.ecm.grids.Grid`. Changes nothing.

        Raises:
            ParameterError: ``decay`` is no decay that falls with the age, or reaches back further
                than the stream's horizon; ``now`` is no time; a source that there is none of.
            UnanswerableQueryError: at that time the decay reaches back beyond the horizon.

        Complexity: O(cells log n) for each lane of each source under a window, O(times) under
        another decay; O(1) when it was asked before and nothing changed since.
        """
        states = self._states()
        chosen = None if sources is None else frozenset(sources)
        if chosen is not None:
            states = [state for state in states if state.source in chosen]
            if missing := sorted(map(repr, chosen - {state.source for state in states})):
                raise ParameterError(f"sources name {', '.join(missing)}, which there is none of")
        time = self._time(now)
        self._check_reach(decay, time)
        with self._asking:
            known, key = self._grids, (decay, time, chosen)
            try:
                found = known.get(key)
            except TypeError:  # a decay of somebody's own, which has no hash
                return self._read(states, decay, time)
            if found is None:
                found = self._read(states, decay, time)
                if len(known) >= _REMEMBERED:
                    known.pop(next(iter(known)))
                known[key] = found
            return found

    def _read(self, states: Sequence[ECMState], decay: Decay, now: int) -> Grid:
        params = self.params
        counters = [state.counters for state in states]
        return grids.read(
            counters, params.layers, params.seed, decay, now, key_bits=params.key_bits
        )

    def _time(self, now: int | None) -> int:
        if now is None:
            return 0 if self.clock is None else self.clock
        return check_time("now", now)

    def _check_reach(self, decay: Decay, now: int) -> None:
        """Refuse what reaches back beyond the horizon."""
        horizon, clock = self.params.horizon, self.clock
        if horizon is None or not isinstance(decay, Decay):
            return
        if decay.support > horizon:
            raise ParameterError(
                f"{decay!r} gives weight to ages up to {decay.support}; the stream's horizon is "
                f"{horizon}"
            )
        if clock is not None and now - int(decay.support) < clock - horizon:
            raise UnanswerableQueryError(
                f"{decay!r} reaches back to {now - int(decay.support)} at {now}; expected at least "
                f"{clock - horizon}, the clock less the horizon"
            )

    def at(
        self,
        decay: Decay,
        now: int | None = None,
        *,
        sources: Iterable[Source] | None = None,
    ) -> View:
        """What can be asked under a decay at a time, of words; arguments and errors as
        :meth:`grid`."""
        return View(self.grid(decay, now=now, sources=sources))

    # ------------------------------------------------------------------------------------ questions

    def counts(
        self,
        keys: Any,
        decay: Decay,
        *,
        now: int | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
        estimator: Estimator = "debiased",
    ) -> Counts:
        """Decayed counts of many keys, as columns.

        Args:
            keys: as :meth:`~decaysketch.ecm.ECMSketch.update` takes them.
            decay, now, sources: see the class.
            confidence: of each interval.
            estimator: "debiased" (default), or "minimum", the paper's.

        Raises:
            ObservationError: keys that are none.
            ParameterError, UnanswerableQueryError: as :meth:`grid`; another estimator, a confidence
                that is none.

        Complexity: that of :meth:`grid` and O(depth) for each key.
        """
        words = self.params.words_of(keys)
        view = self.at(decay, now, sources=sources)
        return view.counts(words, confidence=confidence, estimator=estimator)

    def count(
        self,
        key: Any,
        decay: Decay,
        *,
        now: int | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
        estimator: Estimator = "debiased",
    ) -> Estimate:
        """The decayed count of one key: an integer, a text, bytes or a tuple of these.

        Its ``sure_upper`` is not below the truth, with certainty. Otherwise as :meth:`counts`.
        """
        view = self.at(decay, now, sources=sources)
        return view.count(self._word(key), confidence=confidence, estimator=estimator)

    def _word(self, key: Any) -> int:
        return int(self.params.words_of([key])[0])

    def total(
        self,
        decay: Decay,
        *,
        now: int | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
    ) -> Estimate:
        """The decayed count of all keys together. Both of its ends are sure; errors as
        :meth:`grid`."""
        return self.at(decay, now, sources=sources).total(confidence=confidence)

    def share(
        self,
        key: Any,
        decay: Decay,
        *,
        now: int | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
        estimator: Estimator = "debiased",
    ) -> Estimate:
        """The share of one key in the total; as :meth:`count`. NaN where there is nothing."""
        view = self.at(decay, now, sources=sources)
        return view.share(self._word(key), confidence=confidence, estimator=estimator)

    def self_join(
        self,
        decay: Decay,
        *,
        now: int | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
        estimator: Estimator = "debiased",
    ) -> Estimate:
        """The sum of the squares of the decayed counts of all keys: how skewed they are. Errors as
        :meth:`counts`. O(cells) beside the grid."""
        view = self.at(decay, now, sources=sources)
        return view.self_join(confidence=confidence, estimator=estimator)

    def inner(
        self,
        other: AskedOfCells,
        decay: Decay,
        *,
        now: int | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
        estimator: Estimator = "debiased",
    ) -> Estimate:
        """The sum over keys of the products of their decayed counts here and in another stream: how
        many pairs of equal keys there are.

        Args:
            other: of another stream, of equal width, depth and seed; all of its sources are taken.
            decay, now, sources, confidence, estimator: as of :meth:`counts`; decay and time are
                those of both. By default the time is the later of both clocks.

        Raises:
            IncompatibleSketchError: cells of other keys.
            ParameterError, UnanswerableQueryError: as :meth:`counts`.
        """
        if now is None:
            clocks = [each for each in (self.clock, other.clock) if each is not None]
            now = max(clocks, default=0)
        view, theirs = self.at(decay, now, sources=sources), other.at(decay, now)
        return view.inner(theirs, confidence=confidence, estimator=estimator)

    def heavy_hitters(
        self,
        decay: Decay,
        *,
        phi: float | None = None,
        threshold: float | None = None,
        now: int | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
        estimator: Estimator = "debiased",
        most: int = MOST_KEYS,
    ) -> HeavyKeys:
        """All integer keys that may have a share of ``phi``, or a decayed count of ``threshold``:
        none that has is missing, with certainty. Needs ``key_bits``.

        Arguments, errors and complexity: :func:`decaysketch.ecm.dyadic.heavy_hitters`, and as
        :meth:`counts`.
        """
        view = self.at(decay, now, sources=sources)
        return view.heavy_hitters(
            phi, threshold=threshold, confidence=confidence, estimator=estimator, most=most
        )

    def range_count(
        self,
        low: int,
        high: int,
        decay: Decay,
        *,
        now: int | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
    ) -> Estimate:
        """The decayed count of the integer keys from ``low`` to ``high``, both inclusive; see
        :func:`decaysketch.ecm.dyadic.range_count`. Needs ``key_bits``."""
        view = self.at(decay, now, sources=sources)
        return view.range_count(low, high, confidence=confidence)

    def rank(
        self,
        key: int,
        decay: Decay,
        *,
        now: int | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
    ) -> Estimate:
        """The share of integer keys up to ``key``, inclusive, in the total; see
        :func:`decaysketch.ecm.dyadic.rank`. Needs ``key_bits``."""
        return self.at(decay, now, sources=sources).rank(key, confidence=confidence)

    def quantile(
        self,
        q: float,
        decay: Decay,
        *,
        now: int | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
    ) -> Estimate:
        """The least integer key of relative rank ``q`` or more, about; see
        :func:`decaysketch.ecm.dyadic.quantile`. Needs ``key_bits``."""
        return self.at(decay, now, sources=sources).quantile(q, confidence=confidence)
