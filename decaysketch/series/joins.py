"""As-of join for two series streams: their values at the same time.

Both draw an entity's level from its id and the seed, so they sample the same entities. Series are
joined if they have the same entity, and equal texts in each attribute that both streams declare. A
*joint piece* is a time span in which both values are known and do not change. Each value holds from
its reading to the next one of its series, at most for the validity.

*Bands.* A piece has its x reading in band b, where its entity has weight v, and its y reading in
band c, with weight w. It is read if the entity's hash U is below ``2^64 min(v 2^-b, w 2^-c)``.
Given all other entities, a sampled entity's bands are fixed. So the piece counts 1 / p with
``p = min(1, v 2^-b, w 2^-c)``, and estimates are unbiased, also for different capacities and
weights. ``-log2 p`` is the joint band. For two pieces these events are nested, so the variance in
:mod:`~decaysketch.query.clusters` holds for joint bands.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.params import differing
from decaysketch.core.records import Records
from decaysketch.errors import IncompatibleSketchError, ParameterError
from decaysketch.series.params import SeriesParams
from decaysketch.series.pieces import FAR, Pieces, after

__all__ = ["Joined", "as_of", "check_joinable"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]

_MOST_PIECES, _FEWEST_REFUSED = 8, 1 << 17
"""Rows of joined series per row of the streams, beyond which a join is rejected, and the number up
to which it is not."""

_MAY_DIFFER = frozenset({"resolution", "attributes", "value_type", "max_weight"})


def check_joinable(ours: SeriesParams, theirs: SeriesParams) -> None:
    """Reject streams that sample different entities, or count time differently.

    Raises:
        IncompatibleSketchError: another seed, id key, ``id_bits`` or time unit.
    """
    found = differing(ours.to_dict(), theirs.to_dict())
    fields = {name: pair for name, pair in found.items() if name not in _MAY_DIFFER}
    if fields:
        raise IncompatibleSketchError(
            fields,
            "A join needs streams that sample the same entities and count the same time: build one "
            "of them again with the other's " + ", ".join(fields),
        )


class Joined(NamedTuple):
    """Joint pieces.

    Attributes:
        x, y: float64[n], both values.
        begins, ends: int64[n], times. ``FAR`` if the piece is open.
        entities: int64[n], entity number, one per entity id.
        bands: int64[n], ``-log2`` of the probability that the piece is read, 0 or more.
    """

    x: Float64Array
    y: Float64Array
    begins: Int64Array
    ends: Int64Array
    entities: Int64Array
    bands: Int64Array


def as_of(ours: Pieces, theirs: Pieces, now: int, validity: float | None) -> Joined:
    """Return the joint pieces that begin before a time. O(rows log rows).

    Args:
        ours: rows with the x values.
        theirs: rows with the y values.
        now: the time.
        validity: how long a value holds, unless the next one comes before. None: until then.

    Raises:
        ParameterError: entities have so many series in both streams that the joint pieces outnumber
            the rows by far.
    """
    first, second, entities = _pairs(ours, theirs)
    (x_rows, x_pair), (y_rows, y_pair) = _rows_of(ours, first), _rows_of(theirs, second)
    # All readings of a pair of series by time. A piece begins at each.
    pair = np.concatenate([x_pair, y_pair])
    times = np.concatenate([ours.times[x_rows], theirs.times[y_rows]])
    order = np.lexsort((times, pair))
    pair, begins, of_x = pair[order], times[order], order < len(x_rows)
    begin = np.diff(pair, prepend=-1) != 0
    ends = np.where(np.append(begin[1:], True)[: len(pair)], FAR, np.append(begins[1:], FAR))
    x_last, y_last = _latest(of_x, begin), _latest(~of_x, begin)
    known = (x_last >= 0) & (y_last >= 0) & (begins < now)
    x, y = x_rows[order[x_last[known]]], y_rows[order[y_last[known]] - len(x_rows)]
    begins, pair = begins[known], pair[known]
    ends = np.minimum(ends[known], _valid_until(ours, x, validity))
    ends = np.minimum(ends, _valid_until(theirs, y, validity))
    bands = np.maximum(np.maximum(_bands(ours, x), _bands(theirs, y)), 0)
    read = (begins < ends) & _is_read(ours, x) & _is_read(theirs, y)
    return Joined(
        ours.values[x[read]], theirs.values[y[read]], begins[read], ends[read],
        entities[pair[read]], bands[read],
    )  # fmt: skip


def _pairs(ours: Pieces, theirs: Pieces) -> tuple[Places, Places, Places]:
    """Return the joined series: their numbers in either stream, and their entity's number.
    O(s log t) for s series here and t in the other stream, and O(series of common entities).
    """
    ids, others = (each.state.entities[each.starts] for each in (ours, theirs))
    distinct, entities = np.unique(ids, return_inverse=True)
    begins, ends = (np.searchsorted(others, distinct, side=side) for side in ("left", "right"))
    second = _spans(begins, ends - begins)
    entities_there = np.repeat(np.arange(len(distinct)), ends - begins)
    here, there = _with_texts(
        entities, entities_there, ours.state.attributes, theirs.state.attributes, second
    )
    _check_count(ours.rows, here, theirs.rows[second], there)
    order = np.argsort(there, kind="stable")
    begins = np.searchsorted(there[order], here)
    found = np.searchsorted(there[order], here, side="right") - begins
    first = np.repeat(np.arange(len(ids)), found)
    return first, second[order[_spans(begins, found)]], entities[first]


def _with_texts(
    here: Places, there: Places, ours: Records | None, theirs: Records | None, chosen: Places
) -> tuple[Places, Places]:
    """Return a key for each series. Keys are equal if entities are, and all common attributes.

    Args:
        here, there: entity numbers.
        ours, theirs: attributes by series, if streams have any.
        chosen: the other stream's series.
    """
    if ours is None or theirs is None:
        return here, there
    for name in sorted(dict(ours.types).keys() & dict(theirs.types).keys()):
        columns = ours.column(name), theirs.column(name)
        texts = sorted({text for column in columns for text in column.texts})
        rank = {text: place for place, text in enumerate(texts)}
        ranks = [np.array([*map(rank.__getitem__, each.texts), len(texts)]) for each in columns]
        numbers = [each[np.maximum(c.keys, -1)] for each, c in zip(ranks, columns, strict=True)]
        keys = np.concatenate([here, there]) * (len(texts) + 1)
        keys += np.concatenate([numbers[0], numbers[1][chosen]])
        both = np.unique(keys, return_inverse=True)[1]
        here, there = both[: len(here)], both[len(here) :]
    return here, there


def _check_count(rows: Places, here: Places, others: Places, there: Places) -> None:
    """Reject a join with too many rows, before any is computed.

    Args:
        rows, others: the row count for each series here, and in the other stream.
        here, there: keys. Series with equal keys are joined.
    """
    size = int(max(here.max(initial=0), there.max(initial=0))) + 1
    joined = sum(
        float(np.bincount(keys, counts, size) @ np.bincount(other, minlength=size))
        for keys, counts, other in ((here, rows, there), (there, others, here))
    )
    if joined > max(_MOST_PIECES * int(rows.sum() + others.sum()), _FEWEST_REFUSED):
        raise ParameterError(
            f"the same entities have {len(here)} series here and {len(there)} in other, and a "
            f"join of each pair has {joined:.0f} rows; declare an attribute in both streams to "
            "join series by it, or select series with where"
        )


def _rows_of(pieces: Pieces, series: Places) -> tuple[Places, Places]:
    """Return all rows in series, one series after the other, and for each row its series."""
    lengths = pieces.rows[series]
    rows = _spans(pieces.starts[series], lengths)
    return rows, np.repeat(np.arange(len(series)), lengths)


def _spans(begins: Places, lengths: Places) -> Places:
    """Return all places in spans, one span after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(begins - before, lengths) + np.arange(int(lengths.sum()))


def _latest(chosen: BoolArray, begin: BoolArray) -> Places:
    """Return for each place the latest chosen one since the last beginning, or -1."""
    places = np.arange(len(chosen))
    found = np.maximum.accumulate(np.where(chosen, places, -1))
    return np.where(found >= np.maximum.accumulate(np.where(begin, places, 0)), found, -1)


def _valid_until(pieces: Pieces, rows: Places, validity: float | None) -> Int64Array:
    """Return the time until which a row's value holds at most. A missing one never holds."""
    ends = np.full(len(rows), FAR) if validity is None else after(pieces.times[rows], validity)
    return np.where(pieces.missing[rows], -FAR, ends)


def _bands(pieces: Pieces, rows: Places) -> Int64Array:
    """Return ``-log2 p`` for the probability that a row's entity is in the row's band."""
    shifts = np.frexp(pieces.weights)[1].astype(np.int64) - 1
    found: Int64Array = pieces.bands(pieces.times[rows]) - shifts[pieces.entity[rows]]
    return found


def _is_read(pieces: Pieces, rows: Places) -> BoolArray:
    found: BoolArray = pieces.levels[pieces.entity[rows]] >= pieces.bands(pieces.times[rows])
    return found
