"""The coins of an element: a stated function of its source and sequence number.

The papers' samplers toss coins as elements arrive. Here an element's coins come from a keyed
integer mixer, so it has the same ones wherever and however often it is processed: random parts of
one source merge into the sample of the whole, and a rebuild from logs gives the same bytes.

``key(source, n) = mix64(S + (n + 1) GAMMA  mod 2^64)``
    ``S`` is the hash of the source's name, keyed by the seed
    (:func:`decaysketch.core.hashing.hash_keys` under the words ``params.source_word``). For one
    source ``mix64`` of a linear sequence is a bijection: sequence numbers never collide, and keys
    of other sources do with a chance of 2^-64.
``U = floor(key / 2^11) / 2^53``
    Uniform on [0, 1).
``top level``
    The largest ``i <= M`` with ``U < v / 2^i``, where v is the value for a sum and 1 for a median:
    in integers ``x 2^i < v 2^53``, ``x = floor(key / 2^11)``. So level ``i`` is reached with
    probability ``min(1, v / 2^i)``, exactly, which is what steps 2 to 4 of SumProcess toss their
    coins for (and a value of 2^M has a level, M, which it lacks as printed), and what step 5 of
    MedianProcess does with v = 1. The levels of one element are nested, those of two elements
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
    """``S`` of a source, or of each of a column of sources: uint64, of length 1 or n.

    Raises:
        ObservationError: a name that is no integer, text or bytes.
    """
    one = isinstance(source, (str, bytes, int))
    words = hashing.hash_keys(([source] if one else source,), params.source_word)
    words.setflags(write=False)
    return words


def element_keys(params: Params, source: Any, sequence: npt.ArrayLike) -> UInt64Array:
    """Keys of elements.

    Args:
        params: of the stream.
        source: one name (integer, text or bytes), or a column of names.
        sequence: integers, which number the elements of a source; taken modulo 2^64.

    Returns:
        uint64[n]. O(n).

    Raises:
        ObservationError: names or numbers that are none, or columns of unequal length.
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
    """A column of sequence numbers, modulo 2^64.

    Raises:
        ObservationError: it is no column of integers.
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
    column.setflags(write=False)  # one kernel signature, whoever owns the memory
    return column


def top_levels(
    params: Params, value_keys: npt.NDArray[np.int64], keys: UInt64Array
) -> npt.NDArray[np.int8]:
    """Top level of each element: int8[n]. O(n)."""
    levels = np.empty(len(keys), np.int8)
    _native.top_levels(value_keys, keys, params.weighted, params.levels, levels)
    return levels
