"""What an answer of the server means for what was sent, and when to try again.

=========================================  =====================================================
answer                                     what becomes of the delta
=========================================  =====================================================
200, naming the stream and the source      taken: it is on the server's disk
none, or cut off, or not the server's      again later (a portal on the way says 200 to anything)
408, 425, 429, 5xx, 3xx                    again later, not before ``Retry-After``
401, 403, 404, a revoked source            kept: nothing is wrong with it; delivery pauses
409 ``incompatible-sketch``,               kept: the stream may be another one now; it is looked at
``capacity-too-small``
any other 4xx                              refused: set aside with the problem
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

__all__ = ["Answer", "Backoff", "Later", "Outcome", "Paused", "Refused", "Taken", "judge"]

LONGEST_RETRY_AFTER_S = 3600.0
_TRY_AGAIN = {408, 425, 429}
_ABOUT_THE_SENDER = {401, 403, 404}
_ABOUT_THE_STREAM = {
    "urn:decaysketch:problem:incompatible-sketch", "urn:decaysketch:problem:capacity-too-small"
}  # fmt: skip


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


Outcome = Taken | Later | Paused | Refused


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
    if status in _TRY_AGAIN or not 400 <= status < 500:
        return Later(reason, _retry_after_s(answer.headers))
    kind = str(fields.get("type", ""))
    if status in _ABOUT_THE_SENDER or kind in _ABOUT_THE_STREAM or "revoked" in kind:
        return Paused(reason)
    return Refused(problem)


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError:
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
        except ValueError:
            return 0.0
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (zoned - datetime.now(UTC)).total_seconds()
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
