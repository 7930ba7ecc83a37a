"""What the process says: one line per event, and nothing that is secret."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from api import logs
from api.http import middleware
from api.http.responses import RequestLog
from api.logs import REQUEST_ID
from api.service import metrics
from api.settings import Settings


@pytest.fixture
def sink() -> Iterator[io.StringIO]:
    """Where the lines of this process go; logging is as it was afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("api", "uvicorn")}
    sink = io.StringIO()
    yield sink
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, earlier in levels.items():
        logging.getLogger(name).setLevel(earlier)


class Identify:
    """Names a request as the middleware of the application does, and a caller."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = type("Caller", (), {"prefix": "abcd1234"})()
        scope.setdefault("state", {}).update(caller=caller, request_id="r-1")
        token = REQUEST_ID.set("r-1")
        try:
            await self.app(scope, receive, send)
        finally:
            REQUEST_ID.reset(token)


@pytest.fixture
def client(sink: io.StringIO) -> TestClient:
    return _client(sink, log_format="json")


def _client(sink: io.StringIO, **chosen: Any) -> TestClient:
    logs.configure(Settings(**chosen), sink)
    app = FastAPI()

    @app.post("/v1/streams/{name}/sketches")
    async def post(name: str, request: Request) -> dict[str, int]:
        logging.getLogger("api.service.streams").info("decoding")
        return {"taken": len(await request.body())}

    @app.post("/assets/{name:path}")
    async def asset(name: str) -> None: ...

    @app.get("/healthz")
    async def healthz() -> None: ...

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("at fault")

    @app.get("/long")
    async def long() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b"12345"

        return StreamingResponse(parts())

    app.state.metrics = metrics.Metrics()
    app.add_middleware(Identify)
    middleware.stand_outside(app, RequestLog)
    return TestClient(app, raise_server_exceptions=False)


def text(sink: io.StringIO) -> str:
    logs.finish()
    return sink.getvalue()


def lines(sink: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text(sink).splitlines()]


def test_a_request_is_one_line(client: TestClient, sink: io.StringIO) -> None:
    client.post(
        "/v1/streams/s/sketches?source=pump&key=ds_secret",
        content=b"secret body",
        headers={"Authorization": "Bearer ds_secret"},
    )
    decoding, line = lines(sink)
    assert decoding["message"] == "decoding"
    assert decoding["request_id"] == "r-1"
    assert line.pop("time").endswith("Z")
    assert 0 < line.pop("duration_ms") < 60_000
    assert line == {
        "level": "info",
        "logger": "api.requests",
        "message": "request",
        "request_id": "r-1",
        "method": "POST",
        "route": "/v1/streams/{name}/sketches",
        "status": 200,
        "received_bytes": 11,
        "sent_bytes": len('{"taken":11}'),
        "key": "abcd1234",
        "stream": "s",
    }
    assert "secret" not in text(sink)
    assert "pump" not in text(sink)


def test_a_request_is_counted(client: TestClient) -> None:
    client.post("/v1/streams/s/sketches", content=b"12345")
    client.get("/somewhere/else")
    assert isinstance(client.app, FastAPI)
    said = client.app.state.metrics.exposition().decode()
    route = 'method="POST",route="/v1/streams/{name}/sketches",status="200"'
    assert f"decaysketch_http_requests_total{{{route}}} 1.0" in said
    other = 'method="GET",route="(other)",status="404"'
    assert f"decaysketch_http_requests_total{{{other}}} 1.0" in said
    assert "decaysketch_http_received_bytes_total 5.0" in said


def test_a_path_that_no_route_has_is_not_repeated(client: TestClient, sink: io.StringIO) -> None:
    client.get("/v1/guess/secret")
    (line,) = lines(sink)
    assert line["status"] == 404
    assert "route" not in line
    assert "secret" not in text(sink)


def test_bytes_of_an_answer_in_parts(client: TestClient, sink: io.StringIO) -> None:
    client.get("/long")
    assert lines(sink)[-1]["sent_bytes"] == 15


def test_an_error_of_our_own(client: TestClient, sink: io.StringIO) -> None:
    assert client.get("/broken").status_code == 500
    assert lines(sink)[-1]["status"] == 500


def test_what_is_asked_every_few_seconds_is_quiet(sink: io.StringIO) -> None:
    _client(sink, log_format="json").get("/healthz")
    assert lines(sink) == []
    _client(sink, log_format="json", log_level="debug").get("/healthz")
    assert [line["route"] for line in lines(sink)] == ["/healthz"]


def test_an_exception_stays_in_its_line(sink: io.StringIO) -> None:
    logs.configure(Settings(log_format="json"), sink)
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("failed\nbadly")
    (line,) = lines(sink)
    assert (line["level"], line["message"]) == ("error", "failed\nbadly")
    assert "ValueError: first\nsecond" in line["exception"]


def test_text_for_a_terminal(sink: io.StringIO) -> None:
    client = _client(sink, log_format="text")
    client.post("/v1/streams/s/sketches")
    *_, line = text(sink).splitlines()
    assert "info    request request_id=r-1 method=POST route=/v1/streams/{name}/sketches" in line
    assert line.endswith("key=abcd1234 stream=s")


def test_text_from_outside_begins_no_line(sink: io.StringIO) -> None:
    logs.configure(Settings(log_format="text"), sink)
    forged = {"stream": "s\n23:59:59 error forged\x1b[2J"}
    logging.getLogger("api.requests").info("request", extra={"fields": forged})
    (line,) = text(sink).splitlines()
    assert line.endswith("stream=s\\n23:59:59 error forged\\x1b[2J")


class Full(io.StringIO):
    """A disk that has no room at first."""

    def __init__(self) -> None:
        super().__init__()
        self.has_room = False
        self.refused = threading.Event()

    def flush(self) -> None:
        if not self.has_room:
            self.truncate(0)
            self.seek(0)
            self.refused.set()
            raise OSError("no space left")


def test_a_log_that_cannot_be_written_stops_nothing(
    sink: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = Full()
    logs.configure(Settings(log_format="json"), disk)
    logging.getLogger("api").info("lost")
    assert disk.refused.wait(1800)
    disk.has_room = True
    logging.getLogger("api").info("written")
    missing = "the log could not be written: up to 1 lines are missing here"
    assert [line["message"] for line in lines(disk)] == [missing, "written"]
    assert lines(disk)[0]["level"] == "error"
    said = capsys.readouterr().err
    assert "no space left" in said
    assert "lost" in said


@pytest.mark.parametrize(
    "path",
    [
        "/v1/streams/s%0Aforged/sketches",
        f"/v1/streams/{'s' * 101}/sketches",
        "/v1/streams/-s/sketches",
        "/assets/some/secret/path",
    ],
)
def test_only_what_can_be_a_stream_is_written_as_one(
    client: TestClient, sink: io.StringIO, path: str
) -> None:
    client.request("P" * 5000, path)
    client.post(path)
    for line in lines(sink):
        assert "stream" not in line
        assert len(json.dumps(line)) < 500


def test_the_level(sink: io.StringIO) -> None:
    logs.configure(Settings(log_format="text", log_level="error"), sink)
    logging.getLogger("uvicorn.error").warning("not this")
    logging.getLogger("api.service.streams").error("but this")
    assert text(sink).count("\n") == 1
    assert text(sink).endswith("error   but this\n")


def test_lines_of_uvicorn_have_the_same_form() -> None:
    """In a process of its own: uvicorn must not have configured logging before."""
    program = (
        "import logging, uvicorn\n"
        "from api import logs\n"
        "from api.settings import Settings\n"
        "uvicorn.Config('x:y')\n"
        "logs.configure(Settings())\n"
        "logging.getLogger('uvicorn.error').info('Started')\n"
        "logging.getLogger('uvicorn.access').info('GET /?key=secret')\n"
        "assert not logging.getLogger('uvicorn.access').hasHandlers()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=1800, check=True
    )
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["message"] == "Started"
    assert json.loads(line)["logger"] == "uvicorn.error"
