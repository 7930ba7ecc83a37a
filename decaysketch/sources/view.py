"""Coverage results for several sources, under one decay and at one time.

Each result reads only the sources that it names. The result decides the estimator:

* a set inside one named source, ``a & ~b``: the count of that source at its own levels, times the
  share of the set among its rows in the joint sample (two phases). Its variance,
  ``N c [(1 / p_a - 1) + (1 - c) (1 / p - 1 / p_a)]``, is never above ``N c (1 / p - 1)``, the
  variance of the joint sample alone
* a union: each row at the finest level of a source that heard it (Cohen and Kaplan, by times)
* every other count and share: the joint sample (:mod:`decaysketch.sources.joint`)

Three reasons for "not heard" are named next to a result: a source that was silent (``silences``),
one that has yet to post (``unsettled``), and clocks so far apart that few histories are known
(``clocks-disagree``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.labels import LabelBook, Labels
from decaysketch.core.observations import MISSING_KEY, TIME_LIMIT
from decaysketch.core.records import Records
from decaysketch.core.time_units import Instant, moment_before
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay, none, window
from decaysketch.decay.read import decay_in
from decaysketch.errors import ParameterError
from decaysketch.query.catalog import SampleView
from decaysketch.query.difference import Moment, Pair
from decaysketch.query.dispatch import QUESTIONS, View
from decaysketch.query.estimate import Estimate, check_confidence
from decaysketch.query.modifiers import Modifiers
from decaysketch.query.pair_view import PairView
from decaysketch.query.sample import Sample, changed
from decaysketch.query.shapes import Combine, Question
from decaysketch.query.tables import GroupTable
from decaysketch.sources import cover, overlaps, silence, unheard
from decaysketch.sources.expression import Expression, quoted, read_expression
from decaysketch.sources.joint import Joint, number_of
from decaysketch.sources.overlaps import Overlaps
from decaysketch.sources.restricted import restricted

if TYPE_CHECKING:
    from decaysketch.sources.source_set import Disagreement, SourceSet

__all__ = [
    "MATCH_ROW_S",
    "CoverageView",
    "Exclusive",
    "Heard",
    "HeardBy",
    "History",
    "Missing",
    "Overlap",
    "Step",
]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

MATCH_ROW_S = 60e-9
"""Processor seconds that a row costs to match and to gather, at most."""

_READ_ROW_S, _SET_S = 60e-9, 1e-3  # to draw and read a row, and for each set

PAIR_STEP_S = 3e-9
"""Processor seconds for a pair of sources and one message."""

_FEW = 24  # up to this many sources, each pair is read separately

MOST_WATCHED = 64
"""With more sources, silences are looked for on request only."""


class Heard(NamedTuple):
    """The messages that a source heard."""

    source: str
    estimate: Estimate


class Exclusive(NamedTuple):
    """The messages that one source alone heard: the union loses them without it."""

    source: str
    estimate: Estimate


class Overlap(NamedTuple):
    """The messages that two sources both heard."""

    source: str
    other: str
    estimate: Estimate


class HeardBy(NamedTuple):
    """Messages heard by exactly ``j`` sources."""

    j: int
    estimate: Estimate


class History(NamedTuple):
    """Messages heard by exactly these sources."""

    sources: tuple[str, ...]
    estimate: Estimate


class Step(NamedTuple):
    """A source in the order of the largest added coverage.

    Attributes:
        source: its name.
        gain: share of all messages that it adds to the sources before it.
        covered: share of all messages that the sources so far hear, as chosen on one half of the
            rows and evaluated on the other.
    """

    source: str
    gain: float
    covered: Estimate


class Missing(NamedTuple):
    """A message to look up: its id, its time, and the sources that heard it."""

    id: int
    time: int
    heard_by: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Histories:
    """See :class:`~decaysketch.sources.expression.Histories`."""

    joint: Joint
    places: dict[str, int]

    @property
    def sources(self) -> int:
        return len(self.places)

    @property
    def degrees(self) -> npt.NDArray[np.int32]:
        return self.joint.degrees

    def heard(self, name: str) -> BoolArray:
        return self.joint.heard(self.places[name])


class _Values(NamedTuple):
    """Values of the rows of each hash function, and the tables that their keys refer to."""

    keys: list[Int64Array]
    records: list[Records | None]
    labels: Labels | None


class _Read:
    """Joint samples of some sources, drawn."""

    def __init__(self, of: SourceSet, among: Sequence[int], decay: Decay | None, now: int) -> None:
        self.names = [of.names[number] for number in among]
        self.joints = of.joints(among)
        self.params = of.params
        self._moment = decay, now
        self._snapshots = [of.snapshots[number] for number in among]
        self._places = {name: place for place, name in enumerate(self.names)}
        self._masks: dict[str, list[BoolArray]] = {}
        self._values: dict[str | None, _Values] = {}

    @cached_property
    def samples(self) -> list[Sample]:
        """The joint sample for each hash function, drawn."""
        return [joint.draw(*self._moment) for joint in self.joints]

    def place(self, name: str) -> int:
        """Return the number of a source among the sources read."""
        return self._places[name]

    def masks(self, expression: Expression) -> list[BoolArray]:
        """Return bool[rows] for each hash function: the rows in a set."""
        if expression.text not in self._masks:
            self._masks[expression.text] = [
                expression.holds(_Histories(joint, self._places)) for joint in self.joints
            ]
        return self._masks[expression.text]

    @cached_property
    def spells(self) -> list[list[tuple[int, int]]]:
        """The silences for each source. See :mod:`decaysketch.sources.silence`."""
        return _spells(self.joints[0], self.joints[0].counted(*self._moment))

    def values(self, source: str | None) -> _Values:
        """Return the value of each row from its latest duplicate, or from a source's own."""
        if source not in self._values:
            self._values[source] = self._read_values(source)
        return self._values[source]

    def _read_values(self, source: str | None) -> _Values:
        if source is None:
            keys = [joint.value_keys for joint in self.joints]
        else:
            keys = [joint.values_of(self.place(source)) for joint in self.joints]
        records = [joint.match.records for joint in self.joints]
        if source is not None and records[0] is not None:
            rows = len(records[0])
            records = [each and each.with_null() for each in records]
            keys = [np.where(each == MISSING_KEY, rows, each) for each in keys]
        return _Values(keys, records, self._labels(keys))

    def _labels(self, keys: Sequence[Int64Array]) -> Labels | None:
        if self.params.value_type != "label":
            return None
        book = LabelBook()
        book.join([each.labels for each in self._snapshots if each.labels is not None])
        return book.held(keys)


class CoverageView(View):
    """Coverage under a decay and at a time. :meth:`SourceSet.at` makes one.

    An expression is a text such as ``a & ~b``: see :mod:`decaysketch.sources.expression`.

    As a view it answers every sample query, about all messages or a set:
    ``view.given(set="a - b", where="v > 3").ask("mean")``, ``view.by("source").ask("mean")``. See
    :mod:`decaysketch.sources.restricted`.

    Attributes:
        decay: weight by age. None: fixed when the sketches were built.
        now: the time that the view looks back from.
        without_silence, values_from: as in :meth:`SourceSet.at`.
    """

    def __init__(
        self, sources: SourceSet, decay: Decay | None, now: int, without_silence: bool = False,
        values_from: str | None = None,
    ) -> None:  # fmt: skip
        self.sources = sources
        self.decay = decay
        self._now = now
        self.without_silence = without_silence
        self.values_from = values_from
        self._reads: dict[tuple[int, ...], _Read] = {}

    # ------------------------------------------------------------------------------------- queries

    @property
    def now(self) -> int:
        return self._now

    @property
    def verified(self) -> Literal["proof", "grid"]:
        return "grid" if getattr(self.decay, "verified", None) == "grid" else "proof"

    @property
    def drawn_s(self) -> float:
        return 0.0

    def modified(self, modifiers: Modifiers) -> Any:
        return restricted(self, modifiers)

    def ask(
        self, question: Question[Any] | str, *, confidence: float = 0.95,
        combine: Combine = "average", **arguments: Any,
    ) -> Any:  # fmt: skip
        view = restricted(self, Modifiers())
        return view.ask(question, confidence=confidence, combine=combine, **arguments)

    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        cost: float = restricted(self, Modifiers()).cost_s(question, combine=combine, **arguments)
        return cost

    def reading_s(self, expressions: Sequence[str]) -> float:
        """Return the approximate processor time to read sets, in seconds, from row counts:
        nothing is matched.
        """
        seen: set[tuple[int, ...]] = set()
        cost = 0.0
        for text in expressions:
            among = self._among(read_expression(text))
            rows = sum(len(self.sources.snapshots[number]) for number in among)
            cost += _SET_S + rows * (_READ_ROW_S + (0 if among in seen else MATCH_ROW_S))
            seen.add(among)
        return cost

    def degrees(self, expression: str) -> list[int]:
        """Return the hearer counts that occur in a set, rising."""
        wanted = read_expression(expression)
        read = self._read(self._everyone)
        heard = [
            joint.degrees[mask] for joint, mask in zip(read.joints, read.masks(wanted), strict=True)
        ]
        found: list[int] = np.unique(np.concatenate(heard)).tolist()
        return found

    # ------------------------------------------------------------------------------------ reading

    @property
    def names(self) -> tuple[str, ...]:
        """The source names, sorted."""
        return self.sources.names

    @cached_property
    def _everyone(self) -> tuple[int, ...]:
        return tuple(range(len(self.names)))

    def _read(self, among: Sequence[int]) -> _Read:
        key = tuple(among)
        if key not in self._reads:
            self._reads[key] = _Read(self.sources, key, self.decay, self.now)
        return self._reads[key]

    def _among(self, *expressions: Expression) -> tuple[int, ...]:
        """Return the sources that expressions read."""
        named = {self.sources.index(name) for each in expressions for name in each.names}
        if any(each.reads_all for each in expressions):
            return self._everyone
        return tuple(sorted(named))

    def _noted(self, read: _Read) -> tuple[str, ...]:
        """Return the caveats for every result from some sources."""
        return self._of_clocks(read.joints[0]) + ("silences",) * any(self._silent(read))

    def _of_clocks(self, joint: Joint) -> tuple[str, ...]:
        found = ("clocks-disagree",) * self.sources.clocks_disagree(joint)
        return found + ("weights-disagree",) * joint.match.weights_disagree

    def _silent(self, read: _Read) -> list[bool]:
        """Return for each source that is read whether a result counts a spell in which it was
        silent.
        """
        return [not self.without_silence and bool(spells) for spells in self._spells(read)]

    def _kept(self, read: _Read, masks: Sequence[BoolArray]) -> list[BoolArray]:
        """Return masks without the rows in silences, if these are skipped."""
        if not self.without_silence:
            return list(masks)
        spells = [spell for each in self._spells(read) for spell in each]
        return [
            mask & ~_within(joint.columns.times, spells)
            for mask, joint in zip(masks, read.joints, strict=True)
        ]

    def _restricted(
        self, read: _Read, masks: Sequence[BoolArray], filled: _Filled,
        samples: Sequence[Sample] | None = None,
    ) -> list[Sample]:  # fmt: skip
        """Return the rows in masks, and the content of their value column."""
        masks, noted = self._kept(read, masks), self._noted(read)

        def change(sample: Sample) -> Sample:
            copy, rows = number_of(sample)
            keep = masks[copy][rows]
            found = sample.only(keep)
            return replace(
                filled(found, copy, rows[keep]), noted=(*found.noted, *noted),
                whole=lambda: filled(sample, copy, rows),
            )  # fmt: skip

        return changed(read.samples if samples is None else samples, change)

    def _with_values(self, wanted: Expression) -> _Read:
        """Return the sources that an expression and its values read."""
        named = [] if self.values_from is None else [read_expression(quoted(self.values_from))]
        return self._read(self._among(wanted, *named))

    def _valued(self, read: _Read, source: str | None = None) -> _Filled:
        """Return each row with the value that a source reported. Default: that of its latest
        duplicate.
        """
        values = read.values(source)

        def filled(sample: Sample, copy: int, rows: npt.NDArray[np.intp]) -> Sample:
            return replace(
                sample, params=self.sources.params, labels=values.labels, origin=None,
                records=values.records[copy],
                observed=sample.observed.valued(values.keys[copy][rows]),
            )  # fmt: skip

        return filled

    # ------------------------------------------------------------------------------------- results

    def where(self, expression: str) -> SampleView:
        """Return messages in a set, for every sample query: ``where("a & ~b").ask("mean")``.

        A message has the value of its latest duplicate among the sources that are read, or the one
        that ``values_from`` reported.

        Raises:
            ParameterError: the expression cannot be parsed, or names an unknown source.
            UnanswerableQueryError: a source has discarded observations that the decay gives weight
                to.

        Complexity: O(rows of the sources that are read), once for each set of sources.
        """
        wanted = read_expression(expression)
        read = self._with_values(wanted)
        filled = self._valued(read, self.values_from)
        return SampleView(self._restricted(read, read.masks(wanted), filled))

    def against(
        self, then: tuple[Decay | str, Instant | timedelta | None], expression: str = "any"
    ) -> PairView:
        """Return the view for two moments and the messages in a set, from one sample for both.

        Args:
            then: a decay, and a time or a length before ``now``, such as "7d".
            expression: the set.

        Raises:
            ParameterError, UnanswerableQueryError: as :meth:`where`.
        """
        wanted = read_expression(expression)
        read = self._with_values(wanted)
        filled = self._valued(read, self.values_from)
        return self._paired(read, then, read.masks(wanted), filled)

    def count(
        self, expression: str, *, confidence: float = 0.95, combine: Combine = "average"
    ) -> Estimate:
        """Return the decayed number of messages in a set. Arguments and errors as :meth:`where`."""
        wanted = read_expression(expression)
        among = self._among(wanted)
        by_level = self.sources.by_level
        if wanted.inside and not wanted.is_positive and by_level:
            source = min(wanted.inside, key=lambda name: len(self._snapshot(name)))
            return self._two_phases(source, wanted, among, confidence, combine)
        if wanted.is_union and len(among) > 1 and not self.without_silence and by_level:
            read = self._read(among)
            if all(overlaps.unites(joint) for joint in read.joints):
                samples = [
                    overlaps.union_sample(joint, self.decay, self.now, like)
                    for joint, like in zip(read.joints, read.samples, strict=True)
                ]
                noted = self._noted(read)
                samples = [replace(sample, noted=noted) for sample in samples]
                return _count(SampleView(samples), confidence, combine)
        return self._counted(wanted, confidence, combine)

    def _counted(self, wanted: Expression, confidence: float, combine: Combine) -> Estimate:
        """Return the count in the joint sample. It reads no values."""
        read = self._read(self._among(wanted))
        samples = self._restricted(read, read.masks(wanted), self._valued(read))
        return _count(SampleView(samples), confidence, combine)

    def _snapshot(self, name: str) -> Any:
        return self.sources.snapshots[self.sources.index(name)]

    def _two_phases(
        self, source: str, wanted: Expression, among: Sequence[int], confidence: float,
        combine: Combine,
    ) -> Estimate:  # fmt: skip
        read = self._read(among)
        inside = read_expression(quoted(source))
        share = self._share(
            read, read.masks(wanted), read.masks(inside), confidence, combine, own=source
        )
        if self.without_silence:
            total = self._counted(inside, confidence, combine)
        else:
            samples = self._snapshot(source).samples(self.decay, self.now)
            total = _count(SampleView(samples), confidence, combine)
        return _product(total, share)

    def share(
        self,
        expression: str,
        of: str = "any",
        *,
        confidence: float = 0.95,
        combine: Combine = "average",
    ) -> Estimate:
        """Return the share of a set among the messages in another set, by default among all heard
        messages.

        ``share("a & b", of="b")`` is the delivery ratio of ``a`` as seen by ``b``. Arguments and
        errors as :meth:`where`.
        """
        wanted, among = read_expression(expression), read_expression(of, "of")
        read = self._read(self._among(wanted, among))
        return self._share(read, read.masks(wanted), read.masks(among), confidence, combine)

    def _share(
        self, read: _Read, part: Sequence[BoolArray], of: Sequence[BoolArray], confidence: float,
        combine: Combine, own: str | None = None,
    ) -> Estimate:  # fmt: skip
        samples = self._restricted(read, of, self._indicator(read, part, own))
        view = SampleView(samples)
        found: Estimate = view.ask("rank", value=0, confidence=confidence, combine=combine)
        return found

    def shares_by(
        self, expression: str, of: str, modifiers: Modifiers, *, confidence: float,
        combine: Combine,
    ) -> GroupTable:  # fmt: skip
        """Return a set's share for each message group by time.

        Args:
            expression, of: as in :meth:`share`.
            modifiers: with keys over ``time`` and ``age``.
            confidence: for all intervals together.
            combine: as in :meth:`share`.
        """
        wanted, among = read_expression(expression), read_expression(of, "of")
        read = self._read(self._among(wanted, among))
        hits = self._indicator(read, read.masks(wanted), inside=1)
        view = SampleView(self._restricted(read, read.masks(among), hits)).modified(modifiers)
        found: GroupTable = view.ask(
            "selectivity", at_least=1, confidence=confidence, combine=combine
        )
        return replace(found, question=QUESTIONS["share"], arguments={"among": of})

    def _indicator(
        self, read: _Read, part: Sequence[BoolArray], own: str | None = None, inside: int = 0
    ) -> _Filled:
        """Return each row with 0 if it is in a part, else 1: the rank of 0 is the share. With
        ``inside`` 1 the values are exchanged, and the selectivity at 1 is the share. Stamps from
        one source weight the rows, if given.
        """

        def filled(sample: Sample, copy: int, rows: npt.NDArray[np.intp]) -> Sample:
            joint = read.joints[copy]
            keys = np.where(part[copy][rows], inside, 1 - inside).astype(np.int64)
            if own is not None and joint.match.scattered:
                sample = self._stamped(sample, joint.stamps(read.place(own))[rows])
            return replace(sample, origin=None, observed=sample.observed.valued(keys))

        return filled

    def _stamped(self, sample: Sample, times: Int64Array) -> Sample:
        """Return the row weights at other times, none later than their own."""
        if sample.magnitude or not len(sample):
            return sample
        assert self.decay is not None  # or no set is read in two phases
        fading = self.decay(np.int64(self.now) - times)
        by = np.divide(fading, sample.decayed, out=np.zeros(len(times)), where=sample.decayed > 0.0)
        return replace(
            sample, decayed=sample.decayed * by, masses=sample.masses * by,
            variances=sample.variances * by * by, jumps=sample.jumps * by,
        )  # fmt: skip

    def heard(self, *, confidence: float = 0.95) -> list[Heard]:
        """Return for each source, by name, the messages that it heard. If silences are skipped, the
        messages have the same times as in :meth:`overlaps` and :meth:`exclusive`.
        """
        if not self.without_silence:
            return [
                Heard(name, self.count(quoted(name), confidence=confidence)) for name in self.names
            ]
        try:
            found = self._pairs
            own = found.take(np.flatnonzero(found.first == found.second))
            known = dict(zip(own.first.tolist(), own.estimates(confidence), strict=True))
        except ParameterError:  # weights above 1, or several hash functions
            known = {}
        return [
            Heard(
                name,
                known[place]
                if place in known
                else self._counted(
                    read_expression(f"{quoted(name)} & at_least(1)"), confidence, "average"
                ),
            )
            for place, name in enumerate(self.names)
        ]

    def exclusive(
        self, *, confidence: float = 0.95, combine: Combine = "average"
    ) -> list[Exclusive]:
        """Return for each source, by name, the messages that no other source heard.

        Complexity: O(sources rows of the joint sample).
        """
        return [
            Exclusive(
                name,
                self.count(f"exactly(1) & {quoted(name)}", confidence=confidence, combine=combine),
            )
            for name in self.names
        ]

    def overlaps(self, *, limit: int | None = None, confidence: float = 0.95) -> list[Overlap]:
        """Return the messages that two sources both heard, for every pair or for the ``limit``
        heaviest, heaviest first. Each pair reads only its two sources. With more than 256 sources,
        only pairs that share a row are included.

        Raises:
            ParameterError: weights above 1, several hash functions, or a negative limit.

        Complexity: O(rows + squared degrees).
        """
        _check_limit(limit)
        check_confidence(confidence)
        if not self.sources.by_level and len(self.names) <= _FEW:
            return self._pair_by_pair(limit, confidence)
        found = self._pairs
        apart = np.flatnonzero(found.first != found.second)
        order = apart[np.argsort(-found.values[apart], kind="stable")][:limit]
        chosen = found.take(order)
        names, noted = self.names, self._of_clocks(found.joint)
        if getattr(self.decay, "verified", None) == "grid":
            noted += ("decay-on-grid",)
        silent = [False] * len(names)
        if len(names) <= MOST_WATCHED:
            silent = self._silent(self._read(self._everyone))

        def caveats(a: int, b: int) -> tuple[str, ...]:
            return noted + ("silences",) * (silent[a] or silent[b])

        return [
            Overlap(
                names[a], names[b], replace(estimate, caveats=estimate.caveats + caveats(a, b))
            )
            for a, b, estimate in zip(
                chosen.first.tolist(), chosen.second.tolist(), chosen.estimates(confidence),
                strict=True,
            )
        ]  # fmt: skip

    def _pair_by_pair(self, limit: int | None, confidence: float) -> list[Overlap]:
        """Return overlaps from a joint sample for each pair."""
        pairs = [
            Overlap(a, b, self.count(f"{quoted(a)} & {quoted(b)}", confidence=confidence))
            for a, b in itertools.combinations(self.names, 2)
        ]
        return sorted(pairs, key=lambda pair: -pair.estimate.value)[:limit]

    @property
    def reads_all_pairs(self) -> bool:
        """Whether :meth:`overlaps` has a result: one hash function, and no weight above 1."""
        params = self.sources.params
        return self.sources.by_level and params.copies == 1 and params.max_weight == 1

    @cached_property
    def _pairs(self) -> Overlaps:
        if not self.sources.by_level:
            raise ParameterError(
                "the overlaps of all pairs need a decay that the query chooses. Ask for the count "
                "of one set, such as 'a & b'"
            )
        joints = self.sources.joints(self._everyone)
        if len(joints) > 1:
            raise ParameterError(
                f"copies is {len(joints)}; expected 1: the overlaps of all pairs are read from one "
                "hash function. Ask for the count of one set, such as 'a & b'"
            )
        outside = None
        if self.without_silence:
            spells = [spell for each in self._spells(self._read(self._everyone)) for spell in each]
            outside = ~_within(joints[0].match.latest, spells)
        return overlaps.overlaps_of(joints[0], self.decay, self.now, outside)

    def pairs_cost_s(self) -> float:
        """Approximate time for :meth:`overlaps`, once the sources are matched, in seconds."""
        joints = self.sources.joints(self._everyone)
        return sum(joint.match.squared_degrees for joint in joints) * PAIR_STEP_S

    def heard_by(self, *, confidence: float = 0.95, combine: Combine = "average") -> list[HeardBy]:
        """Return messages by the number of sources that heard them, for each number that occurs."""
        return [
            HeardBy(j, self.count(f"exactly({j})", confidence=confidence, combine=combine))
            for j in self.degrees("any")
        ]

    def histories(
        self, *, limit: int = 20, confidence: float = 0.95, combine: Combine = "average"
    ) -> list[History]:
        """Return the sets of sources that heard most messages, each exactly these, heaviest
        first.

        Raises:
            ParameterError: the limit is negative.
        """
        _check_limit(limit)
        read = self._read(self._everyone)
        words = _words(read)
        counted = self._kept(read, [np.ones(len(joint), np.bool_) for joint in read.joints])
        _, rows = number_of(read.samples[0])
        masses = np.where(counted[0][rows], read.samples[0].masses, 0.0)
        names, first, cell = np.unique(words[0][rows], return_index=True, return_inverse=True)
        sums = np.bincount(cell, masses, len(names))
        order = np.argsort(-sums, kind="stable")[:limit]
        found = []
        for each in order[sums[order] > 0.0].tolist():
            masks = [column == names[each] for column in words]
            samples = self._restricted(read, masks, self._valued(read))
            estimate = _count(SampleView(samples), confidence, combine)
            found.append(History(_hearers(read, int(rows[first[each]])), estimate))
        return found

    def cover(
        self, share: float = 0.99, *, confidence: float = 0.95, combine: Combine = "average"
    ) -> list[Step]:
        """Return sources in the order of largest gain, until they hear a share of all messages.

        Each half of the rows estimates the share for the sources that the other half chose. A half
        chooses slightly worse than all rows do. So the upper bound is read for the returned sources
        from all rows, which are too optimistic about their own choice.

        Raises:
            ParameterError: the share is not in 0 to 1.
        """
        if not 0.0 < share <= 1.0:
            raise ParameterError(f"share is {share!r}; expected a number above 0, up to 1")
        read = self._read(self._everyone)
        steps = [_Choice(self, read, copy) for copy in range(len(read.joints))]
        found: list[Step] = []
        everything = [np.ones(len(joint), np.bool_) for joint in read.joints]
        for number, (source, gain) in enumerate(steps[0].taken):
            by_halves, own = (
                self._share(
                    read, [choice.covered(number + 1, own) for choice in steps], everything,
                    confidence, combine,
                )
                for own in (False, True)
            )  # fmt: skip
            covered = replace(
                by_halves, upper=max(by_halves.upper, own.upper),
                exact=by_halves.exact and own.exact,
            )  # fmt: skip
            found.append(Step(read.names[source], gain / steps[0].total, covered))
            if covered.value >= share:
                break
        return found

    def unheard(self, *, confidence: float = 0.95) -> unheard.Unheard:
        """Return how many messages no source heard: a range over named models. Read the module
        :mod:`decaysketch.sources.unheard` before you act on it.

        Raises:
            ParameterError: fewer than two sources.
        """
        check_confidence(confidence)
        read = self._read(self._everyone)
        sample = read.samples[0]
        _, rows = number_of(sample)
        counted = self._kept(read, [np.ones(len(joint), np.bool_) for joint in read.joints])[0]
        masses = np.ldexp(np.where(counted[rows], sample.masses, 0.0), sample.magnitude)
        heard = [_sampled(read, rows, place) for place in range(len(read.names))]
        return unheard.unheard_of(masses, heard, confidence=confidence, caveats=self._noted(read))

    def missing(self, expression: str, limit: int = 100) -> list[Missing]:
        """Return messages in a set with a known history, latest first: ids to look up.

        Integer ids are unchanged. For hashed keys, hash the keys in your log again with
        :func:`decaysketch.observation_ids` and search for these ids.

        Raises:
            ParameterError: the expression is invalid, or the limit is negative.
        """
        _check_limit(limit)
        wanted = read_expression(expression)
        read = self._read(self._among(wanted))
        joint, (_, rows) = read.joints[0], number_of(read.samples[0])
        inside = self._kept(read, read.masks(wanted))[0]
        found = _rising(rows[inside[rows]])[:limit]  # rows are latest first
        columns = joint.columns
        return [
            Missing(int(columns.ids[row]), int(columns.times[row]), _hearers(read, row))
            for row in found.tolist()
        ]

    def since(self, expression: str, of: str = "any") -> silence.Change | None:
        """Return the two messages around the most likely change of a share, or None if the evidence
        is weak (see :func:`decaysketch.sources.silence.change`).
        """
        wanted, among = read_expression(expression), read_expression(of, "of")
        read = self._read(self._among(wanted, among))
        _, rows = number_of(read.samples[0])
        counted = self._kept(read, read.masks(among))[0]
        rows = _rising(rows[counted[rows]])[::-1]  # oldest first
        return silence.change(read.joints[0].columns.times[rows], read.masks(wanted)[0][rows])

    def versus(
        self,
        expression: str,
        of: str = "any",
        *,
        then: tuple[Decay | str, Instant | timedelta | None],
        confidence: float = 0.95,
        combine: Combine = "average",
    ) -> Estimate:
        """Return the share now less the same share at another moment, from one sample of both.

        Args:
            expression, of: as in :meth:`share`.
            then: a decay, and a time or a length before ``now``, such as "7d".
            confidence, combine: as in :meth:`share`.

        Returns:
            The difference. Its ``changed`` is whether 0 lies outside the interval.
        """
        wanted, among = read_expression(expression), read_expression(of, "of")
        read = self._read(self._among(wanted, among))
        filled = self._indicator(read, read.masks(wanted))
        view = self._paired(read, then, read.masks(among), filled)
        return view.ask("rank", confidence=confidence, combine=combine, value=0)

    def _paired(
        self, read: _Read, then: tuple[Decay | str, Instant | timedelta | None],
        masks: Sequence[BoolArray], filled: _Filled,
    ) -> PairView:  # fmt: skip
        if self.decay is None:
            raise ParameterError(
                "the decay of these sketches is fixed, so two times cannot be compared"
            )
        unit = self.sources.params.time_unit
        before = moment_before(then[1], self.now, unit, name="then")
        first, second = Moment(self.decay, self.now), Moment(decay_in(then[0], unit), before)
        reach, latest = _reach(read, first, second)
        drawn = [
            [joint.draw(*moment) for joint in read.joints]
            for moment in ((reach, latest), first, second)
        ]
        sides = [self._restricted(read, masks, filled, samples) for samples in drawn]
        return PairView([Pair(*each) for each in zip(*sides, strict=True)], first, second)

    # ------------------------------------------------------------------------ reasons for not heard

    def silences(self) -> list[silence.Silence]:
        """Return the times in which a source heard nothing and others did, by source and time."""
        read = self._read(self._everyone)
        return [
            silence.Silence(name, *spell)
            for name, spells in zip(read.names, self._spells(read, always=True), strict=True)
            for spell in spells
        ]

    def _spells(self, read: _Read, *, always: bool = False) -> list[list[tuple[int, int]]]:
        """Return the spells of each source that is read. Among very many sources, none are
        searched.
        """
        if len(read.names) > MOST_WATCHED and not (always or self.without_silence):
            return [[] for _ in read.names]
        return read.spells

    @property
    def unsettled(self) -> tuple[str, ...]:
        """Return the sources that have posted nothing since the time that the view looks back from.
        A message that they do not store may still arrive.
        """
        return tuple(
            name
            for name, snapshot in zip(self.names, self.sources.snapshots, strict=True)
            if snapshot.newest is None or snapshot.newest < self.now
        )

    def disagreement(self) -> Disagreement:
        """Return how far duplicates differ in time, and the guards that follow."""
        return self.sources.disagreement()


_Filled = Callable[[Sample, int, npt.NDArray[np.intp]], Sample]


class _Choice:
    """A greedy order, and the orders that each half of the rows makes for the other."""

    def __init__(self, view: CoverageView, read: _Read, copy: int) -> None:
        joint, sample = read.joints[copy], read.samples[copy]
        self._rows = [joint.rows_of(place) for place in range(len(read.names))]
        _, numbers = number_of(sample)
        masses = np.bincount(numbers, sample.masses, len(joint)).astype(np.float64, copy=False)
        counted = view._kept(read, [np.ones(len(each), np.bool_) for each in read.joints])
        masses[~counted[copy]] = 0.0
        self._half = cover.half_of(joint.columns.ids)
        self.total = float(masses.sum()) or 1.0
        most = len(read.names)
        self.taken = cover.greedy(masses, self._rows, most)
        self._orders = [
            cover.greedy(np.where(self._half == half, masses, 0.0), self._rows, most)
            for half in (False, True)
        ]
        self._size = len(joint)

    def covered(self, count: int, own: bool) -> BoolArray:
        """Return bool[rows]: heard by the first sources that the other half chose, or that all
        rows chose.
        """
        if own:
            return self._heard(self.taken[:count])
        first, second = (self._heard(order[:count]) for order in self._orders)
        covered: BoolArray = np.where(self._half, first, second)
        return covered

    def _heard(self, order: Sequence[tuple[int, float]]) -> BoolArray:
        mask = np.zeros(self._size, np.bool_)
        for source, _ in order:
            mask[self._rows[source]] = True
        return mask


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise ParameterError(f"limit is {limit}; expected 0 or more")


def _count(view: SampleView, confidence: float, combine: Combine) -> Estimate:
    found: Estimate = view.ask("count", confidence=confidence, combine=combine)
    return found


def _within(times: Int64Array, spells: Sequence[tuple[int, int]]) -> BoolArray:
    found = np.zeros(len(times), np.bool_)
    for after, before in spells:
        found |= (times > after) & (times < before)
    return found


def _product(total: Estimate, share: Estimate) -> Estimate:
    """Return a count times a share, with the MOVER interval for a product (Zou and Donner 2008)."""
    n, c = total, share
    if math.isnan(c.value):  # no row of the source has a known history
        return replace(n, value=0.0, lower=0.0, exact=n.exact and n.value == 0.0, rows=0)
    value = n.value * c.value
    below = math.hypot(c.value * (n.value - n.lower), n.value * (c.value - c.lower))
    above = math.hypot(c.value * (n.upper - n.value), n.value * (c.upper - c.value))
    exact = n.exact and c.exact
    return replace(
        n, value=value, lower=value if exact else max(value - below, 0.0),
        upper=value if exact else max(min(value + above, n.upper), value),
        stderr=math.hypot(c.value * n.stderr, n.value * c.stderr), exact=exact, rows=c.rows,
        caveats=tuple(dict.fromkeys((*c.caveats, *n.caveats))),
    )  # fmt: skip


def _reach(read: _Read, first: Moment, second: Moment) -> tuple[Decay, int]:
    """Return a decay and a time that cover everything to which two moments give weight."""
    latest = max(first.now, second.now)
    oldest = min(
        at - int(decay.support) if decay.support < math.inf else -TIME_LIMIT
        for decay, at in (first, second)
    )
    mark = max(int(joint.watermarks[-1]) for joint in read.joints)
    if mark != NO_WATERMARK:  # nothing before has weight, or a side would have been refused
        oldest = max(oldest, mark + 1)
    return (none() if oldest <= -TIME_LIMIT else window(latest - oldest)), latest


def _rising(rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return rows in order, each once. With an integral decay a row may be in several strata."""
    rows = np.sort(rows, kind="stable")  # few runs
    return rows if (rows[1:] > rows[:-1]).all() else np.unique(rows)


def _words(read: _Read) -> list[npt.NDArray[np.uint64]]:
    """Return uint64[rows] for each hash function, equal where histories are, except for a chance of
    n^2 / 2^64.
    """
    words = np.random.default_rng(0x5EED).integers(0, 1 << 64, len(read.names), np.uint64)
    found = []
    for joint in read.joints:
        names = np.zeros(len(joint), np.uint64)
        for place, word in enumerate(words):
            names[joint.rows_of(place)] ^= word
        found.append(names)
    return found


def _hearers(read: _Read, row: int) -> tuple[str, ...]:
    """Return the sources that heard a row of the first hash function."""
    joint = read.joints[0]
    message, found = joint.messages[row], joint.incidences
    stop = found.start[message + 1]
    return tuple(read.names[place] for place in found.sources[found.start[message] : stop].tolist())


def _sampled(read: _Read, rows: npt.NDArray[np.intp], place: int) -> npt.NDArray[np.intp]:
    """Return sample positions of the rows that a source heard."""
    return np.flatnonzero(read.joints[0].heard(place)[rows])


def _spells(joint: Joint, rows: slice | npt.NDArray[np.integer]) -> list[list[tuple[int, int]]]:
    """Return the silences for each source among rows, oldest first. Missed runs are read only for a
    source whose longest one is suspicious.
    """
    match = joint.match
    messages = np.ascontiguousarray(joint.messages[rows][::-1])  # latest first
    shared, alone, longest = match.misses(messages)
    found: list[list[tuple[int, int]]] = [[] for _ in match.states]
    others = len(messages) - alone
    for place in np.flatnonzero(silence.suspected(others, shared, alone, longest)).tolist():
        heard = joint.heard(place)[rows]
        found[place] = silence.spells(joint.times[rows], heard, joint.degrees[rows] > heard)
    return found
