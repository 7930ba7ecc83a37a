"""The dashboard and its files: a fixed list, read once, served from memory.

There is no build step: the browser loads the files in ``api/page``. Modules name each other by
plain paths, so the browser revalidates every file by its ETag.
"""

from __future__ import annotations

import hashlib
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Header, Response
from starlette.exceptions import HTTPException

from api.queries import is_known

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_FOLDER = Path(__file__).parents[1] / "page"
_JAVASCRIPT, _CSS = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
_INDEX = "index.html"
_FILES = {
    _INDEX: "text/html; charset=utf-8",
    "address.js": _JAVASCRIPT,
    "alert.js": _JAVASCRIPT,
    "alerts.js": _JAVASCRIPT,
    "app.js": _JAVASCRIPT,
    "asking.js": _JAVASCRIPT,
    "charts.js": _JAVASCRIPT,
    "columns.js": _JAVASCRIPT,
    "complete.js": _JAVASCRIPT,
    "coverage.js": _JAVASCRIPT,
    "curve.js": _JAVASCRIPT,
    "decay.js": _JAVASCRIPT,
    "define.js": _JAVASCRIPT,
    "devices.js": _JAVASCRIPT,
    "dialogs.js": _JAVASCRIPT,
    "events.js": _JAVASCRIPT,
    "functions.js": _JAVASCRIPT,
    "groups.js": _JAVASCRIPT,
    "http.js": _JAVASCRIPT,
    "icon.svg": "image/svg+xml",
    "list.js": _JAVASCRIPT,
    "lists.js": _JAVASCRIPT,
    "nodes.js": _JAVASCRIPT,
    "panels.js": _JAVASCRIPT,
    "past.js": _JAVASCRIPT,
    "questions.js": _JAVASCRIPT,
    "versus.js": _JAVASCRIPT,
    "service.js": _JAVASCRIPT,
    "source.js": _JAVASCRIPT,
    "sources.js": _JAVASCRIPT,
    "state.js": _JAVASCRIPT,
    "style.css": _CSS,
    "tables.js": _JAVASCRIPT,
    "taking.js": _JAVASCRIPT,
    "units.js": _JAVASCRIPT,
    "vendor/LICENSE": "text/plain; charset=utf-8",
    "vendor/uPlot.esm.js": _JAVASCRIPT,
    "vendor/uPlot.min.css": _CSS,
    "watching.js": _JAVASCRIPT,
}

KnownTags = Annotated[str | None, Header(alias="if-none-match")]


class _File(NamedTuple):
    content: bytes
    media_type: str
    etag: str


@cache
def _file(name: str) -> _File:
    content = (_FOLDER / name).read_bytes()
    return _File(content, _FILES[name], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


@router.get("/")
async def get_page(if_none_match: KnownTags = None) -> Response:
    """Streams at a glance, and their results under any decay."""
    return _served(_INDEX, if_none_match)


@router.get("/assets/{name:path}")
async def get_asset(name: str, if_none_match: KnownTags = None) -> Response:
    """A file that the dashboard loads.

    Raises:
        HTTPException: 404 for every name that is not listed.
    """
    if name not in _FILES or name == _INDEX:
        raise HTTPException(HTTPStatus.NOT_FOUND, "the page has no such file")
    return _served(name, if_none_match)


def _served(name: str, if_none_match: str | None) -> Response:
    file = _file(name)
    headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
    if is_known(file.etag, if_none_match):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
