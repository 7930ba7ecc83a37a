"""Many keys at once: the same bytes as one sketch for each key, whatever is fed in what pieces."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import decaysketch as ds
from decaysketch import tables
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.core.observations import encode_values
from decaysketch.families import Recipe, recipe_of
from decaysketch.querytime import many as _many
from decaysketch.tables import ColumnMapping, KeyedBuilder

PARAMS = ds.SketchParams(max_weight=7, id_bits=40, capacity=6, seed=3)
OBSERVATIONS = ColumnMapping(time="time", ids=("id",), value="value", weight="weight")
ELEMENTS = ColumnMapping(time="time", source="id", sequence="number", value="weight")
RECIPES: dict[str, tuple[Recipe, ColumnMapping]] = {
    "decay": (recipe_of(PARAMS), OBSERVATIONS),
    "decay, integers": (recipe_of(replace(PARAMS, value_type="int64")), OBSERVATIONS),
    "decay, two copies": (recipe_of(replace(PARAMS, copies=2)), OBSERVATIONS),
    "integral": (recipe_of(PARAMS, ds.decay.integral.exponential(half_life=20)), OBSERVATIONS),
    "sum": (recipe_of(SumParams(max_sum=200, capacity=6, max_window=60)), ELEMENTS),
    "median": (recipe_of(MedianParams(max_count=200, capacity=6)), ELEMENTS),
}
SITES = ["north", "south", None, "", "nörd"]


def rows_of(rows: int, seed: int, keys: int = 5, ids: int = 60) -> list[dict[str, Any]]:
    """Observations with copies that disagree, missing values, weight 0, and null keys."""
    rng = np.random.default_rng(seed)
    return [
        {
            "time": int(rng.integers(0, 100)),
            "id": int(rng.integers(0, ids)),
            "number": int(rng.integers(0, 4)),
            "value": None if rng.random() < 0.2 else int(rng.integers(-5, 5)),
            "weight": int(rng.integers(0, 8)),
            "site": SITES[int(rng.integers(0, len(SITES)))],
            "box": None if rng.random() < 0.2 else int(rng.integers(0, keys)) - 2,
        }
        for _ in range(rows)
    ]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    schema = pa.schema(
        [(n, pa.int64()) for n in ("time", "id", "number", "value", "weight", "box")]
    ).append(pa.field("site", pa.string()))
    return pa.Table.from_pylist(rows, schema=schema)


def by_hand(recipe: Recipe, rows: list[dict[str, Any]], keys: list[str]) -> dict[Any, Any]:
    """A sketch for each key, row by row, with nothing of `batch` in it."""
    found: dict[Any, Any] = {}
    for row in rows:
        sketch = found.setdefault(tuple(row[k] for k in keys), recipe.empty())
        if isinstance(recipe.params, ds.SketchParams):
            [identity] = ds.observation_ids([row["id"]], params=recipe.params)
            sketch.update([row["value"]], [row["weight"]], [row["time"]], [identity])
        else:
            sketch.update(row["weight"], row["time"], row["number"], source=row["id"])
    return found


def results(batches: Any, keys: list[str]) -> dict[Any, dict[str, Any]]:
    rows = [row for part in batches for row in part.to_pylist()]
    found = {tuple(row[k] for k in keys): row for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def check(batches: Any, expected: dict[Any, Any], keys: list[str], counts: dict[Any, int]) -> None:
    found = results(batches, keys)
    assert set(found) == set(expected)
    for key, row in found.items():
        assert row["sketch"] == expected[key].to_bytes(), key
        assert row["digest"] == expected[key].digest()
        assert row["rows"] == counts[key]


def counts_of(rows: list[dict[str, Any]], keys: list[str]) -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for row in rows:
        key = tuple(row[k] for k in keys)
        counts[key] = counts.get(key, 0) + 1
    return counts


def pieces(data: st.DataObject, table: pa.Table) -> list[pa.Table]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), max_size=5)))
    return [
        table.slice(start, end - start)
        for start, end in zip([0, *cuts], [*cuts, len(table)], strict=True)
    ]


@pytest.mark.parametrize("name", RECIPES)
class TestEqualsOneByOne:
    @settings(max_examples=12, deadline=None)
    @given(data=st.data())
    def test_in_any_pieces_and_merged_in_order_of_key(self, name: str, data: st.DataObject) -> None:
        recipe, mapping = RECIPES[name]
        keys = data.draw(st.sampled_from([["box"], ["site"], ["site", "box"], ["box", "site"], []]))
        rows = rows_of(data.draw(st.integers(1, 150)), data.draw(st.integers(0, 999)))
        expected, counts = by_hand(recipe, rows, keys), counts_of(rows, keys)
        table = table_of(rows)
        if data.draw(st.booleans()):
            coded = table["site"].combine_chunks().dictionary_encode()
            unused = pa.DictionaryArray.from_arrays(
                coded.indices, pa.concat_arrays([coded.dictionary, pa.array(["nobody"])])
            )
            table = table.set_column(table.column_names.index("site"), "site", unused)
        whole = KeyedBuilder(recipe, mapping, keys)
        partials = []
        for piece in pieces(data, table):
            whole.add(piece)
            part = KeyedBuilder(recipe, mapping, keys)
            part.add(piece)
            partials += list(part.batches())
        check(whole.batches(), expected, keys, counts)
        assert {k: s.to_bytes() for k, s in whole.sketches.items()} == {
            k: s.to_bytes() for k, s in expected.items()
        }
        joined = pa.Table.from_batches(partials)
        if keys:
            joined = joined.sort_by([(key, "ascending") for key in keys])
        size = data.draw(st.integers(1, 20))
        merger = tables.partition_merger(keys, data.draw(st.sampled_from([recipe, None])))
        check(merger(iter(joined.to_batches(max_chunksize=size))), expected, keys, counts)

    @pytest.mark.parametrize("size", [7, 1_000])
    def test_a_merge_tells_what_each_snapshot_would(self, name: str, size: int) -> None:
        recipe, mapping = RECIPES[name]
        parts = []
        for seed, rows in ((1, 60), (2, 140)):  # many without a box, few of each other
            part = KeyedBuilder(recipe, mapping, ["box"])
            part.add(table_of(rows_of(rows, seed, keys=40)))
            parts += list(part.batches())
        table = pa.Table.from_batches(parts).sort_by("box")
        merger = tables.partition_merger(["box"], recipe, tally=True)
        found = [r for part in merger(iter(table.to_batches(size))) for r in part.to_pylist()]
        assert len(found) > 20
        for row in found:
            said = tuple(row[field.name] for field in tables.TALLY_FIELDS)
            assert said == recipe.decode(row["sketch"]).snapshot().tally()
        assert len({row["__exact"] for row in found}) == 2

    def test_with_little_memory_the_parts_merge_to_the_same(self, name: str) -> None:
        recipe, mapping = RECIPES[name]
        rows = rows_of(600, 4, keys=40)
        keys = ["box", "site"]
        function = tables.partial_builder(recipe, mapping, keys, memory_bytes=1 << 20)
        log = table_of(rows)
        parts = list(function(iter(log.to_batches(max_chunksize=50))))
        joined = pa.Table.from_batches(parts).sort_by([(key, "ascending") for key in keys])
        merged = tables.partition_merger(keys, recipe)(iter(joined.to_batches(max_chunksize=7)))
        check(merged, by_hand(recipe, rows, keys), keys, counts_of(rows, keys))
        if name not in ("decay", "decay, integers"):  # these hold 600 rows in so much
            assert len(joined) > len({tuple(row[k] for k in keys) for row in rows})


class TestRowsByKey:
    def columns(self, rows: int, keys: int, seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        return {
            "values": rng.integers(0, 50, rows).astype(float),
            "weights": rng.integers(0, 8, rows),
            "times": rng.integers(0, rows // 2, rows),
            "ids": rng.integers(0, rows // 2, rows),
            "codes": rng.integers(0, keys, rows).astype(np.int32),
        }

    @pytest.mark.parametrize(
        ("rows", "keys", "capacity", "limit"),
        [(3_000, 3, 40, 500), (6_000, 1, 100, 700), (6_000, 1_500, 2, 900), (200, 100, 1, None)],
    )
    def test_compacted_often_or_once(
        self, rows: int, keys: int, capacity: int, limit: int | None
    ) -> None:
        from decaysketch.querytime.rows_by_key import RowsByKey, state_of

        params, c = replace(PARAMS, capacity=capacity), self.columns(rows, keys, rows)
        held = RowsByKey(params, limit)
        value_keys = encode_values(c["values"], "float64")
        turned_away = 0  # so often were fewer rows taken than were given
        for start in range(0, rows, 130):
            part = slice(start, start + 130)
            met = int(c["codes"][: part.stop].max()) + 1
            before = held.rows
            held.add(
                met, c["codes"][part], value_keys[part], c["weights"][part], c["times"][part],
                c["ids"][part],
            )  # fmt: skip
            turned_away += int(before < held.rows < before + (c["weights"][part] > 0).sum())
        assert turned_away > 0 or limit is None
        discarded = 0
        for first, last in held.ranges(400, 64):
            many = held.sketches(first, last)
            buffer, offsets = _many.encode_many(params, many)
            digests = _many.digest_many(params, many)
            for key in range(first, last):
                sketch, chosen = ds.DecaySketch(params), c["codes"] == key
                sketch.update(
                    c["values"][chosen], c["weights"][chosen], c["times"][chosen], c["ids"][chosen]
                )
                blob = buffer[offsets[key - first] : offsets[key - first + 1]].tobytes()
                assert blob == sketch.to_bytes()
                assert digests[key - first] == sketch.digest()
                assert ds.DecaySketch.from_state(state_of(params, many, key - first)) == sketch
                discarded += int(
                    many.mark_offsets[key - first + 1] > many.mark_offsets[key - first]
                )
        assert discarded > 0

    def test_a_key_of_ten_rows_costs_little_more_than_its_rows(self) -> None:
        keys, each = 20_000, 10
        rng = np.random.default_rng(1)
        log = pa.table(
            {
                "time": np.arange(keys * each),
                "id": rng.integers(0, 1 << 40, keys * each),
                "box": np.repeat(np.arange(keys), each),
            }
        )
        builder = KeyedBuilder(PARAMS, ColumnMapping(time="time", ids=("id",)), ["box"])
        builder.add(log)
        builder._rows.compact()  # type: ignore[union-attr]
        held = sum(part.nbytes for part in builder._rows._rows._kept)  # type: ignore[union-attr]
        held += builder._numbers.nbytes  # type: ignore[union-attr]
        assert held / keys < 1_000
        assert sum(part.num_rows for part in builder.batches()) == keys


class TestMany:
    """The bytes of many sketches, and back, against those of one."""

    def many(self, params: ds.SketchParams) -> tuple[list[bytes], Any]:
        blobs = []
        for seed, rows in enumerate((1, 2, 6, 30, 80)):
            sketch = ds.DecaySketch(params)
            for r in rows_of(rows, seed):
                sketch.update([r["value"]], [max(r["weight"], 1)], [r["time"]], [r["id"]])
            blobs.append(sketch.to_bytes())
        return [*blobs, ds.DecaySketch(params).to_bytes()], params

    def decode(self, blobs: list[bytes], params: ds.SketchParams) -> tuple[Any, list[bool]]:
        data = np.frombuffer(b"".join(blobs), np.uint8)
        offsets = np.cumsum([0, *map(len, blobs)])
        many, read = _many.decode_many(params, data, offsets)
        return many, read.tolist()

    @pytest.mark.parametrize("value_type", ["float64", "int64"])
    def test_a_round_trip(self, value_type: Any) -> None:
        blobs, params = self.many(replace(PARAMS, value_type=value_type))
        many, read = self.decode(blobs, params)
        assert read == [True] * len(blobs)
        buffer, offsets = _many.encode_many(params, many)
        assert [buffer[a:b].tobytes() for a, b in pairwise(offsets)] == blobs

    def test_every_bit_that_is_turned_is_left_to_the_careful_reader(self) -> None:
        blobs, params = self.many(PARAMS)
        blob = blobs[3]
        for bit in range(8 * len(blob)):
            turned = bytearray(blob)
            turned[bit >> 3] ^= 1 << (bit & 7)
            for broken in (bytes(turned), sealed(turned)):
                many, [before, read, after] = self.decode([blobs[1], broken, blobs[2]], params)
                assert before
                assert after
                if read:  # then it is what somebody could have written
                    assert ds.DecaySketch.from_bytes(broken, params=params).to_bytes() == broken
                else:
                    assert many.offsets[1] == many.offsets[2]

    @pytest.mark.parametrize("cut", [0, 1, 10, 22, 30])
    def test_what_is_cut_short_is_not_read(self, cut: int) -> None:
        blobs, params = self.many(PARAMS)
        for short in (blobs[2][:cut], sealed(bytearray(blobs[2][: cut + 4]))):
            assert self.decode([blobs[0], short, blobs[1]], params)[1] == [True, False, True]

    def test_other_streams_are_not_read(self) -> None:
        blobs, _ = self.many(PARAMS)
        for other in (replace(PARAMS, seed=4), replace(PARAMS, capacity=7)):
            assert self.decode(blobs, other)[1] == [False] * len(blobs)


def sealed(blob: bytearray) -> bytes:
    """With the checksum that its bytes have."""
    from decaysketch.core.codec import reading, writing

    return writing.seal(bytes(blob[: -reading.CHECKSUM_BYTES]))


class TestPartitionMerger:
    def partials(self, rows: int = 300, recipe: Recipe | None = None) -> pa.Table:
        parts = []
        for seed in range(4):
            builder = KeyedBuilder(recipe or PARAMS, OBSERVATIONS, ["box"])
            builder.add(table_of(rows_of(rows, seed, keys=30)))
            parts += list(builder.batches())
        return pa.Table.from_batches(parts).sort_by("box")

    def expected(self, table: pa.Table) -> dict[Any, bytes]:
        groups: dict[Any, list[bytes]] = {}
        for row in table.to_pylist():
            groups.setdefault((row["box"],), []).append(row["sketch"])
        return {key: tables.merge_blobs(blobs) for key, blobs in groups.items()}

    def test_a_key_of_more_partials_than_are_held(self) -> None:
        table = self.partials()
        many = pa.concat_tables([table] * 40).sort_by("box")
        found = results(tables.partition_merger(["box"])(iter(many.to_batches(9))), ["box"])
        assert {key: row["sketch"] for key, row in found.items()} == self.expected(table)
        assert sum(row["rows"] for row in found.values()) == 40 * pc.sum(table["rows"]).as_py()

    def test_capacities_may_differ(self) -> None:
        smaller = recipe_of(replace(PARAMS, capacity=3))
        table = pa.concat_tables([self.partials(), self.partials(recipe=smaller)]).sort_by("box")
        found = results(tables.partition_merger(["box"])(iter(table.to_batches())), ["box"])
        assert {key: row["sketch"] for key, row in found.items()} == self.expected(table)

    def test_a_table_without_refusals_has_none(self) -> None:
        table = self.partials().drop_columns(["refused"])
        merged = tables.partition_merger(["box"])(iter(table.to_batches()))
        result = pa.Table.from_batches(merged)
        assert result.schema.names[1:] == [field.name for field in tables.RESULT_FIELDS]
        assert pc.sum(result["refused"]).as_py() == 0

    def test_damage_is_reported(self) -> None:
        table = self.partials()
        blobs = table["sketch"].to_pylist()
        blobs[20] = blobs[20][:-1] + bytes([blobs[20][-1] ^ 1])
        damaged = table.set_column(
            table.column_names.index("sketch"), "sketch", pa.array(blobs, pa.binary())
        )
        with pytest.raises(ds.CorruptSketchError, match="checksum"):
            list(tables.partition_merger(["box"])(iter(damaged.to_batches())))

    def test_another_stream_is_refused(self) -> None:
        other = self.partials(recipe=recipe_of(replace(PARAMS, seed=9)))
        table = pa.concat_tables([self.partials(), other]).sort_by("box")
        with pytest.raises(ds.IncompatibleSketchError, match="seed"):
            list(tables.partition_merger(["box"])(iter(table.to_batches())))

    def test_nothing_in_nothing_out(self) -> None:
        assert list(tables.partition_merger(["box"])(iter([]))) == []
        empty = self.partials().slice(0, 0).to_batches()
        assert list(tables.partition_merger(["box"])(iter(empty))) == []


class TestFiles:
    def test_row_groups_that_cannot_match_are_not_read(self, tmp_path: Any) -> None:
        rows = sorted(rows_of(900, 1), key=lambda row: row["time"])
        path = f"{tmp_path}/log.parquet"
        pq.write_table(table_of(rows), path, row_group_size=100)
        split = tables.FileSplit(path, tuple(range(9)), 0)
        only = tables.RowFilter(since=20, until=40, where=tables.parse_where("box >= 0"))
        with pq.ParquetFile(path) as file:
            chosen = tables.matching_row_groups(file, PARAMS, OBSERVATIONS, only)
        assert 1 <= len(chosen) < 6
        for name in (path, f"file://{path}"):
            function = tables.file_builder(
                [replace(split, path=name)], PARAMS, OBSERVATIONS, ["site"], only=only
            )
            found = function(iter([pa.RecordBatch.from_pydict({"id": [0]})]))
            taken = [
                row
                for row in rows
                if 20 <= row["time"] < 40 and row["box"] is not None and row["box"] >= 0
            ]
            expected = by_hand(recipe_of(PARAMS), taken, ["site"])
            merged = tables.partition_merger(["site"])(found)
            check(merged, expected, ["site"], counts_of(taken, ["site"]))

    def test_refused_rows_are_found_in_their_file(self, tmp_path: Any) -> None:
        rows = rows_of(300, 2)
        rows[120]["weight"], rows[250]["weight"], rows[251]["time"] = 9, -1, None
        path = f"{tmp_path}/log.parquet"
        pq.write_table(table_of(rows), path, row_group_size=50)
        splits = [tables.FileSplit(path, (0, 1, 2), 0), tables.FileSplit(path, (3, 4, 5), 150)]
        numbers = pa.RecordBatch.from_pydict({"id": [0, 1]})
        builder = tables.file_builder(splits, PARAMS, OBSERVATIONS, refused="count")
        [result] = builder(iter([numbers]))
        assert (result["refused"].to_pylist(), result["rows"].to_pylist()) == ([3], [297])
        finder = tables.file_refusal_finder(splits, PARAMS, OBSERVATIONS)
        found = [row for part in finder(iter([numbers])) for row in part.to_pylist()]
        assert [(r["place"], r["row"], r["column"], r["reason"]) for r in found] == [
            (path, 120, "weight", "is 9; expected 0 to 7 (max_weight)"),
            (path, 250, "weight", "is -1; expected 0 to 7 (max_weight)"),
            (path, 251, "time", "is missing"),
        ]
        assert json.loads(found[0]["record"])["weight"] == 9
