"""The sections of a sketch on the wire, read: rows as bit-packed columns, and labels.

Rows are in canonical order: time, then id, then weight, all descending. A packed row takes about
the id bits plus two bytes (``bitpack.c``). A general compressor gained nothing on these columns.

One kernel reads correct bytes and checks everything (``rows.c``). If it fails, a slow reader runs
one check after another to name the fault.

**Labels**: rows contain ranks, and the texts follow the rows. For a label state, a row's value is
the rank of its code in the sorted dictionary. After the rows of all repetitions come the label
count and each label in code order: length and UTF-8 text. Codes are not written, because they
follow from the texts.

The reader requires valid UTF-8 of at most 1,024 bytes, strictly rising codes, a row for every
label, and a label for every rank. So each state has one encoding without unused labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec import _native
from decaysketch.core.codec.reading import CHECKSUM_BYTES, Reader, Rows, check_time, refuse
from decaysketch.core.codec.writing import encode_rows
from decaysketch.core.labels import MAX_LABEL_BYTES, MAX_LABELS, Labels, code_of
from decaysketch.core.observations import MISSING_KEY, no_values
from decaysketch.core.params import SketchParams

__all__ = [
    "check_canonical",
    "check_rows",
    "codes_of_ranks",
    "decode_rows",
    "first_out_of_order",
    "read_labels",
    "read_rows",
]

Int64Array = npt.NDArray[np.int64]


def read_labels(
    blob: bytes, at: int, columns: Sequence[Int64Array], id_key: bytes | None
) -> tuple[Labels, int]:
    """Read labels from byte ``at`` of a sealed blob. Return them and the offset after them.

    Args:
        columns: the ranks in every repetition. Each must have a label.
        id_key: the stream's secret.
    """
    used = [np.unique(column) for column in columns]
    ranks = np.unique(np.concatenate(used))
    if len(ranks) and ranks[0] == MISSING_KEY:
        ranks = ranks[1:]
    reader = Reader(memoryview(blob)[:-CHECKSUM_BYTES], at)
    count = reader.varint("number of labels")
    if count > MAX_LABELS:
        refuse(f"number of labels is {count}; expected at most {MAX_LABELS}")
    if len(ranks) and not 0 <= int(ranks[0]) <= int(ranks[-1]) < count:
        wrong = int(ranks[0]) if ranks[0] < 0 else int(ranks[-1])
        refuse(f"a row has label {wrong}; there are {count}")
    if len(ranks) != count:
        refuse(f"number of labels is {count}, of which rows have {len(ranks)}; expected all")
    codes, texts = np.empty(count, np.int64), []
    before = -1
    for number in range(count):
        text = _label(reader, f"label {number}")
        code = code_of(text, id_key)
        if code <= before:
            refuse(f"label {number} has code {code} after {before}; expected a larger one")
        codes[number] = before = code
        texts.append(text)
    codes.setflags(write=False)
    return Labels(codes, tuple(texts)), reader.at


def _label(reader: Reader, name: str) -> str:
    length = reader.varint(f"length of {name}")
    if length > MAX_LABEL_BYTES:
        refuse(f"length of {name} is {length}; expected at most {MAX_LABEL_BYTES}")
    text = reader.take(length, name)
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        refuse(f"{name} is {text[:40]!r}; expected UTF-8")


def codes_of_ranks(labels: Labels, ranks: Int64Array) -> Int64Array:
    """Convert ranks to value keys."""
    missing = ranks == MISSING_KEY
    if not len(labels):
        return ranks
    return np.where(missing, np.int64(MISSING_KEY), labels.codes[np.where(missing, 0, ranks)])


_COLUMNS = ("times", "ids", "weights", "values")


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
        refuse(f"(id, weight) = {(id_, weight + 1)} is repeated; expected once")


def check_canonical(blob: bytes, at: int, end: int, rows: Rows, value_type: str) -> None:
    """Check that encoding the decoded rows gives the same bytes, with or without divisors."""
    given = blob[at:end]
    again = encode_rows(rows, value_type)
    if given != again and given != encode_rows(rows, value_type, divides=False):
        pairs = zip(given, again, strict=False)
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(given), len(again)))
        refuse(
            f"not canonical: the rows take {len(given)} bytes and differ from byte "
            f"{at + first} on; encoding them again gives {len(again)}"
        )
