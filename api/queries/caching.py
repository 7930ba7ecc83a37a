"""A cache of results. The least recently used ones are dropped for others.

A result depends on the sketch (its digest), the queries and the query time. Its name contains
nothing else, and never means another result. So no cached result is ever out of date, and the name
is a strong entity tag.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

import decaysketch

__all__ = ["AnswerCache", "etag", "is_known"]

_LARGEST_SHARE = 8  # an answer longer than this part of the room would displace too many others


def etag(*parts: str) -> str:
    """Return the entity tag that these texts, and the release, determine."""
    name = hashlib.sha256()
    for part in (decaysketch.__version__, *parts):
        encoded = part.encode()
        name.update(len(encoded).to_bytes(8, "little"))
        name.update(encoded)
    return f'"{name.hexdigest()[:32]}"'


def is_known(tag: str, if_none_match: str | None) -> bool:
    """Return whether a request's ``If-None-Match`` contains ``tag``."""
    known = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
    return tag in known or "*" in known


class AnswerCache:
    """Bodies by their entity tag. Thread-safe. Every operation is O(1), except for the bodies that
    it displaces.

    Args:
        limit_bytes: limit for all bodies together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bodies: OrderedDict[str, bytes] = OrderedDict()
        self._held_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._bodies)

    @property
    def held_bytes(self) -> int:
        """Return the total bytes of cached bodies."""
        return self._held_bytes

    def get(self, tag: str) -> bytes | None:
        """Return the body with this tag, if it is cached."""
        with self._lock:
            body = self._bodies.get(tag)
            if body is not None:
                self._bodies.move_to_end(tag)
            return body

    def put(self, tag: str, body: bytes) -> None:
        """Keep a body, unless it is very long."""
        if len(body) > self._limit_bytes // _LARGEST_SHARE:
            return
        with self._lock:
            displaced = self._bodies.pop(tag, b"")
            self._bodies[tag] = body
            self._held_bytes += len(body) - len(displaced)
            while self._held_bytes > self._limit_bytes:
                _, oldest = self._bodies.popitem(last=False)
                self._held_bytes -= len(oldest)
