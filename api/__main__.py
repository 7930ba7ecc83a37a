"""``python -m api``: serve the aggregator."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import sys
from collections.abc import Sequence

import uvicorn

from api.app import create_app
from api.settings import ENV_PREFIX, Settings, SettingsError


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m api",
        description="Serve the decaysketch aggregator over HTTP.",
        epilog=f"Every option can also be set by the environment, as {ENV_PREFIX}<OPTION>.",
    )
    parser.add_argument("--host", help=f"address to listen on (default {Settings.host})")
    parser.add_argument("--port", type=int, help=f"port to listen on (default {Settings.port})")
    parser.add_argument(
        "--data",
        metavar="PATH",
        help=f"SQLite file, created if absent, or a database URL (default {Settings.data})",
    )
    options = parser.parse_args(arguments)
    try:
        settings = Settings.from_environment(**vars(options))
    except SettingsError as error:
        parser.error(str(error))
    if not _is_loopback(settings.host):
        logging.getLogger("uvicorn.error").warning(
            "listening on %s, and there is no authentication: whoever reaches it can read and post",
            settings.host,
        )
    uvicorn.run(create_app(settings), host=settings.host, port=settings.port, access_log=False)
    return 0


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    sys.exit(main())
