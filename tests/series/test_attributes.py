"""Attributes of series: naming, laws, bytes, filters and groups."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.families import decode
from decaysketch.query.query_syntax import query_of
from decaysketch.series import SeriesParams, SeriesSketch
from quality.damage import sealed

PARAMS = SeriesParams(attributes="region, job", capacity=40, seed=3)
TEXTS = ("a", "b", "", None, "ü")
WINDOW = "window(1000)"

Row = tuple[int, int, float, str | None, str | None]  # id, time, value, job, region


def rows_of(draw: random.Random, count: int) -> list[Row]:
    return [
        (draw.randrange(12), draw.randrange(200), float(draw.randrange(5)),
         draw.choice(TEXTS), draw.choice(TEXTS))
        for _ in range(count)
    ]  # fmt: skip


def sketch_of(rows: Sequence[Row], params: SeriesParams = PARAMS) -> SeriesSketch:
    sketch = SeriesSketch(params)
    if rows:
        ids, times, values, jobs, regions = zip(*rows, strict=True)
        attributes = {"job": list(jobs), "region": list(regions)}
        sketch.update(list(values), 1, list(times), list(ids), attributes=attributes)
    return sketch


def named(id_: int, *texts: str | None) -> int:
    """The name of a series, in plain integers, by ``docs/wire-format.md``."""
    mask, data = (1 << 64) - 1, b""
    for text in texts:
        encoded = b"" if text is None else text.encode()
        data += (0 if text is None else len(encoded) + 1).to_bytes(2, "little") + encoded
    digest = hashlib.blake2b(data, digest_size=8, person=b"ds-attributes-1").digest()
    word = id_ ^ (int.from_bytes(digest, "little") | 1)
    word = (word ^ word >> 27) * 0x3C79AC492BA7B653 & mask
    word = (word ^ word >> 33) * 0x1C69B3F74AC4AE35 & mask
    return (word ^ word >> 27) >> 64 - PARAMS.id_bits


def test_the_state_is_a_function_of_the_set_of_rows() -> None:
    """Any order, duplicates, parts and trees; against the definition without attributes, with names
    that are computed apart."""
    draw = random.Random(1)
    for _ in range(12):
        rows = rows_of(draw, draw.randrange(300))
        whole = sketch_of(rows)
        parts = [sketch_of(draw.sample(rows, draw.randrange(len(rows) + 1))) for _ in range(3)]
        parts.append(sketch_of(rows[::2]))
        parts.append(SeriesSketch.from_bytes(sketch_of(rows[1::2] + rows[:9]).to_bytes()))
        draw.shuffle(parts)
        one, two, three, four, five = parts
        merged = (one | two) | (three | (four | five) | one)
        assert merged.to_bytes() == whole.to_bytes()
        assert merged.digest() == whole.digest()
        plain = SeriesSketch(SeriesParams(capacity=40, seed=3))
        for id_, time, value, *texts in rows:
            plain.update(value, 1, time, named(id_, *texts), entities=[id_])
        mine, other = whole.state(), plain.state()
        for column, expected in zip(mine.columns, other.columns, strict=True):
            assert column.tolist() == expected.tolist()
        assert mine.watermarks.tolist() == other.watermarks.tolist()


def test_a_sketch_forgets_the_attributes_of_series_without_rows() -> None:
    sketch = SeriesSketch(SeriesParams(attributes="pod", capacity=100))
    for first in range(0, 60_000, 5_000):
        names = [f"pod-{first + k}" for k in range(5_000)]
        sketch.update(1, 1, np.full(5_000, first), np.arange(5_000), attributes={"pod": names})
    state = sketch.state()
    assert state.attributes is not None
    assert len(state.attributes) == int(state.begins.sum())
    assert len(state.attributes.columns[0].texts) <= len(state)
    assert sketch.nbytes < 16_000_000


@pytest.mark.parametrize("embed", [True, False])
def test_bytes(embed: bool) -> None:
    for rows in ([], rows_of(random.Random(2), 1), rows_of(random.Random(3), 400)):
        sketch = sketch_of(rows)
        blob = sketch.to_bytes(embed_params=embed)
        again = SeriesSketch.from_bytes(blob, params=None if embed else PARAMS)
        assert again == sketch
        assert again.to_bytes(embed_params=embed) == blob
    with pytest.raises(ds.IncompatibleSketchError, match="attributes"):
        SeriesSketch.from_bytes(sketch.to_bytes(), params=SeriesParams(seed=3))
    with pytest.raises(ds.IncompatibleSketchError, match="attributes"):
        sketch.merge(SeriesSketch(SeriesParams(attributes="job", seed=3)))


def test_hostile_bytes_are_refused_or_those_of_a_state() -> None:
    blob = sketch_of(rows_of(random.Random(4), 30)).to_bytes()
    accepted = 0
    for bit in range(0, 8 * (len(blob) - 4), 11):
        body = bytearray(blob[:-4])
        body[bit // 8] ^= 1 << bit % 8
        try:
            found = decode(sealed(bytes(body)))
        except (ds.CorruptSketchError, ds.IncompatibleSketchError):
            continue
        accepted += 1
        assert found.to_bytes() == sealed(bytes(body)) or body[7]
    assert accepted  # a value, a time or a text of another state


@pytest.fixture(scope="module")
def fleet() -> SeriesSketch:
    """60 counters, of which each rises by its number a minute."""
    sketch = SeriesSketch(SeriesParams(attributes="region, job"))
    ids = np.arange(60)
    attributes = {
        "job": [("api", "web", "db")[k % 3] for k in ids],
        "region": [None if k % 4 == 3 else f"r{k % 4}" for k in ids],
    }
    for tick in range(30):
        sketch.update(ids * float(tick), 1, np.full(60, tick), ids, attributes=attributes)
    return sketch


def answered(sketch: SeriesSketch, text: str) -> Any:
    asked = query_of(text)
    return sketch.at(WINDOW).modified(asked.modifiers).ask(asked.question)


def rises(job: str, region: str | None) -> int:
    parts = {"api": 0, "web": 1, "db": 2}[job], 3 if region is None else int(region[1])
    return sum(29 * k for k in range(60) if (k % 3, k % 4) == parts)


def test_filters_and_groups(fleet: SeriesSketch) -> None:
    found = fleet.increase(WINDOW, where="job == 'api'", by="region", order="key")
    values = {row.by["region"]: row.answer.value for row in found}  # type: ignore[attr-defined]
    assert values == {key: rises("api", key) for key in ("r0", "r1", "r2", None)}
    assert all(row.answer.exact for row in found)  # type: ignore[attr-defined]
    total = sum(rises(job, "r1") for job in ("api", "web", "db"))
    assert fleet.increase(WINDOW, where="region == 'r1'").value == total
    assert fleet.series_count(WINDOW, where="region is null and job in ('db', 'web')").value == 10
    assert fleet.increase(WINDOW, where="job == 'nobody'").value == 0
    top = fleet.increase(WINDOW, by=("job", "region"), groups=2)
    assert len(top) == 2  # type: ignore[arg-type]
    assert top.total_groups == 12  # type: ignore[attr-defined]
    assert top.unseen_at_most == 0  # type: ignore[attr-defined]
    spelled = answered(fleet, "increase by region where job == 'api' order key")
    assert [row.answer for row in spelled] == [
        row.answer for row in fleet.at(WINDOW).given(where="job == 'api'").by(
            "region", order="key"
        ).ask("increase")
    ]  # fmt: skip


def test_every_query_of_the_family_has_groups(fleet: SeriesSketch) -> None:
    for name in sorted(SeriesSketch.questions):
        question = ds.query.catalog.QUESTIONS[name]
        given = {
            each.name: fleet if each.kind == "sketch" else each.example
            for each in question.arguments
            if each.required
        }
        view = fleet.at(WINDOW)
        table = view.modified(query_of("series_count by job").modifiers).ask(question, **given)
        for row in table:
            alone = view.given(where=f"job == '{row.by['job']}'").ask(question, **given)
            assert row.answer.value == pytest.approx(alone.value), name


def test_groups_hold_the_truth_at_once() -> None:
    """20 tables with 12 groups of a sample, at 95 %: more than 4 miss with a chance below 1 %."""
    ids = np.arange(1_200)
    attributes = {"job": [f"job-{k % 12}" for k in ids]}
    misses = unseen = 0
    for seed in range(20):
        sketch = SeriesSketch(SeriesParams(attributes="job", capacity=4_000, seed=seed))
        for tick in range(15):
            values = (1.0 + ids % 7) * tick
            sketch.update(values, 1, np.full(1_200, tick), ids, attributes=attributes)
        table: Any = sketch.increase(WINDOW, by="job", guard=0)
        unseen += len(table) < 12 and table.unseen_at_most < 100
        truths = {f"job-{j}": 14 * (1.0 + ids[j::12] % 7).sum() for j in range(12)}
        misses += any(
            not row.answer.lower <= truths[row.by["job"]] <= row.answer.upper for row in table
        )
        assert not table[0].answer.exact
    assert misses <= 4
    assert unseen <= 4


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"jib": "x"}, "attributes has 'jib'; this stream has job, region"),
        ({"job": [1] * 3}, r"column 'job': values\[0\] is 1"),
        ({"job": ["x"]}, "unequal lengths: job has 1 rows, ids has 3"),
        ({"job": "x" * 700, "region": "y" * 325}, "1025 bytes together; expected at most 1024"),
        ([{"job": "a"}, {"job": "b"}, {"job": 7}], r"column 'job': values\[2\] is 7"),
    ],
)  # fmt: skip
def test_bad_attributes_change_nothing(attributes: Any, message: str) -> None:
    sketch = SeriesSketch(PARAMS)
    with pytest.raises(ObservationError, match=message):
        sketch.update([1, 2, 3], 1, [1, 2, 3], [1, 1, 2], attributes=attributes)
    assert sketch == SeriesSketch(PARAMS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attributes": "a, a"}, "attributes has 'a' twice"),
        ({"attributes": ["a,b"]}, "without a comma"),
        ({"attributes": ["time"]}, "which rows and queries use"),
        ({"attributes": 7}, "attributes is 7; expected names"),
        ({"attributes": [f"a{k}" for k in range(33)]}, "has 33 names; expected at most 32"),
        ({"attributes": "a", "id_bits": 30}, "id_bits is 30; expected at least 40"),
    ],
)
def test_declarations(fields: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        SeriesParams(**fields)


def test_queries_that_attributes_do_not_answer(fleet: SeriesSketch) -> None:
    for text, message in (
        ("increase where v > 3", "expected one of the columns job"),
        ("increase weight v", "has no weight: use where and by"),
        ("increase by job set a & b", "expected an aggregate"),
    ):
        with pytest.raises(ParameterError, match=message):
            answered(fleet, text)
    with pytest.raises(ParameterError, match="declares no attributes"):
        SeriesSketch(SeriesParams()).increase(WINDOW, now=3, by="job")
    with pytest.raises(ObservationError, match="this stream has none"):
        SeriesSketch(SeriesParams()).update([1], 1, [1], [1], attributes={"job": "x"})


def test_a_device_that_changes_an_attribute_keeps_its_entity() -> None:
    sketch = SeriesSketch(SeriesParams(attributes="firmware"))
    for time, firmware in ((0, "1"), (10, "1"), (20, "2"), (30, "2")):
        sketch.update([float(time)], 1, [time], [7], attributes={"firmware": firmware})
    assert set(sketch.state().entities.tolist()) == {7}
    table: Any = sketch.increase(WINDOW, by="firmware", order="key")
    assert {row.by["firmware"]: row.answer.value for row in table} == {"1": 10, "2": 10}
