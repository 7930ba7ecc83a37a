"""What an answer of the server means for what was sent, and when to try again.

A delta is given up only where the aggregator itself says that these bytes are bad. Whatever a
proxy, a portal or a gateway on the way says of it, the delta is kept.

=========================================  =====================================================
answer                                     what becomes of the delta
=========================================  =====================================================
200, naming the stream and the source      taken: it is on the server's disk
none, or cut off, or not the server's      again later (a portal on the way says 200 to anything)
408, 425, 429, 5xx, 3xx                    again later, not before ``Retry-After``, but for
the aggregator's own word that the body    refused: set aside with the problem
is bad (``corrupt-sketch``, ...)
``clock-ahead`` (422, 429), 413            held: tried again by itself, and the others go on
any other 4xx                              kept: nothing is wrong with it; delivery pauses, and the
                                           stream, which may be another one now, is looked at
=========================================  =====================================================
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

__all__ = ["Answer", "Backoff", "Held", "Later", "Outcome", "Paused", "Refused", "Taken", "judge"]

LONGEST_RETRY_AFTER_S = 3600.0
HELD_S = 60.0
_TRY_AGAIN = {408, 425, 429}
_TOO_LONG = 413
_CLOCK_AHEAD = "clock-ahead"
_KINDS = "urn:decaysketch:problem"
_ABOUT_THE_BODY = {
    "corrupt-sketch", "interval-conflict", "invalid-parameter", "invalid-request", "refused"
}  # fmt: skip
_ABOUT_THE_SENDER = {"name", "source"}  # fields of a request that is not valid


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Taken:
    """Acknowledged; ``fields`` is what the answer says."""

    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Later:
    """Nobody knows; send the same again, not before ``after_s`` seconds have passed."""

    reason: str
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Held:
    """Not this delta, and not now; whatever else waits may be sent.

    ``after_s``: when it will be taken, where the aggregator says so; else 0.
    """

    reason: str
    too_long: bool = False
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Paused:
    """The sender or the stream is not what it should be; what was sent is sound."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """This body will never be taken."""

    problem: dict[str, Any]

    @property
    def reason(self) -> str:
        return f"{self.problem.get('status')}: {self.problem.get('detail')}"


Outcome = Taken | Later | Held | Paused | Refused


def judge(answer: Answer, expected: Mapping[str, str]) -> Outcome:
    """What an answer means.

    Args:
        answer: what came.
        expected: fields by which an answer of success is known to be the server's own.
    """
    status, fields = answer.status, _object(answer.body)
    if 200 <= status < 300:
        for name, value in expected.items():
            if fields.get(name) != value:
                return Later(
                    f"{status} whose {name} is {fields.get(name)!r}; expected {value!r}: it is no "
                    "answer of the aggregator"
                )
        return Taken(fields)
    detail = fields.get("detail")
    problem = {
        **fields, "status": status, "detail": detail if isinstance(detail, str) else "no detail"
    }  # fmt: skip
    reason = f"{status}: {problem['detail']}"
    prefix, _, kind = str(fields.get("type", "")).rpartition(":")
    kind = kind if prefix == _KINDS else ""
    if kind == _CLOCK_AHEAD and 400 <= status < 500:
        # Merged with deltas that come later its clock would be theirs, and never be due.
        return Held(reason, after_s=_retry_after_s(answer.headers))
    if status in _TRY_AGAIN or not 400 <= status < 500:
        return Later(reason, _retry_after_s(answer.headers))
    if status == _TOO_LONG:
        return Held(reason, too_long=True)
    if kind in _ABOUT_THE_BODY and not _ABOUT_THE_SENDER & _fields_at_fault(fields):
        return Refused(problem)
    return Paused(reason)


def _fields_at_fault(problem: Mapping[str, Any]) -> set[str]:
    faults = problem.get("errors")
    faults = faults if isinstance(faults, list) else []
    return {str(fault.get("field")) for fault in faults if isinstance(fault, dict)}


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds or a date; whatever is neither is as if it were not there."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            seconds = (zoned - datetime.now(UTC)).total_seconds()
        except (ValueError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S) if math.isfinite(seconds) else 0.0


class Backoff:
    """Exponential backoff with full jitter: uniform from 0 to ``base_s 2^failures``, capped.

    Full jitter spreads a fleet that lost its server at one moment; the mean wait is half the bound.
    """

    def __init__(self, base_s: float, cap_s: float, source: random.Random) -> None:
        self._base_s, self._cap_s, self._source = base_s, cap_s, source
        self.failures = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure."""
        bound = min(self._cap_s, self._base_s * 2.0 ** min(self.failures, 60))
        self.failures += 1
        return self._source.uniform(0.0, bound)

    def reset(self) -> None:
        self.failures = 0
