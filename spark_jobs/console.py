"""What the programs print, and how they fail: one line that says what is wrong, and status 1."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from decaysketch.errors import DecaySketchError
from spark_jobs.java import JavaNotFoundError

__all__ = ["JobError", "console", "human_bytes", "reporting_errors"]

#: Progress and reports go to stderr; stdout is for results that another program may read.
console = Console(stderr=True, highlight=False)

_FROM_A_WORKER = re.compile(r"decaysketch\.errors\.\w+: (.+)")
_ENGINE_CONDITION = re.compile(r"\[[A-Z][A-Z_.]+\] .+")


class JobError(Exception):
    """A program cannot do what it was asked to; the message is for the person who asked."""


@contextmanager
def reporting_errors() -> Iterator[None]:
    """End the program with one line where the fault is in its input, not in the program.

    An error that was raised in a worker arrives inside the engine's long report; the library's own
    message, or else the engine's name for what went wrong, is taken out of it.
    """
    try:
        yield
    except (JobError, DecaySketchError, JavaNotFoundError, OSError) as fault:
        _fail(str(fault))
    except Exception as fault:
        text = str(fault)
        if found := _FROM_A_WORKER.findall(text):
            _fail(found[-1])
        if isinstance(fault, _engine_errors()):
            conditions = _ENGINE_CONDITION.findall(text)  # the last one is the first cause
            _fail(conditions[-1] if conditions else text.strip().partition("\n")[0])
        raise


def _engine_errors() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException  # neither is needed to post sketches

    return PySparkException, Py4JError


def _fail(message: str) -> None:
    console.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    sys.exit(1)


def human_bytes(size: int) -> str:
    """A number of bytes for people to read."""
    return f"{size / 1e6:,.2f} MB" if size >= 100_000 else f"{size:,} B"
