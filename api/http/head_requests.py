"""HEAD by RFC 9110: the response to GET, without the content.

No route handles HEAD. The request goes in as GET, through the same guards and to the same headers
(length and entity tag among them), and only the head of the response goes out. An endless response,
such as live results, ends with its head: at its first piece the route learns that no client reads.
The service description does not list HEAD.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HeadRequests"]


class _ToldError(Exception):
    """The head is sent. No client reads the pieces that the route would send now."""


class HeadRequests:
    """Answers HEAD with the head of the response to GET. ``app`` receives GET.

    Outer layers, such as the log, see HEAD: this class restores the request's method.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        told = False

        async def send_as_head(message: Message) -> None:
            scope["method"] = "HEAD"  # which the server looks at
            try:
                await send(message)
            finally:
                scope["method"] = "GET"

        async def send_head(message: Message) -> None:
            nonlocal told
            if message["type"] == "http.response.start":
                await send_as_head(message)
            elif message["type"] == "http.response.body" and not told:
                told = True
                await send_as_head({"type": "http.response.body", "body": b"", "more_body": False})
            if message.get("more_body"):
                raise _ToldError

        # A range means nothing to HEAD: it asks for the head of the whole.
        scope["headers"] = [each for each in scope["headers"] if each[0] != b"range"]
        scope["method"] = "GET"
        try:
            await self.app(scope, receive, send_head)
        except _ToldError:
            pass
        finally:
            scope["method"] = "HEAD"
