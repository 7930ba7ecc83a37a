"""Reasons for rejections, in words.

Rejections are counted by a constant of the program: a problem slug, ``http-413`` where the status
is enough, ``observation-time`` for an observation's fault, ``message-tts`` for an unreadable
message. Metrics keep these words. People receive their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from api.http.problems import TABLE

__all__ = ["in_words"]

_PROBLEMS = {kind.slug: kind.title for kind in reversed(TABLE.values())}
_PLACES = ("data point", "line", "series")  # of a body that holds several


def in_words(reasons: Iterable[str]) -> dict[str, str]:
    """Return each reason's meaning, or the reason itself where it has no separate meaning."""
    return {each: _of(each) for each in reasons}


def _of(reason: str) -> str:
    if reason in _PROBLEMS:
        return _PROBLEMS[reason]
    kind, _, rest = reason.partition("-")
    if kind == "http" and rest.isdecimal():
        return HTTPStatus(int(rest)).phrase
    if reason == "observation-observation":
        return "An invalid observation, or one with an unknown field"
    if kind == "observation":
        return f"An observation with an invalid {rest}"
    if kind == "message":
        return f"A message that is not valid {rest}"
    return f"A {reason} that cannot be read" if reason in _PLACES else reason
