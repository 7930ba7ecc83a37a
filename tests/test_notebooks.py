"""The notebooks run, and are stored without outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import polars as pl
import pytest

from notebooks import FOLDER, NOTEBOOKS, clean_text, execute, read
from spark_jobs.java import JavaNotFoundError, find_java_home

NAMES = [path.stem for path in NOTEBOOKS]
notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)


def test_all_are_listed() -> None:
    listed = re.findall(r"^- \[.*\]\((.*)\.ipynb\)", (FOLDER / "README.md").read_text(), re.M)
    assert sorted(listed) == NAMES


@notebooks
class TestStored:
    def test_without_outputs_counts_and_metadata(self, path: Path) -> None:
        """What fails here after an edit is mended by ``python -m notebooks --clean``."""
        assert path.read_text(encoding="utf-8") == clean_text(read(path))

    def test_without_places_of_one_machine(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/(home|root|tmp|work|Users|opt|usr)/|[A-Z]:\\", text)

    def test_links_lead_somewhere(self, path: Path) -> None:
        for cell in read(path).cells:
            if cell.cell_type == "markdown":
                for target in re.findall(r"\]\(([^)#]+)\)", cell.source):
                    assert (FOLDER / target).exists(), target

    def test_cells_have_names_of_their_own(self, path: Path) -> None:
        names = [cell.id for cell in read(path).cells]
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[a-z][a-z-]*", name) for name in names), names


@notebooks
def test_runs_without_a_warning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "spark_session" in path.read_text(encoding="utf-8"):
        try:
            find_java_home()
        except JavaNotFoundError as fault:
            pytest.skip(str(fault))
    monkeypatch.setenv("PYTHONWARNINGS", "default")  # the kernel's: show what libraries hide
    pictures = 0
    for cell in execute(read(path)).cells:
        for output in cell.get("outputs", []):
            warned = output.output_type == "stream" and output.name == "stderr"
            assert not warned, f"{cell.id}: {output.text}"
            pictures += "image/png" in output.get("data", {})
    assert pictures


@pytest.mark.parametrize("name", ["how_minhit_works", "which_decay", "who_talks_most"])
def test_cells_run_without_a_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, without the start of a kernel and without pictures: warnings are errors."""
    import matplotlib.pyplot as plt

    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    names: dict[str, Any] = {}
    with pl.Config(), plt.rc_context():
        for cell in read(path).cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, f"{name}:{cell.id}", "exec"), names)


def test_cleaning_removes_what_a_run_leaves() -> None:
    cell = nbformat.v4.new_code_cell("1 + 1", id="sum", execution_count=3)
    cell.metadata["collapsed"] = True
    cell.outputs = [nbformat.v4.new_output("stream", text="/somebody/elses/place")]
    used = nbformat.v4.new_notebook(cells=[cell])
    used.metadata["language_info"] = {"name": "python", "version": "3.11.2"}
    clean = json.loads(clean_text(used))
    assert clean["cells"] == [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": "sum",
            "metadata": {},
            "outputs": [],
            "source": ["1 + 1"],
        }
    ]
    assert clean["metadata"]["language_info"] == {"name": "python"}
