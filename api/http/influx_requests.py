"""What requests of Influx's clients have of their own: their paths, and where they show a key.

Clients of its second version show a token (``Authorization: Token ...``), those of the first a name
and a password, as Basic authentication or in the query string (``u`` and ``p``); the key of this
server is the token or the password, whatever the name. Only on these paths is it looked for there.
A browser sends Basic credentials by itself for whatever page asks, so a request that shows them is
asked which page it is of, as where no key is needed.
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
"""Paths that take lines."""

PATH = re.compile(rf"{WRITES.pattern}|{_BELOW}/(?:query|ping|health)")

_MOST_PARAMETERS = 100


def key_shown(headers: Headers, query_string: bytes) -> tuple[str | None, bool]:
    """What a request to one of these paths shows as its key, None if nothing; and whether a browser
    might have added it by itself."""
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
