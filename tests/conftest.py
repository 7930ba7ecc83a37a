"""Test tiers, the number of worker processes, and the order of files.

Three marks say what a test starts: ``process`` (a server or another program), ``jvm`` (Spark) and
``browser``. ``make check`` runs the tests without a mark. ``exhaustive`` tests run long and repeat
what others check in small: only ``make test-all`` runs them. In ``make check``, an audit hook
fails a test that starts a program without a mark, so the lists stay true.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
from typer import testing
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
    (
        "rebuild",
        "build",
        "programs",
        "publish",
        "sql_session",
        "sites",
        "statistics",
        "text_logs",
    ),
)
SESSION_OF = {
    f"tests/spark/test_{name}.py": f"the Spark session of {names[0]}"
    for names in _SESSIONS
    for name in names
}

# Marks by file or folder. Fixtures that start a server add ``process`` to each test that uses them.
_MARKS = {
    "exhaustive": (
        "tests/api/test_kill.py",
        "tests/api/test_schemathesis.py",
        "tests/client/test_delivery_under_faults.py",
        "tests/demo/test_walkthrough.py",
        "tests/quality/test_scale.py",
        "tests/quality/test_siege.py",
        "tests/quality/test_soak.py",
        "tests/spark/test_cluster.py",
        "tests/topk/test_errata.py",
        "tests/toy/",
    ),
    "browser": ("tests/page/",),
    "jvm": (
        "tests/spark/",
        "tests/toy/",
        "tests/demo/test_walkthrough.py",
        "tests/test_notebooks.py",
    ),
    "process": (
        "tests/api/journal/test_faults.py",
        "tests/api/operations/test_failed_start.py",
        "tests/api/test_bridge.py",
        "tests/api/test_deploy.py",
        "tests/api/test_kill.py",
        "tests/client/test_delivery_under_faults.py",
        "tests/demo/test_relays.py",
        "tests/demo/test_service.py",
        "tests/documentation/",
        "tests/examples/",
        "tests/native/",
        "tests/quality/",
        "tests/test_gateway.py",
        "tests/test_wheel.py",
        "tests/api/access/test_keys.py::test_a_database_that_says_nothing",
        "tests/client/test_trust.py",
        "tests/api/service/test_metrics.py::test_workers_count_together",
        "tests/api/test_logs.py::test_lines_of_uvicorn_have_the_same_form",
        "tests/client/test_sensor.py::test_library_does_not_need_the_client",
        "tests/decay/test_expression.py::test_sympy_is_imported_with_the_first_expression",
        "tests/demo/test_reading.py::test_make_hands_the_log_and_the_options_on",
        "tests/querytime/test_sketch.py::test_threads_that_come_first_all_succeed",
        "tests/simulation/test_simulation.py::test_a_run_follows_from_its_seed",
        "tests/tables/test_keyed.py::test_the_library_itself_does_without_pyarrow",
        "tests/test_docs.py::test_the_readme_shows_the_picture",
        "tests/test_docs.py::test_the_tables_of_questions",
    ),
}
# Building a command line from its functions takes 20 ms: once for each, and not for each call.
testing._get_command = cache(testing._get_command)

_SERVER_FIXTURES = {"server", "one_server", "served"}

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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the files that ``-m "not ..."`` deselects as a whole."""
    terms = config.option.markexpr.split(" and ")
    places = tuple(
        place for mark, listed in _MARKS.items() if f"not {mark}" in terms for place in listed
    )
    path = collection_path.relative_to(config.rootpath).as_posix()
    folder = f"{path}/" if collection_path.is_dir() else path
    return True if places and folder.startswith(places) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: looking through it for garbage takes half a second at a time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before ``-m`` selects: mark each test by what it starts."""
    for item in items:
        for mark, places in _MARKS.items():
            if item.nodeid.startswith(places):
                item.add_marker(mark)
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        chosen = [each for each in given if isinstance(each, str)]  # arrays compare entry by entry
        if _SERVER_FIXTURES & set(getattr(item, "fixturenames", ())) or "postgresql" in chosen:
            item.add_marker("process")
    items.sort(key=_place)


class _Watch:
    """Programs that an unmarked test has started, and whether a test connected to a server."""

    started: list[str] | None = None
    connected = False


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and _Watch.started is not None:
        _Watch.started.append(str(arguments[0]))
    elif event == "socket.connect":
        _Watch.connected = True


sys.addaudithook(_audit)


@pytest.fixture(autouse=True)
def no_unmarked_program(request: pytest.FixtureRequest) -> Iterator[None]:
    """In ``make check``, a test without a mark starts no program."""
    checked = "not process" in request.config.option.markexpr
    programs = ("process", "jvm", "browser")
    if not checked or any(request.node.get_closest_marker(mark) for mark in programs):
        yield
        return
    _Watch.started = []
    yield
    started, _Watch.started = _Watch.started, None
    assert not started, f"mark this test or its file in tests/conftest.py: it starts {started[0]}"


@pytest.fixture(autouse=True, scope="module")
def no_socket_left_open() -> Iterator[None]:
    """A socket that a test leaves open fails its own file, and not a later one at random."""
    _Watch.connected = False
    yield
    if _Watch.connected:
        gc.collect()


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
