"""What the documentation shows is run: the README's snippet and every docstring example."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import runpy
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from support.rows import for_each

import decaysketch
from api.queries.document import questions_table
from decaysketch.core.sizing import capacity_for
from decaysketch.tables.sql.queries import functions_table
from decaysketch.tables.sql.sources import functions_table as sources_table
from decaysketch.tables.sql.time_ranges import moments_table

ROOT = Path(__file__).resolve().parent.parent
MODULES = ["decaysketch"] + [
    module.name for module in pkgutil.walk_packages(decaysketch.__path__, "decaysketch.")
]


def test_the_readme_snippet_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    ((snippet, shown),) = re.findall(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", text, flags=re.DOTALL
    )
    exec(compile(snippet, "README.md", "exec"), {})
    assert capsys.readouterr().out == shown
    assert shown.count("\n") == snippet.count("print(") == 2


def test_the_snippets_about_counts_print_what_they_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (ROOT / "docs" / "ecm.md").read_text(encoding="utf-8")
    snippet = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    exec(compile(snippet, "docs/ecm.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    said = re.findall(r"print\(.*\)  # (about )?([^:\n]+)", snippet)
    assert len(said) == len(printed) == 7
    for line, (about, expected) in zip(printed, said, strict=True):
        if about:
            assert float(line) == pytest.approx(float(expected), rel=0.1)
        else:
            assert line == expected


@pytest.mark.parametrize(
    "page",
    [
        "labels.md",
        "extremes.md",
        "devices.md",
        "series.md",
        "filters-and-groups.md",
        "columns.md",
        "compare-groups.md",
    ],
)
def test_the_snippet_of_a_page_prints_what_it_says(page: str) -> None:
    result = doctest.testfile(str(ROOT / "docs" / page), module_relative=False)
    assert result.failed == 0
    assert result.attempted >= 6


@for_each("name", [name for name in MODULES if not name.endswith("__main__")])
def test_docstring_examples(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder().find(module):
        if test.examples:  # each run looks for changes of all source files that were read
            runner.run(test)
    assert runner.failures == 0


def _pages() -> list[Path]:
    folders = ("docs", "deploy", "notebooks", "decaysketch", "api", "spark_jobs", "demo", "scripts")
    suffixes = {".md", ".py", ".ipynb", ".toml", ".yaml", ".service", ".Dockerfile", ""}
    found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return [ROOT / "README.md", *(p for p in found if p.is_file() and p.suffix in suffixes)]


def test_the_readme_shows_the_picture_of_the_demo_and_commands_that_it_takes() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [target] = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    picture = (ROOT / target).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 150_000
    shown = subprocess.run(
        [sys.executable, "-m", "demo", "--help"], cwd=ROOT, check=True, capture_output=True,
        text=True,
    ).stdout  # fmt: skip
    commands = re.findall(r'ARGS="([^"]*)"', text)
    assert f"--small-picture {target}" in commands
    for command in commands:
        for option in re.findall(r"--[a-z-]+", command):
            assert f"{option} " in shown, option


def test_the_readme_says_how_to_install_when_not_to_use_it_and_what_the_first_run_costs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^pip install \.", text, flags=re.MULTILINE)
    extras = set(re.findall(r"`(\w+)`", re.findall(r"extras are (.*?)\)", text)[0]))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extras
    assert extras <= project["optional-dependencies"].keys()
    assert "## When not to use it" in text
    assert "The first run compiles the library's kernels" in text
    default = f"{decaysketch.SketchParams(max_weight=1).capacity:,}"
    assert f"the default capacity, {default}" in text
    guide = (ROOT / "docs" / "should-i-use-it.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| (\d+) %.*?\| ([\d,]+) \|", guide, flags=re.MULTILINE)
    assert {int(of): int(size.replace(",", "")) for of, size in shown} == {
        of: capacity_for(of / 100) for of in (1, 2, 5, 10)
    }


def test_the_readme_begins_where_the_site_does() -> None:
    """A page for each kind of user, in a table that is seen, and all that there are."""
    tables = [
        re.findall(rf"^\| (.+) \| \[(.+)\]\({folder}start/(\w+\.md)\) \|$", text, re.MULTILINE)
        for folder, text in (
            ("docs/", (ROOT / "README.md").read_text(encoding="utf-8")),
            ("", (ROOT / "docs" / "index.md").read_text(encoding="utf-8")),
        )
    ]
    assert tables[0] == tables[1]
    assert {page for *_, page in tables[0]} == {p.name for p in (ROOT / "docs/start").glob("*.md")}


def test_nothing_is_installed_from_an_index_that_does_not_have_it() -> None:
    """By a name pip finds nothing: what is installed is a wheel's file, or the checkout."""
    by_name = re.compile(r"pip install[^\n|;&]*?[\s'\"`]decaysketch(?![-/\w])[^\n]{0,20}")
    for path in _pages():
        found = by_name.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path.relative_to(ROOT)}: {found[0] if found else None}"


def test_the_image_for_executors_has_a_python_that_the_library_runs_on() -> None:
    """Whatever the image of Spark that it begins with has."""
    image = (ROOT / "deploy" / "spark.Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [python] = re.findall(r"^ARG PYTHON=(\S+)$", image, flags=re.MULTILINE)
    assert SpecifierSet(project["requires-python"]).contains(python)
    [venv] = re.findall(r"uv venv --python \$\{PYTHON\} (\S+)", image)
    assert re.findall(r"PYSPARK_PYTHON=(\S+)", image) == [f"{venv}/bin/python"]
    assert f"uv pip install --no-cache --python {venv}/bin/python" in image
    [spark] = re.findall(r"^ARG SPARK=(\S+)$", image, flags=re.MULTILINE)
    pins = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8").splitlines()
    assert f"pyspark=={spark}" in pins
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    assert "deploy/spark.Dockerfile" in page
    assert "RUN pip install" not in page


def test_the_reference_has_every_public_name() -> None:
    pages = (ROOT / "docs" / "reference").glob("*.md")
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    documented = set(re.findall(r"^::: decaysketch\.([\w.]+)", text, flags=re.MULTILINE))
    assert {"decay", "errors"} <= documented  # modules, with all their names
    inside = {"Decay", "asyncwindow", "families", *decaysketch.errors.__all__}
    assert set(decaysketch.__all__) - inside <= documented


def test_links_of_the_readme_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


@pytest.mark.parametrize(
    ("page", "name", "command", "table"),
    [
        ("http-api.md", "questions", "python -m api questions", questions_table()),
        ("spark.md", "questions", "python -m decaysketch.spark", functions_table()),
        ("spark.md", "moments", "python -m decaysketch.spark moments", moments_table()),
        ("spark.md", "sources", "python -m decaysketch.spark sources", sources_table()),
    ],
)
@pytest.mark.filterwarnings("ignore:.* found in sys.modules:RuntimeWarning")
def test_the_tables_of_questions_are_those_of_the_code(
    page: str,
    name: str,
    command: str,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (written,) = re.findall(
        rf"<!-- {name}: written by `{command}` -->\n\n(.*)\n<!-- end of {name} -->",
        text,
        flags=re.DOTALL,
    )
    assert written == table
    module, *arguments = command.removeprefix("python -m ").split()
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    with suppress(SystemExit):
        runpy.run_module(module, run_name="__main__")
    assert capsys.readouterr().out == table


def test_contributing_lists_what_only_test_all_runs() -> None:
    marks = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    [places] = re.findall(r'"exhaustive": \((.*?)\)', marks, flags=re.DOTALL)
    listed = re.findall(
        r"^\| `(tests/\S+)` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.M
    )
    assert listed == re.findall(r'"(\S+)"', places)


def test_contributing_lists_every_study() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(quality[.\w]*)` \|", text, flags=re.MULTILINE)
    programs = [
        file.relative_to(ROOT).with_suffix("").parts
        for file in (ROOT / "quality").rglob("*.py")
        if "__main__" in file.read_text(encoding="utf-8")
    ]
    assert listed == sorted(".".join(parts).removesuffix(".__main__") for parts in programs)
