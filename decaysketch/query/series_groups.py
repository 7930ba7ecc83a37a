"""Series with some attributes, and groups.

A filter or a group key reads attributes, which are texts. A condition on values or times would
remove rows between two others, so neighbours would be wrong. The series that satisfy a condition
are a sample by themselves, with the same watermarks. So every query, interval and caveat applies to
them unchanged.

*Joint intervals.* Each of G groups is read at ``1 - (1 - confidence) / G`` (Bonferroni), over all
groups found.

*Unseen groups.* Each entity is retained with probability p or more, by the coarsest band that the
decay reaches. A group with u entities is missed with probability ``exp(-u p)`` or less, and at most
``N / u`` such groups exist among N entities. So ``u = ln(N / (u (1 - confidence))) / p`` bounds the
entities in every unseen group at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.records import Records
from decaysketch.core.text.expression import Bound, Column, Schema
from decaysketch.errors import ParameterError
from decaysketch.query.dispatch import given_to
from decaysketch.query.estimate import Estimate
from decaysketch.query.group_keys import Keys, number_rows
from decaysketch.query.group_sums import FEW
from decaysketch.query.modifiers import Modifiers, bound_to
from decaysketch.query.shapes import Combine, Question, check_combine
from decaysketch.query.tables import GroupTable, as_group, asked_by_group

if TYPE_CHECKING:
    from decaysketch.query.series import SeriesView

__all__ = ["MOST_SERIES_GROUPS", "GroupedSeries", "SeriesTable", "attribute_schema", "restricted"]

MOST_SERIES_GROUPS = 1_000
"""Maximum number of groups that a query computes."""

# Processor seconds, measured: of a group in addition to its rows, and of one in a join.
_GROUP_S, _JOINED_GROUP_S = 8e-4, 2.2e-3

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]


def attribute_schema(attributes: Sequence[str], time_unit: str) -> Schema:
    """Return the columns that expressions over series read.

    Raises:
        ParameterError: the stream declares no attributes.
    """
    if not attributes:
        raise ParameterError(
            "this stream declares no attributes, by which series are filtered and grouped; build "
            "it with them, such as attributes 'job, region'"
        )
    return Schema(tuple((name, "text") for name in attributes), time_unit)


@dataclass(frozen=True, eq=False)
class SeriesTable:
    """Series as a table with a column per attribute.

    Attributes:
        records: a row for each series.
        now: the query time.
    """

    records: Records
    now: int

    def __len__(self) -> int:
        return len(self.records)

    def column(self, name: str) -> Column:
        """Return one attribute for every series."""
        found = self.records.column(name)
        missing = found.keys < 0
        return Column(np.where(missing, -1, found.keys), missing, found.texts)


def restricted(view: SeriesView, modifiers: Modifiers) -> Any:
    """Return a view restricted to the series that satisfy a condition, grouped if there are keys.

    Raises:
        ParameterError: the stream has no attributes, or an expression cannot be parsed.
    """
    if modifiers.versus is not None:
        raise ParameterError("versus compares rows of a sample; a sketch of series has none")
    schema = attribute_schema(view.attributes, view.time_unit)
    bound = bound_to(modifiers, schema)
    where = bound.get("where")
    if isinstance(where, Bound):
        view = view.of_series(where.holds(view.series_table()))
    by = bound.get("by")
    return GroupedSeries(view, modifiers, by) if isinstance(by, tuple) else view


class GroupedSeries:
    """Queries to series groups.

    Args:
        view: the series that satisfy the condition.
        modifiers: the query's modifiers.
        by: its keys.

    Raises:
        ParameterError: there are more than 10,000 groups.
    """

    def __init__(self, view: SeriesView, modifiers: Modifiers, by: tuple[Bound, ...]) -> None:
        self._view, self._modifiers, self._by = view, modifiers, by
        self._keys: Keys = number_rows(by, [view.series_table()])

    @property
    def now(self) -> int:
        """The query time."""
        return self._view.now

    def ask(
        self,
        question: Question[Any] | str,
        *,
        confidence: float = 0.95,
        combine: Combine = "average",
        **arguments: Any,
    ) -> GroupTable:
        """Return a query's result for each group. Arguments and errors are as in
        :meth:`decaysketch.query.dispatch.View.ask`. The intervals for all groups hold at once.

        Raises:
            ParameterError: more groups than ``MOST_SERIES_GROUPS`` are to be computed.
        """
        found, given = asked_by_group(
            question, arguments, self._modifiers, confidence, combine, of="series"
        )
        keys = self._keys
        chosen = self._chosen(found.name)
        level = 1.0 - (1.0 - confidence) / max(keys.size, 1)
        answers: list[Estimate] = []
        entities = np.zeros(keys.size, np.int64)
        for number in chosen.tolist():
            part = self._view.of_series(keys.numbers[0] == number)
            entities[number] = part.entities
            answer = found.answer(part, confidence=level, **given)
            answers.append(as_group(answer, confidence, part.entities < FEW))
        order = self._order(chosen, np.array([each.value for each in answers]))
        listed = chosen[order]
        return GroupTable(
            found, given, self._modifiers.by, tuple(key.kind for key in self._by),
            tuple([each[number] for number in listed.tolist()] for each in keys.values),
            [answers[place] for place in order.tolist()], entities[listed], None, keys.size,
            self._unseen_at_most(confidence), self._view.time_unit, self.now,
        )  # fmt: skip

    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        """Approximate processor time to answer, in seconds."""
        found, given = given_to(question, arguments, of="series")
        check_combine(combine)
        groups = min(self._keys.size, MOST_SERIES_GROUPS)
        series = len(self._keys.numbers[0])
        joins = any(each.kind == "sketch" for each in found.arguments)
        group_s = (_JOINED_GROUP_S if joins else _GROUP_S) + series * 1e-9
        return 2 * found.cost_s(self._view, given) + groups * group_s

    def _chosen(self, name: str) -> IntArray:
        """Return the groups to compute: all, or with many groups those with the most series."""
        size, limit = self._keys.size, self._modifiers.limit
        if size <= MOST_SERIES_GROUPS:
            return np.arange(size)
        if limit is None or limit > MOST_SERIES_GROUPS:
            raise ParameterError(
                f"{name} by {', '.join(self._modifiers.by)} has {size} groups, and is computed "
                f"for at most {MOST_SERIES_GROUPS}; give limit {MOST_SERIES_GROUPS} or less for "
                "the groups with the most series, add a where, or use a coarser key"
            )
        counts = np.bincount(self._keys.numbers[0], minlength=size)
        return np.sort(np.argsort(-counts, kind="stable")[:limit])

    def _order(self, chosen: IntArray, values: npt.NDArray[np.float64]) -> IntArray:
        """Return where the listed groups are among the computed ones, in listing order."""
        limit, order = self._modifiers.limit, self._modifiers.order
        if order == "key":
            return np.arange(len(chosen))[:limit]
        sign = 1.0 if order == "smallest" else -1.0
        last = np.where(np.isnan(values), np.inf, sign * values)
        return np.argsort(last, kind="stable")[:limit]

    def _unseen_at_most(self, confidence: float) -> float:
        """Return the maximum entity count for a group without a retained series."""
        p, complete = self._view.least_probability, self._view.entities
        if p >= 1.0:
            return 0.0
        most = (complete + 3.0 * math.sqrt(complete) + 9.0) / p  # of all entities, nearly surely
        found = 1.0 / p
        for _ in range(60):  # a contraction: the logarithm changes little
            found = math.log(max(most / found, 1.0) / (1.0 - confidence)) / p
        return found
