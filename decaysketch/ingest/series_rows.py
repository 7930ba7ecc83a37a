"""Columns that only series rows have: start, entity, attributes.

Readings of protocols have them without configuration. The text that names a series contains its
labels. From there come

* the attributes that the stream declares, by name. OTLP looks at the data point first, then at the
  resource.
* the entity: the labels that the mapping names. By default the series without its bucket (``le``),
  so all buckets in a histogram are sampled together.

A start comes from the protocol, if it sends starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.labels import MAX_LABEL_BYTES, EncodedLabels
from decaysketch.ingest.batch import SeriesFields
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import SeriesPart

__all__ = [
    "BUCKET",
    "NO_START",
    "bucket_text",
    "entity_labels",
    "entity_texts",
    "fields_of_points",
    "fields_of_readings",
    "text_column",
]

BUCKET = "le"
"""Label that names a histogram bucket."""

NO_START = -(1 << 63)

Int64Array = npt.NDArray[np.int64]
Key = tuple[str | bytes | int, ...]

_KEPT = 1 << 14  # texts whose labels are remembered
_LINE_PART = re.compile(r"(?<!\\)((?:\\\\)*),")
_LINE_SIGN = re.compile(r"(?<!\\)((?:\\\\)*)=")
_LINE_END = re.compile(r"(?<!\\)((?:\\\\)*) ")
_ESCAPED = re.compile(r"\\([,= ])")


def fields_of_readings(
    parts: Sequence[SeriesPart | None], attributes: Sequence[str], unit_ns: int
) -> SeriesFields | None:
    """Return the columns for single readings. None: no reading has any. O(readings).

    Args:
        parts: of each reading.
        attributes: the declared ones.
        unit_ns: nanoseconds in the stream's time unit.
    """
    given = {row: part for row, part in enumerate(parts) if part is not None}
    if not given:
        return None
    found = SeriesFields()
    starts = {row: part.start_ns for row, part in given.items() if part.start_ns is not None}
    if starts:
        found.starts = np.full(len(parts), NO_START, np.int64)
        found.starts[list(starts)] = [each // unit_ns for each in starts.values()]
    found.entity_keys = {row: part.entity for row, part in given.items() if part.entity is not None}
    texts = {
        name: {row: part.attributes[name] for row, part in given.items() if name in part.attributes}
        for name in attributes
    }
    if any(texts.values()):
        found.attributes = {name: text_column(of, len(parts)) for name, of in texts.items()}
    return found


def text_column(texts: Mapping[int, str], rows: int) -> EncodedLabels:
    """Return a column with texts in some of its rows, and nulls in the others."""
    number: dict[str, int] = {}
    numbers = np.full(rows, -1, np.int64)
    numbers[list(texts)] = [number.setdefault(text, len(number)) for text in texts.values()]
    return EncodedLabels(list(number), numbers)


def fields_of_points(
    points: Points,
    codes: Int64Array,
    places: Sequence[int],
    attributes: Sequence[str],
    unit_ns: int,
) -> SeriesFields:
    """Return starts and attributes for readings. O(readings + series).

    Args:
        points: all readings.
        codes: int64[n], the series of each sound reading.
        places: sound readings.
        attributes: the declared ones.
        unit_ns: nanoseconds in the stream's time unit.
    """
    found = SeriesFields()
    if points.starts_ns:
        starts = [points.starts_ns.get(place) for place in places]
        found.starts = np.array(
            [NO_START if each is None else each // unit_ns for each in starts], np.int64
        )
    if attributes and points.form:
        of_series = [labels_of(points.form, text) for text in points.series]
        found.attributes = {
            name: _encoded([attribute_of(each, name) for each in of_series], codes)
            for name in attributes
        }
    return found


def entity_labels(points: Points) -> list[list[str | None]]:
    """Return a column for each label that names the entity, with a text per series. None if it
    lacks the label.
    """
    labels = [labels_of(points.form, text) for text in points.series]
    return [[attribute_of(each, name) or None for each in labels] for name in points.entity]


def entity_texts(points: Points) -> list[str] | None:
    """Return a text per series that names its entity. None if all are their own entities."""
    if not points.form or not any(BUCKET in text for text in points.series):
        return None
    texts = [entity_text(points.form, text) for text in points.series]
    return None if texts == points.series else texts


def _encoded(texts: Sequence[str | None], codes: Int64Array) -> EncodedLabels:
    """Return a column that has the text of each row's series."""
    number: dict[str, int] = {}
    of_series = [-1 if text is None else number.setdefault(text, len(number)) for text in texts]
    rows = np.array(of_series, np.int64)[codes] if texts else codes
    used, rows = np.unique(rows, return_inverse=True) if len(rows) else (rows, rows)
    distinct = list(number)
    kept = [distinct[each] for each in used.tolist() if each >= 0]
    return EncodedLabels(kept, rows - (len(used) - len(kept)))


def attribute_of(labels: Mapping[str, str], name: str) -> str | None:
    """Return a label, or the resource's. None: there is none, or it is too long."""
    found = labels.get(name, labels.get(f"resource.{name}"))
    return None if found is None or len(found.encode()) > MAX_LABEL_BYTES else found


@lru_cache(maxsize=_KEPT)
def labels_of(form: str, text: str) -> Mapping[str, str]:
    """Return the labels in a text that names a series.

    Args:
        form: "prometheus", "otlp" or "influx".
        text: as the protocol's reader makes it.
    """
    if form == "influx":
        return _tags(text)
    given = json.loads(text)
    if form == "prometheus":
        labels: dict[str, str] = given
        return labels
    found = {f"resource.{key}": _text(value) for key, value in given["resource"].items()}
    return found | {key: _text(value) for key, value in given["attributes"].items()}


@lru_cache(maxsize=_KEPT)
def entity_text(form: str, text: str) -> str:
    """Return the text without the bucket."""
    if form == "influx" or BUCKET not in text:
        return text
    given = json.loads(text)
    labels = given["attributes"] if form == "otlp" else given
    if BUCKET not in labels:
        return text
    del labels[BUCKET]
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def bucket_text(text: str, bound: str) -> str:
    """Return an OTLP series text with a bucket among its attributes."""
    given = json.loads(text)
    given["attributes"][BUCKET] = bound
    given["attributes"] = dict(sorted(given["attributes"].items()))
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _tags(text: str) -> dict[str, str]:
    """Return the tags of a line: ``measurement,tag=text,...``, maybe with fields behind a space."""
    _, *tags = _split(_LINE_PART, _split(_LINE_END, text)[0])
    found = {}
    for tag in tags:
        name, *value = _split(_LINE_SIGN, tag)
        found[_ESCAPED.sub(r"\1", name)] = _ESCAPED.sub(r"\1", "=".join(value))
    return found


def _split(mark: re.Pattern[str], text: str) -> list[str]:
    """Split at marks that no backslash escapes."""
    pieces = mark.split(text)  # every second one is the backslashes before a mark
    return [
        piece + slashes for piece, slashes in zip(pieces[::2], [*pieces[1::2], ""], strict=True)
    ]
