"""Run the notebooks and write them with their outputs, as pages that any browser shows.

All of them, or those that are named, go to ``out/notebooks/``. With ``--clean`` none is run:
outputs are removed from the stored files, as is due after editing them in Jupyter.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from nbconvert import HTMLExporter
from traitlets.config import Config

from notebooks import FOLDER, NOTEBOOKS, clean_text, execute, read

OUTPUT = FOLDER.parent / "out" / "notebooks"

# The pages have neither formulas nor widgets: what would show them need not be fetched.
NOT_FETCHED = {"mathjax_url": "", "require_js_url": ""}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m notebooks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = [path.stem for path in NOTEBOOKS]
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(names))
    parser.add_argument("--clean", action="store_true", help="store without outputs, run nothing")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(names)):
        parser.error(f"no notebook {unknown[0]!r}; there are {', '.join(names)}")
    for path in NOTEBOOKS:
        if options.names and path.stem not in options.names:
            continue
        if options.clean:
            path.write_text(clean_text(read(path)), encoding="utf-8")
        else:
            write_page(path)


def write_page(path: Path) -> None:
    """Execute one notebook and write it as HTML."""
    started = time.perf_counter()
    notebook = execute(read(path))
    exporter = HTMLExporter(config=Config(HTMLExporter=NOT_FETCHED))
    body, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": path.stem}})
    OUTPUT.mkdir(parents=True, exist_ok=True)
    page = OUTPUT / f"{path.stem}.html"
    page.write_text(body, encoding="utf-8")
    seconds = time.perf_counter() - started
    print(f"{page.relative_to(FOLDER.parent)}: {seconds:.0f} s")


if __name__ == "__main__":
    main()
