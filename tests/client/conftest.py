"""An aggregator that really runs, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client.faults import Aggregator, aggregator


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aggregator]:
    """One for the whole folder: every test has a stream of its own."""
    with aggregator(tmp_path_factory.mktemp("aggregator")) as one:
        yield one
