"""The machine of a run: what it is, its one core, and the memory of a process.

All work is put on one core, so that a figure does not depend on how many there are; what uses more
says so. Linux tells a process its peak memory and lets it start that peak anew; elsewhere memory
figures are missing, not guessed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = [
    "Memory", "all_cores", "compiler", "describe", "installed", "one_core", "resident",
    "watch_memory",
]  # fmt: skip

PACKAGES = ("numpy", "scipy", "polars", "duckdb", "datasketches", "probstructs")
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def installed(package: str) -> str | None:
    """Version of a package, None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def compiler() -> str | None:
    """Path of a C++ compiler, None where there is none."""
    names = (os.environ.get("CXX", ""), "g++", "clang++", "c++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def one_core() -> None:
    """Keep this process, and those it starts, on one core, where the system allows it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def all_cores() -> int:
    """Let this process use every core; how many there are."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(cores))
        cores = len(os.sched_getaffinity(0))
    return cores


def describe() -> list[str]:
    """Lines that say what a figure was measured on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
    loads = "unknown"
    if hasattr(os, "getloadavg"):
        loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    found = [f"{name} {number}" for name in PACKAGES if (number := installed(name))]
    lines = [
        f"{cpu}, {os.cpu_count()} cores (one used unless stated), load {loads} at the start",
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"decaysketch {version('decaysketch')}",
        ", ".join(found),
    ]
    if path := compiler():
        shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        lines.append(shown.stdout.splitlines()[0] if shown.stdout else path)
    return lines


class Memory:
    """Peak memory of a block of code, in bytes beyond what was held before; None if unknown."""

    peak: int | None = None


def _status(name: str) -> int | None:
    if not _STATUS.exists():
        return None
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return None


def resident() -> int | None:
    """Bytes of memory that this process holds; None if unknown."""
    return _status("VmRSS")


@contextmanager
def watch_memory() -> Iterator[Memory]:
    """Measure the peak resident memory that a block adds to this process."""
    memory = Memory()
    try:
        _CLEAR.write_text("5")  # the peak starts anew from here
    except OSError:
        yield memory
        return
    before = resident()
    yield memory
    peak = _status("VmHWM")
    if before is not None and peak is not None:
        memory.peak = max(0, peak - before)
