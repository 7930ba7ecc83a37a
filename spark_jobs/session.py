"""The Spark session that the programs share: local by default, and quiet."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from decaysketch.cli.output import report
from decaysketch.spark.settings import session_settings
from spark_jobs.archive import archive_options
from spark_jobs.java import PROJECT_ROOT, ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DEFAULT_MASTER", "spark_session", "with_progress"]

DEFAULT_MASTER = "local[2]"
_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")

Result = TypeVar("Result")


@contextmanager
def spark_session(name: str, master: str = DEFAULT_MASTER) -> Iterator[SparkSession]:
    """Yield a session whose workers can import this project, and stop it at the end."""
    local = master.startswith("local")
    if local:
        ensure_java()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a host's name need not resolve
    _prepare_environment()
    from pyspark.sql import SparkSession

    java_options = [shlex.quote(f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION}")]
    if local:
        # The JVM only hands rows on: its quick compiler will do, and saves seconds at the start.
        java_options += ["-XX:TieredStopAtLevel=1", *map(shlex.quote, archive_options())]
    with tempfile.TemporaryDirectory(prefix="decaysketch-spark-") as scratch:
        settings = session_settings() | {
            "spark.driver.extraJavaOptions": " ".join(java_options),
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        if local:
            settings |= {
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.local.dir": scratch,
                # For programs that hang. JVM and workers share a machine. If it is busy, they wait
                # for each other longer than Spark's default, 2 min 15 s.
                "spark.network.timeout": "1800s",
                "spark.python.authenticate.socketTimeout": "1800s",
                "spark.sql.shuffle.partitions": "8",
            }
        builder = SparkSession.builder.appName(name).master(master)
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()


def _prepare_environment() -> None:
    """Set the environment that the JVM and the workers read before there is a session to
    configure.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = dict.fromkeys([str(PROJECT_ROOT), *filter(None, inherited)])
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def with_progress(session: SparkSession, label: str, action: Callable[[], Result]) -> Result:
    """Run an action that starts Spark jobs, with a progress bar over the tasks."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} tasks"),
        TimeElapsedColumn(),
    )
    finished = threading.Event()
    with Progress(*columns, console=report, transient=True) as progress:
        bar = progress.add_task(label, total=None)
        watcher = threading.Thread(
            target=_watch, args=(session, finished, progress, bar), daemon=True
        )
        watcher.start()
        try:
            return action()
        finally:
            finished.set()
            watcher.join()


def _watch(
    session: SparkSession, finished: threading.Event, progress: Progress, bar: TaskID
) -> None:
    tracker = session.sparkContext.statusTracker()
    stages: dict[int, tuple[int, int]] = {}  # tasks done and in all
    while not finished.wait(0.2):
        active = tracker.getActiveStageIds()
        for stage in stages.keys() - set(active):
            stages[stage] = (stages[stage][1],) * 2
        for stage in active:
            if info := tracker.getStageInfo(stage):
                stages[stage] = (info.numCompletedTasks, info.numTasks)
        if stages:
            done, total = map(sum, zip(*stages.values(), strict=True))
            progress.update(bar, completed=done, total=total)
