"""Modifiers of a sample before a query: ``where``, ``set``, ``of``, ``weight``, ``by``, ``versus``.

A modified sample is a :class:`~decaysketch.query.sample.Sample`, so every aggregate accepts it.

========== =====================================================================================
``where``  keeps the rows that satisfy a condition. The hit size stays, so that a part without
           rows has an upper bound. A condition on time limits it to the bands that can have such
           rows
``set``    keeps the messages in a source set, such as ``a & ~b``. It needs one sketch for each
           source, see :mod:`decaysketch.sources.restricted`, and combines with ``where``
``of``     the values: any expression over the columns
``weight`` multiplies the decay weight by a number of 0 or more for each row. It may rise with the
           age
``by``     groups, see :mod:`~decaysketch.query.grouped`
``versus`` compares the part that ``where`` keeps with the part that this condition keeps, see
           :mod:`~decaysketch.query.comparisons`
========== =====================================================================================

The largest ``weight`` among rows that were not retained is unknown. If it depends on time alone, it
is read on a time grid within each band. Otherwise it is the largest among the retained rows.
Both are caveats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.core.labels import Labels
from decaysketch.core.observations import MISSING_KEY, encode_values
from decaysketch.core.text.expression import MAX_OPERATIONS, NULL_TIME, Bound, Column, Schema, bind
from decaysketch.core.text.grammar import split_commas
from decaysketch.errors import ParameterError
from decaysketch.query.columns import SampleTable, schema_of
from decaysketch.query.sample import Sample, changed
from decaysketch.query.shapes import Question

__all__ = [
    "MAX_GROUPS",
    "MAX_KEYS",
    "SOURCE_KEYS",
    "Modifiers",
    "Order",
    "bound_to",
    "modified",
    "revalued",
    "schema_of_sample",
    "valued_by",
]

MAX_KEYS = 4
"""Keys of ``by``."""

MAX_GROUPS = 10_000
"""Groups of a table before its limit."""

SOURCE_KEYS = ("source", "other", "hearers")
"""Keys in ``by`` that come from sources, not from columns."""

Order = Literal["largest", "smallest", "key"]

_APPLY_S, _OPERATION_S = 5e-4, 5e-9  # of processor time; of a row and operation
_GRID = 128  # intervals of time on which a weight is read

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Modifiers:
    """Query modifiers, as texts.

    Attributes:
        of, where, weight: expressions. None: not modified.
        by: expressions for the group keys. Empty: no groups.
        limit: the maximum number of listed groups. None: all.
        order: "largest" or "smallest" result first, or by "key".
        set: a set expression over source names. None: all messages.
        versus: the condition of the part to compare with. None: no comparison.
        how: "difference" or "ratio" of the parts.

    Raises:
        ParameterError: there are too many keys, the order is unknown, or a limit has no keys.
    """

    of: str | None = None
    by: tuple[str, ...] = ()
    where: str | None = None
    weight: str | None = None
    limit: int | None = None
    order: Order = "largest"
    set: str | None = None
    versus: str | None = None
    how: Literal["difference", "ratio"] = "difference"

    def __post_init__(self) -> None:
        by: Any = self.by
        keys = [key.strip() for key in split_commas(by)] if isinstance(by, str) else by
        object.__setattr__(self, "by", tuple(keys))
        for name in ("of", "where", "weight", "set", "versus"):
            if (text := getattr(self, name)) is not None and not isinstance(text, str):
                raise ParameterError(f"{name} is {text!r:.80}; expected a text")
        if len(self.by) > MAX_KEYS or not all(isinstance(key, str) and key for key in self.by):
            raise ParameterError(
                f"by is {str(list(self.by))[:200]}; expected at most {MAX_KEYS} texts, none empty"
            )
        if self.how not in ("difference", "ratio"):
            raise ParameterError(f"how is {self.how!r:.80}; expected one of difference, ratio")
        if self.order not in get_args(Order):
            raise ParameterError(
                f"order is {self.order!r:.80}; expected one of {', '.join(get_args(Order))}"
            )
        limit = self.limit
        if limit is None:
            return
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_GROUPS:
            raise ParameterError(f"limit is {limit!r:.80}; expected 1 to {MAX_GROUPS}")

    def __bool__(self) -> bool:
        """Return whether anything is modified."""
        given = (self.of, self.by, self.where, self.weight, self.set, self.versus)
        return any(each for each in given)

    @property
    def of_sources(self) -> bool:
        """Whether they need one sketch for each source."""
        return self.set is not None or any(key in SOURCE_KEYS for key in self.by)

    @property
    def texts(self) -> list[str]:
        """The given expressions."""
        given = (self.of, self.where, self.weight, *self.by, self.versus)
        return [text for text in given if text]

    def with_more(self, more: Modifiers) -> Modifiers:
        """Combine both: conditions joined by ``and``, sets by ``&``, weights multiplied. Values and
        groups come from ``more`` if it has any.
        """
        both = [
            None if None in (a, b) else f"({a}){sign}({b})"
            for a, b, sign in (
                (self.where, more.where, " and "), (self.weight, more.weight, " * "),
                (self.set, more.set, " & "),
            )
        ]  # fmt: skip
        return Modifiers(
            of=more.of or self.of,
            by=more.by or self.by,
            where=both[0] or more.where or self.where,
            weight=both[1] or more.weight or self.weight,
            limit=more.limit,
            order=more.order,
            set=both[2] or more.set or self.set,
            versus=self._versus_with(more),
            how=self.how if more.versus is None else more.how,
        )

    def _versus_with(self, more: Modifiers) -> str | None:
        """Return the other part's condition: a side without one of its own has ``where``."""
        if self.versus is None and more.versus is None:
            return None
        sides = (each.where if each.versus is None else each.versus for each in (self, more))
        conditions = [each for each in sides if each is not None]
        return conditions[0] if len(conditions) == 1 else " and ".join(f"({c})" for c in conditions)

    def cost_s(self, rows: int) -> float:
        """Approximate processor time to apply them, in seconds."""
        if not self:
            return 0.0
        operations = min(MAX_OPERATIONS, sum(map(len, self.texts)))
        return _APPLY_S + rows * operations * _OPERATION_S

    def to_dict(self) -> dict[str, Any]:
        """Return the given modifiers."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given["by"] = list(self.by)
        for name, usual in (("order", "largest"), ("how", "difference")):
            if given[name] == usual:
                del given[name]
        return {name: value for name, value in given.items() if value not in (None, [])}

    def check(self, question: Question[Any]) -> None:
        """Reject modifiers that an aggregate does not accept.

        Raises:
            ParameterError: the message gives the reason and the remedy.
        """
        name = question.name
        if question.asked_of == "sources":
            named = ("where", "of", "weight", "versus")
            if columns := [each for each in named if getattr(self, each)]:
                raise ParameterError(
                    f"{name} compares sets of messages, and has no {', '.join(columns)}: use set"
                )
            keys = [key for key in self.by if key not in SOURCE_KEYS]
            if keys and len(keys) < len(self.by):
                raise ParameterError(
                    f"{name} has groups by {', '.join(SOURCE_KEYS)}, or by keys over time, not both"
                )
            return
        if question.asked_of == "series":
            refused = ("of", "weight", "set", "versus")
            if found := [each for each in refused if getattr(self, each)]:
                raise ParameterError(
                    f"{name} is read from complete series, so it has no {', '.join(found)}: use "
                    "where and by, which select series by their attributes"
                )
            return
        if question.asked_of != "rows" and self:
            given = ", ".join(self.to_dict())
            raise ParameterError(
                f"{name} is not computed from a sample of rows, so it has no {given}: where, of, "
                "by and weight need a sketch of the family 'decay' or 'integral', or a sampler"
            )
        if self.weight is not None and name in ("rate", "last"):
            because = (
                "divides by the integral of the decay" if name == "rate" else "is one observation"
            )
            raise ParameterError(f"{name} {because}, and has no weight: omit it")
        if self.of is not None and any(each.kind == "column" for each in question.arguments):
            raise ParameterError(
                f"{name} has its own columns, and no of: omit it, or write {name}(column, column)"
            )
        if self.of is not None and not ("values" in question.needs or name == "last"):
            raise ParameterError(
                f"{name} is not computed from a column, and has no of: omit it, or use where"
            )


def bound_to(modifiers: Modifiers, schema: Schema) -> dict[str, Bound | tuple[Bound, ...]]:
    """Bind the expressions in modifiers to the columns of a stream.

    Returns:
        The expressions by the modifier's name. ``by`` has a tuple.

    Raises:
        ParameterError: an expression cannot be parsed, or there are too many operations in all.
    """
    found: dict[str, Bound | tuple[Bound, ...]] = {}
    if modifiers.where is not None:
        found["where"] = bind("where", modifiers.where, schema, "truth")
    if modifiers.versus is not None:
        found["versus"] = bind("versus", modifiers.versus, schema, "truth")
    if modifiers.of is not None:
        found["of"] = bind("of", modifiers.of, schema)
    if modifiers.weight is not None:
        found["weight"] = bind("weight", modifiers.weight, schema, "number")
    if modifiers.by:
        found["by"] = tuple(bind("by", key, schema) for key in modifiers.by)
    each = [
        bound
        for entry in found.values()
        for bound in (entry if isinstance(entry, tuple) else (entry,))
    ]
    operations = sum(bound.operations for bound in each)
    if operations > MAX_OPERATIONS:
        raise ParameterError(
            f"where, of, by, weight and versus have {operations} operations together; expected at "
            f"most {MAX_OPERATIONS}"
        )
    return found


def modified(samples: Sequence[Sample], modifiers: Modifiers, schema: Schema) -> list[Sample]:
    """Return the samples for one query, one per hash function, with ``where`` and ``weight``
    applied. With ``versus`` they have the rows of both parts. Their values are still the stream's
    values, see :func:`revalued`.

    Args:
        samples: the drawn samples.
        modifiers: modifiers of the query.
        schema: columns of the stream.

    Raises:
        ParameterError: an expression cannot be parsed, or a weight is below 0 or infinite.

    Complexity: O(operations * n).
    """
    found = bound_to(modifiers, schema)
    weight = found.get("weight")
    conditions = [found[name] for name in ("where", "versus") if name in found]
    changes: list[Callable[[Sample], Sample]] = []
    if conditions and (modifiers.versus is None or modifiers.where is not None):
        changes.append(_filtering([each for each in conditions if isinstance(each, Bound)]))
    if isinstance(weight, Bound):
        changes.append(_weighing(weight))
    if not changes:
        return list(samples)

    def change(sample: Sample) -> Sample:
        for each in changes:
            sample = each(sample)
        return sample

    return changed(samples, change)


def revalued(sample: Sample, modifiers: Modifiers, schema: Schema) -> Sample:
    """Return a sample with the values from ``of``, or the sample itself without ``of``.

    Raises:
        ParameterError: an infinite value.
    """
    if modifiers.of is None:
        return sample
    of = bound_to(modifiers, schema)["of"]
    assert isinstance(of, Bound)
    bound = of

    def change(each: Sample) -> Sample:
        found = valued_by(each, bound)
        if each.whole is None:
            return found
        base = each.whole
        return replace(found, whole=lambda: valued_by(base(), bound))

    return sample.apply(change)


def _filtering(conditions: Sequence[Bound]) -> Callable[[Sample], Sample]:
    """Return the change that keeps rows for which one of some conditions holds."""

    def change(sample: Sample) -> Sample:
        table = SampleTable(sample)
        mask = np.any([each.holds(table) for each in conditions], axis=0)
        firsts, lasts = zip(*(each.times(sample.now) for each in conditions), strict=True)
        first = None if None in firsts else min(firsts)
        last = None if None in lasts else max(lasts)
        found = sample.only(mask, first=first, last=last, strata=_strata_of(sample, conditions))
        return replace(found, whole=lambda: sample)

    return change


def _strata_of(sample: Sample, conditions: Sequence[Bound]) -> npt.NDArray[np.bool_] | None:
    """Return the strata in which one of some conditions may hold. None: any."""
    if sample.strata is None:
        return None
    each = [sample.strata.that_may(condition) for condition in conditions]
    some = [strata for strata in each if strata is not None]
    return None if len(some) < len(each) else np.any(some, axis=0)


def _weighing(weight: Bound) -> Callable[[Sample], Sample]:
    def change(sample: Sample) -> Sample:
        factor = _factors(weight, SampleTable(sample))
        step, thinning, noted = sample.step, sample.thinning, sample.noted
        if step > 0.0:
            noted = (*noted, "weight-on-grid")
            if weight.names <= {"time", "age"} and sample.hits_within is not None and len(sample):
                step, thinning = _largest_weighed(weight, sample)
            else:
                step *= float(factor.max(initial=0.0)) if len(sample) else 1.0
        found = replace(sample.weighed(factor, step, thinning), noted=noted)
        if sample.whole is None:
            return found
        base = sample.whole
        return replace(found, whole=lambda: change(base()))

    return change


def _factors(weight: Bound, table: Any) -> Float64Array:
    """Return a weight for each row, 0 where it is null."""
    column: Column = weight(table)
    factor = np.nan_to_num(column.floats, nan=0.0, posinf=math.inf, neginf=-math.inf)
    if len(factor) and not (factor.min() >= 0.0 and factor.max() < math.inf):
        row = int(np.argmax(~((factor >= 0.0) & (factor < math.inf))))
        raise ParameterError(
            f"weight {weight.text!r} is {factor[row]:g} for a row of time "
            f"{int(table.column('time').data[row])}; expected finite numbers of 0 or more"
        )
    return np.asarray(factor)


class _Times:
    """A table that contains only times."""

    def __init__(self, times: npt.NDArray[np.int64], now: int) -> None:
        self.now = now
        self._columns = {"time": Column(times), "age": Column(now - times)}

    def __len__(self) -> int:
        return len(self._columns["time"].data)

    def column(self, name: str) -> Column:
        return self._columns[name]


def _largest_weighed(weight: Bound, sample: Sample) -> tuple[float, float]:
    """Return the largest hit over a time grid, each times the largest weight next to it."""
    assert sample.hits_within is not None
    ends = np.linspace(int(sample.times.min()), sample.now, _GRID + 1)
    times = np.unique(ends.astype(np.int64))
    factor = _factors(weight, _Times(times, sample.now))
    if len(times) == 1:
        times, factor = np.repeat(times, 2), np.repeat(factor, 2)
    steps, thinnings = sample.hits_within(times[:-1], times[1:])
    steps = steps * np.maximum(factor[:-1], factor[1:])
    place = int(steps.argmax())
    return float(steps[place]), float(thinnings[place])


def valued_by(sample: Sample, of: Bound) -> Sample:
    """Return the same rows with the values of an expression."""
    records = sample.records
    if records is not None and dict(records.types).get(of.column) in ("float64", "int64"):
        return sample.valued_by_column(of.column)
    column = of(SampleTable(sample))
    if of.kind == "text":
        return _named(sample, column)
    null = column.null
    if of.kind == "time":
        null = column.data == NULL_TIME if null is None else null | (column.data == NULL_TIME)
    data = column.data
    if data.dtype == np.bool_:
        data = data.astype(np.float64)
    if data.dtype.kind == "f" and np.isinf(data).any():
        row = int(np.isinf(data).argmax())
        raise ParameterError(
            f"of {of.text!r} is {data[row]} for a row of time {int(sample.times[row])}; expected "
            "finite numbers, or null"
        )
    kind = "int64" if data.dtype.kind in "iu" else "float64"
    values: Any = data if null is None else np.ma.masked_array(np.where(null, 0, data), null)
    return sample.valued_by(encode_values(values, kind), kind)


def _named(sample: Sample, column: Column) -> Sample:
    """Return the sample with texts as values. Their numbers are codes, in text order."""
    order = sorted(range(len(column.texts)), key=column.texts.__getitem__)
    place = np.empty(len(order) + 1, np.int64)
    place[order] = np.arange(len(order))
    place[-1] = MISSING_KEY
    labels = Labels(np.arange(len(order)), tuple(column.texts[k] for k in order))
    return sample.valued_by(place[column.data], "label", labels)


def schema_of_sample(sample: Sample) -> Schema:
    """Return the columns of the stream that a sample was drawn from."""
    params: Any = sample.params
    value_type = "label" if sample.labels is not None else params.value_type
    columns = () if sample.records is None else sample.records.types
    return schema_of(value_type, params.time_unit, columns)
