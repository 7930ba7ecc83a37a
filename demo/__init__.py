"""The complete demonstration: ``python -m demo`` (or ``make demo``).

A delivery log (simulated, or your own) goes through Spark into one small sketch per gateway, the
sketches go over HTTP to a freshly started aggregator, and the aggregator returns decayed counts,
sums, means and quantiles. Next to each result the demonstration shows the exact one, computed by
polars without this library, and the naive one with every duplicate counted. At the end it posts
everything again, shuffled, twice, and checks that no byte changes.

- ``reading`` / ``columns``: read and check a log in any format, reject invalid rows
- ``clocks``: the delay of each path's deliveries, and wrong clocks
- ``simulate``: a sensor network that delivers at least once, late and by several paths
- ``exact``: exact results from every message once
- ``questions``: times, decays and aggregates of the queries
- ``case``: one log with all of these
- ``service``: the Spark jobs, the aggregator process and its HTTP interface
- ``replicas``: the same queries to sketches with other seeds, in this process
- ``scores``: how often intervals contain the exact result, and their width
- ``report`` / ``picture``: the tables and the figure
- ``walkthrough``: all steps, in order
"""
