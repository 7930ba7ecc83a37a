"""Spark's classes kept in a file: which one a session uses, and that it does without."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs import archive


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "folder" / "classes.jsa"
    monkeypatch.setattr(archive, "_path", lambda: path)
    return path


def test_a_session_uses_an_archive_that_holds_something(kept: Path) -> None:
    assert archive.archive_options() == []
    kept.parent.mkdir()
    kept.touch()
    assert archive.archive_options() == []
    kept.write_bytes(b"classes")
    assert archive.archive_options()[0] == f"-XX:SharedArchiveFile={kept}"


@pytest.mark.parametrize("written", [b"classes", None])
def test_it_is_made_once(
    kept: Path, monkeypatch: pytest.MonkeyPatch, written: bytes | None
) -> None:
    """By a JVM that writes it as it ends, and by one that has no archive to build on."""
    runs: list[str] = []

    def run_a_job() -> None:
        option = archive.archive_options()[0]
        runs.append(option)
        if written is not None:
            Path(option.removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(written)

    monkeypatch.setattr(archive, "_run_a_job", run_a_job)
    archive.make_archive()
    archive.make_archive()
    assert len(runs) == 1
    assert kept.read_bytes() == (written or b"")
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_it_is_of_this_java_and_this_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = archive._path()
    monkeypatch.setattr(archive, "find_java_home", lambda: tmp_path)
    assert archive._path() != here
    assert archive._path().parent == here.parent
