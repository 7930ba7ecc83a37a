"""Read requests from bodies and from URLs.

A body may be long, and validating it takes CPU time. FastAPI would do that on the event loop, and
delay all other requests. It also answers a body that is not JSON with 400, or with 422, depending
on the fault. So the routes for queries, curves and new streams, all ``JsonRoute``, read their
bodies by :func:`asked_in_body`, long ones on a thread. Every fault is a request fault (422).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from api.http.caller import asker
from api.http.json_body import not_json, parse
from api.service.fair_queue import Turns

__all__ = ["asked_in_body", "body_described", "read_request"]

_LONG_BYTES = 8 << 10

Asked = TypeVar("Asked", bound=BaseModel)


def asked_in_body(model: type[Asked]) -> Callable[[Request], Awaitable[Asked]]:
    """Make a dependency that returns the request in the JSON body.

    Raises:
        RequestValidationError: it is no request. At most a few faults are reported per query.
    """

    async def read(request: Request) -> Asked:
        if not (body := await request.body()):
            raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "missing"}])
        try:
            fields = await request.json()
        except json.JSONDecodeError as error:
            raise not_json(error) from None
        if len(body) <= _LONG_BYTES:
            return _checked(fields, model)
        questions: Turns = request.app.state.questions
        with questions.asked(asker(request)) as compute:
            return await compute(_checked, fields, model)

    return read


def body_described(model: type[Asked]) -> dict[str, Any]:
    """Return ``openapi_extra`` for a body that a route reads by :func:`asked_in_body`."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def read_request(text: str, model: type[Asked]) -> Asked:
    """Return the request in a JSON text.

    Raises:
        RequestValidationError: it is no JSON, or no such request.
    """
    try:
        fields = parse(text.encode("utf-8", "surrogatepass"))
    except json.JSONDecodeError as error:
        raise not_json(error) from None
    return _checked(fields, model)


def _checked(fields: Any, model: type[Asked]) -> Asked:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(_in_body(error), body=fields) from None


def _in_body(error: ValidationError) -> list[dict[str, Any]]:
    faults = error.errors(include_url=False)
    return [{**fault, "loc": ("body", *fault["loc"])} for fault in faults]
