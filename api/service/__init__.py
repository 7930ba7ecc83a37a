"""The service itself: streams of sketches in memory, kept together with the journal. No HTTP.

- ``aggregator``: one process's view of the streams, which routes ask and post to
- ``streams``, ``merging``: the merged sketches, and what waits to be merged into them
- ``drafts``, ``committer``, ``writability``: posts into the journal, and whether it takes them
- ``follower``, ``compactor``: what the journal holds into memory, and the journal kept short
- ``budget``, ``admission``, ``memory``: rows in memory, whether more fit, and the bytes they take
- ``threads``, ``turns``, ``background``: where work is done, whose is next, what goes on by itself
- ``observer``, ``metrics``, ``replacements``: what happens, and who counts it
- ``clock``: what time it is in the unit of a stream
"""
