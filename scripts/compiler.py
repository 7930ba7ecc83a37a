"""The C compiler that the kernels are built with: ``$CC``, the machine's, or that of a package.

The machine's is taken if it compiles what kernels are made of. Where none does (there is none; it
is older than the names of the instruction sets; headers of the C library are missing) the package
of `requirements/zig.txt` brings one, clang, with all that it needs: 100 MB to download and 411 MB
on disk, which nothing asks for once the kernels are built.

"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "requirements" / "zig.txt"

_PROBE = r"""
#include <math.h>
#include <stdlib.h>
#include <string.h>
typedef double pair __attribute__((vector_size(16)));
typedef long long whole __attribute__((vector_size(16)));
whole probe(pair x) { return __builtin_convertvector(x * x, whole); }
"""


def machine() -> str:
    """The processor that is built for, which need not be the one that builds."""
    name = sysconfig.get_platform().rpartition("-")[2].lower()
    return platform.machine().lower() if name == "universal2" else name.replace("amd64", "x86_64")


def target() -> list[str]:
    """Options that say so, to compile and to link, where one compiler serves several."""
    return ["-arch", machine()] if sys.platform == "darwin" else []


def command() -> list[str]:
    """The compiler as a command; the package's if there is no other, whether installed or not."""
    return own() or packaged()


def own() -> list[str] | None:
    """``$CC``, or the machine's compiler; None where it has none that serves."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    built_with = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
    for name in (built_with, "cc", "gcc", "clang"):
        found = shutil.which(name)
        if found and _serves(found):
            return [found]
    return None


def packaged() -> list[str]:
    """The package's compiler, told for which C library: else it compiles for this very machine."""
    libc = "gnu.2.17" if platform.libc_ver()[0] == "glibc" else "musl"
    system = "macos" if sys.platform == "darwin" else f"linux-{libc}"
    processor = machine().replace("arm64", "aarch64")
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{processor}-{system}"]


def march(compiler: list[str], level: str) -> str:
    """The option for a level (v2, v3, v4) of the x86-64 instruction sets."""
    return "-march=" + ("x86_64_" if "ziglang" in compiler else "x86-64-") + level


def headers() -> list[str]:
    """Options by which Python's own C headers are found.

    Raises:
        SystemExit: they are not there. No package has them.
    """
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").exists():
        raise SystemExit(
            f"{sys.executable} comes without its C headers ({folder / 'Python.h'}). Install them "
            "(on Debian and Ubuntu it is the package python3-dev), or take another Python"
        )
    # Debian's lead on to a folder beside them, where a compiler that is not Debian's does not look.
    return [f"-I{folder}", f"-idirafter{folder.parent}"]


def _serves(compiler: str) -> bool:
    """Whether it compiles kernels: a stand-in for a compiler and one that is too old do not."""
    options = ["-std=gnu17", "-O1", *target()]
    if machine() == "x86_64":
        options.append(march([compiler], "v4"))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text(_PROBE)
        options += ["-c", str(source), "-o", str(source.with_suffix(".o"))]
        quiet = subprocess.DEVNULL
        return not subprocess.call([compiler, *options], stdout=quiet, stderr=quiet)
