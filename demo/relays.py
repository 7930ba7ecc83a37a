"""``python -m demo.relays``: two sites, a relay and a hub on this machine.

The program prints the bytes that cross each connection.

    gateways --> north --\
                          valley --> hub
    gateways --> south --/

Several gateways of both sites hear every message. Each gateway posts its messages to its site, and
each aggregator forwards its merged content. So a duplicate crosses only the connections below the
first aggregator that has another duplicate. The hub returns the results for every message once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

import decaysketch as ds
from decaysketch.client.posting import Poster
from decaysketch.families import recipe_of
from demo.service import PROJECT, STREAM, Aggregator, running_aggregator

__all__ = ["Heard", "heard", "main", "simulated"]

_FOLDER: Final = PROJECT / "deploy" / "relay"
_GATEWAYS, _HEARS = 6, 0.7
_PATIENCE_S: Final = 600.0  # for programs that hang
_COLUMNS: Final = ["arrival_us", "event_us", "source", "msg", "path", "value"]


@dataclass(frozen=True)
class Heard:
    """Deliveries in the order in which they came; columns of the same length."""

    arrivals: npt.NDArray[np.int64]
    ids: npt.NDArray[Any]
    times: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    gateways: npt.NDArray[np.int64]

    def sketch(self, chosen: Any, params: ds.SketchParams) -> ds.DecaySketch:
        """Of some of them."""
        sketch = ds.DecaySketch(params)
        sketch.update(self.values[chosen], 1, self.times[chosen], self.ids[chosen])
        return sketch


def simulated(messages: int) -> Heard:
    """Messages of which each gateway hears most, one after the other."""
    draw = np.random.default_rng(5)
    message, gateway = np.nonzero(draw.random((messages, _GATEWAYS)) < _HEARS)
    times = 1_700_000_000_000_000 + 100_000 * message
    arrivals = times + draw.exponential(3e5, len(times)).astype(np.int64)
    values = np.round(20 + 5 * np.sin(message / 50), 1)
    order = np.argsort(arrivals, kind="stable")
    return Heard(
        arrivals[order], message[order].astype(np.uint64), times[order], values[order],
        gateway[order],
    )  # fmt: skip


def heard(log: Path, params: ds.SketchParams) -> Heard:
    """Read a delivery log, as ``python -m demo`` does."""
    table = pq.read_table(log, columns=_COLUMNS).sort_by("arrival_us")
    column = {name: table[name].combine_chunks() for name in _COLUMNS}
    times = column["event_us"].fill_null(0).to_numpy()
    arrival = column["arrival_us"].to_numpy()
    values = column["value"].fill_null(0.0).to_numpy()
    return Heard(
        arrival,
        ds.observation_ids(column["source"].to_numpy(), column["msg"].to_numpy(), params=params),
        np.where(times == 0, arrival, times).astype(np.int64),
        values.astype(np.float64),
        column["path"].to_numpy().astype(np.int64),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tree. The status is 0 only if the hub has the expected content."""
    parser = argparse.ArgumentParser(
        prog="python -m demo.relays", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--log", type=Path, help="a log of deliveries; simulated if not given")
    parser.add_argument("--messages", type=int, default=3000, help="simulated (%(default)s)")
    parser.add_argument("--rounds", type=int, default=12, help="posts of a gateway (%(default)s)")
    parser.add_argument("--flush-s", type=float, default=0.5, help="of each relay (%(default)s)")
    options = parser.parse_args(arguments)
    params = ds.SketchParams(max_weight=1, id_bits=48, seed=7, time_unit="us", value_type="float64")
    log = simulated(options.messages) if options.log is None else heard(options.log, params)
    with tempfile.TemporaryDirectory(prefix="decaysketch-relays-") as folder, ExitStack() as stack:

        def serve(name: str, upstream: Aggregator | None = None, config: str = "") -> Aggregator:
            more = ["--auth", "off"]
            if upstream is not None:
                text = (_FOLDER / config).read_text()
                kept = [line for line in text.splitlines() if line.startswith("upstream_check_s")]
                kept.append(f"upstream_flush_s = {options.flush_s}")
                path = Path(folder) / f"{name}.toml"
                path.write_text("\n".join(kept) + "\n")
                more += ["--config", str(path), "--upstream", upstream.url]
                more += ["--upstream-source", name]
            found = stack.enter_context(running_aggregator(Path(folder) / name, more=more))
            with httpx2.Client(base_url=found.url, trust_env=False, timeout=60) as client:
                Poster(client, STREAM).create_stream(recipe_of(params))
            return found

        hub = serve("hub")
        valley = serve("valley", hub, "relay.toml")
        sites = [serve(name, valley, "site.toml") for name in ("north", "south")]
        for part in np.array_split(np.arange(len(log.ids)), options.rounds):
            for gateway in np.unique(log.gateways[part]):
                mine = part[log.gateways[part] == gateway]
                blob = log.sketch(mine, params).to_bytes()
                sites[gateway % 2].post(f"gateway-{gateway}", blob)
            time.sleep(options.flush_s)
        whole = log.sketch(slice(None), params)
        expected, give_up = whole.to_bytes(), time.monotonic() + _PATIENCE_S
        while hub.merged_sketch() != expected and time.monotonic() < give_up:
            time.sleep(0.1)
        _tell(log, options.rounds, [("north", sites[0]), ("south", sites[1])], valley, hub)
        return _compare(log, hub, expected)


def _tell(
    log: Heard, rounds: int, sites: Sequence[tuple[str, Aggregator]], valley: Aggregator,
    hub: Aggregator,
) -> None:  # fmt: skip
    messages = len(np.unique(log.ids))
    print(
        f"{len(log.ids):,} deliveries of {messages:,} messages by "
        f"{len(np.unique(log.gateways))} gateways, {rounds} posts of each"
    )
    print(f"{'':24}{'posts':>7}{'bytes':>12}")
    crossed = {f"gateways to {name}": _taken(site) for name, site in sites}
    crossed["sites to valley"] = _taken(valley)
    crossed["valley to hub"] = _taken(hub)
    for wire, (posts, size) in crossed.items():
        print(f"{wire:24}{posts:>7,}{size:>12,}")
    below = sum(crossed[f"gateways to {name}"][1] for name, _ in sites)
    print(
        f"of the bytes that gateways posted, {crossed['valley to hub'][1] / below:.1%} crossed to "
        "the hub"
    )


def _taken(aggregator: Aggregator) -> tuple[int, int]:
    names = ("decaysketch_posts_total", "decaysketch_posted_bytes_total")
    posts, size = map(aggregator.counted, names)
    return posts, size


def _compare(log: Heard, hub: Aggregator, expected: bytes) -> int:
    """Return 0 if the hub's results are right for every message once, else 1."""
    now = int(log.times.max())
    width = (now - int(log.times.min())) // 2
    sketch = ds.DecaySketch.from_bytes(hub.merged_sketch())
    said = sketch.count(ds.decay.window(width), now=now)
    inside = log.times >= now - width
    true, naive = len(np.unique(log.ids[inside])), int(np.count_nonzero(inside))
    print(
        f"messages of the second half: the hub says {said.value:,.0f}"
        f"{' (exact)' if said.exact else f' ({said.lower:,.0f} to {said.upper:,.0f})'}, "
        f"true are {true:,}; counting every copy says {naive:,}"
    )
    same = hub.merged_sketch() == expected
    print(f"the hub holds, to the byte, a sketch of every message once: {'yes' if same else 'NO'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
