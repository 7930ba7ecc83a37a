"""Queries to groups in a sample, and the table that such a query returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.text.expression import Bound, Kind, Schema
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.query import aggregates, grouped, relations
from decaysketch.query.buckets import ENDS, by_group, reads_ranges
from decaysketch.query.comparisons import Sides, against
from decaysketch.query.dispatch import given_to
from decaysketch.query.estimate import Estimate, check_confidence
from decaysketch.query.group_keys import Keys, number_groups
from decaysketch.query.group_sums import FEW, EstimateLists, Estimates, Parts
from decaysketch.query.grouped_quantiles import median_by, quantiles_by
from decaysketch.query.modifiers import Modifiers, bound_to, modified, revalued
from decaysketch.query.sample import FAINT, EndOfRange, Sample, changed, pool
from decaysketch.query.shapes import SCALAR, Combine, Held, Question, check_combine
from decaysketch.query.strata import Groups

__all__ = [
    "MOST_ONE_BY_ONE",
    "GroupRow",
    "GroupTable",
    "GroupedView",
    "as_group",
    "computed_at_once",
]

MOST_ONE_BY_ONE = 100
"""Groups for which an aggregate is computed that is not computed for all groups at once."""

#: Aggregates that are computed for all groups at once.
_AT_ONCE: Mapping[str, Callable[..., Estimates | EstimateLists]] = {
    "correlation": relations.correlation,
    "count": grouped.count_by,
    "covariance": relations.covariance,
    "mean": grouped.mean_by,
    "median": median_by,
    "quantile": quantiles_by,
    "rate": grouped.rate_by,
    "ratio": relations.ratio,
    "regression": relations.regression,
    "selectivity": grouped.selectivity_by,
    "sum": grouped.sum_by,
    "total": grouped.total_by,
}


def computed_at_once(aggregate: str) -> bool:
    """Return whether an aggregate is computed for all groups at once. Other aggregates are for at
    most :data:`MOST_ONE_BY_ONE` groups.
    """
    return aggregate in _AT_ONCE


_RELATIONS = ("correlation", "covariance", "ratio", "regression")

# Processor seconds, measured: of a table; of a row for each key and pass; of a group.
_TABLE_S, _ROW_S, _GROUP_S = 1e-3, 60e-9, 5e-6
_FIT_S = 60e-6  # of a group, for relations and comparisons


class GroupRow(NamedTuple):
    """One group.

    Attributes:
        by: its keys, by the expression of each.
        answer: the result of the aggregate.
        rows: retained rows in the group.
        small: fewer than 20 rows, and the result is not exact.
        certain: in a table with the largest groups: no unlisted group, seen or not, is larger, with
            the confidence of the table. None if unknown.
    """

    by: dict[str, Any]
    answer: Any
    rows: int
    small: bool
    certain: bool | None


@dataclass(frozen=True, eq=False)
class GroupTable:
    """An aggregate for each group. Iterate for its rows, a :class:`GroupRow` each.

    Attributes:
        question: the query.
        arguments: its arguments.
        names: expressions of the keys.
        kinds: their types.
        values: for each key, its value in each group.
        answers: for each group: :class:`~decaysketch.query.grouped.Estimates`, columns for all
            groups, several of these, or a list.
        rows: int64[groups], retained rows.
        certain: see :class:`GroupRow`.
        total_groups: the number of groups with a retained row, listed or not.
        unseen_at_most: no group without a retained row has a larger decayed count, with the
            confidence. Of series: more entities. 0 if nothing was sampled.
        time_unit: unit of times among the keys.
        now: the query time.
    """

    question: Question[Any]
    arguments: Mapping[str, Any]
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    values: tuple[list[Any], ...]
    answers: Estimates | EstimateLists | list[Any]
    rows: npt.NDArray[np.int64]
    certain: npt.NDArray[np.bool_] | None
    total_groups: int
    unseen_at_most: float
    time_unit: str
    now: int

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> GroupRow:
        if not -len(self) <= number < len(self):
            raise IndexError(f"group {number} of {len(self)}")
        number %= len(self)
        keys = dict(zip(self.names, (listed[number] for listed in self.values), strict=True))
        answer, rows = self.answers[number], int(self.rows[number])
        small = rows < FEW and not _is_exact(answer)
        certain = None if self.certain is None else bool(self.certain[number])
        return GroupRow(keys, answer, rows, small, certain)

    def __iter__(self) -> Iterator[GroupRow]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        listed = f"{len(self)} of {self.total_groups} groups"
        return f"GroupTable({self.question.name} by {', '.join(self.names)}: {listed})"

    def parts(self) -> list[dict[str, Any]]:
        """Return a row for each group: ``by``, ``rows``, ``small``, ``certain`` if known, and the
        parts of the aggregate as its shape names them.
        """
        found = []
        for row in self:
            said: dict[str, Any] = {"by": row.by, "rows": row.rows, "small": row.small}
            if row.certain is not None:
                said["certain"] = row.certain
            found.append(said | self.question.parts(row.answer, self.arguments))
        return found

    def plot(self, axes: Any = None, most: int = 30) -> Any:
        """Draw the groups with their intervals. See :func:`decaysketch.query.plots.groups`."""
        from decaysketch.query import plots

        return plots.groups(self, axes, most)

    def by_key(self) -> dict[tuple[Any, ...], Any]:
        """Return results by group key."""
        return dict(zip(zip(*self.values, strict=True), (r.answer for r in self), strict=True))

    def to_frame(self) -> Any:
        """Return a pandas data frame: a column for each key, then ``value``, ``lower``, ``upper``,
        ``stderr``, ``exact``, ``rows``, ``small`` and ``caveats``. An aggregate with several
        numbers has a row for each number in each group.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        from decaysketch.query.frames import frame_of_groups

        return frame_of_groups(self)


class GroupedView:
    """Queries to groups. :meth:`~decaysketch.query.catalog.SampleView.by` makes it.

    Args:
        samples: one for each hash function, with ``where`` and ``weight``.
        modifiers: modifiers of the query.
        schema: columns of the stream.
        drawn: the samples without modifiers.

    Raises:
        ParameterError: a key that cannot be read.
    """

    def __init__(
        self, samples: Sequence[Sample], modifiers: Modifiers, schema: Schema,
        drawn: Sequence[Sample] = (),
    ) -> None:  # fmt: skip
        self._drawn = drawn
        self._samples, self._modifiers, self._schema = samples, modifiers, schema
        keys = bound_to(modifiers, schema)["by"]
        assert isinstance(keys, tuple)
        self._by: tuple[Bound, ...] = keys
        self._pooled: tuple[Sample, Keys] | None = None
        self._span: float | None = None

    def over(self, span: float) -> GroupedView:
        """Return the same view, with rates over a time length."""
        self._span = span
        return self

    @property
    def now(self) -> int:
        """The query time."""
        return self._samples[0].now

    def ask(
        self,
        question: Question[Any] | str,
        *,
        confidence: float = 0.95,
        combine: Combine = "average",
        **arguments: Any,
    ) -> GroupTable:
        """Return an aggregate for each group. Arguments and errors are as in
        :meth:`decaysketch.query.dispatch.View.ask`. The intervals for all groups hold at once.

        Raises:
            ParameterError: there are too many groups, or more than 100 for an aggregate that is not
                computed for all groups at once.
        """
        found, given = asked_by_group(question, arguments, self._modifiers, confidence, combine)
        table = self._answered(found, given, confidence, combine)
        texts = [*self._modifiers.texts, *found.columns(given)]
        ranged = any(sample.ranged for sample in self._drawn)
        if not (ranged and reads_ranges(found, texts)):
            return table
        if self._modifiers.versus is not None:
            raise ParameterError(
                "by and versus: the values are ranges, and their comparison by group has no joint "
                "interval; omit by, and select the group in where and versus"
            )
        bounds = [
            self._at_bound(bound)._answered(found, given, confidence, combine).by_key()
            for bound in ENDS
        ]
        keys = list(zip(*table.values, strict=True))
        answers = by_group([row.answer for row in table], keys, bounds)
        return replace(table, answers=answers, certain=None)

    def _answered(
        self, question: Question[Any], given: dict[str, Any], confidence: float, combine: Combine
    ) -> GroupTable:
        pooled, keys = self._grouped()
        single = combine == "average" or len(self._samples) == 1
        if single and question.name in _AT_ONCE:
            return self._at_once(question, given, pooled, keys, confidence)
        return self._one_by_one(question, given, keys, confidence, combine)

    def _at_bound(self, bound: EndOfRange) -> GroupedView:
        """Return the same view with every range at its lower or upper bound. Small tables have all
        groups, in any order.
        """
        drawn = [sample.at_bound(bound) for sample in self._drawn]
        few = self._grouped()[1].size <= MOST_ONE_BY_ONE
        modifiers = replace(self._modifiers, limit=None if few else self._modifiers.limit)
        found = modified(drawn, modifiers, self._schema)
        view = GroupedView(found, modifiers, self._schema)
        return view if self._span is None else view.over(self._span)

    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        """Approximate processor time to answer, in seconds."""
        found, given = given_to(question, arguments)
        pooled, keys = self._grouped()
        rows = len(pooled) * (2 + len(self._by))
        at_once = _TABLE_S + rows * _ROW_S + keys.size * _GROUP_S
        found = against(found, self._modifiers, self._schema)
        if found.name in _AT_ONCE and combine == "average":
            alone = found.name not in _RELATIONS and self._modifiers.versus is None
            return at_once if alone else at_once + found.cost_s(pooled, given) + keys.size * _FIT_S
        listed = min(keys.size, self._limit(keys))
        each = found.cost_s(pooled, given | {"combine": combine})
        # The groups together have all rows. The fixed cost of an aggregate occurs in each group.
        return at_once + each + listed * (_TABLE_S + len(pooled) * 2e-9)

    def _limit(self, keys: Keys) -> int:
        limit = self._modifiers.limit
        return keys.size if limit is None else limit

    def _grouped(self) -> tuple[Sample, Keys]:
        if self._pooled is None:
            pooled = pool(self._samples)
            self._pooled = pooled, number_groups(self._by, [pooled])
        return self._pooled

    def _strata(self, sample: Sample, keys: Keys) -> Groups | None:
        """Return the strata by group, if a key depends on the strata alone."""
        if sample.strata is None or not sample.step > 0.0:
            return None
        return sample.strata.by_group(self._by, keys.values)

    @staticmethod
    def _unseen(sample: Sample, groups: Groups | None, confidence: float) -> float:
        """Return the bound on groups without a retained row."""
        if groups is None or not groups.complete:
            return grouped.unseen_at_most(sample, confidence)
        step, thinning = groups.unseen()
        return grouped.unseen_at_most(replace(sample, step=step, thinning=thinning), confidence)

    # ------------------------------------------------------------------------------ all at once

    def _at_once(
        self, question: Question[Any], given: dict[str, Any], pooled: Sample, keys: Keys,
        confidence: float,
    ) -> GroupTable:  # fmt: skip
        asked = against(question, self._modifiers, self._schema, self._span)
        compared = asked is not question
        if pooled.labels is not None and self._modifiers.of is None:
            question.check_labels(given)
        sample = pooled  # parts are read from the stream's own values
        if not compared:
            sample = revalued(pooled, self._modifiers, self._schema)
            if sample.labels is not None:
                question.check_labels(given)
        groups = self._strata(sample, keys)
        parts = _parts(_as_whole(sample), keys, confidence, groups)._replace(span=self._span)
        aggregate = asked.by_group or _AT_ONCE[question.name]
        found = aggregate(parts, **_arguments(question, given))
        rows = np.bincount(keys.numbers[0], minlength=keys.size)
        if question.name not in ("median", "quantile"):
            found = self._scaled_again(asked, given, parts, keys, found)
        sizes = np.full(keys.size, np.nan) if isinstance(found, EstimateLists) else found.value
        order = self._order(sizes, rows, keys)
        unseen = self._unseen(pooled, groups, confidence)
        certain = None
        if self._modifiers.order == "largest" and len(found) and isinstance(found, Estimates):
            bound = math.inf if compared else unseen
            certain = _certain(found, order, _unseen_bound(question, parts, bound))
        return self._table(question, given, keys, found.take(order), rows, order, certain, unseen)

    def _scaled_again(
        self, question: Question[Any], given: dict[str, Any], parts: Parts, keys: Keys,
        found: Estimates | EstimateLists,
    ) -> Estimates | EstimateLists:  # fmt: skip
        """Return groups that are so much older than the newest row that squares of their weights
        were lost, each from its own sample.
        """
        sample, group = parts.sample, keys.numbers[0]
        if sample.redraw is None or float(sample.decayed.min(initial=1.0)) >= FAINT:
            return found
        counted = self._counted(question, sample)
        newest = np.full(keys.size, math.inf)
        newest[group[counted]] = 0.0
        np.maximum.at(newest, group[counted], sample.decayed[counted])
        faint = np.flatnonzero(newest < FAINT)
        if not len(faint):
            return found
        several = isinstance(found, EstimateLists)
        lists = found.each if isinstance(found, EstimateLists) else (found,)
        for number in faint[:MOST_ONE_BY_ONE].tolist():
            (one,) = self._restricted([sample], keys, number)
            answer = question.answer([one], confidence=parts.level, **given)
            for each, estimate in zip(lists, answer if several else [answer], strict=True):
                each.value[number], each.stderr[number] = estimate.value, estimate.stderr
                each.lower[number], each.upper[number] = estimate.lower, estimate.upper
                each.rows[number] = estimate.rows
                if each.changed is not None:
                    each.changed[number] = estimate.changed
        lost = np.zeros(keys.size, np.bool_)
        lost[faint] = True
        marked = [
            replace(each, caveats=(*each.caveats, ("faded", lost & ~each.exact))) for each in lists
        ]
        return EstimateLists(tuple(marked)) if several else marked[0]

    def _counted(self, question: Question[Any], sample: Sample) -> npt.NDArray[np.bool_]:
        """Return the rows that an aggregate reads."""
        valued = "values" in question.needs
        if self._modifiers.versus is not None:
            return Sides.of_modifiers(self._modifiers, self._schema).kept(sample, valued=valued)
        return ~sample.missing if valued else np.ones(len(sample), np.bool_)

    # ------------------------------------------------------------------------------ single groups

    def _one_by_one(
        self, question: Question[Any], given: dict[str, Any], keys: Keys, confidence: float,
        combine: Combine,
    ) -> GroupTable:  # fmt: skip
        pooled, _ = self._grouped()
        samples = self._samples
        if combine == "average":
            samples = [pooled]
        if len(samples) > 1:  # by the median: rows of every hash function
            keys = number_groups(self._by, samples)
        rows = sum(np.bincount(each, minlength=keys.size) for each in keys.numbers)
        rows = np.asarray(rows, np.int64)
        limit = self._modifiers.limit
        if min(keys.size, keys.size if limit is None else limit) > MOST_ONE_BY_ONE:
            raise ParameterError(
                f"{question.name} by {', '.join(self._modifiers.by)} has {keys.size} groups, and "
                f"is computed for at most {MOST_ONE_BY_ONE}; give limit {MOST_ONE_BY_ONE} or less "
                "for the groups with the most rows, add a where, or use a coarser key"
            )
        chosen = np.argsort(-rows, kind="stable")[:limit]
        level = 1.0 - (1.0 - confidence) / max(keys.size, 1)
        valued = list(samples)
        asked = against(question, self._modifiers, self._schema, self._span)
        if asked is question:  # parts are read from the stream's own values
            valued = [revalued(each, self._modifiers, self._schema) for each in samples]
        if valued[0].labels is not None and (asked is question or self._modifiers.of is None):
            question.check_labels(given)
        wholes = [_as_whole(each) for each in valued]
        found = []
        for number in chosen.tolist():
            answer = self._of_one(asked, given, wholes, keys, number, level)
            small = int(rows[number]) < FEW
            found.append(as_group(answer, confidence, small))
        sizes = np.full(keys.size, np.nan)
        if question.shape is SCALAR:
            sizes[chosen] = [each.value for each in found]
        order = self._order(sizes, rows, keys)
        order = order[np.isin(order, chosen)]
        place = {number: k for k, number in enumerate(chosen.tolist())}
        listed = [found[place[number]] for number in order.tolist()]
        unseen = self._unseen(pooled, self._strata(pooled, keys), confidence)
        return self._table(question, given, keys, listed, rows, order, None, unseen)

    def _of_one(
        self, question: Question[Any], given: dict[str, Any], wholes: Sequence[Sample],
        keys: Keys, number: int, level: float,
    ) -> Any:  # fmt: skip
        try:
            return question.answer(
                self._restricted(wholes, keys, number), confidence=level, **given
            )
        except UnanswerableQueryError as fault:
            names = zip(self._modifiers.by, keys.values, strict=True)
            group = ", ".join(f"{name} is {listed[number]!r}" for name, listed in names)
            raise UnanswerableQueryError(f"of the group in which {group}: {fault}") from None

    def _restricted(self, samples: Sequence[Sample], keys: Keys, number: int) -> list[Sample]:
        """Return one group's samples. A sample that is drawn again is restricted by the group's
        keys.
        """
        masks = {
            id(sample): numbers == number
            for sample, numbers in zip(samples, keys.numbers, strict=True)
        }
        wanted = [listed[number] for listed in keys.values]
        first, last, strata = None, None, None
        if (groups := self._strata(samples[0], keys)) is not None:
            strata = groups.of(number)
        if keys.hulls is not None:
            first, last = (int(ends[number]) for ends in keys.hulls)

        def change(sample: Sample) -> Sample:
            mask = masks.get(id(sample))
            if mask is None:
                mask = _has_keys(self._by, sample, wanted)
            whole = sample.whole or (lambda: sample)
            found = sample.only(mask, first=first, last=last, strata=strata)
            return replace(found, whole=whole)

        return changed(samples, change)

    # ---------------------------------------------------------------------------------- tables

    def _order(
        self, value: npt.NDArray[np.float64], rows: npt.NDArray[np.int64], keys: Keys
    ) -> npt.NDArray[np.intp]:
        """Return the listed groups, in their order."""
        order, limit = self._modifiers.order, self._modifiers.limit
        if np.isnan(value).all():
            value = rows.astype(np.float64)
        sign = 1.0 if order == "smallest" else -1.0
        chosen = np.argsort(np.where(np.isnan(value), np.inf, sign * value), kind="stable")
        if order == "key":
            return np.arange(keys.size)[:limit]
        return chosen[:limit]

    def _table(
        self, question: Question[Any], given: Mapping[str, Any], keys: Keys,
        answers: Estimates | EstimateLists | list[Any], rows: npt.NDArray[np.int64],
        order: npt.NDArray[np.intp], certain: npt.NDArray[np.bool_] | None, unseen: float,
    ) -> GroupTable:  # fmt: skip
        listed = order.tolist()
        values = tuple([each[number] for number in listed] for each in keys.values)
        return GroupTable(
            question, given, self._modifiers.by, tuple(key.kind for key in self._by), values,
            answers, rows[order], certain, keys.size, unseen, self._schema.unit, self.now,
        )  # fmt: skip


# ------------------------------------------------------------------------------------------ common


def _parts(sample: Sample, keys: Keys, confidence: float, groups: Groups | None = None) -> Parts:
    step, thinning = np.full(keys.size, sample.step), np.full(keys.size, sample.thinning)
    if groups is not None:
        step, thinning = groups.steps()
    elif keys.hulls is not None and sample.hits_within is not None and sample.step > 0.0:
        step, thinning = sample.hits_within(*keys.hulls)
    level = 1.0 - (1.0 - confidence) / max(keys.size, 1)
    found = Parts(sample, keys.numbers[0], keys.size, step, thinning, level, confidence)
    if sample.per_observation is None:
        return found
    return found._replace(counted=lambda: _parts(sample.counted, keys, confidence))


def _as_whole(sample: Sample) -> Sample:
    """Return a sample from which groups borrow the column's tail: the filter's sample, or its
    own.
    """
    return sample if sample.whole is not None else replace(sample, whole=lambda: sample)


def _arguments(question: Question[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return an aggregate's arguments for all groups at once."""
    if question.name == "selectivity":
        predicate = given["predicate"]
        if predicate is None:
            predicate = aggregates.within(given["at_least"], given["at_most"])
        return {"holds": predicate}
    return dict(given)


def _has_keys(by: Sequence[Bound], sample: Sample, wanted: Sequence[Any]) -> npt.NDArray[np.bool_]:
    keys = number_groups(by, [sample])
    groups = zip(*keys.values, strict=True)
    held = [number for number, values in enumerate(groups) if list(values) == list(wanted)]
    return np.isin(keys.numbers[0], held)


def _certain(found: Estimates, order: npt.NDArray[np.intp], unseen: float) -> npt.NDArray[np.bool_]:
    """Return the listed groups that no other group, seen or not, exceeds."""
    others = np.ones(len(found), np.bool_)
    others[order] = False
    bar = max(unseen, float(np.max(found.upper[others], initial=-math.inf)))
    return np.asarray(found.lower[order] > bar)


def _unseen_bound(question: Question[Any], parts: Parts, unseen: float) -> float:
    """Return the largest possible result of a group without a retained row."""
    sample = parts.sample
    if sample.exact:
        return -math.inf
    if question.name == "count":
        return unseen
    if question.name == "rate":
        return unseen / (parts.span or aggregates.span_of(sample.decay))
    if question.name == "sum":
        most = aggregates.sum(sample, confidence=parts.confidence)
        return grouped.unseen_within(sample, most.upper, parts.confidence)
    return math.inf


def _is_exact(answer: Any) -> bool:
    if isinstance(answer, Estimate):
        return answer.exact
    if isinstance(answer, list | tuple):
        return all(_is_exact(each) for each in answer)
    return all(_is_exact(each) for each in getattr(answer, "__dict__", {}).values())


def asked_by_group(
    question: Question[Any] | str, arguments: dict[str, Any], modifiers: Modifiers,
    confidence: float, combine: Combine, *, of: Held = "rows",
) -> tuple[Question[Any], dict[str, Any]]:  # fmt: skip
    """Return a query to groups and its complete arguments, checked before any row is read.

    Raises:
        ParameterError: an argument, a modifier or the confidence is invalid for it.
    """
    check_combine(combine)
    check_confidence(confidence)
    found, given = given_to(question, arguments, of=of)
    modifiers.check(found)
    return found, given


def as_group(answer: Any, confidence: float, small: bool) -> Any:
    """Return a result at the table's confidence, with the caveat of a small group."""
    if isinstance(answer, Estimate):
        named = answer.caveats
        if small and not answer.exact and "small-group" not in named:
            named = (*named, "small-group")
        return replace(answer, confidence=confidence, caveats=named)
    if isinstance(answer, list):
        return [as_group(each, confidence, small) for each in answer]
    if isinstance(answer, tuple) and hasattr(answer, "_fields"):
        return type(answer)(*(as_group(each, confidence, small) for each in answer))
    if isinstance(answer, aggregates.Group):
        return replace(
            answer, sum=as_group(answer.sum, confidence, small),
            count=as_group(answer.count, confidence, small),
        )  # fmt: skip
    return answer
