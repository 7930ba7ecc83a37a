"""Logs of events that nothing names: counted by key, for the site that they came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import decaysketch as ds
from decaysketch.ecm import ECMCollection, ECMParams
from decaysketch.errors import ConflictingSketchError, ObservationError, ParameterError
from decaysketch.tables import (
    ColumnMapping,
    FileSplit,
    KeyedBuilder,
    epoch_of,
    file_builder,
    merge_blobs,
    partial_builder,
    partition_merger,
    sketches_by_key,
)
from decaysketch.tables.keyed import RESULT_FIELDS
from decaysketch.tables.row_sources import epochs_of_keys

PARAMS = ECMParams(width=55, depth=3, slots=10)
EVER = ds.decay.none()
PAGES = ColumnMapping(time="time", key=("page",), source="host", weight="hits")


def log(rows: int = 3000, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "time": np.sort(rng.integers(0, 10_000, rows)),
            "page": rng.choice(["/", "/a", "/b", "/c"], rows, p=[0.6, 0.2, 0.1, 0.1]),
            "host": rng.choice(["north", "south"], rows),
            "hits": rng.integers(0, 4, rows),
            "town": rng.choice(["x", "y", "z"], rows),
        }
    )


def in_order(table: pa.Table, *keys: str) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in (*keys, "host", "time")])


def blobs(batches: Any) -> dict[tuple[Any, ...], bytes]:
    table = pa.Table.from_batches(list(batches))
    keys = [table.column(name).to_pylist() for name in table.column_names[: -len(RESULT_FIELDS)]]
    found = list(zip(zip(*keys, strict=True), table.column("sketch").to_pylist(), strict=True))
    assert len(dict(found)) == len(found), "a key is there twice"
    return dict(found)


class TestRows:
    def test_are_counted_by_key_and_site_and_weight(self) -> None:
        table = log()
        sketches = sketches_by_key(table, PARAMS, PAGES, ["town"])
        assert set(sketches) == {("x",), ("y",), ("z",)}
        for (town,), sketch in sketches.items():
            assert sketch.sources == ("north", "south")
            rows = [row for row in table.to_pylist() if row["town"] == town]
            for host in sketch.sources:
                hits = sum(row["hits"] for row in rows if row["host"] == host)
                assert sketch.key_total(EVER, sources=[host]).value == hits
            of_a = sum(row["hits"] for row in rows if row["page"] == "/a")
            counted = sketch.key_count("/a", EVER)
            assert of_a <= counted.sure_upper
            assert counted.value == pytest.approx(of_a, rel=0.05, abs=20)

    def test_are_the_same_in_any_order_and_any_batches(self) -> None:
        table = log()
        [whole] = sketches_by_key(table, PARAMS, PAGES).values()
        builder = KeyedBuilder(PARAMS, PAGES)
        shuffled = table.take(np.random.default_rng(2).permutation(len(table)))
        for start in range(0, len(table), 700):
            builder.add(shuffled.slice(start, 700))
        assert builder.sketches[()].to_bytes() == whole.to_bytes()

    def test_of_different_keys_add_up(self) -> None:
        table = log()
        towns = sketches_by_key(table, PARAMS, PAGES, ["town"])
        whole = ds.decode(merge_blobs(sketch.to_bytes() for sketch in towns.values()))
        assert whole.seen == sum(table.column("hits").to_pylist())
        assert len(whole.entries) == 6  # two hosts of three towns
        days = pa.array([0, 1, None], pa.date32())
        moments = pa.array([0, 1 << 61, None], pa.timestamp("us", "UTC"))  # beyond Python's years
        keys = [days, moments, pa.array([True, False, None]), pa.array([b"", b"0", None])]
        epochs = epochs_of_keys(keys, 0) + epochs_of_keys(keys, 1)
        assert len(set(epochs)) == 6

    def test_of_one_site_need_no_column_of_it(self) -> None:
        mapping = ColumnMapping(time="time", key=("page",))
        [sketch] = sketches_by_key(log(), PARAMS, mapping, site="tap", epoch=7).values()
        assert list(sketch.entries) == [("tap", 7)]
        assert sketch.seen == 3000
        [plain] = sketches_by_key(log(), PARAMS, mapping).values()
        assert list(plain.entries) == [(0, 0)]

    @pytest.mark.parametrize(
        ("columns", "keys"),
        [
            (["page", "town"], [("/", "x"), ("/a", "y")]),
            (["town"], ["x", "z"]),
            (["host_id"], [0, 1]),
        ],
    )
    def test_have_keys_as_update_takes_them(self, columns: list[str], keys: list[Any]) -> None:
        table = log().append_column("host_id", pa.array(np.arange(3000) % 2))
        mapping = ColumnMapping(time="time", key=tuple(columns))
        [sketch] = sketches_by_key(table, PARAMS, mapping).values()
        direct = ECMCollection(PARAMS)
        rows = [table.column(name).to_pylist() for name in columns]
        given = rows[0] if len(rows) == 1 else list(zip(*rows, strict=True))
        direct.update(given, table.column("time").to_pylist())
        assert sketch == direct
        assert sketch.key_count(keys, EVER).sure_upper.tolist() == (
            direct.key_count(keys, EVER).sure_upper.tolist()
        )

    def test_may_have_keys_in_dictionaries(self) -> None:
        table = log()
        encoded = table.set_column(1, "page", table.column("page").dictionary_encode())
        encoded = encoded.set_column(2, "host", table.column("host").dictionary_encode())
        assert sketches_by_key(encoded, PARAMS, PAGES) == sketches_by_key(table, PARAMS, PAGES)


class TestRefusals:
    ROWS = pa.table(
        {
            "time": [1, 2, 3, None, 5, 6],
            "page": [5, 300, -1, 5, 5, 6],
            "host": ["a", "a", "b", "b", "", None],
            "hits": [1, 1, 1, 1, 1, -4],
        }
    )

    def test_are_counted_row_by_row(self) -> None:
        params = ECMParams(width=20, depth=2, slots=4, key_bits=8)
        builder = KeyedBuilder(params, PAGES, refused="count")
        builder.add(self.ROWS)
        assert builder.counts[()].tolist() == [1, 0, 0, 5]
        assert builder.sketches[()].seen == 1
        read = PAGES.read(self.ROWS, params, refused="count")
        said = {(each.row, each.field): each.sentence for each in read.refusals.refusals()}
        assert said == {
            (1, "page"): "is 300; expected an integer from 0 to 2^8 - 1",
            (2, "page"): "is -1; expected an integer from 0 to 2^8 - 1",
            (3, "time"): "is missing",
            (4, "host"): "is ''; expected a number from 0, or 1 to 255 bytes of text",
            (5, "hits"): "is -4; expected 0 to 2^62 - 1",
        }

    def test_are_raised(self) -> None:
        params = ECMParams(width=20, depth=2, slots=4, key_bits=8)
        with pytest.raises(ObservationError, match=r"page\[1\] is 300; expected an integer"):
            sketches_by_key(self.ROWS.slice(0, 3), params, PAGES)

    @pytest.mark.parametrize(
        ("mapping", "message"),
        [
            (ColumnMapping(time="time"), "expected the columns of the counted key"),
            (ColumnMapping(time="time", key=("page",), ids=("hits",)), "no columns that identify"),
            (ColumnMapping(time="time", key=("page",), value="hits"), "events have none"),
        ],
    )
    def test_of_mappings(self, mapping: ColumnMapping, message: str) -> None:
        with pytest.raises(ParameterError, match=message):
            KeyedBuilder(PARAMS, mapping)

    def test_of_keys_and_sites_where_none_are_counted(self) -> None:
        params = ds.SketchParams(max_weight=1, id_bits=20)
        with pytest.raises(ParameterError, match="counts no keys"):
            KeyedBuilder(params, ColumnMapping(time="time", ids=("page",), key=("page",)))
        with pytest.raises(ParameterError, match="does not count by site"):
            KeyedBuilder(params, ColumnMapping(time="time", ids=("page",)), epoch=3)
        with pytest.raises(ParameterError, match="site is 'a' and source is 'host'"):
            KeyedBuilder(PARAMS, PAGES, site="a")


class TestParts:
    """What an engine does: whole sites to each call, and their collections merged by key."""

    def test_give_the_bytes_of_the_whole(self) -> None:
        table = log()
        whole = {
            key: sketch.to_bytes()
            for key, sketch in sketches_by_key(table, PARAMS, PAGES, ["town"]).items()
        }
        for cut in (lambda row: 0, lambda row: hash_of(row["host"]), lambda row: hash_of(row)):
            parts: dict[int, list[dict[str, Any]]] = {}
            for row in table.to_pylist():
                where = {"host": row["host"], "town": row["town"]} if cut(row) else row
                parts.setdefault(cut({**where, "time": 0, "page": "", "hits": 0}), []).append(row)
            partials = []
            for rows in parts.values():
                part = in_order(pa.Table.from_pylist(rows, schema=table.schema), "town")
                build = partial_builder(PARAMS, PAGES, ["town"], memory_bytes=1 << 20)
                partials += build(iter(part.to_batches(max_chunksize=500)))
            together = pa.Table.from_batches(partials).sort_by("town")
            merge = partition_merger(["town"])
            assert blobs(merge(iter(together.to_batches()))) == whole

    def test_hand_on_whole_keys_when_memory_is_full(self) -> None:
        table = in_order(log(8_000).set_column(4, "town", pa.array(np.arange(8_000) % 799)), "town")
        counted: list[int] = []
        build = partial_builder(PARAMS, PAGES, ["town"], memory_bytes=1 << 20)
        batches = build(iter(table.to_batches(max_chunksize=1000)))
        handed_on = [batch for batch in batches if not counted.append(batch.num_rows)]
        assert len(counted) > 4  # in parts, not at the end
        found = blobs(handed_on)  # no key twice
        whole = sketches_by_key(table, PARAMS, PAGES, ["town"])
        assert found == {key: sketch.to_bytes() for key, sketch in whole.items()}
        rows = sum(pa.Table.from_batches(handed_on).column("rows").to_pylist())
        assert rows == 8_000

    def test_of_a_site_that_was_cut_are_refused_or_of_other_epochs(self) -> None:
        table = log()
        parts = [table.slice(0, 2000), table.slice(2000)]
        cut = [sketches_by_key(part, PARAMS, PAGES)[()].to_bytes() for part in parts]
        with pytest.raises(ConflictingSketchError):
            merge_blobs(cut)
        apart = [
            sketches_by_key(part, PARAMS, PAGES, epoch=epoch_of("day", number))[()].to_bytes()
            for number, part in enumerate(parts)
        ]
        both = ds.decode(merge_blobs([*apart, apart[0]]))
        assert both.seen == sum(table.column("hits").to_pylist())
        assert len(both.entries) == 4

    def test_are_not_read_by_splits(self) -> None:
        with pytest.raises(ParameterError, match="all of a site by one call"):
            file_builder([FileSplit("a.parquet", (0,), 0)], PARAMS, PAGES)


def hash_of(row: Any) -> int:
    text = repr(sorted(row.items())) if isinstance(row, dict) else row
    return sum(text.encode()) % 3


def test_epochs_tell_parts_apart() -> None:
    names = [("a",), ("b",), ("a", "b"), ("ab",), ("a", 1), ("a", "1"), (1,), ("1",)]
    epochs = [epoch_of(*name) for name in names]
    assert len(set(epochs)) == len(names)
    assert all(0 <= epoch < 1 << 64 for epoch in epochs)
    assert epoch_of("query", 7) == 12_769_861_257_652_764_921
