"""A request that is safe to repeat, judged by its response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2

from decaysketch.client.delivery import Answer, Later, Taken, judge
from decaysketch.client.posting import PostRefusedError, problem_kind

__all__ = ["fields_of"]


def fields_of(
    client: httpx2.Client, method: str, path: str, expected: Mapping[str, str], **sent: Any
) -> dict[str, Any] | None:
    """Return the response's fields, or None if the outcome is unknown and a repeat is safe.

    Args:
        expected: fields that the response must have.
        sent: as for ``httpx2.Client.request``.

    Raises:
        PostRefusedError: the server rejects the request, and would reject it again.
    """
    try:
        answer = client.request(method, path, **sent)
    except httpx2.RequestError:
        return None
    headers = {name.lower(): value for name, value in answer.headers.items()}
    outcome = judge(Answer(answer.status_code, headers, answer.content), dict(expected))
    if isinstance(outcome, Taken):
        return outcome.fields
    if isinstance(outcome, Later):
        return None
    raise PostRefusedError(
        f"{method} {path} was rejected: {outcome.reason}", answer.status_code, problem_kind(answer)
    )
