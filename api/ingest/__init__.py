"""Raw observations, for devices too small to build sketches: bodies in, columns and sketches out.

:mod:`~api.ingest.json_rows` or :mod:`~api.ingest.arrow` reads a body into columns.
:mod:`decaysketch.ingest.columns` checks it row by row. :mod:`~api.ingest.building` makes it a
complete sketch, posted like any other. :mod:`~api.ingest.checks` rejects times in the future.
"""
