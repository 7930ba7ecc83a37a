"""What attackers send, and how: to the end, or to the middle of a body, or without reading."""

from __future__ import annotations

import http.client
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import httpx2

__all__ = ["REQUEST_S", "Attack", "Request", "send"]

REQUEST_S = 300  # what has not answered by then hangs
_WINDOW_BYTES = 4096  # of a client that does not read


@dataclass(frozen=True)
class Request:
    """What a client sends; the key is that of its role.

    Attributes:
        way: ``whole`` reads the response. The others last ``hold_s``: ``hang-up`` leaves after the
            body, ``unfinished`` keeps back the end of the body, ``unread`` reads no response.
    """

    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    way: Literal["whole", "hang-up", "unfinished", "unread"] = "whole"
    hold_s: float = 0.0


@dataclass(frozen=True)
class Attack:
    """What one kind of client does.

    Attributes:
        role: of its key; None: the server asks for no key.
        prepare: makes what it is about, with the key of an owner.
        requests: what connection so-and-so sends, without end.
        connections: at a time.
        refused: nothing of it may be taken.
        leaves: its clients hang up, and what they cost must end with that.
    """

    role: str | None
    prepare: Callable[[httpx2.Client], None]
    requests: Callable[[int, random.Random], Iterator[Request]]
    connections: int = 6
    refused: bool = False
    leaves: bool = False


def send(connection: http.client.HTTPConnection, request: Request, key: str | None) -> int:
    """Status of the response; 0 where there was none."""
    headers = dict(request.headers)
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    if request.way != "whole":
        return _send_otherwise(connection, request, headers)
    try:
        connection.request(request.method, request.path, request.body, headers)
        answer = connection.getresponse()
        answer.read()
    except (ConnectionError, http.client.HTTPException):
        connection.close()
        return 0
    return answer.status


def _send_otherwise(
    connection: http.client.HTTPConnection, request: Request, headers: dict[str, str]
) -> int:
    """On a connection of its own. The status is that of a response that comes while it is held."""
    is_chunked = request.way == "unfinished"
    length = {"Transfer-Encoding": "chunked"} if is_chunked else {
        "Content-Length": str(len(request.body))}  # fmt: skip
    fields = {"Host": "127.0.0.1"} | headers | length
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    body = b"%x\r\n%b\r\n" % (len(request.body), request.body) if is_chunked else request.body
    with socket.socket() as client, suppress(OSError):
        if request.way == "unread":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WINDOW_BYTES)
        client.settimeout(request.hold_s)
        client.connect((connection.host, connection.port))
        client.sendall(f"{request.method} {request.path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        if request.way == "unfinished":
            return int(client.recv(300)[9:12] or 0)
        time.sleep(request.hold_s)
    return 0
