"""Roads in: messages and bodies of other people's formats become observations of a stream.

One core for all roads, whether a server takes a body or a bridge takes messages from a broker:

1. A *map* (:class:`~decaysketch.ingest.mapping.Map`, one class for each format) says what of a
   message is a reading of one stream: a stream holds one measurement. The bridge has maps in a TOML
   file, each with the name of its stream; a server has those of a stream under ``ingest`` of the
   request that creates it, and the schema is the same: ``{"map": [{"format": ..., ...}, ...]}``.
2. A *parser*, one module for each format, turns bytes into
   :class:`~decaysketch.ingest.readings.Parsed`: ``readings``, what was ``refused`` and what was
   ``skipped``. It is pure, raises nothing for what a stranger sends, and takes linear time.
3. :func:`~decaysketch.ingest.columns.to_columns` turns readings into the columns that rows of all
   roads are checked in, and :func:`~decaysketch.ingest.columns.check` checks these: ids are hashed
   there, and a row that no sketch would take is refused there, alone.

Two things are told apart throughout. *Refused* is what is ours by the map and wrong: whoever sent
it hears of it, with the place and the reason. *Skipped* is what is not ours: it is counted by one
of a few words, and nobody hears of it.

An id never has the time of arrival in it, nor anything else that differs between two copies of a
message; a reading without a time of its own is refused.

To add a format: a module with a subclass of ``Map`` and its parser, and one line in
:mod:`decaysketch.ingest.formats`. Nothing here knows HTTP or MQTT. ``mapping`` needs pydantic; the
parsers and the columns do not.
"""
