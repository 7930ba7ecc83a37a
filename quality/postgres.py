"""A PostgreSQL server of one's own, for tests and studies: started, stopped, killed at will.

It runs in a temporary directory, with a socket and no port, and syncs its disk as it does by
default. The binaries are those of Debian's package ``postgresql``: found in PATH or
/usr/lib/postgresql, or installed where that is possible.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

__all__ = ["Database", "PostgresServer", "ServerUnavailableError"]

_ACCOUNTS = ("postgres", "nobody")  # the server refuses to run as root
_START_S = 600
_numbers = itertools.count(1)


class ServerUnavailableError(RuntimeError):
    """There is no PostgreSQL on this machine, or it cannot run."""


@dataclass(frozen=True)
class Database:
    """A database; ``url`` is what settings take."""

    kind: str
    url: str

    def execute(self, statement: str, values: Mapping[str, Any] | None = None) -> list[Any]:
        """One statement on a connection of its own, committed; the rows that it gives."""
        url = sa.make_url(self.url)
        if self.kind == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
        with engine.begin() as connection:
            result = connection.execute(sa.text(statement), values or {})
            return list(result.all()) if result.returns_rows else []


class PostgresServer:
    """A PostgreSQL server over a directory of its own; not started yet.

    Raises:
        ServerUnavailableError: there is none here.
    """

    def __init__(self) -> None:
        self._binaries = _binaries()
        self._account = _account()
        self.directory = Path(tempfile.mkdtemp(prefix="decaysketch-postgres-"))
        self._data = self.directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        if self._account is not None:
            shutil.chown(self.directory, self._account)
        self._run("initdb", "-D", self._data, "-U", "decay", "-A", "trust", "-E", "UTF8",
                  "--no-locale", "--no-sync")  # fmt: skip

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-k", self.directory,
                 "-c", "listen_addresses=", "-c", "max_connections=200"],
                stdout=log, stderr=log, cwd=self.directory, user=self._account,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self.database("postgres").execute("SELECT 1")
            except sa.exc.OperationalError:
                assert self._process.poll() is None, self._said()
                assert time.monotonic() < deadline, self._said()
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """Stop at once: connections are cut, what was committed is on disk."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_START_S)
            self._process = None

    def kill(self) -> None:
        """Kill every process of the server without warning."""
        if self._process is not None:
            _signal(self._processes(), signal.SIGKILL)
            self._process.wait(_START_S)
            self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the server say nothing, without cutting a connection."""
        processes = self._processes()
        try:
            _signal(processes, signal.SIGSTOP)
            yield
        finally:
            _signal(processes, signal.SIGCONT)

    def _processes(self) -> list[int]:
        """Return every process of the server, the one that started the others first."""
        assert self._process is not None
        return [self._process.pid, *_children(self._process.pid)]

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def create(self) -> Database:
        """A new, empty database."""
        name = f"test_{next(_numbers)}"
        url = sa.make_url(self.database("postgres").url).set(drivername="postgresql+psycopg")
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        return self.database(name)

    def database(self, name: str) -> Database:
        return Database("postgresql", f"postgresql://decay@/{name}?host={self.directory}")

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [self._binaries / program, *map(str, arguments)],
            capture_output=True, cwd=self.directory, user=self._account, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()

    def _said(self) -> str:
        return (self.directory / "log").read_text()


def _binaries() -> Path:
    found = _found() or _installed()
    if found is None:
        raise ServerUnavailableError("there is no initdb in PATH or /usr/lib/postgresql")
    return found


def _found() -> Path | None:
    if program := shutil.which("initdb"):
        return Path(program).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(versions, key=lambda path: int(path.parts[-3]), default=None)
    return None if newest is None else newest.parent


def _installed() -> Path | None:
    """After an attempt to install it."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in ("update", "install --yes --no-install-recommends postgresql"):
        done = subprocess.run(
            ["apt-get", "-q", *command.split()], env=environment, capture_output=True, check=False
        )
        if done.returncode != 0:
            return None
    return _found()


def _account() -> str | None:
    """Who the server runs as; None: whoever asks for it."""
    if os.geteuid() != 0:
        return None
    names = {line.split(":")[0] for line in Path("/etc/passwd").read_text().splitlines()}
    for name in _ACCOUNTS:
        if name in names:
            return name
    raise ServerUnavailableError(f"it cannot run as root, and none of {_ACCOUNTS} is known here")


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(process, number)


def _children(parent: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in listed.stdout.split()]
