"""The notebooks, how they are run, and how they are stored.

A notebook is stored without outputs, counts and traces of the machine it was edited on, so that a
change of one cell is a change of a few lines. Whoever wants the outputs runs it: here, or in any
Jupyter.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

__all__ = ["FOLDER", "NOTEBOOKS", "clean_text", "execute", "read"]

FOLDER = Path(__file__).resolve().parent
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class _ThisInterpreter(AsyncKernelManager):
    """Whatever kernels a machine knows, the one that is started runs this very Python."""

    @property
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(**get_kernel_dict())


def read(path: Path) -> NotebookNode:
    """A stored notebook, checked against the notebook format.

    Raises:
        nbformat.ValidationError: it is no notebook of format 4.
    """
    notebook: NotebookNode = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def clean_text(notebook: NotebookNode) -> str:
    """The text that is stored: sources and cell names only, in one fixed layout."""
    cells = []
    for cell in notebook.cells:
        kept = {key: cell[key] for key in ("cell_type", "id", "source")}
        if cell.cell_type == "code":
            kept |= {"execution_count": None, "outputs": []}
        cells.append(NotebookNode(kept, metadata={}))
    clean = NotebookNode(cells=cells, metadata=METADATA, nbformat=4, nbformat_minor=5)
    text: str = nbformat.writes(nbformat.from_dict(clean))
    return text.rstrip("\n") + "\n"


def execute(notebook: NotebookNode, *, timeout_s: int = 1800) -> NotebookNode:
    """Run all cells in order, in a fresh kernel of this interpreter; outputs are filled in.

    Args:
        notebook: changed in place, and returned.
        timeout_s: limit for one cell, for its outputs, and for the kernel's start.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; the message holds its traceback.
        nbclient.exceptions.CellTimeoutError: a cell took longer than the limit.
    """
    with tempfile.TemporaryDirectory() as folder:
        sockets = {}
        if os.name == "posix":  # in a folder of the user's own; elsewhere, local ports
            sockets = {"transport": "ipc", "ip": str(Path(folder) / "kernel")}
        client = NotebookClient(
            notebook,
            kernel_manager_class=_ThisInterpreter,
            config=Config(KernelManager=sockets),
            timeout=timeout_s,
            startup_timeout=timeout_s,
            iopub_timeout=timeout_s,  # the outputs of a cell follow its end
            record_timing=False,
            resources={"metadata": {"path": str(FOLDER)}},
        )
        client.execute()
    return notebook
