"""Bytes of the ECM-sketch: canonical, golden, and hostile ones."""

from __future__ import annotations

import json
import pickle
import random
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ecm import wire_reference
from ecm.events import SMALL, Event, built, events_in_order, feed, params
from hypothesis import given, settings
from hypothesis import strategies as st

from decaysketch.codec.fields import Reader
from decaysketch.codec.numbers import pack_numbers, read_numbers
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch, wire
from decaysketch.ecm.cells import Cells
from decaysketch.ecm.hashing import columns_of
from decaysketch.ecm.layers import Layer
from decaysketch.ecm.ranks import kept_after, kept_ranks
from decaysketch.ecm.state import ECMState
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError

GOLDEN = Path(__file__).with_name("golden.json")
FEW = settings(max_examples=40, deadline=None)


def sealed(body: bytes) -> bytes:
    return body + zlib.crc32(body).to_bytes(4, "little")


class TestNumbers:
    @FEW
    @given(st.lists(st.integers(0, (1 << 64) - 1) | st.integers(0, 3), max_size=40))
    def test_are_read_as_written(self, numbers: list[int]) -> None:
        packed = pack_numbers(np.array(numbers, np.uint64))
        reader = Reader(memoryview(packed), 0)
        assert read_numbers(reader, len(numbers), "numbers").tolist() == numbers
        assert reader.at == len(packed)

    def test_of_many_chunks_are_read_as_written(self) -> None:
        rng = np.random.default_rng(5)
        numbers = rng.integers(0, 1 << 63, 20_001) >> rng.integers(0, 63, 20_001)
        reader = Reader(memoryview(pack_numbers(numbers)), 0)
        assert (read_numbers(reader, len(numbers), "numbers") == numbers.view(np.uint64)).all()

    @FEW
    @given(st.binary(max_size=40), st.integers(0, 60))
    def test_that_are_read_are_written_so(self, packed: bytes, count: int) -> None:
        reader = Reader(memoryview(packed), 0)
        try:
            numbers = read_numbers(reader, count, "numbers")
        except CorruptSketchError:
            return
        assert pack_numbers(numbers) == packed[: reader.at]

    def test_cannot_be_more_than_bits(self) -> None:
        reader = Reader(memoryview(bytes(100)), 0)
        with pytest.raises(CorruptSketchError, match="takes a bit"):
            read_numbers(reader, 1 << 60, "numbers")


class TestRanks:
    @FEW
    @given(st.sampled_from(["wave", "eh"]), st.sampled_from([2, 3, 7]),
           st.lists(st.integers(0, 300), min_size=1, max_size=6), st.data())  # fmt: skip
    def test_are_those_that_cells_keep(
        self, kind: str, slots: int, counts: list[int], data: st.DataObject
    ) -> None:
        n = np.array(counts, np.int64)
        ranks, offsets = kept_ranks(kind, slots, n)  # type: ignore[arg-type]
        after = np.array([data.draw(st.integers(0, count)) for count in counts])
        newer = [
            int((ranks[a:b] > rank).sum())
            for a, b, rank in zip(offsets, offsets[1:], after, strict=False)
        ]
        assert kept_after(kind, slots, n, after).tolist() == newer  # type: ignore[arg-type]
        cells = Cells(Layer(0, len(n), 1, slots, False), kind, 0)  # type: ignore[arg-type]
        words = np.repeat(np.arange(len(n), dtype=np.uint64), n)
        cells.update(words, np.arange(len(words), dtype=np.int64))
        if len(words):
            found, _, starts = cells.kept()
            assert (found == ranks).all()
            assert (starts == offsets).all()


class TestGolden:
    """Bytes that were written once and for all."""

    CASES: tuple[tuple[str, Callable[[], ECMCollection]], ...] = (
        ("empty", lambda: ECMCollection(SMALL)),
        ("waves", lambda: ECMCollection(SMALL, [built(SMALL, EVENTS, source="tap", epoch=77)])),
        (
            "histograms_of_a_horizon",
            lambda: _collection(replace(SMALL, kind="eh", horizon=25, time_unit="ms")),
        ),
        ("prefixes_held_back", lambda: _collection(replace(SMALL, key_bits=7, hold=12))),
        (
            "compacted",
            lambda: ECMCollection(SMALL, [_collection(SMALL).compact(source="region", epoch=3)]),
        ),
        ("arrivals", lambda: ECMCollection(ARRIVALS, [_arrivals()])),
    )

    @pytest.mark.parametrize(("name", "make"), CASES, ids=[name for name, _ in CASES])
    def test_files_are_as_they_were(self, name: str, make: Callable[[], ECMCollection]) -> None:
        written = json.loads(GOLDEN.read_text(encoding="ascii"))[name]
        collection = make()
        assert collection.to_bytes().hex() == written["hex"]
        read = ECMCollection.from_bytes(bytes.fromhex(written["hex"]))
        assert read == collection
        assert read.digest() == written["digest"]
        assert read.params.to_dict() == written["params"]

    @pytest.mark.parametrize(("name", "make"), CASES, ids=[name for name, _ in CASES])
    def test_files_are_what_the_document_says(
        self, name: str, make: Callable[[], ECMCollection]
    ) -> None:
        """Read by section 10 of the wire format in plain Python."""
        collection = make()
        params = collection.params
        found = wire_reference.read(collection.to_bytes())
        assert found["fingerprint"] == params.fingerprint
        assert wire_reference.fingerprint_of(found["params"]) == params.fingerprint
        for field in ("width", "depth", "slots", "seed", "time_unit", "lanes", "hold", "capacity"):
            assert found["params"][field] == getattr(params, field)
        for entry, state in zip(found["entries"], collection.entries.values(), strict=True):
            assert (entry["source"], entry["epoch"]) == state.identity
            assert (entry["clock"], entry["merges"], entry["slack"]) == (
                state.clock, state.merges, state.slack,
            )  # fmt: skip
            held = state.held
            columns = (held.times.tolist(), held.words.tolist(), held.weights.tolist())
            assert entry["held"] == list(zip(*columns, strict=True))
            for lane, ours in zip(entry["lanes"], state.lanes, strict=True):
                assert (lane["clock"], lane["first"]) == (ours.clock, ours.columns.first)
                for layer, cells in zip(lane["layers"], ours.cells, strict=True):
                    ranks, times, offsets = (column.tolist() for column in cells.kept())
                    assert [n for n, _ in layer] == cells.n.ravel().tolist()
                    for k, (_, by_rank) in enumerate(layer):
                        part = slice(offsets[k], offsets[k + 1])
                        kept = dict(zip(ranks[part], times[part], strict=True))
                        assert by_rank.items() <= kept.items()
                        if params.horizon is None:
                            assert by_rank == kept
                        assert {r for r, t in kept.items() if in_reach(params, state, t)} <= set(
                            by_rank
                        )


def test_columns_are_what_the_document_says() -> None:
    words = np.array([0, 1, 12345, (1 << 64) - 1, 1 << 63], np.uint64)
    for layer in replace(SMALL, key_bits=64, fanout_bits=16, depth=3).layers[1:]:
        columns = columns_of(words, layer, SMALL.seed).tolist()
        for row, found in enumerate(columns):
            assert found == [
                wire_reference.column(word, layer.shift, row, layer.width, SMALL.seed)
                for word in words.tolist()
            ]


def in_reach(params: ECMParams, state: ECMState, time: int) -> bool:
    assert state.clock is not None
    return params.horizon is None or time >= state.clock - params.horizon


EVENTS = [Event(k * k % 11, 5 * k // 3, 1 + k % 4) for k in range(40)]
ARRIVALS = replace(SMALL, clock="arrivals", time_unit="arrivals")


def _collection(params: ECMParams) -> ECMCollection:
    north = built(params, EVENTS[:30], source="north", epoch=1)
    feed(north, [Event(3, 20), Event(4, 9), Event(3, 60)])  # into other lanes
    south = built(params, EVENTS[10:], source=12, epoch=(1 << 64) - 1)
    return ECMCollection(params, [north, south])


def _arrivals() -> ECMSketch:
    sketch = ECMSketch(ARRIVALS, source="tap", epoch=0)
    sketch.update(["a", "b", "a", "c"] * 9)
    return sketch


class TestHostile:
    def blobs(self) -> list[bytes]:
        return [make().to_bytes() for _, make in TestGolden.CASES]

    def test_mutations_are_refused_or_are_what_they_encode_to(self) -> None:
        """With a checksum that is right, so that what stands behind it is what is looked at."""
        rng = random.Random(11)
        accepted = refused = 0
        for blob in self.blobs():
            for _ in range(120):
                body = bytearray(blob[:-4])
                for _ in range(rng.choice([1, 1, 2, 5])):
                    at = rng.randrange(16, len(body))
                    match rng.randrange(4):
                        case 0:
                            body[at] ^= 1 << rng.randrange(8)
                        case 1:
                            body[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
                        case 2:
                            del body[at : at + rng.randrange(1, 9)]
                        case _:
                            body[at:at] = rng.randbytes(rng.randrange(1, 9))
                    if len(body) < 20:
                        break
                mutated = sealed(bytes(body))
                try:
                    found = ECMCollection.from_bytes(mutated)
                except (CorruptSketchError, IncompatibleSketchError):
                    refused += 1
                else:
                    accepted += 1
                    assert found.to_bytes() == mutated
                    for state in found.entries.values():  # cells that take what was accepted
                        ECMSketch.from_state(state)
        assert refused > 500
        assert accepted > 20

    def test_no_byte_may_be_missing(self) -> None:
        for blob in self.blobs():
            for length in range(0, len(blob) - 4, 7):
                with pytest.raises(CorruptSketchError):
                    ECMCollection.from_bytes(sealed(blob[:length]))

    def test_little_bytes_take_little_memory(self) -> None:
        """Of large cells, one of which counted very much."""
        large = ECMParams(width=63, depth=1, slots=1 << 12)
        sketch = ECMSketch(large, source=0, epoch=0)
        sketch.update(1, 10, (1 << 61) - 1)
        blob = sketch.to_bytes()
        with pytest.raises(IncompatibleSketchError, match="params: 'not given' != 'needed"):
            ECMCollection.from_bytes(blob)
        tracemalloc.start()
        for cut in (blob[:-104], blob[:-4] + bytes(3000), blob[:40]):
            with pytest.raises(CorruptSketchError):
                ECMCollection.from_bytes(sealed(cut), params=large)
        collection = ECMCollection.from_bytes(blob, params=large)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 300 * len(blob)
        assert collection.digest() == ECMCollection(large, [sketch]).digest()
        assert pickle.loads(pickle.dumps(sketch)) == sketch

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda states: states[::-1], "by source and epoch"),
            (lambda states: [states[0], states[0]], "by source and epoch"),
        ],
    )
    def test_entries_stand_in_order(
        self, change: Callable[..., list[object]], message: str
    ) -> None:
        collection = _collection(SMALL)
        entries = list(collection.entries.values())
        blob = _written(SMALL, change(entries))
        with pytest.raises(CorruptSketchError, match=message):
            ECMCollection.from_bytes(blob)

    def test_an_entry_past_the_horizon_is_none_of_a_collection(self) -> None:
        params = replace(SMALL, horizon=10)
        states = [
            built(params, [Event(1, time)], source=source).state()
            for source, time in (("a", 10), ("b", 30))
        ]
        with pytest.raises(CorruptSketchError, match="horizon"):
            ECMCollection.from_bytes(_written(params, states))

    def test_of_another_stream_are_told_by_what_differs(self) -> None:
        blob = built(SMALL, EVENTS).to_bytes()
        with pytest.raises(IncompatibleSketchError, match="width: 6 != 5") as caught:
            ECMSketch.from_bytes(blob, params=replace(SMALL, width=6))
        assert caught.value.fields == {"width": (6, 5)}

    def test_more_entries_than_one_are_no_sketch(self) -> None:
        with pytest.raises(CorruptSketchError, match="2 entries"):
            ECMSketch.from_bytes(_collection(SMALL).to_bytes())


def _written(params: ECMParams, states: list[object], kept: int | None = None) -> bytes:
    """In the order that is given."""
    body = wire.fields.begin(wire.FAMILY, params, embed_params=False)  # type: ignore[arg-type]
    wire._put_params(body, params)
    wire.fields.put_varint(body, len(states))
    wire.fields.put_varint(body, sum(map(len, states)) if kept is None else kept)  # type: ignore[arg-type]
    body.append(0)
    for state in states:
        wire._put_state(body, state)  # type: ignore[arg-type]
    return wire.fields.seal(body)


class TestHorizon:
    @FEW
    @given(params(), events_in_order(), st.integers(0, 1500), st.data())
    def test_leaves_every_answer_within_it_as_it_was(
        self, params: ECMParams, events: list[Event], horizon: int, data: st.DataObject
    ) -> None:
        params = replace(params, horizon=horizon)
        sketch = built(params, events)
        restored = ECMSketch.from_bytes(sketch.to_bytes())
        if not events:
            return
        start = events[-1].time - data.draw(st.integers(0, horizon))
        for ours, theirs in zip(sketch.state().lanes, restored.state().lanes, strict=True):
            for cells, others in zip(ours.cells, theirs.cells, strict=True):
                for one, other in zip(cells.grid(start), others.grid(start), strict=True):
                    assert (one == other).all()
                assert (cells.values(start) == others.values(start)).all()

    def test_makes_bytes_of_old_events_few(self) -> None:
        rng = np.random.default_rng(3)
        times = np.sort(rng.integers(0, 1_000_000, 20_000))
        keys = rng.integers(0, 500, 20_000)
        sizes = {}
        for horizon in (None, 1000):
            sketch = ECMSketch(
                ECMParams(width=55, depth=3, slots=10, horizon=horizon), source=0, epoch=0
            )
            sketch.update(keys, times)
            sizes[horizon] = len(sketch.to_bytes())
        assert sizes[1000] < 0.35 * sizes[None], sizes


def test_peek_reads_parameters_and_how_many_entries_there_are() -> None:
    header = wire.peek(_collection(SMALL).to_bytes())
    assert header.params == SMALL
    assert header.entries == 2
    assert header.kept == len(_collection(SMALL))
    assert header.told is None
