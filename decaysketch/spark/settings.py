"""Settings of a Spark session under which its workers find this library."""

from __future__ import annotations

import os
import sys

__all__ = ["session_settings"]

_ROWS_PER_ARROW_BATCH = 1 << 17  # Spark's 10,000 would make a sketch's updates needlessly small


def session_settings(*, python: str | None = None) -> dict[str, str]:
    """Return the settings of a Spark session under which its workers find this library.

    They go into the session's configuration: ``SparkSession.builder.config(map=...)``,
    ``spark-submit --conf``, or a cluster's page. All executors need the library.

    A session that this process starts reads the workers' interpreter only from the environment
    variable ``PYSPARK_PYTHON``. Otherwise it runs any ``python3``, which is unlikely to have the
    library. So this function sets that variable too, unless it is set or ``python`` names another.

    Args:
        python: the interpreter of the executors, of the driver's version, at the same place on
            every machine. None: the one in ``PYSPARK_PYTHON``, or else this one.
    """
    if python is not None:
        os.environ["PYSPARK_PYTHON"] = python
    interpreter = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {
        "spark.pyspark.python": interpreter,
        "spark.executorEnv.PYSPARK_PYTHON": interpreter,
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ROWS_PER_ARROW_BATCH),
        # Spark's default is nanoseconds in 96 bits, which some readers end in the year 2262.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
