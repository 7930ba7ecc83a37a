"""What a Spark Python worker does once, before its first task.

Spark forks its Python workers from one daemon per executor. With
``spark.python.daemon.module = decaysketch.spark.worker`` that daemon imports the library and loads
the compiled kernels before it forks, and every worker inherits them: a task finds them warm.
:func:`session_settings` has this and the other settings that help. None of them is needed.

Numba's cache on disk is made for one process at a time: two that fill it at once can take the same
file name for different machine code. So whatever this package runs in a worker takes a lock on the
cache's folder first (:func:`share_kernel_cache`), with or without the daemon.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from numba.core.caching import IndexDataCacheFile

from decaysketch.batch import warm_up
from decaysketch.errors import ParameterError
from decaysketch.families import DEFAULT, FAMILIES

__all__ = ["session_settings", "share_kernel_cache"]

FAMILIES_VARIABLE = "DECAYSKETCH_WARM_FAMILIES"

_LOCK_NAME = ".decaysketch.lock"
_sharing = threading.Lock()
_ROWS_PER_ARROW_BATCH = 1 << 17  # Spark's 10,000 would make a sketch's updates needlessly small


def session_settings(*families: str, python: str | None = None) -> dict[str, str]:
    """Settings of a Spark session under which its workers find this library, and start faster.

    They go where the session is configured: ``SparkSession.builder.config(map=...)``,
    ``spark-submit --conf``, or a cluster's page. All executors need the library.

    A session that is started by this process takes the workers' interpreter from the environment
    variable ``PYSPARK_PYTHON`` and from nowhere else, and otherwise runs any ``python3``, which is
    hardly ever the one with the library. So this function sets that variable too, unless it is set
    or ``python`` says another.

    Args:
        families: names of the kinds of sketches that workers are to be ready for; none:
            "decay". Others work as well, only later by what loading their kernels takes.
        python: the interpreter of the executors, of the driver's version, at the same place on
            every machine; None: the one that ``PYSPARK_PYTHON`` names, or else this one.

    Raises:
        ParameterError: a family that there is not.
    """
    if unknown := sorted(set(families) - set(FAMILIES)):
        raise ParameterError(f"family is {unknown[0]!r}; expected one of {', '.join(FAMILIES)}")
    if python is not None:
        os.environ["PYSPARK_PYTHON"] = python
    interpreter = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {
        "spark.pyspark.python": interpreter,
        "spark.executorEnv.PYSPARK_PYTHON": interpreter,
        "spark.python.daemon.module": "decaysketch.spark.worker",
        f"spark.executorEnv.{FAMILIES_VARIABLE}": ",".join(families or (DEFAULT,)),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ROWS_PER_ARROW_BATCH),
    }


def share_kernel_cache() -> None:
    """Let processes that share numba's cache on disk take turns with it. Idempotent.

    Without effect where the cache's folder cannot be locked (it is read only, or on a file system
    without locks); nothing is written there either, or one process must fill it beforehand.
    """
    with _sharing:
        for name in ("load", "save"):
            method = getattr(IndexDataCacheFile, name)
            if not hasattr(method, "__wrapped__"):
                setattr(IndexDataCacheFile, name, _one_at_a_time(method))


def _one_at_a_time(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def locked(cache: IndexDataCacheFile, *arguments: Any) -> Any:
        with _lock(Path(cache._cache_path)):
            return method(cache, *arguments)

    return locked


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    try:
        descriptor = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:  # there are no locks on this file system
            yield
        else:
            yield
    finally:
        os.close(descriptor)  # which gives the lock back


def _daemon() -> None:
    """Run Spark's daemon with everything imported and compiled that its workers will need."""
    from pyspark.daemon import manager

    share_kernel_cache()
    names = os.environ.get(FAMILIES_VARIABLE, DEFAULT).split(",")
    # What is compiled does not depend on the parameters: anything of a family does.
    warm_up(*(FAMILIES[name].example for name in names))
    manager()


if __name__ == "__main__":
    _daemon()
