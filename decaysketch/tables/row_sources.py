"""The sites for a log's rows, for families that count by site.

A site's newer state replaces the older one and never adds to another with the same name. So one
builder must count all rows from a site. If you cut a log for several builders, give each builder
complete sites, or count each part under its own epoch (:func:`epoch_of`). Grouped rows are counted
under an epoch for each key, so that sketches with different keys add up when merged, such as hours
in a day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from decaysketch.core.row_check import OUT_OF_BOUNDS
from decaysketch.tables.columns import column_of, is_text, nulls_of
from decaysketch.tables.rejections import Refusals

__all__ = ["Sites", "by_code", "epoch_of", "epochs_of_keys", "read_sites"]

Int64Array = npt.NDArray[np.int64]

_LONGEST_NAME = 255  # bytes


class Sites(NamedTuple):
    """The rows' sites.

    Attributes:
        codes: int64[n], each row's position in ``names``.
        names: texts, or numbers below 2^64.
    """

    codes: Int64Array
    names: list[str | int]


def read_sites(table: pa.Table, name: str, refusals: Refusals) -> Sites:
    """Read a site column: integers from 0, or text with 1 to 255 bytes. Nulls are rejected."""
    column = column_of(table, name)
    rows, kind = table.num_rows, column.type
    if not (is_text(kind) or pa.types.is_integer(kind)):
        refusals.refuse_column(name, f"is of type {kind}; expected integers or text")
        return Sites(np.zeros(rows, np.int64), [0])
    refusals.refuse(nulls_of(column), name, lambda row: ("is missing", None))
    encoded = column.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    names = encoded.dictionary.to_pylist()
    codes = encoded.indices.cast(pa.int64()).fill_null(len(names)).to_numpy(zero_copy_only=False)
    none = np.array([*(not _is_name(each) for each in names), False])
    refusals.refuse(
        none[codes], name,
        lambda row: (
            OUT_OF_BOUNDS,
            column[row].as_py(),
            f"a number from 0, or 1 to {_LONGEST_NAME} bytes of text",
        ),
    )  # fmt: skip
    return Sites(codes, [*names, 0])  # the last one is that of nulls


def _is_name(site: str | int) -> bool:
    return site >= 0 if isinstance(site, int) else 1 <= len(site.encode()) <= _LONGEST_NAME


def epoch_of(*parts: str | int | bytes | None) -> int:
    """Return 64 bits that represent a log part that is counted by itself, the same at any time and
    place: BLAKE2b over the part's names.

    Args:
        parts: the part's names, such as a query and its batch number.
    """
    digest = hashlib.blake2b(digest_size=8, person=b"ds-epoch-1")
    for part in parts:
        said = part.hex() if isinstance(part, bytes) else part
        text = f"{type(part).__name__}:{said}".encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return int.from_bytes(digest.digest(), "little")


def epochs_of_keys(columns: Sequence[pa.Array], epoch: int) -> list[int]:
    """Return the epochs for rows with some keys. Rows without keys would have the given epoch
    itself.

    Args:
        columns: the key columns, in their plain types.
        epoch: the log's epoch.
    """
    plain = [_plain(column).to_pylist() for column in columns]
    return [epoch_of("key", epoch, *key) for key in zip(*plain, strict=True)]


def _plain(column: pa.Array) -> pa.Array:
    """Return booleans, dates and timestamps as integers, with no limits but their own."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif not pa.types.is_timestamp(kind):
        return column
    return column.cast(pa.int64())


def by_code(codes: npt.NDArray[np.integer]) -> Iterator[tuple[int, slice | Int64Array]]:
    """Return each number that occurs with its rows, in order: a slice, or an index array."""
    counts = np.bincount(codes)
    occurring = np.flatnonzero(counts)
    if len(occurring) == 1:
        yield int(occurring[0]), slice(None)
        return
    # A stable sort of 16-bit integers is a radix sort.
    narrow = np.uint16 if len(counts) <= 1 << 16 else np.int32
    order = np.argsort(codes.astype(narrow), kind="stable")
    ends = np.cumsum(counts)
    for code in occurring.tolist():
        yield code, order[ends[code] - counts[code] : ends[code]]
