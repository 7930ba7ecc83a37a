"""A query request out of a text: that of a URL, where the body of a POST is not to be had."""

from __future__ import annotations

import json

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from api.queries.requests import QueryRequest

__all__ = ["read_request"]


def read_request(text: str) -> QueryRequest:
    """The request that a JSON text is.

    Raises:
        RequestValidationError: as the same text would give as a body.
    """
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise RequestValidationError([_not_json(error.msg, error.pos)]) from None
    except (RecursionError, ValueError):
        raise RequestValidationError([_not_json("too deep, or a number too long", 0)]) from None
    try:
        return QueryRequest.model_validate(fields)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise RequestValidationError(
            [{**fault, "loc": ("body", *fault["loc"])} for fault in faults], body=fields
        ) from None


def _not_json(reason: str, place: int) -> dict[str, object]:
    return {"type": "json_invalid", "loc": ("body", place), "msg": "", "ctx": {"error": reason}}
