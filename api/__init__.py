"""The aggregator: streams of sketches in, decayed answers out, over HTTP.

A sketch is a join-semilattice, so merging needs no order, no lock and no memory of what came
before: a post is decoded and checked, written to a journal on disk, acknowledged, and merged
afterwards. Re-posting, reordering, replaying the journal after a crash, and several processes over
one database all end in the same bytes. Posts of elements that a source numbered itself are kept
apart by a ledger.

This package holds no algorithm of sketches; it checks, stores and translates.

Its parts, each of which imports from those above it:

- ``errors``, ``schemas``, ``families``: what is refused, what travels, kinds of sketches
- ``journal``: what is on disk, and the transactions that change it
- ``settings``, ``logs``: what an operator chooses and reads
- ``access``: who may do what
- ``service``: streams in memory, kept together with the journal
- ``ingest``, ``queries``: what is sent and asked, checked
- ``monitors``, ``relay``: what is watched and told, and passed on to another aggregator
- ``http``, ``routes``, ``page``: from a connection to an answer
- ``operations``, ``app``: the process and its database looked after; all of it put together
"""
