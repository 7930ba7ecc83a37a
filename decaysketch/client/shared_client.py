"""Close an HTTP client after its last request has ended.

The pool of a closed client forgets the connection that a thread is still opening. The thread would
finish its request and leave the socket open, so the last request closes the client instead.
"""

from __future__ import annotations

import threading
from types import TracebackType

import httpx2

__all__ = ["SharedClient"]


class SharedClient:
    """An HTTP client that several threads use. Enter it for each request.

    Args:
        client: closed by :meth:`close`, or by the last request that runs then.
    """

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._requests = 0
        self._closing = False

    def close(self) -> None:
        """Close the client now, or at the end of the last running request. Never waits."""
        with self._lock:
            self._closing = True
            last = self._requests == 0
        if last:
            self._client.close()

    def __enter__(self) -> httpx2.Client:
        with self._lock:
            self._requests += 1
        return self._client

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._requests -= 1
            last = self._closing and self._requests == 0
        if last:
            self._client.close()
