"""``python -m demo``: the demonstration from the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from decaysketch import DecaySketchError
from decaysketch.cli.options import names
from demo.reading import Columns
from demo.report import Report
from demo.service import ProgramFailedError
from demo.simulate import SimulationPlan
from demo.walkthrough import Options, run

_OF_A_LOG = (
    "time_column", "fallback_time_column", "column_unit", "id_columns", "by", "value_column",
    "weight_column", "format",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Demonstrate; the exit status is 0 only if every promise was kept."""
    defaults, plan = Options(), SimulationPlan()
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="From a delivery log full of copies, by Spark, sketches and an aggregator, to "
        "decayed answers beside the exact and the naive ones.",
    )
    parser.add_argument(
        "--log",
        type=Path,
        help="delivery log (Parquet, CSV, NDJSON or Arrow) with the columns event_us, arrival_us, "
        "source, msg, path, value and, if it likes, weight, or others that the options below name; "
        "simulated if not given",
    )
    parser.add_argument("--out", type=Path, default=defaults.out, help="folder (%(default)s)")
    parser.add_argument(
        "--capacity",
        type=int,
        help="observations kept for each level (4,000; for a small log a twelfth of its messages)",
    )
    parser.add_argument(
        "--seed", type=int, default=defaults.seed, help="seed of the sketch (%(default)s)"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=defaults.seeds,
        help="other seeds to repeat the questions with (%(default)s)",
    )
    parser.add_argument(
        "--times", type=int, default=defaults.times, help="query times (%(default)s)"
    )
    parser.add_argument("--value-label", help="name and unit of the values, for the picture")
    parser.add_argument(
        "--small-picture", type=Path, help="leave the picture there too, in few bytes, for a page"
    )
    columns = parser.add_argument_group(
        "columns of the log", "as of spark_jobs.build; '' for a column that there is not"
    )
    columns.add_argument("--time-column", help="when the thing happened (event_us)")
    columns.add_argument(
        "--fallback-time-column", help="when the delivery arrived; taken where that is null "
        "(arrival_us)",
    )  # fmt: skip
    columns.add_argument(
        "--column-unit", help="unit of times that are plain numbers: ns, us, ms, s, min, h or d "
        "(us). Timestamps and ISO 8601 texts need none",
    )  # fmt: skip
    columns.add_argument(
        "--id-columns", help="columns that together identify a message, with commas (source,msg)"
    )
    columns.add_argument("--by", help="the path that the delivery came by (path)")
    columns.add_argument("--value-column", help="the measured number (value)")
    columns.add_argument("--weight-column", help="integer weights (weight, if there is one)")
    columns.add_argument("--format", help="parquet, csv, ndjson or arrow; by suffix if not given")
    simulation = parser.add_argument_group("simulation")
    simulation.add_argument("--sensors", type=int, default=plan.sensors, help="(%(default)s)")
    simulation.add_argument("--gateways", type=int, default=plan.gateways, help="(%(default)s)")
    simulation.add_argument("--days", type=float, default=plan.days, help="(%(default)s)")
    simulation.add_argument("--simulation-seed", type=int, default=plan.seed, help="(%(default)s)")
    given = parser.parse_args(arguments)
    mapped = [each for each in _OF_A_LOG if getattr(given, each) is not None]
    if given.log is None and mapped:
        parser.error(f"--{mapped[0].replace('_', '-')} has no use without --log")
    report = Report()
    try:
        options = Options(
            log=given.log and given.log.resolve(),
            out=given.out.resolve(),
            plan=replace(
                plan,
                seed=given.simulation_seed,
                sensors=given.sensors,
                gateways=given.gateways,
                days=given.days,
            ),
            capacity=given.capacity,
            seed=given.seed,
            seeds=given.seeds,
            times=given.times,
            value_label=given.value_label,
            small_picture=given.small_picture and given.small_picture.resolve(),
            columns=Columns(
                time=given.time_column,
                fallback_time=given.fallback_time_column,
                ids=None if given.id_columns is None else names(given.id_columns),
                path=given.by,
                value=given.value_column,
                weight=given.weight_column,
                unit=given.column_unit,
            ),
            format=given.format,
        )
        return run(options, report)
    except (ProgramFailedError, DecaySketchError, ValueError, OSError) as fault:
        report.fail(str(fault))
        return 1


if __name__ == "__main__":
    sys.exit(main())
