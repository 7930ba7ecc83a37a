"""The groups of alerts as Prometheus gauges, with a label for each key.

Their labels differ between monitors, so each scrape makes them from the last evaluation in the
process that answers. A group that is not tracked any more has no series any more. The limit
``groups`` bounds their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import nan

from prometheus_client.core import Metric

from api.monitors.engine import Watched
from api.service.group_labels import label_name, label_of
from api.service.metrics import PHASES, STATES
from api.service.scrape_metrics import text_of
from decaysketch.monitor import group_of

__all__ = ["groups_exposition"]

_GAUGES = {
    "state": "State of a monitor's group: 0 calm, 1 uncertain, 2 firing",
    "alert": "State of a group's alert: 0 inactive, 1 pending, 2 firing",
    "value": "Value of a group's aggregate",
    "lower": "Lower bound of a group's interval",
    "upper": "Upper bound of a group's interval",
}
_UNTRACKED = "Groups without a state, because the alert is at its group limit"


def groups_exposition(monitors: Iterable[tuple[str, Watched]]) -> bytes:
    """Return the samples in the text format. Empty if no monitor has groups.

    Args:
        monitors: each with the name of its stream.
    """
    grouped = [(stream, watched) for stream, watched in monitors if watched.read is not None]
    return text_of(_metrics(grouped)) if grouped else b""


def _metrics(monitors: Iterable[tuple[str, Watched]]) -> list[Metric]:
    gauges = {
        name: Metric(f"decaysketch_monitor_group_{name}", text, "gauge")
        for name, text in _GAUGES.items()
    }
    untracked = Metric("decaysketch_monitor_groups_untracked", _UNTRACKED, "gauge")
    for stream, watched in monitors:
        assert watched.read is not None
        said = {"stream": stream, "monitor": watched.row.name}
        for labels, values in _samples(said, watched):
            for name, value in values.items():
                gauges[name].add_sample(f"decaysketch_monitor_group_{name}", labels, value)
        more, _ = watched.read.untracked(watched.row.groups)
        untracked.add_sample("decaysketch_monitor_groups_untracked", said, float(more))
    return [*gauges.values(), untracked]


def _samples(
    said: dict[str, str], watched: Watched
) -> Iterator[tuple[dict[str, str], dict[str, float]]]:
    """Yield the labels and numbers of each group."""
    assert watched.read is not None
    for key, group in watched.row.groups.items():
        if (state := watched.read.states.get(key)) is None:
            continue
        labels = dict(said)
        for name, value in group_of(key).items():
            labels[label_name(name, labels)] = label_of(value)
        ends = {"value": state.value, "lower": state.lower, "upper": state.upper}
        numbers = {name: nan if end is None else end for name, end in ends.items()}
        ranks = {"state": STATES.index(group.state), "alert": PHASES.index(group.alert.phase)}
        yield labels, ranks | numbers
