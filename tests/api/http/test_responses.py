"""Responses leave as fast as they are read, within a budget, and not for ever."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from api.http import head_timeout
from api.http.head_timeout import TimedProtocol
from api.http.responses import PIECE_BYTES, Responses

MIB = 1 << 20


class Client:
    """Of a key; reads a piece whenever it is told to."""

    def __init__(self, app: Responses, key: str | None) -> None:
        self.received: list[Message] = []
        self.reads = asyncio.Semaphore(0)
        scope = {"type": "http", "state": {"caller": SimpleNamespace(prefix=key)}}
        self.task = asyncio.ensure_future(app(scope, _nothing, self._send))

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            await self.reads.acquire()
        self.received.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.received)

    async def read_all(self) -> int:
        for _ in range(10_000):
            self.reads.release()
        await self.task
        status: int = self.received[0]["status"]
        return status


async def _nothing() -> Message:
    raise AssertionError("a response needs nothing")


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(bytes(range(256)) * (MIB // 256))(scope, receive, send)


def test_responses_that_nobody_reads_are_bounded_for_each_key() -> None:
    async def scenario() -> None:
        app = Responses(_answer, 8 * MIB)
        much = [Client(app, "much") for _ in range(20)]
        await asyncio.sleep(0)
        assert app.shares.taken == 4 * MIB
        other = Client(app, "little")
        assert await other.read_all() == 200
        assert other.body == bytes(range(256)) * (MIB // 256)
        assert max(len(each.get("body", b"")) for each in other.received) == PIECE_BYTES
        assert app.shares.taken == 4 * MIB
        statuses = [await each.read_all() for each in much]
        assert (statuses.count(200), statuses.count(429)) == (4, 16)
        assert app.shares.taken == 0
        gone = Client(app, "much")
        await asyncio.sleep(0)
        gone.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone.task
        assert app.shares.taken == 0

    asyncio.run(scenario())


def test_short_responses_are_sent_as_they_are() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"x" * 100)(scope, receive, send)

    async def scenario() -> None:
        client = Client(Responses(answer, 1), None)
        assert await client.read_all() == 200
        assert [each.get("body") for each in client.received] == [None, b"x" * 100]

    asyncio.run(scenario())


@contextmanager
def _serving(app: Any) -> Iterator[int]:
    config = uvicorn.Config(app, port=0, http=TimedProtocol, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


async def _long(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await Response(bytes(32 * MIB))(scope, receive, send)


def _ask(port: int, window: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    client.settimeout(60)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return client


def test_a_client_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_timeout, "READER_S", 0.2)
    app, cut_off = Responses(_long, 64 * MIB), threading.Event()

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            if scope["type"] == "http":
                cut_off.set()

    with _serving(watched) as port, _ask(port, 4096) as client:
        assert cut_off.wait(300)
        assert app.shares.taken == 0
        received = 0
        with suppress(ConnectionResetError):  # or the end, after all that the kernel had
            while chunk := client.recv(1 << 16):
                received += len(chunk)
        assert received < 32 * MIB


def test_a_slow_client_that_reads_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_timeout, "READER_S", 60.0)
    app = Responses(_long, 64 * MIB)
    with _serving(app) as port, _ask(port, MIB) as client:
        received = 0
        while received < 32 * MIB:
            received += len(client.recv(1 << 20))
            if received < MIB:
                time.sleep(0.02)
    assert app.shares.taken == 0


async def _slowly(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond after the client has closed its side."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            continue
        await asyncio.sleep(0.1)
        await Response(b"accepted")(scope, receive, send)


@pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="the system does not report it")
def test_a_client_that_left_is_noticed_while_its_body_is_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server reads no more than the route does."""
    monkeypatch.setattr(head_timeout, "HALF_CLOSED_S", 0.0)
    begun, noticed = threading.Event(), threading.Event()

    async def reads_nothing(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            begun.set()
            while not scope["state"]["has_left"]():
                await asyncio.sleep(0.01)
            noticed.set()

    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 120000\r\n\r\n"
    with (
        _serving(reads_nothing) as port,
        socket.create_connection(("127.0.0.1", port), 60) as client,
    ):
        client.sendall(head + bytes(100_000))
        assert begun.wait(60)
        client.sendall(bytes(20_000))
        client.shutdown(socket.SHUT_WR)
        assert noticed.wait(60)


@pytest.mark.parametrize("sent", [4, 2])
def test_a_client_that_closed_its_side_gets_the_response(
    sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a complete body alone: no response to the rest of one can come."""
    monkeypatch.setattr(head_timeout, "HALF_CLOSED_S", 60.0)
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
    with _serving(_slowly) as port, socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(head + bytes(sent))
        client.shutdown(socket.SHUT_WR)
        received = b""
        while part := client.recv(1 << 16):  # and then the server closes
            received += part
    assert received.endswith(b"\r\n\r\naccepted") == (sent == 4)
