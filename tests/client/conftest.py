"""An aggregator that really runs, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client.faults import Aggregator, aggregator


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aggregator]:
    """An aggregator of one module, whose tests have each a stream of their own."""
    with aggregator(tmp_path_factory.mktemp("aggregator")) as one:
        yield one
