"""Thresholds on streams that are watched while sites post rarely, and who is told.

- ``webhooks``: where an alert may be sent, and one request to there
- ``outbox``: alerts that are to be sent, in the database until they are

The protocol is the library's (:mod:`decaysketch.monitor`); here are rows, requests and clocks.
"""
