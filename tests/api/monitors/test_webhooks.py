"""Where alerts may be sent: no further than the operator says, whatever a name resolves to."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from support.rows import for_each

from api.monitors import webhooks
from api.monitors.webhooks import WebhookError, Webhooks, is_public
from api.origins import Origin
from api.settings import Settings, SettingsError

SECRET = "sixteen letters!"
LOOPBACK = "127.0.0.0/8"
Answer = Callable[[asyncio.StreamWriter], Any]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Receiver:
    """What listens: keeps each request, and answers with ``answer``."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
        self.requests.append(head + await reader.readexactly(length))
        writer.write(self.answer)
        writer.close()

    @property
    def url(self) -> str:
        return f"http://receiver.test:{self.port}/hook?to=ops"


@asynccontextmanager
async def receiving(
    monkeypatch: pytest.MonkeyPatch, answer: bytes = b"HTTP/1.1 204 No Content\r\n\r\n"
) -> AsyncIterator[Receiver]:
    """A receiver on loopback, which ``receiver.test`` is the name of."""
    receiver = Receiver(answer)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    resolves_to(monkeypatch, "127.0.0.1")
    async with server:
        yield receiver


def resolves_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Every name does; which were asked."""
    asked = []

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(0, 0, 0, "", (each, port)) for each in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return asked


def allowed(url: str, *networks: str) -> Webhooks:
    listed = [ipaddress.ip_network(each) for each in networks]
    return Webhooks(frozenset({Origin.of(url)}), listed, SECRET.encode())


@pytest.mark.anyio
async def test_what_is_sent_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving(monkeypatch) as receiver:
        body = json.dumps({"status": "firing"}).encode()
        await allowed(receiver.url, LOOPBACK).send(receiver.url, body, 1_700_000_000)
    (request,) = receiver.requests
    head, _, sent = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /hook?to=ops HTTP/1.1"
    fields = dict(line.lower().split(": ", 1) for line in lines[1:])
    assert fields["host"] == f"receiver.test:{receiver.port}"
    digest = hmac.new(SECRET.encode(), b"1700000000." + sent, hashlib.sha256).hexdigest()
    assert fields["decaysketch-signature"] == f"t=1700000000,v1={digest}"
    assert sent == body


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n", "answered with 302"),
        (b"HTTP/1.1 500 Oops\r\n\r\n", "answered with 500"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP"),
        (b"HTTP/1.1 200 " + b"x" * 5000, "LimitOverrun"),
        (b"", "IncompleteRead"),
    ],
)
async def test_anything_but_success_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, why: str
) -> None:
    async with receiving(monkeypatch, answer) as receiver:
        with pytest.raises(WebhookError, match=why):
            await allowed(receiver.url, LOOPBACK).send(receiver.url, b"{}", 1)
    assert len(receiver.requests) == 1  # and nothing was followed


@pytest.mark.anyio
async def test_who_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.1)
    heard = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()  # until the sender hangs up
            writer.close()
            await writer.wait_closed()
        heard.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://receiver.test:{server.sockets[0].getsockname()[1]}/"
    resolves_to(monkeypatch, "127.0.0.1")
    while not heard.is_set():  # on a slow machine it may not even connect in that time
        with pytest.raises(WebhookError, match=r"no response within 0\.1 s"):
            await allowed(url, LOOPBACK).send(url, b"{}", 1)
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await heard.wait()
    server.close()


@pytest.mark.anyio
@pytest.mark.parametrize("found", [["127.0.0.1"], ["8.8.8.8", "10.0.0.7"], ["::ffff:10.0.0.7"], []])
async def test_a_name_of_a_private_address_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch, found: list[str]
) -> None:
    async def connect(*_: Any, **__: Any) -> None:
        raise AssertionError("connected")

    resolves_to(monkeypatch, *found)
    monkeypatch.setattr(asyncio, "open_connection", connect)
    with pytest.raises(WebhookError, match="not public"):
        await allowed("https://ops.example").send("https://ops.example/hook", b"{}", 1)


@pytest.mark.anyio
async def test_the_connection_is_made_to_the_address_that_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that says something else a moment later is not asked again."""
    made = {}

    async def connect(host: str, port: int, **options: Any) -> None:
        made.update(host=host, port=port, name=options["server_hostname"])
        raise OSError("enough")

    asked = resolves_to(monkeypatch, "8.8.8.8")
    monkeypatch.setattr(asyncio, "open_connection", connect)
    with pytest.raises(WebhookError, match="enough"):
        await allowed("https://ops.example").send("https://ops.example/hook", b"{}", 1)
    assert made == {"host": "8.8.8.8", "port": 443, "name": "ops.example"}
    assert asked == ["ops.example"]


@for_each(
    "address, public",
    [
        ("8.8.8.8", True),
        ("2606:4700::1", True),
        ("10.1.2.3", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False),
        ("2002:808:808::", True),
        ("fec0::1", False),
        ("192.88.99.1", False),
        ("2002:c058:6301::", False),  # 192.88.99.1 by 6to4
        ("192.0.0.9", False),
        ("3fff::1", False),
        ("2001:20::1", False),
        ("2606:4700::5efe:10.0.0.1", False),
        ("2606:4700::200:5efe:10.0.0.1", False),
        ("2606:4700::5eff:10.0.0.1", True),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is public


@for_each(
    "url",
    [
        "https://other.example/hook",
        "http://ops.example/hook",
        "https://ops.example:8443/hook",
        "https://ops.example.evil.example/hook",
        "https://ops.example@evil.example/hook",
        "https://evil.example\\@ops.example/hook",
        "https://ops.example/hook\r\nHost: evil",
        "https://ops.example/hoök",
        "https://ops.example:99999/",
        "ftp://ops.example/hook",
        "https:///hook",
        "https://ops.example/" + "x" * 2000,
    ],
)
def test_what_is_not_listed_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        allowed("https://ops.example").check(url)


def test_what_an_operator_lists_is_read_strictly() -> None:
    chosen = Webhooks.of(
        Settings(
            webhook_origins="https://ops.example http://[fd00::1]:9095",
            webhook_networks="fd00::/8",
            webhook_secret=SECRET,
        )
    )
    assert chosen.check("https://OPS.example:443/a?b").host == "ops.example"
    assert chosen.check("http://[fd00::1]:9095/").port == 9095
    assert chosen.reaches(ipaddress.ip_address("fd00::1"))
    assert not chosen.reaches(ipaddress.ip_address("10.0.0.1"))
    for wrong, why in (
        ({"webhook_origins": "ops.example"}, "webhook_origins has 'ops.example', which"),
        ({"webhook_origins": "https://ops.example/"}, "expected 'https://ops.example'"),
        ({"webhook_networks": "10.0.0.1/8"}, "webhook_networks has '10.0.0.1/8'"),
        ({"webhook_origins": "https://ops.example"}, "webhook_secret has 0 characters"),
    ):
        with pytest.raises(SettingsError, match=why.replace("[", r"\[")):
            Settings(**wrong)
    assert SECRET not in repr(Settings(webhook_secret=SECRET))
