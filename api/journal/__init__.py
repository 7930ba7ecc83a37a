"""The data on disk, and the transactions that change it.

- ``model``: rows, as values
- ``storage``: the statements that a database must support, one at a time
- ``log``: the transactions: append, compact, and changes of the catalog
- ``sql``: SQLite and PostgreSQL
- ``urls``: the supported databases

Rows of the journal carry numbers in the order of their commits. A writer locks the head of the
journal, one row of one table, from taking numbers to committing. A reader of one number can
therefore read every smaller one. A sequence of the database does not guarantee that: its numbers
are drawn before the commit and become visible out of order. A number is never used twice.
"""
