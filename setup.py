"""Builds the native kernels; everything else about the project is said in `pyproject.toml`.

A folder of the library that has kernels holds C files (`*.c`, shared inlines in `*.h`) and a thin
Cython layer over them: `_native.pyx` becomes the module `_native` of that folder, `_x_native.pyx`
another one. Nothing of it is listed: a new file is found. On x86-64 every C file is compiled once
for each level of instruction set, and the best one that the processor has is chosen when a module
is imported (`decaysketch/core/levels.h`).

Which compiler: `scripts/compiler.py`. `$CFLAGS` and `$LDFLAGS` are added to its options. Objects
are kept in `$DECAYSKETCH_BUILD`, or `build/`, and only what changed is compiled again.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

from scripts import compiler

LIBRARY = Path("decaysketch")
BUILD = Path(os.environ.get("DECAYSKETCH_BUILD", "build")).resolve()  # objects go by full names

# A fused multiply-add rounds once where kernels rely on two roundings; signed sums may wrap around.
MEANING = ["-std=gnu17", "-ffp-contract=off", "-fwrapv", "-fno-math-errno", "-fno-trapping-math"]
OPTIONS = ["-O3", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-ffunction-sections", "-Wall"]
OPTIONS += ["-Wextra", "-Wno-unused-function", "-Wno-unused-parameter", "-Wno-psabi"]
# What Cython writes is called once for each batch: it is compiled to be small.
LAYER = ["-Os", "-w"]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "freethreading_compatible": True,
}

if sys.platform == "darwin":
    LINK, MORE = ["-bundle", "-undefined", "dynamic_lookup", "-Wl,-dead_strip"], ""
else:
    LINK, MORE = ["-shared", "-Wl,--gc-sections"], "-Wl,--strip-debug"

TOLD_EVERY_S = 5.0


def levels(cc: list[str]) -> dict[str, list[str]]:
    """Options of each level of instruction set, by its name in the kernels."""
    if compiler.machine() != "x86_64":
        return {"base": []}
    return {level: [compiler.march(cc, level)] for level in ("v2", "v3", "v4")}


def newest(paths: Iterable[Path]) -> float:
    return max((path.stat().st_mtime for path in paths), default=0.0)


def is_outdated(made: Path, source: Path, build: float, headers: Callable[[], float]) -> bool:
    """Whether to compile a source again: it, the build or a file that it includes has changed.

    The compiler writes the list of these files next to the object (``-MMD``). For an object
    without a list, any header counts.
    """
    if not made.exists():
        return True
    when, listed = made.stat().st_mtime, made.with_suffix(".d")
    if when < max(newest([source]), build):
        return True
    if not listed.exists():
        return when < headers()
    _, _, names = listed.read_text().replace("\\\n", " ").partition(": ")
    try:
        return when < newest(map(Path, shlex.split(names)))
    except FileNotFoundError:  # a header was removed
        return True


def run(command: list[str]) -> None:
    if subprocess.call(command):
        raise SystemExit("compilation failed: " + shlex.join(command))


def run_all(commands: list[list[str]]) -> None:
    """As many at a time as there are processors; tells how far it is. One that fails ends it."""
    told = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(run, command) for command in commands]
        for done, job in enumerate(as_completed(jobs), 1):
            if job.exception():
                pool.shutdown(cancel_futures=True)
            job.result()
            if time.monotonic() - told > TOLD_EVERY_S:
                told = time.monotonic()
                print(f"compiled {done} of {len(jobs)}", flush=True)


class Build(build_ext):
    """Compiles all kernels, then links each extension with those that it calls."""

    def build_extensions(self) -> None:
        cc = compiler.command()
        # The package's compiler keeps what it has made of the C library: here, with the rest.
        os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(BUILD / "zig"))
        os.environ.setdefault("ZIG_LOCAL_CACHE_DIR", str(BUILD / "zig"))
        flags = [*MEANING, *OPTIONS, *compiler.target(), *shlex.split(os.environ.get("CFLAGS", ""))]
        flags.append(f"-I{LIBRARY}")
        made_by = hashlib.sha256(shlex.join([*cc, *flags]).encode()).hexdigest()[:8]
        build = newest([Path(__file__)])
        headers = cache(lambda: newest(LIBRARY.rglob("*.h")))
        jobs = []

        def compiled(source: Path, name: str, extra: list[str]) -> str:
            file = source.relative_to(source.anchor).with_suffix(".o")
            out = BUILD / "objects" / made_by / name / file
            if is_outdated(out, source, build, headers):
                out.parent.mkdir(parents=True, exist_ok=True)
                jobs.append([*cc, *flags, *extra, "-MMD", "-c", str(source), "-o", str(out)])
            return str(out)

        kernels = [
            compiled(source, level, [*options, f"-DDS_LEVEL={level}"])
            for source in sorted(LIBRARY.rglob("*.c"))
            for level, options in levels(cc).items()
        ]
        python = [*LAYER, *compiler.headers()]
        written = cythonize(
            self.extensions,
            build_dir=str(BUILD / "cython" / Cython.__version__),
            quiet=True,
            compiler_directives=DIRECTIVES,
        )
        layers = {
            ext.name: compiled(Path(ext.sources[0]), sysconfig.get_config_var("SOABI"), python)
            for ext in written
        }
        if jobs:
            print(f"compiling {len(jobs)} files with {shlex.join(cc)}", flush=True)
            run_all(jobs)
        for ext in self.extensions:
            target = Path(self.get_ext_fullpath(ext.name))
            objects = [layers[ext.name], *kernels]
            if not target.exists() or target.stat().st_mtime < newest(map(Path, objects)):
                target.parent.mkdir(parents=True, exist_ok=True)
                link = shlex.split(os.environ.get("LDFLAGS", MORE))
                made = target.with_suffix(".new")  # a process may have the old one open
                run([*cc, *LINK, *compiler.target(), "-o", str(made), *objects, *link])
                made.replace(target)


class Files(build_py):
    """Gathers the Python files, and none that was there once: setuptools would keep those."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(
    ext_modules=[
        Extension(".".join(path.with_suffix("").parts), [str(path)])
        for path in sorted(LIBRARY.rglob("_*native.pyx"))
    ],
    cmdclass={"build_ext": Build, "build_py": Files},
)
