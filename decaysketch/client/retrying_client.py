"""Repeat requests until the response is final."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx2

from decaysketch.client import delivery
from decaysketch.client.delivery import Answer, Backoff, Later, Taken, judge
from decaysketch.client.errors import ClientError
from decaysketch.client.trust import certificate_fault
from decaysketch.errors import ParameterError

__all__ = ["Asking", "PostRefusedError", "UnreachableError", "problem_kind"]

_LONGEST_WAIT_S = 60.0


class PostRefusedError(ClientError):
    """The aggregator rejected a request, and would reject it again.

    Attributes:
        status: HTTP status.
        kind: the problem type, such as "revoked-source". "" if there was none.
    """

    def __init__(self, message: str, status: int, kind: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class UnreachableError(ClientError):
    """The aggregator answered no attempt, or its certificate is not valid."""


class Asking:
    """Send requests to one aggregator. Threads may share it.

    Args:
        client: an httpx2 client with the aggregator's base URL and the API key.
        attempts, backoff_s, max_backoff_s, wait: see :class:`decaysketch.client.posting.Poster`.

    Raises:
        ParameterError: ``attempts`` is below 1.
    """

    def __init__(
        self,
        client: httpx2.Client,
        *,
        attempts: int = 6,
        backoff_s: float = 0.5,
        max_backoff_s: float = 10.0,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        if attempts < 1:
            raise ParameterError(f"attempts is {attempts}; expected at least 1")
        self._client, self._attempts = client, attempts
        self._backoff, self._wait = (backoff_s, max_backoff_s), wait
        self._random = random.Random()

    def fields(
        self, method: str, path: str, expected: Mapping[str, str], **arguments: Any
    ) -> dict[str, Any]:
        """Return the response as JSON. See :meth:`answer`."""

        def taken(answer: Answer) -> bool:
            return isinstance(judge(answer, expected), Taken)

        outcome = judge(self.answer(method, path, taken, expected, **arguments), expected)
        assert isinstance(outcome, Taken)
        return outcome.fields

    def answer(
        self,
        method: str,
        path: str,
        accept: Callable[[Answer], bool],
        expected: Mapping[str, str],
        **arguments: Any,
    ) -> Answer:
        """Send until the response is final.

        Errors of the HTTP library may contain headers, so they are not passed on.
        """
        backoff = Backoff(*self._backoff, self._random)
        problem, after_s = "", 0.0
        for attempt in range(self._attempts):
            if attempt:
                self._wait(max(backoff.next_s(), min(after_s, _LONGEST_WAIT_S)))
            try:
                response = self._client.request(method, path, **arguments)
            except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol) as fault:
                raise ClientError(
                    f"{method} {path} cannot be sent: {type(fault).__name__}"
                ) from None
            except httpx2.RequestError as fault:
                if reason := certificate_fault(fault):
                    raise UnreachableError(f"{method} {self._url(path)} failed: {reason}") from None
                problem, after_s = f"{type(fault).__name__}: {fault}", 0.0
                continue
            headers = {name.lower(): value for name, value in response.headers.items()}
            answer = Answer(response.status_code, headers, response.content)
            if accept(answer):
                return answer
            outcome = judge(answer, expected)
            if isinstance(outcome, delivery.Held) and outcome.after_s:
                outcome = Later(outcome.reason, outcome.after_s)  # its time will come
            if not isinstance(outcome, Later):
                assert not isinstance(outcome, Taken)
                raise PostRefusedError(
                    f"{method} {path} was rejected: {outcome.reason}",
                    answer.status,
                    problem_kind(response),
                )
            problem, after_s = outcome.reason, outcome.after_s
        raise UnreachableError(
            f"{method} {self._url(path)} failed {self._attempts} times: {problem}"
        )

    def _url(self, path: str) -> httpx2.URL:
        return self._client.base_url.copy_with(userinfo=b"").join(path)


def problem_kind(response: httpx2.Response) -> str:
    """Return the problem type of a rejected request, or ""."""
    try:
        return str(response.json()["type"]).rpartition(":")[2]
    except (ValueError, KeyError, TypeError):
        return ""
