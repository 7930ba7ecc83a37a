"""The coins of an element: a stated function of its source and sequence number.

The papers' samplers toss coins as elements arrive. Here an element's coins come from a keyed
integer mixer, so they are the same wherever and however often it is processed. Random parts of one
source merge into the sample of the complete source, and a rebuild from logs gives the same bytes.

``key(source, n) = mix64(S + (n + 1) GAMMA  mod 2^64)``
    ``S`` is the hash of the source's name, keyed by the seed
    (:func:`decaysketch.core.hashing.hash_keys` under the words ``params.source_word``). For one
    source ``mix64`` of a linear sequence is a bijection: sequence numbers never collide. Keys from
    different sources collide with a chance of 2^-64.
``U = floor(key / 2^11) / 2^53``
    Uniform on [0, 1).
``top level``
    The largest ``i <= M`` with ``U < v / 2^i``, where v is the value for a sum and 1 for a median:
    in integers ``x 2^i < v 2^53``, ``x = floor(key / 2^11)``. So level ``i`` is reached with
    probability ``min(1, v / 2^i)``, exactly. Steps 2 to 4 of SumProcess toss their coins for this
    (and a value of 2^M has a level, M, which it lacks as printed). Step 5 of MedianProcess does so
    with v = 1. The levels of one element are nested, and the levels of two elements are
    independent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.asyncwindow import _native
from decaysketch.asyncwindow.params import MedianParams, SumParams
from decaysketch.core import hashing
from decaysketch.errors import ObservationError

__all__ = ["element_keys", "sequence_numbers", "source_words", "top_levels"]

Params = SumParams | MedianParams
UInt64Array = npt.NDArray[np.uint64]


def source_words(params: Params, source: Any) -> UInt64Array:
    """Return ``S`` for one source or a column of sources: uint64, length 1 or n.

    Raises:
        ObservationError: a name that is not an integer, text or bytes.
    """
    one = isinstance(source, (str, bytes, int))
    words = hashing.hash_keys(([source] if one else source,), params.source_word)
    words.setflags(write=False)
    return words


def element_keys(params: Params, source: Any, sequence: npt.ArrayLike) -> UInt64Array:
    """Return the keys for elements.

    Args:
        params: the stream's parameters.
        source: one name (integer, text or bytes), or a column of names.
        sequence: integers that number a source's elements, taken modulo 2^64.

    Returns:
        uint64[n]. O(n).

    Raises:
        ObservationError: invalid names or numbers, or columns with unequal lengths.
    """
    words, numbers = source_words(params, source), sequence_numbers(sequence)
    if len(words) not in (1, len(numbers)):
        raise ObservationError(
            f"columns have unequal lengths: source has {len(words)} rows, sequence has "
            f"{len(numbers)}",
            column="source",
        )
    keys = np.empty(len(numbers), np.uint64)
    _native.element_keys(words, numbers, keys)
    return keys


def sequence_numbers(sequence: npt.ArrayLike) -> UInt64Array:
    """Return a column of sequence numbers, modulo 2^64.

    Raises:
        ObservationError: it is not an integer column.
    """
    numbers = np.atleast_1d(np.asarray(sequence))
    if numbers.ndim == 1 and not numbers.size:  # an empty list has no type of its own
        return np.empty(0, np.uint64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ObservationError(
            f"sequence has dtype {numbers.dtype} and shape {numbers.shape}; expected one column of "
            "integers",
            column="sequence",
        )
    column: UInt64Array = np.ascontiguousarray(numbers).astype(np.uint64).view()
    column.setflags(write=False)  # every array is read-only for the kernels
    return column


def top_levels(
    params: Params, value_keys: npt.NDArray[np.int64], keys: UInt64Array
) -> npt.NDArray[np.int8]:
    """Return each element's top level: int8[n]. O(n)."""
    levels = np.empty(len(keys), np.int8)
    _native.top_levels(value_keys, keys, params.weighted, params.levels, levels)
    return levels
