"""Servers that studies start on this machine: exporters that are scraped, and Prometheus."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from quality.ports import free_port

__all__ = ["Exporter", "exporting", "prometheus"]


class Exporter(BaseHTTPRequestHandler):
    """Answers each scrape with :meth:`exposition`."""

    def exposition(self) -> str:
        """Return the samples as Prometheus reads them."""
        raise NotImplementedError

    def do_GET(self) -> None:
        body = self.exposition().encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def exporting(handler: type[Exporter]) -> Iterator[int]:
    """Serve on a free loopback port, and give the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def prometheus(binary: str, folder: Path, configuration: str) -> Iterator[str]:
    """Run Prometheus with its data in a new folder, and give its address."""
    folder.mkdir()
    file, port = folder / "prometheus.yml", free_port()
    file.write_text(configuration)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [binary, f"--config.file={file}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
