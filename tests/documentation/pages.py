"""Pages whose commands and snippets are run, and what they print compared with what they show."""

from __future__ import annotations

import doctest
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from quality.ports import free_port

__all__ = ["DOCS", "agrees", "pages", "printed", "shown"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
_TEXT = r"((?:(?!```).)*)"  # of one block
_PAIR = re.compile(rf"```(sh|python)\n{_TEXT}```\n\n```text\n{_TEXT}```", re.DOTALL)
_END = "---- end of block ----"
_CHECK = doctest.OutputChecker()


def pages() -> list[Path]:
    """Those that show what comes of a block."""
    return [page for page in sorted(DOCS.rglob("*.md")) if _PAIR.search(page.read_text("utf-8"))]


def shown(page: Path) -> list[tuple[str, str, str]]:
    """The language of each block, its text, and what it says that is printed."""
    return _PAIR.findall(page.read_text(encoding="utf-8"))


def printed(page: Path, folder: Path) -> list[str]:
    """What the blocks of a page print, run one after the other in one shell. The port that they
    serve on is another one."""
    script = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for number, (language, text, _) in enumerate(shown(page)):
        if language == "python":
            (folder / f"block-{number}.py").write_text(text, encoding="utf-8")
            text = f"python block-{number}.py\n"
        script += [text, f"echo '{_END}'"]
    whole = "\n".join(script).replace("8000", str(free_port()))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        ["bash", "-c", whole],
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(DOCS.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=1800)  # for what hangs
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, f"{page.name}: {out}\n{err}"
    return [each.lstrip("\n") for each in out.split(_END)[:-1]]


def agrees(found: str, expected: str) -> bool:
    """Whether it is that, where ``...`` stands for anything."""
    return _CHECK.check_output(expected, found, doctest.ELLIPSIS)
