"""The JSON manifest for one version of a sketch table. See ``tables.py``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from decaysketch.errors import DecaySketchError
from decaysketch.tables import RESULT_FIELDS

__all__ = ["COLUMNS", "COUNTS", "Manifest", "Partition", "Run", "TableError", "key_types"]

#: Names of :data:`decaysketch.tables.RESULT_FIELDS`, and of those that are added up.
COLUMNS: Final = tuple(f.name for f in RESULT_FIELDS)
COUNTS: Final = tuple(f.name for f in RESULT_FIELDS if pa.types.is_int64(f.type))

_FORMAT = 2  # 1: a folder of release 0.1.0
_FILE = re.compile(r"(data/[^/]+|sketches)/[^/]+")
_RECIPE = ("family", "params", "decay")  # folders of release 0.1.0 name no family
_KEY_TYPES = {
    str(kind): kind
    for kind in (
        pa.int64(), pa.string(), pa.binary(), pa.bool_(), pa.date32(), pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
    )
}  # fmt: skip


class TableError(DecaySketchError):
    """A place is no sketch table, or cannot become one, or rows do not belong in it."""


class Run(NamedTuple):
    """Files that were written together, with one row for each key."""

    files: tuple[str, ...]  # below the table's folder
    counts: dict[str, int]  # sketches, sketch_bytes, and the sums of the columns of counts
    columns: tuple[str, ...]  # of RESULT_FIELDS, those that the files have

    @property
    def size(self) -> int:
        """The sketches' bytes."""
        return self.counts["sketch_bytes"]


@dataclass(frozen=True, slots=True)
class Partition:
    """Runs with one label, and their input's fingerprint."""

    runs: tuple[Run, ...] = ()
    fingerprint: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A version's sketch configuration, key columns, files and counts."""

    recipe: dict[str, Any]
    by: tuple[str, ...]
    types: dict[str, str] | None = None  # of the key columns; None until there are rows
    keep: int = 1
    partitions: dict[str, Partition] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        """The runs in all partitions."""
        return [run for partition in self.partitions.values() for run in partition.runs]

    @property
    def schema(self) -> pa.Schema | None:
        """The row schema. None until there are rows."""
        if self.types is None:
            return None
        keys = [pa.field(name, _KEY_TYPES[kind]) for name, kind in self.types.items()]
        return pa.schema([*keys, *RESULT_FIELDS])

    def dump(self) -> bytes:
        """Return JSON that :meth:`parse` reads."""
        content = {
            "format": _FORMAT,
            "recipe": self.recipe,
            "by": list(self.by),
            "types": self.types,
            "keep": self.keep,
            "partitions": {
                label: {
                    "fingerprint": partition.fingerprint,
                    "runs": [run._asdict() for run in partition.runs],
                }
                for label, partition in self.partitions.items()
            },
            "applied": self.applied,
            "notes": self.notes,
        }
        return (json.dumps(content, indent=1) + "\n").encode()

    @classmethod
    def parse(cls, text: bytes) -> Manifest:
        """Parse JSON.

        Raises:
            TableError: a later release wrote it.
            ValueError, KeyError, TypeError, AttributeError, RecursionError: it is no manifest.
        """
        content = json.loads(text)
        if content["format"] != _FORMAT:
            raise TableError(
                f"a table is of format {content['format']}; expected {_FORMAT}: a later release "
                "wrote it"
            )
        partitions = {
            label: Partition(
                tuple(
                    Run(tuple(map(_own_file, run["files"])), run["counts"], tuple(run["columns"]))
                    for run in partition["runs"]
                ),
                partition["fingerprint"],
            )
            for label, partition in content["partitions"].items()
        }
        manifest = cls(
            recipe=content["recipe"], by=tuple(content["by"]), types=content["types"],
            keep=content["keep"], partitions=partitions, applied=content["applied"],
            notes=content["notes"],
        )  # fmt: skip
        _ = manifest.schema
        return manifest

    @classmethod
    def parse_summary(
        cls, text: bytes, files: list[str], columns: list[str], schema: pa.Schema | None
    ) -> Manifest:
        """Parse the ``summary.json`` in a folder from release 0.1.0.

        Args:
            text: the summary.
            files: the table's files.
            columns: the columns in these files.
            schema: the table's schema. None if there are no files.

        Raises:
            ValueError, KeyError, TypeError, AttributeError, RecursionError: it is none.
        """
        summary = json.loads(text)
        recipe = {name: summary[name] for name in _RECIPE if name in summary}
        _ = recipe["params"]
        by = tuple(summary["by"])
        names = ("sketches", *COUNTS, "sketch_bytes")
        notes = {n: v for n, v in summary.items() if n not in {*_RECIPE, "by", *names}}
        partition, types = Partition(), None
        if schema is not None:
            counts = {name: summary.get(name, 0) for name in names}
            own = tuple(name for name in COLUMNS if name in columns)
            partition = Partition((Run(tuple(files), counts, own),))
            types = key_types(schema)
        return cls(recipe=recipe, by=by, types=types, partitions={"": partition}, notes=notes)


def _own_file(name: str) -> str:
    """Return the name, if it names a row file below the table's folder."""
    if not _FILE.fullmatch(name) or ".." in name.split("/"):
        raise ValueError(f"the file {name!r} is outside of the table")
    return name


def key_types(schema: pa.Schema) -> dict[str, str]:
    """Return the key columns in a table with this schema, by name, and their types."""
    return {field.name: str(field.type) for field in schema if field.name not in COLUMNS}
