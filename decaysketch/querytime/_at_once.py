"""Family 1: the rows of sketches whose heads are read, by one kernel that asks for everything.

Only what is good beyond doubt is read; whatever is not is left to the careful reader, which says
what is wrong with it.
"""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from decaysketch.codec import bitpack as _bitpack
from decaysketch.codec.rows import Rows
from decaysketch.core.params import SketchParams
from decaysketch.minhit import plan
from decaysketch.querytime import _many_kernels

__all__ = ["read_rows"]

Int64Array = npt.NDArray[np.int64]

_SALT = np.uint64(secrets.randbits(64) | 1)  # of a table that is fed from the network


def read_rows(
    params: SketchParams,
    data: npt.NDArray[np.uint8],
    offsets: Int64Array,
    rows: Int64Array,
    newest: Int64Array,
    columns_at: Int64Array,
    mark_offsets: Int64Array,
    marks: Int64Array,
) -> tuple[Int64Array, Rows, npt.NDArray[np.int8]]:
    """Rows of sketches of one copy, end to end.

    Args:
        params: of all of them.
        data, offsets: the bytes; int64[sketches + 1] into them.
        rows: how many each declares, -1 where it is not to be read; becomes -1 where it is not
            flawless.
        newest, columns_at: its first time, and where its columns begin.
        mark_offsets, marks: its watermarks, none of them at the coarsest level.

    Returns:
        (offsets int64[sketches + 1], rows, levels): ``levels`` begins with those of the rows of the
        last sketch that was read, if it has a watermark.
    """
    total, longest = int(np.maximum(rows, 0).sum()), int(rows.max(initial=0))
    read = Rows(*(np.empty(total, np.int64) for _ in range(4)))
    levels, read_offsets = np.empty(longest, np.int8), np.empty(len(rows) + 1, np.int64)
    largest_blob = int(np.diff(offsets).max(initial=0))
    p = plan(params)
    _many_kernels.decode(
        data, offsets, rows, newest, columns_at, mark_offsets, marks,
        params.value_type == "float64", params.max_weight, params.capacity,
        p.id_bits, p.mix, p.start_multiplier, p.offset, p.prime, p.top, p.steps,
        np.zeros(largest_blob // 8 + 2 + _bitpack.SPARE_WORDS, np.uint64),
        np.zeros(_bitpack.max_words(longest) + 2, np.uint64), read_offsets, *read,
        np.empty(1 << max(4, (2 * longest).bit_length()), np.uint32), levels, _SALT,
    )  # fmt: skip
    return read_offsets, read, levels
