"""Calls of the wire: many sketches written into one buffer, and read from one.

What is written is what ``wire/reference.py`` writes; what is read, of bytes that are changed too,
is what the kernels read behind their layer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import definition
import numpy as np
from native.recording import (
    FIRST,
    NO_WATERMARK,
    TIME_LIMIT,
    Call,
    Column,
    column,
    columns,
    hash_of,
    room,
)  # fmt: skip
from wire.reference import Copy, key_of, varint

from decaysketch import minhit
from decaysketch.core.params import SketchParams
from decaysketch.minhit import plan
from decaysketch.querytime import _wire_native as _native

PREFIX = b"\xd5DSK\x01"
CHECKSUM = bytes(4)


def sketches(rng: random.Random, params: SketchParams, sizes: Sequence[int]) -> list[Copy]:
    """States of streams of so many rows."""

    def level(id_: int, weight: int) -> int:
        return int(minhit.top_levels(params, column([id_]), column([weight]))[0])

    values = [0, 1, 5, 1 << 50, FIRST + 1]
    if params.value_type == "float64":
        values = [key_of(number) for number in (0.0, 0.1, -2.5, 3.0)]
    made = []
    for n in sizes:
        span = rng.choice([2, 40, TIME_LIMIT]) if n < 100 else 1
        rows = [
            (
                rng.choice(values),
                rng.randint(1, params.max_weight),
                rng.randint(-span, span),
                rng.randrange(1 << params.id_bits),
            )
            for _ in range(n)
        ]
        state = definition.state(rows, level, params.capacity, params.levels)
        marks = [mark for mark in state.watermarks if mark != NO_WATERMARK]
        made.append(Copy(marks, [(r.time, r.id, r.weight, r.value_key) for r in state.rows]))
    return made


def columns_of(copies: Sequence[Copy]) -> list[Column]:
    """Offsets, offsets of marks, marks, times, ids, weights, value keys."""
    return [
        list(accumulate((len(copy.rows) for copy in copies), initial=0)),
        list(accumulate((len(copy.watermarks) for copy in copies), initial=0)),
        [mark for copy in copies for mark in copy.watermarks],
        *columns((row for copy in copies for row in copy.rows), 4),
    ]


def body_of(copy: Copy, floats: bool = False) -> bytes:
    return PREFIX + copy.head() + (copy.packed(floats) if copy.rows else b"") + CHECKSUM


def written(copies: Sequence[Copy], levels: int, floats: bool = False) -> Iterator[Call]:
    given = columns_of(copies)
    bodies = [body_of(copy, floats) for copy in copies]
    offsets = list(accumulate(map(len, bodies), initial=0))
    yield Call("encode", [*given, [floats], PREFIX], [offsets, b"".join(bodies)])
    words: list[int] = []
    for copy in copies:
        unset = [NO_WATERMARK] * (levels - len(copy.watermarks))
        words += [len(copy.rows), *copy.watermarks, *unset]
        words += [row[place] for place in range(4) for row in copy.rows]
    yield Call("digest_inputs", [*given, [levels]], [words])


def joined(rng: random.Random, copies: Sequence[Copy], levels: int) -> Call:
    keys = [rng.randrange(3) for _ in copies]
    before = [NO_WATERMARK] * (3 * levels)
    before[levels] = 0
    after = before.copy()
    for key, copy in zip(keys, copies, strict=True):
        for place, mark in enumerate(copy.watermarks, key * levels):
            after[place] = max(after[place], mark)
    _, mark_offsets, marks, *_ = columns_of(copies)
    return Call("join_marks", [keys, mark_offsets, marks, [levels], before], [after])


def read(params: SketchParams, bodies: Sequence[bytes], plausible: bool = True) -> Call:
    """Bytes of sketches, whatever they are."""
    floats = params.value_type == "float64"
    stream = _native.Stream(
        plan(params).native, max_weight=params.max_weight, capacity=params.capacity, floats=floats,
        plausible=plausible,
    )  # fmt: skip
    data, count = b"".join(bodies), len(bodies)
    offsets = column(accumulate(map(len, bodies), initial=0))
    heads: dict[str, Any] = {name: room(count) for name in ("rows", "first_times", "columns_at")}
    heads |= {"mark_offsets": room(count + 1), "marks": room(len(data))}
    _native.read_heads(data, offsets, prefix=PREFIX, top=params.levels, **heads)
    n = heads["rows"].copy()
    heads["marks"] = heads["marks"][: heads["mark_offsets"][-1]]
    ends, levels = room(count), room(0, np.int8)
    for k in np.flatnonzero(n > 0).tolist():
        start, tops = int(heads["columns_at"][k]), room(n[k], np.int8)
        end = _native.read(
            stream, data, start, int(offsets[k + 1]) - len(CHECKSUM),
            first_time=int(heads["first_times"][k]),
            marks=heads["marks"][slice(*heads["mark_offsets"][k : k + 2])], levels=tops,
            **{name: room(n[k]) for name in ("times", "ids", "weights", "values")},
        )  # fmt: skip
        ends[k] = end - start if end >= 0 else -1
        levels = np.concatenate([levels, tops if end >= 0 else tops[:0]])
    rows = {name: room(np.maximum(n, 0).sum()) for name in ("times", "ids", "weights", "values")}
    out = room(count + 1)
    results = [n, *(each.copy() for each in list(heads.values())[1:]), ends, levels]
    _native.read_many(stream, data, offsets, **heads, **rows, out_offsets=out)
    results += [heads["rows"], out, *(each[: out[-1]] for each in rows.values())]
    fields = [params.max_weight, params.capacity, floats, plausible]
    return Call("read", [hash_of(plan(params)), fields, PREFIX, offsets, data], results)


def hostile(rng: random.Random, copy: Copy) -> Iterator[bytes]:
    """Bodies that no honest builder writes, and some that it might."""
    body = body_of(copy)
    yield from (body[:size] for size in (0, 3, 4, 9, 11, 12, len(body) - 5, len(body) - 1))
    for at in range(len(PREFIX), len(body) - 4, 4):
        yield body[:at] + bytes([body[at] ^ 1 << rng.randrange(8)]) + body[at + 1 :]
    head, packed = copy.head(), copy.packed(False)
    later = [mark + (1 << 40) for mark in copy.watermarks]
    for marks in ([], [TIME_LIMIT], [TIME_LIMIT + 1], later, [0] * 63, list(copy.watermarks)[:-1]):
        yield body_of(Copy(marks, copy.rows))
    for count in (0, 1, len(copy.rows) + 1, 1 << 20, 1 << 62):
        yield body_of(Copy(copy.watermarks, copy.rows, count=count))
    yield body_of(Copy(copy.watermarks, copy.rows, first_time=TIME_LIMIT + 1))
    yield body_of(Copy(copy.watermarks, sorted([*copy.rows, *copy.rows], reverse=True)))
    yield PREFIX + head + packed + b"\0" + CHECKSUM
    yield PREFIX + b"\x80\0" + head[1:] + packed + CHECKSUM  # a varint longer than it need be
    yield PREFIX + b"\xff" * 9 + b"\x01" + CHECKSUM
    yield PREFIX + varint(0) + varint(0) + CHECKSUM


def calls() -> Iterator[Call]:
    rng = random.Random(8)
    for max_weight, id_bits, capacity in ((3, 8, 4), (1 << 20, 36, 3)):
        params = SketchParams(max_weight, id_bits, capacity=capacity, seed=9, value_type="int64")
        levels = params.levels + 1
        copies = sketches(rng, params, [0, 1, 4, 60, 2, 8, 30])
        yield from written(copies, levels)
        yield joined(rng, copies, levels)
        bodies = [body_of(copy) for copy in copies]
        yield read(params, bodies)
        yield read(params.with_capacity(params.capacity - 1), bodies)  # some hold more
        cut = min((copy for copy in copies if copy.watermarks), key=lambda copy: len(copy.rows))
        for plausible in (True, False):
            yield read(params, list(hostile(random.Random(9), cut)), plausible)
    params = SketchParams(1, 12, capacity=40, seed=9)
    copies = sketches(random.Random(7), params, [130, 130, 5])
    yield from written(copies, params.levels + 1, floats=True)
    yield read(params, [body_of(copy, floats=True) for copy in copies])
    yield from written([], 4)
    yield read(params, [])
