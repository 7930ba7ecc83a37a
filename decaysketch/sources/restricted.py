"""Queries to the messages in a source set: ``set``, and groups by source.

A source set restricts the sample before a query, as ``where`` does
(:mod:`decaysketch.query.modifiers`). Both combine: ``mean(v) set gw7 - gw8 where v > -90``.

Three keys in ``by`` come from the sources that heard a message:

==========  ===================================================================================
``source``  a group for each source. A message belongs to the group for every source that heard it
``other``   with ``source``: a group for each pair, with the messages that both heard
``hearers`` a group for each hearer count
==========  ===================================================================================

They combine with keys over columns: ``mean(v) by source, hour(time)``. ``share by source, other``
is the table with delivery ratios: the share that ``source`` heard among the messages that
``other`` heard.

A plain ``count`` uses the estimator with the least variance for its set
(:meth:`~decaysketch.sources.view.CoverageView.count`). Every other aggregate reads the joint
sample.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from decaysketch.core.text.expression import Kind
from decaysketch.errors import ParameterError
from decaysketch.query.columns import schema_of
from decaysketch.query.covering import SOURCE_QUESTIONS
from decaysketch.query.dispatch import View, given_to
from decaysketch.query.estimate import Estimate, check_confidence
from decaysketch.query.group_sums import FEW
from decaysketch.query.modifiers import SOURCE_KEYS, Modifiers, bound_to
from decaysketch.query.pair_view import RangeView
from decaysketch.query.shapes import Combine, Held, Question, check_combine
from decaysketch.query.tables import GroupTable, as_group
from decaysketch.sources.expression import quoted, read_expression

if TYPE_CHECKING:
    from decaysketch.sources.view import CoverageView

__all__ = ["MOST_CELLS", "SetGroups", "SetView", "SourceTables", "restricted"]

MOST_CELLS = 1000
"""Groups by source or by pair in one table."""

_KEYS = (("source",), ("other", "source"), ("hearers",))


def restricted(of: CoverageView, modifiers: Modifiers) -> Any:
    """Return the view for the messages in a set, under further modifiers.

    Raises:
        ParameterError: the set cannot be parsed, or it names an unknown source. Or ``other`` is a
            key without ``source``.
    """
    if modifiers.set is not None:
        for name in read_expression(modifiers.set).names:
            of.sources.index(name)
    keys = [key for key in modifiers.by if key in SOURCE_KEYS]
    if not keys and modifiers.by:
        return SetGroups(of, modifiers)
    if not keys:
        return SetView(of, modifiers)
    if tuple(sorted(keys)) not in _KEYS:
        raise ParameterError(
            f"by has {', '.join(keys)}; expected source, source and other, or hearers"
        )
    return SourceTables(of, modifiers)


class _InSet:
    """The messages in one set, under further modifiers.

    Args:
        of: the sources, under a decay and at a time.
        modifiers: the set, and modifiers over columns.
    """

    def __init__(self, of: CoverageView, modifiers: Modifiers) -> None:
        self._of = of
        self._modifiers = modifiers
        self._set = "any" if modifiers.set is None else modifiers.set
        self._rest = replace(modifiers, set=None)

    @property
    def now(self) -> int:
        """The query time."""
        return self._of.now

    @cached_property
    def _rows(self) -> Any:
        """The view for the rows in the set."""
        return self._of.where(self._set).modified(self._rest)


class SetView(_InSet, View):
    """Queries to the messages in one set. The modifiers have no keys."""

    @property
    def verified(self) -> Literal["proof", "grid"]:
        return self._of.verified

    @property
    def drawn_s(self) -> float:
        return self._of.reading_s([self._set])

    def modified(self, modifiers: Modifiers) -> Any:
        return restricted(self._of, self._modifiers.with_more(modifiers))

    @property
    def rows(self) -> int:
        """Joint sample rows in the set."""
        found: int = self._of.where(self._set).rows
        return found

    def ask(
        self, question: Question[Any] | str, *, confidence: float = 0.95,
        combine: Combine = "average", **arguments: Any,
    ) -> Any:  # fmt: skip
        if _is_of_sources(question):
            found, given = given_to(question, arguments, of="sources")
            self._modifiers.check(found)
            return found.answer(self, confidence=confidence, combine=combine, **given)
        if _name_of(question) == "count" and not (self._rest or arguments):
            return self._of.count(self._set, confidence=confidence, combine=combine)
        return self._rows.ask(question, confidence=confidence, combine=combine, **arguments)

    def share_among(self, among: str, *, confidence: float, combine: Combine) -> Estimate:
        """Return the set's share in another. See :meth:`CoverageView.share`."""
        return self._of.share(self._set, among, confidence=confidence, combine=combine)

    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        if _is_of_sources(question) or (_name_of(question) == "count" and not self._rest):
            return self.drawn_s
        cost: float = self._rows.cost_s(question, combine=combine, **arguments)
        return cost


class SetGroups(_InSet):
    """Queries to groups of the messages in one set, by keys over columns."""

    _span: float | None = None

    def over(self, span: float) -> SetGroups:
        """Return the same view, with rates over a length of time."""
        self._span = span
        return self

    @cached_property
    def _groups(self) -> Any:
        return self._rows if self._span is None else self._rows.over(self._span)

    def ask(
        self, question: Question[Any] | str, *, confidence: float = 0.95,
        combine: Combine = "average", **arguments: Any,
    ) -> GroupTable:  # fmt: skip
        """Return an aggregate for each group. The intervals of all groups hold at once.

        Raises:
            ParameterError: a share by another column than time and age, or as in
                :meth:`decaysketch.query.dispatch.View.ask`.
        """
        if not _is_of_sources(question):
            found: GroupTable = self._groups.ask(
                question, confidence=confidence, combine=combine, **arguments
            )
            return found
        asked, given = given_to(question, arguments, of="sources")
        self._modifiers.check(asked)
        params = self._of.sources.params
        keys = bound_to(self._rest, schema_of(params.value_type, params.time_unit, params.columns))[
            "by"
        ]
        assert isinstance(keys, tuple)
        if others := sorted({name for key in keys for name in key.names} - {"time", "age"}):
            raise ParameterError(
                f"{asked.name} by {', '.join(others)}: expected keys over time and age, or "
                f"{', '.join(SOURCE_KEYS)}"
            )
        return self._of.shares_by(
            self._set, given["among"], self._rest, confidence=confidence, combine=combine
        )

    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        """Approximate processor time to answer, in seconds."""
        if _is_of_sources(question):
            among = arguments.get("among", "any")
            return 2.0 * self._of.reading_s([f"({self._set}) | ({among})"])
        cost: float = self._groups.cost_s(question, combine=combine, **arguments)
        return cost


class _Cell(NamedTuple):
    """A group by source.

    Attributes:
        keys: values for the keys that come from sources.
        text: its set.
        among: the other set in ``share``. None: as given.
    """

    keys: dict[str, Any]
    text: str
    among: str | None = None


class _Row(NamedTuple):
    keys: dict[str, Any]
    answer: Any
    rows: int


class SourceTables:
    """Queries that have a row for each source, pair or hearer count.

    Args:
        of: the sources, under a decay and at a time.
        modifiers: with at least one key from sources.
    """

    def __init__(self, of: CoverageView, modifiers: Modifiers) -> None:
        self._of = of
        self._modifiers = modifiers
        self._inner = tuple(key for key in modifiers.by if key not in SOURCE_KEYS)
        self._outer = tuple(key for key in modifiers.by if key in SOURCE_KEYS)
        self._view: View = of

    @property
    def now(self) -> int:
        """The query time."""
        return self._of.now

    def over(self, span: int) -> SourceTables:
        """Return the same view, with rates over a length of time."""
        self._view = RangeView(self._of, span)
        return self

    def ask(
        self, question: Question[Any] | str, *, confidence: float = 0.95,
        combine: Combine = "average", **arguments: Any,
    ) -> GroupTable:  # fmt: skip
        """Return an aggregate for each group. All intervals hold at once.

        Raises:
            ParameterError: there are more than 1,000 groups, or as in
                :meth:`decaysketch.query.dispatch.View.ask`.
        """
        check_combine(combine)
        check_confidence(confidence)
        found, given = self._given(question, arguments)
        if self._plain_pairs(found):
            return self._of_pairs(found, given, confidence)
        cells = self._cells(found, given)
        level = 1.0 - (1.0 - confidence) / max(len(cells), 1)
        rows, kinds, unseen = self._listed(cells, found, given, level, combine)
        rows = [each._replace(answer=_told(each, confidence)) for each in rows]
        return self._table(found, given, rows, kinds, unseen)

    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        """Approximate processor time to answer, in seconds."""
        found, given = self._given(question, arguments)
        if self._plain_pairs(found):
            return self._of.reading_s(["any"]) + self._of.pairs_cost_s()
        cells = self._cells(found, given)
        return self._of.reading_s([each.text for each in cells])

    def _given(
        self, question: Question[Any] | str, arguments: dict[str, Any]
    ) -> tuple[Question[Any], dict[str, Any]]:
        of: Held = "sources" if _is_of_sources(question) else "rows"
        found, given = given_to(question, arguments, of=of)
        self._modifiers.check(found)
        return found, given

    # ------------------------------------------------------------------------------------- groups

    def _cells(self, question: Question[Any], given: Mapping[str, Any]) -> list[_Cell]:
        names = self._of.names
        shared = question.asked_of == "sources"
        if "other" in self._outer and shared and given["among"] != "any":
            raise ParameterError(
                "share by other is among the messages of the other source: leave among out"
            )
        pairs = len(names) * (len(names) - 1) // (1 if shared else 2)
        count = {"other": pairs, "source": len(names)}.get(max(self._outer, key=_detail), 0)
        if count > MOST_CELLS:
            raise ParameterError(
                f"by {', '.join(self._outer)} has {count} groups; expected at most {MOST_CELLS}: "
                "name fewer sources"
            )
        return list(self._each(shared))

    def _each(self, shared: bool) -> Iterator[_Cell]:
        names = self._of.names
        if self._outer == ("hearers",):
            for j in self._of.degrees(self._modifiers.set or "any"):
                yield _Cell({"hearers": j}, self._and(f"exactly({j})"))
        elif "other" not in self._outer:
            # With silences skipped, another source has to say when a source was silent.
            also = " & at_least(1)" if self._of.without_silence else ""
            for name in names:
                yield _Cell({"source": name}, self._and(quoted(name) + also))
        elif shared:
            for one, other in itertools.permutations(names, 2):
                keys = {"source": one, "other": other}
                both = f"{quoted(one)} & {quoted(other)}"
                yield _Cell(keys, self._and(both), self._and(quoted(other)))
        else:
            for one, other in itertools.combinations(names, 2):
                text = f"{quoted(one)} & {quoted(other)}"
                yield _Cell({"source": one, "other": other}, self._and(text))

    def _and(self, text: str) -> str:
        """Return a set within the modifiers' set."""
        return text if self._modifiers.set is None else f"({self._modifiers.set}) & {text}"

    def _listed(
        self, cells: Sequence[_Cell], question: Question[Any], given: Mapping[str, Any],
        level: float, combine: Combine,
    ) -> tuple[list[_Row], tuple[Kind, ...], float]:  # fmt: skip
        rows: list[_Row] = []
        kinds: tuple[Kind, ...] = ()
        unseen = 0.0
        for cell in cells:
            inner = replace(self._modifiers, set=cell.text, by=self._inner, limit=None)
            view = self._view.modified(inner)
            asked = dict(given) if cell.among is None else {**given, "among": cell.among}
            found = view.ask(question, confidence=level, combine=combine, **asked)
            if isinstance(found, GroupTable):
                kinds, unseen = found.kinds, max(unseen, found.unseen_at_most)
                rows += [_Row(cell.keys | row.by, row.answer, row.rows) for row in found]
                continue
            held = found.rows if isinstance(found, Estimate) else SetView(self._of, inner).rows
            rows.append(_Row(cell.keys, found, held))
        return rows, kinds, unseen

    # -------------------------------------------------------------------------------- all pairs

    def _plain_pairs(self, question: Question[Any]) -> bool:
        """Whether it counts every pair, which one pass reads."""
        bare = replace(self._modifiers, by=())
        plain = "other" in self._outer and not (bare or self._inner)
        return plain and question.name == "count" and self._of.reads_all_pairs

    def _of_pairs(
        self, question: Question[Any], given: Mapping[str, Any], confidence: float
    ) -> GroupTable:
        k = len(self._of.names)
        level = 1.0 - (1.0 - confidence) / max(k * (k - 1) // 2, 1)
        rows = [
            _Row({"source": source, "other": other}, estimate, estimate.rows)
            for source, other, estimate in self._of.overlaps(confidence=level)
        ]
        rows = [each._replace(answer=_told(each, confidence)) for each in rows]
        return self._table(question, given, rows, (), 0.0)

    # ------------------------------------------------------------------------------------- tables

    def _table(
        self, question: Question[Any], given: Mapping[str, Any], rows: list[_Row],
        kinds: Sequence[Kind], unseen: float,
    ) -> GroupTable:  # fmt: skip
        rows = _ordered(rows, self._modifiers, self._outer)
        total, rows = len(rows), rows[: self._modifiers.limit]
        by = self._modifiers.by
        inner = dict(zip(self._inner, kinds, strict=False))
        return GroupTable(
            question, given, by,
            tuple(inner.get(key, "number" if key == "hearers" else "text") for key in by),
            tuple([row.keys[key] for row in rows] for key in by),
            [row.answer for row in rows], np.array([row.rows for row in rows], np.int64), None,
            total, unseen, self._of.sources.params.time_unit, self.now,
        )  # fmt: skip


def _ordered(rows: list[_Row], modifiers: Modifiers, outer: Sequence[str]) -> list[_Row]:
    if modifiers.order == "key":
        return sorted(rows, key=lambda row: tuple(row.keys[key] for key in outer))
    sign = 1.0 if modifiers.order == "smallest" else -1.0

    def size(row: _Row) -> float:
        value = row.answer.value if isinstance(row.answer, Estimate) else float(row.rows)
        return math.inf if math.isnan(value) else sign * value

    return sorted(rows, key=size)


def _told(row: _Row, confidence: float) -> Any:
    return as_group(row.answer, confidence, row.rows < FEW)


def _detail(key: str) -> int:
    return ("hearers", "source", "other").index(key)


def _name_of(question: Question[Any] | str) -> str:
    return question if isinstance(question, str) else question.name


def _is_of_sources(question: Question[Any] | str) -> bool:
    return _name_of(question) in {each.name for each in SOURCE_QUESTIONS}
