"""A sketch's short summary, as text and in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["Summarized"]


class Summarized(ABC):
    """Something that sums itself up in a few named figures."""

    @abstractmethod
    def _summary(self) -> dict[str, Any]:
        """Return the facts to show, by name, the most important first."""

    def __repr__(self) -> str:
        figures = ", ".join(f"{name}={value}" for name, value in self._summary().items())
        return f"{type(self).__name__}({figures})"

    def _repr_html_(self) -> str:
        import html  # its table of names takes half a megabyte, and only notebooks ask

        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(str(name))}</th>"
            f"<td>{html.escape(str(value))}</td></tr>"
            for name, value in self._summary().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"
