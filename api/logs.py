"""What the process says: one line per event, as JSON or for a terminal.

Every line of the process goes through one formatter, uvicorn's included. A request is one line,
written when its answer has ended: id, method, template of the route (never the path, and never the
query string), status, duration, bytes, the public prefix of the key, the stream if it has the form
of a name. No body, no secret and no header is ever written, and the line is never long. Control
characters are escaped, so that no text from outside can begin a line of its own.

Lines are written by a thread of their own, those of a moment together. To write is to let go of the
interpreter's lock, and to wait until the threads that decode hand it back: the event loop would
spend more time on that than on the request.
"""

from __future__ import annotations

import atexit
import json
import logging
import queue
import re
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TextIO

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import schemas
from api.http.request_id import REQUEST_ID
from api.settings import Settings

__all__ = ["JsonFormatter", "RequestLog", "TextFormatter", "configure", "finish", "install"]

_requests = logging.getLogger("api.requests")
_QUIET_ROUTES = frozenset({"/healthz", "/readyz", "/metrics"})  # asked every few seconds, for ever
_OF_A_STREAM = "/v1/streams/{name}"
_METHOD_LENGTH = 20
_STREAM = re.compile(schemas.STREAM)
_LINES_WAITING = 10_000
_MOMENT_S = 0.02  # lines that come within it are written at once

_json = json.JSONEncoder(default=str, separators=(",", ":")).encode


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a line says beside its message; ``extra={"fields": {...}}`` of the call."""
    fields = dict(getattr(record, "fields", {}))
    if (identity := REQUEST_ID.get()) is not None:
        fields = {"request_id": identity, **fields}
    return fields


class JsonFormatter(logging.Formatter):
    """One JSON object a line, ASCII only."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _json(line)


class TextFormatter(logging.Formatter):
    """A line for whoever reads over the shoulder of the process; an exception follows below."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        said = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        text = _printable(
            f"{at} {record.levelname.lower():7} {record.getMessage()} {said}".rstrip()
        )
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Send every line of the process to ``stream`` (the standard error stream), in one format."""
    global _lines
    finish()
    sink = sys.stderr if stream is None else stream
    form = settings.log_format or ("text" if sink.isatty() else "json")
    _lines = _Lines(sink, JsonFormatter() if form == "json" else TextFormatter())
    # Asked for each line otherwise, and no line says it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    level = settings.log_level.upper()
    logging.basicConfig(level="WARNING", handlers=[_lines], force=True)
    for name in ("api", "uvicorn"):
        logging.getLogger(name).setLevel(level)
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    paths = logging.getLogger("uvicorn.access")  # would write query strings
    paths.handlers.clear()
    paths.propagate = False
    logging.captureWarnings(True)


def finish() -> None:
    """Return when every line is written; from here on whoever says something writes it."""
    global _lines
    if _lines is not None:
        logging.basicConfig(handlers=[_lines.finish()], force=True)
        _lines = None


class _Lines(logging.Handler):
    """Formats a line where it is said, since the request's id is known there, and has it written
    elsewhere, those of a moment together. Who says something waits if very many wait to be
    written."""

    def __init__(self, sink: TextIO, form: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(form)
        self._sink = sink
        self._waiting: queue.Queue[str | None] = queue.Queue(_LINES_WAITING)
        self._unwritten = 0
        self._writer = threading.Thread(target=self._write, name="log", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
        except Exception:
            self.handleError(record)
        else:
            self._waiting.put(line)

    def finish(self) -> logging.Handler:
        """What writes at once, in place of this."""
        self._waiting.put(None)
        self._writer.join()
        direct = logging.StreamHandler(self._sink)
        direct.setFormatter(self.formatter)
        return direct

    def _write(self) -> None:
        said: list[str | None] = []
        while None not in said:
            said = [self._waiting.get()]
            time.sleep(_MOMENT_S)
            while not self._waiting.empty():
                said.append(self._waiting.get())
            text = self._missing() + "".join(line for line in said if line is not None)
            try:
                self._sink.write(text)
                self._sink.flush()
            except Exception:  # full, or closed; nothing ends this thread but the last line
                self._unwritten += len(said) - said.count(None)
                with suppress(Exception):  # closed as well
                    self.handleError(logging.makeLogRecord({"msg": text}))
            else:
                self._unwritten = 0

    def _missing(self) -> str:
        """A line that tells of lines before it; it cannot wait in line itself."""
        if not self._unwritten:
            return ""
        what = f"the log could not be written: up to {self._unwritten} lines are missing here"
        error = {"name": "api.logs", "levelno": logging.ERROR, "levelname": "ERROR", "msg": what}
        return self.format(logging.makeLogRecord(error)) + "\n"


_lines: _Lines | None = None
atexit.register(finish)


def install(app: FastAPI) -> None:
    """Write a line for every request, and count it; to be added last, outside everything else."""
    app.add_middleware(RequestLog)


class RequestLog:
    """One line and one count per request, by ``app.state.metrics``."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status, received_bytes, sent_bytes = 0, 0, 0

        async def counting_receive() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            return message

        async def counting_send(message: Message) -> None:
            nonlocal status, sent_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
            sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, counting_receive, counting_send)
        except Exception:
            status = status or HTTPStatus.INTERNAL_SERVER_ERROR.value
            raise
        finally:
            # Until its task has ended: the server may still have to say something.
            REQUEST_ID.set(scope.get("state", {}).get("request_id"))
            _record(scope, status, time.perf_counter() - began, received_bytes, sent_bytes)


def _record(scope: Scope, status: int, seconds: float, received: int, sent: int) -> None:
    """Status 0: the client was gone before there was an answer."""
    route = getattr(scope.get("route"), "path", "")
    scope["app"].state.metrics.requested(scope["method"], route, status, seconds, received, sent)
    level = logging.DEBUG if route in _QUIET_ROUTES and status < 400 else logging.INFO
    if not _requests.isEnabledFor(level):
        return
    caller = scope.get("state", {}).get("caller")
    fields = {
        "method": scope["method"][:_METHOD_LENGTH],
        "route": route or None,
        "status": status,
        "duration_ms": round(1000 * seconds, 3),
        "received_bytes": received,
        "sent_bytes": sent,
        "key": getattr(caller, "prefix", None),
        "stream": _stream(route, scope.get("path_params", {})),
    }
    said = {name: value for name, value in fields.items() if value is not None}
    _requests.log(level, "request", extra={"fields": said})


def _stream(route: str, parameters: Mapping[str, Any]) -> str | None:
    """The stream that the path names, if it can be one: anybody may ask for any path."""
    name = parameters.get("name", "")
    is_one = route.startswith(_OF_A_STREAM) and _STREAM.fullmatch(name)
    return name if is_one else None
