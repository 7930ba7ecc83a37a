"""Between a sender and a server: answers that say to come again, and connections that are cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FAULTS = [
    b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    b"",  # cut before an answer, once the aggregator has taken it
    b"HTTP/1.1 429 Slowly\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
]


@contextmanager
def faulty(port: int, path: bytes, faults: list[bytes]) -> Iterator[int]:
    """In front of a server: posts to paths of these bytes meet the faults first, whatever else goes
    through. A cut connection is one whose answer is lost."""
    left = list(faults)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    taken, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(
                    target=_pass_on, args=(taken, port, path, left), daemon=True
                ).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


def _pass_on(taken: socket.socket, port: int, path: bytes, left: list[bytes]) -> None:
    with suppress(OSError), taken, taken.makefile("rb") as sent:  # either side may leave
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = sent.readline()
            if not line:
                return
            head += line
        fields = dict(
            line.split(b":", 1) for line in head.lower().split(b"\r\n")[1:] if b":" in line
        )
        body = sent.read(int(fields.get(b"content-length", b"0")))
        head = head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        is_write = head.startswith(b"POST") and path in head.split(b"\r\n")[0]
        fault = left.pop(0) if left and is_write else None
        if fault:
            taken.sendall(fault)
            return
        with socket.create_connection(("127.0.0.1", port)) as to:
            to.sendall(head + body)
            answer = b""
            while piece := to.recv(65536):
                answer += piece
        if fault is None:
            taken.sendall(answer)
