"""A spool's metadata files, with a checksum that detects damage.

``sensor.json`` identifies a spool's stream and source. ``monitors.json`` stores a participating
source's state. The checksum is a member of the JSON object, computed without it. A file from an
earlier release has no checksum and is accepted.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

__all__ = ["card_bytes", "parse_card", "parse_form"]

_FIELDS = {"stream": str, "source": str, "numbered": bool, "recipe": dict}
_CHECK = "crc32"


def card_bytes(card: Mapping[str, Any]) -> bytes:
    """Encode a metadata file."""
    return _text({**card, _CHECK: zlib.crc32(_text(card))})


def parse_card(content: bytes) -> dict[str, Any]:
    """Decode a metadata file without its checksum.

    Raises:
        ValueError: the bytes are not a metadata file.
    """
    card, said = _object(content)
    if unknown := sorted(card.keys() - {*_FIELDS, "next_number"}):
        raise ValueError(f"unknown field {unknown[0]!r}")
    for name, kind in _FIELDS.items():
        if not isinstance(card.get(name), kind):
            raise ValueError(f"{name} is {card.get(name)!r}; expected a {kind.__name__}")
    number = card.get("next_number")
    if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
        raise ValueError(f"next_number is {number!r}; expected an integer or null")
    if said is not None:
        _check(card, said)
    return card


def parse_form(content: bytes) -> dict[str, Any]:
    """Decode a metadata file that must have a checksum.

    Raises:
        ValueError: the bytes are not a metadata file.
    """
    form, said = _object(content)
    _check(form, said)
    return form


def _object(content: bytes) -> tuple[dict[str, Any], Any]:
    form = json.loads(content)  # bytes that are not UTF-8 are a ValueError too
    if not isinstance(form, dict):
        raise ValueError(f"it holds {form!r}; expected an object")
    return form, form.pop(_CHECK, None)


def _check(form: Mapping[str, Any], said: object) -> None:
    if said != (found := zlib.crc32(_text(form))):
        raise ValueError(f"its checksum is {said!r}; expected {found}")


def _text(card: Mapping[str, Any]) -> bytes:
    return json.dumps(card, indent=1).encode()
