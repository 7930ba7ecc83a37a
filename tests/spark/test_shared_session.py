"""Who needs the session of this folder is run by one of the two processes that have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SESSION_OF

HERE = Path(__file__).parent


def test_every_file_that_needs_the_session_is_named(request: pytest.FixtureRequest) -> None:
    """Any other would start a JVM and its workers again, unseen: half a minute of a processor."""
    items = [item for item in request.session.items if item.path.parent == HERE]
    needing = {
        item.nodeid.partition("::")[0]
        for item in items
        if "session" in getattr(item, "fixturenames", ())
    }
    assert needing <= SESSION_OF.keys(), "name it in _SESSIONS of tests/conftest.py"
