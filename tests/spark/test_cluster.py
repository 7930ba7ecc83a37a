"""A job on a standalone cluster: its workers have the wheel, and nothing of the driver's checkout.

A master and a worker on the loopback interface, from the jars of pyspark; the wheel is unpacked
into a folder that only the executors' ``PYTHONPATH`` names, and the job is submitted from another
folder. What comes back has the bytes of a build in this process.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from delivery_logs import delivery_log

import decaysketch as ds
from decaysketch.tables import ColumnMapping, sketches_by_key
from quality.ports import free_port

PROJECT = Path(__file__).resolve().parents[2]
PARAMS = ds.SketchParams(max_weight=1, id_bits=48, capacity=40, seed=9, time_unit="us")
MAPPING = ColumnMapping(
    time="event_us", fallback_time="arrival_us", ids=("source", "msg"), value="value",
    time_unit="us",
)  # fmt: skip
SECONDS_TO_START = 1800.0

JOB = """
    import os
    import sys

    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    import decaysketch as ds
    from decaysketch.tables import ColumnMapping
    from decaysketch.spark.build import sketch_table
    from decaysketch.spark.settings import session_settings

    master, log, out, executors_path = sys.argv[1:]
    builder = SparkSession.builder.master(master).appName("cluster test")
    settings = session_settings() | {
        "spark.executorEnv.PYTHONPATH": executors_path,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": os.environ["JVM"],
        "spark.executor.extraJavaOptions": os.environ["JVM"],
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    session = builder.config(map=settings).getOrCreate()
    params = ds.SketchParams(max_weight=1, id_bits=48, capacity=40, seed=9, time_unit="us")
    mapping = ColumnMapping(
        time="event_us", fallback_time="arrival_us", ids=("source", "msg"), value="value",
        time_unit="us",
    )
    sketch_table(session, log, params, mapping, ["path"], tasks=3).write.parquet(out)


    def where(batches):
        import os

        import decaysketch
        import pyarrow as pa

        for batch in batches:
            rows = batch.num_rows
            places = [[decaysketch.__file__] * rows, [os.getcwd()] * rows]
            yield pa.RecordBatch.from_arrays([pa.array(p) for p in places], ["library", "folder"])


    [found] = session.range(0, 1, 1, 1).mapInArrow(where, "library string, folder string").collect()
    print("library", found.library)
    print("folder", found.folder)
    session.stop()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built by the installed backend: nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    command = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", command, str(folder)], cwd=PROJECT, check=True, capture_output=True
    )
    [path] = folder.glob("*.whl")
    return path


def _wait_for(text: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while text not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"no {text!r} in what it wrote:\n{log.read_text(errors='replace')}")
        time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a master with one worker, in processes of their own and in another folder."""
    from importlib.util import find_spec

    from spark_jobs.java import JavaNotFoundError, find_java_home

    try:
        java_home = find_java_home()
    except JavaNotFoundError as fault:
        pytest.skip(str(fault))
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    folder = tmp_path_factory.mktemp("cluster")
    environment = {
        "HOME": str(folder),
        "JAVA_HOME": str(java_home),
        "PATH": os.environ["PATH"],
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": _java_options(),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    web = ["--webui-port", "0", "--host", "127.0.0.1"]
    commands = {
        "master": [f"{package}.master.Master", "--port", str(port), *web],
        "worker": [f"{package}.worker.Worker", "--cores", "2", "--memory", "1g", *web, address],
    }
    signs = {"master": "I have been elected leader", "worker": "Successfully registered"}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, arguments in commands.items():
            log = folder / f"{name}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [str(home / "bin" / "spark-class"), *arguments],
                    cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT,
                )  # fmt: skip
            started.append(process)
            _wait_for(signs[name], log, process)
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=600)


@pytest.mark.spark
def test_executors_need_the_wheel_and_nothing_else(
    cluster: str, wheel: Path, tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    log = delivery_log(2_000)
    want = sketches_by_key(log, PARAMS, MAPPING, ["path"])
    pq.write_table(log, tmp_path / "log.parquet", row_group_size=300)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "job.py").write_text(textwrap.dedent(JOB))
    environment = {
        **os.environ,
        "JAVA_HOME": str(_java_home()),
        "JVM": _java_options(),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(PROJECT),  # of the driver alone
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    out = tmp_path / "out"
    arguments = [cluster, str(tmp_path / "log.parquet"), str(out), str(installed)]
    job = subprocess.run(
        [sys.executable, "job.py", *arguments],
        cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert job.returncode == 0, job.stderr[-4_000:]
    told = dict(line.split(" ", 1) for line in job.stdout.splitlines() if " " in line)
    assert Path(told["library"]).is_relative_to(installed)
    assert not Path(told["folder"]).is_relative_to(elsewhere)
    rows = pq.read_table(out).to_pylist()
    assert {(row["path"],): row["sketch"] for row in rows} == {
        key: sketch.to_bytes() for key, sketch in want.items()
    }
    assert sum(row["rows"] for row in rows) == 2_000


def _java_home() -> Path:
    from spark_jobs.java import find_java_home

    return find_java_home()


def _java_options() -> str:
    """Of all four JVMs, each of which does little: the quick compiler, classes that are kept."""
    from spark_jobs.archive import archive_options

    return shlex.join(["-XX:TieredStopAtLevel=1", *archive_options()])
