"""Rejected rows: a folder with Parquet files, each row with its place and reason.

Columns: place, row, column, reason, record. See :func:`decaysketch.spark.build.refusal_table`. If a
log's entries are stored separately, there is a folder ``partition=LABEL`` for each entry with
rejected rows. Spark and pyarrow read it as one more column.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from decaysketch.cli.output import CommandError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["check_quarantine", "replace_quarantine"]

_OURS = re.compile(r"part-.*|partition=.*|_SUCCESS|\.(part-|partition=|_SUCCESS).*")


def check_quarantine(place: Path, overwrite: bool) -> None:
    """Report an error instead of overwriting data.

    Raises:
        CommandError: a file, a folder with foreign content, or, unless
            ``overwrite``, a quarantine.
    """
    if not place.exists():
        return
    found = [entry.name for entry in place.iterdir()] if place.is_dir() else [""]
    if not all(_OURS.fullmatch(name) for name in found):
        raise CommandError(f"{place} exists and is not a quarantine")
    if found and not overwrite:
        raise CommandError(f"{place} already contains a quarantine; --overwrite replaces it")


def replace_quarantine(place: Path, label: str, refusals: DataFrame | None) -> None:
    """Replace a log part's rejected rows.

    Args:
        place: the quarantine.
        label: the part's label. "": the complete log.
        refusals: the rows. None: there are none.

    Raises:
        CommandError: see :func:`check_quarantine`. The place may come from a table's file.
    """
    check_quarantine(place, overwrite=True)
    target = place / f"partition={quote(label, safe='')}" if label else place
    draft, old = (target.with_name(f".{target.name}.{os.getpid()}.{end}") for end in ("new", "old"))
    if refusals is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        refusals.write.parquet(f"file://{draft.absolute()}")
    if target.exists():
        target.rename(old)
    if refusals is not None:
        draft.rename(target)
    shutil.rmtree(old, ignore_errors=True)
