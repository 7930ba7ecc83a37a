"""JSON of strangers, read by the standard library, because it lets us see what a faster reader
hides: names that an object has twice, and integers of any length, which are made no number of that
length. Also the byte order mark, which programs of Windows write before a text in UTF-8."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["MARK", "Repeated", "parse", "without_mark"]

MARK = b"\xef\xbb\xbf"

_LONGEST_INTEGER = 20  # characters; longer ones are beyond 64 bits


class Repeated(dict[str, Any]):
    """An object that has a name twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else Repeated(fields)


def _integer(digits: str) -> int | float:
    """Beyond 64 bits as a float, which is no integer and close enough to be told apart."""
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


def parse(text: str) -> Any:
    """What JSON says. O(length).

    Raises:
        ValueError: not JSON, or nested too deeply; the message says where.
    """
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def without_mark(body: bytes) -> bytes:
    """A text without the byte order mark that it may begin with. O(1) without one.

    Raises:
        UnicodeError: it is UTF-16, which begins with a mark of its own.
    """
    if body[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UnicodeError("it is UTF-16; expected UTF-8")
    return body[len(MARK) :] if body.startswith(MARK) else body
