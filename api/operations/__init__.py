"""What an operator has a process or its database do, apart from serving requests.

- ``keys``, ``backup``, ``offline``: the database looked after, from the command line
- ``starting``: a start, and one that fails
- ``signals``, ``orphan``: told to stop, or left alone by the process that started this one
"""
