"""An operator's work on a process or its database, apart from serving requests.

- ``keys``, ``backup``, ``offline``: maintenance of the database, from the command line
- ``starting``: a start, and one that fails
- ``signals``, ``orphan``: a signal to stop, and the end of the parent process
"""
