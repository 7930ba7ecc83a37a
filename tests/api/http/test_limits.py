"""Bodies and requests that are too much: too long, too dense, too slow, too often."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import select
import socket
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from doorway import doorway
from fastapi.testclient import TestClient
from service import LOCAL, OCTETS, problem
from starlette.types import Message, Receive, Scope, Send
from typer.testing import CliRunner

from api.http import decompression, head_timeout
from api.http.caller import Rates, address_of
from api.http.head_timeout import TimedProtocol
from api.http.middleware import Body
from api.http.refusals import BodiesInFlightError
from api.operations.keys import keys as commands

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
MIB = 1 << 20
URL = "/v1/streams/s/sketches"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., TestClient]]:
    with ExitStack() as running:

        def start_one(**settings: Any) -> TestClient:
            app = doorway(tmp_path / "keys.sqlite3", **settings)
            return running.enter_context(
                TestClient(app, base_url=LOCAL, raise_server_exceptions=False)
            )

        yield start_one


@pytest.fixture
def client(start: Callable[..., TestClient]) -> TestClient:
    return start()


def encoded(coding: str) -> dict[str, str]:
    return OCTETS | {"content-encoding": coding}


# --------------------------------------------------------------------------------- decompression


@pytest.mark.parametrize("coding", COMPRESS)
@pytest.mark.parametrize(
    "size", [0, 1, decompression.PIECE_BYTES, 3 * decompression.PIECE_BYTES + 5]
)
def test_the_routes_see_the_plain_bytes(client: TestClient, coding: str, size: int) -> None:
    plain = bytes(i * i % 251 for i in range(size))
    answer = client.post(URL, content=COMPRESS[coding](plain), headers=encoded(coding))
    assert answer.json() == {"bytes": size, "encoding": None, "first": plain[:8].decode("latin-1")}


@pytest.mark.parametrize("coding", COMPRESS)
def test_several_members_are_one_body(client: TestClient, coding: str) -> None:
    content = b"".join(map(COMPRESS[coding], [b"ab", b"", b"c" * 10**6]))
    assert client.post(URL, content=content, headers=encoded(coding)).json()["bytes"] == 1_000_002


@pytest.mark.parametrize("coding", COMPRESS)
@pytest.mark.parametrize("step", [1, 2, 7])
def test_however_it_is_cut(client: TestClient, coding: str, step: int) -> None:
    content = COMPRESS[coding](b"abc" * 5) + COMPRESS[coding](b"d" * 70_000)

    def chunks() -> Iterator[bytes]:
        for at in range(0, len(content), step):
            yield content[at : at + step]

    answer = client.post(URL, content=chunks(), headers=encoded(coding))
    assert answer.json()["bytes"] == 70_015


@pytest.mark.parametrize("coding", COMPRESS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: b"",
        lambda body: body[:-1],
        lambda body: body[: len(body) // 2],
        lambda body: body + b"rubbish",
        lambda body: body + b"\x00",
        lambda body: b"rubbish" + body,
        lambda body: body[:-3] + bytes([body[-3] ^ 1]) + body[-2:],
    ],
    ids=["empty", "truncated", "half", "rubbish after", "padded", "rubbish before", "checksum"],
)
def test_a_damaged_encoding(
    client: TestClient, coding: str, spoil: Callable[[bytes], bytes]
) -> None:
    if coding == "zstd":
        options = {zstd.CompressionParameter.checksum_flag: 1}
        body = zstd.compress(b"some text " * 100, options=options)
    else:
        body = gzip.compress(b"some text " * 100)
    content = problem(client.post(URL, content=spoil(body), headers=encoded(coding)), 422)
    assert content["detail"].startswith(f"the body is not valid {coding}: ")


@pytest.mark.parametrize(
    "coding", ["br", "deflate", "compress", "gzip, gzip", "zstd, gzip", "gzip;q=1", "\x7f"]
)
def test_other_encodings_are_refused(client: TestClient, coding: str) -> None:
    content = problem(client.post(URL, content=b"x", headers=encoded(coding)), 415)
    assert content["detail"].endswith("expected one of gzip, zstd, identity")


@pytest.mark.parametrize("coding", ["identity", "Identity", "GZIP"])
def test_codings_in_any_case(client: TestClient, coding: str) -> None:
    body = b"abc" if coding.lower() == "identity" else gzip.compress(b"abc")
    assert client.post(URL, content=body, headers=encoded(coding)).json()["bytes"] == 3


def bomb(coding: str, size: int) -> bytes:
    """Zeros, many of them, in few bytes."""
    if coding == "zstd":
        packer = zstd.ZstdCompressor(level=1)
        return b"".join(packer.compress(bytes(MIB)) for _ in range(size // MIB)) + packer.flush()
    deflater = zlib.compressobj(9, wbits=31)
    return b"".join(deflater.compress(bytes(MIB)) for _ in range(size // MIB)) + deflater.flush()


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_bomb_is_refused_in_little_memory(start: Callable[..., TestClient], coding: str) -> None:
    client = start(max_inflated_bytes=2048 * MIB)
    content = bomb(coding, 256 * MIB)
    assert len(content) < MIB
    tracemalloc.start()
    try:
        answer = client.post(URL, content=content, headers=encoded(coding))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    problem(answer, 413)
    # what the route had been given until then, at most the allowed ratio of what had come
    assert peak < 64 * MIB + decompression.RATIO * len(content) < 256 * MIB


@pytest.mark.parametrize("coding", COMPRESS)
def test_the_inflated_length_is_bounded(start: Callable[..., TestClient], coding: str) -> None:
    client = start(max_inflated_bytes=5000)
    for size, status in ((5000, 200), (5001, 413)):
        body = COMPRESS[coding](bytes(range(250)) * 20 + b"x" * (size - 5000))
        answer = client.post(URL, content=body, headers=encoded(coding))
        assert answer.status_code == status
    assert "longer than 5000 bytes" in problem(answer, 413)["detail"]


@pytest.mark.parametrize("coding", COMPRESS)
def test_empty_parts_are_counted(client: TestClient, coding: str) -> None:
    content = COMPRESS[coding](b"") * 10_001
    answer = client.post(URL, content=content, headers=encoded(coding))
    assert "more than 10000 parts" in problem(answer, 422)["detail"]


def test_a_zstd_window_that_takes_much_memory_is_refused(client: TestClient) -> None:
    options = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.content_size_flag: 0,
    }
    packer = zstd.ZstdCompressor(options=options)
    content = packer.compress(b"x" * 10) + packer.flush()
    assert (
        "memory"
        in problem(client.post(URL, content=content, headers=encoded("zstd")), 422)["detail"]
    )


# ---------------------------------------------------------------------------------------- length


def test_bulk_bodies_and_others_have_their_own_limits(start: Callable[..., TestClient]) -> None:
    client = start(max_body_bytes=3000, max_json_bytes=1000)
    for media_type, limit in (
        ("application/octet-stream", 3000),
        ("application/x-ndjson; charset=utf-8", 3000),
        ("application/json", 1000),
        ("text/plain", 1000),
        ("", 1000),
    ):
        headers = {"content-type": media_type}
        assert client.post(URL, content=b"x" * limit, headers=headers).status_code == 200
        for content in (b"x" * (limit + 1), iter([b"x" * limit, b"x"])):
            content_of = problem(client.post(URL, content=content, headers=headers), 413)
            assert content_of["detail"].startswith(f"the body is longer than {limit} bytes")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 2_000_000,
        b'{"a":' * 400_000,
        b"[" + b"1" * 2_000_000 + b"]",
        b'["' + b"\\u0000" * 300_000 + b'"',
        b"\xff\xfe" * 500_000,
    ],
    ids=["deep lists", "deep objects", "long integer", "open string", "not text"],
)
def test_giant_json_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post("/json", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.content) < 2000
    shorter = client.post(
        "/json", content=body[:200_000], headers={"content-type": "application/json"}
    )
    assert shorter.status_code in (413, 422)


# ------------------------------------------------------------------------- all bodies at a time


class Held:
    """Requests to ``Body`` alone whose bodies come when the test says."""

    def __init__(self, inflight_bytes: int) -> None:
        self.body = Body(
            self._route,
            limit_bytes=1000,
            inflated_bytes=1000,
            json_bytes=1000,
            inflight_bytes=inflight_bytes,
            timeout_s=60,
            query_bytes=1000,
        )

    async def _route(self, scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await scope["leave"].wait()
        if scope["fails"]:
            raise RuntimeError("at fault")

    async def begin(self, size: int, *, fails: bool = False) -> tuple[Any, asyncio.Event]:
        """A request whose route was given a body and has not ended."""
        messages = [{"type": "http.request", "body": b"x" * size, "more_body": False}]

        async def receive() -> Message:
            return messages.pop()

        async def send(_message: Message) -> None: ...

        leave = asyncio.Event()
        scope = {
            "type": "http", "method": "POST", "path": "/v1/streams/s/sketches", "headers": [],
            "leave": leave, "fails": fails,
        }  # fmt: skip
        task = asyncio.ensure_future(self.body(scope, receive, send))
        for _ in range(10):
            await asyncio.sleep(0)
        return task, leave


def test_bodies_at_a_time_are_bounded_and_given_back_on_every_path() -> None:
    async def scenario() -> None:
        held = Held(inflight_bytes=112)  # of which 14 are for short ones, when there is no more
        first, leave_first = await held.begin(60)
        second, leave_second = await held.begin(38, fails=True)
        short, leave_short = await held.begin(2)
        assert held.body.held_bytes == 100
        refused, _ = await held.begin(13)
        with pytest.raises(BodiesInFlightError, match="too much of 112 bytes"):
            await refused
        leave_short.set()
        await short
        leave_second.set()
        with pytest.raises(RuntimeError):
            await second
        assert held.body.held_bytes == 60
        third, _ = await held.begin(40)
        third.cancel()
        with pytest.raises(asyncio.CancelledError):
            await third
        leave_first.set()
        await first
        assert held.body.held_bytes == 0
        alone, leave_alone = await held.begin(500)  # longer than the limit, and nobody else
        other, leave_other = await held.begin(0)
        assert held.body.held_bytes == 500
        leave_alone.set()
        leave_other.set()
        await asyncio.gather(alone, other)
        assert held.body.held_bytes == 0

    asyncio.run(scenario())


def test_too_many_bodies_are_to_come_again(client: TestClient) -> None:
    @client.app.get("/held")  # type: ignore[attr-defined]
    async def held() -> None:
        raise BodiesInFlightError(7)

    answer = client.get("/held")
    problem(answer, 429)
    assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize("coding", ["gzip", "br"])
@pytest.mark.parametrize("body", [b"", b"abc"])
def test_what_comes_with_get_is_of_no_matter(coding: str, body: bytes) -> None:
    """An answer that does not end looks meanwhile whether the client is there, and would meet a
    refusal of the body with no way to tell it."""

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"

    async def scenario() -> None:
        messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": body}]
        scope = {
            "type": "http",
            "method": "GET",
            "headers": [(b"content-encoding", coding.encode()), (b"content-length", b"9999")],
        }

        async def receive() -> Message:
            return messages.pop()

        async def send(_message: Message) -> None: ...

        await Body(endless, 10, 10, 10, 10, 60, 10)(scope, receive, send)
        assert messages == []

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------------ rates


def test_a_bucket_to_the_token() -> None:
    rates = Rates(rate_per_s=2, burst=3)
    assert [rates.wait_s("a", 0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert rates.wait_s("b", 0.0) == 0
    assert rates.wait_s("a", 0.25) == 0.25
    assert rates.wait_s("a", 0.5) == 0
    assert [rates.wait_s("a", 100.0) for _ in range(4)] == [0, 0, 0, 0.5]


def test_the_table_of_buckets_is_bounded() -> None:
    rates = Rates(rate_per_s=1, burst=1, kept=2)
    for caller in ("a", "b"):
        assert rates.wait_s(caller, 0.0) == 0
    assert rates.wait_s("a", 0.0) == 1
    assert rates.wait_s("c", 0.0) == 0  # b, silent longest, is forgotten
    assert rates.wait_s("a", 0.0) == 1
    assert rates.wait_s("b", 0.0) == 0


@pytest.mark.parametrize(
    ("host", "bucket"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("testclient", "testclient"),
    ],
)
def test_the_bucket_of_an_address(host: str, bucket: str) -> None:
    assert address_of(host) == bucket


def test_too_often(start: Callable[..., TestClient]) -> None:
    client = start(rate_per_s=0.001, rate_burst=2)
    assert [client.get("/v1/streams/s").status_code for _ in range(3)] == [200, 200, 429]
    refused = client.get("/v1/streams/s")
    problem(refused, 429)
    assert 900 <= int(refused.headers["Retry-After"]) <= 1000
    assert refused.headers["X-Request-Id"]
    assert client.get("/healthz").status_code == 200


def test_keys_have_buckets_of_their_own(start: Callable[..., TestClient], tmp_path: Path) -> None:
    mint = ["mint", "--role", "read", "--data", str(tmp_path / "keys.sqlite3")]
    tokens = [CliRunner().invoke(commands, mint).stdout.strip() for _ in range(2)]
    client = start(auth="keys", rate_per_s=0.001, rate_burst=1)
    for token in tokens:
        headers = {"Authorization": f"Bearer {token}"}
        got = [client.get("/v1/streams/s", headers=headers).status_code for _ in range(2)]
        assert got == [200, 429]
    wrong = {"Authorization": "Bearer ds_aaaaaaaa_" + "A" * 43}
    got = [client.get("/v1/streams/s", headers=each).status_code for each in (wrong, {})]
    assert got == [401, 429]  # who shows no valid key is counted by address


# ---------------------------------------------------------------------------------------- headers


def test_every_answer_has_an_id_and_the_headers(client: TestClient) -> None:
    answers = {
        200: client.get("/healthz"),
        404: client.get("/nowhere"),
        413: client.post(URL, content=b"x" * (5 * MIB)),
        500: client.get("/broken"),
    }
    for status, answer in answers.items():
        assert answer.status_code == status
        assert re.fullmatch("[0-9a-f]+-[0-9a-f]+", answer.headers["X-Request-Id"])
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
    assert "a secret of the server" not in problem(answers[500], 500)["detail"]
    assert answers[200].json() == {"request": answers[200].headers["X-Request-Id"]}
    assert len({each.headers["X-Request-Id"] for each in answers.values()}) == 4


def test_what_a_route_says_itself_stays(client: TestClient) -> None:
    assert client.get("/cached").headers["Cache-Control"] == "max-age=60"


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ("abc-1.2_3", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("a b", False),
        ('a"}', False),
        ("", False),
        ("-a", False),
        ("é", False),
    ],
)
def test_the_id_of_the_client_is_taken_if_it_is_harmless(
    client: TestClient, given: str, accepted: bool
) -> None:
    answer = client.get("/healthz", headers={"X-Request-Id": given.encode("latin-1")})  # type: ignore[dict-item]
    assert (answer.headers["X-Request-Id"] == given) is accepted


@pytest.mark.parametrize(
    ("settings", "client_address", "host", "status"),
    [
        ({}, "127.0.0.1", "localhost:8000", 200),
        ({}, "127.0.0.1", "127.0.0.1", 200),
        ({}, "::1", "[::1]:8000", 200),
        ({}, "127.0.0.1", "rebound.example", 421),
        ({}, "127.0.0.1", "localhost.rebound.example:8000", 421),
        ({}, "127.0.0.1", "", 421),
        ({}, "192.0.2.7", "rebound.example", 421),
        ({}, "192.0.2.7", "localhost", 200),
        ({"host": "127.0.0.2"}, "127.0.0.1", "127.0.0.2:8000", 200),
        ({"auth": "off"}, "127.0.0.1", "behind.a.proxy", 200),
        ({"auth": "keys"}, "127.0.0.1", "behind.a.proxy", 200),
    ],
)
def test_a_web_page_cannot_reach_an_open_server_by_a_name_of_its_own(
    tmp_path: Path, settings: dict[str, Any], client_address: str, host: str, status: int
) -> None:
    app = doorway(tmp_path / "keys.sqlite3", **settings)
    with TestClient(app, client=(client_address, 1)) as client:
        assert client.get("/healthz", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("host", "status"), [("localhost", 403), ("LOCALHOST:1", 403), ("rebound.example", 421)]
)
def test_a_header_that_names_another_client_opens_nothing(
    serving: Callable[..., AbstractContextManager[int]], host: str, status: int
) -> None:
    """uvicorn believes X-Forwarded-For from 127.0.0.1, where the browser is."""
    request = (
        f"GET /v1/streams/s HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: 192.0.2.7\r\n"
        "Connection: close\r\n\r\n"
    )
    with serving() as port, socket.create_connection(("127.0.0.1", port)) as page:
        page.sendall(request.encode())
        assert _read_until_closed(page).startswith(f"HTTP/1.1 {status} ".encode())


# ------------------------------------------------------------------------------------ slow clients


@contextmanager
def _serving(data: Path, **settings: Any) -> Iterator[int]:
    """The port of a real server over sockets, in a thread."""
    config = uvicorn.Config(
        doorway(data, **settings), port=0, http=TimedProtocol, log_config=None, access_log=False
    )
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


@pytest.fixture
def serving(tmp_path: Path) -> Callable[..., AbstractContextManager[int]]:
    return lambda **settings: _serving(tmp_path / "keys.sqlite3", **settings)


def _read_until_closed(connection: socket.socket) -> bytes:
    connection.settimeout(60)
    received = b""
    with suppress(ConnectionError):  # closed before all that was sent was read
        while chunk := connection.recv(65536):
            received += chunk
    return received


@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_body_that_drips_is_cut_off(
    serving: Callable[..., AbstractContextManager[int]], framing: str
) -> None:
    request = (
        f"POST {URL} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n"
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    with serving(read_timeout_s=0.5) as port, socket.create_connection(("127.0.0.1", port)) as slow:
        began = time.monotonic()
        slow.sendall(request.encode())
        with suppress(ConnectionError):  # each drop within any time limit between two of them
            while not select.select([slow], [], [], 0.1)[0]:
                slow.sendall(b"1\r\nx\r\n" if "chunked" in framing else b"x")
        answer = _read_until_closed(slow)
        elapsed_s = time.monotonic() - began
        # others are served meanwhile and afterwards
        with socket.create_connection(("127.0.0.1", port)) as other:
            other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert _read_until_closed(other).startswith(b"HTTP/1.1 200")
    heading, _, body = answer.partition(b"\r\n\r\n")
    assert heading.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in heading.lower()
    assert json.loads(body)["detail"] == "the body did not arrive within 0.5 s"
    assert elapsed_s >= 0.5


def test_the_body_of_a_stranger_is_not_awaited(
    serving: Callable[..., AbstractContextManager[int]],
) -> None:
    request = (
        f"POST {URL} HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n"
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode() + b"x" * 10
    with serving(auth="keys") as port, socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(request)
        stranger.settimeout(60)
        assert stranger.recv(65536).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    ("begun", "drop"),
    [(b"", b""), (b"GET /healthz HTTP/1.1\r\nHost: loc", b"x"), (b"\r\n", b"\r\n")],
)
@pytest.mark.parametrize("served", [0, 1])
def test_a_head_that_drips_is_cut_off(
    serving: Callable[..., AbstractContextManager[int]],
    monkeypatch: pytest.MonkeyPatch,
    begun: bytes,
    drop: bytes,
    served: int,
) -> None:
    monkeypatch.setattr(head_timeout, "HEAD_TIMEOUT_S", 0.5)
    monkeypatch.setattr(head_timeout, "KEPT_S", 2.0)
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving() as port, ExitStack() as opened:
        began = time.monotonic()  # before the server's time can begin
        slow = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        slow.settimeout(60)
        for _ in range(served):
            began = time.monotonic()
            slow.sendall(whole)
            assert slow.recv(65536).startswith(b"HTTP/1.1 200")
        slow.sendall(begun)
        while True:
            try:
                slow.sendall(drop)
                slow.settimeout(0.1)
                if slow.recv(65536) == b"":
                    break
            except TimeoutError:
                assert time.monotonic() - began < 60
            except ConnectionError:
                break
        # a connection that was served and is silent has the time between two requests
        limit_s = 2 if served and not begun else 0.5
        assert time.monotonic() - began >= limit_s - 0.1


def _asked(connection: socket.socket) -> bytes:
    """The answer to one more request; empty: the connection is closed."""
    connection.settimeout(60)
    try:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = b""
        while not (whole := _WHOLE.match(found)) or len(whole[2]) < int(whole[1]):
            if not (more := connection.recv(65536)):
                return b""
            found += more
        return found
    except ConnectionError:
        return b""


_WHOLE = re.compile(rb".*\r\ncontent-length: (\d+)\r\n.*?\r\n\r\n(.*)", re.DOTALL | re.IGNORECASE)


def test_who_asks_at_intervals_keeps_its_connection(
    serving: Callable[..., AbstractContextManager[int]],
) -> None:
    """Prometheus each minute by default; uvicorn closes after 5 s, just as the next scrape comes
    where that is each 5 s."""
    assert head_timeout.KEPT_S > 60
    with serving() as port, socket.create_connection(("127.0.0.1", port)) as scraper:
        assert _asked(scraper).startswith(b"HTTP/1.1 200")
        time.sleep(6)
        assert _asked(scraper).startswith(b"HTTP/1.1 200")


def test_many_connections_are_not_kept_for_as_long(
    serving: Callable[..., AbstractContextManager[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_timeout, "FEW_CONNECTIONS", 3)
    monkeypatch.setattr(head_timeout, "KEPT_AMONG_MANY_S", 600.0)
    with serving() as port, ExitStack() as opened:
        many = [
            opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(5)
        ]
        for kept_s in (600.0, 0.5):  # the second time all of them are there
            monkeypatch.setattr(head_timeout, "KEPT_AMONG_MANY_S", kept_s)
            for connection in many:
                assert _asked(connection).startswith(b"HTTP/1.1 200")
        assert all(_read_until_closed(connection) == b"" for connection in many)
        with socket.create_connection(("127.0.0.1", port)) as other:  # there is room for it
            assert _asked(other).startswith(b"HTTP/1.1 200")


def test_a_head_without_an_end_is_cut_off(
    serving: Callable[..., AbstractContextManager[int]],
) -> None:
    fields = "".join(f"X-{number}: {'x' * 1000}\r\n" for number in range(1000)).encode()
    with serving() as port, socket.create_connection(("127.0.0.1", port)) as long:
        with suppress(ConnectionError):  # it may be closed by then
            long.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + fields)
        with suppress(ConnectionError):
            assert _read_until_closed(long).startswith(b"HTTP/1.1 400")


def test_a_long_head_is_read(serving: Callable[..., AbstractContextManager[int]]) -> None:
    heading = f"GET /healthz?{'x' * 200_000} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    with serving() as port, socket.create_connection(("127.0.0.1", port)) as long:
        for at in range(0, len(heading), 10_000):
            long.sendall(heading[at : at + 10_000].encode())
            time.sleep(0.001)
        long.sendall(b"\r\n")
        assert _read_until_closed(long).startswith(b"HTTP/1.1 200")


def test_requests_in_one_piece_are_answered_in_turn(
    serving: Callable[..., AbstractContextManager[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving() as port, socket.create_connection(("127.0.0.1", port)) as both:
        assert _asked(both).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(head_timeout, "HEAD_TIMEOUT_S", 0.5)
        began = time.monotonic()
        both.sendall(whole * 3 + whole[:20])
        assert _read_until_closed(both).count(b"HTTP/1.1 200") == 3
        assert time.monotonic() - began >= 0.4, "the fourth had its time"


def test_a_long_answer_is_not_cut_off_by_the_limit_of_the_head(
    serving: Callable[..., AbstractContextManager[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(read_timeout_s=60) as port, socket.create_connection(("127.0.0.1", port)) as slow:
        assert _asked(slow).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(head_timeout, "HEAD_TIMEOUT_S", 0.2)
        slow.sendall(
            f"POST {URL} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n".encode()
        )
        time.sleep(0.6)
        slow.sendall(b"ab")
        slow.settimeout(60)
        assert slow.recv(65536).startswith(b"HTTP/1.1 200")
