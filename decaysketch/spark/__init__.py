"""Sketches in Apache Spark: built, stored, streamed, and asked in SQL. Needs pyspark."""

from __future__ import annotations

from decaysketch.spark.functions import register

__all__ = ["register"]
