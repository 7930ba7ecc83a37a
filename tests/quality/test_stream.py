"""The simulated stream of section 5.1 is what its steps say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from quality import sources, stream

ROWS = 60_000


@pytest.fixture(scope="module")
def columns() -> stream.Columns:
    return stream.simulate(ROWS)


def test_has_the_papers_share_of_distinct_elements(columns: stream.Columns) -> None:
    """75.7 % there; here the counting error of 60,000 elements is below 0.4 points."""
    assert len(columns.ids) == ROWS
    assert len(np.unique(columns.ids)) / ROWS == pytest.approx(0.757, abs=0.012)


def test_binds_second_client_and_server_into_ids(columns: stream.Columns) -> None:
    assert (columns.ids // 10_000 == columns.timestamps).all()
    assert columns.ids.max() <= 863_999_999
    assert columns.ids.max() < 1 << stream.ID_BITS
    assert columns.timestamps.max() == 86_399


def test_has_weights_and_values_in_their_ranges(columns: stream.Columns) -> None:
    assert columns.weights.min() == 0
    assert columns.weights.max() == stream.MAX_WEIGHT
    assert columns.values.min() == 0
    assert columns.values.max() < 10**9


def test_makes_copies_consistent(columns: stream.Columns) -> None:
    order = np.argsort(columns.ids, kind="stable")
    same = np.diff(columns.ids[order]) == 0
    assert same.any()
    for column in (columns.values, columns.weights, columns.timestamps):
        assert not np.diff(column[order])[same].any()


def test_keeps_the_order_of_each_server_and_no_other(columns: stream.Columns) -> None:
    server = columns.ids % 100
    for number in np.unique(server):
        assert (np.diff(columns.timestamps[server == number]) >= 0).all()
    assert (np.diff(columns.timestamps) < 0).mean() > 0.3


def test_takes_the_next_element_from_each_server_alike() -> None:
    """Unequal substreams: the small one is as likely at the head as the large one."""
    server = np.repeat([0, 1, 2], [40, 400, 4_000])
    first, pairs = Counter[int](), Counter[tuple[int, int]]()
    draws = 3_000
    rng = np.random.default_rng(5)
    for _ in range(draws):
        taken = server[stream._interleaved(rng, server)]
        first[int(taken[0])] += 1
        pairs[int(taken[0]), int(taken[1])] += 1
    spread = (draws * (1 / 3) * (2 / 3)) ** 0.5
    assert all(abs(first[s] - draws / 3) < 4.5 * spread for s in range(3))
    spread = (draws * (1 / 9) * (8 / 9)) ** 0.5
    assert all(abs(pairs[a, b] - draws / 9) < 4.5 * spread for a in range(3) for b in range(3))


def test_interleaves_every_element_once_and_substreams_in_their_order() -> None:
    server = np.array([2, 0, 0, 2, 1, 0, 2, 2, 0])
    order = stream._interleaved(np.random.default_rng(1), server)
    assert sorted(order) == list(range(len(server)))
    for number in range(3):
        assert (np.diff(order[server[order] == number]) > 0).all()


def test_never_sets_the_clock_back(columns: stream.Columns) -> None:
    assert (np.diff(columns.clocks) >= 0).all()
    delay = columns.clocks - np.maximum.accumulate(columns.timestamps)
    assert delay.min() >= 0
    assert delay.max() <= 2
    assert set(np.unique(delay)) == {0, 1, 2}


def test_is_the_same_again() -> None:
    first, again, other = (stream.simulate(2_000, seed=seed) for seed in (4, 4, 5))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first.ids != other.ids).any()


def test_distinct_keeps_the_latest_copy_of_each_id_and_weight() -> None:
    rng = np.random.default_rng(2)
    columns = stream.Columns(
        values=rng.integers(0, 5, 500),
        weights=rng.integers(0, 3, 500),
        timestamps=rng.integers(0, 9, 500),
        ids=rng.integers(0, 40, 500),
        clocks=np.full(500, 9),
    )
    latest: dict[tuple[int, int], tuple[int, int]] = {}
    for value, weight, timestamp, id_, _ in zip(*columns, strict=True):
        if weight:
            key = int(id_), int(weight)
            latest[key] = max(latest.get(key, (-1, -1)), (int(timestamp), int(value)))
    expected = sorted((v, w, t) for (_, w), (t, v) in latest.items())
    assert sorted(zip(*map(np.ndarray.tolist, stream.distinct(columns)), strict=True)) == expected


@pytest.mark.parametrize("name", sources.LOGS)
def test_real_logs_give_their_messages(name: str, tmp_path) -> None:
    source = sources.log(tmp_path, name)
    if source is None:
        pytest.skip("the real logs are not on this machine")
    assert source.distinct == {"wifi": 443_268, "ble": 178_208}[name]
    columns = source.columns()
    assert len(columns.ids) == source.rows
    assert columns.timestamps.max() <= source.now
    assert (np.diff(columns.clocks) >= 0).all()
