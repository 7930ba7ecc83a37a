"""The service itself: streams of sketches in memory, kept consistent with the journal. No HTTP.

- ``aggregator``: one process's state of the streams, which routes query and post to
- ``streams``, ``merging``: the merged sketches, and the sketches that wait to be merged
- ``drafts``, ``committer``, ``writability``: writing posts into the journal, and whether it accepts
  them
- ``follower``, ``compactor``: reading the journal into memory, and keeping the journal short
- ``budget``, ``admission``, ``memory``: rows in memory, whether more fit, and the bytes they take
- ``threads``, ``turns``, ``background``: where work runs, its order, and periodic work
- ``observer``, ``metrics``, ``replacements``: events, and their counters
- ``clock``: the current time in the unit of a stream
"""
