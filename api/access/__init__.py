"""Permissions: keys, roles, scopes and rates. Nothing here knows about requests.

- ``keys``: the form of a key, and how it is made and recognised
- ``store``: where key digests are stored
- ``cache``: the keys in memory, a little behind the store
- ``rates``: request rates per caller
"""

from __future__ import annotations

from api.access.cache import KeyCache, start
from api.access.keys import Caller, Role
from api.access.store import SqlKeyStore

__all__ = ["Caller", "KeyCache", "Role", "SqlKeyStore", "start"]
