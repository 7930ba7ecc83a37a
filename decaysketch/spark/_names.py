"""Names of columns, as Spark reads them."""

from __future__ import annotations

__all__ = ["quoted"]


def quoted(name: str) -> str:
    """The column of exactly this name: to Spark a dot is a field of a struct, and ``*`` is all."""
    return "`" + name.replace("`", "``") + "`"
