"""The streams that are measured.

``web_log`` imitates the stream of Cormode, Tirthapura and Xu, section 5.1, made there from one day
of web requests: an id is second, client and server put together, so that about a quarter of the
elements are copies; each server's elements are in order and the servers are interleaved with lags.
``random_ids`` is the same with 40-bit random ids. ``wifi`` is a real log of probe requests at two
receivers (``../shared/data/deliveries``); None where that folder is absent.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import decaysketch as ds

Int64Array = npt.NDArray[np.int64]

WIFI_LOG = Path("../shared/data/deliveries/wifi_two_receivers.parquet")

_REQUESTS_PER_SECOND = 374  # 32.4 M in a day
_SERVERS = 26
_CLIENTS = 100  # client ids are taken modulo 100


class Stream(NamedTuple):
    """Columns in order of arrival, and the parameters that fit them."""

    params: ds.SketchParams
    values: Int64Array
    weights: Int64Array
    timestamps: Int64Array
    ids: Int64Array

    def rows(self, start: int, stop: int) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """The columns of a batch, as ``DecaySketch.update`` takes them."""
        return tuple(column[start:stop] for column in self[1:])  # type: ignore[return-value]


def _hash_of(ids: Int64Array, salt: int) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1) that depend on the id alone, so that copies agree."""
    words = ids.astype(np.uint64) + np.uint64(salt)
    words *= np.uint64(0x9E3779B97F4A7C15)
    words ^= words >> np.uint64(29)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(32)
    return (words >> np.uint64(11)).astype(np.float64) / (1 << 53)


def web_log(rows: int, seed: int = 1) -> Stream:
    """Section 5.1's stream: seconds of a day, weights 1..999, 30-bit ids, a quarter copies."""
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.integers(0, max(1, rows // _REQUESTS_PER_SECOND), rows))
    popularity = 1 / np.arange(1, _SERVERS + 1) ** 0.35
    server = rng.choice(_SERVERS, rows, p=popularity / popularity.sum())
    activity = 1 / np.arange(1, _CLIENTS + 1) ** 0.9
    client = rng.choice(_CLIENTS, rows, p=activity / activity.sum())
    ids = seconds * 10_000 + client * 100 + server
    lag = rng.integers(0, 31, _SERVERS)
    order = np.argsort(seconds + lag[server] + 10 * rng.random(rows), kind="stable")
    ids, seconds = ids[order], seconds[order]
    weights = 1 + (_hash_of(ids, 1) * 999).astype(np.int64)
    values = np.exp(2 + 8 * _hash_of(ids, 2) ** 2).astype(np.int64) + weights // 10
    params = ds.SketchParams(max_weight=999, id_bits=30, seed=5, value_type="int64")
    return Stream(params, values, weights, seconds, ids)


def random_ids(rows: int, seed: int = 1) -> Stream:
    """The same with ids replaced by random 40-bit numbers, one for each id."""
    stream = web_log(rows, seed)
    ids = (_hash_of(stream.ids, 3) * (1 << 40)).astype(np.int64)
    params = ds.SketchParams(max_weight=999, id_bits=40, seed=5, value_type="int64")
    return Stream(params, *stream[1:4], ids)


def wifi() -> Stream | None:
    """The real Wi-Fi log in whole seconds: signal strength as value, weight 1, 40-bit ids."""
    if not WIFI_LOG.exists():
        return None
    import pyarrow.parquet as pq

    table = pq.read_table(WIFI_LOG, columns=["event_us", "source", "msg", "value"])
    event, source, message, value = (column.to_numpy() for column in table.columns)
    params = ds.SketchParams(max_weight=1, id_bits=40, seed=5, value_type="int64")
    return Stream(
        params,
        value.astype(np.int64),
        np.ones(len(value), np.int64),
        event // 1_000_000,
        ds.observation_ids(source, message, params=params),
    )
