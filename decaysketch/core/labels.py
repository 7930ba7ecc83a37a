"""Labels: text values, such as an error code or a street name.

A label is stored as a *code*, a number with 63 bits that depends on the text alone: BLAKE2b over
its UTF-8, 8 bytes, personalised by ``dsk-label`` and keyed by the stream's secret if it has one, as
a big-endian number without its last bit. It does not depend on the sketch's seed, so
all sketches compute the same code, and programs in other languages can compute it too. Rows,
kernels and laws treat codes as integers. If two duplicates have the same time and different labels,
the larger code represents the observation.

The sketch also stores a *dictionary* with the text for each stored code, and no other text. It
depends on the rows alone, not on the merges that led to them. If two labels have the same code, the
smaller text replaces the other, and a counter of collisions rises. Among n labels the chance is
about ``n^2 / 2^64``, 5e-8 for a million.

Limits: a label has at most 1,024 bytes, a sketch at most 2^20 labels. A sketch stores each label's
complete text: if all messages of a stream differ, it stores all of their texts.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import MISSING_KEY, decode_values
from decaysketch.errors import ObservationError, ParameterError

__all__ = [
    "BYTES_BESIDE_TEXT",
    "MAX_LABELS",
    "MAX_LABEL_BYTES",
    "EncodedLabels",
    "LabelBook",
    "Labels",
    "code_of",
    "codes_of",
    "fault_of_label",
    "label_of",
    "values_of",
]

MAX_LABEL_BYTES = 1_024
MAX_LABELS = 1 << 20

_PERSON = b"dsk-label"
_SLACK = 1_000  # new labels, at least, before a search for unused ones
BYTES_BESIDE_TEXT = 224
"""Maximum memory that a label takes in addition to its characters: the text object, 76 bytes, and a
dictionary entry with its code."""

_LABEL_BYTES = BYTES_BESIDE_TEXT - 76

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]


def code_of(label: str, id_key: bytes | None = None) -> int:
    """Return the code of a label, ``0 <= code < 2^63``.

    Args:
        label: a text with at most :data:`MAX_LABEL_BYTES` bytes.
        id_key: the stream's secret, if it has one.

    Raises:
        ValueError: it is no label. The message shows the value and the expected form.
    """
    if (fault := fault_of_label(label)) is not None:
        raise ValueError(fault)
    return _code(label.encode(), id_key or b"")


def _code(text: bytes, key: bytes) -> int:
    digest = hashlib.blake2b(text, digest_size=8, person=_PERSON, key=key).digest()
    return int.from_bytes(digest, "big") >> 1


def fault_of_label(label: object) -> str | None:
    """Return why something is no label, or None."""
    if not isinstance(label, str):
        return f"is {label!r}; expected a text"
    try:
        length = len(label.encode())
    except UnicodeEncodeError:
        return f"is {label[:40]!r}, which is not valid Unicode"
    if length > MAX_LABEL_BYTES:
        return f"has {length} bytes; a label has at most {MAX_LABEL_BYTES}"
    return None


def label_of(key: str | bytes | int | tuple[str | bytes | int, ...]) -> str:
    """Return a key as a text: a text unchanged, anything else as JSON, bytes in hex."""
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return key.hex()
    if isinstance(key, tuple):
        return json.dumps([each.hex() if isinstance(each, bytes) else each for each in key])
    return str(key)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedLabels:
    """A label column that stores each label once.

    Attributes:
        texts: labels, which may repeat.
        numbers: int64[n], for each row the position of its label in them. Negative if it has none.
    """

    texts: Sequence[str]
    numbers: Int64Array

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> EncodedLabels:
        return EncodedLabels(self.texts, self.numbers[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """The labels for codes. Immutable.

    Attributes:
        codes: int64[m], rising.
        texts: of these codes.
    """

    codes: Int64Array
    texts: tuple[str, ...]

    @classmethod
    def of(cls, names: dict[int, str], codes: Int64Array) -> Labels:
        """Return the labels for some codes, rising."""
        codes.setflags(write=False)
        return cls(codes, tuple(map(names.__getitem__, codes.tolist())))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def nbytes(self) -> int:
        """Approximate bytes of memory. A character takes 1, 2 or 4 bytes, by the largest one in its
        text. O(labels).
        """
        return len(self.texts) * _LABEL_BYTES + sum(map(sys.getsizeof, self.texts))

    def places(self, codes: Int64Array) -> npt.NDArray[np.intp]:
        """Return the positions of codes that all have a label."""
        return np.searchsorted(self.codes, codes)

    def decoded(self, codes: Int64Array) -> npt.NDArray[Any]:
        """Return the texts for codes that all have one, as objects."""
        texts = np.empty(len(self.texts), object)
        texts[:] = self.texts
        return texts[self.places(codes)]


def _held_codes(columns: Iterable[Int64Array]) -> Int64Array:
    """Return the codes in columns of value keys, each once, rising."""
    found = [np.unique(column) for column in columns]
    codes = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
    return codes[1:] if len(codes) and codes[0] == MISSING_KEY else codes


class LabelBook:
    """The labels that a sketch knows: for its rows, and for dropped rows.

    Args:
        id_key: the stream's secret.
    """

    def __init__(self, id_key: bytes | None = None) -> None:
        self._key = id_key or b""
        self._names: dict[int, str] = {}
        self._let_go_at, self._text_bytes = _SLACK, 0
        self.collisions = 0  # labels that came and had the code of another

    def __len__(self) -> int:
        return len(self._names)

    @property
    def nbytes(self) -> int:
        """Approximate bytes of memory, as :attr:`Labels.nbytes`. O(1)."""
        return len(self._names) * _LABEL_BYTES + self._text_bytes

    def read(self, labels: Any) -> Any:
        """Return the codes of labels, which are known from now on. See :func:`codes_of`.

        Raises:
            ObservationError: a value is no label, or there are more than :data:`MAX_LABELS`. None
                is known then.
        """
        codes, found = _read(labels, self._key)
        more = sum(code not in self._names for code in found.values())
        if len(self._names) + more > MAX_LABELS:
            raise ObservationError(
                f"values have {more} new labels, and the sketch has {len(self._names)}; expected "
                f"at most 2^20 = {MAX_LABELS}: use a smaller capacity, or fewer labels",
                column="values",
            )
        for text, code in found.items():
            self._enter(code, text)
        return codes

    def join(self, others: Sequence[LabelBook | Labels]) -> None:
        """Add the labels that others know.

        Raises:
            ParameterError: more than :data:`MAX_LABELS`. Nothing was changed.
        """
        known = [
            zip(other.codes.tolist(), other.texts, strict=True)
            if isinstance(other, Labels)
            else other._names.items()
            for other in others
        ]
        pairs = [list(each) for each in known]
        together = len(self._names.keys() | {code for each in pairs for code, _ in each})
        if together > MAX_LABELS:
            raise ParameterError(
                f"a merge has {together} labels; expected at most 2^20 = {MAX_LABELS}: use a "
                "smaller capacity, or fewer labels"
            )
        for each in pairs:
            for code, text in each:
                self._enter(code, text)

    def _enter(self, code: int, text: str) -> None:
        before = len(self._names)
        known = self._names.setdefault(code, text)
        if len(self._names) > before:
            self._text_bytes += sys.getsizeof(text)
        elif known != text:
            self.collisions += 1
            self._names[code] = smaller = min(known, text)
            self._text_bytes += sys.getsizeof(smaller) - sys.getsizeof(known)

    @property
    def crowded(self) -> bool:
        """Return whether so many labels are known that some may have no row any more."""
        return len(self._names) > self._let_go_at

    def held(self, columns: Iterable[Int64Array]) -> Labels:
        """Return the labels for columns of value keys."""
        return Labels.of(self._names, _held_codes(columns))

    def keep(self, labels: Labels, rows: int) -> None:
        """Forget all other labels. ``rows``: the sketch's row count. As many new labels may come
        before this is done again.
        """
        self._names = dict(zip(labels.codes.tolist(), labels.texts, strict=True))
        self._text_bytes = sum(map(sys.getsizeof, labels.texts))
        room = max(_SLACK, (MAX_LABELS - len(labels)) // 2)
        self._let_go_at = len(labels) + min(max(rows, _SLACK), room)


def codes_of(labels: Any, id_key: bytes | None = None) -> Any:
    """Return label codes in a form that a sketch accepts as values.

    Args:
        labels: one text, None, a column of texts and None, a masked column, or
            :class:`EncodedLabels`.

    Returns:
        One number for one text, and None for None. For a column int64[n], masked where a label is
        missing.

    Raises:
        ObservationError: a value is no label, with its row.
    """
    return _read(labels, id_key or b"")[0]


def _read(labels: Any, key: bytes) -> tuple[Any, dict[str, int]]:
    """Return codes, and the codes by label. Each label is hashed once."""
    if labels is None:
        return None, {}
    if isinstance(labels, str):
        found = _coded([labels], [labels], key)
        return found[labels], found
    if isinstance(labels, EncodedLabels):
        numbers = np.maximum(labels.numbers, -1)  # the last place is that of gaps
        here = np.zeros(len(labels.texts) + 1, np.bool_)
        here[numbers] = True
        used = np.flatnonzero(here[:-1])
        texts = [labels.texts[place] for place in used.tolist()]
        found = _coded(dict.fromkeys(texts), texts, key)
        by_place = np.full(len(here), MISSING_KEY, np.int64)
        by_place[used] = np.fromiter(map(found.__getitem__, texts), np.int64, len(texts))
        return (_masked(by_place[numbers]) if here[-1] else by_place[numbers]), found
    masked = np.ma.getmaskarray(labels) if np.ma.isMaskedArray(labels) else None
    items = np.ma.getdata(labels).tolist() if hasattr(labels, "dtype") else labels
    if isinstance(items, str):  # a single text of NumPy
        return _read(items, key)
    if isinstance(items, bytes) or not isinstance(items, Iterable):
        _refuse_first([items])
    items = items if isinstance(items, list) else list(items)
    if masked is not None:
        items = [None if gap else item for item, gap in zip(items, masked.tolist(), strict=True)]
    try:
        distinct = dict.fromkeys(items)
    except TypeError:  # an item that cannot be hashed is not a text
        distinct = dict.fromkeys(item for item in items if isinstance(item, str))
        _refuse_first(items)
    gaps = distinct.pop(None, False) is None
    found = _coded(distinct, items, key)
    codes: dict[str | None, int] = {}
    codes.update(found.items())
    if gaps:
        codes[None] = MISSING_KEY
    keys = np.fromiter(map(codes.__getitem__, items), np.int64, len(items))
    return (_masked(keys) if gaps else keys), found


def _coded(distinct: Collection[Any], items: Sequence[Any], key: bytes) -> dict[str, int]:
    """Return the code of each label. The first fault is located in ``items``."""
    found = {}
    for label in distinct:
        try:
            text = label.encode()
        except (AttributeError, UnicodeEncodeError):
            text = bytes(MAX_LABEL_BYTES + 1)
        if len(text) > MAX_LABEL_BYTES or not isinstance(label, str):
            _refuse_first(items)
        found[label] = _code(text, key)
    return found


def _refuse_first(items: Sequence[Any]) -> None:
    for row, item in enumerate(items):
        if item is not None and (fault := fault_of_label(item)) is not None:
            value = item[:40] if isinstance(item, str) else item
            raise ObservationError(
                f"values[{row}] {fault} (the stream's value_type is 'label')",
                column="values", row=row, value=value,
            )  # fmt: skip


def _masked(keys: Int64Array) -> Any:
    gaps = keys == MISSING_KEY
    return np.ma.MaskedArray(keys, mask=gaps) if gaps.any() else keys


def values_of(
    keys: Int64Array, value_type: str, labels: Labels | None
) -> tuple[npt.NDArray[Any], BoolArray]:
    """Return the values for value keys, and where they are missing, as
    :func:`~decaysketch.core.observations.decode_values`. Labels are texts as objects, empty where
    missing.
    """
    if labels is None:
        return decode_values(keys, value_type)
    missing = keys == MISSING_KEY
    texts = np.full(len(keys), "", object)
    texts[~missing] = labels.decoded(keys[~missing])
    return texts, missing
