"""``python -m api`` as a process of its own, for studies: started, watched and killed.

What a study wants to know of it stands in ``/proc``: how much memory it has, and had at most.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import httpx2

from quality.ports import free_port

__all__ = ["NotServingError", "Server"]

ROOT = Path(__file__).parents[1]


class NotServingError(RuntimeError):
    """The process ended before it served; the message holds the end of its log."""


class Server:
    """An aggregator over a database, on a port of loopback.

    Args:
        directory: where its log and temporary files are.
        environment: added to that of this process; ``DECAYSKETCH_DATA`` and the like.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._environment = {**os.environ, "TMPDIR": str(directory), **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self.log = directory / "aggregator.log"
        self.url, self._port = "", 0

    def start(self, *, again: bool = False) -> float:
        """Start; returns when it is ready, after so many seconds. It may take as long as it lives.

        Args:
            again: at the address that it had.

        Raises:
            NotServingError: it has ended.
        """
        if not again:
            self._port = free_port()
            self.url = f"http://127.0.0.1:{self._port}"
        began = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "api", "--port", str(self._port)],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        with httpx2.Client(base_url=self.url, trust_env=False, timeout=60) as http:
            while self._process.poll() is None:
                with suppress(httpx2.TransportError):
                    if http.get("/readyz").status_code == 200:
                        return time.monotonic() - began
                time.sleep(0.05)
        raise NotServingError(f"it ended with {self._process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    @property
    def process(self) -> int:
        """Its number.

        Raises:
            NotServingError: there is none.
        """
        if self._process is None or self._process.poll() is not None:
            raise NotServingError(f"it is not running: {self.last_words()}")
        return self._process.pid

    def kill(self) -> None:
        """End every process of it, without warning."""
        if self._process is not None:
            for process in (self._process.pid, *descendants(self._process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def resident_bytes(self) -> int:
        """Memory that it has; Linux."""
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """Most memory that it had since it started; Linux."""
        return self._status("VmHWM")

    def processor_s(self) -> float:
        """Seconds of a processor that it has used; Linux."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.process}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise NotServingError("it is ending")


def descendants(process: int) -> list[int]:
    """Numbers of the processes that a process has started, and of those that they have."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False
    )
    children = [int(word) for word in listed.stdout.split()]
    return children + [each for child in children for each in descendants(child)]
