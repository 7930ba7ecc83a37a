"""Protocols: messages and bodies in other formats become observations of a stream.

All protocols share one core, in the server and in the bridge:

1. A *mapping* (:class:`~decaysketch.ingest.mapping.Map`, one class for each format) defines which
   part of a message is a reading of one stream. A stream contains one measurement. The bridge has
   mappings in a TOML file, each with the name of its stream. A server has the mappings of a stream
   under ``ingest`` in the request that creates it. The schema is the same:
   ``{"map": [{"format": ..., ...}, ...]}``.
2. A *parser*, one module for each format, turns bytes into
   :class:`~decaysketch.ingest.readings.Parsed`: ``readings``, ``refused`` and ``skipped``. It is
   pure, never raises for untrusted input, and takes linear time.
3. :func:`~decaysketch.ingest.columns.to_columns` turns readings into columns, the common form for
   all protocols. :func:`~decaysketch.ingest.columns.check` checks them. It hashes ids, and rejects
   single rows that no sketch would accept.

Parsers distinguish two cases. *Refused* data match the mapping and have a fault. The source
receives the place and the reason. *Skipped* data do not match. They are counted under one of a few
words, and not reported.

An id never contains the time of arrival, nor anything else that differs between duplicates of a
message. A reading without a time of its own is rejected.

To add a format, write a module with a subclass of ``Map`` and its parser, and add one line to
:mod:`decaysketch.ingest.formats`. Nothing here depends on HTTP or MQTT. ``mapping`` needs pydantic.
The parsers and the columns do not.
"""
