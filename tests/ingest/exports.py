"""Bodies of Prometheus remote write, written by hand."""

from __future__ import annotations

import struct
from collections.abc import Iterable

STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]

Series = tuple[dict[str, str], list[tuple[float, int]]]
"""Labels, and samples: value and time in ms."""


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    text = bytearray()
    while number > 0x7F:
        text.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*text, number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def sample(value: float, time_ms: int) -> bytes:
    return b"\x09" + struct.pack("<d", value) + b"\x10" + varint(time_ms)


def version_1(series: Iterable[Series], more: bytes = b"") -> bytes:
    body = b""
    for labels, samples in series:
        parts = [field(1, field(1, name.encode()) + field(2, text.encode()))
                 for name, text in sorted(labels.items())]  # fmt: skip
        parts += [field(2, sample(*each)) for each in samples]
        body += field(1, b"".join(parts) + more)
    return body


def version_2(series: Iterable[Series]) -> bytes:
    symbols, body = [""], b""
    for labels, samples in series:
        references = b""
        for pair in sorted(labels.items()):
            for text in pair:
                if text not in symbols:
                    symbols.append(text)
                references += varint(symbols.index(text))
        body += field(
            5, field(1, references) + b"".join(field(2, sample(*each)) for each in samples)
        )
    return b"".join(field(4, text.encode()) for text in symbols) + body
