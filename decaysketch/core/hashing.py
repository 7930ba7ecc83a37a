"""Everything random in a sketch, derived from its seed or secret key by stated arithmetic.

A sketch never asks a library's random engine: the hash function, the order in which ids are mixed
and the hash of a key must be the same on every machine that feeds one stream, for ever. This module
is that specification.

``mix64``
    Stafford-style finaliser with the "moremur" constants: a bijection of the 64-bit words.
``derive(seed, purpose, index)``
    The ``index``-th 64-bit word of the stream ``purpose`` of a seed.
Pairwise hash
    ``h(x) = (a x + b) mod p`` on ``{0, ..., Y - 1}`` with ``p`` prime, ``10 Y < p < 20 Y``
    (Cormode, Tirthapura and Xu, section 3.2; after Carter and Wegman).
Id mixing
    A keyed bijection of ``[0, 2^id_bits)`` applied to every id before it is hashed. A linear hash
    of structured ids (consecutive numbers, sensor * 10^6 + sequence) is pairwise independent over
    ``(a, b)``, yet for the one ``(a, b)`` that a deployment lives with it can be absurdly uneven.
    Mixing keeps distinct ids distinct, so every theorem of the paper holds, and makes the sample
    behave like one of independent observations.
Key hashing
    ``hash_keys`` turns keys of any kind (integers, text, bytes, several columns of them) into
    64-bit words, keyed, which are then folded to ``id_bits``.

The mixing is a keyed permutation, not a cipher: with a secret key it hides which ids would bias a
sample from whoever cannot see sketches; it is no proof against an adversary who can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import numpy as np
import numpy.typing as npt
from numba import njit, uint64

from decaysketch.errors import ObservationError, ParameterError

__all__ = [
    "MAX_KEY_BYTES",
    "MIX_ROUNDS",
    "PRIME_LIMIT",
    "RepeatedKeys",
    "choose_prime",
    "derive",
    "hash_keys",
    "key_words",
    "mix64",
    "mix64_word",
    "mix_constants",
    "mix_ids",
    "uniform_below",
]

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

PRIME_LIMIT = 1 << 61  # the kernels' arithmetic is exact for primes below this
MIX_ROUNDS = 3
MAX_KEY_BYTES = 1024  # a longer text or bytes key is refused: hashing stays in bounded memory

# Streams of derived words. The numbers are part of the wire specification: never reuse one.
PURPOSE_PRIME = 1
PURPOSE_MULTIPLIER = 2
PURPOSE_OFFSET = 3
PURPOSE_KEY = 4

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_MUL_1 = 0x3C79AC492BA7B653
_MUL_2 = 0x1C69B3F74AC4AE35

_CHUNK = 1 << 14  # rows hashed at a time: temporaries stay in the cache


class RepeatedKeys(NamedTuple):
    """A column of keys of which few differ: row ``r`` has the key ``entries[codes[r]]``."""

    entries: Any
    codes: npt.NDArray[np.integer[Any]]


class IdMixing(Protocol):
    """What :func:`mix_ids` needs to know of the parameters of a sketch."""

    @property
    def id_bits(self) -> int: ...

    @property
    def mix_constants(self) -> Int64Array: ...


def mix64(word: int) -> int:
    """Bijective mix of one 64-bit word (plain integers)."""
    word ^= word >> 27
    word = word * _MUL_1 & _MASK
    word ^= word >> 33
    word = word * _MUL_2 & _MASK
    return word ^ word >> 27


def derive(seed: int, purpose: int, index: int) -> int:
    """The ``index``-th 64-bit word that ``seed`` yields for ``purpose``."""
    stream = mix64((mix64((seed + _GAMMA) & _MASK) + purpose * _GAMMA) & _MASK)
    return mix64((stream + (index + 1) * _GAMMA) & _MASK)


def uniform_below(bound: int, seed: int, purpose: int, index: int = 0) -> int:
    """An integer in ``[0, bound)`` from two derived words (bias below ``bound / 2^128``)."""
    high = derive(seed, purpose, 2 * index)
    low = derive(seed, purpose, 2 * index + 1)
    return ((high << 64) | low) % bound


@lru_cache(maxsize=256)
def choose_prime(universe: int, seed: int) -> int:
    """The prime ``p``, ``10 Y < p < 20 Y``, of a universe of ``Y`` integers.

    The first prime after a uniform point of ``(10 Y, 20 Y)``, wrapping to the first after ``10 Y``.

    Raises:
        ParameterError: if no such prime is below 2^61.
    """
    import sympy  # type: ignore[import-untyped]  # half a second to import: only where needed

    low, high = 10 * universe, 20 * universe
    if high > PRIME_LIMIT:
        raise ParameterError(
            f"max_weight * 2^id_bits = {universe} is too large: 20 times it must not exceed 2^61; "
            "lower id_bits or max_weight"
        )
    prime = int(sympy.nextprime(low + uniform_below(low, seed, PURPOSE_PRIME)))
    return prime if prime < high else int(sympy.nextprime(low))


def key_words(seed: int, secret: bytes | None) -> Callable[[int], int]:
    """The stream of 64-bit key words: derived from the seed, or from a secret by keyed BLAKE2b."""
    if secret is None:
        return lambda index: derive(seed, PURPOSE_KEY, index)

    def word(index: int) -> int:
        block = hashlib.blake2b(
            index.to_bytes(8, "little"), digest_size=8, key=secret, person=b"decaysketch-id"
        )
        return int.from_bytes(block.digest(), "little")

    return word


def mix_constants(id_bits: int, word: Callable[[int], int]) -> Int64Array:
    """Round constants ``[k_0, m_0, k_1, m_1, ...]`` of the id mixing, each below ``2^id_bits``.

    Key words 0 to ``2 * MIX_ROUNDS - 1`` are used; multipliers are made odd, hence invertible.
    """
    mask = (1 << id_bits) - 1
    constants = []
    for round_ in range(MIX_ROUNDS):
        constants += [word(2 * round_) & mask, (word(2 * round_ + 1) | 1) & mask]
    return np.array(constants, dtype=np.int64)


def mix_ids(params: IdMixing, ids: npt.ArrayLike) -> Int64Array:
    """Mix ids by the keyed bijection of ``[0, 2^id_bits)`` that ``params`` fix.

    Each round is ``x = ((x ^ k) * m) mod 2^id_bits`` followed by ``x ^= x >> ceil(id_bits / 2)``.

    Args:
        params: anything with ``id_bits`` and ``mix_constants`` (a ``SketchParams``).
        ids: integers in ``[0, 2^id_bits)``, which is not checked.

    Returns:
        int64 array of the same shape; the ids themselves where ``id_mix`` is "none".
    """
    mixed = np.array(ids, dtype=np.int64)
    mask = np.int64((1 << params.id_bits) - 1)
    shift = np.int64((params.id_bits + 1) // 2)
    constants = params.mix_constants
    with np.errstate(over="ignore"):
        for key, multiplier in constants.reshape(-1, 2):
            mixed ^= key
            mixed *= multiplier
            mixed &= mask
            mixed ^= mixed >> shift
    return mixed


# ------------------------------------------------------------------------------------ key hashing


@njit(inline="always")
def mix64_word(word):  # type: ignore[no-untyped-def]
    """:func:`mix64` of a uint64, for kernels."""
    word = (word ^ (word >> uint64(27))) * uint64(_MUL_1)
    word = (word ^ (word >> uint64(33))) * uint64(_MUL_2)
    return word ^ (word >> uint64(27))


@njit(cache=True, nogil=True)
def _mix64_in_place(words):  # type: ignore[no-untyped-def]
    """:func:`mix64` of every word of a contiguous column; in one pass, not in eight."""
    for k in range(words.shape[0]):
        words[k] = mix64_word(words[k])
    return words


def _hash_integers(column: npt.NDArray[Any], key: int) -> UInt64Array:
    hashed: UInt64Array = _mix64_in_place(column.astype(np.uint64) ^ np.uint64(key))
    return hashed


def _hash_bytes(column: Sequence[bytes], key: int) -> UInt64Array:
    """Chain ``h = mix64(h ^ word)`` over little-endian words, from ``mix64(key ^ length)``."""
    lengths = np.fromiter(map(len, column), dtype=np.int64, count=len(column))
    words = np.array(column, dtype=f"S{max(8, -(-int(lengths.max(initial=0)) // 8) * 8)}")
    words = words.view("<u8").reshape(len(column), -1)
    hashed: UInt64Array = _mix64_in_place(lengths.view(np.uint64) ^ np.uint64(key))
    for position in range(words.shape[1]):
        rows = lengths > 8 * position
        hashed[rows] = _mix64_in_place(hashed[rows] ^ words[rows, position])
    return hashed


def _as_bytes(
    column: npt.NDArray[Any], kind: type[str] | type[bytes], name: str, first_row: int
) -> list[bytes]:
    """Encode text as UTF-8; every key must be of the one kind, text or bytes."""
    encoded = []
    for row, key in enumerate(column, first_row):
        if not isinstance(key, kind):
            raise ObservationError(
                f"{name}[{row}] is {key!r}, of type {type(key).__name__}; the keys of one column "
                f"are all of one type, here {kind.__name__}",
                column=name, row=row, value=key,
            )  # fmt: skip
        data = key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")
        if len(data) > MAX_KEY_BYTES:
            raise ObservationError(
                f"{name}[{row}] is a key of {len(data)} bytes; at most {MAX_KEY_BYTES} are allowed",
                column=name, row=row, value=key[:32],
            )  # fmt: skip
        encoded.append(data)
    return encoded


def _as_key_column(column: Any, name: str) -> npt.NDArray[Any]:
    """One column of keys as an array of integers or of Python objects (str or bytes)."""
    array = np.asarray(column)
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], UUID):
        array = _as_text_of_uuids(array, name)
    if array.dtype.kind in "US" or (array.dtype.kind == "O" and array.size == 0):
        array = np.array(column, dtype=object)
    elif array.dtype.kind == "O" and isinstance(array.flat[0], (int, np.integer)):
        for row, item in enumerate(array.flat):
            if isinstance(item, bool) or not isinstance(item, (int, np.integer)):
                raise ObservationError(
                    f"{name}[{row}] is {item!r}; the keys of one column are all of one type, here "
                    "integers",
                    column=name, row=row, value=item,
                )  # fmt: skip
        array = np.array([int(item) & _MASK for item in array.flat], dtype=np.uint64)
    if array.ndim > 1 or array.dtype.kind not in "iuO":
        raise ObservationError(
            f"{name} has dtype {array.dtype} and {array.ndim} dimensions; expected one column of "
            "integers, text, bytes or UUIDs",
            column=name,
        )
    return np.atleast_1d(array)


def _as_text_of_uuids(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """UUIDs as they are written: logs and requests have them as text, and the key is the same."""
    texts = np.empty(array.shape, dtype=object)
    for row, item in enumerate(array.flat):
        if not isinstance(item, UUID):
            raise ObservationError(
                f"{name}[{row}] is {item!r}, of type {type(item).__name__}; the keys of one column "
                "are all of one type, here UUID",
                column=name, row=row, value=item,
            )  # fmt: skip
        texts.flat[row] = str(item)
    return texts


def hash_keys(columns: Sequence[Any], word: Callable[[int], int]) -> UInt64Array:
    """Hash rows of keys to 64 bits: the same on every platform, fixed by the key words.

    Column ``c`` of type tag ``g`` (0 integer, 1 text, 2 bytes) is hashed under key word
    ``1000 + 4 c + g``; row hashes start at key word 999 and absorb the columns in order by
    ``h = mix64((h + GAMMA) ^ column_hash)``.

    Args:
        columns: equally long columns; each holds 64-bit integers (taken modulo 2^64), ``str``,
            ``bytes`` or ``uuid.UUID`` (which is the key that its text is), or is
            :class:`RepeatedKeys` of such.
        word: stream of key words, see :func:`key_words`.

    Returns:
        uint64 array, one hash for each row.

    Raises:
        ObservationError: columns of unequal length, a key of another type, or a key of more than
            1,024 bytes.
    """
    if not columns:
        raise ObservationError("expected at least one key column", column="ids")
    arrays = [
        _Repeated.of(column, c, word)
        if isinstance(column, RepeatedKeys)
        else _as_key_column(column, f"key column {c}")
        for c, column in enumerate(columns)
    ]
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise ObservationError(f"key columns have unequal lengths {lengths}", column="ids")
    hashed = np.full(lengths[0], np.uint64(word(999)), dtype=np.uint64)
    for start in range(0, lengths[0], _CHUNK):
        rows = slice(start, start + _CHUNK)
        part = hashed[rows]
        for c, array in enumerate(arrays):
            part += np.uint64(_GAMMA)
            if isinstance(array, _Repeated):
                part ^= array.hashes[array.codes[rows]]
            else:
                part ^= _hash_column(array, rows, c, word)
            _mix64_in_place(part)
    return hashed


class _Repeated(NamedTuple):
    """Hashes of the entries of :class:`RepeatedKeys`."""

    hashes: UInt64Array
    codes: npt.NDArray[np.integer[Any]]

    @classmethod
    def of(cls, column: RepeatedKeys, c: int, word: Callable[[int], int]) -> _Repeated:
        entries = _as_key_column(column.entries, f"key column {c}")
        if not len(entries):
            return cls(np.empty(0, np.uint64), column.codes)
        return cls(_hash_column(entries, slice(None), c, word), column.codes)

    def __len__(self) -> int:
        return len(self.codes)


def _hash_column(
    array: npt.NDArray[Any], rows: slice, c: int, word: Callable[[int], int]
) -> UInt64Array:
    """Hashes of some rows of column ``c``, before they are absorbed."""
    if array.dtype.kind != "O":
        return _hash_integers(array[rows], word(1000 + 4 * c))
    kind = bytes if isinstance(array[0], bytes) else str
    data = _as_bytes(array[rows], kind, f"key column {c}", rows.start or 0)
    return _hash_bytes(data, word(1000 + 4 * c + (2 if kind is bytes else 1)))
