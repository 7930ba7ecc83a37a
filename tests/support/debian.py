"""Programs of Debian that tests run: found, or installed where this machine lets us."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["program"]

_INSTALL_S = 1800
_PATIENT = f"-oDPkg::Lock::Timeout={_INSTALL_S}"  # where something else installs on this machine


def program(names: Sequence[str], packages: Sequence[str]) -> str:
    """Path of the first program of these names that there is; skips, with the reason, where none
    can be had.

    Args:
        names: of the program.
        packages: of Debian, the first of which has it.
    """
    with _alone():
        return _found(names) or _installed(names, packages)


@contextmanager
def _alone() -> Iterator[None]:
    """Wait for the other processes of the suite: one installs at a time, and what another one is
    installing is not whole."""
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _installed(names: Sequence[str], packages: Sequence[str]) -> str:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        pytest.skip(f"no {names[0]} here; install Debian's package {packages[0]}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ("apt-get", "update", "-qq"),
        ("apt-get", "install", "-qq", "-y", "--no-install-recommends", _PATIENT, *packages),
    ):
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_INSTALL_S
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"no {names[0]} here, and {' '.join(command)} took over {_INSTALL_S} s")
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            pytest.skip(f"no {names[0]} here, and {' '.join(command)} failed: {why}")
    found = _found(names)
    assert found, f"the package {packages[0]} was installed and has no {names[0]}"
    return found


def _found(names: Sequence[str]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)
