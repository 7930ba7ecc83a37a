"""Failures of the programs: one line with the fault, and status 1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from decaysketch.cli import output
from decaysketch.cli.output import CommandError
from decaysketch.errors import DecaySketchError
from spark_jobs.java import JavaNotFoundError

__all__ = ["reporting_errors"]

_FROM_A_WORKER = re.compile(r"decaysketch(?:\.\w+)+Error: (.+)")
_ENGINE_CONDITION = re.compile(r"\[[A-Z][A-Z_.]+\] .+")


@contextmanager
def reporting_errors() -> Iterator[None]:
    """End the program with one line if the fault is in its input, not in the program.

    An error from a worker arrives inside the engine's long report. This extracts the library's own
    message, or else the engine's name for the fault.
    """
    with output.reporting_errors():
        try:
            yield
        except JavaNotFoundError as fault:
            raise CommandError(str(fault)) from None
        except (CommandError, DecaySketchError, OSError):
            raise
        except Exception as fault:
            if message := _message(fault):
                raise CommandError(message) from None
            raise


def _message(fault: Exception) -> str | None:
    text = str(fault)
    if found := _FROM_A_WORKER.findall(text):
        return str(found[-1])
    if isinstance(fault, _engine_errors()):
        conditions = _ENGINE_CONDITION.findall(text)  # the last one is the first cause
        return str(conditions[-1]) if conditions else text.strip().partition("\n")[0]
    return None


def _engine_errors() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException  # neither is needed to post sketches

    return PySparkException, Py4JError
