"""Everything random in a sketch, derived from its seed or secret key by stated arithmetic.

A sketch never uses a library's random engine. The hash function, the id mixing order and the hash
of a key must be the same on every machine that feeds one stream, for ever. This module is that
specification.

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
    ``(a, b)``. Yet for the one ``(a, b)`` in a deployment it can be absurdly uneven.
    Mixing keeps distinct ids distinct, so every theorem in the paper holds, and makes the sample
    behave like one of independent observations.
Key hashing
    ``hash_keys`` turns keys of any kind (integers, text, bytes, several columns of them) into
    64-bit words, keyed, which are then folded to ``id_bits``.

The mixing is a keyed permutation, not a cipher. With a secret key, an adversary who cannot see
sketches does not know which ids would bias a sample. It gives no protection against an adversary
who can see them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import numpy as np
import numpy.typing as npt

from decaysketch.core import _native
from decaysketch.errors import ObservationError, ParameterError

__all__ = [
    "MAX_KEY_BYTES",
    "MIX_ROUNDS",
    "PRIME_LIMIT",
    "EncodedKeys",
    "HashedKeys",
    "RepeatedKeys",
    "choose_prime",
    "derive",
    "hash_keys",
    "is_prime",
    "key_words",
    "mix64",
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

_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)

_CHUNK = 1 << 14  # rows hashed at a time: temporaries stay in the cache


@dataclass(frozen=True, slots=True)
class EncodedKeys:
    """A text column, as UTF-8, or a bytes column, end to end.

    Attributes:
        kind: ``str`` or ``bytes``.
        offsets: int64[n + 1], rising: row ``r`` has the key ``data[offsets[r]:offsets[r + 1]]``.
        data: uint8.
    """

    kind: type[str] | type[bytes]
    offsets: Int64Array
    data: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def to_objects(self) -> npt.NDArray[Any]:
        """Return the keys as Python objects."""
        whole = self.data.tobytes()
        keys = np.empty(len(self), dtype=object)
        for row, (start, stop) in enumerate(pairwise(self.offsets.tolist())):
            key = whole[start:stop]
            keys[row] = key if self.kind is bytes else key.decode()
        return keys


class RepeatedKeys(NamedTuple):
    """A key column with few distinct keys: row ``r`` has the key ``entries[codes[r]]``."""

    entries: Any
    codes: npt.NDArray[np.integer[Any]]


class HashedKeys(NamedTuple):
    """A column with hashed keys: the words that ``words_of`` in the stream's parameters gave for
    them. So one column can have keys of several kinds.
    """

    words: UInt64Array


class IdMixing(Protocol):
    """The sketch parameters that :func:`mix_ids` needs."""

    @property
    def id_bits(self) -> int: ...

    @property
    def mix_constants(self) -> Int64Array: ...


def mix64(word: int) -> int:
    """Return the bijective mix of one 64-bit word (plain integers)."""
    word ^= word >> 27
    word = word * _MUL_1 & _MASK
    word ^= word >> 33
    word = word * _MUL_2 & _MASK
    return word ^ word >> 27


def derive(seed: int, purpose: int, index: int) -> int:
    """Return the ``index``-th 64-bit word that ``seed`` yields for ``purpose``."""
    stream = mix64((mix64((seed + _GAMMA) & _MASK) + purpose * _GAMMA) & _MASK)
    return mix64((stream + (index + 1) * _GAMMA) & _MASK)


def uniform_below(bound: int, seed: int, purpose: int, index: int = 0) -> int:
    """Return an integer in ``[0, bound)`` from two derived words (bias below ``bound / 2^128``)."""
    high = derive(seed, purpose, 2 * index)
    low = derive(seed, purpose, 2 * index + 1)
    return ((high << 64) | low) % bound


@lru_cache(maxsize=256)
def choose_prime(universe: int, seed: int) -> int:
    """Return the prime ``p``, ``10 Y < p < 20 Y``, for a universe with ``Y`` integers.

    It is the first prime after a uniform point in ``(10 Y, 20 Y)``, wrapping to the first after
    ``10 Y``.

    Raises:
        ParameterError: if no such prime is below 2^61.
    """
    low, high = 10 * universe, 20 * universe
    if high > PRIME_LIMIT:
        raise ParameterError(
            f"max_weight * 2^id_bits = {universe} is too large: 20 times it must not exceed 2^61; "
            "lower id_bits or max_weight"
        )
    prime = _next_prime(low + uniform_below(low, seed, PURPOSE_PRIME))
    return prime if prime < high else _next_prime(low)


def _next_prime(number: int) -> int:
    """Return the least prime above a number >= 2."""
    candidate = number + 1 | 1
    while not is_prime(candidate):
        candidate += 2
    return candidate


def is_prime(number: int) -> bool:
    """Return whether a number below 3.3e24 is prime.

    It uses the Miller-Rabin test with the first twelve primes as bases. No composite number below
    318665857834031151167461 passes all of them (Sorenson and Webster, "Strong pseudoprimes to
    twelve prime bases", Mathematics of Computation 86, 2017).
    """
    if number < 2:
        return False
    for base in _BASES:
        if number % base == 0:
            return number == base
    twos = (number - 1 & 1 - number).bit_length() - 1
    for base in _BASES:
        power = pow(base, number - 1 >> twos, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def key_words(seed: int, secret: bytes | None) -> Callable[[int], int]:
    """Return the stream of 64-bit key words: derived from the seed, or from a secret by keyed
    BLAKE2b.
    """
    if secret is None:
        return lambda index: derive(seed, PURPOSE_KEY, index)

    def word(index: int) -> int:
        block = hashlib.blake2b(
            index.to_bytes(8, "little"), digest_size=8, key=secret, person=b"decaysketch-id"
        )
        return int.from_bytes(block.digest(), "little")

    return word


def mix_constants(id_bits: int, word: Callable[[int], int]) -> Int64Array:
    """Return the id mixing's round constants ``[k_0, m_0, k_1, m_1, ...]``, each below
    ``2^id_bits``.

    They come from the key words 0 to ``2 * MIX_ROUNDS - 1``. Each multiplier is made odd, so that
    it has an inverse.
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
        int64 array with the same shape. The ids themselves if ``id_mix`` is "none".
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


def _as_key_column(column: Any, name: str) -> npt.NDArray[Any] | list[Any] | EncodedKeys:
    """Return one key column: an array of integers, or a list of Python objects, or encoded."""
    if isinstance(column, EncodedKeys):
        return column
    if isinstance(column, (list, tuple)) and column and isinstance(column[0], (str, bytes)):
        return list(column)
    array = np.asarray(column)
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], UUID):
        array = _as_text_of_uuids(array, name)
    if array.dtype.kind in "US" or (array.dtype.kind == "O" and array.size == 0):
        array = np.array(column, dtype=object)
    elif array.dtype.kind == "O" and isinstance(array.flat[0], (int, np.integer)):
        for row, item in enumerate(array.flat):
            if isinstance(item, bool) or not isinstance(item, (int, np.integer)):
                raise ObservationError(
                    f"{name}[{row}] is {item!r}; all keys in one column must have one type, here "
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
    array = np.atleast_1d(array)
    return array.tolist() if array.dtype.kind == "O" else array


def _as_text_of_uuids(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Return UUIDs in their text form. Logs and requests have them as text, and the key is the
    same.
    """
    texts = np.empty(array.shape, dtype=object)
    for row, item in enumerate(array.flat):
        if not isinstance(item, UUID):
            raise ObservationError(
                f"{name}[{row}] is {item!r}, of type {type(item).__name__}; all keys in one "
                "column must have one type, here UUID",
                column=name, row=row, value=item,
            )  # fmt: skip
        texts.flat[row] = str(item)
    return texts


def hash_keys(columns: Sequence[Any], word: Callable[[int], int]) -> UInt64Array:
    """Hash key rows to 64 bits: the same on every platform, fixed by the key words.

    Column ``c`` with type tag ``g`` (0 integer, 1 text, 2 bytes) is hashed under key word
    ``1000 + 4 c + g``. Row hashes start at key word 999 and absorb the columns in order by
    ``h = mix64((h + GAMMA) ^ column_hash)``.

    Args:
        columns: equally long columns. Each has 64-bit integers (taken modulo 2^64), ``str``,
            ``bytes`` or ``uuid.UUID`` (the same key as its text), or is :class:`EncodedKeys`, or
            :class:`RepeatedKeys` of any of these.
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
    room = np.empty(min(lengths[0], _CHUNK), np.uint64)
    for start in range(0, lengths[0], _CHUNK):
        rows = slice(start, min(start + _CHUNK, lengths[0]))
        part = room[: rows.stop - start]
        for c, array in enumerate(arrays):
            if isinstance(array, _Repeated):
                part[:] = array.hashes[array.codes[rows]]
            else:
                _hash_column(array, rows, c, word, part)
            _native.absorb(hashed[rows], part)
    return hashed


class _Repeated(NamedTuple):
    """Hashes for the entries in :class:`RepeatedKeys`."""

    hashes: UInt64Array
    codes: npt.NDArray[np.integer[Any]]

    @classmethod
    def of(cls, column: RepeatedKeys, c: int, word: Callable[[int], int]) -> _Repeated:
        entries = _as_key_column(column.entries, f"key column {c}")
        hashes = np.empty(len(entries), np.uint64)
        _hash_column(entries, slice(0, len(entries)), c, word, hashes)
        return cls(hashes, column.codes)

    def __len__(self) -> int:
        return len(self.codes)


def _hash_column(
    column: npt.NDArray[Any] | list[Any] | EncodedKeys,
    rows: slice,
    c: int,
    word: Callable[[int], int],
    hashes: UInt64Array,
) -> None:
    """Return hashes for some rows in column ``c``, before they are absorbed."""
    first = 1000 + 4 * c
    if isinstance(column, np.ndarray):
        wide = np.int64 if column.dtype.kind == "i" else np.uint64
        words = np.ascontiguousarray(column[rows], wide).view(np.uint64)
        _native.hash_integers(words, word(first), hashes)
    elif isinstance(column, list):
        if not column:
            return
        kind: type[str] | type[bytes] = bytes if isinstance(column[0], bytes) else str
        key_word = word(first + (2 if kind is bytes else 1))
        row = _native.hash_objects(column[rows], kind, MAX_KEY_BYTES, key_word, hashes)
        if row < len(hashes):
            raise _fault(column[rows.start + row], kind, f"key column {c}", rows.start + row)
    else:
        offsets = column.offsets[rows.start : rows.stop + 1]
        lengths = np.diff(offsets)
        if lengths.max(initial=0) > MAX_KEY_BYTES:
            row = int((lengths > MAX_KEY_BYTES).argmax())
            key = column.data[offsets[row] : offsets[row + 1]].tobytes()
            raise _fault(key, bytes, f"key column {c}", rows.start + row)
        if lengths.min(initial=0) < 0:
            raise ObservationError(f"offsets of key column {c} fall", column=f"key column {c}")
        key_word = word(first + (2 if column.kind is bytes else 1))
        _native.hash_encoded(column.data, offsets, key_word, hashes)


def _fault(key: Any, kind: type[str] | type[bytes], name: str, row: int) -> ObservationError:
    """Return the fault in a key from a column with one kind, text or bytes."""
    if not isinstance(key, kind):
        return ObservationError(
            f"{name}[{row}] is {key!r}, of type {type(key).__name__}; all keys in one column must "
            f"have one type, here {kind.__name__}",
            column=name, row=row, value=key,
        )  # fmt: skip
    data = key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")
    return ObservationError(
        f"{name}[{row}] is a key of {len(data)} bytes; at most {MAX_KEY_BYTES} are allowed",
        column=name, row=row, value=key[:32],
    )  # fmt: skip
