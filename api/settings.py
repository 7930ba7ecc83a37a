"""What an operator may choose: one frozen, typed object, from the environment and the command line.

Each field is read from the environment variable ``DECAYSKETCH_<FIELD>``; an option given on the
command line wins.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

__all__ = ["ENV_PREFIX", "Settings", "SettingsError"]

ENV_PREFIX = "DECAYSKETCH_"


class SettingsError(ValueError):
    """A setting is outside its domain; the message names it, its value and what was expected."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one aggregator process.

    Args:
        host: address to listen on. There is no authentication: keep it on loopback or behind a
            proxy that has some.
        port: TCP port to listen on.
        data: path of the SQLite file, or a database URL as SQLAlchemy takes it.
        max_body_bytes: longest request body; a longer one is refused (413) without being read.
        max_queries: most queries in one request.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    data: str = "aggregator.sqlite3"
    max_body_bytes: int = 32 * 1024 * 1024
    max_queries: int = 1000

    def __post_init__(self) -> None:
        for name, low, high in (
            ("port", 0, 65535),
            ("max_body_bytes", 1, 1 << 31),
            ("max_queries", 1, 1 << 20),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingsError(f"{name} is {value}; expected an integer from {low} to {high}")
        if not self.data:
            raise SettingsError("data is empty; expected a path or a database URL")

    @property
    def database_url(self) -> str:
        """``data`` as SQLAlchemy takes it."""
        return self.data if "://" in self.data else f"sqlite:///{self.data}"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, **options: Any) -> Self:
        """Settings from the environment; ``options`` that are not None win.

        Raises:
            SettingsError: a value is outside its domain or not an integer where one is expected.
        """
        chosen: dict[str, Any] = {}
        for field in fields(cls):
            variable = ENV_PREFIX + field.name.upper()
            if options.get(field.name) is not None:
                chosen[field.name] = options[field.name]
            elif (text := environment.get(variable)) is not None:
                chosen[field.name] = _parse(variable, text, type(field.default))
        return cls(**chosen)


def _parse(variable: str, text: str, kind: type) -> str | int:
    if kind is not int:
        return text
    try:
        return int(text)
    except ValueError:
        raise SettingsError(f"{variable} is {text!r}; expected an integer") from None
