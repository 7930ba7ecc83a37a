"""Tasks over a pool of processes, with progress on stderr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["run"]

Result = TypeVar("Result")


def run(
    label: str, task: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], jobs: int
) -> list[Result]:
    """``task(*a)`` for each of the arguments, results in their order.

    One job runs in this process, as what is timed must.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        steps = progress.add_task(label, total=len(arguments))
        if jobs == 1:
            results = []
            for given in arguments:
                results.append(task(*given))
                progress.advance(steps)
            return results
        # Fresh processes: forking one that runs threads, as this one does, can hang.
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            futures = [pool.submit(task, *given) for given in arguments]
            for future in futures:
                future.add_done_callback(lambda _: progress.advance(steps))
            return [future.result() for future in futures]
