"""Tell whoever waits that kernels are compiled, and how far it is.

Numba keeps what it has compiled on disk, and loads it the next time in a moment. To compile takes a
minute, on a busy machine many, once for each machine and release.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numba.core import event

__all__ = ["progress"]

_TOLD_EVERY_S = 5.0


@contextmanager
def progress(tell: Callable[[str], None]) -> Iterator[None]:
    """Within it, ``tell`` is given a line as soon as a kernel is compiled, and one every few
    seconds; none if all of them are on disk. It is called on the thread that compiles."""
    compilations = _Compilations(tell)
    with event.install_listener("numba:compile", compilations):
        yield
    compilations.finish()


class _Compilations(event.Listener):
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._count = 0
        self._began: float | None = None
        self._told = 0.0

    def on_start(self, event: event.Event) -> None:
        if self._began is None:
            self._began = self._told = time.monotonic()
            self._tell("compiling kernels, once for this machine; it may take some minutes")

    def on_end(self, event: event.Event) -> None:
        if self._began is None:  # another thread began before
            return
        self._count += 1
        if time.monotonic() - self._told >= _TOLD_EVERY_S:
            self._told = time.monotonic()
            self._tell(f"compiling kernels: {self._count} after {self._told - self._began:.0f} s")

    def finish(self) -> None:
        if self._began is not None:
            taken_s = time.monotonic() - self._began
            self._tell(f"compiled {self._count} kernels in {taken_s:.0f} s")
