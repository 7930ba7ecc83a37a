"""The spool's files: whole or not there, whatever was cut, and never dropped without a word."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decaysketch.client.errors import ClientError, SpoolInUseError
from decaysketch.client.spool import Interval, LogRecord, Spool

RECORDS = [
    LogRecord(b"first", None), LogRecord(b"", Interval(0, 5)), LogRecord(b"x" * 300, Interval(5, 9))
]  # fmt: skip
ENDS = [0, 29, 53, 377]  # of these records in the log


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


def reopened(spool: Spool) -> Spool:
    spool.close()
    return Spool(spool.directory)


def test_is_of_one_sensor_at_a_time(spool: Spool) -> None:
    with pytest.raises(SpoolInUseError, match="in use"):
        Spool(spool.directory)
    reopened(spool).close()


def test_deltas_outlive_the_process_in_their_order(spool: Spool) -> None:
    given_ = [spool.add(b"one"), spool.add(b"three", Interval(3, 7)), spool.add(b"two!")]
    assert [delta.size for delta in given_] == [3, 5, 4]
    spool.remove(given_[0])
    again = reopened(spool)
    assert again.deltas == given_[1:]
    assert [again.read(delta) for delta in again.deltas] == [b"three", b"two!"]
    assert again.size == 9
    assert again.add(b"").number > given_[-1].number


def test_what_was_set_aside_is_kept_beside_the_reason(spool: Spool) -> None:
    refused, torn = spool.add(b"refused"), spool.add(b"torn")
    spool.reject(refused, {"status": 422, "detail": "because"})
    spool.set_damaged(torn, "no sketch")
    assert spool.deltas == []
    assert (spool.rejected, spool.damaged, spool.size) == (1, 1, 11)
    again = reopened(spool)
    assert (again.rejected, again.damaged, again.deltas) == (1, 1, [])
    [body] = (again.directory / "rejected").glob("*.sketch")
    assert body.read_bytes() == b"refused"
    assert json.loads(Path(f"{body}.json").read_bytes()) == {"status": 422, "detail": "because"}
    assert again.add(b"").number > torn.number  # names are not used again


def test_leftovers_of_a_crash_are_cleared_and_strangers_are_set_aside(spool: Spool) -> None:
    (spool.directory / "deltas" / "000000000009.tmp").write_bytes(b"half")
    (spool.directory / "deltas" / "holiday.jpg").write_bytes(b"?")
    again = reopened(spool)
    assert again.deltas == []
    assert again.damaged == 1
    assert (again.directory / "damaged" / "holiday.jpg").read_bytes() == b"?"
    assert not list(again.directory.rglob("*.tmp"))


def test_card(spool: Spool) -> None:
    assert spool.read_card() is None
    spool.write_card({"stream": "s"})
    assert spool.read_card() == {"stream": "s"}
    for bad in ("{", "[]"):
        (spool.directory / "sensor.json").write_text(bad)
        with pytest.raises(ClientError, match=r"sensor\.json is damaged"):
            spool.read_card()


def test_log_gives_back_what_was_appended(spool: Spool) -> None:
    for record, end in zip(RECORDS, ENDS[1:], strict=True):
        spool.append(record)
        assert spool.log_size == end
    again = reopened(spool)
    assert again.read_log() == (RECORDS, False)
    again.clear_log()
    assert (again.read_log(), again.size) == (([], False), 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(length=st.integers(0, ENDS[-1]), flipped=st.none() | st.integers(0, ENDS[-1] * 8 - 1))
def test_log_that_was_cut_or_changed(
    tmp_path_factory: Any, length: int, flipped: int | None
) -> None:
    """Every record before the fault is read; the rest is kept for whoever wants to look."""
    spool = Spool(tmp_path_factory.mktemp("spool"))
    for record in RECORDS:
        spool.append(record)
    path = spool.directory / "open.log"
    content = bytearray(path.read_bytes()[:length])
    whole = max(k for k, end in enumerate(ENDS) if end <= length)
    broken = length not in ENDS
    if flipped is not None and flipped // 8 < length:
        content[flipped // 8] ^= 1 << flipped % 8
        whole = min(whole, max(k for k, end in enumerate(ENDS) if end <= flipped // 8))
        broken = True
    path.write_bytes(content)
    again = reopened(spool)
    assert again.read_log() == (RECORDS[:whole], broken)
    assert again.damaged == broken
    if broken:
        [kept] = (again.directory / "damaged").glob("log-*[0-9]")
        assert kept.read_bytes() == bytes(content)[ENDS[whole] :]
    again.close()


def fail(*_: Any) -> None:
    raise OSError("no space left")


def test_log_that_was_emptied_is_empty_whatever_comes_after(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.append(RECORDS[0])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="no space"):
            spool.clear_log()
    spool.append(RECORDS[1])
    assert reopened(spool).read_log() == ([RECORDS[1]], False)


@pytest.mark.parametrize("call", ["write", "directory"])
def test_delta_that_could_not_be_kept_leaves_nothing(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Neither half of a file nor one that this process does not know of."""
    with monkeypatch.context() as patch:
        if call == "write":
            patch.setattr(os, "fsync", fail)
        else:
            patch.setattr("decaysketch.client.spool._sync_directory", fail)
        with pytest.raises(OSError, match="no space"):
            spool.add(b"one", Interval(0, 3))
    assert list((spool.directory / "deltas").iterdir()) == []
    assert (spool.deltas, spool.size) == ([], 0)


def test_what_people_cleared_is_counted_no_more(spool: Spool) -> None:
    spool.reject(spool.add(b"refused"), {})
    spool.keep_damaged(b"torn", "no sketch")
    for path in (spool.directory / "rejected").iterdir():
        path.unlink()
    assert (spool.rejected, spool.size) == (1, 11)
    spool.measure_set_aside()
    assert (spool.rejected, spool.damaged, spool.size) == (0, 1, 4)


def test_append_that_failed_leaves_nothing(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError("no space left")

    spool.append(RECORDS[0])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="no space"):
            spool.append(RECORDS[2])
    spool.append(RECORDS[1])
    assert reopened(spool).read_log() == (RECORDS[:2], False)
