"""Spark's classes as a JVM has read them, stored in a file: sessions on this machine start sooner.

A JVM that runs a small Spark job loads and checks twenty thousand classes. That is 10 of the 18 s
of processor time for such a job. ``python -m spark_jobs.archive`` runs a job and makes the JVM
store them (class data sharing, JEP 350). This costs half a minute once and 180 MB in ``.java``. A
JVM that finds a file from another version or other jars ignores it. The file is optional.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spark_jobs.java import PROJECT_ROOT, JavaNotFoundError, find_java_home

__all__ = ["archive_options", "make_archive"]

_FOLDER = PROJECT_ROOT / ".java"
_MAKING = "DECAYSKETCH_CLASSES_TO"  # in the environment of the process that makes the file
_SILENT = "-Xlog:cds*=off"  # about classes that cannot be kept, and about an archive of other jars


def archive_options() -> list[str]:
    """Return the JVM options that make Spark use the archive, if there is one."""
    if making := os.environ.get(_MAKING):
        return [f"-XX:ArchiveClassesAtExit={making}", _SILENT]
    path = _path()
    return [f"-XX:SharedArchiveFile={path}", _SILENT] if _is_held(path) else []


def make_archive() -> None:
    """Make the archive, unless there is one. If this Java makes none, write an empty file.

    Raises:
        JavaNotFoundError: there is no Java to make it with.
    """
    path = _path()
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.stem}.{os.getpid()}.jsa")
    os.environ[_MAKING] = str(draft)
    try:
        _run_a_job()
    finally:
        del os.environ[_MAKING]
    if not draft.exists():  # the runtime has no archive of its own classes to build on
        draft.touch()
    draft.replace(path)


def _is_held(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _path() -> Path:
    """Return the archive's path for this Java and this Spark, at their places."""
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    home = find_java_home()
    release = home / "release"
    version = release.read_bytes() if release.exists() else b""
    of = f"{home}\n{spark.origin}\n{Path(spark.origin).stat().st_mtime_ns}\n".encode() + version
    return _FOLDER / f"classes-{hashlib.sha256(of).hexdigest()[:16]}.jsa"


def _run_a_job() -> None:
    """Run rows through files, an exchange, Python and SQL. The JVM has ended when this returns."""
    from spark_jobs.session import spark_session

    with spark_session("classes") as session:
        out = f"{session.conf.get('spark.sql.warehouse.dir')}/rows"
        rows = session.range(1000).selectExpr("id % 7 as key", "cast(id as double) as value")
        rows.write.parquet(out)
        kept = session.read.parquet(out).groupBy("key").agg({"value": "sum"})
        kept.mapInArrow(lambda batches: batches, kept.schema).collect()
        kept.createOrReplaceTempView("kept")
        session.sql("select key, count(*) from kept group by key order by key").collect()
        gateway: Any = session.sparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    with suppress(JavaNotFoundError):
        make_archive()
