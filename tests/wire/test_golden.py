"""Bytes that were published: they are read, and written again, for ever.

Each ``golden/vN/NAME.dsk`` has a ``NAME.json`` that says what is in it. New cases are added by
``make_golden.py``; none is ever changed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wire import make_golden, reference

from decaysketch.core.observations import encode_values
from decaysketch.core.params import SketchParams
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.querytime import wire
from decaysketch.querytime.state import SketchState, digest_of

MISSING = -(2**63)
FILES = sorted(make_golden.DIRECTORY.glob("*.dsk"))


class Golden:
    """One case: the bytes, and what the JSON beside them says."""

    def __init__(self, path: Path) -> None:
        self.blob = path.read_bytes()
        self.said: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
        self.id_key = bytes.fromhex(self.said["id_key"]) if self.said["id_key"] else None
        self.params = SketchParams.from_dict(self.said["params"], id_key=self.id_key)
        self.embedded: bool = self.said["embed_params"]
        several = self.params.copies > 1
        of_copies = [f" of copy {k}" if several else "" for k in range(self.params.copies)]
        self.watermarks = [self.said[f"watermarks{name}"] for name in of_copies]
        self.rows = [
            [tuple(row) for row in self.said[f"rows{name} (time, id, weight, level, value)"]]
            for name in of_copies
        ]

    def states(self) -> list[SketchState]:
        """The states, from the JSON alone."""
        return [self._state(copy) for copy in range(self.params.copies)]

    def _state(self, copy: int) -> SketchState:
        rows = self.rows[copy]
        times, ids, weights, levels, values = zip(*rows, strict=True) if rows else [()] * 5
        keys = [
            MISSING if v is None else int(encode_values([v], self.params.value_type)[0])
            for v in values
        ]
        watermarks = np.full(self.params.levels + 1, NO_WATERMARK)
        watermarks[: len(self.watermarks[copy])] = self.watermarks[copy]
        columns = (np.array(c, dtype=np.int64) for c in (keys, weights, times, ids))
        return SketchState(self.params, *columns, np.array(levels, dtype=np.int8), watermarks, copy)

    def decoded(self) -> tuple[SketchState, ...]:
        if self.embedded:
            return wire.decode(self.blob, id_key=self.id_key)
        return wire.decode(self.blob, params=self.params)


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def test_there_are_golden_files() -> None:
    assert {path.stem for path in FILES} == {case.name for case in make_golden.cases()}


def test_golden_bytes_decode_to_what_is_written_beside_them(golden: Golden) -> None:
    states = golden.decoded()
    for state, said in zip(states, golden.states(), strict=True):
        for name in ("times", "ids", "weights", "value_keys", "levels", "watermarks", "copy"):
            np.testing.assert_array_equal(getattr(state, name), getattr(said, name), err_msg=name)
        assert state.params == golden.params
    assert digest_of(states) == golden.said["digest"]


def test_what_is_written_beside_them_encodes_to_the_golden_bytes(golden: Golden) -> None:
    assert wire.encode(*golden.states(), embed_params=golden.embedded) == golden.blob


def test_the_specification_in_plain_python_gives_the_golden_bytes(golden: Golden) -> None:
    blob = reference.blob_of(*golden.states(), embed_params=golden.embedded)
    assert blob.to_bytes() == golden.blob


def test_the_specification_derives_the_golden_levels(golden: Golden) -> None:
    derived = reference.Derived(golden.said["params"], golden.id_key)
    assert derived.fingerprint.hex() == golden.said["fingerprint"]
    for copy, rows in enumerate(golden.rows):
        for _, id_, weight, level, _ in rows[:20]:
            assert derived.top_level(id_, weight, copy) == level


def test_a_golden_header_is_read_without_the_secret(golden: Golden) -> None:
    header = wire.peek(golden.blob)
    assert header.version == 1
    assert header.family == wire.FAMILY
    assert header.fingerprint == golden.params.fingerprint
    assert header.params == (golden.params.to_dict() if golden.embedded else None)
    assert header.capacity == golden.params.capacity
    assert header.rows == sum(map(len, golden.rows))
    for copy, rows, watermarks in zip(header.copies, golden.rows, golden.watermarks, strict=True):
        assert copy.rows == len(rows)
        assert copy.newest == (rows[0][0] if rows else None)
        assert list(copy.watermarks) == watermarks
    assert header.optional_flags == 0


def test_the_example_in_the_specification_is_a_golden_file() -> None:
    document = Path(__file__).parents[2] / "docs" / "wire-format.md"
    example = document.read_text(encoding="utf-8").split("## 7.")[1]
    fields = re.findall(r"^\| (\d+) \| `([0-9a-f ]+)` \|", example, re.MULTILINE)
    blob = b""
    for offset, content in fields:
        assert int(offset) == len(blob)
        blob += bytes.fromhex(content)
    assert blob == (make_golden.DIRECTORY / "one_row.dsk").read_bytes()


def test_the_script_would_change_no_golden_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert make_golden.main() == 0
    assert capsys.readouterr().out == ""
