"""Log output: one line per event, as JSON or for a terminal.

All log lines, including uvicorn's, go through one formatter and have the id of the current request.
Control characters are escaped, so that no text from outside can begin a new line. A fault that may
occur many times a second is logged once a minute.

A separate thread writes the lines, so a slow disk or terminal does not delay a request.
"""

from __future__ import annotations

import atexit
import json
import logging
import queue
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from typing import Any, TextIO

import msgspec

from api.settings import Settings

__all__ = ["REQUEST_ID", "JsonFormatter", "Seldom", "TextFormatter", "configure", "finish"]

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Set while a request is served, in every task and thread that it starts."""

_LINES_WAITING = 10_000
_EVERY_S = 60.0

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
        except (TypeError, ValueError, OverflowError):  # only the other encoder can write it
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
    global _active
    finish()
    sink = sys.stderr if stream is None else stream
    form = settings.log_format or ("text" if sink.isatty() else "json")
    writer = _Sink(sink, JsonFormatter() if form == "json" else TextFormatter())
    waiting: queue.Queue[logging.LogRecord] = queue.Queue(_LINES_WAITING)
    queued = _Queued(waiting)
    queued.setFormatter(writer.form)
    _active = QueueListener(waiting, writer), writer
    _active[0].start()
    # Asked for each line otherwise, and no line says it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    level = settings.log_level.upper()
    logging.basicConfig(level="WARNING", handlers=[queued], force=True)
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
    global _active
    if _active is not None:
        listener, writer = _active
        listener.stop()
        writer.setFormatter(writer.form)
        logging.basicConfig(handlers=[writer], force=True)
        _active = None


class _Queued(QueueHandler):
    """Formats a line in the thread that logs it, where the request's id is known. The logging
    thread waits if very many lines wait to be written.
    """

    def __init__(self, waiting: queue.Queue[logging.LogRecord]) -> None:
        super().__init__(waiting)
        self._waiting = waiting

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return logging.makeLogRecord({"msg": self.format(record)})

    def enqueue(self, record: logging.LogRecord) -> None:
        self._waiting.put(record)


class _Sink(logging.StreamHandler[TextIO]):
    """Writes formatted lines. After a failure it reports how many are missing."""

    def __init__(self, stream: TextIO, form: logging.Formatter) -> None:
        super().__init__(stream)
        self.form, self.unwritten = form, 0

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        try:
            self.stream.write(self._missing() + line)
            self.flush()
        except Exception:  # full, or closed
            self.unwritten += 1
            with suppress(Exception):  # closed as well
                self.handleError(record)
        else:
            self.unwritten = 0

    def _missing(self) -> str:
        if not self.unwritten:
            return ""
        text = f"the log could not be written: up to {self.unwritten} lines are missing here"
        error = {"name": "api.logs", "levelno": logging.ERROR, "levelname": "ERROR", "msg": text}
        return self.form.format(logging.makeLogRecord(error)) + "\n"


_active: tuple[QueueListener, _Sink] | None = None
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
