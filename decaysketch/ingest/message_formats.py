"""The formats whose body is one message, each with one line.

A broker or a webhook delivers such a message. The mappings of the bridge and of streams, their
descriptions in OpenAPI and the webhook route are made from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from decaysketch.ingest import chirpstack, plain_json, things_stack
from decaysketch.ingest.documents import DocumentMap, Message, Opened

__all__ = ["MESSAGE_FORMATS", "MessageFormat"]


class MessageFormat(NamedTuple):
    """A format whose body is one message.

    Attributes:
        mapping: the mapping. Its field ``format`` has the name of the format.
        open_message: parses a message. It raises only ``RefusedError`` and ``SkippedError``, for
            any bytes.
        webhook: the program that posts such messages. None: only a broker delivers them.
    """

    mapping: type[DocumentMap]
    open_message: Callable[[Message], Opened]
    webhook: str | None = None


MESSAGE_FORMATS: dict[str, MessageFormat] = {
    "chirpstack": MessageFormat(
        chirpstack.ChirpStackMap, chirpstack.open_message, webhook="ChirpStack v4"
    ),
    "json": MessageFormat(plain_json.JsonMap, plain_json.open_message),
    "text": MessageFormat(plain_json.TextMap, plain_json.open_text),
    "tts": MessageFormat(
        things_stack.ThingsStackMap, things_stack.open_message, webhook="The Things Stack v3"
    ),
}
"""By name. Read when :mod:`decaysketch.ingest.formats` is imported."""
