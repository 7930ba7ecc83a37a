"""A URL's scheme, name and port, as in a list of permitted receivers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

__all__ = ["LONGEST_URL", "Origin"]

LONGEST_URL = 2000

_PORTS = {"http": 80, "https": 443}
_PRINTABLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Origin:
    """A receiver's scheme, name and port."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Self:
        """Return a URL's origin.

        Raises:
            ValueError: it is not http or https, or has a part that is not allowed here: a user, a
                fragment, or a character that is not printable ASCII.
        """
        if len(url) > LONGEST_URL:
            raise ValueError(f"has {len(url)} characters; expected at most {LONGEST_URL}")
        if _PRINTABLE.fullmatch(url) is None:
            raise ValueError("has characters that are not printable ASCII")
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("is not https://HOST/... or http://HOST/...")
        if "@" in parts.netloc or "#" in url or "\\" in url:
            raise ValueError("has a user, a fragment or a backslash; expected none of these")
        return cls(parts.scheme, parts.hostname.rstrip("."), parts.port or _PORTS[parts.scheme])

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"
