"""A checkout whose kernels were not built says so, and what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_checkout_without_kernels_says_how_they_are_built(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "decaysketch",
        tmp_path / "decaysketch",
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    found = subprocess.run(
        [sys.executable, "-c", "import decaysketch"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 1
    last = found.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: the kernels of decaysketch are not in {tmp_path}")
    assert "pip install -e ." in last
