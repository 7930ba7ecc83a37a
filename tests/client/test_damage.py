"""A spool that is damaged: the sensor starts, loses at most what was hit, and says so."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client.faults import SUM, element
from client.test_core import PARAMS, RECIPE, Server, answered, core, deliver, feed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from decaysketch.cli import app
from decaysketch.client.core import Core
from decaysketch.client.errors import SpoolInUseError
from decaysketch.client.salvage import look, recover
from decaysketch.families import decode, merge, recipe_of

NUMBERED: dict[str, Any] = {"recipe": recipe_of(SUM), "numbered": True}
DELTAS, RECORDS, ROWS = 2, 3, 10  # sealed, then synced; of so many rows each


def number_some(one: Core) -> None:
    for _ in range(ROWS):
        place = one.status().next_number
        assert place is not None
        value, time = element(place)
        one.update({"values": value, "timestamps": time}, named_by="sequence")


def fill(spool: Path, **options: Any) -> None:
    one = core(spool, **options)
    for part in range(DELTAS + RECORDS):
        if options:
            number_some(one)
        else:
            feed(one, range(ROWS * part, ROWS * part + ROWS))
        one.seal() if part < DELTAS else one.sync()
    one.store.spool.close()  # killed


@pytest.fixture(scope="module")
def spools(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """One of observations and one of numbered elements, as a killed process left them."""
    folder = tmp_path_factory.mktemp("spools")
    fill(folder / "a")
    fill(folder / "b", **NUMBERED)
    return {False: folder / "a", True: folder / "b"}


def arrived(server: Server, numbered: bool) -> set[int]:
    if numbered:
        return {number for interval in server.ledger for number in range(*interval)}
    return set(server.merged().state().ids.tolist()) if server.sketches else set()


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
    max_examples=150,
)
@given(st.booleans(), st.integers(0, 4), st.floats(0, 1, exclude_max=True), st.integers(-1, 7))
def test_any_damage_to_any_file_costs_at_most_what_was_hit(
    spools: dict[bool, Path], tmp_path_factory: Any,
    numbered: bool, which: int, place: float, bit: int,
) -> None:  # fmt: skip
    """A bit that is turned or, where it is -1, an end that is missing."""
    spool = tmp_path_factory.mktemp("damaged") / "spool"
    shutil.copytree(spools[numbered], spool)
    files = [spool / "sensor.json", spool / "sensor.copy.json", spool / "open.log"]
    files += sorted((spool / "deltas").iterdir())
    path = files[which]
    sound = path.read_bytes()
    content = bytearray(sound)
    at = int(place * len(content))
    if bit < 0:
        del content[at:]
    else:
        content[at] ^= 1 << bit
    path.write_bytes(content)

    events: list[str] = []
    server = Server(NUMBERED["recipe"] if numbered else RECIPE)
    one = core(
        spool, recipe=None, numbered=numbered, on_event=lambda event: events.append(event.kind)
    )
    assert one.known  # without a server
    deliver(one, server)
    status = one.status()
    one.close()
    lost = set(range(ROWS * (DELTAS + RECORDS))) - arrived(server, numbered)
    if path.name == "open.log" and bit < 0:
        assert lost == set(range(ROWS * (5 - len(lost) // ROWS), 50))  # the end, and no more
    elif path.name == "open.log" or path.parent.name == "deltas":
        assert len(lost) == ROWS
    else:
        assert not lost
    assert status.rejected == 0
    assert (status.damaged == 0) == ("damaged" not in events)
    cut_between_records = bit < 0 and path.name == "open.log" and at in ends(sound)
    if lost and not cut_between_records:  # of which nothing is to be seen
        assert status.damaged >= 1


def ends(log: bytes) -> list[int]:
    """Where its records begin."""
    found = [0]
    while found[-1] < len(log):
        found.append(found[-1] + 24 + int(struct.unpack_from("<I", log, found[-1])[0]))
    return found


def spoil(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def test_empty_card_after_a_power_cut_does_not_keep_a_sensor_from_starting(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "sensor.json").write_bytes(b"")
    one, server = core(tmp_path, recipe=None), Server()
    deliver(one, server)
    assert arrived(server, numbered=False) == set(range(50))
    assert one.status().damaged == 1
    assert "sensor.json was damaged" in one.status().repaired[0]


@pytest.mark.parametrize("numbered", [False, True])
def test_card_is_rebuilt_from_what_waits(
    spools: dict[bool, Path], tmp_path: Path, numbered: bool
) -> None:
    """Neither it nor its copy is left, nor is there a server."""
    spool = tmp_path / "spool"
    shutil.copytree(spools[numbered], spool)
    (spool / "sensor.json").write_bytes(b"")
    (spool / "sensor.copy.json").unlink()
    one = core(spool, recipe=None, numbered=numbered)
    assert one.recipe == (NUMBERED["recipe"] if numbered else RECIPE)
    assert one.status().next_number == (50 if numbered else None)
    assert "read from the sketches that wait" in one.status().repaired[-1]
    one.close()
    again = core(spool, recipe=None, numbered=numbered)
    assert again.status().repaired == ()


def test_card_of_an_empty_spool_is_asked_of_the_server(tmp_path: Path) -> None:
    core(tmp_path).close()
    for name in ("sensor.json", "sensor.copy.json"):
        (tmp_path / name).write_bytes(b"{")
    one = core(tmp_path, recipe=None)
    assert not one.known
    assert "asked of the server" in one.status().repaired[-1]
    one.settle(one.look(), answered(200, {"name": "s", **RECIPE.to_dict()}))
    assert one.recipe == RECIPE


def test_missing_numbers_are_named(spools: dict[bool, Path], tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    shutil.copytree(spools[True], spool)
    spoil(spool / "open.log", ends((spool / "open.log").read_bytes())[1] + 40)
    one, server = core(spool, recipe=None, numbered=True), Server(NUMBERED["recipe"])
    assert any("numbers 30 to 39" in said for said in one.status().repaired)
    assert one.status().next_number == 50
    deliver(one, server)
    assert sorted(server.ledger) == [(0, 10), (10, 20), (20, 30), (40, 50)]


# ------------------------------------------------------------------------------- parked, read back


def park_a_tail(spool: Path) -> None:
    """As an earlier release did: one bit, and all that came after it was set aside with it."""
    fill(spool)
    spoil(spool / "open.log", 40)
    (spool / "damaged" / "log-7").write_bytes((spool / "open.log").read_bytes())
    (spool / "damaged" / "log-7.json").write_text('{"reason": "the log [/] is unreadable"}')
    (spool / "open.log").write_bytes(b"")


def test_sound_records_that_were_parked_are_recovered(tmp_path: Path) -> None:
    park_a_tail(tmp_path)
    parked = look(tmp_path)[-1]
    assert (parked.place, parked.name, parked.reason) == (
        "damaged",
        "log-7",
        "the log [/] is unreadable",
    )
    assert [found.rows for found in parked.sketches] == [10, 10]
    [done] = recover(tmp_path)
    assert done.deltas == 2
    assert done.left is not None
    assert done.left.endswith("bytes cannot be read")
    assert (tmp_path / "damaged" / "log-7").exists()
    one, server = core(tmp_path), Server()
    deliver(one, server)
    assert arrived(server, numbered=False) == {*range(20), *range(30, 50)}


def test_sketch_behind_a_damaged_head_is_recovered(tmp_path: Path) -> None:
    """It has a checksum of its own."""
    fill(tmp_path)
    spoil(tmp_path / "open.log", 5)
    one = core(tmp_path)
    with pytest.raises(SpoolInUseError):
        recover(tmp_path)
    server = Server()
    deliver(one, server)
    one.close()
    [done] = recover(tmp_path)
    assert (done.deltas, done.left) == (1, None)
    assert not list((tmp_path / "damaged").iterdir())
    again = core(tmp_path)
    deliver(again, server)
    assert arrived(server, numbered=False) == set(range(50))


def test_numbers_that_are_in_a_delta_are_not_recovered_again(tmp_path: Path) -> None:
    fill(tmp_path, **NUMBERED)
    log = tmp_path / "open.log"
    (tmp_path / "damaged" / "log-7").write_bytes(log.read_bytes())
    one = core(tmp_path, **NUMBERED)
    one.close()
    [done] = recover(tmp_path)
    assert done.deltas == 0
    assert done.left is not None
    assert "in a delta from 20 on" in done.left


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["spool", *map(str, arguments)])


def test_commands_read_parked_records_back(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    park_a_tail(spool)
    listed = json.loads(run("list", spool, "--json").stdout)
    assert listed["card"]["stream"] == "s"
    assert [(each["place"], len(each["sketches"])) for each in listed["pieces"]] == [
        ("deltas", 1), ("deltas", 1), ("damaged", 2)
    ]  # fmt: skip
    assert "log-7" in run("list", spool).stdout
    result = run("export", spool, "--out", tmp_path / "out", "--json")
    assert "bytes of the spool cannot be read" in result.stderr
    sketches = [decode(Path(each["file"]).read_bytes()) for each in json.loads(result.stdout)]
    merged = merge(sketches)
    assert set(merged.state().ids.tolist()) == {*range(20), *range(30, 50)}
    assert run("export", spool, "--out", tmp_path / "out").exit_code == 1
    [done] = json.loads(run("recover", spool, "--json").stdout)
    assert done["deltas"] == 2
    assert run("recover", tmp_path / "nothing").exit_code == 1
    assert not (tmp_path / "nothing").exists()


def test_what_was_rejected_is_tried_again_where_that_is_asked_for(tmp_path: Path) -> None:
    one = core(tmp_path)
    feed(one, np.arange(10))
    one.seal()
    one.store.waiting.reject(one.store.spool.deltas[0], {"status": 422, "detail": "not today"})
    one.close()
    assert json.loads(run("recover", tmp_path, "--json").stdout) == []
    [done] = json.loads(run("recover", tmp_path, "--rejected", "--json").stdout)
    assert (done["reason"], done["deltas"]) == ("not today", 1)
    server = Server()
    deliver(core(tmp_path), server)
    assert server.merged().params == PARAMS
    assert len(server.merged()) == 10
