"""``python -m quality.scanners``: scanners in C give the readings of the parsers in Python.

A scanner reads plain parts of line protocol, remote write and OTLP bodies, and the grammar in
Python reads all others. Here both read the same bodies: sound parts between changed ones, in a
stream with one value and in a stream with columns. They must agree on rows, columns, rejections
and skipped parts, for every body.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import cache
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from decaysketch.ingest import line_protocol, otlp, remote_write
from decaysketch.ingest._native import Samples
from decaysketch.ingest.columns import Form, points_to_columns
from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import UnreadableError
from quality import bodies, messages

__all__ = ["FORMATS", "differing"]

_PLAIN: Final[dict[str, dict[str, Any]]] = {
    "influx": {"measurement": "m", "value": "f"},
    "prometheus": {"metric": "m", "drop_labels": ["replica"]},
    "otlp": {"metric": "m", "dedup": "10s"},
}
_READ: Final[dict[str, Callable[[bytes, Any], Points]]] = {
    "influx": line_protocol.parse,
    "prometheus": remote_write.parse,
    "otlp": lambda body, maps: otlp.parse(body, maps, max_weight=10),
}
FORMATS: Final = tuple(_PLAIN)


def _body(draw: random.Random, format: str) -> bytes:
    """A body with some parts that are plain, and some that are not."""
    if format != "otlp":
        parts = [messages.changed(draw, format)[:2_000] for _ in range(draw.choice((1, 1, 4)))]
        if format == "prometheus":
            parts = [each for each in parts if not each.startswith(messages._SYMBOLS[:2])]
        return (b"\n" if format == "influx" else b"").join([*parts, *parts])
    document: Any = deepcopy(messages.SOUND["otlp"])
    for metric in document["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]:
        for kind in ("gauge", "sum"):
            if kind in metric:
                points = metric[kind]["dataPoints"]
                metric[kind]["dataPoints"] = points * draw.randrange(1, 40)
    for _ in range(draw.randrange(3)):
        messages._change(draw, document)
    return messages.in_protobuf(json.dumps(document).encode()) or b""


def _told(format: str, body: bytes, maps: Any, form: Form) -> Any:
    """What a body becomes: rows in columns, refusals and skipped parts."""
    try:
        points = _READ[format](body, maps)
    except UnreadableError as fault:
        return str(fault)
    raw = points_to_columns(points, form)
    columns = raw.values.canonical().columns if form.columns and not raw.refusals else ()
    filled = [[int(each.keys[row]) for each in columns] for row in range(len(points))]
    rest = zip(*map(points.listed, ("places", "times_ns", "values")), strict=True)
    rows = sorted(
        (place, points.key(row), time_ns, str(value), filled[row])
        for row, (place, time_ns, value) in enumerate(rest)
    )
    texts = [each.texts for each in columns]
    told = points.told
    return rows, texts, told.refused, told.skipped, raw.dropped, points.starts_ns


@contextmanager
def _parsers_alone() -> Iterator[None]:
    """Let no scanner read a part."""

    def nothing(_self: Any, _body: bytes, samples: Samples, *_rest: Any) -> Any:
        return np.zeros(len(samples), np.bool_)

    with ExitStack() as patched:
        patched.enter_context(patch.object(line_protocol, "_plain", lambda *_: False))
        patched.enter_context(patch.object(remote_write._Reader, "take_plain", nothing))
        patched.enter_context(patch.object(otlp._Reader, "_bulk", nothing))
        yield


@cache
def _streams(format: str) -> list[tuple[Any, Form]]:
    """Mappings and row form, with columns and without."""
    columns, of_columns = bodies._filling(format)
    plain = Mappings.model_validate({"map": [{"format": format} | _PLAIN[format]]})
    return [
        (columns.indexes(of_columns.columns)[format], of_columns),
        (plain.series[format], messages._FORMS[0]),
    ]


def differing(format: str, seeds: Iterable[int]) -> list[int]:
    """Return the seeds of bodies that scanners and parsers read differently."""
    made = {seed: _body(random.Random(seed), format) for seed in seeds}
    read = [[_told(format, body, *each) for each in _streams(format)] for body in made.values()]
    with _parsers_alone():
        alone = [
            [_told(format, body, *each) for each in _streams(format)] for body in made.values()
        ]
    return [seed for seed, fast, slow in zip(made, read, alone, strict=True) if fast != slow]


def main(arguments: list[str]) -> int:
    """Run the study. Return 1 if a body was read differently."""
    options = argparse.ArgumentParser(prog="quality.scanners", description=__doc__)
    options.add_argument("--bodies", type=int, default=100_000, help="of all formats together")
    options.add_argument("--first", type=int, default=0, help="seed")
    options.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    chosen = options.parse_args(arguments)
    each, wrong = -(-chosen.bodies // len(chosen.formats)), 0
    for format in chosen.formats:
        begin, found = time.process_time(), list[int]()
        for first in range(chosen.first, chosen.first + each, 500):
            found += differing(format, range(first, min(first + 500, chosen.first + each)))
        seconds = time.process_time() - begin
        print(f"{format}: {each:,} bodies in two streams, {len(found)} read differently"
              f"{f', seeds {found[:10]}' if found else ''}; {seconds:.0f} s of a processor",
              flush=True)  # fmt: skip
        wrong += len(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
