"""What pages show is run, and printed as they say; every page and every command is in the site."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from documentation.pages import DOCS, agrees, pages, printed, shown

from scripts import command_line

_PROGRAMS = ("bash", "curl", "date", "grep", "head", "seq")


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_what_a_page_shows_is_what_is_printed(page: Path, tmp_path: Path) -> None:
    if missing := [each for each in _PROGRAMS if shutil.which(each) is None]:
        pytest.skip(f"no {missing[0]} here")
    for found, (_, _, expected) in zip(printed(page, tmp_path), shown(page), strict=True):
        assert agrees(found, expected), f"{found!r} is not as shown: {expected!r}"


def test_every_page_is_in_the_site() -> None:
    navigation = yaml.safe_load((DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    found = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert sorted(_pages(navigation)) == sorted(found)


def _pages(entries: list[Any]) -> list[str]:
    found = []
    for entry in entries:
        if isinstance(entry, str):  # the page of a section
            found.append(entry)
            continue
        for target in entry.values():
            found += [target] if isinstance(target, str) else _pages(target)
    return found


def test_the_page_of_the_command_line_says_what_its_help_says() -> None:
    assert command_line.PAGE.read_text(encoding="utf-8") == command_line.page(), (
        "run python scripts/command_line.py"
    )
