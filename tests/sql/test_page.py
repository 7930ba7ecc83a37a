"""What ``docs/engines.md`` shows is run, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engines.md"


def test_the_snippets_print_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(snippets) == text.count("```python") == 4
    names: dict[str, object] = {}
    for snippet, said in snippets:
        exec(compile(snippet, PAGE.name, "exec"), names)
        assert capsys.readouterr().out.rstrip() == said.rstrip()
