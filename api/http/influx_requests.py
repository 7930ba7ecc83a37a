"""Specifics of requests by Influx clients: their paths, and the key's place.

Clients for version 2 send a token (``Authorization: Token ...``). Clients for version 1 send a name
and a password, as Basic authentication or in the query string (``u`` and ``p``). This server's key
is the token or the password, for any name. The server reads it there only on these paths. A browser
adds Basic credentials by itself for any web page. So the server checks the web page behind such a
request, as it does where no key is needed.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import parse_qs

from starlette.datastructures import Headers

__all__ = ["PATH", "WRITES", "key_shown"]

_BELOW = r"(?:/v1/streams/[^/]+/influx)?"
WRITES = re.compile(rf"{_BELOW}/(?:api/v2/write|api/v3/write_lp|write)")
"""Paths that accept lines."""

PATH = re.compile(rf"{WRITES.pattern}|{_BELOW}/(?:query|ping|health)")

_MOST_PARAMETERS = 100


def key_shown(headers: Headers, query_string: bytes) -> tuple[str | None, bool]:
    """Return the key in a request to one of these paths, or None, and whether a browser might have
    added it by itself.
    """
    scheme, _, text = headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "token" | "bearer":
            return text.strip(), False
        case "basic":
            return _password(text.strip()), True
    if b"p=" not in query_string:
        return None, False
    try:
        given = parse_qs(query_string.decode("latin-1"), max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        return None, False
    return given.get("p", [None])[0], False


def _password(text: str) -> str | None:
    try:
        return base64.b64decode(text, validate=True).decode("utf-8").partition(":")[2]
    except (binascii.Error, ValueError):
        return None
