"""SQL functions answer as they did when it was recorded: see ``python -m tests.recorded``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.recorded import entries, in_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_answers_are_those_recorded(session: SparkSession) -> None:
    recorded = entries.read("sql")
    assert len(recorded) >= 40
    found = entries.compare(recorded, in_sql.record(session))
    assert not found, "\n".join(found)
