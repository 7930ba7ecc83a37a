"""Labels on the wire: rows contain ranks, and the texts follow the rows.

For a label state, a row's value is the rank of its code in the sorted dictionary. After the rows of
all repetitions come the label count and each label in code order: length and UTF-8 text. Codes are
not written, because they follow from the texts.

The reader requires valid UTF-8 of at most 1,024 bytes, strictly rising codes, a row for every
label, and a label for every rank. So each state has one encoding without unused labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec import fields
from decaysketch.core.codec.fields import Reader, put_varint, refuse
from decaysketch.core.labels import MAX_LABEL_BYTES, MAX_LABELS, Labels, code_of
from decaysketch.core.observations import MISSING_KEY

__all__ = ["codes_of_ranks", "encode_labels", "ranks_of", "read_labels"]

Int64Array = npt.NDArray[np.int64]


def encode_labels(labels: Labels) -> bytes:
    """Encode the labels that follow the rows."""
    body = bytearray()
    put_varint(body, len(labels))
    for label in labels.texts:
        text = label.encode()
        put_varint(body, len(text))
        body += text
    return bytes(body)


def ranks_of(labels: Labels, value_keys: Int64Array) -> Int64Array:
    """Convert value keys to ranks."""
    missing = value_keys == MISSING_KEY
    ranks = labels.places(value_keys).astype(np.int64, copy=False)
    return np.where(missing, np.int64(MISSING_KEY), ranks)


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
    reader = Reader(memoryview(blob)[: -fields.CHECKSUM_BYTES], at)
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
