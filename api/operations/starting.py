"""A failed start, reported in one line: the fault, the place, and the remedy.

The application logs it before it gives up. The framework would repeat it, as forty lines of
internals. Only an unexpected error is shown with its stack frames.
"""

from __future__ import annotations

import logging
import socket

import sqlalchemy.exc

from api.journal.log import ReplayError, StorageError
from api.settings import Settings

__all__ = ["AddressError", "check_address", "tell_failure"]

_log = logging.getLogger("api")

_OUT_OF_REACH = (
    "check its path or address and its permissions (--data, DECAYSKETCH_DATA), then start again; "
    "nothing was changed"
)
_DAMAGED = (
    "`python -m api check` lists what cannot be read; a backup restored into an empty database "
    "brings it back"
)


class AddressError(Exception):
    """The server cannot listen on the address. The message names it, the reason, and the remedy."""


def tell_failure(error: Exception, place: str) -> None:
    """Log why the application does not start.

    Args:
        error: the exception.
        place: the database, in a form that may be shown.
    """
    match error:
        case ReplayError():
            _log.critical("cannot start from %s: %s; %s", place, _in_a_line(error), _DAMAGED)
        case StorageError() | sqlalchemy.exc.SQLAlchemyError() | OSError():
            _log.critical("cannot start from %s: %s; %s", place, _in_a_line(error), _OUT_OF_REACH)
        case _:
            _log.critical("cannot start from %s", place, exc_info=error)


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def check_address(settings: Settings) -> None:
    """Check that the server can listen on the address, before it reads the database. Reading takes
    long.

    Raises:
        AddressError: it cannot.
    """
    where = f"{settings.host}:{settings.port}"
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AddressError(
            f"cannot listen on {where}: {reason}; stop the program that listens there, or choose "
            "another --host or --port"
        ) from None
