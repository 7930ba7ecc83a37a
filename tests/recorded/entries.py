"""Entries of the record: a case, what was asked, what was answered; and how two of them differ.

What changes from run to run is replaced, by name and by nothing else: the secrets that a server
draws (:class:`Names`). The clock stands (:func:`stopped_clock`), so dates are as recorded. Bytes of
sketches and other content that is not JSON are kept as their digests.

Numbers are compared exactly, and so are their types, except what is computed in floating point from
the decay and the sample, the fields :data:`COMPUTED`: another processor or numerical library may
round a logarithm or a sum otherwise, so these may differ by 1e-9 of their size.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.recorded.material import NOW

FOLDER = Path(__file__).parent / "answers"
COMPUTED = frozenset(
    {"collision_bias", "lower", "share", "stderr", "upper", "value", "weights"}
)  # fmt: skip
TOLERANCE = 1e-9

Entry = dict[str, Any]  # case, asked, answered


class Clock:
    """A clock that stands, ten seconds after the newest observation, until it is told to tick."""

    def __init__(self) -> None:
        self._now_s = NOW + 10

    def tick(self) -> None:
        self._now_s += 1

    def time_ns(self) -> int:
        return self._now_s * 10**9


@contextmanager
def stopped_clock() -> Iterator[Clock]:
    """What time it is to whoever looks meanwhile; how long something takes is not touched."""
    clock = Clock()
    with patch("time.time_ns", clock.time_ns):
        yield clock


class Names:
    """Names for what a server draws at random: the same text, the same name.

    ``<incarnation 1>`` is the first one met. Texts that hold one, as a token does, are replaced in
    that part only.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def know(self, kind: str, drawn: str) -> None:
        """From now on ``drawn`` is called by its kind and number."""
        if drawn not in self._names:
            self._counts[kind] = number = self._counts.get(kind, 0) + 1
            self._names[drawn] = f"<{kind} {number}>"

    def instead(self, content: Any) -> Any:
        """JSON content, with names in place of what was drawn."""
        if isinstance(content, dict):
            return {self.instead(name): self.instead(each) for name, each in content.items()}
        if isinstance(content, list):
            return [self.instead(each) for each in content]
        if isinstance(content, str):
            for drawn in sorted(self._names, key=len, reverse=True):  # a key holds its prefix
                content = content.replace(drawn, self._names[drawn])
        return content


def digest(content: bytes | bytearray) -> dict[str, Any]:
    """What stands for bytes."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def plain(content: Any) -> Any:
    """Content as JSON has it: tuples are lists there, bytes digests."""

    def other(value: Any) -> Any:
        if isinstance(value, (bytes, bytearray)):
            return digest(value)
        if hasattr(value, "to_dict"):
            return value.to_dict()
        if hasattr(value, "tolist"):
            return value.tolist()
        raise TypeError(f"cannot record a {type(value).__name__}")

    return json.loads(json.dumps(content, default=other, allow_nan=False))


# ------------------------------------------------------------------------------------- comparison


def differences(recorded: Any, found: Any, where: str = "", name: str = "") -> Iterator[str]:
    """What differs, a line each: where, what was recorded, what is found.

    Args:
        recorded, found: JSON content.
        where: path to it.
        name: of the field that it is, or is in a list of.
    """
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key in recorded | found:
            path = f"{where}.{key}" if where else key
            if key not in found:
                yield f"{path}: recorded {_short(recorded[key])}, now absent"
            elif key not in recorded:
                yield f"{path}: recorded nothing, now {_short(found[key])}"
            else:
                yield from differences(recorded[key], found[key], path, key)
    elif isinstance(recorded, list) and isinstance(found, list):
        if len(recorded) != len(found):
            yield f"{where}: recorded {len(recorded)} entries, now {len(found)}"
        for position, (before, now) in enumerate(zip(recorded, found, strict=False)):
            yield from differences(before, now, f"{where}[{position}]", name)
    elif not _same(recorded, found, name):
        yield f"{where}: recorded {_short(recorded)}, now {_short(found)}"


def _same(recorded: Any, found: Any, name: str) -> bool:
    if type(recorded) is not type(found):
        return False
    if isinstance(recorded, float) and name in COMPUTED:
        return math.isclose(recorded, found, rel_tol=TOLERANCE, abs_tol=0.0)
    return bool(recorded == found)


def _short(content: Any) -> str:
    text = json.dumps(content)
    return text if len(text) <= 300 else f"{text[:300]}..."


def compare(recorded: Sequence[Entry], found: Sequence[Entry]) -> list[str]:
    """What differs between two runs of the same cases, the case before each difference."""
    lines: list[str] = []
    before, now = ({each["case"]: each for each in entries} for entries in (recorded, found))
    lines += [f"{case}: recorded, now not asked" for case in before if case not in now]
    lines += [f"{case}: asked, but not recorded" for case in now if case not in before]
    for case in before:
        if case in now:
            lines += [f"{case}: {line}" for line in differences(before[case], now[case])]
    orders = zip_longest(before, now)
    if not lines and (moved := next((pair for pair in orders if pair[0] != pair[1]), None)):
        lines.append(f"{moved[0]}: recorded before {moved[1]}, now after it")
    return lines


# ------------------------------------------------------------------------------------------- files


def read(kind: str) -> list[Entry]:
    """The recorded entries of a kind; none where it was never recorded."""
    if not (FOLDER / f"{kind}.jsonl.gz").exists():
        return []
    text = gzip.decompress((FOLDER / f"{kind}.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def write(kind: str, entries: Sequence[Entry]) -> None:
    """Record them anew, in place of what was recorded."""
    FOLDER.mkdir(exist_ok=True)
    lines = [json.dumps(each, sort_keys=True, separators=(",", ":")) + "\n" for each in entries]
    content = gzip.compress("".join(lines).encode(), mtime=0)
    (FOLDER / f"{kind}.jsonl.gz").write_bytes(content)
