"""Recorded calls of kernels give the same results at every level of instruction set, and on ARM.

What is recorded is what the library gives, or a reference in plain Python (``recording.py``). The
kernels are called by a small driver in C (``driver.c``), which needs no Python: those that were
compiled for the library, and, for an aarch64 that is emulated, what clang of the package
``ziglang`` makes of their sources.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from native import building, recording

from scripts import compiler

LEVELS = ["v2", "v3", "v4"] if compiler.machine() == "x86_64" else ["base"]


@pytest.fixture(scope="module", params=[*LEVELS, "aarch64"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs recorded calls."""
    level, folder = request.param, tmp_path_factory.mktemp("driver")
    if level == "aarch64":
        emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
        python = clang_of_package()
        if python is None or emulator is None:
            pytest.skip("needs ziglang (in this Python, or $ZIGLANG_PYTHON) and qemu-user")
        zig = [python, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static"]
        return [emulator, str(building.build(zig, "base", [], folder, building.sources()))]
    own = compiler.own()
    if own is None:
        pytest.skip("this machine has no C compiler of its own")
    if level == "base":
        return [str(building.build(own, level, [], folder, building.objects(level)))]
    if level > processor_level():
        pytest.skip(f"this processor has no {level}")
    options = [compiler.march(own, level)]
    return [str(building.build(own, level, options, folder, building.objects(level)))]


def clang_of_package() -> str | None:
    """The Python that has the package."""
    elsewhere = os.environ.get("ZIGLANG_PYTHON")
    if elsewhere is None and importlib.util.find_spec("ziglang") is None:
        return None
    return elsewhere or sys.executable


def processor_level() -> str:
    """The best level that the processor has."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if sys.platform == "linux" else ""
    return "v4" if "avx512vl" in flags else "v3" if "avx2" in flags else "v2"


@pytest.mark.parametrize("table", building.TABLES)
def test_results_are_those_recorded(driver: list[str], table: str) -> None:
    command = [*driver, str(building.recorded(table))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith(" calls, 0 differ\n")


@pytest.mark.parametrize("table", building.TABLES)
def test_what_is_recorded_is_what_the_library_gives(table: str) -> None:
    assert recording.recorded(table) == building.recorded(table).read_text(encoding="utf-8")


def test_a_result_that_differs_is_told(driver: list[str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("! asyncwindow.top_levels\n< 1 8\n< -1 -1\n< 1 9\n> 0 4\n", encoding="utf-8")
    ran = subprocess.run([*driver, str(wrong)], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "asyncwindow.top_levels: 1 of 1 results differ" in ran.stdout
