"""``python -m quality.simulation``: a network that fails in every way, seed by seed.

    python -m quality.simulation --seeds 10000 --processes 2
    python -m quality.simulation --first 4711 --seeds 1 --trace
    python -m quality.simulation --seeds 500 --kind series

Every seed is a run of sensors, gateways, replicas and a database in virtual time: links that lose
and repeat, replicas that are killed, power that fails, disks that fill, snapshots that are damaged,
sources that are revoked. What must hold is checked all along and at the end; it is stated in
``tests/simulation/world.py``. A seed that breaks it is printed with the command that runs it again,
event by event.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import count, islice
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from simulation.contents import KINDS  # type: ignore[import-not-found]
from simulation.world import Outcome, Plan, World  # type: ignore[import-not-found]

__all__ = ["main"]

_COUNTED = tuple(each.name for each in fields(Outcome) if each.name not in ("seed", "trace"))


@dataclass(frozen=True)
class _Result:
    outcome: Outcome
    failure: str  # empty if everything held


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status: 0 if every seed held, 1 if not."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.simulation",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--processes", type=int, default=1, help="that share the work (1)")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only seeds with a stream of it")
    parser.add_argument("--trace", action="store_true", help="print every event of every seed")
    options = parser.parse_args(arguments)
    for name in ("seeds", "processes"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; expected 1 or more")

    console = Console(highlight=False, soft_wrap=True)
    seeds = _seeds(options.first, options.seeds, options.kind)
    began, failed = time.monotonic(), 0
    totals = dict.fromkeys(_COUNTED, 0.0)
    for number, result in enumerate(_results(seeds, options.processes, options.trace), 1):
        outcome = result.outcome
        for name in _COUNTED:
            totals[name] += getattr(outcome, name)
        if options.trace:
            console.print("\n".join(outcome.trace), markup=False)
        if result.failure:
            failed += 1
            console.print(f"seed {outcome.seed}: {result.failure}", markup=False, style="red")
            console.print(
                f"  python -m quality.simulation --first {outcome.seed} --seeds 1 --trace"
            )
        if number % 500 == 0 or number == options.seeds:
            each_ms = 1000 * (time.monotonic() - began) / number
            console.print(f"{number} seeds, {failed} failed, {each_ms:.0f} ms each")
    console.print(", ".join(f"{name} {total:,.0f}" for name, total in totals.items()))
    return 1 if failed else 0


def _seeds(first: int, most: int, kind: str | None) -> Sequence[int]:
    """The first seeds from one on, all or those whose network has a stream of a kind."""
    if kind is None:
        return range(first, first + most)
    return list(islice((s for s in count(first) if kind in Plan.of_seed(s).kinds), most))


def _results(seeds: Sequence[int], processes: int, traced: bool) -> Iterator[_Result]:
    """The result of each seed, in their order."""
    if processes == 1:
        for seed in seeds:
            yield _run(seed, traced)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        yield from pool.imap(_run_traced if traced else _run, seeds, chunksize=10)


def _run_traced(seed: int) -> _Result:
    return _run(seed, True)


def _run(seed: int, traced: bool = False) -> _Result:
    world = World(seed)
    failure = ""
    try:
        world.run()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    if not traced:
        world.outcome.trace.clear()
    return _Result(world.outcome, failure)


if __name__ == "__main__":
    sys.exit(main())
