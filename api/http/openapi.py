"""The OpenAPI description, with the common responses that routes do not declare themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from api.http.problems import PROBLEM_JSON, Problem

__all__ = ["describe"]

_GUARDED = {
    "401": "The request has no valid key.",
    "403": "The key's role is too low, or a stream is outside its scope. If the server requires "
    "no key: the request is from a page of another site, or a proxy forwarded it.",
    "503": "The database is unreachable.",
}
_WITH_BODY = {
    "400": "The body does not match its media type.",
    "408": "The body did not arrive in time.",
    "413": "The body is too long, as sent or decompressed.",
    "415": "The server does not accept the media type or encoding of the body.",
    "422": "The request is malformed.",
}
_OF_FASTAPI = ("HTTPValidationError", "ValidationError")  # no route returns them
_ALWAYS = {"429": "Too many requests. Repeat the request after `Retry-After`."}
_PROBLEM = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_PROTOBUF = "application/x-protobuf"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_UNCOUNTED = {"/healthz", "/readyz"}


def describe(requests: Iterable[type[BaseModel]], **about: Any) -> dict[str, Any]:
    """Return the description of an application.

    Args:
        requests: models that routes read from bodies themselves. No signature names them.
        about: of :func:`fastapi.openapi.utils.get_openapi`.
    """
    schema = get_openapi(**about)
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    named: list[type[BaseModel]] = [Problem, *requests]
    for model in named:
        definition = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(definition.pop("$defs", {}))
        schemas[model.__name__] = definition
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            _complete(path, operation)
    for name in _OF_FASTAPI:
        schemas.pop(name, None)
    return schema


def _complete(path: str, operation: dict[str, Any]) -> None:
    refusals = {} if path in _UNCOUNTED else dict(_ALWAYS)
    if "security" in operation:
        refusals |= _GUARDED
    if "requestBody" in operation:
        refusals |= _WITH_BODY
    if "400" in operation["responses"]:  # the server never returns FastAPI's 422
        refusals.pop("422", None)
        operation["responses"].pop("422", None)
    for status, text in refusals.items():
        operation["responses"].setdefault(status, {"description": text, "content": _PROBLEM})
    if _PROTOBUF in operation["responses"].get("200", {}).get("content", {}):
        # The response has the encoding of the request, and errors are ``google.rpc.Status``.
        for status, response in operation["responses"].items():
            if status >= "400":
                response["content"] = response["content"] | {_PROTOBUF: _BINARY}
    operation["responses"] = dict(sorted(operation["responses"].items()))
