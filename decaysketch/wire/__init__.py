"""Bytes of a sketch: the only package that knows them.

:func:`encode` writes the states of a sketch (one for each hash function), :func:`decode` reads
them. Both are functions of their arguments alone: equal states give equal bytes on every platform,
and every blob that decodes is the one that encoding its states gives again. Every bit is named in
``docs/wire-format.md``.

A *family* is a kind of sketch, with a module of its own; all share the header, the parameters and
the checksum (``_fields.py``), and rows as bit-packed columns (``_rows.py`` over ``_bitpack.py``).
What is here is family 1, the sketch whose decay is chosen at query time (``query_time.py``).
"""

from __future__ import annotations

from decaysketch.wire._fields import MAGIC, VERSION
from decaysketch.wire.query_time import FAMILY, CopyHeader, Header, decode, encode, peek

__all__ = ["FAMILY", "MAGIC", "VERSION", "CopyHeader", "Header", "decode", "encode", "peek"]
