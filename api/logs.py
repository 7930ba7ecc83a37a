"""Log output: one line per event, as JSON or for a terminal.

All log lines, including uvicorn's, go through one formatter and have the id of the current request.
Control characters are escaped, so that no text from outside can begin a new line. A fault that may
occur many times a second is logged once a minute.

A separate thread writes the lines, several at a time. Writing releases the interpreter's lock, and
then waits until the threads that decode release it. The event loop would spend more time on that
than on the request.
"""

from __future__ import annotations

import atexit
import json
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from api.settings import Settings

__all__ = ["REQUEST_ID", "JsonFormatter", "Seldom", "TextFormatter", "configure", "finish"]

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Set while a request is served, in every task and thread that it starts."""

_LINES_WAITING = 10_000
_EVERY_S = 60.0
_MOMENT_S = 0.02  # lines that come within it are written at once

_json = json.JSONEncoder(default=str, separators=(",", ":")).encode
_encode = msgspec.json.Encoder(enc_hook=str).encode  # the same text in a tenth of the time


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return a line's fields besides its message, from the call's ``extra={"fields": {...}}``."""
    fields = dict(getattr(record, "fields", {}))
    if (identity := REQUEST_ID.get()) is not None:
        fields = {"request_id": identity, **fields}
    return fields


class JsonFormatter(logging.Formatter):
    """Writes one JSON object per line, ASCII only."""

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
        try:
            text = _encode(line).decode()
        except (TypeError, ValueError, OverflowError):  # what only the other one writes
            text = ""
        return text if text and text.isascii() else _json(line)


class TextFormatter(logging.Formatter):
    """Writes a line for people at a terminal. An exception follows below."""

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
    """Send every log line to ``stream`` (the standard error stream), in one format."""
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
    """Return when every line is written. From here on, the thread that logs a line writes it."""
    global _lines
    if _lines is not None:
        logging.basicConfig(handlers=[_lines.finish()], force=True)
        _lines = None


class _Lines(logging.Handler):
    """Formats a line in the thread that logs it, where the request's id is known. Another thread
    writes it, several lines at a time. The logging thread waits if very many lines wait to be
    written.
    """

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
        """Return a handler that writes at once and replaces this one."""
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
        """Return a line that reports earlier unwritten lines. It cannot wait in the queue
        itself.
        """
        if not self._unwritten:
            return ""
        what = f"the log could not be written: up to {self._unwritten} lines are missing here"
        error = {"name": "api.logs", "levelno": logging.ERROR, "levelname": "ERROR", "msg": what}
        return self.format(logging.makeLogRecord(error)) + "\n"


_lines: _Lines | None = None
atexit.register(finish)


class Seldom:
    """Logs a line at once. For a minute after it, it only counts the repetitions. The next line
    reports their number.

    Args:
        log: the logger.
        clock: seconds, from any beginning.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._said_at = float("-inf")
        self._unsaid = 0

    def say(self, level: int, message: str, *arguments: object) -> None:
        """Log it, unless a line was logged within the last minute."""
        if self._clock() - self._said_at < _EVERY_S:
            self._unsaid += 1
            return
        if self._unsaid:
            message += " (and %d times more since the last such line)"
            arguments = (*arguments, self._unsaid)
        self._said_at, self._unsaid = self._clock(), 0
        self._log.log(level, message, *arguments)

    def over(self) -> int:
        """The condition has passed: log the next line at once. Return the number of suppressed
        lines.
        """
        unsaid, self._unsaid = self._unsaid, 0
        self._said_at = float("-inf")
        return unsaid
