"""How many processes run the suite and which files begin first, what is no garbage, whose logs."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator

import pytest

# First what starts processes of its own, the longest first and in turns what starts Java and what
# does not, so that no long file is left for the end, when the other processes have nothing to do.
_FIRST = (
    "tests/spark/test_engine.py",
    "tests/api/test_kill.py",
    "tests/spark/test_rebuild.py",
    "tests/client/test_delivery_under_faults.py",
    "tests/spark/test_streaming.py",
    "tests/demo/test_walkthrough.py",
    "tests/spark/test_cluster.py",
    "tests/page/",
    "tests/toy/",
    "tests/spark/test_build.py",
    "tests/test_notebooks.py",
    "tests/spark/test_source.py",
    "tests/quality/",
    "tests/spark/",
)


_PROCESS_BYTES = 2e9  # with the servers, Java and the browser that it starts


def pytest_xdist_auto_num_workers() -> int:
    """Of ``-n auto``: two thirds of the time a test waits for a process that it has started."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(3 * (os.cpu_count() or 1), int(memory / _PROCESS_BYTES)))


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
