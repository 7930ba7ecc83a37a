"""No socket of a client stays open after the client was closed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from client.faults import PARAMS, batch

from decaysketch.client import Sensor, StreamUnknownError
from decaysketch.families import recipe_of

OPTIONS: dict[str, Any] = {"trust_env": False, "timeout_s": 0.2, "flush_rows": 1}


class Server:
    """Accepts one connection, and keeps it after its response."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.ended = threading.Event()  # the client closed its connection
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, suppress(ConnectionError):  # a client that gave up may reset it
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            while connection.recv(65536):
                pass
        self.ended.set()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """A connection begins (first event) and is there after the second one.

    The sockets are kept, or the garbage collector would close those that the client leaves open.
    """
    begun, allowed = threading.Event(), threading.Event()
    connect, kept = socket.create_connection, ExitStack()

    def connect_late(*arguments: Any, **options: Any) -> socket.socket:
        begun.set()
        assert allowed.wait(60)
        return kept.enter_context(connect(*arguments, **options))

    monkeypatch.setattr(socket, "create_connection", connect_late)
    with kept:
        yield begun, allowed
        allowed.set()


def test_a_connection_that_opens_after_close_is_closed(
    tmp_path: Path, late: tuple[threading.Event, threading.Event]
) -> None:
    begun, allowed = late
    with closing(Server()) as server:
        options = OPTIONS | {"recipe": recipe_of(PARAMS)}
        sensor = Sensor(server.url, "s", "a", spool=tmp_path, **options).start()
        sensor.update(*batch(0, "a"))
        assert begun.wait(60)
        sensor.close()
        allowed.set()
        assert server.ended.wait(60)


def test_a_connection_that_opens_after_the_start_gave_up_is_closed(
    tmp_path: Path, late: tuple[threading.Event, threading.Event]
) -> None:
    begun, allowed = late
    with closing(Server()) as server:
        while not begun.is_set():  # a slow thread may not have come that far
            with (
                pytest.raises(StreamUnknownError),
                Sensor(server.url, "s", "a", spool=tmp_path, **OPTIONS),
            ):
                pass
        allowed.set()
        assert server.ended.wait(60)
