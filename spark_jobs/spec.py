"""The input and settings for a table's build, given once and stored with the table.

A rebuild reads them from the table, so that the replaced part fits the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from decaysketch.cli.output import CommandError
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import ParameterError
from decaysketch.tables import ColumnMapping, RowFilter, epoch_of, parse_where
from spark_jobs.inputs import Fingerprint

__all__ = ["BuildSpec", "time_in_units"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSpec:
    """The build from a log to a sketch table.

    Args:
        log: a file, or a folder with files in one format, as a path or URI.
        mapping: the columns' meaning.
        by: the key columns.
        now: the time that every sketch gets, or None.
        since, until: accept rows with ``since <= time < until``, in the sketches' unit.
        where: accept rows that satisfy this. See :func:`decaysketch.tables.parse_where`.
        format: "parquet", "csv" or "json". None: by suffix.
        schema: column types (Spark DDL). None: from the files, or inferred.
        reader: options for Spark's reader. See :mod:`spark_jobs.text_logs`.
        read_in_workers: let workers read Parquet themselves, where the log allows it.
        quarantine: folder for rejected rows. None: a rejected row ends the job.
        apart: keep the sketches for each entry in the log's folder separate, so that a changed one
            can be replaced.
        fingerprint: the way to detect changes.
        epoch: the sites' epoch, if the family counts by site and parts are not separate.
    """

    log: str
    mapping: ColumnMapping
    by: tuple[str, ...] = ()
    now: int | None = None
    since: int | None = None
    until: int | None = None
    where: str | None = None
    format: str | None = None
    schema: str | None = None
    reader: dict[str, str] = field(default_factory=dict)
    read_in_workers: bool = True
    quarantine: str | None = None
    apart: bool = False
    fingerprint: Fingerprint = "stat"
    epoch: int = 0

    @property
    def only(self) -> RowFilter | None:
        """The filter for accepted rows. None: all.

        Raises:
            ParameterError: ``where`` cannot be read.
        """
        if self.since is None and self.until is None and self.where is None:
            return None
        where = () if self.where is None else parse_where(self.where)
        return RowFilter(self.since, self.until, where)

    def with_schema(self, schema: str) -> BuildSpec:
        """Return the same specification with these column types."""
        return replace(self, schema=schema)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        return {**asdict(self), "by": list(self.by), "mapping": asdict(self.mapping)}

    def epoch_of(self, label: str) -> int:
        """Return the sites' epoch in a log part, for any family that counts by site."""
        return epoch_of("part", label) if self.apart else self.epoch

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`.

        Raises:
            CommandError: a field is unknown, or missing.
        """
        try:
            mapping = ColumnMapping.from_dict(form["mapping"])
            return cls(**{**form, "mapping": mapping, "by": tuple(form["by"])})
        except (TypeError, KeyError, ParameterError) as fault:
            raise CommandError(
                f"the table was built with options that this release does not know: {fault}"
            ) from None


def time_in_units(option: str, text: str | None, unit: str) -> int | None:
    """Return a time in the sketches' unit: from an integer, or an ISO 8601 date (UTC if it has no
    zone).

    Raises:
        CommandError: neither, or no integer number of units.
    """
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"{option} is {text!r}; expected an integer, or a date such as 2026-01-31T06:00"
        ) from None
    if unit not in NANOSECONDS:
        raise CommandError(f"{option} is {text!r}; the unit {unit!r} has no calendar")
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    microseconds = (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    units, rest = divmod(microseconds * 1000, NANOSECONDS[unit])
    if rest:
        raise CommandError(f"{option} is {text!r}, which is not an integer of {unit!r}")
    return units
