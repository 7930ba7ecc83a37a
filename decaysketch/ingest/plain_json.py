"""JSON messages in any form, and payloads that are plain text. The mapping names the places."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from decaysketch.ingest.documents import DocumentMap, Message, Opened, document_of
from decaysketch.ingest.json_text import without_mark
from decaysketch.ingest.mapping import shown
from decaysketch.ingest.paths import Here
from decaysketch.ingest.readings import RefusedError

__all__ = ["JsonMap", "TextMap", "open_message", "open_text"]

_LONGEST_TEXT = 1000  # characters of a payload that is one value


class JsonMap(DocumentMap):
    """A reading of a JSON document."""

    format: Literal["json"] = Field(description="JSON: an object, an array, or one value.")


class TextMap(DocumentMap):
    """A reading that is the complete payload, such as ``21.5`` or ``ON``."""

    format: Literal["text"] = Field(
        description="A text with a single value, such as `21.5` or `ON`."
    )
    value: str | None = Field(
        default=None, max_length=1000, description="Default `$`: the complete message."
    )

    @property
    def place(self) -> str | None:
        """The complete message, unless the mapping reads columns."""
        return self.value or (None if self.columns is not None else "$")


def open_message(message: Message) -> Opened:
    """Open a message.

    Raises:
        RefusedError: it is no JSON, or an object that has a name twice.
    """
    root = document_of(message.body)
    if type(root) not in (dict, list, str, int, float, bool, type(None)):
        raise RefusedError(f"is {shown(root)}; expected a JSON object without repeated names")
    return Opened(Here(root, message.topic), message)


def open_text(message: Message) -> Opened:
    """Open a message.

    Raises:
        RefusedError: it is no UTF-8, or too long.
    """
    try:
        text = without_mark(message.body).decode("utf-8").strip()
    except ValueError as fault:
        raise RefusedError(f"is not text: {fault}") from None
    if len(text) > _LONGEST_TEXT:
        raise RefusedError(f"has {len(text)} characters; expected at most {_LONGEST_TEXT}")
    return Opened(Here(text, message.topic), message)
