"""An aggregator that really runs, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from client.faults import Aggregator, aggregator


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Aggregator]:
    """An aggregator over a file of this test."""
    with aggregator(tmp_path) as one:
        yield one
