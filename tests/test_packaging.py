"""What is shipped, what it may import, and what it is built from."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.rows import for_each

from decaysketch.core.params import SketchParams
from decaysketch.families import FAMILIES
from scripts.structure import statements

ROOT = Path(__file__).resolve().parent.parent

PACKAGES = ["decaysketch", "api", "spark_jobs", "demo", "benchmarks"]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
)


_NAMED = frozenset(MODULES)


def source_of(module: str) -> Path:
    path = ROOT / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def imports_of(module: str) -> frozenset[str]:
    """Modules that a file names in imports, at its top or inside of functions."""
    found = set()
    for node in statements(ast.parse(source_of(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in _NAMED else node.module)
    return frozenset(found)


def allowed_of(module: str) -> set[str]:
    """Packages that a module of the library may import, beside the standard library."""
    allowed = {"decaysketch", "numpy", "scipy", "sympy"}
    if module.startswith("decaysketch.tables"):
        allowed.add("pyarrow")
    if module == "decaysketch.query.frames":
        allowed.add("pandas")  # imported by to_frame alone
    if module == "decaysketch.query.plots":
        allowed.add("matplotlib")  # imported by plot alone
    if module == "decaysketch.core.records":
        allowed.add("pyarrow")  # imported where the caller passed an Arrow array
    if module.startswith("decaysketch.client"):
        allowed.add("httpx2")
    if module.startswith("decaysketch.ingest"):
        allowed.add("pydantic")
    if module.startswith("decaysketch.ingest.otlp"):
        allowed |= {"google", "opentelemetry"}
    if module.startswith("decaysketch.ingest.bridge"):
        allowed |= {"httpx2", "paho", "prometheus_client", "pydantic"}
    if module.startswith("decaysketch.tables.sql"):
        allowed.add("pyarrow")
    if module in ("decaysketch.duckdb", "decaysketch.polars"):
        allowed |= {"pyarrow", module.rpartition(".")[2]}
    if module.startswith("decaysketch.spark"):
        allowed |= {"deltalake", "httpx2", "pyarrow", "pyspark"}
    if module.startswith("decaysketch.cli"):
        allowed |= {"httpx2", "pyarrow", "rich", "typer"}
    return allowed


def packages_of(module: str) -> set[str]:
    return {name.partition(".")[0] for name in imports_of(module)} - sys.stdlib_module_names


class TestImports:
    def test_of_the_library_need_nothing_but_its_dependencies(self) -> None:
        found = {
            module: outside
            for module in MODULES
            if module.startswith("decaysketch")
            and (outside := packages_of(module) - allowed_of(module))
        }
        assert not found

    def test_of_the_reference_share_nothing_with_what_it_checks(self) -> None:
        names = imports_of("decaysketch.minhit.reference")
        assert all(name.partition(".")[0] in sys.stdlib_module_names for name in names)


class FamilyNames(ast.NodeVisitor):
    """Where a file knows a family by name: its folder, its classes, or a text that means it.

    The names of families are words of other things too: "decay" is a field, "sum" and "median" are
    questions. A text means a family where it stands beside something that says so.
    """

    CLASSES = frozenset(
        {each.sketch.__name__ for each in FAMILIES.values()}
        | {each.recipe.__name__ for each in FAMILIES.values()}
        # Parameters of the core are those of whatever hashes ids, not of a family.
        | {each.params.__name__ for each in FAMILIES.values() if each.params is not SketchParams}
    )
    FOLDERS = frozenset(each.recipe.__module__.rpartition(".")[0] for each in FAMILIES.values())

    def __init__(self) -> None:
        self.found: list[str] = []
        self._above: list[ast.AST] = []

    @classmethod
    def of(cls, source: str) -> list[str]:
        names = cls()
        names.visit(ast.parse(source))
        return names.found

    def visit(self, node: ast.AST) -> None:
        if self._means_a_family(node):
            self.found.append(f"line {getattr(node, 'lineno', '?')}: {ast.unparse(node)}")
        self._above.append(node)
        self.generic_visit(node)
        self._above.pop()

    def _means_a_family(self, node: ast.AST) -> bool:
        match node:
            case ast.Import(names=names):
                return any(self._in_a_folder(each.name) for each in names)
            case ast.ImportFrom(module=module, names=names):
                named = (f"{module}.{each.name}" for each in names)
                return any(self._in_a_folder(name) for name in named) or any(
                    each.name in self.CLASSES for each in names
                )
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name in self.CLASSES
            case ast.Constant(value=str(text)):
                return text in FAMILIES and self._stands_for_a_family(node)
        return False

    def _in_a_folder(self, module: str) -> bool:
        return any(f"{module}.".startswith(f"{folder}.") for folder in self.FOLDERS)

    def _stands_for_a_family(self, text: ast.Constant) -> bool:
        """By what a text is compared with, given to, looked up in or listed among."""
        node: ast.AST = text
        above = list(reversed(self._above))
        while isinstance(above[0], ast.Tuple | ast.List | ast.Set | ast.IfExp):
            node = above.pop(0)
            if not isinstance(node, ast.IfExp) and self._all_families(node.elts):
                return True
        match above[0]:
            case ast.Compare(left=left, comparators=others):
                return _of_families(left, *others)
            case ast.BoolOp(values=others):
                return _of_families(*others)
            case ast.Call(func=function, args=arguments):
                plain = [each for each in arguments if isinstance(each, ast.Constant | ast.Name)]
                return _of_families(function, *plain)
            case ast.keyword(arg=str(name)):
                return "famil" in name
            case ast.Subscript(value=value):
                return _of_families(value) or (
                    isinstance(above[1], ast.AnnAssign) and _of_families(above[1].target)
                )
            case ast.Dict(keys=keys, values=values):
                if node in keys:
                    return self._all_families(keys)
                return _of_families(keys[values.index(node)])  # type: ignore[arg-type]
            case ast.Assign(targets=targets):
                return _of_families(*targets)
            case ast.AnnAssign(target=target):
                return _of_families(target)
            case ast.arguments() as given:
                return _of_families(*given.args, *given.kwonlyargs)
            case ast.MatchValue():
                return any(
                    isinstance(each, ast.Match) and _of_families(each.subject) for each in above
                )
        return False

    @staticmethod
    def _all_families(nodes: Sequence[ast.AST | None]) -> bool:
        return len(nodes) > 1 and all(
            isinstance(each, ast.Constant) and each.value in FAMILIES for each in nodes
        )


def _of_families(*nodes: ast.AST | None) -> bool:
    """Whether one of them says by a name, or a text of one word, that it is about families: what a
    sentence says decides nothing."""
    for node in filter(None, nodes):
        for each in ast.walk(node):
            for field in ("id", "attr", "arg", "value"):
                name = getattr(each, field, None)
                if isinstance(name, str) and " " not in name and "famil" in name.lower():
                    return True
    return False


class TestFamilies:
    """A family is known by its folder and its line in ``families.py``, and by nothing else: whoever
    needs something of it reads :class:`decaysketch.contract.family.Family`."""

    OF_FAMILIES = ("decaysketch", "decaysketch.families", *sorted(FamilyNames.FOLDERS))

    @for_each(
        "module",
        [m for m in MODULES if m.partition(".")[0] in ("decaysketch", "api", "spark_jobs")],
    )
    def test_are_named_nowhere_else(self, module: str) -> None:
        if module in self.OF_FAMILIES or module.rpartition(".")[0] in FamilyNames.FOLDERS:
            return
        found = FamilyNames.of(source_of(module).read_text(encoding="utf-8"))
        assert not found, f"{module} knows a family by name: {'; '.join(found)}"

    @for_each(
        "source",
        [
            "import decaysketch.querytime",
            "from decaysketch import asyncwindow",
            "from decaysketch.integral.sketch import anything",
            "from decaysketch import DecaySketch",
            "isinstance(sketch, ds.SumSampler)",
            "MedianParams(max_count=1)",
            "recipe.family == 'sum'",
            "recipe.family in ('sum', 'count')",
            "WITHOUT_A_VALUE = ('sum', 'median')",
            "family or 'decay'",
            "form.get('family', 'decay')",
            "FAMILIES['median']",
            "family: Literal['integral']",
            "{'family': 'sum', 'params': {}}",
            "{'decay': 1, 'integral': 2}",
            "warm_up(family='sum')",
            "def build(log, family='decay'): ...",
            "family = 'sum' if numbered else other",
            "match recipe.family:\n    case 'sum':\n        pass",
        ],
    )
    def test_are_found_where_they_are_named(self, source: str) -> None:
        assert FamilyNames.of(source)

    @for_each(
        "source",
        [
            "from decaysketch.core.params import SketchParams",
            "from decaysketch.families import FAMILIES, recipe_of",
            "fields = ('family', 'params', 'decay')",
            "aggregate == 'sum'",
            "combine in ('average', 'median')",
            "'decay' in form and form['family'] != name",
            "{'family': name, 'decay': form}",
            "form.get('decay')",
            "ask(sum='sum')",
            "question('sum', 'Of weights; in the family `sum`, of values.')",
            "'The family sum is one of those.'",
        ],
    )
    def test_are_not_seen_where_other_things_are_called_so(self, source: str) -> None:
        assert not FamilyNames.of(source)


class TestPublicNames:
    def test_of_the_face_are_for_users(self) -> None:
        face = importlib.import_module("decaysketch")
        assert {"decode", "merge"} <= set(face.__all__)
        for name in ("IntegralState", "SketchState", "hashing", "minhit", "wire"):
            assert hasattr(face, name)
            assert name not in face.__all__

    @for_each("module", [m for m in MODULES if not m.endswith("__main__")])
    def test_are_sorted_and_there(self, module: str) -> None:
        names = getattr(importlib.import_module(module), "__all__", [])

        def order(name: str) -> tuple[int, str]:  # constants, classes, functions
            return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)

        assert list(names) == sorted(names, key=order)
        assert len(set(names)) == len(names)
        for name in names:
            assert hasattr(sys.modules[module], name), f"{module}.{name}"


class TestRequirements:
    PINS = sorted((ROOT / "requirements").glob("*.txt"))

    @pytest.mark.parametrize("path", PINS, ids=lambda path: path.name)
    def test_fix_every_version_and_name_no_place(self, path: Path) -> None:
        pin = re.compile(r"[a-z0-9][a-z0-9._-]*==[0-9][0-9a-z.+!]*( ; [^@]*)?")
        for line in path.read_text(encoding="utf-8").splitlines():
            assert pin.fullmatch(line) or re.fullmatch(r"    # .*", line), line
            assert "://" not in line

    @pytest.fixture
    def wanted(self) -> dict[str, str]:
        """Versions by name, of what is installed here."""
        lines = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8").splitlines()
        pins = [Requirement(line) for line in lines if not line.lstrip().startswith("#")]
        return {
            pin.name: str(pin.specifier).removeprefix("==")
            for pin in pins
            if pin.marker is None or pin.marker.evaluate()
        }

    def test_are_what_runs_here(self, wanted: dict[str, str]) -> None:
        assert {name: metadata.version(name) for name in wanted} == wanted

    def test_lack_nothing_that_they_need(self, wanted: dict[str, str]) -> None:
        # Set-up installs these and looks for nothing else.
        for name in wanted:
            for need in map(Requirement, metadata.requires(name) or []):
                if need.marker is None or need.marker.evaluate({"extra": ""}):
                    version = wanted.get(canonicalize_name(need.name))
                    assert version is not None, f"{name} needs {need}"
                    assert need.specifier.contains(version, prereleases=True), f"{name}: {need}"


def test_setup_accepts_the_syntax_of_an_old_python() -> None:
    source = (ROOT / "scripts" / "setup.py").read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 6))
