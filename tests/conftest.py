"""Which files begin first, and which share a process, where several processes run the suite."""

from __future__ import annotations

import pytest

# First what compiles the kernels of one family each, where none are compiled yet. Then what starts
# processes of its own, the longest first, so that no long file is left for the end, when the other
# processes of the suite have nothing more to do.
_FIRST = (
    "tests/test_batch.py",
    "tests/integral/test_state.py",
    "tests/spark/test_engine.py",
    "tests/spark/test_streaming.py",
    "tests/api/test_kill.py",
    "tests/demo/test_walkthrough.py",
    "tests/spark/test_cluster.py",
    "tests/client/test_delivery_under_faults.py",
    "tests/page/",
    "tests/test_notebooks.py",
    "tests/quality/",
    "tests/spark/",
)

# Two processes start Java and Spark's workers, each for half of the files that need a session.
_SESSIONS = (
    ("test_engine", "test_rebuild", "test_functions", "test_tables"),
    ("test_streaming", "test_build", "test_source", "test_programs", "test_sql_session"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def _place(item: pytest.Item) -> int:
    found = (place for place, start in enumerate(_FIRST) if item.nodeid.startswith(start))
    return next(found, len(_FIRST))


def _group(item: pytest.Item) -> str:
    """Tests of one file share what it sets up."""
    if item.path.parent.name == "spark":
        for number, files in enumerate(_SESSIONS):
            if item.path.stem in files:
                return f"spark-{number}"
    return item.nodeid.partition("::")[0]
