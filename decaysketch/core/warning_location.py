"""Warnings that point at the line that called the library, not at a line in the library."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn_caller"]

_PACKAGE = "decaysketch."


def warn_caller(said: str, category: type[Warning]) -> None:
    """Warn as if the line outside the package did."""
    level, caller = 1, sys._getframe()
    while (outside := caller.f_back) and caller.f_globals["__name__"].startswith(_PACKAGE):
        level, caller = level + 1, outside
    warnings.warn(said, category, stacklevel=level)
