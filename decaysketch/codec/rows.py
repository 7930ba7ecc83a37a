"""Rows as bit-packed columns, and the checks that need the rows alone.

Rows stand in canonical order: time, then id, then weight, all descending. Packing them takes about
the bits of an id plus two bytes each (``bitpack.py``); no general compressor: on these columns it
gained nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.codec import bitpack as _bitpack
from decaysketch.codec.fields import CHECKSUM_BYTES, check_time, refuse
from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.params import SketchParams

__all__ = ["Rows", "check_canonical", "check_rows", "decode_rows", "encode_rows"]

Int64Array = npt.NDArray[np.int64]

_COLUMNS = ("times", "ids", "weights", "values")
_LARGEST_FLOAT_KEY = int(np.float64(np.finfo(np.float64).max).view(np.int64))
_NEGATIVE_ZERO_KEY = -1


class Rows(NamedTuple):
    """Columns int64[n] in canonical order."""

    times: Int64Array
    ids: Int64Array
    weights: Int64Array
    value_keys: Int64Array


def encode_rows(rows: Rows, value_type: str) -> bytes:
    """The packed columns, padded to a whole byte. O(rows), about 25 ns a row."""
    words = np.zeros(_bitpack.max_words(len(rows.times)), dtype=np.uint64)
    bits = _bitpack.encode_columns(*rows, value_type == "float64", words)
    packed = words[: -(-bits // 64)].astype("<u8", copy=False)
    return packed.tobytes()[: -(-bits // 8)]


def decode_rows(
    blob: bytes, at: int, count: int, newest: int | None, value_type: str
) -> tuple[Rows, int]:
    """Columns that start at byte ``at`` of a sealed blob, and the offset behind them.

    What is read lies inside the blob, and memory is paid for in bytes; apart from that the rows
    are not yet checked.
    """
    rest = np.frombuffer(blob, np.uint8)[at:-CHECKSUM_BYTES]
    words = np.zeros(-(-len(rest) // 8) + _bitpack.SPARE_WORDS, dtype="<u8")
    words.view(np.uint8)[: len(rest)] = rest
    words = words.astype(np.uint64, copy=False)
    floats = value_type == "float64"
    outcome, bits = _bitpack.scan_columns(words, 8 * len(rest), count, floats)
    _check_scan(outcome)
    rows = Rows(*(np.empty(count, np.int64) for _ in range(4)))
    _bitpack.decode_columns(words, newest or 0, floats, *rows)
    return rows, at + -(-bits // 8)


def _check_scan(outcome: tuple[int, int, int, int, int]) -> None:
    code, start, column, found, limit = outcome
    if code == _bitpack.OK:
        return
    fault = {
        _bitpack.PAST_END: f"it ends at bit {found} of {limit}",
        _bitpack.WIDTH_TOO_LARGE: f"a width or mode is {found}; expected at most {limit}",
        _bitpack.TOO_FEW_BITS: (
            f"ids and weights take {found} bits; telling the rows apart takes at least {limit}"
        ),
    }[code]
    refuse(f"block of rows at {start}, {_COLUMNS[column]}: {fault}")


def check_rows(params: SketchParams, rows: Rows) -> None:
    """Ranges, strict canonical order, and no (id, weight) twice."""
    times, ids, weights, value_keys = rows
    if not len(times):
        return
    row = _bitpack.first_out_of_order(times, ids, weights)
    if row >= 0:
        pair = [(int(times[i]), int(ids[i]), int(weights[i])) for i in (row - 1, row)]
        refuse(
            f"row {row} is (time, id, weight) = {pair[1]} after {pair[0]}; expected a smaller one"
        )
    check_time(int(times[-1]), f"time of row {len(times) - 1}")  # the first is in the header
    for name, column, low, high in (
        ("id", ids, 0, (1 << params.id_bits) - 1),
        ("weight", weights, 1, params.max_weight),
    ):
        if int(column.min()) < low or int(column.max()) > high:
            row = int(((column < low) | (column > high)).argmax())
            refuse(f"{name} of row {row} is {int(column[row])}; expected {low} to {high}")
    if params.value_type == "float64":
        no_number = (value_keys > _LARGEST_FLOAT_KEY) | (value_keys == _NEGATIVE_ZERO_KEY)
        no_number |= (value_keys < ~_LARGEST_FLOAT_KEY) & (value_keys != MISSING_KEY)
        if no_number.any():
            row = int(no_number.argmax())
            refuse(
                f"value key of row {row} is {int(value_keys[row])}; expected that of a finite "
                "float64, -0.0 excepted"
            )
    # One integer for each (id, weight). Sorting takes no longer for chosen input than for any.
    identity = ids * np.int64(params.max_weight) + weights
    identity.sort()
    twice = identity[1:] == identity[:-1]
    if twice.any():
        id_, weight = divmod(int(identity[int(twice.argmax())]) - 1, params.max_weight)
        refuse(f"(id, weight) = {(id_, weight + 1)} is there twice; expected once")


def check_canonical(blob: bytes, at: int, end: int, rows: Rows, value_type: str) -> None:
    """Encoding what was decoded gives the same bytes."""
    given = blob[at:end]
    again = encode_rows(rows, value_type)
    if given != again:
        pairs = zip(given, again, strict=False)
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(given), len(again)))
        refuse(
            f"not canonical: the rows take {len(given)} bytes and differ from byte "
            f"{at + first} on; encoding them again gives {len(again)}"
        )
