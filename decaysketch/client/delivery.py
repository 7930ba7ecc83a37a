"""Decide from a response whether a delta is done, and when to retry.

A client gives a delta up only if the aggregator itself rejects these bytes. It keeps the delta on
any response from a proxy or portal.

=========================================  =====================================================
response                                   effect on the delta
=========================================  =====================================================
200 that names the stream and the source   acknowledged, on the server's disk
none, incomplete, or not from the server   retry later (a captive portal returns 200 as well)
408, 425, 429, 5xx, 3xx                    retry later, not before ``Retry-After``, except for
problem that names the body as bad         rejected, moved aside with the problem
(``corrupt-sketch``, ...)
``clock-ahead`` (422, 429), 413            held: retried separately while the others go on
any other 4xx                              kept. Delivery pauses, and the client reads the
                                           stream, which may have changed
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
    """A complete response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Taken:
    """Acknowledged. ``fields`` is the response."""

    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Later:
    """Outcome unknown. Send the same again, not before ``after_s`` seconds."""

    reason: str
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Held:
    """Not this delta and not now. Others may be sent.

    ``after_s``: seconds until the aggregator accepts it, if it said so, otherwise 0.
    """

    reason: str
    too_long: bool = False
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Paused:
    """The key or the stream is wrong. The delta is sound."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """This body will never be accepted."""

    problem: dict[str, Any]

    @property
    def reason(self) -> str:
        return f"{self.problem.get('status')}: {self.problem.get('detail')}"


Outcome = Taken | Later | Held | Paused | Refused


def judge(answer: Answer, expected: Mapping[str, str]) -> Outcome:
    """Classify a response.

    Args:
        answer: the response.
        expected: fields that identify a success as the server's own.
    """
    status, fields = answer.status, _object(answer.body)
    if 200 <= status < 300:
        for name, value in expected.items():
            if fields.get(name) != value:
                return Later(
                    f"{status} whose {name} is {fields.get(name)!r}; expected {value!r}: the "
                    "response is not from an aggregator"
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
    """Parse seconds or a date. Ignore anything else."""
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

    Full jitter spreads a fleet that lost its server at one moment. The mean wait is half the cap.
    """

    def __init__(self, base_s: float, cap_s: float, source: random.Random) -> None:
        self._base_s, self._cap_s, self._source = base_s, cap_s, source
        self.failures = 0

    def next_s(self) -> float:
        """Return the seconds to wait after one more failure."""
        bound = min(self._cap_s, self._base_s * 2.0 ** min(self.failures, 60))
        self.failures += 1
        return self._source.uniform(0.0, bound)

    def reset(self) -> None:
        self.failures = 0
