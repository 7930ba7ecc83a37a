"""``python -m demo``: the demonstration from the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from decaysketch import DecaySketchError
from demo.report import Report
from demo.service import ProgramFailedError
from demo.simulate import SimulationPlan
from demo.walkthrough import Options, run


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
        help="delivery log (Parquet) with the columns arrival_us, event_us, source, msg, path, "
        "value and, if it likes, weight; simulated if not given",
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
    simulation = parser.add_argument_group("simulation")
    simulation.add_argument("--sensors", type=int, default=plan.sensors, help="(%(default)s)")
    simulation.add_argument("--gateways", type=int, default=plan.gateways, help="(%(default)s)")
    simulation.add_argument("--days", type=float, default=plan.days, help="(%(default)s)")
    simulation.add_argument("--simulation-seed", type=int, default=plan.seed, help="(%(default)s)")
    given = parser.parse_args(arguments)
    if given.log is not None and not given.log.is_file():
        parser.error(f"{given.log} is not a file")
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
        )
        return run(options, report)
    except (ProgramFailedError, DecaySketchError, ValueError, OSError) as fault:
        report.say(f"[bold red]error:[/] {fault}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
