"""What a request tells of the page or the proxy that it came by.

A server that asks for no key believes whoever reaches it, and two may reach it who should not:

- *A page of another site*, opened in a browser that can reach the server. The browser sends what
  the page asks for, only hiding the answer from it, and says who asks in headers that no page can
  write: ``Sec-Fetch-Site``, and ``Origin`` of all but plain reading. What such a page asks for is
  refused; that somebody follows a link to here is not, since that is his own doing and changes
  nothing.
- *A proxy* on the same machine, which hands on the requests of the world. It says so in headers
  that nobody else sends.

Programs (``curl``, the client of this package) send none of these headers.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers

__all__ = ["foreign_page", "proxy_header", "says_nothing"]

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = frozenset({"same-origin", "none"})  # none: the user himself, by address or bookmark
_OF_PROXIES = frozenset({"forwarded", "via", "x-real-ip"})
_OF_PROGRAMS = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"authorization",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"user-agent",
        b"x-request-id",
    }
)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def says_nothing(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether it is plain that neither a page nor a proxy can have sent these headers: all of them
    are of those that programs send."""
    return all(name in _OF_PROGRAMS for name, _ in headers)


def foreign_page(method: str, scheme: str, headers: Headers) -> tuple[str, str] | None:
    """The header, and its value, by which the browser says that the page of another origin asks for
    this; None if none says so.

    Another port is another origin: ``localhost:3000`` is foreign to ``localhost:8000``.

    Args:
        method: of the request.
        scheme: that the server speaks.
        headers: of the request; ``Host`` is the name by which the server was called.
    """
    for site in headers.getlist("sec-fetch-site"):
        if site not in _OWN_SITES and not (method in _READING and _follows_a_link(headers)):
            return "Sec-Fetch-Site", site
    if method in _READING:
        return None  # who may not read the answer may still ask: nothing is changed by it
    own = _origin(scheme, headers.get("host", ""))
    for origin in headers.getlist("origin"):
        if _origin(*_split(origin)) != own:
            return "Origin", origin
    return None


def proxy_header(headers: Headers) -> str | None:
    """The name of the first header that only a proxy adds; None if there is none."""
    return next(
        (name for name in headers if name in _OF_PROXIES or name.startswith("x-forwarded-")), None
    )


def _follows_a_link(headers: Headers) -> bool:
    """Whether the answer becomes what a tab of the browser shows, and not a part of a page."""
    mode, destination = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return (mode, destination) == ("navigate", "document")


def _split(origin: str) -> tuple[str, str]:
    """``http://localhost:8000`` -> ``("http", "localhost:8000")``; ``null`` has no host."""
    scheme, _, host = origin.partition("://")
    return scheme, host


def _origin(scheme: str, host: str) -> tuple[str, str]:
    """As it is compared: in lower case, without the port that is meant where none is named."""
    scheme = scheme.lower()
    return scheme, host.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ":"))
