"""Who may do what: keys, roles, scopes and rates. Nothing here knows of requests.

- ``keys``: what a key is, how it is made and recognised
- ``store``: where keys are kept; only digests of them are
- ``cache``: the keys in memory, a little behind the store
- ``rates``: how often a caller may ask
"""

from __future__ import annotations

from api.access.cache import KeyCache, start
from api.access.keys import Caller, Role
from api.access.store import SqlKeyStore

__all__ = ["Caller", "KeyCache", "Role", "SqlKeyStore", "start"]
