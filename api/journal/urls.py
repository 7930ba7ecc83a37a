"""The supported databases, and their drivers."""

from __future__ import annotations

import sqlalchemy as sa

__all__ = ["driver_url"]

_DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+aiosqlite": "sqlite",  # as URLs of earlier releases name it
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


def driver_url(text: str) -> sa.URL:
    """Return a database URL with the driver for its kind.

    Raises:
        ValueError: it cannot be read, or its kind is unknown to this release.
    """
    scheme = text.partition("://")[0]
    if scheme not in _DRIVERS:
        raise ValueError(f"{scheme!r} is not a database that this release supports")
    try:
        # By the name of the driver at once: SQLAlchemy does not know every short one.
        return sa.make_url(_DRIVERS[scheme] + text.removeprefix(scheme))
    except sa.exc.ArgumentError as error:
        raise ValueError(str(error)) from None
