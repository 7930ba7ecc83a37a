"""Column names in Spark's syntax."""

from __future__ import annotations

__all__ = ["quoted"]


def quoted(name: str) -> str:
    """Return the column with exactly this name. In Spark, a dot is a struct field, and ``*`` is
    all.
    """
    return "`" + name.replace("`", "``") + "`"
