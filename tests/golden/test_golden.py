"""Bytes that were published: they are read, and written again, for ever.

Each ``vN/FAMILY/NAME.dsk`` has a ``NAME.json`` that says what is in it. New cases are added by
``make.py``; none is ever changed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asyncwindow import wire_reference
from ecm import wire_reference as ecm_reference
from extremes import wire_reference as extremes_reference
from golden import make
from golden.cases import TABLE, cases
from series import wire_reference as series_reference
from support.examples import states_of
from support.records import tuples_of
from wire import reference

import decaysketch as ds
from decaysketch import families
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.ecm.state import CollectionState
from decaysketch.families import FAMILIES
from decaysketch.integral import wire as integral_wire
from decaysketch.querytime import wire
from decaysketch.querytime.strata_state import StrataState
from quality.examples import forms

FILES = sorted(make.DIRECTORY.glob("*/*.dsk"))


class Golden:
    """One case: the bytes, and what the JSON beside them says."""

    def __init__(self, path: Path) -> None:
        self.family, self.blob = path.parent.name, path.read_bytes()
        self.said: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
        self.recipe = make.recipe_said(self.family, self.said)
        self.embedded: bool = self.said.get("embed_params", True)

    @property
    def written(self) -> Any:
        """The sketch, from the JSON alone."""
        return make.sketch_said(self.family, self.said)


def goldens(*names: str) -> Any:
    chosen = [path for path in FILES if path.parent.name in names]
    of = [pytest.param(Golden(path), id=f"{path.parent.name}-{path.stem}") for path in chosen]
    return pytest.mark.parametrize("golden", of)


def test_there_are_golden_files() -> None:
    assert {(path.parent.name, path.stem) for path in FILES} == {
        (case.family, case.name) for case in cases()
    }


@goldens(*FAMILIES)
class TestOfEveryFamily:
    def test_bytes_decode_to_what_is_written_beside_them(self, golden: Golden) -> None:
        read = golden.recipe.decode(golden.blob)
        for state, said in zip(states_of(read), states_of(golden.written), strict=True):
            if isinstance(state, CollectionState):
                assert state.told == said.told
                digests = [[entry.digest for entry in each.entries] for each in (state, said)]
                assert digests[0] == digests[1]
                continue
            for name in type(state).__dataclass_fields__:
                theirs = getattr(said, name)
                if name in ("records", "attributes", "strata"):
                    rows = [
                        None if each is None else tuples_of(each)
                        for each in (theirs, getattr(state, name))
                    ]
                    assert rows[0] == rows[1]
                    continue
                if name == "labels":
                    assert (state.labels and state.labels.texts) == (theirs and theirs.texts)
                    continue
                np.testing.assert_array_equal(getattr(state, name), theirs, err_msg=name)
        assert read.params == golden.recipe.params
        assert read.digest() == golden.said["digest"]
        assert getattr(read, "clock", None) == golden.said.get("clock")

    def test_what_is_written_beside_them_encodes_to_the_bytes(self, golden: Golden) -> None:
        at = 0 if golden.embedded else 1
        assert forms(golden.written)[at] == golden.blob
        assert forms(golden.recipe.decode(golden.blob))[at] == golden.blob

    def test_they_are_read_by_those_who_know_nothing_where_they_say_all(
        self, golden: Golden
    ) -> None:
        key = {"id_key": getattr(golden.recipe.params, "id_key", None)}
        tabled = golden.recipe.decay == TABLE
        if golden.embedded:
            decay = TABLE if tabled else None
            assert families.decode(golden.blob, decay=decay, **key) == golden.written
        if tabled or not golden.embedded:
            with pytest.raises(ds.IncompatibleSketchError, match="given"):
                families.decode(golden.blob)

    def test_a_header_is_read_without_a_row(self, golden: Golden) -> None:
        head = families.peek(golden.blob)
        assert head.family == golden.family
        assert head.capacity == golden.recipe.params.capacity
        rows = [len(state) for state in states_of(golden.written)]
        if "objectives" in golden.said["params"]:  # one number for the rows of either sample
            assert head.rows[0] == head.rows[1]
            assert max(rows) <= head.rows[0] <= sum(rows)
        else:
            assert list(head.rows) == rows


def test_the_script_would_change_no_golden_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert make.main() == 0
    assert capsys.readouterr().out == ""


# ----------------------------------------------------------- the specification in plain Python


@goldens("decay")
def test_the_specification_gives_the_golden_bytes(golden: Golden) -> None:
    blob = reference.blob_of(*golden.written.states(), embed_params=golden.embedded)
    assert blob.to_bytes() == golden.blob


@goldens("sum", "median")
def test_the_specification_of_the_samplers_gives_the_golden_bytes(golden: Golden) -> None:
    assert wire_reference.blob_of(golden.written.state()).to_bytes() == golden.blob


@goldens("extremes")
def test_the_specification_of_extremes_gives_the_golden_bytes(golden: Golden) -> None:
    written = golden.written
    empty = type(written)(written.params).to_bytes(embed_params=golden.embedded)
    assert extremes_reference.blob_of(written.state(), empty).to_bytes() == golden.blob


@goldens("series")
def test_the_specification_of_series_gives_the_golden_bytes(golden: Golden) -> None:
    written, params = golden.written, golden.recipe.params
    empty = type(written)(params).to_bytes(embed_params=golden.embedded)
    # Behind the capacity an empty sketch has the resolution, no watermark, no row, the checksum.
    own = series_reference.own_parameters(params.resolution, params.attributes)
    opening = empty[: -6 - len(own)]
    state = written.state()
    attributes = None if state.attributes is None else tuples_of(state.attributes)
    rows = list(zip(*(column.tolist() for column in state.columns), strict=True))
    blob = series_reference.blob_of(
        rows, state.watermarks.tolist(), opening + own, params.value_type == "float64", attributes
    )
    assert blob == golden.blob


@goldens("ecm")
def test_the_specification_of_collections_reads_the_golden_bytes(golden: Golden) -> None:
    found = ecm_reference.read(golden.blob)
    assert found["fingerprint"].hex() == golden.said["fingerprint"]
    assert (found["kept"], found["told"]) == (golden.said["kept"], golden.said["told"])
    for entry, said in zip(found["entries"], golden.said["entries"], strict=True):
        for name in ("source", "epoch", "clock", "too_late", "moved", "merges", "slack"):
            assert entry.get(name, 0) == said[name]
        assert [list(each) for each in entry["held"]] == said["held (time, word, weight)"]
        for lane, of in zip(entry["lanes"], said["lanes"], strict=True):
            assert (lane["first"], lane["clock"]) == (of["first"], of["clock"])
            for cells, (ones, _, times) in zip(
                lane["layers"], of["layers (ones, old ranks, times)"], strict=True
            ):
                assert [n for n, _ in cells] == [n for row in ones for n in row]
                assert [time for _, by_rank in cells for time in by_rank.values()] == times


@goldens("decay")
def test_the_specification_derives_the_golden_levels(golden: Golden) -> None:
    derived = reference.Derived(golden.said["params"], golden.recipe.params.id_key)
    assert derived.fingerprint.hex() == golden.said["fingerprint"]
    for state in golden.written.states():
        rows = zip(state.ids.tolist(), state.weights.tolist(), state.levels.tolist(), strict=True)
        for id_, weight, level in list(rows)[:20]:
            assert derived.top_level(id_, weight, state.copy) == level


@goldens("decay")
def test_a_golden_header_is_read_without_the_secret(golden: Golden) -> None:
    header = wire.peek(golden.blob)
    assert (header.version, header.family) == (1, wire.FAMILY)
    assert header.fingerprint == golden.recipe.params.fingerprint
    assert header.params == (golden.recipe.params.to_dict() if golden.embedded else None)
    for copy, state in zip(header.copies, golden.written.states(), strict=True):
        assert copy.newest == (state.times[0] if len(state) else None)
        marks = state.watermarks.tolist()
        if isinstance(state, StrataState):  # each stratum has its own, behind the header
            marks = []
        assert list(copy.watermarks) == [mark for mark in marks if mark != NO_WATERMARK]
    assert header.optional_flags == 0


@goldens("integral")
def test_a_golden_header_names_its_decay(golden: Golden) -> None:
    header = integral_wire.peek(golden.blob)
    assert header.decay_digest.hex() == golden.said["decay digest"]
    assert header.clock == golden.said["clock"]
    if golden.embedded:
        assert json.loads(header.decay) == golden.said["decay"]


def test_the_example_in_the_specification_is_a_golden_file() -> None:
    document = Path(__file__).parents[2] / "docs" / "wire-format.md"
    example = document.read_text(encoding="utf-8").split("## 7.")[1]
    fields = re.findall(r"^\| (\d+) \| `([0-9a-f ]+)` \|", example, re.MULTILINE)
    blob = b""
    for offset, content in fields:
        assert int(offset) == len(blob)
        blob += bytes.fromhex(content)
    assert blob == (make.DIRECTORY / "decay" / "one_row.dsk").read_bytes()
