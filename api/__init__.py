"""The aggregator: an HTTP service that accepts sketches into streams and returns decayed results.

A sketch is a join-semilattice, so merging needs no order, no lock and no memory of earlier posts.
The server decodes and checks a post, writes it to a journal on disk, acknowledges it, and merges it
afterwards. Re-posting, reordering, replaying the journal after a crash, and several processes over
one database all end in the same bytes. A ledger distinguishes posts with elements that a source
numbered itself.

This package contains no sketch algorithm. It checks, stores and translates.

Its parts. Each imports only from the parts above it:

- ``errors``, ``schemas``, ``families``: rejections, request and response models, sketch families
- ``journal``: the data on disk, and the transactions that change it
- ``settings``, ``logs``: the operator's configuration, and log output
- ``access``: permissions
- ``service``: streams in memory, kept consistent with the journal
- ``ingest``, ``queries``: checks of posted data and queries
- ``monitors``, ``relay``: monitors and alerts, and forwarding to another aggregator
- ``http``, ``routes``, ``page``: from a connection to a response
- ``operations``, ``app``: care for the process and its database, and the assembled application
"""
