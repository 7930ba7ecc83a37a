"""The whole job once, in front of your eyes: ``python -m demo`` (or ``make demo``).

A delivery log (simulated, or your own) goes through Spark into one small sketch per gateway, the
sketches go over HTTP to a freshly started aggregator, and the aggregator answers decayed counts,
sums, means and quantiles. Beside every answer stands the exact one, computed by polars without this
library, and the naive one, which counts every copy. At the end everything is posted again,
shuffled, twice: nothing may change, byte for byte.

- ``reading`` / ``columns``: a log of any form, looked at first; rows that cannot be counted
- ``clocks``: how late the deliveries of each path are, and whose clock disagrees
- ``simulate``: a sensor network that delivers at least once, late and by several paths
- ``exact``: what an analyst would have computed from every message exactly once
- ``questions``: which times, decays and aggregates are asked
- ``case``: one log with all of that
- ``service``: the Spark jobs, the aggregator process and its HTTP face
- ``replicas``: the same questions to sketches of other seeds, in this process
- ``scores``: do the intervals hold the truth, and are they honest about their width
- ``report`` / ``picture``: the tables and the figure
- ``walkthrough``: all of it, in order
"""
