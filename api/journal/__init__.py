"""The data on disk, and the transactions that change it.

- ``log``: rows, as values
- ``storage``: the statements that a database must support, one at a time
- ``log``: the transactions: append, compact, and catalog changes
- ``sql``: the statements over SQLite and PostgreSQL
- ``threads``: their transactions, each on one thread from its begin to its commit
- ``engines``: their connections
- ``urls``: the supported databases

Journal rows carry numbers in commit order. A writer locks the journal's head, one row in one table,
from taking numbers to committing. A reader of one number can therefore read every smaller one. A
database sequence does not guarantee that: its numbers are drawn before the commit and become
visible out of order. A number is never used twice.
"""
