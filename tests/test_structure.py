"""The picture of docs/architecture.md is that of the imports, which run one way."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def structure() -> ModuleType:
    spec = importlib.util.spec_from_file_location("structure", ROOT / "scripts" / "structure.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("structure", None)
    module.rooms_of = cache(module.rooms_of)  # type: ignore[attr-defined]  # two tests read the same
    return module


def test_the_picture_is_that_of_the_imports(structure: ModuleType) -> None:
    drawn = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    assert drawn == structure.svg_of(structure.rooms_of(ROOT / "decaysketch"))


@pytest.mark.parametrize("package", ["decaysketch", "api"])
def test_no_arrow_runs_back(structure: ModuleType, package: str) -> None:
    assert structure.back_arrows(structure.rooms_of(ROOT / package)) == 0


def test_back_arrows_are_the_fewest_that_have_to_go(structure: ModuleType) -> None:
    circle = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}
    assert structure.back_arrows(circle) == 1
    assert structure.back_arrows({**circle, "b": {"a", "c"}}) == 1
    assert structure.back_arrows({"a": {"b"}, "b": {"a"}, "c": {"d", "a"}, "d": {"c"}}) == 2
    assert structure.floors_of({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == [["c"], ["b"], ["a"]]


def test_an_import_inside_of_a_function_is_an_arrow(structure: ModuleType, tmp_path: Path) -> None:
    package = tmp_path / "house"
    (package / "upper").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "upper" / "__init__.py").write_text("")
    (package / "upper" / "one.py").write_text("def f():\n    from house import lower\n")
    (package / "lower.py").write_text("import json\n")
    assert structure.rooms_of(package) == {"house": set(), "upper": {"lower"}, "lower": set()}
