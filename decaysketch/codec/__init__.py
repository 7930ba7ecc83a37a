"""Bytes that every family writes alike: header, checksum, varints, bit-packed columns.

No family is known here. What a family adds is in its own ``wire.py``; every bit is named in
``docs/wire-format.md``.
"""
