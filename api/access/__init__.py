"""Permissions: keys, roles and scopes. Nothing here knows about requests.

- ``keys``: the form of a key, how it is made and recognised, and the keys in memory
- ``store``: where key digests are stored
"""

from __future__ import annotations

import logging

from api.access.keys import Caller, KeyCache, Role
from api.access.store import SqlKeyStore
from api.settings import Settings

__all__ = ["Caller", "KeyCache", "Role", "SqlKeyStore", "start"]

_log = logging.getLogger(__name__)


async def start(settings: Settings, store: SqlKeyStore) -> KeyCache:
    """Open the keys of a database and decide, for as long as the application runs, whether a
    request needs one. The setting ``auth`` decides. Without it a request needs a key beyond
    loopback, and on loopback as soon as there is any key when the application starts.
    """
    await store.create()
    minted = bool(await store.all())
    required = settings.requires_keys or (settings.auth is None and minted)
    if required and not minted:
        _log.warning(
            "every request needs a key, and there is none yet: create one with `python "
            "-m api keys mint`"
        )
    if not required:
        _log.warning(
            "requests need no key: anybody who can connect to %s can read, post and delete",
            settings.host,
        )
    return KeyCache(store, required=required)
