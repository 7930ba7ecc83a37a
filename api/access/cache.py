"""A cache of the keys, at most two seconds behind the store.

A key that any replica revokes is rejected by every replica within ``STALE_S``. While the database
cannot be read the known keys are accepted for ``OUTAGE_S`` more, then every request is rejected
(503): a revocation is never out of effect for longer. One request at a time reads the keys and
gives up after ``READ_S``. No request waits for it as long as the known keys may be accepted.
"""

from __future__ import annotations

import asyncio
import logging
import time

from api.access.keys import ANYONE, Caller, KeyRow, Role, mint, now_us, prefix_of
from api.access.store import KeyStore, SqlKeyStore
from api.journal.model import StorageError
from api.logs import Seldom
from api.settings import Settings

__all__ = ["OUTAGE_S", "READ_S", "STALE_S", "KeyCache", "start"]

STALE_S = 2.0
OUTAGE_S = 60.0
READ_S = 5.0

_log = logging.getLogger("api.access")

_NO_KEY, _ = mint(role=Role.READ, scope=(), now_us=0, expires_us=0)


class KeyCache:
    """Recognises callers by the keys in memory.

    Args:
        store: where the keys are.
        required: whether a request needs a key; if not, everyone may do everything.
    """

    def __init__(self, store: KeyStore, *, required: bool) -> None:
        self.store = store
        self.required = required
        self._rows: dict[str, KeyRow] = {}
        self._read_at = self._tried_at = float("-inf")
        self._reading = asyncio.Lock()
        self._last_used_us: dict[str, int] = {}
        self._failing = Seldom(_log)

    async def recognise(self, token: str | None) -> Caller | None:
        """Return the caller that this key proves, or None if it proves none or there is no key.

        An unknown prefix takes as long as a known one with the wrong secret.

        Raises:
            StorageError: the keys could not be read for longer than ``OUTAGE_S``.
        """
        if not self.required:
            return ANYONE
        prefix = None if token is None else prefix_of(token)
        if token is None or prefix is None:
            return None
        await self._refresh()
        now = now_us()
        row = self._rows.get(prefix, _NO_KEY)
        if not row.proves(token, now):
            return None
        self._last_used_us[prefix] = now
        return row.caller(token)

    async def still(self, caller: Caller, stream: str) -> bool:
        """Return whether the recognised key is still valid and permits the stream. It is not where
        the keys could not be read for longer than ``OUTAGE_S``.
        """
        if caller.prefix is None or caller.digest is None:
            return not self.required
        try:
            await self._refresh()
        except StorageError:
            return False
        row = self._rows.get(caller.prefix, _NO_KEY)
        return row.accepts(caller.digest, now_us()) and row.sees(stream)

    async def rows(self) -> list[KeyRow]:
        """Return every key, as the store has them now."""
        await self.reload()
        return list(self._rows.values())

    def last_used_us(self, prefix: str) -> int | None:
        """Return when this process last recognised the key. It is not written to disk."""
        return self._last_used_us.get(prefix)

    async def reload(self) -> None:
        """Read the keys again, now. The result includes all that the store had before this call."""
        async with self._reading:
            await self._read()

    async def _refresh(self) -> None:
        if self._is_fresh_enough() and (self._was_just_tried() or self._reading.locked()):
            return
        async with self._reading:
            if self._was_just_tried():
                if self._is_fresh_enough():
                    return
                raise StorageError("the keys could not be read a moment ago")
            try:
                await self._read()
            except StorageError as error:
                self._failing.say(logging.ERROR, "the keys could not be read again: %s", error)
                if not self._is_fresh_enough():
                    raise
            else:
                self._failing.over()

    async def _read(self) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(READ_S):
                rows = await self.store.all()
        except (TimeoutError, StorageError) as error:
            self._tried_at = time.monotonic()
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"the keys were not read within {READ_S:g} s") from None
        self._tried_at = time.monotonic()
        self._rows = {row.prefix: row for row in rows}
        self._read_at = began
        self._last_used_us = {
            prefix: used for prefix, used in self._last_used_us.items() if prefix in self._rows
        }

    def _was_just_tried(self) -> bool:
        return time.monotonic() - self._tried_at < STALE_S

    def _is_fresh_enough(self) -> bool:
        return time.monotonic() - self._read_at < OUTAGE_S


async def start(settings: Settings, store: SqlKeyStore) -> KeyCache:
    """Open the keys of a database and decide, for as long as the application runs, whether a
    request needs one. The setting ``auth`` decides. Without it a request needs a key beyond
    loopback, and on loopback as soon as there is any key when the application starts.
    """
    await store.create()
    minted = bool(await store.all())
    required = settings.requires_keys or (settings.auth is None and minted)
    if required and not minted:
        _log.warning("there is no key yet, and every request needs one: `python -m api keys mint`")
    if not required:
        _log.warning(
            "no key is asked for: whoever reaches %s can read, post and delete", settings.host
        )
    return KeyCache(store, required=required)
