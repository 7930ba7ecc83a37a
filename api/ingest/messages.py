"""A message from another system as rows, by its stream's mappings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from api.errors import TooManyRowsError
from api.ingest.json_weight import parts
from decaysketch.ingest.columns import Batch, Form, to_columns
from decaysketch.ingest.documents import DocumentMap, Message
from decaysketch.ingest.formats import parse_message
from decaysketch.ingest.readings import Parsed

__all__ = ["MAX_MESSAGE_PARTS", "MessageReader"]

MAX_MESSAGE_PARTS = 10_000
"""Maximum brackets and commas in a message. An uplink has a hundred or two."""


@dataclass
class MessageReader:
    """Reads one message. ``parsed`` has its content besides the readings.

    Attributes:
        format: the message format.
        maps: the stream's mappings for that format.
        topic: the topic on which it came.
    """

    format: str
    maps: Sequence[DocumentMap]
    topic: str
    parsed: Parsed = field(default_factory=Parsed)

    def __call__(self, body: bytes, form: Form) -> Batch:
        """The columns of the readings.

        Raises:
            TooManyRowsError: more readings than one post may have.
        """
        if (found := parts(body, MAX_MESSAGE_PARTS)) > MAX_MESSAGE_PARTS:
            self.parsed.refuse(
                "message",
                f"{found} brackets and commas; at most {MAX_MESSAGE_PARTS} are read",
            )
        else:
            self.parsed.add(parse_message(Message(body, self.topic), self.format, self.maps))
        readings = self.parsed.readings
        if len(readings) > form.max_rows:
            raise TooManyRowsError(len(readings), form.max_rows)
        return to_columns(readings, form)
