"""The aggregator: streams of sketches in, decayed answers out, over HTTP.

A sketch is a join-semilattice, so merging needs no order, no lock and no memory of what came
before: a post is decoded and checked, written to a journal on disk, acknowledged, and merged
afterwards. Re-posting, reordering, replaying the journal after a crash, and several processes over
one database all end in the same bytes. Posts of elements that a source numbered itself are kept
apart by a ledger.

This package holds no algorithm of sketches; it checks, stores and translates.

- ``settings``, ``logs``, ``metrics``, ``backup``, ``stopping``: what an operator sees
- ``journal``: what is on disk, and the transactions that change it
- ``families``, ``pile``, ``streams``: the merged sketches, in memory
- ``follower``, ``compactor``, ``aggregator``: keeping memory and disk together
- ``ingest``, ``queries``: what is sent and asked, checked
- ``access``, ``middleware``, ``errors``: who may, how much, and every refusal as a problem
- ``routes``, ``page``, ``app``: HTTP
"""
