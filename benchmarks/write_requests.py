"""Bodies of Prometheus remote write, written by hand and by protobuf, for tests and benchmarks."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from typing import Any

__all__ = ["STALE", "Series", "field", "messages", "version_1", "version_2"]

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


_WRITE_REQUEST = """
Label 1:name:string 2:value:string
Sample 1:value:double 2:timestamp:int64 3:start_timestamp:int64
Exemplar 1:labels:*Label 2:value:double 3:timestamp:int64
Histogram 1:count_int:uint64 15:timestamp:int64
MetricMetadata 1:type:int32 2:metric_family_name:string 4:help:string
TimeSeries 1:labels:*Label 2:samples:*Sample 3:exemplars:*Exemplar 4:histograms:*Histogram
WriteRequest 1:timeseries:*TimeSeries 3:metadata:*MetricMetadata
TimeSeries2 1:labels_refs:*uint32 2:samples:*Sample 3:histograms:*Histogram 6:created:int64
Request 4:symbols:*string 5:timeseries:*TimeSeries2
"""


@cache
def messages() -> dict[str, Any]:
    """The classes of protobuf, from the fields that Prometheus' definitions have."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="write", package="p", syntax="proto3")
    for line in _WRITE_REQUEST.strip().splitlines():
        name, *fields = line.split()
        message = file.message_type.add(name=name)
        for each in fields:
            number, called, kind = each.split(":")
            made = message.field.add(name=called, number=int(number))
            made.label = made.LABEL_REPEATED if kind.startswith("*") else made.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind.islower() or kind[-2:] == "64" or kind[-2:] == "32":
                made.type = getattr(made, f"TYPE_{kind.upper()}")
            else:
                made.type, made.type_name = made.TYPE_MESSAGE, f".p.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"p.{message.name}")
        )
        for message in file.message_type
    }
