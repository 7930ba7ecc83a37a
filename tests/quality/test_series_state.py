"""The study of builds of series, with few of them."""

from __future__ import annotations

import pytest

from quality import series_state


def test_random_builds_equal_the_definition(capsys: pytest.CaptureFixture[str]) -> None:
    assert series_state.main(["definition", "25"]) == 0
    assert capsys.readouterr().out == "25 random builds, 0 differ from the definition\n"


def test_a_build_that_differs_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        series_state.reference, "state", lambda *_: ([], [series_state.reference.NONE] * 41)
    )
    assert series_state.definition(3) == 1
