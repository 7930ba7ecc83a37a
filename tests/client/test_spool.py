"""The spool's files: whole or not there, whatever was cut, and never dropped without a word."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decaysketch.client.errors import SpoolInUseError
from decaysketch.client.spool import Gap, Interval, LogRecord, Spool
from decaysketch.core.codec.reading import MAGIC

RECORDS = [
    LogRecord(MAGIC + b"first", None),
    LogRecord(MAGIC, Interval(0, 5)),
    LogRecord(MAGIC + b"x" * 300, Interval(5, 9)),
    LogRecord(MAGIC + MAGIC, None),
]
ENDS = [0, 33, 61, 389, 421]  # of these records in the log
CARD = {
    "stream": "s", "source": "a", "numbered": False, "recipe": {"family": "decay"},
    "next_number": None,
}  # fmt: skip


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
    spool.write_card(CARD)
    assert spool.read_card() == CARD
    assert spool.damaged == 0
    assert json.loads((spool.directory / "sensor.json").read_bytes())["stream"] == "s"


def test_card_of_an_earlier_release_is_read(spool: Spool) -> None:
    (spool.directory / "sensor.json").write_text(json.dumps(CARD, indent=1))
    assert spool.read_card() == CARD


@pytest.mark.parametrize("name", ["sensor.json", "sensor.copy.json"])
def test_card_that_is_damaged_is_read_from_its_copy(tmp_path: Path, name: str) -> None:
    """Whichever byte of one of them has a bit turned, and wherever it ends."""
    said: list[str] = []
    spool = Spool(tmp_path / "spool", said.append)
    spool.write_card(CARD)
    path = spool.directory / name
    sound = path.read_bytes()
    flipped = (
        sound[:place] + bytes([sound[place] ^ 1 << place % 8]) + sound[place + 1 :]
        for place in range(len(sound))
    )
    damaged = 0
    for bad in (*(sound[:length] for length in range(len(sound))), *flipped):
        path.write_bytes(bad)
        said.clear()
        assert spool.read_card() == CARD
        if said:  # else it says the same in other words, such as another kind of space
            damaged += 1
            assert spool.damaged == damaged
    assert damaged > 1.5 * len(sound)
    path.unlink(missing_ok=True)
    assert spool.read_card() == CARD


def test_log_gives_back_what_was_appended(spool: Spool) -> None:
    for record, end in zip(RECORDS, ENDS[1:], strict=True):
        spool.append(record)
        assert spool.log_size == end
    again = reopened(spool)
    assert again.read_log() == (RECORDS, [])
    again.clear_log()
    assert (again.read_log(), again.size) == (([], []), 0)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(length=st.integers(0, ENDS[-1]), flipped=st.none() | st.integers(0, ENDS[-1] * 8 - 1))
def test_log_that_was_cut_or_changed(
    tmp_path_factory: Any, length: int, flipped: int | None
) -> None:
    """Every record that is whole is read; the others are kept for whoever wants to look."""
    spool = Spool(tmp_path_factory.mktemp("spool"))
    for record in RECORDS:
        spool.append(record)
    path = spool.directory / "open.log"
    content = bytearray(path.read_bytes()[:length])
    whole = [k for k, end in enumerate(ENDS[1:]) if end <= length]
    if flipped is not None and flipped // 8 < length:
        content[flipped // 8] ^= 1 << flipped % 8
        whole = [k for k in whole if not ENDS[k] <= flipped // 8 < ENDS[k + 1]]
    path.write_bytes(content)
    again = reopened(spool)
    records, gaps = again.read_log()
    assert records == [RECORDS[k] for k in whole]
    lost = sorted(set(range(length)) - {i for k in whole for i in range(ENDS[k], ENDS[k + 1])})
    assert [i for gap in gaps for i in range(*gap)] == lost
    assert again.damaged == len(gaps)
    kept = [path.read_bytes() for path in (again.directory / "damaged").glob("log-*[0-9]")]
    assert sorted(kept) == sorted(bytes(content[gap.start : gap.end]) for gap in gaps)
    again.close()


def test_search_for_the_next_sound_record_is_bounded(spool: Spool) -> None:
    """Bytes that look like the beginnings of records everywhere."""
    head = (1 << 20).to_bytes(4, "little") + bytes(20)
    content = (head + MAGIC) * 100_000
    (spool.directory / "open.log").write_bytes(content)
    again = reopened(spool)
    assert again.read_log() == ([], [Gap(0, len(content))])


def test_what_was_set_aside_is_not_written_over_by_a_later_process(spool: Spool) -> None:
    for number in range(3):
        spool.keep_damaged(bytes([number]), "no sketch")
        (spool.directory / "deltas" / "holiday.jpg").write_bytes(bytes([number]))
        spool = reopened(spool)
    assert spool.damaged == 6
    kept = [path.read_bytes()[-1] for path in (spool.directory / "damaged").glob("[hl]*[0-9g]")]
    assert sorted(kept) == [0, 0, 1, 1, 2, 2]


# ------------------------------------------------------------------------- who else may have it


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))}


def test_nobody_else_may_read_it(spool: Spool) -> None:
    spool.write_card(CARD)
    spool.append(RECORDS[0])
    spool.reject(spool.add(b"refused"), {})
    spool.keep_damaged(b"torn", "no sketch")
    spool.add(b"waits")
    assert modes(spool.directory) == {0}


def test_what_an_earlier_release_left_open_is_closed(spool: Spool) -> None:
    spool.write_card(CARD)
    (spool.directory / "sensor.json").chmod(0o644)
    (spool.directory / "deltas").chmod(0o755)
    assert modes(reopened(spool).directory) == {0}


def test_removed_lock_lets_nobody_else_in(spool: Spool) -> None:
    """As a cleaner of old temporary files removes it."""
    (spool.directory / "lock").unlink()
    with pytest.raises(SpoolInUseError, match="in use by another sensor"):
        Spool(spool.directory)
    spool.add(b"one")
    assert (spool.directory / "lock").exists()


def test_removed_lock_is_noticed_where_folders_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def of_files_only(file: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError("bad file descriptor")
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", of_files_only)
    said: list[str] = []
    spool = Spool(tmp_path / "spool", said.append)
    (spool.directory / "lock").unlink()
    spool.add(b"one")
    assert len(said) == 1
    assert "was removed" in said[0]
    with pytest.raises(SpoolInUseError):
        Spool(spool.directory)  # it was taken again
    (spool.directory / "lock").unlink()
    other = Spool(spool.directory)
    for write in (
        lambda: spool.add(b"two"),
        lambda: spool.append(RECORDS[0]),
        lambda: spool.write_card(CARD),
        lambda: spool.clear_log(),
        lambda: spool.remove(spool.deltas[0]),
        lambda: spool.reject(spool.deltas[0], {}),
    ):
        with pytest.raises(SpoolInUseError, match="in use by another sensor"):
            write()
    assert [other.read(delta) for delta in other.deltas] == [b"one"]


def test_folder_that_was_moved_away_is_noticed(spool: Spool) -> None:
    """Else a log would be written that nobody finds."""
    spool.directory.rename(spool.directory.with_name("away"))
    with pytest.raises(SpoolInUseError, match="was moved or removed"):
        spool.append(RECORDS[0])
    Spool(spool.directory).close()
    with pytest.raises(SpoolInUseError, match="was moved or removed"):
        spool.append(RECORDS[0])


def test_removed_log_and_folders_are_made_again(tmp_path: Path) -> None:
    said: list[str] = []
    spool = Spool(tmp_path / "spool", said.append)
    spool.append(RECORDS[0])
    (spool.directory / "open.log").unlink()
    for name in ("deltas", "rejected", "damaged"):
        (spool.directory / name).rmdir()
    spool.append(RECORDS[1])
    spool.reject(spool.add(b"one"), {})
    assert len(said) == 1
    assert "the sensor wrote it again" in said[0]
    again = reopened(spool)
    assert (again.read_log(), again.rejected) == ((RECORDS[:2], []), 1)


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
    assert reopened(spool).read_log() == ([RECORDS[1]], [])


@pytest.mark.parametrize("call", ["write", "directory"])
def test_delta_that_could_not_be_kept_leaves_nothing(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Neither half of a file nor one that this process does not know of."""
    with monkeypatch.context() as patch:
        if call == "write":
            patch.setattr(os, "fsync", fail)
        else:
            patch.setattr("decaysketch.client.files.sync_directory", fail)
        with pytest.raises(OSError, match="no space"):
            spool.add(b"one", Interval(0, 3))
    assert list((spool.directory / "deltas").iterdir()) == []
    assert (spool.deltas, spool.size) == ([], 0)


def test_what_people_cleared_is_counted_no_more(spool: Spool) -> None:
    spool.reject(spool.add(b"refused"), {})
    spool.keep_damaged(b"torn", "no sketch")
    for path in (spool.directory / "rejected").iterdir():
        path.unlink()
    assert (spool.rejected, spool.size) == (1, 35)
    spool.measure_set_aside()
    assert (spool.rejected, spool.damaged, spool.size) == (0, 1, 28)


def test_append_that_failed_leaves_nothing(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError("no space left")

    spool.append(RECORDS[0])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="no space"):
            spool.append(RECORDS[2])
    spool.append(RECORDS[1])
    assert reopened(spool).read_log() == (RECORDS[:2], [])
