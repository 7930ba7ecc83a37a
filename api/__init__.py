"""The aggregator: streams of sketches in, decayed answers out, over HTTP.

A sketch is a join-semilattice, so the service is small: a post is decoded and checked, written to a
journal on disk, acknowledged, and folded into the merged sketch of its (stream, source); a stream
answers from the join of its sources. Folding is idempotent and commutative, therefore re-posting,
reordering and replaying the journal after a crash all end in the same bytes. That holds for every
family of sketches; posts of elements that a source numbered itself are kept apart by a ledger.

This package holds no algorithm; it checks, stores and translates.

- ``settings``: what an operator may choose
- ``schemas`` / ``queries``: what travels, as pydantic models
- ``errors``: every refusal as an RFC 9457 problem; the one table from exception to status
- ``store``: the journal and the ledger, on disk
- ``families``: what is asked of any kind of sketch
- ``streams``: the merged sketches, in memory
- ``routes`` / ``app``: HTTP
"""

from __future__ import annotations

from api.app import create_app
from api.settings import Settings

__all__ = ["Settings", "create_app"]
