"""Byte-level building blocks: header, checksum, varints, bit-packed columns.

No family appears here. Each family adds its own part in ``wire.py``. ``docs/wire-format.md``
specifies every bit.
"""
