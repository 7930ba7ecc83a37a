"""For the pages of the reference: references in docstrings (``:meth:`update```) as plain code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":\w+:`~?([^`]+)`")


class Roles(griffe.Extension):
    """``:class:`~decaysketch.families.Recipe``` becomes ``Recipe``."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Of every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(
                lambda found: f"`{found[1].rpartition('.')[2]}`", obj.docstring.value
            )
