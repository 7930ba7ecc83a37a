"""Protobuf's wire format, for messages that are read without a schema."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["BYTES", "FIXED32", "FIXED64", "VARINT", "fields", "varint"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Encodings: the lowest three bits in a tag. The others are the field's number."""


def varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number of 64 bits, and its end. Raises IndexError if it has no end."""
    number = shift = 0
    while True:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (1 << 64) - 1, at
        shift += 7
        if shift > 63:
            raise IndexError


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message: the tag, and the content as it is written. Raises IndexError
    if the message ends too early or is none.
    """
    at, end = 0, len(message)
    while at < end:
        tag = message[at]
        at += 1
        if tag > 0x7F:
            tag, at = varint(message, at - 1)
            if tag < 0x80:  # in more bytes than it takes, which no writer does
                raise IndexError
        wire = tag & 7
        if wire == BYTES:
            size = message[at]
            at += 1
            if size > 0x7F:
                size, at = varint(message, at - 1)
        elif wire == VARINT:
            size = varint(message, at)[1] - at
        elif wire == FIXED64:
            size = 8
        elif wire == FIXED32:
            size = 4
        else:
            raise IndexError
        begin, at = at, at + size
        if at > end:
            raise IndexError
        yield tag, message[begin:at]
