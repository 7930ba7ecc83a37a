"""SQL functions over sketches, in the session of the tests: each column of a query is a case.

A query takes far longer to plan and start than to run, so what is asked of the sketches is one
query: the table has one row, and a column for each of them, by its name in ``material``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from decaysketch.families import recipe_of
from decaysketch.spark import register
from tests.recorded.entries import Entry, plain
from tests.recorded.material import FIXED, MEDIANS, NOW, PARAMS, STREAMS, SUMS, Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["answers_of", "record", "refusal_in", "sketches"]

_OF_VALUES = (
    "decayed_count({sketch}, {how})",
    "decayed_mean({sketch}, {how})",
    "decayed_mean_value({sketch}, {how})",
    "decayed_variance({sketch}, {how})",
    "decayed_variance_value({sketch}, {how})",
    "decayed_total({sketch}, {how})",
    "decayed_total_value({sketch}, {how})",
    "decayed_quantile({sketch}, 0.9, {how})",
    "decayed_quantile_value({sketch}, 0.9, {how})",
    "decayed_quantiles({sketch}, array(0.1, 0.5), {how})",
    "decayed_quantiles_value({sketch}, array(0.1, 0.5), {how})",
    "decayed_rank({sketch}, 5, {how})",
    "decayed_rank_value({sketch}, 5, {how})",
    "selectivity({sketch}, 'v > 3', {how})",
    "heavy_hitters({sketch}, 0.06, {how})",
    "heavy_hitters_value({sketch}, 0.06, {how})",
)
_OF_WEIGHTS = (
    "decayed_sum({sketch}, {how})",
    "decayed_sum_value({sketch}, {how})",
    "decayed_count_value({sketch}, {how})",
    "selectivity_value({sketch}, 'v > 3 and w >= 2', {how})",
    "decayed_sum({sketch}, {how}, 0.8)",
)
_QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "decay": _OF_VALUES + _OF_WEIGHTS,
    "integral": _OF_VALUES + _OF_WEIGHTS,
    "sum": _OF_WEIGHTS,
    "median": _OF_VALUES,
}
_DECAYS = (
    "window(20)", "window(width=30min)", "exponential(half_life=5min)", "exponential(rate=0.01)",
    "polynomial(1.5, scale=2min)", "1/(1 + log(1 + x/60))", "none",
    '{"kind": "piecewise", "steps": [[60, 1], [600, 0.25]]}',
)  # fmt: skip
_OF_ITSELF = ("sketch_info", "sketch_union")
_READING = "value, weight, at, device, number"

_REFUSED = (
    "decayed_mean(CAST('abc' AS BINARY), 'none', 1)",
    f"decayed_mean(sum, 'window(50)', {NOW})",
    f"decayed_sum(integral, 'none', {NOW})",
    f"decayed_sum(decay, 'halflife(60)', {NOW})",
    "sketch_union(decay, sum)",
)


def record(session: SparkSession) -> list[Entry]:
    """All of them, in a handful of queries."""
    fixed = recipe_of(PARAMS, FIXED)
    streams: dict[str, Any] = {"recorded": PARAMS, "recorded_fixed": fixed, "recorded_sums": SUMS}
    register(session, streams | {"recorded_medians": MEDIANS})
    row, parts = sketches()
    columns = ", ".join(f"{name} binary" for name in row)
    blobs = [bytearray(blob) for blob in row.values()], [bytearray(blob) for blob in parts]
    table = session.createDataFrame([(*blobs[0], blobs[1])], f"{columns}, parts array<binary>")
    table.createOrReplaceTempView("recorded_sketches")
    session.sql(f"""
        CREATE OR REPLACE TEMPORARY VIEW recorded_readings AS
        SELECT CONCAT('d', id % 3) AS device, id AS number, (id * 7 % 40) / 2D AS value,
               CAST(1 + id * 31 % 99 AS INT) AS weight,
               timestamp_seconds({NOW} - id * 13 % 4000) AS at
        FROM range(300)
    """)
    asked = [each for name, stream in STREAMS.items() for each in _asked(name, stream)]
    asked += [f"{function}({name})" for name in STREAMS for function in _OF_ITSELF]
    entries = _columns(session, [*asked, "sketch_union(parts)"], "recorded_sketches")
    exploded = "(SELECT explode(parts) AS part FROM recorded_sketches)"
    entries += _columns(session, ["sketch_merge(part)"], exploded)
    for stream in ("recorded", "recorded_fixed"):
        built = [f"sketch_build('{stream}', {_READING})"]
        entries += _columns(session, built, "recorded_readings GROUP BY device ORDER BY device")
    for column in (
        "sketch_build('recorded_sums', weight, NULL, at, device, number)",
        "sketch_build('recorded_medians', value, NULL, at, device, number)",
        "sketch_build_counted('recorded', value, weight, if(number < 7, NULL, at), number)",
    ):
        entries += _columns(session, [column], "recorded_readings")
    entries += [_refusal(session, each, "recorded_sketches") for each in _REFUSED]
    too_heavy = "sketch_build('recorded', value, 100, at, number)"
    return [*entries, _refusal(session, too_heavy, "recorded_readings")]


def sketches() -> tuple[dict[str, bytes], list[bytes]]:
    """The sketches that are asked, by their names, and parts of the first with a copy of one."""
    pairs = {name: (stream.build(0), stream.build(1, 150)) for name, stream in STREAMS.items()}
    first = pairs["decay"]
    return (
        {name: (one | two).to_bytes() for name, (one, two) in pairs.items()},
        [each.to_bytes() for each in (*first, first[0])],
    )


def _asked(name: str, stream: Stream) -> list[str]:
    how = f"'window(2000)', {NOW}" if stream.chooses else f"NULL, {NOW}"
    asked = [each.format(sketch=name, how=how) for each in _QUESTIONS[stream.family]]
    if name == "decay":
        asked += [f"decayed_mean(decay, '{decay}', {NOW})" for decay in _DECAYS]
        asked += [
            f"decayed_sum_value(decay, 'window(1h)', timestamp_seconds({NOW}))",
            "decayed_sum_value(decay, 'window(1d)', DATE'2023-11-15')",
            "decayed_sum_value(decay, 'none', NULL)",
            f"decayed_sum_value(decay, NULL, {NOW})",
        ]
    return asked


def _columns(session: SparkSession, columns: Sequence[str], source: str) -> list[Entry]:
    """One query; of each column an entry."""
    listed = ", ".join(f"{column} AS c{place}" for place, column in enumerate(columns))
    found = session.sql(f"SELECT {listed} FROM {source}").collect()
    rows = [row.asDict(recursive=True) for row in found]
    return [
        {
            "case": f"sql: {column} FROM {source}",
            "answered": answers_of([row[f"c{place}"] for row in rows]),
        }
        for place, column in enumerate(columns)
    ]


def answers_of(rows: Sequence[Any]) -> Any:
    """The answers of a column as they are recorded."""
    return plain([{"value": _defined(each)} for each in rows])


def _defined(found: Any) -> Any:
    """JSON has no infinity; SQL has."""
    if isinstance(found, dict):
        return {name: _defined(each) for name, each in found.items()}
    if isinstance(found, list):
        return [_defined(each) for each in found]
    return str(found) if isinstance(found, float) and not math.isfinite(found) else found


def _refusal(session: SparkSession, column: str, source: str) -> Entry:
    """What our functions say of it; around that the engine says a lot of its own."""
    query = session.sql(f"SELECT {column} FROM {source}")
    return {"case": f"sql: {column} FROM {source}, refused", "answered": refusal_in(query.collect)}


def refusal_in(run: Callable[[], Any]) -> str:
    """What our functions say in the error of an engine."""
    try:
        run()
    except Exception as fault:
        if (
            said := re.search(r"FunctionError: [^\n]*", f"{type(fault).__name__}: {fault}")
        ) is None:
            raise
        return said[0]
    return "not refused"
