"""A receiver of webhooks on the loopback interface, which may refuse for a while."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

__all__ = ["Receiver", "receiving"]


class Receiver:
    """What was delivered.

    Attributes:
        url: where to.
        accepts: whether requests are answered with success.
        refused: how many were not.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/hook"
        self.origin = f"http://127.0.0.1:{port}"
        self.accepts, self.refused = True, 0
        self.messages: list[tuple[float, dict[str, Any]]] = []

    def options(self, folder: Path) -> tuple[str, ...]:
        """Settings of an aggregator that may send here, as options of its command."""
        settings = folder / "webhooks.toml"
        settings.write_text(
            f'webhook_origins = "{self.origin}"\nwebhook_networks = "127.0.0.0/8"\n'
            'webhook_secret = "a secret of the tests, long enough"\n'
        )
        return "--config", str(settings)

    def sent(self) -> list[dict[str, Any]]:
        """All messages in order of arrival. One whose response was late came twice."""
        return list({(each["id"], each["sequence"]): each for _, each in self.messages}.values())

    def statuses(self, monitor: str) -> list[str]:
        """Of the messages about a monitor, in order and without duplicates."""
        mine = {
            message["sequence"]: message["status"]
            for _, message in self.messages
            if message["groupLabels"]["alertname"] == monitor
        }
        return [mine[number] for number in sorted(mine)]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """One on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if receiver.accepts:
                receiver.messages.append((time.time(), json.loads(body)))
            else:
                receiver.refused += 1
            self.send_response(200 if receiver.accepts else 503)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
