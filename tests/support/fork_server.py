"""Start ``python -m api`` by a fork from a process that has already imported it.

An aggregator spends 1.8 seconds of processor time on imports. Here one process for each test worker
imports ``api`` once and forks (:mod:`multiprocessing.forkserver`). Tests of starts, crashes, memory
and workers start the real program instead.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

__all__ = ["Forked", "start"]


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
            raise subprocess.TimeoutExpired("python -m api", timeout)
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
    context.set_forkserver_preload(["api.__main__"])
    return context


def start(arguments: Sequence[str], log: Path, environment: Mapping[str, str] = {}) -> Forked:
    """Start ``python -m api`` with these arguments.

    Args:
        log: receives its output, after what it already contains.
        environment: added to that of this process.
    """
    sys.audit("subprocess.Popen", "python -m api", arguments, None, None)  # for tests/conftest.py
    process = _context().Process(
        target=_run, args=([*arguments], str(log), {**os.environ, **environment})
    )
    process.start()
    return Forked(process)


def _run(arguments: list[str], log: str, environment: dict[str, str]) -> None:
    """In the fork: become the program."""
    from api import __main__ as program
    from api.operations.orphan import end_with_parent

    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    sys.argv = ["python -m api", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with_parent(within_s=0)
    program.main(arguments)
