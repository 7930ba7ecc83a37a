"""What the documentation shows is run: the README's snippet and every docstring example."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import decaysketch

ROOT = Path(__file__).resolve().parent.parent
MODULES = ["decaysketch"] + [
    module.name for module in pkgutil.walk_packages(decaysketch.__path__, "decaysketch.")
]


def test_the_readme_snippet_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(snippet, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == snippet.count("print(")
    assert printed[0] == "3.0"
    assert printed[1].startswith("Estimate(")


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    if name.endswith("__main__"):
        pytest.skip("a program")
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_links_of_the_readme_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
