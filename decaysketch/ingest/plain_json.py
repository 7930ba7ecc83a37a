"""JSON messages of any shape: the map says what is where."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from decaysketch.ingest.documents import DocumentMap, Message, Opened, document_of

__all__ = ["JsonMap", "open_message"]


class JsonMap(DocumentMap):
    """A reading of a JSON object."""

    format: Literal["json"] = Field(description="JSON objects.")


def open_message(message: Message) -> Opened:
    """A message.

    Raises:
        RefusedError: it is no JSON object.
    """
    return Opened(document_of(message.body), message)
