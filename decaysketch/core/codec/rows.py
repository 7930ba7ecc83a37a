"""Rows as bit-packed columns, and the checks that need only the rows.

Rows are in canonical order: time, then id, then weight, all descending. A packed row takes about
the id bits plus two bytes (``bitpack.c``). A general compressor gained nothing on these columns.

One kernel reads correct bytes and checks everything (``rows.c``). If it fails, a slow reader runs
one check after another to name the fault.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec import _native
from decaysketch.core.codec.fields import CHECKSUM_BYTES, check_time, refuse
from decaysketch.core.observations import MISSING_KEY, no_values
from decaysketch.core.params import SketchParams

__all__ = [
    "Rows",
    "check_canonical",
    "check_rows",
    "decode_rows",
    "encode_rows",
    "first_out_of_order",
    "read_rows",
]

Int64Array = npt.NDArray[np.int64]

_COLUMNS = ("times", "ids", "weights", "values")


class Rows(NamedTuple):
    """Columns int64[n] in canonical order."""

    times: Int64Array
    ids: Int64Array
    weights: Int64Array
    value_keys: Int64Array

    @classmethod
    def room(cls, count: int) -> Rows:
        """Allocate columns."""
        return cls(*(np.empty(count, np.int64) for _ in range(4)))


def encode_rows(rows: Rows, value_type: str) -> bytes:
    """Encode the packed columns, padded to a byte. O(rows), about 6 ns per row."""
    return _native.pack_rows(*rows, value_type == "float64")


def read_rows(
    params: SketchParams, blob: bytes, at: int, count: int, newest: int | None
) -> tuple[Rows, int]:
    """Read and check columns from byte ``at`` of a sealed blob. Return them and the offset after
    them.

    Equal to :func:`decode_rows` followed by :func:`check_rows` and :func:`check_canonical`.
    O(rows), about 10 ns per row.
    """
    if count <= len(blob):  # else they take much memory for their bytes
        rows, stop = Rows.room(count), len(blob) - CHECKSUM_BYTES
        floats = params.value_type == "float64"
        end = _native.read_rows(
            blob, at, stop, newest or 0, params.id_bits, params.max_weight, floats, *rows
        )
        if end >= 0:
            return rows, end
    rows, end = decode_rows(blob, at, count, newest, params.value_type)
    check_rows(params, rows)
    check_canonical(blob, at, end, rows, params.value_type)
    return rows, end


def decode_rows(
    blob: bytes, at: int, count: int, newest: int | None, value_type: str
) -> tuple[Rows, int]:
    """Read columns from byte ``at`` of a sealed blob. Return them and the offset after them.

    The read stays inside the blob, and the bytes bound the memory. The rows are not checked
    otherwise.
    """
    stop, floats = len(blob) - CHECKSUM_BYTES, value_type == "float64"
    outcome, bits = _native.scan_rows(blob, at, stop, count, floats)
    _check_scan(outcome)
    rows = Rows.room(count)
    _native.unpack_rows(blob, at, stop, newest or 0, floats, *rows)
    return rows, at + -(-bits // 8)


def first_out_of_order(rows: Rows) -> int:
    """Return the first row not strictly after its predecessor in descending (time, id, weight), or
    -1.
    """
    return _native.first_out_of_order(rows.times, rows.ids, rows.weights)


def _check_scan(outcome: tuple[int, int, int, int, int]) -> None:
    code, start, column, found, limit = outcome
    if code == _native.OK:
        return
    fault = {
        _native.PAST_END: f"it ends at bit {found} of {limit}",
        _native.WIDTH_TOO_LARGE: f"a width or mode is {found}; expected at most {limit}",
        _native.TOO_FEW_BITS: (
            f"ids and weights take {found} bits; telling the rows apart takes at least {limit}"
        ),
    }[code]
    refuse(f"block of rows at {start}, {_COLUMNS[column]}: {fault}")


def check_rows(params: SketchParams, rows: Rows) -> None:
    """Check ranges, strict canonical order, and that no (id, weight) occurs twice."""
    times, ids, weights, value_keys = rows
    if not len(times):
        return
    row = first_out_of_order(rows)
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
        no_number = no_values(value_keys) & (value_keys != MISSING_KEY)
        if no_number.any():
            row = int(no_number.argmax())
            refuse(
                f"value key of row {row} is {int(value_keys[row])}; expected that of a finite "
                "float64, -0.0 excepted, or of a range"
            )
    # One integer for each (id, weight). Sorting takes no longer for chosen input than for any.
    identity = ids * np.int64(params.max_weight) + weights
    identity.sort()
    twice = identity[1:] == identity[:-1]
    if twice.any():
        id_, weight = divmod(int(identity[int(twice.argmax())]) - 1, params.max_weight)
        refuse(f"(id, weight) = {(id_, weight + 1)} is there twice; expected once")


def check_canonical(blob: bytes, at: int, end: int, rows: Rows, value_type: str) -> None:
    """Check that encoding the decoded rows gives the same bytes."""
    given = blob[at:end]
    again = encode_rows(rows, value_type)
    if given != again:
        pairs = zip(given, again, strict=False)
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(given), len(again)))
        refuse(
            f"not canonical: the rows take {len(given)} bytes and differ from byte "
            f"{at + first} on; encoding them again gives {len(again)}"
        )
