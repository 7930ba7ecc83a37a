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
from collections import Counter
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
        "column_builds",
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
        "tests/api/monitors/test_functions_served.py::test_two_processes_and_a_kill",
        "tests/api/service/test_rows_budget.py::test_a_served_process_stays_within_its_bound",
        "tests/demo/test_relays.py::test_the_example",
        "tests/query/test_aggregates.py::test_the_studies_run_and_print",
        "tests/spark/test_engine.py::TestEqualsOneProcess::test_real_logs",
        "tests/spark/test_programs.py::TestPrograms::test_faults_of_a_log",
        "tests/spark/test_programs.py::TestPrograms::test_counts_of_keys_by_site",
        "tests/spark/test_rebuild.py::TestRebuild::test_folders_that_carry_a_column",
        "tests/spark/test_rebuild.py::TestRebuild::test_the_quarantine_follows",
        "tests/spark/test_rebuild.py::test_a_build_that_is_killed",
        "tests/spark/test_settings.py",
        "tests/spark/test_streaming.py::TestKilled",
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
# Of these, with one item for each family, fault or stream, ``make test`` runs each so many-th, and
# ``make test-all`` runs every one.
_EVERY = {
    "tests/api/http/test_head_requests.py::test_the_head_is_that_of_get": 3,
    "tests/api/operations/test_backup.py::test_a_damaged_backup_changes_nothing": 4,
    "tests/api/operations/test_failed_start.py::test_a_database_that_cannot_be_opened": 2,
    "tests/api/queries/test_queries.py::test_malformed_queries": 3,
    "tests/api/service/test_apart.py::test_a_body_that_is_no_json": 4,
    "tests/api/test_bridge.py::test_a_bridge_that_is_killed_before_its_disk": 2,
    "tests/asyncwindow/test_retained.py::test_long_streams_give_the_defined_state": 6,
    "tests/core/test_row_status.py::test_verdicts_are_what_the_states": 3,
    "tests/decay/test_integral.py::TestValues::test_of_the_table_are_farey_fractions": 4,
    "tests/demo/test_exact.py::test_answers_equal_the_definition": 8,
    "tests/ecm/test_dyadic.py::test_ranges_and_quantiles_hold_what_they_state": 2,
    "tests/ecm/test_reference.py::test_whole_splits": 4,
    "tests/ingest/test_remote_write.py::test_empty_parts_take_time_and_memory": 4,
    "tests/integral/test_query.py::test_estimates_are_unbiased_and_strata_vary_less": 2,
    "tests/integral/test_state.py::test_streams_that_overflow": 5,
    "tests/laws/test_hostile_bytes.py::TestEveryVariant::test_every_single_bit": 4,
    "tests/quality/test_ecm.py::test_study_is_written": 4,
    "tests/quality/test_figures.py::test_figure_is_written": 4,
    "tests/quality/test_monitor.py::test_study_is_written": 3,
    "tests/query/test_hard_streams.py::test_a_count_allows_for_the_light": 2,
    "tests/query/test_no_change.py::test_no_change_is_seen_in_a_total_of_sparse_values": 6,
    "tests/querytime/test_copies.py::test_intervals_of_either_way_hold_the_truth": 3,
    "tests/querytime/test_rows.py::test_a_bad_row_of_a_batch_that_overflows": 4,
    "tests/querytime/test_rows.py::test_any_times_give_the_defined_state": 6,
    "tests/simulation/test_planted_faults.py::test_a_planted_fault_is_found": 4,
    "tests/simulation/test_simulation.py::test_whatever_fails_what_must_hold_does": 3,
    "tests/spark/test_engine.py::TestEqualsOneProcess::test_by_any_key": 3,
    "tests/spark/test_rebuild.py::TestRebuild::test_other_families": 3,
    "tests/spark/test_text_logs.py::test_a_file_gives_its_numbers": 4,
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


def _mark_most(items: list[pytest.Item]) -> None:
    """Mark as exhaustive all but each so many-th item of the tests in ``_EVERY``."""
    seen: Counter[str] = Counter()
    for item in items:
        if (test := item.nodeid.partition("[")[0]).startswith(tuple(_EVERY)):
            step = next(every for start, every in _EVERY.items() if test.startswith(start))
            if seen[test] % step:
                item.add_marker("exhaustive")
            seen[test] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before ``-m`` selects: mark each test by what it starts."""
    _mark_most(items)
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
