"""The stream of section 5.1 of Cormode, Tirthapura and Xu, from a simulated web log.

There the stream is made of the requests of one day to a large web site. That log is not shipped, so
the requests themselves are simulated; what turns them into a stream, STEPS 1 to 4, is the paper's:

1. An id is second of the day, client modulo 100 and server modulo 100, their digits put together;
   the value is the size modulo 10^9, the weight the object modulo 1000. Weight 0 occurs, as there,
   and contributes nothing.
2. Copies, which are elements of equal id, all get the value and the weight of the first one.
3. The stream is cut into one substream for each server, and the next element is taken from the head
   of a substream chosen at random among those that are not empty.
4. The processing time is the element's time plus 0, 1 or 2 seconds, never less than the one before.

What is simulated: visitors ask one server for several objects within one second, which makes the
copies. The rate follows the day; servers share the load evenly, as behind a balancer, so that ages
at processing are seconds to a few minutes, as the paper reports; objects are asked for with
frequencies by Zipf's law and have log-normal sizes; some answers are empty ("not modified").

A full day has the paper's 32,355,332 elements. A shorter stream is the end of a day at the same
rate, so that a window of 200 s holds the same number of elements.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["FULL_ROWS", "ID_BITS", "MAX_WEIGHT", "Columns", "Distinct", "distinct", "simulate"]

Int64Array = npt.NDArray[np.int64]

FULL_ROWS = 32_355_332
MAX_WEIGHT = 999
ID_BITS = 30  # ids up to 863,999,999

_DAY_S = 86_400
_SERVERS = 30
_CLIENTS = 100
_OBJECTS = 90_000
# Fixes the share of distinct elements: the paper's day has 75.7 %.
_REQUESTS_IN_VISIT = 1.253
_SWING = 0.3  # of the rate over the day, relative to its mean
_NOT_MODIFIED = 0.2  # share of empty answers


class Columns(NamedTuple):
    """A stream in order of arrival: what a sketch is fed, and the clock beside it.

    All columns are int64[n]: ``clocks`` is the processing time of each element, non-decreasing.
    """

    values: Int64Array
    weights: Int64Array
    timestamps: Int64Array
    ids: Int64Array
    clocks: Int64Array

    def rows(self, start: int, stop: int) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """Elements start..stop - 1, as a sketch's ``update`` takes them."""
        return tuple(column[start:stop] for column in self[:4])  # type: ignore[return-value]


class Distinct(NamedTuple):
    """Distinct observations of weight 1 or more, each by its latest copy; int64[m] each."""

    values: Int64Array
    weights: Int64Array
    timestamps: Int64Array


def simulate(rows: int = FULL_ROWS, *, seed: int = 1) -> Columns:
    """The stream's first to last element.

    Args:
        rows: number of elements, copies included.
        seed: fixes everything.
    """
    rng = np.random.default_rng([51, seed])
    seconds, client, server = _requests(rng, rows)
    value, weight = _answers(rng, rows)
    ids = seconds * 10_000 + client * 100 + server
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    representative = first[inverse]
    order = _interleaved(rng, server)
    timestamps = seconds[order]
    return Columns(
        values=value[representative][order],
        weights=weight[representative][order],
        timestamps=timestamps,
        ids=ids[order],
        clocks=np.maximum.accumulate(timestamps + rng.integers(0, 3, rows)),
    )


def distinct(columns: Columns) -> Distinct:
    """What the exact answers are computed from. O(n log n)."""
    order = np.lexsort((columns.values, columns.timestamps, columns.weights, columns.ids))
    ids, weights = columns.ids[order], columns.weights[order]
    last = np.ones(len(ids), dtype=bool)
    last[:-1] = (ids[1:] != ids[:-1]) | (weights[1:] != weights[:-1])
    kept = order[last & (weights > 0)]
    return Distinct(columns.values[kept], columns.weights[kept], columns.timestamps[kept])


def _requests(rng: np.random.Generator, rows: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Second, client and server of each request, in order of time."""
    duration = max(1, round(rows * _DAY_S / FULL_ROWS))
    seconds = np.arange(_DAY_S - duration, _DAY_S)
    rate = 1 + _SWING * np.sin(2 * np.pi * seconds / _DAY_S)
    # One visit more than are ever needed; the last one is cut short.
    requests = rng.geometric(1 / _REQUESTS_IN_VISIT, rows)
    visits = 1 + int(np.searchsorted(np.cumsum(requests), rows))
    requests = requests[:visits]
    requests[-1] -= int(requests.sum()) - rows
    times = np.repeat(seconds, rng.multinomial(visits, rate / rate.sum()))
    clients = rng.integers(0, _CLIENTS, visits)
    servers = rng.integers(0, _SERVERS, visits)
    return (
        np.repeat(times, requests),
        np.repeat(clients, requests),
        np.repeat(servers, requests),
    )


def _answers(rng: np.random.Generator, rows: int) -> tuple[Int64Array, Int64Array]:
    """Value (size) and weight (object) of each request."""
    popularity = 1 / np.arange(1, _OBJECTS + 1) ** 0.8
    steps = np.cumsum(popularity / popularity.sum())
    rank = np.minimum(np.searchsorted(steps, rng.random(rows)), _OBJECTS - 1)
    object_of_rank = rng.permutation(_OBJECTS)
    size_of_rank = np.exp(rng.normal(np.log(1500), 1.2, _OBJECTS)).astype(np.int64)
    size = np.where(rng.random(rows) < _NOT_MODIFIED, 0, size_of_rank[rank])
    return size % 10**9, object_of_rank[rank] % (MAX_WEIGHT + 1)


def _interleaved(rng: np.random.Generator, server: Int64Array) -> Int64Array:
    """Positions in the order of STEP 3.

    Each substream's elements get the times of a Poisson process of rate 1, and all are sorted by
    these. Processes without memory: whichever are still running, each is as likely as any other to
    be next, which is the choice among the substreams that are not empty.
    """
    by_server = np.argsort(server.astype(np.int16), kind="stable")
    sizes = np.bincount(server)
    waits = rng.exponential(size=len(server))
    moments = np.cumsum(waits)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    moments -= (moments - waits)[starts]
    return by_server[np.argsort(moments)]
