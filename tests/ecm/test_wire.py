"""Bytes of the ECM-sketch: canonical, golden, and hostile ones."""

from __future__ import annotations

import json
import pickle
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ecm import wire_reference
from ecm.events import SMALL, Event, built, events_in_order, feed, params
from hypothesis import given, settings
from hypothesis import strategies as st

from decaysketch.core.codec import writing
from decaysketch.core.codec.numbers import pack_numbers, read_numbers
from decaysketch.core.codec.reading import Reader
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch, _native, wire
from decaysketch.ecm.cells import Cells
from decaysketch.ecm.hashing import columns_of
from decaysketch.ecm.levels import Layer
from decaysketch.ecm.retention import kept_after, kept_ranks
from decaysketch.ecm.state import CollectionState, ECMState
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError
from quality.damage import damaged, recipes

GOLDEN = Path(__file__).with_name("golden.json")
FEW = settings(max_examples=40, deadline=None)


def sealed(body: bytes) -> bytes:
    return body + zlib.crc32(body).to_bytes(4, "little")


class TestNumbers:
    @FEW
    @given(st.lists(st.integers(0, (1 << 64) - 1) | st.integers(0, 3), max_size=40))
    def test_are_read_as_written(self, numbers: list[int]) -> None:
        packed = pack_numbers(np.array(numbers, np.uint64))
        assert _native.pack_column(np.array(numbers, np.uint64)) == packed
        reader = Reader(memoryview(packed), 0)
        assert read_numbers(reader, len(numbers), "numbers").tolist() == numbers
        assert reader.at == len(packed)

    def test_of_many_chunks_are_read_as_written(self) -> None:
        rng = np.random.default_rng(5)
        numbers = rng.integers(0, 1 << 63, 20_001) >> rng.integers(0, 63, 20_001)
        assert _native.pack_column(numbers.view(np.uint64)) == pack_numbers(numbers)
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
                    assert rewritten(found.entries.values()) == bytes(body)[entries_at(blob) :]
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
        self, change: Callable[..., list[ECMState]], message: str
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


class TestTheKernel:
    """``lanes.c`` takes what the careful reader in Python takes, and nothing else."""

    @FEW
    @given(params(), st.lists(events_in_order(30), min_size=1, max_size=3), st.randoms())
    def test_reads_what_is_sound(
        self, params: ECMParams, streams: list[list[Event]], rng: random.Random
    ) -> None:
        sketches = []
        for number, events in enumerate(streams):
            shuffled = [*events]
            rng.shuffle(shuffled)  # into several lanes
            sketches.append(built(params, shuffled[:10], source=number))
            feed(sketches[-1], shuffled[10:])
        blob = ECMCollection(params, sketches).to_bytes()
        with without(wire._EntryReader, "_read_with_care"):
            found = ECMCollection.from_bytes(blob, params=params)
        with without(_native, "measure_lane"), without(_native, "read_column", -1):
            assert ECMCollection.from_bytes(blob, params=params) == found
        states = [replace(state) for state in found.entries.values()]
        assert wire.encode(CollectionState.of(params, states)) == blob

    @pytest.mark.parametrize("number", range(len(TestGolden.CASES)))
    def test_takes_and_refuses_the_same(self, number: int) -> None:
        """Bytes of entries, of which a bit is another one, or some are anything."""
        _, make = TestGolden.CASES[number]
        blob, rng = make().to_bytes(), random.Random(number)
        at = entries_at(blob)
        bodies = []
        for k in range(300 if at < len(blob) - 4 else 1):
            body = bytearray(blob[:-4])
            for _ in range((1, 1, 2, 5)[k % 4] if at < len(body) else 0):
                where = rng.randrange(at, len(body))
                body[where] ^= 1 << rng.randrange(8) if k % 8 < 6 else rng.randrange(256)
            bodies.append(bytes(body))
        taken = 0
        for body in bodies:
            found = outcome(sealed(body))
            with without(_native, "measure_lane"), without(_native, "read_column", -1):
                assert outcome(sealed(body)) == found
            taken += isinstance(found, bytes)
        assert number == 0 or 0 < taken < len(bodies)


def outcome(blob: bytes) -> bytes | str:
    """What is decoded, written again; or why it is not."""
    try:
        return rewritten(ECMCollection.from_bytes(blob).entries.values())
    except (CorruptSketchError, IncompatibleSketchError) as refused:
        return str(refused)


@contextmanager
def without(owner: Any, name: str, found: object = None) -> Iterator[None]:
    """A kernel finds nothing that is flawless; or what is there to find faults is not called."""
    with pytest.MonkeyPatch.context() as patch:
        if owner is _native:
            patch.setattr(owner, name, lambda *_: found)
        else:
            patch.setattr(owner, name, lambda *_: pytest.fail(f"{name} was called"))
        yield


def rewritten(states: Iterable[ECMState]) -> bytes:
    """The entries, written anew: what they remember of how they were read is left out."""
    body = bytearray()
    for state in states:
        fresh = replace(state)
        assert fresh.written is None
        wire._put_state(body, fresh)
    return bytes(body)


def entries_at(blob: bytes) -> int:
    """Where the entries of a sound body begin."""
    states = ECMCollection.from_bytes(blob).entries.values()
    return len(blob) - 4 - len(rewritten(states))


@pytest.mark.parametrize("name", [each for each in recipes() if each.startswith("ecm")])
def test_what_was_damaged_and_is_taken_is_written_anew_as_it_was(name: str) -> None:
    """As ``quality.hostile`` damages it; without the bytes that states remember."""
    recipe, taken = recipes()[name], 0
    for _, body in islice(damaged(20_261_123, [name]), 500):
        try:
            found = recipe.decode(body).snapshot()
        except (CorruptSketchError, IncompatibleSketchError):
            continue
        taken += 1
        anew = CollectionState.of(
            found.state.params, [replace(entry) for entry in found.state.entries], found.state.told
        )
        assert body.startswith(wire.encode(anew)[:7])
        assert wire.encode(anew)[8:-4] in body
    assert taken > 20


class TestManyTinyEntries:
    """Whoever posts them is not to gain by it: what they cost is counted, not timed."""

    ENTRIES = 500
    TINY = ECMParams(width=1, depth=1, slots=2, capacity=1 << 20)
    CASES: tuple[tuple[str, ECMParams, list[Event]], ...] = (
        ("nothing", TINY, []),
        ("an_event", TINY, [Event(1, 10)]),
        ("lanes", replace(TINY, lanes=64), [Event(1, -time) for time in range(64)]),
        ("a_horizon", replace(TINY, horizon=9, kind="eh"), [Event(1, 10), Event(1, 30)]),
        ("layers", replace(TINY, key_bits=64, fanout_bits=1), [Event(1, 10)]),
        ("held_back", replace(TINY, hold=9), [Event(1, 10), Event(1, 30)]),
    )

    @pytest.mark.parametrize(("params", "events"), [case[1:] for case in CASES],
                             ids=[case[0] for case in CASES])  # fmt: skip
    def test_take_few_steps_and_little_memory_for_each_byte(
        self, params: ECMParams, events: list[Event]
    ) -> None:
        sketch = ECMSketch(params, source=0, epoch=0)
        for event in events:
            feed(sketch, [event])
        parts = max(1, len(sketch.state().lanes)) * len(params.layers)
        entries = range(2 * self.ENTRIES // parts)
        states = [replace(sketch.state(), source=number) for number in entries]
        blob = wire.encode(CollectionState.of(params, states))
        steps = 0

        def count(*_: object) -> None:
            nonlocal steps
            steps += 1

        sys.setprofile(count)  # calls and returns, of functions in Python and in C
        try:
            found = wire.decode(blob, params=params).entries
        finally:
            sys.setprofile(None)
        assert steps < 10 * len(blob), steps / len(blob)
        tracemalloc.start()
        found = wire.decode(blob, params=params).entries
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert memory < 100 * len(blob), memory / len(blob)
        assert [state.digest for state in found[:3]] == [state.digest for state in states[:3]]

    def test_one_that_is_false_is_read_with_care_once(self) -> None:
        sketch = built(self.TINY, [Event(1, 10)])
        states = [replace(sketch.state(), source=number) for number in range(self.ENTRIES)]
        body = bytearray(wire.encode(CollectionState.of(self.TINY, states))[:-4])
        body[-1] ^= 1  # of the last entry
        with_care, calls = wire._EntryReader._read_with_care, []

        def counted(*arguments: Any) -> Any:
            calls.append(arguments)
            return with_care(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire._EntryReader, "_read_with_care", counted)
            with pytest.raises(CorruptSketchError):
                wire.decode(sealed(bytes(body)))
        assert len(calls) == 1


class TestHeader:
    def test_is_read_alone(self) -> None:
        for _, make in TestGolden.CASES:
            collection = make()
            header = wire.peek(collection.to_bytes())
            assert header.params == collection.params
            assert header.entries == len(collection.entries)
            assert header.kept == len(collection)
            assert header.told is None

    def test_says_which_clock_was_told(self) -> None:
        collection = _collection(SMALL)
        before = collection.to_bytes()
        assert collection.clock is not None
        collection.advance(collection.clock)
        assert collection.to_bytes() == before
        later = collection.clock + 5
        collection.advance(later)
        assert wire.peek(collection.to_bytes()).told == later
        assert wire_reference.read(collection.to_bytes())["told"] == later
        assert ECMCollection.from_bytes(collection.to_bytes()) == collection

    @pytest.mark.parametrize("more", [-1, 1])
    def test_says_how_many_times_there_are(self, more: int) -> None:
        states = list(_collection(SMALL).entries.values())
        kept = sum(map(len, states))
        _written(SMALL, states)
        with pytest.raises(
            CorruptSketchError, match=f"{kept + 1} times, of which {kept} are|leaves"
        ):
            ECMCollection.from_bytes(_written(SMALL, states, kept=kept + more))

    def test_bounds_what_is_read(self) -> None:
        """Before any of it is: bytes that the count would not fit into, and events held back."""
        with pytest.raises(CorruptSketchError, match="a time takes 2 bits"):
            wire.peek(_written(SMALL, [], kept=1 << 40))
        params = replace(SMALL, hold=12)
        states = [built(params, EVENTS).state()]
        assert len(states[0].held)
        with pytest.raises(CorruptSketchError, match="the header leaves 0"):
            ECMCollection.from_bytes(_written(params, states, kept=0))


def _written(params: ECMParams, states: list[Any], kept: int | None = None) -> bytes:
    """In the order that is given."""
    body = writing.begin(wire.FAMILY, params, embed_params=False)  # type: ignore[arg-type]
    wire._put_params(body, params)
    writing.put_varint(body, len(states))
    writing.put_varint(body, sum(map(len, states)) if kept is None else kept)
    writing.put_clock(body, NO_WATERMARK)
    for state in states:
        wire._put_state(body, state)
    return writing.seal(body)


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
