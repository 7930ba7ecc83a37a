"""Who may do what: keys, roles, scopes and rates.

- ``keys``: what a key is, how it is made and recognised
- ``store``: where keys are kept; only digests of them are
- ``ring``: the keys in memory, a little behind the store
- ``guard``: what each route asks of a caller
- ``pages``: what a request tells of the page or proxy it came by, where no key is asked for
- ``rates``: how often a caller may ask
- ``cli``: keys from the command line, for whoever has the database
"""

from __future__ import annotations

from api.access.guard import Administers, Creates, Reads, Writes
from api.access.keys import Caller, Role
from api.access.ring import KeyRing, start
from api.access.store import SqlKeyStore

__all__ = [
    "Administers",
    "Caller",
    "Creates",
    "KeyRing",
    "Reads",
    "Role",
    "SqlKeyStore",
    "Writes",
    "start",
]
