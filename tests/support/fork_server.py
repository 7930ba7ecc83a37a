"""Start ``python -m api`` or ``decaysketch`` by a fork from a process that has already imported it.

An aggregator spends 1.8 seconds of processor time on imports. Here one process for each test worker
imports both programs once and forks (:mod:`multiprocessing.forkserver`). A fork is killed, refused
and restarted as a new program is. Tests of imports, memory and several workers start the real one.
"""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

__all__ = ["Forked", "run", "start"]

_MODULES = {"python -m api": "api.__main__", "decaysketch": "decaysketch.cli"}


class Forked:
    """A forked program, with the methods of :class:`subprocess.Popen` that tests use."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("a forked program", timeout)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()

    def send_signal(self, number: int) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_MODULES.values()])
    return context


def start(
    arguments: Sequence[object],
    log: Path,
    environment: Mapping[str, str] = {},
    *,
    program: str = "python -m api",
    errors: Path | None = None,
) -> Forked:
    """Start a program with these arguments.

    Args:
        log: receives its output, after what it already contains.
        environment: added to that of this process.
        program: ``python -m api`` or ``decaysketch``.
        errors: receives what it writes to the standard error stream, if not ``log``.
    """
    sys.audit("subprocess.Popen", program, arguments, None, None)  # for tests/conftest.py
    outputs = {1: str(log), 2: str(errors or log)}
    given = [str(each) for each in arguments]
    process = _context().Process(
        target=_become, args=(program, given, outputs, {**os.environ, **environment})
    )
    process.start()
    return Forked(process)


def run(
    arguments: Sequence[object], *, program: str = "python -m api", timeout_s: float = 280
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as :func:`subprocess.run` does, and return what it has written."""
    with tempfile.TemporaryDirectory() as folder:
        out, errors = Path(folder, "out"), Path(folder, "errors")
        process = start(arguments, out, program=program, errors=errors)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        written = [each.read_text(encoding="utf-8") for each in (out, errors)]
    return subprocess.CompletedProcess([program, *map(str, arguments)], code, *written)


def _become(
    program: str, arguments: list[str], outputs: dict[int, str], environment: dict[str, str]
) -> None:
    """In the fork: become the program."""
    from api.operations.orphan import end_with_parent

    os.environ.clear()
    os.environ.update(environment)
    for stream, path in outputs.items():
        output = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(output, stream)
        os.close(output)
    sys.argv = [program, *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with_parent(within_s=0)
    try:
        importlib.import_module(_MODULES[program]).main()
    finally:
        atexit._run_exitfuncs()  # multiprocessing ends a child without them
