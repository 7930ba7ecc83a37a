"""A message from another system as rows, by its stream's mappings."""

from __future__ import annotations

from collections.abc import Sequence

from api.errors import TooManyRowsError
from api.ingest.json_weight import parts
from decaysketch.ingest.columns import Batch, Form, to_columns
from decaysketch.ingest.documents import DocumentMap, Message
from decaysketch.ingest.formats import parse_message
from decaysketch.ingest.readings import Parsed

__all__ = ["MAX_MESSAGE_PARTS", "read_message"]

MAX_MESSAGE_PARTS = 10_000
"""Maximum brackets and commas in a message. An uplink has a hundred or two."""


def read_message(
    body: bytes, form: Form, *, format: str, maps: Sequence[DocumentMap], topic: str
) -> Batch:
    """Read one message. Return its readings as rows.

    Args:
        body: plain bytes.
        form: the required row form.
        format: the message format.
        maps: the stream's mappings for that format.
        topic: the topic on which it came.

    Returns:
        The rows. Their ``told`` has the parser's readings and the message's other content.

    Raises:
        TooManyRowsError: more readings than one post may have.
    """
    if (found := parts(body, MAX_MESSAGE_PARTS)) > MAX_MESSAGE_PARTS:
        told = Parsed()
        reason = f"{found} brackets and commas; expected at most {MAX_MESSAGE_PARTS}"
        told.refuse("message", reason)
    else:
        told = parse_message(Message(body, topic), format, maps)
    if len(told.readings) > form.max_rows:
        raise TooManyRowsError(len(told.readings), form.max_rows)
    batch = to_columns(told.readings, form)
    batch.told = told
    return batch
