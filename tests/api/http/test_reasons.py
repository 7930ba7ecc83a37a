"""Why something was refused, in words: of every word that refusals are counted by."""

from __future__ import annotations

import pytest

from api.http.problems import TABLE
from api.http.reasons import in_words


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("corrupt-sketch", "The body is not a valid sketch"),
        ("http-415", "Unsupported Media Type"),
        ("observation-time", "An observation with an invalid time"),
        (
            "observation-observation",
            "An invalid observation, or one with an unknown field",
        ),
        ("message-tts", "A message that is not valid tts"),
        ("data point", "A data point that cannot be read"),
        ("http-soon", "http-soon"),
        ("of tomorrow", "of tomorrow"),  # a word of its own
    ],
)
def test_a_reason_is_told_in_words(reason: str, words: str) -> None:
    assert in_words([reason]) == {reason: words}


def test_each_kind_of_problem_has_its_title() -> None:
    told = in_words(kind.slug for kind in TABLE.values())
    assert set(told.values()) <= {kind.title for kind in TABLE.values()}
    assert not any(words == reason for reason, words in told.items())
