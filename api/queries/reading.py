"""Requests out of bodies and out of URLs.

A body may be long, and reading it takes the processor: FastAPI would do that on the event loop,
where everybody waits. And what is no JSON at all it answers with 400, or with 422, as its fault is.
So the routes of queries, of curves and of new streams read their bodies by :func:`asked_in_body`,
long ones on a thread, and every fault is one of the request (422).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from api.access.asker import asker
from api.turns import Turns

__all__ = ["asked_in_body", "body_described", "read_request"]

_LONG_BYTES = 64 << 10

Asked = TypeVar("Asked", bound=BaseModel)


def asked_in_body(model: type[Asked]) -> Callable[[Request], Awaitable[Asked]]:
    """A dependency: the request that the JSON body is.

    Raises:
        RequestValidationError: it is none; at most a few faults of each query are told.
    """

    async def read(request: Request) -> Asked:
        if not (body := await request.body()):
            raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "missing"}])
        if len(body) <= _LONG_BYTES:
            return read_request(body, model)
        questions: Turns = request.app.state.questions
        with questions.asked(asker(request)) as compute:
            return await compute(read_request, body, model)

    return read


def body_described(model: type[Asked]) -> dict[str, Any]:
    """For ``openapi_extra``: a body that a route reads by :func:`asked_in_body`."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def read_request(text: str | bytes, model: type[Asked]) -> Asked:
    """The request that a JSON text is.

    Raises:
        RequestValidationError: it is no JSON, or no such request.
    """
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise RequestValidationError([_not_json(error.msg, error.pos)]) from None
    except UnicodeDecodeError as error:
        raise RequestValidationError([_not_json("not UTF-8", error.start)]) from None
    except (RecursionError, ValueError):
        raise RequestValidationError([_not_json("too deep, or a number too long", 0)]) from None
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(_in_body(error), body=fields) from None


def _in_body(error: ValidationError) -> list[dict[str, Any]]:
    faults = error.errors(include_url=False)
    return [{**fault, "loc": ("body", *fault["loc"])} for fault in faults]


def _not_json(reason: str, place: int) -> dict[str, object]:
    return {"type": "json_invalid", "loc": ("body", place), "msg": "", "ctx": {"error": reason}}
