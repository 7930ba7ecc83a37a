"""The signal to stop, before the server has stopped.

On SIGTERM or SIGINT uvicorn closes its listening sockets, lets requests under way finish, and only
then ends the lifespan of the application. This module notifies the parts that must change at once
(``/readyz``, posts of clients that keep their connection, live connections that never finish by
themselves).
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["told_to_stop"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def told_to_stop(then: Callable[[], None]) -> Iterator[None]:
    """Call ``then`` in the running event loop when a signal to stop arrives in this context. The
    previous handler is called as before.

    Signals reach the main thread only: in any other this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    earlier = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(then)
        handler = earlier[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
