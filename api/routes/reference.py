"""The API description as one page without a script: it works offline, and no request leaves the
host.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;"
    "color-scheme:light dark}h2{margin-top:2.5rem;border-bottom:1px solid}code,pre{font:14px "
    "ui-monospace,monospace}table{border-collapse:collapse}td,th{text-align:left;padding:.1rem "
    "1rem .1rem 0;vertical-align:top}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'"


@router.get("/docs")
async def reference(request: Request) -> HTMLResponse:
    """Every route with its requests and responses."""
    description = request.app.openapi()
    page = "".join(_page(description))
    return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY})


def _page(description: dict[str, Any]) -> Iterator[str]:
    title = escape(description["info"]["title"])
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
    yield f"<style>{_STYLE}</style><h1>{title} {escape(description['info']['version'])}</h1>"
    yield _prose(description["info"].get("description", ""))
    yield '<p>Schemas and examples: <a href="/openapi.json">/openapi.json</a>.</p>'
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p><strong>{escape(operation.get('summary', ''))}.</strong></p>"
            yield _prose(operation.get("description", ""))
            yield from _table(
                "takes",
                [
                    (f"{each['name']} ({each['in']})", each.get("description", ""))
                    for each in operation.get("parameters", [])
                ]
                + [
                    (f"body: {media_type}", _schema_name(content))
                    for media_type, content in operation.get("requestBody", {})
                    .get("content", {})
                    .items()
                ],
            )
            yield from _table(
                "answers",
                [
                    (status, each.get("description", ""))
                    for status, each in sorted(operation.get("responses", {}).items())
                ],
            )
    yield "</html>"


def _table(heading: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield f"<table><tr><th>{heading}<th>"
        for name, text in rows:
            yield f"<tr><td><code>{escape(name)}</code><td>{_marked(text)}"
        yield "</table>"


def _schema_name(content: dict[str, Any]) -> str:
    name: str = content.get("schema", {}).get("$ref", "")
    return f"`{name.rpartition('/')[2]}`" if name else ""


def _prose(text: str) -> str:
    return "".join(f"<p>{_marked(part)}</p>" for part in text.split("\n\n") if part.strip())


def _marked(text: str) -> str:
    """The subset of Markdown that the description uses."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
