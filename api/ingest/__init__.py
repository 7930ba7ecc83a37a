"""Raw observations, for devices too thin to build sketches: bodies in, columns and sketches out.

A body is read by :mod:`~api.ingest.json_rows` or :mod:`~api.ingest.arrow` into columns, checked row
by row in :mod:`decaysketch.ingest.columns`, and made a complete sketch by
:mod:`~api.ingest.building`, which is posted like any other. :mod:`~api.ingest.skew` refuses times
that lie in the future.
"""
