"""``python PATH/benchmarks/stages.py``: the aggregator, saying what each stage of a post costs.

It serves as ``python -m api`` does, from the checkout that it is started in, which may be one of an
earlier commit; ``benchmarks.aggregator --stages`` starts it. Functions are wrapped by name, those
that are not there are left out. Of each the processor time of its own steps is counted, without
that of other wrapped functions that it calls, whichever thread runs it; what is left stands by
itself, of the event loop and of the other threads. Whenever the process is told to (SIGUSR1), it
writes the counts so far into the file that ``STAGES`` names.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["FILE_VARIABLE", "ORDER"]

FILE_VARIABLE = "STAGES"

_LOOP = "event loop: sockets, parser, tasks"
_THREADS = "threads: handing over, folding apart"

# What is wrapped, by stage. The name of a module and, behind the colon, of what is in it.
_STAGES: dict[str, tuple[str, ...]] = {
    "layers before the framework": (
        "api.logs:RequestLog.__call__",
        "api.http.responses:RequestLog.__call__",
        "api.middleware:Envelope.__call__",
        "api.http.middleware:Envelope.__call__",
        "api.middleware:Entrance.__call__",
        "api.http.middleware:Entrance.__call__",
        "api.middleware:Body.__call__",
        "api.http.middleware:Body.__call__",
    ),
    "line of the log, counts": (
        "api.logs:_record",
        "api.http.responses:_record",
    ),
    "framework": ("starlette.applications:Starlette.__call__",),
    "route": (
        "fastapi.routing:run_endpoint_function",
        "api.routes.sketches:post_sketches",
        "api.routes.observations:post_observations",
    ),
    "admission, queue": (
        "api.aggregator:Aggregator.post",
        "api.service.aggregator:Aggregator.post",
    ),
    "decode, check, digest": (
        "api.routes.sketches:_decode",
        "api.routes.sketches:_read",
    ),
    "rows read, judged, built": (
        "api.ingest.take:take",
        "api.routes.observations:take",
    ),
    "transaction": (
        "api.journal.sql:_Thread._transaction",
        "api.journal.threads:_Pool.transaction",
    ),
    "batches, acknowledged": (
        "api.journal.committer:Committer._commit",
        "api.service.committer:Committer._commit",
    ),
    "log of SQLite written back": (
        "api.journal.sql:_Thread._write_back",
        "api.journal.threads:_Pool._write_back",
    ),
    "merge": ("api.pile:Pile.fold", "api.service.merging:MergeBuffer.fold"),
    "questions": (
        "api.queries.answering:Answerer._begin",
        "api.queries.answering:Evaluation.work",
        "api.pile:Pile.merged",
    ),
}

ORDER = (_LOOP, *_STAGES, _THREADS)

_spent: defaultdict[str, float] = defaultdict(float)
_of_loop: defaultdict[str, float] = defaultdict(float)  # of these, on the thread of the event loop
_within = threading.local()  # .s: of each wrapped step under way, what those inside of it took


def _step(stage: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    inside = _within.__dict__.setdefault("s", [])
    inside.append(0.0)
    began = time.thread_time()
    try:
        return function(*arguments, **named)
    finally:
        took = time.thread_time() - began
        own = took - inside.pop()
        _spent[stage] += own
        if threading.current_thread() is threading.main_thread():
            _of_loop[stage] += own
        if inside:
            inside[-1] += took


class _Steps:
    """A coroutine, each of whose steps is counted."""

    def __init__(self, stage: str, coroutine: Any) -> None:
        self._stage, self._coroutine = stage, coroutine

    def __await__(self) -> _Steps:
        return self

    __iter__ = __await__

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return _step(self._stage, self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return _step(self._stage, self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()


def _wrap(stage: str, name: str) -> None:
    module, _, path = name.partition(":")
    try:
        owner: Any = importlib.import_module(module)
        *owners, last = path.split(".")
        for each in owners:
            owner = getattr(owner, each)
        function = owner.__dict__[last]
    except (ImportError, AttributeError, KeyError):
        return  # of another commit
    if _is_coroutine(function):

        @functools.wraps(function)
        async def asynchronous(*arguments: Any, **named: Any) -> Any:
            return await _Steps(stage, function(*arguments, **named))

        setattr(owner, last, asynchronous)
    else:

        @functools.wraps(function)
        def synchronous(*arguments: Any, **named: Any) -> Any:
            return _step(stage, function, *arguments, **named)

        setattr(owner, last, synchronous)


def _is_coroutine(function: Any) -> bool:
    return bool(function.__code__.co_flags & 0x80)  # inspect.CO_COROUTINE


def _tell(file: Path, *_signal: object) -> None:
    """Write the seconds of every stage so far. On the main thread, as signals are."""
    whole, loop = time.process_time(), time.thread_time()
    stages = dict(_spent)
    stages[_LOOP] = loop - sum(_of_loop.values())
    stages[_THREADS] = whole - loop - (sum(_spent.values()) - sum(_of_loop.values()))
    part = file.with_suffix(".part")
    part.write_text(json.dumps(stages))
    part.replace(file)


def _serve(arguments: list[str]) -> None:
    sys.path[0] = str(Path.cwd())  # of the checkout, in place of the folder of this file
    for stage, names in _STAGES.items():
        for name in names:
            _wrap(stage, name)
    signal.signal(signal.SIGUSR1, functools.partial(_tell, Path(os.environ[FILE_VARIABLE])))
    importlib.import_module("api.__main__").main(arguments)


if __name__ == "__main__":
    _serve(sys.argv[1:])
