"""A file that grows, is renamed, cut back, half written, and a reader that may die at any time."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from decaysketch.errors import DecaySketchError
from decaysketch.ingest.bridge.tail import Tail, place_of


class Log:
    """A log file, and readers of it, one after the other."""

    def __init__(self, folder: Path, most: int = 1000) -> None:
        self.path = folder / "readings.ndjson"
        self.place = place_of(folder / "spool", self.path)
        self.most = most
        self.tail = self.reader()

    def reader(self) -> Tail:
        return Tail(self.path, self.place, "t/1", self.most)

    def write(self, text: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)

    def read(self, most: int = 1000) -> list[str]:
        """Lines up to where there are none for now; all of them are taken."""
        found: list[str] = []
        while got := self.tail.read(most):
            assert len(got) <= most
            assert all(each.message.topic == "t/1" for each in got)
            found += [each.message.body.decode() for each in got]
            self.tail.keep_place()
        return found

    def die(self) -> None:
        self.tail.close()
        self.tail = self.reader()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.tail.close()


def test_lines_are_read_as_they_come_and_none_before_its_end(log: Log) -> None:
    assert log.read() == []  # it is not there yet
    log.write("a\n\n  b \r\nhal")
    assert log.read(most=1) == ["a", "b"]
    assert log.read() == []
    log.write("f\n")
    assert log.read() == ["half"]


def test_what_was_taken_is_not_read_again(log: Log) -> None:
    log.write("a\nb\nhalf")
    assert log.read(most=1) == ["a", "b"]
    log.die()
    assert log.read() == []
    log.write(" a line\nc\n")
    got = log.tail.read(1)  # taken, and its place is not kept
    assert [each.message.body for each in got] == [b"half a line"]
    log.die()
    assert log.read() == ["half a line", "c"]


def test_a_file_that_was_renamed_is_read_to_its_end(log: Log) -> None:
    log.write("a\n")
    assert log.read() == ["a"]
    log.write("b\nlast")
    log.path.rename(log.path.with_suffix(".ndjson.1"))
    log.write("c\n")
    assert log.read() == ["b", "last", "c"]
    log.die()
    assert log.read() == []


def test_so_is_one_that_was_renamed_while_nobody_read(log: Log) -> None:
    log.write("a\n")
    assert log.read() == ["a"]
    log.tail.close()
    log.write("b\n")
    log.path.rename(log.path.with_suffix(".ndjson.1"))
    log.write("c\n")
    log.die()
    assert log.read() == ["b", "c"]


def test_of_several_that_were_renamed_none_is_left_out(log: Log) -> None:
    log.write("a\n")
    assert log.read() == ["a"]
    log.tail.close()
    for number, line in enumerate("bcd"):
        log.write(f"{line}\n")
        os.utime(log.path, ns=(0, 10**9 * (number + 1)))
        log.path.rename(log.path.with_suffix(f".ndjson.{9 - number}"))
    log.write("e\n")
    log.path.with_suffix(".ndjson.0.gz").write_bytes(b"\x1f\x8b")
    log.die()
    assert log.read() == ["b", "c", "d", "e"]


def test_one_that_is_gone_is_said_to_be(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.write("a\n")
    assert log.read() == ["a"]
    log.tail.close()
    log.path.unlink()
    log.write("another beginning\n")
    with caplog.at_level(logging.WARNING):
        log.die()
    assert "is missing, read up to byte 2" in caplog.text
    assert log.read() == ["another beginning"]


def test_one_that_was_cut_back_is_read_from_its_beginning(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.write("a\nb\nc\n")
    assert log.read() == ["a", "b", "c"]
    os.truncate(log.path, 0)
    log.write("d\n")
    assert log.read() == ["d"]
    assert "was truncated from 6 bytes to 2" in caplog.text


def test_a_number_that_was_given_again_is_no_place(log: Log) -> None:
    """Of another file, which is longer than the first one was."""
    log.write("a\n")
    assert log.read() == ["a"]
    log.tail.close()
    with log.path.open("r+b") as file:  # the same inode
        file.write(b"other\nlines\n")
    log.die()
    assert log.read() == ["other", "lines"]


def test_a_line_that_is_too_long_is_one_message(log: Log) -> None:
    log.most = 10
    log.die()
    log.write("a\n" + "x" * 3_000_000 + "\nb\n" + "y" * 11 + "\n")
    assert log.read() == ["a", "x" * 11, "b", "y" * 11]
    log.die()
    assert log.read() == []


def test_a_place_that_is_none_is_named(log: Log) -> None:
    for text in ("", "{}", '{"inode": "x", "offset": 1, "head": ""}', "[1]"):
        log.place.parent.mkdir(exist_ok=True)
        log.place.write_text(text)
        with pytest.raises(DecaySketchError, match="move it away"):
            log.reader()


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_no_line_is_left_out(log: Log, seed: int) -> None:
    """Lines are written in pieces, the file is renamed, the reader dies; lines may come twice."""
    draw = random.Random(seed)
    written = "".join(f"line-{k}-{'z' * draw.randint(0, 30)}\n" for k in range(200))
    expected, at, renamed = written.split(), 0, 0
    found: list[str] = []
    while at < len(written):
        piece = draw.randint(1, 60)
        log.write(written[at : at + piece])
        at += piece
        if draw.random() < 0.4:
            got = log.tail.read(draw.randint(1, 20))
            found += [each.message.body.decode() for each in got]
            if draw.random() < 0.7:
                log.tail.keep_place()
        if draw.random() < 0.1:
            log.die()
        if written[at - 1 : at] == "\n" and draw.random() < 0.5:
            while got := log.tail.read(1000):  # a rotation that waits for its reader
                found += [each.message.body.decode() for each in got]
            log.tail.keep_place()
            renamed += 1
            log.path.rename(log.path.with_suffix(f".ndjson.{renamed}"))
    found += log.read()
    assert list(dict.fromkeys(found)) == expected
