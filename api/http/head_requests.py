"""HEAD, as RFC 9110 has it: whatever GET would answer, without the content.

No route knows of it. The request goes in as GET, past the same guards and to the same headers
(length and entity tag among them), and of what comes back the head alone goes out. An answer that
does not end, such as live answers, ends with its head: the route is told at its first piece that
nobody reads. The description of the service does not list it.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HeadRequests"]


class _ToldError(Exception):
    """The head is out; what the route would send now, nobody reads."""


class HeadRequests:
    """Answers HEAD with the head of what GET is answered; ``app`` sees GET.

    What stands outside, such as the log, sees HEAD: the method of the request is put back.
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
