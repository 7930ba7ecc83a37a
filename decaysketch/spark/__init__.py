"""Sketches in Apache Spark: build, store, stream, and query them in SQL. Needs pyspark."""

from __future__ import annotations

from decaysketch.spark.functions import register

__all__ = ["register"]
