"""Compressed bodies, inflated piece by piece within bounds.

A few bytes can inflate to gigabytes. Never more than one piece is made at a time. The total is
bounded absolutely and, once it is large, by its ratio to the bytes received. The number of gzip
members or zstd frames is bounded too, since an empty one costs time and yields nothing.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import AsyncIterator, Callable

from api.http.refusals import BodyTooLargeError, CorruptEncodingError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["CODINGS", "PIECE_BYTES", "inflate"]

PIECE_BYTES = 256 * 1024

RATIO = 300  # beyond it, a bomb: of sketches and observations the ratio is below 50
_RATIO_COUNTS_FROM_BYTES = 1 << 20
_MOST_MEMBERS = 10_000
_ZSTD_WINDOW_LOG = 23  # 8 MiB: RFC 8878 asks every decoder to support this


class _GzipMember:
    """One gzip member. ``piece`` returns at most PIECE_BYTES. ``exhausted``: without more data,
    nothing more comes.
    """

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._full = False

    def piece(self, data: bytes) -> bytes:
        made = self._inflater.decompress(self._inflater.unconsumed_tail + data, PIECE_BYTES)
        self._full = len(made) == PIECE_BYTES
        return made

    @property
    def exhausted(self) -> bool:
        # zlib may still hold output when it has taken all input, if the piece came out full
        return not self._inflater.unconsumed_tail and not self._full

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data


class _ZstdFrame:
    def __init__(self) -> None:
        self._inflater = zstd.ZstdDecompressor(
            options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        )

    def piece(self, data: bytes) -> bytes:
        return self._inflater.decompress(data, PIECE_BYTES)

    @property
    def exhausted(self) -> bool:
        return self._inflater.needs_input

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data


CODINGS: dict[str, Callable[[], _GzipMember | _ZstdFrame]] = {
    "gzip": _GzipMember,
    "x-gzip": _GzipMember,
    "zstd": _ZstdFrame,
}


async def inflate(
    chunks: AsyncIterator[bytes], coding: str, limit_bytes: int
) -> AsyncIterator[bytes]:
    """Yield the plain bytes, in pieces of at most ``PIECE_BYTES``. All pieces after the first are
    made outside the event loop.

    Raises:
        BodyTooLargeError: more than ``limit_bytes``, or a ratio that only a bomb has.
        CorruptEncodingError: damaged, truncated, followed by other data, or of too many parts.
    """
    open_member = CODINGS[coding]
    member = open_member()
    members, taken_bytes, made_bytes, begun = 1, 0, 0, False
    async for chunk in chunks:
        taken_bytes += len(chunk)
        data = chunk
        while data or not member.exhausted:
            if member.eof:
                member, begun = open_member(), False
                members += 1
                if members > _MOST_MEMBERS:
                    raise CorruptEncodingError(coding, f"more than {_MOST_MEMBERS} parts")
            begun = True
            try:
                if made_bytes < PIECE_BYTES:  # which takes less than to hand it to a thread
                    piece = member.piece(data)
                    await asyncio.sleep(0)
                else:
                    piece = await asyncio.to_thread(member.piece, data)
            except (zlib.error, zstd.ZstdError) as error:
                raise CorruptEncodingError(coding, str(error)) from None
            data = member.unused_data if member.eof else b""
            if piece:
                made_bytes += len(piece)
                _check(made_bytes, taken_bytes, limit_bytes)
                yield piece
            if member.eof and not data:
                break
    if not begun or not member.eof:
        raise CorruptEncodingError(coding, "it ends too early")


def _check(made_bytes: int, taken_bytes: int, limit_bytes: int) -> None:
    suspicious = made_bytes > _RATIO_COUNTS_FROM_BYTES and made_bytes > RATIO * taken_bytes
    if made_bytes > limit_bytes or suspicious:
        raise BodyTooLargeError(limit_bytes)
