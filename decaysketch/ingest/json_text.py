"""Untrusted JSON, read by the standard library.

The standard library shows two faults that a faster reader hides: names that an object has twice,
and integers with any number of digits, without building such a large number. This module also
handles the byte order mark that Windows programs write before a UTF-8 text.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["MARK", "UTF16", "UTF16_MARKS", "Repeated", "parse", "without_mark"]

MARK = b"\xef\xbb\xbf"
UTF16_MARKS = b"\xff\xfe", b"\xfe\xff"
UTF16 = "it is UTF-16; expected UTF-8"

_LONGEST_INTEGER = 20  # characters; longer ones are beyond 64 bits


class Repeated(dict[str, Any]):
    """An object that has a name twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else Repeated(fields)


def _integer(digits: str) -> int | float:
    """Return an integer beyond 64 bits as a float. It is no integer, and close enough to
    identify.
    """
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


def parse(text: str) -> Any:
    """Parse JSON. O(length).

    Raises:
        ValueError: not JSON, or nested too deeply; the message gives the position.
    """
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def without_mark(body: bytes) -> bytes:
    """Return a text without its byte order mark, if it has one. O(1) without one.

    Raises:
        UnicodeError: it is UTF-16, which begins with a mark of its own.
    """
    if body.startswith(UTF16_MARKS):
        raise UnicodeError(UTF16)
    return body[len(MARK) :] if body.startswith(MARK) else body
