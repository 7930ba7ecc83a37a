"""Group keys as Prometheus labels."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

__all__ = ["label_name", "label_of", "label_of_key"]

_NO_NAME = re.compile(r"[^0-9A-Za-z]+")


def label_name(key: str, taken: Collection[str]) -> str:
    """Return a key expression as a label name: ``hour(time)`` is ``hour_time``."""
    name = _NO_NAME.sub("_", key).strip("_")[:60] or "key"
    name = f"key_{name}" if name[0].isdigit() else name
    while name in taken or name == "stream":
        name = f"{name}_"
    return name


def label_of(value: Any) -> str:
    """Return a group's value as a label."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return label_of_key(value)


def label_of_key(key: Any) -> str:
    """Return a key as a label that no other key has. A text that looks like a number has quotation
    marks, and so does a text that begins with them.
    """
    if not isinstance(key, str):
        return str(key)
    try:
        float(key)
    except ValueError:
        return json.dumps(key, ensure_ascii=False) if key.startswith('"') else key
    return json.dumps(key, ensure_ascii=False)
