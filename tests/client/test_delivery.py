"""What each answer means, and how long a sensor waits."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decaysketch.client.delivery import (
    LONGEST_RETRY_AFTER_S,
    Answer,
    Backoff,
    Held,
    Later,
    Paused,
    Refused,
    Taken,
    judge,
)

OURS = {"stream": "s", "source": "a"}


def answer(status: int, body: Any = None, **headers: str) -> Answer:
    return Answer(
        status, {k.replace("_", "-"): v for k, v in headers.items()}, json.dumps(body).encode()
    )


def test_acknowledgement_names_stream_and_source() -> None:
    said = {**OURS, "token": "s:1:7"}
    assert judge(answer(200, said), OURS) == Taken(said)
    for other in ({**OURS, "source": "b"}, {"stream": "s"}, [], "ok", None):
        outcome = judge(answer(200, other), OURS)
        assert isinstance(outcome, Later)
        assert "the response is not from an aggregator" in outcome.reason


@pytest.mark.parametrize("status", [301, 408, 425, 429, 500, 502, 503, 504])
def test_answers_that_may_be_others_tomorrow(status: int) -> None:
    assert judge(answer(status), OURS) == Later(f"{status}: no detail")
    assert judge(answer(status, retry_after="7"), OURS) == Later(f"{status}: no detail", 7.0)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_answers_about_the_sender(status: int) -> None:
    assert judge(answer(status, {"detail": "no"}), OURS) == Paused(f"{status}: no")


def test_answers_about_the_stream() -> None:
    for kind in ("incompatible-sketch", "capacity-too-small", "source-revoked"):
        problem = {"type": f"urn:decaysketch:problem:{kind}", "detail": "seed: 1 != 2"}
        assert judge(answer(409, problem), OURS) == Paused("409: seed: 1 != 2")


@pytest.mark.parametrize("kind", ["corrupt-sketch", "interval-conflict", "invalid-parameter"])
def test_answers_of_the_aggregator_about_the_body(kind: str) -> None:
    problem = {"type": f"urn:decaysketch:problem:{kind}", "detail": "no sketch", "x": 1}
    outcome = judge(answer(422, problem), OURS)
    assert outcome == Refused({**problem, "status": 422})
    assert outcome.reason == "422: no sketch"


def test_request_that_is_not_valid() -> None:
    """By its numbers it is the delta's fault, by its source the sensor's."""
    for name, expected in (("next", Refused), ("source", Paused)):
        problem = {
            "type": "urn:decaysketch:problem:invalid-request", "detail": "no",
            "errors": [{"field": name}, 3],
        }  # fmt: skip
        assert isinstance(judge(answer(422, problem), OURS), expected)


@pytest.mark.parametrize("status", [400, 402, 405, 407, 409, 415, 421, 422, 451])
@pytest.mark.parametrize("kind", [None, "about:blank", "corrupt-sketch", "urn:x:interval-conflict"])
def test_what_others_refuse_is_kept(status: int, kind: str | None) -> None:
    """A proxy or portal on the way knows nothing of the body."""
    assert judge(answer(status, {"type": kind}), OURS) == Paused(f"{status}: no detail")


def test_what_is_not_taken_for_now_is_held() -> None:
    ahead = {"type": "urn:decaysketch:problem:clock-ahead", "detail": "newest is 9"}
    assert judge(answer(422, ahead), OURS) == Held("422: newest is 9")
    early = judge(answer(429, ahead, retry_after="7"), OURS)
    assert early == Held("429: newest is 9", after_s=7.0)
    assert judge(answer(413), OURS) == Held("413: no detail", too_long=True)


@given(st.integers(100, 599), st.binary(max_size=40), st.text(max_size=20))
def test_no_answer_is_too_strange(status: int, body: bytes, retry_after: str) -> None:
    outcome = judge(Answer(status, {"retry-after": retry_after}, body), OURS)
    if isinstance(outcome, Later):
        assert 0 <= outcome.after_s <= LONGEST_RETRY_AFTER_S
    assert not isinstance(outcome, Taken)


def test_body_of_endless_depth_is_no_answer() -> None:
    assert judge(Answer(502, {}, b"[" * 100_000), OURS) == Later("502: no detail")


@pytest.mark.parametrize(
    "text",
    [
        "Mon, 01 Jan 99999999999 00:00:00 GMT", "Mon, 01 Jan 2020 00:00:00 +999999999999999999999",
        "Mon, 01 Jan 0001 00:00:00 +1400", "Mon, 99 Foo", ",",
    ],
)  # fmt: skip
def test_retry_after_that_is_no_date(text: str) -> None:
    assert judge(answer(503, retry_after=text), OURS) == Later("503: no detail")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.25", 0.25), (" 12 ", 12), ("1e99", 3600), ("-3", 0), ("nan", 0), ("inf", 0), ("soon", 0)],
)
def test_retry_after_in_seconds(text: str, expected: float) -> None:
    assert judge(answer(503, retry_after=text), OURS) == Later("503: no detail", expected)


def test_retry_after_as_a_date() -> None:
    moment = datetime.now(UTC) + timedelta(seconds=100)
    outcome = judge(answer(503, retry_after=format_datetime(moment, usegmt=True)), OURS)
    assert isinstance(outcome, Later)
    assert 90 < outcome.after_s <= 100


def test_backoff_doubles_its_bound_up_to_the_cap() -> None:
    class Most(random.Random):
        def uniform(self, low: float, high: float) -> float:
            assert low == 0
            return high

    backoff = Backoff(0.5, 6, Most())
    assert [backoff.next_s() for _ in range(6)] == [0.5, 1, 2, 4, 6, 6]
    backoff.reset()
    assert backoff.next_s() == 0.5
    backoff.failures = 10**6
    assert backoff.next_s() == 6


def test_backoff_is_spread_over_all_of_it() -> None:
    waits = []
    for seed in range(400):
        backoff = Backoff(8, 8, random.Random(seed))
        waits.append(backoff.next_s())
    assert min(waits) < 0.5
    assert max(waits) > 7.5
    assert 3.5 < sum(waits) / len(waits) < 4.5
