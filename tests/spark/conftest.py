"""One Spark session for all tests here: starting one takes longer than most of them run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and "session" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    from spark_jobs.java import JavaNotFoundError
    from spark_jobs.session import spark_session

    try:
        with spark_session("decaysketch tests") as session:
            yield session
    except JavaNotFoundError as fault:
        pytest.skip(str(fault))


@pytest.fixture
def shared_session(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Let the programs use the tests' session instead of one of their own."""
    from spark_jobs import build, compact, merge, rebuild

    for module in (build, compact, merge, rebuild):
        monkeypatch.setattr(module, "spark_session", lambda *_: nullcontext(session))
    return session
