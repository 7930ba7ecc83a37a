"""One source, as a relay forwards it by itself.

A relay that forwards a join is one source upstream. Its sources cannot be distinguished there, so
nobody can compute which source heard a message. Streams in
``upstream_paths`` are therefore also forwarded source by source: to the stream ``NAME.paths``
upstream, as the sources ``RELAY/SOURCE``. They must not enter the stream ``NAME`` itself, where
each message would cross as often as it was heard.

If the stream upstream has a ``from_level``, only messages with this level or above cross
(:mod:`decaysketch.querytime.levels`).
"""

from __future__ import annotations

from api.service.merging import MergeBuffer
from api.service.streams import Stream
from decaysketch import Snapshot
from decaysketch.families import Recipe

__all__ = ["PATHS", "SourcePart"]

PATHS = ".paths"
"""Ending of the upstream stream with these sources."""


class SourcePart:
    """A source with the members from :class:`~api.service.streams.Stream` that a relay needs.

    Args:
        stream: it posts to.
        source: its name.

    Attributes:
        from_level: the level from which on its messages are forwarded, as upstream wants it.
    """

    def __init__(self, stream: Stream, source: str) -> None:
        self.stream = stream
        self.source = source
        self.name = f"{stream.name}{PATHS}"
        self.row = stream.row
        self.from_level = stream.row.from_level
        self._summary: tuple[tuple[int, int], tuple[str, int]] | None = None

    @property
    def recipe(self) -> Recipe:
        """The sketch configuration."""
        return self.stream.recipe

    @property
    def generation(self) -> int:
        """A number that differs after each post from the source."""
        return self.stream.generation_of(self.source)

    @property
    def gathered(self) -> MergeBuffer | None:
        """The buffer that its posts enter as well."""
        return self.stream.gathered_of(self.source)

    def gather(self, buffer: MergeBuffer | None) -> MergeBuffer | None:
        """Put its posts into this buffer as well, from now on. Return the previous one."""
        return self.stream.gather_of(self.source, buffer)

    @property
    def source_count(self) -> int:
        """1 while the stream has the source."""
        return int(self._buffer is not None)

    @property
    def joined_rows(self) -> int:
        """Its rows, as they are counted."""
        return 0 if self._buffer is None else self._buffer.counted_rows

    def summary(self) -> tuple[str, int]:
        """Return its digest and row count."""
        buffer = self._buffer or MergeBuffer(self.recipe)
        if not self.from_level:
            return buffer.summary()
        of = buffer.version(), self.from_level
        if self._summary is None or self._summary[0] != of:
            part = buffer.part(self.from_level)
            self._summary = of, (part.digest, len(part))
        return self._summary[1]

    def to_bytes(self) -> bytes:
        """Return the sketch as encoded bytes."""
        return self.encoded(self._buffer or MergeBuffer(self.recipe))

    def encoded(self, posts: MergeBuffer) -> bytes:
        """Return some of its posts as encoded bytes."""
        return posts.part(self.from_level).to_bytes() if self.from_level else posts.to_bytes()

    def decode(self, body: bytes) -> Snapshot:
        """Read a sketch of the stream."""
        return self.stream.decode(body)

    @property
    def _buffer(self) -> MergeBuffer | None:
        found = self.stream.source(self.source)
        return None if found is None else found[0]
