"""The common part of all column engines, without an engine: Arrow in, Arrow out.

Spark, DuckDB and polars call the same functions (:mod:`~decaysketch.tables.sql.queries`,
:mod:`~decaysketch.tables.sql.aggregates`) under the same names, which follow from the query
table. An engine only adds the transfer of columns. Needs pyarrow.
"""
