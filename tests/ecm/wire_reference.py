"""Section 10 of docs/wire-format.md in plain Python: what it says and nothing else.

Reads bytes that are sound, and knows nothing of the library.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Any

from wire.reference import derive, mix64


class Bytes:
    """Fields, from the front."""

    def __init__(self, blob: bytes) -> None:
        self.rest = blob

    def take(self, size: int) -> bytes:
        taken, self.rest = self.rest[:size], self.rest[size:]
        assert len(taken) == size
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def signed(self) -> int:
        number = self.varint()
        return number // 2 if number % 2 == 0 else -(number + 1) // 2

    def column(self, count: int) -> list[int]:
        widths = list(self.take(-(-count // 8)))
        bits = [widths[k // 8] for k in range(count)]
        packed = int.from_bytes(self.take(-(-sum(bits) // 8)), "little")
        numbers = []
        for width in bits:
            numbers.append(packed & (1 << width) - 1)
            packed >>= width
        assert packed == 0
        return numbers


def layers_of(params: dict[str, Any]) -> list[tuple[int, int, int]]:
    """(shift, cells, slots) of each."""
    width, depth, slots = params["width"], params["depth"], params["slots"]
    found = [(64, 1, 64)]
    if not params["key_bits"]:
        return [*found, (0, depth * width, slots)]
    bits, fan = params["key_bits"], params["fanout_bits"]
    for shift in sorted(range(0, bits, fan), reverse=True):
        prefixes = 2 ** (bits - shift)
        direct = prefixes <= min(depth * width, 65535)
        found.append((shift, prefixes if direct else depth * width, slots))
    return found


def fingerprint_of(params: dict[str, Any]) -> bytes:
    texts = (
        params["width"], params["depth"], params["slots"], ("wave", "eh")[params["kind"]],
        ("time", "arrivals")[params["clock"]], params["seed"], params["time_unit"],
        None if params["horizon"] < 0 else params["horizon"], params["lanes"], params["hold"],
        params["key_bits"] or None, params["fanout_bits"],
    )  # fmt: skip
    joined = "\0".join("none" if text is None else str(text) for text in texts)
    return hashlib.blake2b(joined.encode(), digest_size=8, person=b"ds-ecm-1").digest()


def column(word: int, shift: int, row: int, width: int, seed: int) -> int:
    """Of a hashed layer."""
    x = mix64(word >> shift)
    a, b = derive(seed, 17, 16 * shift + row) | 1, derive(seed, 18, 16 * shift + row)
    return ((a * x + b) % 2**64 >> 32) * width >> 32


def kept_ranks(kind: int, slots: int, n: int) -> list[int]:
    """Of a cell of n ones, newest first."""
    ranks = []
    if kind == 0:
        for level in range(n.bit_length()):
            ranks += range(1 << level, n + 1, 2 << level)[-slots:]
    else:
        buckets, level = n, 0
        while buckets:
            above = max(0, (buckets - slots + 1) >> 1)
            ranks += [j << level for j in range(2 * above + 1, buckets + 1)]
            buckets, level = above, level + 1
    return sorted(ranks, reverse=True)


def chain(rank: int) -> list[int]:
    """A rank, and what is left of it without its lowest ones."""
    found = []
    while rank:
        found.append(rank)
        rank &= rank - 1
    return found


def read(blob: bytes) -> dict[str, Any]:
    """Parameters and entries; times of a cell as a dictionary by rank."""
    assert zlib.crc32(blob[:-4]).to_bytes(4, "little") == blob[-4:]
    fields = Bytes(blob[:-4])
    assert fields.take(8) == b"\xd5DSK\x01\x05\x00\x00"
    fingerprint = fields.take(8)
    params: dict[str, Any] = {"capacity": fields.varint(), "seed": fields.u64()}
    params["time_unit"] = fields.take(fields.byte()).decode()
    choices = fields.byte()
    params["kind"], params["clock"] = choices & 1, choices >> 1
    params["width"], params["depth"] = fields.varint(), fields.byte()
    params["slots"], params["horizon"] = fields.varint(), fields.varint() - 1
    params["lanes"], params["hold"] = fields.byte(), fields.varint()
    params["key_bits"], params["fanout_bits"] = fields.byte(), fields.byte()
    count, kept = fields.varint(), fields.varint()
    told = fields.signed() if fields.byte() else None
    entries = [read_entry(fields, params) for _ in range(count)]
    assert not fields.rest
    assert kept == sum(map(times_of, entries))
    assert told is None or all(told > entry["clock"] for entry in entries if entry["clock"])
    held = {"kept": kept, "told": told, "entries": entries}
    return {"fingerprint": fingerprint, "params": params, **held}


def times_of(entry: dict[str, Any]) -> int:
    """How many are written, of cells and of events that are held back."""
    layers = (layer for lane in entry["lanes"] for layer in lane["layers"])
    return len(entry["held"]) + sum(len(times) for layer in layers for _, times in layer)


def read_entry(fields: Bytes, params: dict[str, Any]) -> dict[str, Any]:
    length = fields.byte()
    entry: dict[str, Any] = {
        "source": fields.take(length).decode() if length else fields.varint(),
        "epoch": fields.u64(),
        "clock": None,
        "lanes": [],
        "held": [],
    }
    if not fields.byte():
        return entry
    clock = entry["clock"] = fields.signed()
    entry["too_late"], entry["moved"], entry["merges"] = (
        fields.varint(), fields.varint(), fields.byte(),
    )  # fmt: skip
    entry["slack"] = struct.unpack("<d", fields.take(8))[0] if entry["merges"] else 0.0
    count = fields.varint()
    ages, words, weights = (fields.column(count) for _ in range(3))
    entry["held"] = [(clock - age, *rest) for age, *rest in zip(ages, words, weights, strict=True)]
    before = clock
    for _ in range(fields.byte()):
        lane: dict[str, Any] = {"clock": before - fields.varint(), "layers": []}
        before = lane["clock"]
        lane["first"] = before - fields.varint()
        for _, cells, slots in layers_of(params):
            lane["layers"].append(read_layer(fields, params, cells, slots, before))
        entry["lanes"].append(lane)
    return entry


def read_layer(
    fields: Bytes, params: dict[str, Any], cells: int, slots: int, clock: int
) -> list[tuple[int, dict[int, int]]]:
    """(n, times by rank) of each cell."""
    n = fields.column(cells)
    old = [0] * cells
    if params["horizon"] >= 0:
        after = fields.column(cells)
        old = [count - a + 1 if a else 0 for count, a in zip(n, after, strict=True)]
    ranks = [
        [r for r in kept_ranks(params["kind"], slots, count) if r > o] + chain(o)
        for count, o in zip(n, old, strict=True)
    ]
    steps = iter(fields.column(sum(map(len, ranks))))
    found = []
    for count, of_cell in zip(n, ranks, strict=True):
        time, times = clock, {}
        for rank in of_cell:
            time -= next(steps)
            times[rank] = time
        found.append((count, times))
    return found
