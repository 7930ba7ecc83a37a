"""When to make deltas, and how to retry."""

from __future__ import annotations

from dataclasses import dataclass

from decaysketch.errors import ParameterError

__all__ = ["Policy"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """See :class:`decaysketch.client.Sensor`."""

    flush_rows: int = 10_000
    flush_bytes: int = 256 * 1024
    flush_age_s: float = 10.0
    max_spool_bytes: int = 256 * 1024 * 1024
    max_post_bytes: int = 8 * 1024 * 1024
    backoff_s: float = 0.5
    max_backoff_s: float = 60.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ParameterError(f"{name} is {value!r}; expected more than 0")
