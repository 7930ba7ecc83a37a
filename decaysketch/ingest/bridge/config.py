"""The file of a bridge: TOML, every field checked, one fault a line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from decaysketch.client.access import plain_url
from decaysketch.errors import ParameterError
from decaysketch.ingest.documents import DocumentMap
from decaysketch.ingest.formats import AnyMap
from decaysketch.ingest.mapping import without_echoes

__all__ = ["Broker", "Config", "Server", "read"]

_PORTS = {"mqtt": 1883, "mqtts": 8883}
_BATCH, _MESSAGE_BYTES = 1000, 256 << 10
_Topics = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...],
    Field(strict=False, min_length=1, max_length=100),
]
_File = Annotated[Path, Field(strict=False)]


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Server(_Section):
    """The aggregator."""

    url: str
    key_file: _File | None = None
    ca_file: _File | None = None
    source: str | None = Field(default=None, pattern=r"^[^\x00-\x1f\x7f-\x9f]{1,200}$")

    @field_validator("url")
    @classmethod
    def _is_plain(cls, url: str) -> str:
        return plain_url(url, "server.url")


class Broker(_Section):
    """The broker and the connection settings."""

    broker: str
    client_id: str = Field(min_length=1, max_length=100)
    topics: _Topics
    username: str | None = None
    password_file: _File | None = None
    ca_file: _File | None = None
    share: str = Field(default="", pattern=r"^[^/+#]*$")
    batch: int = Field(default=_BATCH, ge=1, le=30_000)
    wait_ms: int = Field(default=50, ge=0, le=10_000)
    max_message_bytes: int = Field(default=_MESSAGE_BYTES, ge=1)
    ack: Literal["disk", "server"] = "disk"

    @field_validator("broker")
    @classmethod
    def _is_an_address(cls, address: str) -> str:
        parts = urlsplit(address)
        if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
            raise ValueError(
                "expected mqtt://host:1883 or mqtts://host:8883, and a user name in its own field"
            )
        _ = parts.port  # raises a ValueError
        return address

    @property
    def host(self) -> str:
        return urlsplit(self.broker).hostname or ""

    @property
    def port(self) -> int:
        parts = urlsplit(self.broker)
        return parts.port or _PORTS[parts.scheme]

    @property
    def secured(self) -> bool:
        return urlsplit(self.broker).scheme == "mqtts"

    @property
    def filters(self) -> list[str]:
        """The subscription's topic filters."""
        return [f"$share/{self.share}/{each}" if self.share else each for each in self.topics]


class Config(_Section):
    """A bridge's configuration.

    Attributes:
        mqtt: broker settings; None: messages are lines of files.
        spool: folder for undelivered rows; it has one folder for each stream, and ``dead``.
        metrics: ``host:port`` for the Prometheus page; None: no page.
        max_ahead_s: the bridge rejects a reading that is dated further ahead of this machine's
            clock.
        max_spool_bytes: limit for each stream, and for the dead letters.
    """

    server: Server
    mqtt: Broker | None = None
    map: Annotated[tuple[AnyMap, ...], Field(strict=False, min_length=1, max_length=200)]
    spool: _File = Path("spool")
    metrics: str | None = Field(default=None, pattern=r"^(127\.0\.0\.1|\[::1\]|localhost):\d{1,5}$")
    max_ahead_s: float = Field(default=300.0, ge=0)
    max_spool_bytes: int = Field(default=1 << 30, ge=1 << 20)

    @model_validator(mode="after")
    def _has_streams(self) -> Self:
        for place, each in enumerate(self.map):
            if each.stream is None:
                raise ValueError(f"map[{place}].stream is missing; expected the name of a stream")
            if not isinstance(each, DocumentMap):
                raise ValueError(
                    f"map[{place}].format is {each.format!r}, and messages from a "
                    "broker do not have this format"
                )
        if self.mqtt is None and self.server.source is None:
            raise ValueError("server.source is missing; expected a name if there is no [mqtt]")
        return self

    @property
    def broker(self) -> Broker:
        """The broker settings.

        Raises:
            ParameterError: there are none.
        """
        if self.mqtt is None:
            raise ParameterError("mqtt is missing; expected a section that names a broker")
        return self.mqtt

    @property
    def source(self) -> str:
        """The source name for posts."""
        return self.server.source or self.broker.client_id

    @property
    def batch(self) -> int:
        """The number of messages that are processed together."""
        return _BATCH if self.mqtt is None else self.mqtt.batch

    @property
    def max_message_bytes(self) -> int:
        """Longer messages are dead letters, unread."""
        return _MESSAGE_BYTES if self.mqtt is None else self.mqtt.max_message_bytes

    @property
    def streams(self) -> list[str]:
        return sorted({each.stream for each in self.map if each.stream is not None})

    def maps_of(self, stream: str) -> list[DocumentMap]:
        """Return the mappings that feed a stream."""
        return [each for each in self.map if each.stream == stream]

    def api_key(self) -> str | None:
        return _secret(self.server.key_file)

    def password(self) -> str | None:
        return _secret(self.broker.password_file)


def _secret(path: Path | None) -> str | None:
    return None if path is None else path.read_text(encoding="utf-8").strip()


_HOMES: dict[str, type[BaseModel]] = {
    "to the top": Config,
    "into [mqtt]": Broker,
    "into [server]": Server,
}


def read(path: Path) -> Config:
    """Read the file.

    Raises:
        ParameterError: it is not TOML, or a field is unknown, missing or outside its domain.
        OSError: it cannot be read.
    """
    try:
        form: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as fault:
        raise ParameterError(f"{path} is not TOML: {fault}") from None
    try:
        return Config.model_validate(form)
    except ValidationError as refused:
        faults = "; ".join(map(_said, without_echoes(refused.errors())[:5]))
        raise ParameterError(f"{path}: {faults}") from None


def _said(fault: Mapping[str, Any]) -> str:
    place = ".".join(map(str, fault["loc"]))
    reason = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        name = fault["loc"][-1]
        homes = [home for home, of in _HOMES.items() if name in of.model_fields]
        reason = f"is not a field of this section; it belongs {homes[0]}" if homes else reason
    return f"{place}: {reason}" if place else reason
