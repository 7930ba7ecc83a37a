"""Bodies of observations that nobody honest would send: one clear refusal, soon, in little memory.

``INGEST_MUTATIONS`` sets how many random mutations of sound bodies are read (default 8,000).
"""

from __future__ import annotations

import json
import os
import random
import struct
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from api.errors import InvalidRequestError, TooManyRowsError
from api.ingest.arrow import read_arrow
from api.ingest.json_rows import read_json, read_lines
from decaysketch import DecaySketch, SketchParams
from decaysketch.asyncwindow import SumParams
from decaysketch.families import recipe_of
from decaysketch.ingest.columns import Batch, Form, check
from quality.damage import damage

PARAMS = SketchParams(max_weight=99, id_bits=40, capacity=200)
FORM = Form(recipe_of(PARAMS), "gateway-3", 10**12, 1000)
MUTATIONS = int(os.environ.get("INGEST_MUTATIONS", "8000"))

Reader = Callable[[bytes, Form], Batch]


def read(reader: Reader, body: bytes, form: Form = FORM) -> Batch:
    """What a reader makes of a body, seen to be what a sketch takes."""
    batch = check(reader(body, form), form)
    assert len(batch.positions) + len(batch.refusals) == batch.rows
    rows = [*batch.positions.tolist(), *(refusal.row for refusal in batch.refusals)]
    assert sorted(rows) == list(range(batch.rows)), "each row is taken or refused, once"
    if isinstance(form.params, SketchParams):
        DecaySketch(form.params).update(*batch.columns)
    return batch


def measured(reader: Reader, body: bytes, form: Form = FORM) -> tuple[Exception | Batch, float]:
    """The outcome, and the peak of memory as a multiple of the body."""
    tracemalloc.start()
    began = time.thread_time()
    try:
        outcome: Exception | Batch = read(reader, body, form)
    except (InvalidRequestError, TooManyRowsError) as error:
        outcome = error
    seconds = time.thread_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 20
    return outcome, peak / max(len(body), 1 << 20)


class TestJson:
    @pytest.mark.parametrize("opening", ["[", '{"a":', '{"observations":[', '{"observations":'])
    def test_nested_a_million_times_is_refused(self, opening: str) -> None:
        outcome, memory = measured(read_json, opening.encode() * 10**6)
        assert isinstance(outcome, TooManyRowsError)  # without parsing them
        assert memory < 20

    @pytest.mark.parametrize("opening", ["[", '{"a":', '{"observations":'])
    def test_nested_deeply_is_refused(self, opening: str) -> None:
        outcome, _ = measured(read_json, opening.encode() * 2_000)
        assert isinstance(outcome, InvalidRequestError)
        assert "nested too deeply" in str(outcome)

    def test_nested_and_closed_is_refused_as_well(self) -> None:
        outcome, _ = measured(read_lines, b"[" * 30_000 + b"]" * 30_000)
        assert isinstance(outcome, Batch)
        assert outcome.refusals[0].reason == "30000 brackets and commas; expected at most 64"

    @pytest.mark.parametrize(
        "number", ["9" * 10**6, "-" + "9" * 10**6, "1" + "0" * 400, "9" * 4301, "1e999999999",
                   "0." + "0" * 10**6 + "1", "1e-999999999"],
    )  # fmt: skip
    @pytest.mark.parametrize("field", ["value", "time", "id", "weight"])
    def test_giant_numbers_refuse_their_row(self, field: str, number: str) -> None:
        row = {"value": "1", "weight": "1", "time": "1", "id": "1"} | {field: number}
        text = "{" + ",".join(f'"{name}": {each}' for name, each in row.items()) + "}"
        outcome, memory = measured(read_json, b'{"observations": [%s]}' % text.encode())
        assert isinstance(outcome, Batch)
        tiny = field == "value" and not number.strip("-").isdigit() and number != "1e999999999"
        assert len(outcome.positions) == tiny
        assert [refusal.field for refusal in outcome.refusals] == [field] * (not tiny)
        assert memory < 10

    def test_a_giant_text_refuses_its_row(self) -> None:
        text = json.dumps({"observations": [{"time": 1, "id": "x" * 10**7}]}).encode()
        outcome, memory = measured(read_json, text)
        assert isinstance(outcome, Batch)
        assert outcome.refusals[0].reason == "10000000 bytes long, at most 1024 are allowed"
        assert memory < 5

    def test_many_empty_objects_are_too_many_rows(self) -> None:
        body = b'{"observations": [' + b"{}," * 10**6 + b"{}]}"
        outcome, memory = measured(read_json, body)
        assert isinstance(outcome, TooManyRowsError)
        assert memory < 50


class TestLines:
    def test_without_an_end_are_one_row(self) -> None:
        outcome, memory = measured(read_lines, b'{"time": 1, "id": "' + b"x" * (1 << 25))
        assert isinstance(outcome, Batch)
        assert (outcome.rows, len(outcome.refusals)) == (1, 1)
        assert memory < 2

    def test_that_are_empty_are_counted_before_they_are_read(self) -> None:
        outcome, memory = measured(read_lines, b"\n" * (1 << 25))
        assert isinstance(outcome, TooManyRowsError)
        assert memory < 1

    def test_take_time_in_proportion(self) -> None:
        form = Form(recipe_of(PARAMS), "gateway-3", None, 100_000)
        line = b'{"time": 1, "id": 1}\n'
        seconds = []
        for lines in (2_000, 32_000):
            began = time.thread_time()
            assert read(read_lines, line * lines, form).rows == lines
            seconds.append(time.thread_time() - began)
        assert seconds[1] < 16 * 8 * max(seconds[0], 0.01)

    def test_of_nothing_are_no_rows(self) -> None:
        assert read(read_lines, b"").rows == 0
        assert read(read_lines, b"\n \r\n").rows == 0


def arrow(table: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


TABLE = pa.table(
    {
        "value": pa.array([1.5, None, -3.0, 4.0]),
        "weight": pa.array([1, 99, 7, 1], pa.int16()),
        "time": pa.array([100, 200, 10**9, -5], pa.int64()),
        "id": pa.array(["a", "bb", "ü" * 30, "a"]),
    }
)


class TestArrow:
    @pytest.mark.parametrize("codec", ["lz4", "zstd"])
    def test_that_inflates_is_refused_before_it_does(self, codec: str) -> None:
        bomb = pa.table({"time": np.zeros(1 << 24, np.int64), "id": np.zeros(1 << 24, np.int64)})
        body = arrow(bomb, compression=codec)
        assert len(body) < 2_500_000
        before = pa.total_allocated_bytes()
        outcome, memory = measured(read_arrow, body)
        assert isinstance(outcome, InvalidRequestError)
        assert "compressed" in str(outcome)
        assert memory < 5
        assert pa.total_allocated_bytes() - before < 1 << 20

    @pytest.mark.parametrize("codec", ["lz4", "zstd"])
    def test_of_a_dictionary_that_inflates_is_refused(self, codec: str) -> None:
        texts = pa.array(["a" * 1000] * 1000)
        ids = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), texts)
        outcome, memory = measured(
            read_arrow, arrow(pa.table({"time": [1], "id": ids}), compression=codec)
        )
        assert isinstance(outcome, InvalidRequestError)
        assert memory < 5

    @pytest.mark.parametrize("views", [False, True])
    def test_whose_rows_share_a_long_text_is_refused(self, views: bool) -> None:
        """A text of a megabyte a thousand times is a gigabyte."""
        text = pa.array(["a" * (1 << 20)])
        ids = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), text)
        if views:  # all of them of the same bytes
            one = text.cast(pa.string_view())
            view = one.buffers()[1].to_pybytes()[:16]
            buffers = [None, pa.py_buffer(view * 1000), *one.buffers()[2:]]
            ids = pa.Array.from_buffers(pa.string_view(), 1000, buffers)
        outcome, memory = measured(read_arrow, arrow(pa.table({"time": [1] * 1000, "id": ids})))
        assert isinstance(outcome, InvalidRequestError)
        assert "its texts have more than" in str(outcome)
        assert memory < 100

    def test_of_very_many_batches_is_refused(self) -> None:
        sink = pa.BufferOutputStream()
        batch = pa.record_batch({"time": pa.array([], pa.int64()), "id": pa.array([], pa.int64())})
        with pa.ipc.new_stream(sink, batch.schema) as out:
            for _ in range(2_000):
                out.write_batch(batch)
        outcome, _ = measured(read_arrow, sink.getvalue().to_pybytes())
        assert "more than 1024 record batches" in str(outcome)

    def test_with_a_giant_schema_is_refused_before_it_is_read(self) -> None:
        table = pa.table({f"column-{number}": [1] for number in range(5_000)})
        outcome, memory = measured(read_arrow, arrow(table))
        assert "the schema has" in str(outcome)
        assert memory < 1

    def test_nested_deeply_is_refused(self) -> None:
        kind: pa.DataType = pa.int64()
        for _ in range(60):
            kind = pa.list_(kind)
        table = pa.table({"time": pa.nulls(1, kind), "id": [1]})
        outcome, _ = measured(read_arrow, arrow(table))
        assert isinstance(outcome, InvalidRequestError)

    @pytest.mark.parametrize("length", [-(2**31), -1, 0, 7, 2**31 - 1])
    def test_with_another_length_of_the_schema_is_refused(self, length: int) -> None:
        body = bytearray(arrow(TABLE))
        struct.pack_into("<i", body, 4, length)
        outcome, memory = measured(read_arrow, bytes(body))
        assert isinstance(outcome, InvalidRequestError)
        assert memory < 1

    def test_cut_anywhere_is_refused_or_a_beginning(self) -> None:
        body = arrow(TABLE)
        for stop in range(len(body)):
            outcome, _ = measured(read_arrow, body[:stop])
            if isinstance(outcome, Batch):
                assert outcome.rows in (0, 4)

    def test_without_rows_is_no_row(self) -> None:
        assert read(read_arrow, arrow(TABLE.slice(0, 0))).rows == 0


SOUND: dict[str, tuple[Reader, bytes]] = {
    "json": (
        read_json,
        json.dumps(
            {
                "observations": [
                    {"value": 1.5, "weight": 3, "time": 100, "id": 7},
                    {"value": None, "time": -5, "id": ["t-1", 4]},
                    {"time": 10**9, "id": "ü\ud800"},
                ]
            }
        ).encode(),
    ),
    "lines": (
        read_lines,
        b'{"value": 1.5, "weight": 3, "time": 100, "id": 7}\n{"time": 5, "id": ["t-1", 4]}\n',
    ),
    "arrow": (read_arrow, arrow(TABLE)),
    "arrow of two batches": (
        read_arrow,
        arrow(pa.concat_tables([TABLE.set_column(3, "id", pa.array([1, 2, None, 4]))] * 2)),
    ),
    "compressed arrow": (read_arrow, arrow(TABLE, compression="lz4")),
}
OTHERS = [body for _, body in SOUND.values()]
_TOKENS = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"\n", b"\\", b"\\ud800", b"1e999", b"NaN",
           b"-", b"9" * 30, b"null", b"true", b"\x00", b"\xff", b'"id"', b'"time"']  # fmt: skip


def mutated(body: bytes, draw: random.Random) -> bytes:
    data = bytearray(body)
    for _ in range(draw.choice([1, 1, 2, 5])):
        damage(draw, data, OTHERS, _TOKENS)
    return bytes(data) or b" "


@pytest.mark.parametrize("name", SOUND)
def test_mutations_of_sound_bodies_are_read_or_refused(name: str) -> None:
    reader, body = SOUND[name]
    draw = random.Random(name)
    taken = 0
    forms = [FORM, Form(recipe_of(SumParams(max_sum=100, capacity=8)), "tap", None, 1000)]
    for turn in range(MUTATIONS // len(SOUND)):
        try:
            taken += bool(read(reader, mutated(body, draw), forms[turn % 8 == 0]).rows)
        except (InvalidRequestError, TooManyRowsError) as error:
            assert len(str(error)) < 10_000  # noqa: PT017
    assert taken or name == "compressed arrow", "some mutations must get through"
