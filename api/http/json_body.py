"""JSON bodies: weighed before they are parsed, parsed outside the event loop, and once.

The parser holds the interpreter's lock from the first byte to the last. So the server weighs a text
first (:mod:`api.ingest.json_weight`), and rejects it unparsed if it would become more than any
sound request.

Routes of :class:`JsonRoute` have a request whose ``json()`` does that. Later calls (the guard that
looks for streams, FastAPI, the reader of queries) receive the earlier result. Raw observations are
read elsewhere (``ingest``), row by row.

Requests are validated here as well. A body may be long, and validating it takes CPU time. FastAPI
would do that on the event loop, and delay all other requests. It also answers a body that is not
JSON with 400, or with 422, depending on the fault. So the routes for queries, curves and new
streams, all ``JsonRoute``, read their bodies by :func:`asked_in_body`, long ones on a thread. Every
fault is a request fault (422).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from api.http.caller import asker, left_of
from api.http.middleware import require_media_type
from api.ingest.json_weight import parts
from api.service.threads import Turns

__all__ = [
    "MOST_PARTS",
    "JsonRoute",
    "TooManyPartsError",
    "asked_in_body",
    "body_described",
    "json_only",
    "not_json",
    "parse",
    "read_request",
]

MOST_PARTS = 100_000
"""Maximum brackets and commas in a body. A request at every list limit has 70,000: 20,000 quantile
shares, 5,000 decay steps, 2,000 queries with ten fields, 10,000 times, 1,000 sources."""

_AT_ONCE_BYTES = 16 << 10  # parsed in 0.3 ms at worst: to hand it to a thread takes as long


class TooManyPartsError(HTTPException):
    """A body would become more values than any request has. (An HTTPException, as for all
    bodies.)
    """

    def __init__(self, found: int, most: int) -> None:
        super().__init__(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body has {found} brackets and commas; expected at most {most}",
        )


async def json_only(request: Request) -> None:
    """Reject a body with another media type. A page from another site can have a browser send a
    form, or nothing, and cannot send this type.
    """
    require_media_type(request, "application/json")


def parse(text: bytes, most_parts: int = MOST_PARTS) -> Any:
    """Return the value of JSON in UTF-8.

    Raises:
        TooManyPartsError: it would become more than ``most_parts`` values. json.JSONDecodeError: it
        is not JSON. The message and the place explain why.
    """
    # A text has no more parts than bytes.
    if len(text) > most_parts and (found := parts(text, most_parts)) > most_parts:
        raise TooManyPartsError(found, most_parts)
    try:
        return json.loads(text.decode("utf-8-sig"))
    except json.JSONDecodeError:
        raise
    except UnicodeDecodeError as error:
        raise json.JSONDecodeError("not UTF-8", "", error.start) from None
    except (RecursionError, ValueError):
        raise json.JSONDecodeError("too deeply nested, or a number is too long", "", 0) from None


def not_json(error: json.JSONDecodeError) -> RequestValidationError:
    """Return the error that FastAPI raises for a body that it reads itself."""
    fault = {"type": "json_invalid", "loc": ("body", error.pos), "msg": ""}
    return RequestValidationError([{**fault, "ctx": {"error": error.msg}}])


class _ReadOnce(Request):
    """A request with a ``json()`` that parses its body once, for any caller and outcome."""

    _outcome: tuple[Any, Exception | None] | None = None

    async def json(self) -> Any:
        if self._outcome is None:
            body = await self.body()
            at_once = len(body) <= _AT_ONCE_BYTES
            self._outcome = _try(body) if at_once else await asyncio.to_thread(_try, body)
        value, error = self._outcome
        if error is not None:
            raise error
        return value


def _try(body: bytes) -> tuple[Any, Exception | None]:
    try:
        return parse(body), None
    except (json.JSONDecodeError, TooManyPartsError) as error:
        return None, error


class JsonRoute(APIRoute):
    """A route that accepts JSON. Its request is parsed once, and never on the event loop if it is
    long.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_ReadOnce(request.scope, request.receive))

        return handle


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
        with questions.asked(asker(request), left_of(request)) as compute:
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
