"""Test tiers, the number of worker processes, the order of files, and the place of their data.

Three marks say what a test starts: ``process`` (a server or another program), ``jvm`` (Spark) and
``browser``. ``make check`` runs the tests without a mark. ``exhaustive`` tests run long and repeat
what others check in small: only ``make test-all`` runs them. In ``make check``, an audit hook
fails a test that starts a program without a mark, so the lists stay true.

Of hypothesis tests, ``make check`` and ``make test`` run some examples, the same in every run.
``make test-all`` runs all, and new ones each time.
"""

from __future__ import annotations

import compileall
import gc
import logging
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import hypothesis
import pytest
from _pytest.assertion import rewrite
from typer import testing
from xdist import remote
from xdist.scheduler import LoadFileScheduling

try:  # not public: without it, tests take longer
    from hypothesis.internal.conjecture import providers
except ImportError:
    providers = None

# First what starts processes of its own, the longest first, so that no long file is left for the
# end, when the other processes have nothing to do.
_FIRST = (
    "tests/spark/",
    "tests/api/test_kill.py",
    "tests/api/relay/test_tree.py",
    "tests/client/test_delivery_under_faults.py",
    "tests/demo/test_walkthrough.py",
    "tests/api/test_schemathesis.py",
    "tests/quality/test_siege.py",
    "tests/documentation/",
    "tests/page/",
    "tests/toy/",
    "tests/test_notebooks.py",
    "tests/quality/",
)

# Then what takes longest, so that the last files are short.
_LONG = (
    "tests/api/journal/",
    "tests/api/monitors/test_every_feed.py",
    "tests/api/monitors/test_outbox.py",
    "tests/api/operations/",
    "tests/api/relay/",
    "tests/api/routes/test_series.py",
    "tests/api/test_bridge",
    "tests/api/test_readers.py",
    "tests/laws/",
    "tests/recorded/",
    "tests/simulation/",
    "tests/test_docs.py",
    "tests/test_packaging.py",
    "tests/test_wheel.py",
)

# One process runs all files of this folder, except those that start Spark in their own way. They
# share a session, since each JVM takes 20 seconds of processor time to start and to become fast.
_SESSION = "tests/spark/"

# Each process that reads the OpenAPI description makes it in more than a second of processor time.
# One process runs all files that do.
_DESCRIPTION = (
    "tests/api/http/test_csrf.py",
    "tests/api/http/test_hang_up.py",
    "tests/api/http/test_head_requests.py",
    "tests/api/http/test_openapi.py",
    "tests/api/routes/test_plain_posts.py",
    "tests/api/routes/test_reference.py",
    "tests/api/test_access_matrix.py",
    "tests/recorded/",
)

# Marks by file or folder. Fixtures that start a server add ``process`` to each test that uses them.
_MARKS = {
    "exhaustive": (
        "tests/api/test_kill.py",
        "tests/api/test_schemathesis.py",
        "tests/client/test_delivery_under_faults.py",
        "tests/demo/test_walkthrough.py",
        "tests/quality/test_figures.py::test_every_figure_is_written",
        "tests/quality/test_scale.py",
        "tests/quality/test_siege.py",
        "tests/quality/test_soak.py",
        "tests/spark/test_cluster.py",
        "tests/topk/test_errata.py",
        "tests/toy/",
        "tests/api/monitors/test_functions_served.py::test_two_processes_and_a_kill",
        "tests/api/service/test_rows_budget.py::test_a_served_process_stays_within_its_bound",
        "tests/demo/test_relays.py::test_the_example",
        "tests/ecm/test_errata.py::TestA2NothingHasToExpire",
        "tests/ecm/test_errata.py::TestE13AOneCannotBeHalved",
        "tests/ecm/test_errata.py::TestE4TheMinimumIsLowWhereAnyRowIs",
        "tests/laws/test_hostile_bytes.py::TestEveryVariant::test_every_single_bit",
        "tests/query/test_aggregates.py::test_the_studies_run_and_print",
        "tests/api/service/test_metrics.py::test_workers_count_together",
        "tests/benchmarks/test_report.py::TestCommand::test_writes_the_document_of_a_tiny_run",
        "tests/examples/test_examples.py::test_a_broker",
        "tests/examples/test_examples.py::test_an_exporter",
        "tests/quality/test_ecm.py::test_rates_are_written",
        "tests/quality/test_ecm.py::test_study_is_written",
        "tests/quality/test_ecm.py::test_sure_things_hold",
        "tests/page/test_documentation.py::test_a_word_is_found[",
        "tests/query/test_aggregates.py::test_intervals_of_every_aggregate",
        "tests/spark/test_engine.py::TestEqualsOneProcess::test_real_logs",
        "tests/spark/test_programs.py::TestPrograms::test_faults_of_a_log",
        "tests/spark/test_programs.py::TestPrograms::test_counts_of_keys_by_site",
        "tests/spark/test_rebuild.py::TestRebuild::test_folders_that_carry_a_column",
        "tests/spark/test_rebuild.py::TestRebuild::test_the_quarantine_follows",
        "tests/spark/test_rebuild.py::test_a_build_that_is_killed",
        "tests/spark/test_settings.py",
        "tests/spark/test_sql_session.py::TestSession::test_intervals_hold_exact_sql",
        "tests/spark/test_streaming.py::TestKilled",
        "tests/test_notebooks.py::test_runs_without_a_warning[how_minhit_works]",
        "tests/test_notebooks.py::test_runs_without_a_warning[spark_story]",
        "tests/test_notebooks.py::test_runs_without_a_warning[which_decay]",
        "tests/test_notebooks.py::test_runs_without_a_warning[who_talks_most]",
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
        "tests/api/test_readers.py::test_the_rules_and_the_dashboard",
        "tests/benchmarks/test_paper_program.py",
        "tests/benchmarks/test_report.py::TestWhatIsMissing::test_packages_are_named_and_left_out",
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
    ),
}
# Of these, with one item for each family, fault or stream, ``make test`` runs each so many-th, and
# ``make test-all`` runs every one.
_EVERY = {
    "tests/api/http/test_hang_up.py::test_no_route_fails": 2,
    "tests/api/http/test_head_requests.py::test_the_head_is_that_of_get": 3,
    "tests/api/operations/test_backup.py::test_a_damaged_backup_changes_nothing": 4,
    "tests/api/operations/test_failed_start.py::test_a_database_that_cannot_be_opened": 2,
    "tests/api/queries/test_queries.py::test_malformed_queries": 3,
    "tests/api/relay/test_relay.py::test_another_stream_upstream_is_refused": 2,
    "tests/api/relay/test_relay.py::test_every_family_is_passed_on": 3,
    "tests/api/relay/test_relay.py::test_what_is_refused_is_kept": 2,
    "tests/api/routes/test_series.py::test_a_pair_of_collectors": 2,
    "tests/api/service/test_apart.py::test_a_body_that_is_no_json": 4,
    "tests/api/test_bridge.py::test_a_bridge_that_is_killed_before_its_disk": 2,
    "tests/api/test_families.py::test_order_repetition": 2,
    "tests/asyncwindow/test_accuracy.py::test_sums_and_counts": 5,
    "tests/asyncwindow/test_accuracy.py::test_the_promise": 6,
    "tests/asyncwindow/test_retained.py::test_long_streams_give_the_defined_state": 6,
    "tests/benchmarks/test_paper_program.py::test_general_samples": 5,
    "tests/bridge/test_tail.py::test_whatever_happens_no_line": 3,
    "tests/client/test_monitor_source.py::test_what_is_said_of_sensors": 3,
    "tests/core/test_hashing.py::test_each_input_bit_moves": 3,
    "tests/core/test_row_status.py::test_verdicts_are_what_the_states": 3,
    "tests/core/test_sizing.py::test_small_sketches_keep": 2,
    "tests/decay/test_integral.py::TestValues::test_are_the_mathematical": 3,
    "tests/decay/test_integral.py::TestValues::test_of_the_table_are_farey_fractions": 8,
    "tests/demo/test_exact.py::test_answers_equal_the_definition": 8,
    "tests/ecm/test_cells.py::test_batches_do_not_matter": 2,
    "tests/ecm/test_cells.py::test_the_error_of_every_window": 3,
    "tests/ecm/test_compacted_bounds.py::test_no_guaranteed_bound_is_broken_before": 3,
    "tests/ecm/test_dyadic.py::test_ranges_and_quantiles_hold_what_they_state": 5,
    "tests/ecm/test_joins.py::test_the_interval_of_a_join_covers": 4,
    "tests/ecm/test_reference.py::test_nothing_that_was_forgotten": 5,
    "tests/ecm/test_reference.py::test_the_error_is_below_its_bound": 5,
    "tests/ecm/test_reference.py::test_the_truth_is_between_the_ends": 6,
    "tests/ecm/test_reference.py::test_trees_of_merges_stay": 3,
    "tests/ecm/test_reference.py::test_whole_splits": 5,
    "tests/ecm/test_sizing.py::test_sizes_keep_the_promise": 5,
    "tests/ecm/test_wire.py::TestTheKernel::test_takes_and_refuses": 2,
    "tests/ingest/test_line_protocol.py::test_series_without_a_reading": 3,
    "tests/ingest/test_remote_write.py::test_empty_parts_take_time_and_memory": 4,
    "tests/integral/test_bounds.py::test_the_state_is_that_of_one_compaction": 4,
    "tests/integral/test_query.py::test_estimates_are_unbiased_and_strata_vary_less": 4,
    "tests/integral/test_state.py::test_streams_that_overflow": 14,
    "tests/laws/test_hostile_bytes.py::test_what_was_damaged": 2,
    "tests/laws/test_hostile_bytes.py::TestEveryVariant::test_every_truncation": 2,
    "tests/laws/test_hostile_bytes.py::TestEveryVariant::test_single_bits": 2,
    "tests/minhit/test_expiry.py::test_public_functions_equal": 2,
    "tests/minhit/test_kernels.py::test_kernels_equal_the_reference": 2,
    "tests/minhit/test_reference.py::test_every_progression_of_a_small_prime": 3,
    "tests/monitor/test_faults.py::test_promises_are_kept": 3,
    "tests/monitor/test_keys.py::test_the_interval_contains": 4,
    "tests/monitor/test_long_round_trips.py::test_rounds_fall_silent": 3,
    "tests/page/test_coverage.py::test_shows_what_each_source_heard": 3,
    "tests/page/test_devices.py::test_shows_who_is_silent": 3,
    "tests/page/test_extremes.py::test_shows_the_largest": 2,
    "tests/page/test_glance.py::test_a_button_that_has_nothing": 2,
    "tests/page/test_glance.py::test_an_answer_beside_rows": 2,
    "tests/page/test_glance.py::test_an_axis_has_room": 2,
    "tests/page/test_glance.py::test_buttons_do_not_lie": 2,
    "tests/page/test_glance.py::test_the_row_of_the_chosen": 2,
    "tests/page/test_glance.py::test_what_a_card_says_on_a_phone": 2,
    "tests/page/test_keys.py::test_pictures": 3,
    "tests/page/test_operator.py::test_what_an_operator_sees": 2,
    "tests/page/test_page.py::test_it_is_accessible_and_fits": 3,
    "tests/page/test_page.py::test_labels_are_bars": 2,
    "tests/page/test_page.py::test_the_decay_stays_in_reach": 2,
    "tests/page/test_source.py::test_a_source_that_there_is_not": 2,
    "tests/page/test_staleness.py::test_a_panel_that_is_watched": 2,
    "tests/page/test_staleness.py::test_drawings_stay": 2,
    "tests/page/test_streams.py::test_pictures": 2,
    "tests/page/test_typed.py::test_a_length_that_is_none_stays": 2,
    "tests/page/test_typed.py::test_another_choice_in_place": 3,
    "tests/quality/test_figures.py::test_entries_count_a_row_once": 5,
    "tests/quality/test_monitor.py::test_study_is_written": 7,
    "tests/query/test_groups.py::test_all_groups_at_once": 3,
    "tests/query/test_groups.py::test_relations_and_comparisons_of_groups": 3,
    "tests/query/test_hard_streams.py::test_a_count_allows_for_the_light": 5,
    "tests/query/test_hard_streams.py::test_intervals_hold_the_truth_where_a_few": 4,
    "tests/query/test_no_change.py::test_no_change_is_seen_in_a_total_of_sparse_values": 22,
    "tests/query/test_not_silent.py::test_a_count_after_the_weights": 4,
    "tests/query/test_not_silent.py::test_values_that_later_rows": 3,
    "tests/query/test_two_filters.py::test_the_interval_holds_in": 2,
    "tests/query/test_unseen_rows.py::test_the_largest_is": 5,
    "tests/querytime/test_cohen_strauss.py::test_equals_the_sum_over": 3,
    "tests/querytime/test_cohen_strauss.py::test_estimates_and_variances": 2,
    "tests/querytime/test_copies.py::test_intervals_of_either_way_hold_the_truth": 3,
    "tests/querytime/test_copies.py::test_more_copies_are_more_accurate": 3,
    "tests/querytime/test_rows.py::test_a_bad_row_of_a_batch_that_overflows": 4,
    "tests/querytime/test_rows.py::test_any_times_give_the_defined_state": 6,
    "tests/recorded/test_answers.py::test_a_description_that_takes": 3,
    "tests/recorded/test_answers.py::TestTheRecord::test_notices_a_digit": 2,
    "tests/simulation/test_planted_faults.py::test_a_planted_fault_is_found": 12,
    "tests/simulation/test_simulation.py::test_whatever_fails_what_must_hold_does": 6,
    "tests/sources/test_view.py::test_results_are_exact": 3,
    "tests/spark/test_build.py::TestBuild::test_equals_one_process_by_any_key": 3,
    "tests/spark/test_build.py::TestBuild::test_formats_agree": 2,
    "tests/spark/test_build.py::TestQuarantine::test_bad_rows_are_set_aside": 2,
    "tests/spark/test_engine.py::TestEqualsOneProcess::test_by_any_key": 3,
    "tests/spark/test_engine.py::TestEqualsOneProcess::test_from_a_dataframe": 2,
    "tests/spark/test_engine.py::TestKeys::test_a_skewed_key_is_merged": 2,
    "tests/spark/test_programs.py::test_families_are_built_and_merged": 3,
    "tests/spark/test_rebuild.py::TestRebuild::test_other_families": 3,
    "tests/spark/test_sites.py::TestBuild::test_equals_one_process_however": 3,
    "tests/spark/test_text_logs.py::test_a_file_gives_its_numbers": 4,
    "tests/tables/test_keyed.py::TestFamilies::test_equals_feeding_row_by_row": 3,
    "tests/tables/test_keys.py::TestEqualsOneByOne::test_in_any_pieces": 2,
    "tests/tables/test_keys.py::TestEqualsOneByOne::test_with_little_memory": 2,
    "tests/topk/test_rounds.py::TestFaults::test_no_certificate_lies": 4,
}
# By default an example that takes 200 ms fails its test, and so do examples that are slow to make.
_PATIENT = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("patient", _PATIENT)
hypothesis.settings.register_profile("same", _PATIENT, derandomize=True, database=None)

# Building a command line from its functions takes 20 ms: once for each, and not for each call.
if hasattr(testing, "_get_command"):  # not public: without it, tests take longer
    testing._get_command = cache(testing._get_command)

_SERVER_FIXTURES = {"server", "one_server", "served"}

# Of each hypothesis test ``make test`` runs this share of the examples, and no fewer than a few.
_EXAMPLES, _FEWEST_EXAMPLES = 0.2, 10
_SETTINGS = "_hypothesis_internal_use_settings"  # not public: without it, all examples run

_COMPILED = (
    "decaysketch", "api", "spark_jobs", "demo", "benchmarks", "quality", "scripts", "tests",
)  # fmt: skip
_PROCESS_BYTES = 2e9  # with the servers, Java and the browser that it starts

_MEMORY, _DATA_BYTES = "/dev/shm", 2e9  # pytest keeps the data of three runs


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Of ``-n auto``: two for each core, since a test waits for the processes that it starts.

    In ``make check`` none does: one more than there are cores. Each process imports all tests,
    which takes 7 seconds of processor time.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = os.cpu_count() or 1
    wanted = cores + 1 if "not process" in config.option.markexpr else 2 * cores
    return max(1, min(wanted, int(memory / _PROCESS_BYTES)))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples, and in a run of several processes the file system of the data.

    Hypothesis draws some examples from the constants of all modules that are imported by then.
    Small runs do without, since other modules would make other examples, and reading all of them
    takes 4 seconds of processor time in a fresh clone.

    A commit waits milliseconds for a disk. Memory has no such wait, and what kills a process, as
    tests do, leaves the same there. The processes inherit the place from the first.
    """
    hypothesis.settings.load_profile("same" if _is_small(config) else "patient")
    if _is_small(config) and hasattr(providers, "is_local_module_file"):
        providers.is_local_module_file = lambda _path: False
    if config.getoption("numprocesses", None) and _has_room(_MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


def _is_small(config: pytest.Config) -> bool:
    return "not exhaustive" in config.option.markexpr


def _has_room(folder: str) -> bool:
    try:
        room = os.statvfs(folder)
    except OSError:
        return False
    machine: int = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    runs_programs = not room.f_flag & os.ST_NOEXEC  # tests build kernels and load them
    return runs_programs and min(room.f_bavail * room.f_frsize, machine / 4) > _DATA_BYTES


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile all modules once, before several processes import them at the same time."""
    config = session.config
    if not config.getoption("numprocesses", None) or sys.dont_write_bytecode:
        return
    files = [path for folder in _COMPILED for path in (config.rootpath / folder).rglob("*.py")]
    cores = os.cpu_count() or 1
    fork = multiprocessing.get_context("fork")
    parts = [
        fork.Process(target=_compile, args=(config, files[core::cores])) for core in range(cores)
    ]
    for part in parts:
        part.start()
    for part in parts:
        part.join()


def _compile(config: pytest.Config, files: list[Path]) -> None:
    """Write the bytecode that is not there. Of tests it is pytest's, with rewritten assertions."""
    for path in files:
        if not path.match("test_*.py") and path.name != "conftest.py":
            compileall.compile_file(path, quiet=2)
            continue
        with suppress(AttributeError, TypeError, ValueError):  # not public: else each process does
            place = rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
            if rewrite._read_pyc(path, place) is None:
                place.parent.mkdir(exist_ok=True)
                source_hash, code = rewrite._rewrite_test(path, config)
                rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, place)


class _Scheduler(LoadFileScheduling):
    """One process runs a file, and all files that share a Spark session or the description."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        shares = file.startswith(_SESSION) and file not in _MARKS["exhaustive"]
        if shares:
            return _SESSION
        return _DESCRIPTION[0] if file.startswith(_DESCRIPTION) else file


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


def _draw_fewer(items: list[pytest.Item]) -> None:
    """Let hypothesis run some of the examples of each test."""
    found = {item.function for item in items if isinstance(item, pytest.Function)}
    for test in filter(hypothesis.is_hypothesis_test, found):
        if (whole := getattr(test, _SETTINGS, None)) is not None:
            some = max(int(whole.max_examples * _EXAMPLES), _FEWEST_EXAMPLES)
            fewer = hypothesis.settings(whole, max_examples=min(some, whole.max_examples))
            setattr(test, _SETTINGS, fewer)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Before ``-m`` selects: mark each test by what it starts."""
    _mark_most(items)
    if _is_small(config):
        _draw_fewer(items)
    for item in items:
        for mark, places in _MARKS.items():
            if item.nodeid.startswith(places):
                item.add_marker(mark)
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        chosen = [each for each in given if isinstance(each, str)]  # arrays compare entry by entry
        if _SERVER_FIXTURES & set(getattr(item, "fixturenames", ())) or "postgresql" in chosen:
            item.add_marker("process")
    places = _places(list(dict.fromkeys(_file(item) for item in items)))
    items.sort(key=lambda item: places[_file(item)])


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


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _places(files: list[str]) -> dict[str, tuple[int, float]]:
    """The order of files: those of ``_FIRST``, then in turns files that wait and files that do not,
    of either kind those of ``_LONG`` first.

    Tests of the aggregator wait for servers and threads, those of the library compute. If all
    processes run one kind at a time, cores are idle for half of the time.
    """
    last = len(_FIRST)
    places = {
        file: (next((at for at, start in enumerate(_FIRST) if file.startswith(start)), last), 0.0)
        for file in files
    }
    for waiting in (True, False):
        some = [f for f in files if (f.startswith("tests/api/"), places[f][0]) == (waiting, last)]
        some.sort(key=lambda file: not file.startswith(_LONG))
        places |= {file: (last, at / len(some)) for at, file in enumerate(some)}
    return places
