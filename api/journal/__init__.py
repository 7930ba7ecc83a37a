"""What is on disk, and the transactions that change it.

- ``model``: rows, as values
- ``storage``: what is asked of a database, one statement at a time
- ``log``: the transactions: append, compact, and changes of the catalog
- ``sql``: SQLite and PostgreSQL
- ``urls``: which databases there are

Rows of the journal carry numbers in the order of their commits: a writer holds the head of the
journal, one row of one table, from taking numbers to committing. Whoever reads one number can
therefore read every smaller one, which a sequence of the database does not promise: its numbers are
drawn before the commit and become visible out of order. A number is never used twice.
"""
