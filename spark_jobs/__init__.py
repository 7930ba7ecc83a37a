"""Spark programs: build sketches from a delivery log, merge them, post them to the aggregator.

Driver code only. The executor code is in :mod:`decaysketch.tables`, because Spark ships an
importable function by its name, and an executor has the library but not this folder.
"""
