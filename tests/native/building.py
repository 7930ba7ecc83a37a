"""The driver of recorded calls, compiled for this machine or for another one."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIBRARY = ROOT / "decaysketch"
TABLES = (
    "asyncwindow",
    "ecm",
    "minhit",
)  # each has its adapters in a C file, and its recorded calls


def meaning() -> list[str]:
    """The options of ``setup.py`` that fix what the kernels compute."""
    for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MEANING":
            options: list[str] = ast.literal_eval(node.value)
            return options
    raise LookupError("setup.py has no MEANING")


def sources() -> Iterator[Path]:
    """The driver, its adapters and the kernels that they call."""
    yield HERE / "driver.c"
    for table in TABLES:
        yield HERE / f"{table}.c"
        yield from sorted((LIBRARY / table).glob("*.c"))


def build(compiler: list[str], level: str, options: list[str], folder: Path) -> Path:
    """The driver with the kernels of one level of instruction set, as an executable file.

    Raises:
        RuntimeError: what the compiler says, if it refuses.
    """
    driver = folder / f"driver-{level}"
    command = [*compiler, *meaning(), "-O3", "-Wno-psabi", *options, f"-DDS_LEVEL={level}"]
    command += [f"-I{LIBRARY}", f"-I{HERE}", "-o", str(driver), *map(str, sources())]
    cache = str(ROOT / "build" / "zig")  # where the package's compiler keeps its C library
    caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    made = subprocess.run(
        command, env={**caches, **os.environ}, capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise RuntimeError(made.stderr)
    return driver
