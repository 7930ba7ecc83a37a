"""Functions across sources as Prometheus gauges, from the last look of this process.

A missing value is NaN. The label ``kind`` is the kind of the function. Messages and arrivals begin
at 0 with another definition. Prometheus treats this as a reset.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import nan
from typing import Final

from prometheus_client.core import Metric

from api.monitors.functions import Seen
from api.service.scrape_metrics import text_of

__all__ = ["functions_exposition"]

_PREFIX: Final = "decaysketch_function"
_GAUGES: Final = {
    "certain": "Whether the guarantee of a function across sources is valid now",
    "value": "Value of a function across sources",
    "low": "Lower bound of the value while it is certain",
    "high": "Upper bound of the value while it is certain",
    "frequent_keys": "Number of frequent keys",
    "silent_sources": "Sources without a report within the lease",
    "posts": "Whether sources post their sketches, because messages cost more",
    "costly": "Whether messages outnumber arrivals, and sources cannot post",
}
_COUNTERS: Final = {
    "messages": "Messages about a function, in both directions, and posts",
    "arrivals": "Events that the sources of a function reported",
}


def functions_exposition(functions: Iterable[tuple[str, Seen]]) -> bytes:
    """Return the samples in the text format. Empty if there are no functions.

    Args:
        functions: each with the name of its stream.
    """
    if not (found := list(functions)):
        return b""
    metrics = {
        name: Metric(f"{_PREFIX}_{name}", text, kind)
        for kind, of in (("gauge", _GAUGES), ("counter", _COUNTERS))
        for name, text in of.items()
    }
    for stream, seen in found:
        labels = {"stream": stream, "function": seen.row.name, "kind": seen.spec.kind}
        for name, value in _numbers(seen).items():
            suffix = "_total" if name in _COUNTERS else ""
            metrics[name].add_sample(f"{_PREFIX}_{name}{suffix}", labels, value)
    return text_of([*metrics.values()])


def _numbers(seen: Seen) -> dict[str, float]:
    state = seen.state
    ends = {"value": state.value, "low": state.low, "high": state.high}
    flags = {"certain": state.certain, "posts": state.posts, "costly": state.costly}
    return {
        **{name: nan if end is None else end for name, end in ends.items()},
        **{name: float(flag) for name, flag in flags.items()},
        "frequent_keys": nan if state.frequent is None else float(len(state.frequent)),
        "silent_sources": float(len(state.silent)),
        "messages": float(state.messages),
        "arrivals": float(state.arrivals),
    }
