"""What every engine of columns asks of sketches, with no engine in it: Arrow in, Arrow out.

Spark, DuckDB and polars call the same functions (:mod:`~decaysketch.engines.questions`,
:mod:`~decaysketch.engines.aggregates`) under the same names, which follow from the table of
questions; what an engine adds is how it hands over columns. Needs pyarrow.
"""
