"""Problems with the statuses and texts that senders in other protocols understand."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.http.problems import ProblemResponse, handled

__all__ = ["BAD", "BUSY", "as_understood", "translated", "understood_by"]

BAD = {
    HTTPStatus.UNPROCESSABLE_ENTITY.value: HTTPStatus.BAD_REQUEST.value,
    HTTPStatus.CONFLICT.value: HTTPStatus.BAD_REQUEST.value,
}
"""Some senders give up for good after 422. All treat 400 as a fault in the body."""

BUSY = {HTTPStatus.TOO_MANY_REQUESTS.value: HTTPStatus.SERVICE_UNAVAILABLE.value}
"""For senders that drop data after 429."""

Answer = Callable[[Request, ProblemResponse], Response]


def understood_by(answer: Answer) -> type[APIRoute]:
    """Return a route class with problems written by ``answer``."""

    class Understood(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()

            async def handle(request: Request) -> Response:
                try:
                    return await handler(request)
                except Exception as error:
                    return answer(request, await handled(request, error))

            return handle

    return Understood


def translated(
    answer: ProblemResponse, statuses: Mapping[int, int]
) -> tuple[dict[str, Any], int, dict[str, str]]:
    """Return a problem's members, the response status, and the headers in addition to the
    content headers.
    """
    status = statuses.get(answer.status_code, answer.status_code)
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name not in ("content-length", "content-type")
    }
    return json.loads(bytes(answer.body)), status, headers


def as_understood(
    answer: ProblemResponse, statuses: Mapping[int, int], **beside: Any
) -> ProblemResponse:
    """Return a problem with another status and additional members."""
    problem, status, headers = translated(answer, statuses)
    return ProblemResponse(problem | beside | {"status": status}, status, headers)
