"""The driver of recorded calls, compiled for this machine or for another one."""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIBRARY = ROOT / "decaysketch"
DRIVER = HERE / "driver.c"
# Each has its adapters in a C file, its calls in a Python file, and what is recorded of them.
TABLES = sorted(path.stem for path in HERE.glob("*.c") if path != DRIVER)


def recorded(table: str) -> Path:
    """The file of the recorded calls of a table."""
    return HERE / "recorded" / f"{table}.txt"


def meaning() -> list[str]:
    """The options of ``setup.py`` that fix what the kernels compute."""
    for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MEANING":
            options: list[str] = ast.literal_eval(node.value)
            return options
    raise LookupError("setup.py has no MEANING")


def sources() -> list[Path]:
    """Those of all kernels."""
    return sorted(LIBRARY.rglob("*.c"))


def objects(level: str) -> list[Path]:
    """All kernels of a level as ``setup.py`` compiled them; their sources if something changed.

    So what is tested is what the library runs, and most of what there is to compile is there.
    """
    kernels = sources()
    changed = _newest([*kernels, *LIBRARY.rglob("*.h"), ROOT / "setup.py"])
    kept = sorted((ROOT / "build" / "objects").glob(f"*/{level}"), key=os.path.getmtime)
    for folder in reversed(kept):
        found = [folder / path.relative_to(ROOT).with_suffix(".o") for path in kernels]
        if all(path.exists() and _newest([path]) >= changed for path in found):
            return found
    return kernels


def _newest(paths: Iterable[Path]) -> float:
    return max(path.stat().st_mtime for path in paths)


def build(
    compiler: list[str], level: str, options: list[str], folder: Path, kernels: list[Path]
) -> Path:
    """The driver with the kernels of one level of instruction set, as an executable file.

    It is kept with what else is compiled, and used until anything that it is made from changes.

    Raises:
        RuntimeError: what the compiler says, if it refuses.
    """
    made = folder / f"driver-{level}"
    command = [*compiler, *meaning(), "-O3", "-Wno-psabi", *options, f"-DDS_LEVEL={level}"]
    command += [f"-I{LIBRARY}", f"-I{HERE}", "-o", str(made)]
    compiled = [*sorted(HERE.glob("*.c")), *kernels]
    files = [*compiled, *sorted(HERE.rglob("*.h")), *sorted(LIBRARY.rglob("*.h"))]
    version = subprocess.run([*compiler, "--version"], capture_output=True, check=True).stdout
    of = hashlib.sha256(version + os.fsencode(shlex.join([*command[:-1], *map(str, files)])))
    for file in files:
        of.update(file.read_bytes())
    driver = ROOT / "build" / "drivers" / of.hexdigest()[:16]
    if driver.exists():
        return driver
    cache = str(ROOT / "build" / "zig")  # where the package's compiler keeps its C library
    caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    command += map(str, compiled)
    ran = subprocess.run(
        command, env={**caches, **os.environ}, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    driver.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(made, driver)
    return driver
