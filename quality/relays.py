"""What a tree of relays saves: bytes that cross to the hub, for each flush age, on a real log.

    python -m quality.relays [LOG]

Gateways of a log of deliveries stand at two sites. Each posts, after every so many seconds, a
sketch of what it heard since; a site joins what its gateways posted within its own flush age, a
relay what the sites did. A join that changes nothing is not sent. Figures are shares of what the
gateways posted, all of which crosses to the hub where there are neither sites nor relay. Time is
that of the log: nothing here depends on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

import decaysketch as ds
from demo.relays import Heard, heard
from quality.ecm.logs import FOLDER

__all__ = ["FLUSH_S", "Crossed", "measure", "table"]

FLUSH_S: Final = (10.0, 60.0, 600.0)
PARAMS: Final = ds.SketchParams(
    max_weight=1, id_bits=48, capacity=4_000, seed=7, time_unit="us", value_type="float64"
)
Posts = list[tuple[int, ds.DecaySketch]]  # in which flush, what


@dataclass(frozen=True, slots=True)
class Crossed:
    """Bytes of all posts of one flush age, by the wire that they crossed."""

    flush_s: float
    gateways: int
    sites: int
    relay: int


def measure(log: Heard, flush_s: float) -> Crossed:
    """Send a log through the tree; checks that the hub has every message once, and only once."""
    flush = (log.arrivals - log.arrivals[0]) // int(flush_s * 1e6)
    gateways = {
        int(gateway): list(_of_gateway(log, flush, int(gateway)))
        for gateway in np.unique(log.gateways)
    }
    sites = [
        _passed_on(
            post for gateway, posts in gateways.items() if gateway % 2 == side for post in posts
        )
        for side in (0, 1)
    ]
    relay = _passed_on(post for posts in sites for post in posts)
    hub = ds.merge([sketch for _, sketch in relay])
    assert hub.to_bytes() == log.sketch(slice(None), PARAMS).to_bytes()
    return Crossed(
        flush_s, *map(_size, ([p for posts in gateways.values() for p in posts],
                              [p for posts in sites for p in posts], relay))
    )  # fmt: skip


def _of_gateway(
    log: Heard, flush: np.ndarray, gateway: int
) -> Iterator[tuple[int, ds.DecaySketch]]:
    mine = np.nonzero(log.gateways == gateway)[0]
    cuts = np.nonzero(np.diff(flush[mine]))[0] + 1
    for some in np.split(mine, cuts):
        yield int(flush[some[0]]), log.sketch(some, PARAMS)


def _passed_on(posts: Iterable[tuple[int, ds.DecaySketch]]) -> Posts:
    """What an aggregator passes on of what it takes, one sketch for each flush."""
    taken: dict[int, list[ds.DecaySketch]] = {}
    for number, sketch in posts:
        taken.setdefault(number, []).append(sketch)
    state, out = ds.DecaySketch(PARAMS), []
    before = state.digest()
    for number in sorted(taken):
        delta = ds.merge(taken[number])
        state.merge(delta)
        if (after := state.digest()) != before:
            out.append((number, delta))
            before = after
    return out


def _size(posts: Posts) -> int:
    return sum(len(sketch.to_bytes()) for _, sketch in posts)


def table(log: Heard, flushes: Iterable[float] = FLUSH_S) -> str:
    """The savings of each flush age, as lines of text."""
    copies = len(log.ids) / len(np.unique(log.ids))
    lines = [
        f"{len(log.ids):,} deliveries, {copies:.1f} of each message, by "
        f"{len(np.unique(log.gateways))} gateways at two sites; capacity {PARAMS.capacity:,}",
        f"{'flush s':>8}{'by gateways':>14}{'by sites':>14}{'by the relay':>14}{'of all':>8}",
    ]
    for flush_s in flushes:
        found = measure(log, flush_s)
        lines.append(
            f"{flush_s:>8g}{found.gateways:>14,}{found.sites:>14,}{found.relay:>14,}"
            f"{found.relay / found.gateways:>8.1%}"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the table."""
    path = Path(arguments[0]) if arguments else FOLDER / "deliveries" / "ble_set2.parquet"
    if not path.exists():
        print(f"there is no log {path}: nothing is measured")
        return 0
    print(table(heard(path, PARAMS)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
