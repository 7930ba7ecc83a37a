"""States to encode, built without the sketch: by the definition, or fast where all rows differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import definition
import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.observations import encode_values
from decaysketch.core.params import SketchParams
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.querytime import wire
from decaysketch.querytime.state import SketchState

MISSING = -(2**63)


def state_of(params: SketchParams, copies: Iterable[Sequence[int]], copy: int = 0) -> SketchState:
    """The state of copies (value key, weight, time, id) under one hash, by ``definition.py``."""

    def level(id_: int, weight: int) -> int:
        return int(minhit.top_levels(params, [id_], [weight], copy=copy)[0])

    built = definition.state(copies, level, params.capacity, params.levels)
    columns = np.array(built.rows, dtype=np.int64).reshape(-1, 4).T
    return SketchState(
        params,
        *map(np.ascontiguousarray, columns),
        np.array(built.levels, dtype=np.int8),
        np.array(built.watermarks, dtype=np.int64),
        copy,
    )


def states_of(params: SketchParams, copies: Iterable[Sequence[int]]) -> list[SketchState]:
    """The states of copies (value key, weight, time, id), one for each hash."""
    seen = list(copies)
    return [state_of(params, seen, copy) for copy in range(params.samples)]


def state_of_columns(
    params: SketchParams,
    values: npt.ArrayLike,
    weights: npt.ArrayLike,
    times: npt.ArrayLike,
    ids: npt.ArrayLike,
) -> SketchState:
    """The state of many observations, no two of which share id and weight."""
    columns = [encode_values(values, params.value_type)]
    columns += [np.asarray(column, dtype=np.int64) for column in (weights, times, ids)]
    levels = minhit.top_levels(params, columns[3], columns[1])
    watermarks = np.full(params.levels + 1, NO_WATERMARK, dtype=np.int64)
    for i in range(params.levels + 1):
        ranked = np.sort(columns[2][levels >= i])[::-1]
        if len(ranked) > params.capacity:
            watermarks[i] = ranked[params.capacity]
    order = np.lexsort((-columns[1], -columns[3], -columns[2]))
    order = order[columns[2][order] > watermarks[levels[order]]]
    return SketchState(
        params, *(np.ascontiguousarray(c[order]) for c in columns), levels[order], watermarks
    )


def decode_one(blob: Any, **options: Any) -> SketchState:
    """The state of a sketch of one copy."""
    [state] = wire.decode(blob, **options)
    return state


def columns_of(state: SketchState) -> list[list[int]]:
    """Everything of a state but its parameters, comparable by ==."""
    return [
        getattr(state, name).tolist()
        for name in ("value_keys", "weights", "times", "ids", "levels", "watermarks")
    ]


def web_log(rows: int, seed: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Like the requests of Cormode, Tirthapura and Xu, section 5.1: (values, weights, times, ids).

    374 requests a second of 100 clients at 26 servers; the id is made of second, client and server,
    value and weight (1..999) are functions of it.
    """
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, rows // 374 + 1, rows))
    servers = random.choice(26, rows, p=_zipf(26, 0.35))
    clients = random.choice(100, rows, p=_zipf(100, 0.9))
    ids, first = np.unique(times * 10_000 + clients * 100 + servers, return_index=True)
    weights = random.integers(1, 1000, len(ids))
    values = np.exp(2 + 8 * random.random(len(ids)) ** 2).astype(np.int64) + weights // 10
    return values, weights, times[first], ids


def _zipf(n: int, exponent: float) -> npt.NDArray[np.float64]:
    shares = 1 / np.arange(1, n + 1) ** exponent
    return shares / shares.sum()
