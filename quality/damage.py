"""Bodies that nobody's encoder wrote, made from sound ones: for the study of them and for tests.

Sound sketches are those of every family of :data:`quality.examples.EXAMPLES` and of its variants,
and those with columns, strata and withdrawals. A change at random flips bits, cuts an end off,
splices in a piece of another body, makes a number extreme, repeats or invents bytes. Changes one
after the other (every bit, every length) are for bodies that are small enough.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, cast

from decaysketch.core.params import SketchParams
from decaysketch.families import Recipe
from quality.examples import EXAMPLES, Row, feed, forms, stream, variants, with_fields

__all__ = ["cuts", "damage", "damaged", "flips", "recipes", "sealed", "sound"]

_HEADER_BYTES: Final = 16
_ROWS: Final = (0, 1, 5, 60, 400)  # empty, small, full, and past the first watermarks
_EXTREMES: Final = [
    b"\xff" * 8,
    b"\x00" * 8,
    b"\xff" * 9 + b"\x01",  # the largest varint
    b"\x80" * 12,  # a varint that does not end
    *(struct.pack("<q", number) for number in (-(1 << 63), 1, -1, 1 << 62, -(1 << 62), 1 << 40)),
    *(struct.pack("<I", number) for number in (1 << 31, (1 << 31) - 1)),
]


_COLUMNS: Final = "level int64, ok bool, rev int64, site text, temp float64"
_WITH_COLUMNS: Final[dict[str, dict[str, Any]]] = {
    "columns": {"capacity": 40},
    "columns-copies": {"copies": 2, "capacity": 8},
    "columns-withdrawn": {"revision": "rev"},
    "strata": {"strata": "site", "capacity": 4},
    "strata-two": {"strata": "site, level", "columns": "level text, site text, temp float64"},
}


def sealed(body: bytes) -> bytes:
    """A body and the checksum that belongs to it."""
    return body + struct.pack("<I", zlib.crc32(body))


def cuts(blob: bytes) -> Iterator[bytes]:
    """Every proper beginning of the bytes; then those of the body, under a right checksum."""
    yield from (blob[:length] for length in range(len(blob)))
    yield from (sealed(blob[:length]) for length in range(len(blob) - 4))


def flips(blob: bytes) -> Iterator[bytes]:
    """The bytes with every single bit of the body changed, under a right checksum."""
    for bit in range(8 * len(blob) - 32):
        body = bytearray(blob[:-4])
        body[bit // 8] ^= 1 << bit % 8
        yield sealed(bytes(body))


def damage(
    draw: random.Random, body: bytearray, others: Sequence[bytes], tokens: Sequence[bytes] = ()
) -> None:
    """One change at random, in place.

    Args:
        draw: where chance comes from.
        body: what is changed.
        others: bodies to splice pieces of into it.
        tokens: what means something in its language.
    """
    at, kind = draw.randrange(len(body) + 1), draw.randrange(8 if tokens else 7)
    if kind in (0, 1):
        for _ in range(draw.choice((1, 1, 2, 8)) if body else 0):
            body[draw.randrange(len(body))] ^= 1 << draw.randrange(8)
    elif kind == 2:
        del body[at : draw.choice((len(body), at + draw.randrange(9)))]
    elif kind == 3:
        other = draw.choice(others)
        start = draw.randrange(len(other) + 1)
        length = draw.randrange(len(other) - start + 1)
        replaced = length if draw.random() < 0.5 else draw.randrange(len(body) - at + 1)
        body[at : at + replaced] = other[start : start + length]
    elif kind == 4:
        number = draw.choice(_EXTREMES)
        at -= draw.choice((0, at % 4))  # where some forms have lengths and offsets
        body[at : at + draw.choice((0, 1, len(number)))] = number
    elif kind == 5:
        body[at:at] = body[at : at + draw.randrange(64)] * draw.randrange(1, 20)
    elif kind == 6:
        length = draw.randrange(1, 33)
        body[at : at + length] = draw.randbytes(length)
    else:
        body[at:at] = draw.choice(tokens)


@cache
def _with_columns() -> dict[str, Recipe]:
    """Streams with columns, by name."""
    found = {
        f"decay-{name}": with_fields(EXAMPLES["decay"].recipe, **({"columns": _COLUMNS} | more))
        for name, more in _WITH_COLUMNS.items()
    }
    return {name: recipe for name, recipe in found.items() if recipe is not None}


@cache
def recipes() -> dict[str, Recipe]:
    """A stream of each family and of each of its variants that can be told in JSON."""
    return {
        "-".join(filter(None, (family, name))): recipe
        for family, example in EXAMPLES.items()
        for name, recipe in variants(example).items()
        if getattr(recipe.params, "id_key", None) is None
    } | _with_columns()


@cache
def sound() -> list[tuple[str, bytes]]:
    """``(name of the recipe, bytes)``: small and large, with parameters and without."""
    bodies = []
    for name, recipe in recipes().items():
        example = EXAMPLES[recipe.family]
        for rows in _ROWS:
            if name in _with_columns():
                sketch = _fed_columns(recipe, stream(example, example.recipe, rows))
            else:
                sketch = feed(recipe.empty(), example, recipe, stream(example, recipe, rows))
            bodies += [(name, blob) for blob in forms(sketch)]
    return bodies


def _fed_columns(recipe: Recipe, rows: Sequence[Row]) -> Any:
    """A sketch of rows with columns, of which some are null. Some rows are withdrawn."""
    made: dict[str, Any] = {
        "level": lambda k: k % 7 if k % 5 else None,
        "ok": lambda k: k % 2 == 0 if k % 3 else None,
        "rev": lambda k: k % 2,
        "site": lambda k: f"site-{k % 9}" if k % 11 else None,
        "temp": lambda k: rows[k].value if k % 4 else None,
    }
    sketch, numbers, params = recipe.empty(), range(len(rows)), cast("SketchParams", recipe.params)
    texts = {name for name, kind in params.columns if kind == "text"}
    columns = {
        name: [None if (each := made[name](k)) is None else str(each) if name in texts else each
               for k in numbers]
        for name, _ in params.columns
    }  # fmt: skip
    weights, times, ids = ([row[at] for row in rows] for at in (1, 2, 3))
    if rows:
        sketch.update(columns, weights, times, ids)
        if params.revision:
            sketch.withdraw(where="site == 'site-3'")
    return sketch


def damaged(seed: int, names: Sequence[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """``(name of the recipe to read it with, body)`` without end, the same for the same seed.

    Four times in five the checksum is put right, so that the rules behind it are reached.

    Args:
        seed: where chance starts.
        names: of the recipes to take; all, if None.
    """
    draw = random.Random(seed)
    everything = [body for _, body in sound()]
    bodies = [each for each in sound() if names is None or each[0] in names]
    while True:
        name, original = draw.choice(bodies)
        body = bytearray(original)
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            damage(draw, body, everything)
        if draw.random() < 0.7:
            body[:_HEADER_BYTES] = original[:_HEADER_BYTES]
        if draw.random() < 0.8 and len(body) > 4:
            body[:] = sealed(bytes(body[:-4]))
        yield name, bytes(body)
