"""How many processes run the suite, which files begin first and which share a process; what is no
garbage, whose logs."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator

import pytest
from xdist import remote
from xdist.scheduler import LoadFileScheduling

# First what starts processes of its own, the longest first and in turns what starts Java and what
# does not, so that no long file is left for the end, when the other processes have nothing to do.
_FIRST = (
    "tests/spark/test_engine.py",
    "tests/api/test_kill.py",
    "tests/spark/test_rebuild.py",
    "tests/client/test_delivery_under_faults.py",
    "tests/demo/test_walkthrough.py",
    "tests/api/test_schemathesis.py",
    "tests/quality/test_siege.py",
    "tests/spark/test_cluster.py",
    "tests/page/",
    "tests/toy/",
    "tests/test_notebooks.py",
    "tests/quality/",
    "tests/spark/",
)

# What needs the session of tests/spark: all of it is run by two of the processes, since a JVM that
# has run some queries runs the next ones in less time, and every other one would start another.
_SESSIONS = (
    ("engine", "streaming", "source", "functions", "tables", "recorded_answers"),
    ("rebuild", "build", "programs", "publish", "sql_session", "sites", "statistics"),
)
SESSION_OF = {
    f"tests/spark/test_{name}.py": f"the Spark session of {names[0]}"
    for names in _SESSIONS
    for name in names
}

_PROCESS_BYTES = 2e9  # with the servers, Java and the browser that it starts


def pytest_xdist_auto_num_workers() -> int:
    """Of ``-n auto``: two thirds of the time a test waits for a process that it has started."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(3 * (os.cpu_count() or 1), int(memory / _PROCESS_BYTES)))


class _Scheduler(LoadFileScheduling):
    """A file is run by one process, and so are all those that share a Spark session."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SESSION_OF.get(file, file)


def pytest_xdist_make_scheduler(
    config: pytest.Config, log: remote.Producer
) -> LoadFileScheduling | None:
    """Of ``--dist loadfile``."""
    return _Scheduler(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: looking through it for garbage takes half a second at a time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def pytest_runtest_logreport() -> None:
    """Keep PySpark's loggers of failed queries away from the handlers of other tests.

    Once one has logged it does not propagate; pytest attaches its own handlers to such loggers at
    the start of every phase, and PySpark's class sets its JSON format on each, for good.
    """
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logger = logging.root.manager.loggerDict.get(name)
        if isinstance(logger, logging.Logger):
            logger.propagate = True


def _place(item: pytest.Item) -> int:
    found = (place for place, start in enumerate(_FIRST) if item.nodeid.startswith(start))
    return next(found, len(_FIRST))
