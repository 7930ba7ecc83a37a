"""The dashboard of answers, as Grafana reads it: ``python deploy/grafana/dashboard.py``.

Made by Grafana's own SDK (``pip install grafana-foundation-sdk``, the wheel of the Grafana that is
aimed at), which knows the fields and their types; ``answers.json`` beside this file is what it
wrote. A line is an estimate, and the band around it is its interval.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, DynamicConfigValue

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_CHOSEN = '{stream="$stream",query="$query"}'

#: Fields of Prometheus annotations that the SDK does not name.
_ANNOTATED = {
    "titleFormat": "{{monitor}} fires",
    "textFormat": "monitor {{monitor}} of stream {{stream}}",
    "tagKeys": "monitor",
    "step": "15s",
}


def _query(expression: str, legend: str, name: str) -> prometheus.Dataquery:
    query = prometheus.Dataquery().expr(expression).legend_format(legend)
    return query.ref_id(name).datasource(_SOURCE)


def _band() -> timeseries.Panel:
    panel = timeseries.Panel().title("$query of $stream, with its interval").datasource(_SOURCE)
    for name, end, legend in (
        ("A", "", "estimate"), ("B", "_lower", "lower"), ("C", "_upper", "upper")
    ):  # fmt: skip
        labels = f"{legend} {{{{q}}}}{{{{value}}}}{{{{bin}}}}{{{{of}}}}"
        panel = panel.with_target(_query(f"decaysketch_answer{end}{_CHOSEN}", labels, name))
    for pattern, settings in (
        (
            "/^upper/",
            {"custom.fillBelowTo": "lower ", "custom.lineWidth": 0, "custom.fillOpacity": 15},
        ),
        ("/^lower/", {"custom.lineWidth": 0}),
    ):
        values = [DynamicConfigValue(id_val=name, value=each) for name, each in settings.items()]
        panel = panel.override_by_regexp(pattern, values)
    return panel.height(10).span(24)


def _by_group() -> timeseries.Panel:
    """A line per group. The legend shows the labels that differ."""
    panel = timeseries.Panel().title("$query of $stream, by group").datasource(_SOURCE)
    expression = f"decaysketch_answer{_CHOSEN}"
    return panel.with_target(_query(expression, "__auto", "A")).height(10).span(24)


def _stat(title: str, expression: str) -> stat.Panel:
    panel = stat.Panel().title(title).datasource(_SOURCE)
    return panel.with_target(_query(expression, "", "A")).height(4).span(8)


def build() -> dict[str, Any]:
    made = (
        dashboard.Dashboard("decaysketch: answers")
        .uid("decaysketch-answers")
        .tags(["decaysketch"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("stream")
            .query("label_values(decaysketch_answer_questions, stream)")
            .datasource(_SOURCE)
        )
        .with_variable(
            dashboard.QueryVariable("query")
            .query('label_values(decaysketch_answer{stream="$stream"}, query)')
            .datasource(_SOURCE)
        )
        .annotation(
            # The server's own alerts, from /metrics: a region for as long as one fires.
            dashboard.AnnotationQuery()
            .name("Alerts")
            .datasource(_SOURCE)
            .enable(True)
            .icon_color("red")
            .expr('max by (stream, monitor) (decaysketch_monitor_alert{stream="$stream"}) == 2')
        )
        .with_panel(_band())
        .with_panel(_by_group())
        .with_panel(_stat("exact", f"min(decaysketch_answer_exact{_CHOSEN})"))
        .with_panel(_stat("questions", 'decaysketch_answer_questions{stream="$stream"}'))
        .with_panel(
            _stat("not answered", 'count(decaysketch_answer_error{stream="$stream"}) or vector(0)')
        )
        .with_panel(
            table.Panel()
            .title("every answer of $stream")
            .datasource(_SOURCE)
            .with_target(
                _query('decaysketch_answer{stream="$stream"}', "", "A").instant().format("table")
            )
            .height(8)
            .span(24)
        )
    )
    written: dict[str, Any] = json.loads(JSONEncoder(sort_keys=True).encode(made.build()))
    for each in written["annotations"]["list"]:
        each.update(_ANNOTATED)
    return written


if __name__ == "__main__":
    path = Path(__file__).with_name("answers.json")
    path.write_text(json.dumps(build(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
