"""The settings of a session are enough: its workers run the Python that has the library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from decaysketch.spark.settings import session_settings
from spark_jobs.java import JavaNotFoundError, find_java_home

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
from shlex import quote
from spark_jobs.archive import archive_options
from spark_jobs.java import ensure_java
ensure_java()
from pyspark.sql import SparkSession
import decaysketch as ds
from decaysketch.spark import functions as F
from decaysketch.spark.settings import session_settings

settings = session_settings() | {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Nothing of what is shown here: the JVM starts in less time.
    "spark.driver.extraJavaOptions": " ".join(
        ["-XX:TieredStopAtLevel=1", *map(quote, archive_options())]
    ),
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
params = ds.SketchParams(max_weight=1, id_bits=48, capacity=500)
built = spark.range(60).agg(F.sketch_build(params, "id", "id", "id").alias("s"))
print("answer", built.select(F.decayed_count_value("s", "none", 100)).first()[0])
"""


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("PYSPARK_PYTHON", "set, so that it is put back")
    monkeypatch.delenv("PYSPARK_PYTHON")
    return monkeypatch


def test_name_this_interpreter_unless_another_is_said(unset: pytest.MonkeyPatch) -> None:
    settings = session_settings()
    assert settings["spark.pyspark.python"] == sys.executable
    assert settings["spark.executorEnv.PYSPARK_PYTHON"] == sys.executable
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    unset.setenv("PYSPARK_PYTHON", "/opt/cluster/bin/python")
    assert session_settings()["spark.pyspark.python"] == "/opt/cluster/bin/python"
    settings = session_settings(python="/opt/other/bin/python")
    assert settings["spark.executorEnv.PYSPARK_PYTHON"] == "/opt/other/bin/python"
    assert os.environ["PYSPARK_PYTHON"] == "/opt/other/bin/python"


@pytest.mark.spark
def test_workers_find_the_library_where_python3_is_another(tmp_path: Path) -> None:
    try:
        find_java_home()
    except JavaNotFoundError as fault:
        pytest.skip(str(fault))
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho this python3 has no decaysketch >&2\nexit 1\n")
    other.chmod(0o755)
    environment = {n: v for n, v in os.environ.items() if not n.startswith("PYSPARK")}
    environment |= {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "answer 60.0" in done.stdout, done.stderr[-2_000:]
