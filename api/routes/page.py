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
_INDEX = "index.html"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "LICENSE": "text/plain; charset=utf-8",
}
_FILES = {
    path.relative_to(_FOLDER).as_posix(): _TYPES[path.suffix or path.name]
    for path in sorted(_FOLDER.rglob("*"))
    if path.is_file() and (path.suffix or path.name) in _TYPES
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
