"""Requests that a browser sends for a web page from another origin.

A server that needs no key trusts every client that reaches it. Two kinds of client should not:

- *A page from another site*, opened in a browser that can reach the server. The browser sends the
  page's request, and only hides the response from the page. It names the page in headers that no
  page can write: ``Sec-Fetch-Site``, and ``Origin`` for all but plain reading. The server rejects
  requests from such a page. It accepts a followed link to this server, since the user does that and
  it changes nothing.
- *A proxy* on the same machine that forwards requests from the internet. It adds headers that no
  other client sends.

Programs (``curl``, this package's client) send none of these headers.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from api.http import refusals

__all__ = ["check_page", "foreign_page"]

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = frozenset({"same-origin", "none"})  # none: the user himself, by address or bookmark
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def check_page(scope: Scope, headers: Headers) -> None:
    """Raise ForeignPageError if such a page sends the request."""
    told = foreign_page(scope["method"], scope.get("scheme", "http"), headers)
    if told is not None:
        raise refusals.ForeignPageError(*told)


def foreign_page(method: str, scheme: str, headers: Headers) -> tuple[str, str] | None:
    """Return the header, and its value, in which the browser names a page from another origin as
    the requester. None if there is no such header.

    Another port is another origin: ``localhost:3000`` is foreign to ``localhost:8000``.

    Args:
        method: the request's method.
        scheme: the server's scheme.
        headers: the request's headers. ``Host`` is the name by which the client called the server.
    """
    for site in headers.getlist("sec-fetch-site"):
        if site not in _OWN_SITES and not (method in _READING and _follows_a_link(headers)):
            return "Sec-Fetch-Site", site
    if method in _READING:
        return None  # safe methods change nothing, and the page cannot read the response
    own = _origin(scheme, headers.get("host", ""))
    for origin in headers.getlist("origin"):
        if _origin(*_split(origin)) != own:
            return "Origin", origin
    return None


def _follows_a_link(headers: Headers) -> bool:
    """Return whether the response becomes a browser tab's content, and not part of a page."""
    mode, destination = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return (mode, destination) == ("navigate", "document")


def _split(origin: str) -> tuple[str, str]:
    """Split an origin: ``http://localhost:8000`` -> ``("http", "localhost:8000")``. ``null`` has
    no host.
    """
    scheme, _, host = origin.partition("://")
    return scheme, host


def _origin(scheme: str, host: str) -> tuple[str, str]:
    """Return an origin for comparison: in lower case, without the default port."""
    scheme = scheme.lower()
    return scheme, host.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ":"))
