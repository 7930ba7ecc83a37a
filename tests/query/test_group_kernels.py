"""The kernels for groups give NumPy's sums, bit for bit. A single group's sums are in lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from decaysketch.query import _groups_native as native

GROUPS, ROWS, EXACT = 7, 400, 90
Column = npt.NDArray[np.float64]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.fixture
def columns(rng: np.random.Generator) -> dict[str, Column]:
    return {name: rng.random(ROWS) for name in ("masses", "variances", "jumps", "decayed")}


@pytest.fixture
def group(rng: np.random.Generator) -> npt.NDArray[np.int64]:
    return rng.integers(0, GROUPS - 1, ROWS)  # the last group has no row


def by_side(side: npt.NDArray[np.intp], column: Column, size: int = 2 * GROUPS) -> Column:
    return np.bincount(side, column, size).astype(np.float64)


def largest(side: npt.NDArray[np.intp], column: Column, size: int = 2 * GROUPS) -> Column:
    found = np.zeros(size)
    np.maximum.at(found, side, column)
    return found


def test_sums_over_terms(
    rng: np.random.Generator, columns: dict[str, Column], group: npt.NDArray[np.int64]
) -> None:
    x = np.round(rng.normal(0.0, 1.0, ROWS), 1)  # some are 0
    found, near = native.Rows(group, **columns, exact=EXACT, groups=GROUPS).terms(x)
    masses, variances, jumps, decayed = (column[EXACT:] for column in columns.values())
    far, size = x[EXACT:], np.abs(x[EXACT:])
    side = group[EXACT:] + GROUPS * (far < 0.0)
    spread = variances * far * far
    low, high = np.full(2 * GROUPS, np.inf), np.full(2 * GROUPS, -np.inf)
    np.minimum.at(low, side, far)
    np.maximum.at(high, side, far)
    expected = [
        by_side(side, masses * size), by_side(side, spread),
        by_side(side, spread * (jumps - 0.5 * decayed) * size), by_side(side, masses * (far != 0)),
        largest(side, jumps * size), largest(side, spread), low, high,
    ]  # fmt: skip
    assert np.array_equal(found.T, expected)
    known = group[:EXACT] + GROUPS * (x[:EXACT] < 0.0)
    assert np.array_equal(near, largest(known, np.abs(x[:EXACT])))


def test_moments_and_residuals(
    rng: np.random.Generator, columns: dict[str, Column], group: npt.NDArray[np.int64]
) -> None:
    x, masses = rng.normal(0.0, 1.0, ROWS), columns["masses"]
    rows = native.Rows(group, **columns, exact=EXACT, groups=GROUPS)
    weight, total, least, most = rows.moments(x).T
    low, high = native.extremes(group, x, GROUPS)
    assert np.array_equal(weight, by_side(group, masses, GROUPS))
    assert np.array_equal(total, by_side(group, masses * x, GROUPS))
    assert np.array_equal(least, low)
    assert np.array_equal(most, high)
    assert [least[-1], most[-1]] == [np.inf, -np.inf]
    assert least[0] == x[group == 0].min()
    assert most[0] == x[group == 0].max()
    center, share = rng.random(GROUPS), rng.random(GROUPS) * 2.0
    rest = np.maximum(1.0 - masses * share[group], 0.1)
    found = rows.residuals(x, center, share, 0.1)
    assert np.array_equal(found, (x - center[group]) / rest)


@pytest.mark.parametrize("weighted", [False, True])
def test_sizes(
    rng: np.random.Generator, columns: dict[str, Column], group: npt.NDArray[np.int64],
    weighted: bool,
) -> None:  # fmt: skip
    x, weights = rng.normal(0.0, 1.0, ROWS), rng.integers(1, 9, ROWS)
    rows = native.Rows(group, **columns, exact=EXACT, groups=GROUPS)
    found = rows.sizes(x, weights if weighted else None)
    near, far, f = group[:EXACT], group[EXACT:], x[EXACT:]
    masses, variances = columns["masses"][EXACT:], columns["variances"][EXACT:]
    expected = [
        largest(group, np.maximum(x, 0.0), GROUPS), largest(group, np.maximum(-x, 0.0), GROUPS),
        np.bincount(near, minlength=GROUPS), by_side(near, x[:EXACT] ** 2, GROUPS),
        by_side(far, variances, GROUPS), by_side(far, variances * f * f, GROUPS),
        by_side(far, masses, GROUPS), by_side(far, weighted * masses / weights[EXACT:], GROUPS),
    ]  # fmt: skip
    assert np.array_equal(found.T, expected)


def test_a_contrast_is_terms_and_sizes_of_its_difference(
    rng: np.random.Generator, columns: dict[str, Column], group: npt.NDArray[np.int64]
) -> None:
    a, b = rng.normal(0.0, 1.0, ROWS), rng.normal(0.0, 1.0, ROWS)
    ratio = rng.random(GROUPS)
    ratio[2] = np.nan  # not read
    rows = native.Rows(group, **columns, exact=EXACT, groups=GROUPS)
    terms, near, sizes, drawn = rows.contrast(a, b, ratio)
    x = a - ratio[group] * b
    x[group == 2] = 0.0
    expected, expected_near = rows.terms(x)
    others, both = np.arange(GROUPS) != 2, np.arange(2 * GROUPS) % GROUPS != 2
    assert np.array_equal(terms[both], expected[both])
    assert np.array_equal(near, expected_near)
    assert np.array_equal(sizes[others], rows.sizes(x)[others])
    side, amounts = group + GROUPS * (x < 0.0), columns["masses"] * np.abs(x)
    assert np.array_equal(drawn, [by_side(side, amounts), by_side(side, amounts * np.abs(x))])
    assert not terms[[2, 2 + GROUPS], :6].any()
    with pytest.raises(ValueError, match="columns of 7 and 6 rows"):
        rows.contrast(a, b, ratio[1:])


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, ROWS])
def test_a_single_group_is_the_first_of_two(
    rng: np.random.Generator, columns: dict[str, Column], rows: int
) -> None:
    x, weights, group = np.round(rng.normal(0.3, 1.0, ROWS), 1), rng.integers(1, 9, ROWS), np.zeros
    taken = {name: column[:rows] for name, column in columns.items()}
    for exact in {0, rows // 3, rows}:
        for f in (x[:rows], np.abs(x[:rows])):
            single, two = (
                native.Rows(group(rows, np.int64), **taken, exact=exact, groups=groups)
                for groups in (1, 2)
            )
            for name, given in (("terms", [f]), ("moments", [f]), ("sizes", [f, weights[:rows]])):
                found, expected = getattr(single, name)(*given), getattr(two, name)(*given)
                if name == "terms":
                    (found, near), (expected, nearest) = found, expected
                    assert near.tolist() == nearest[::2].tolist()
                    expected = expected[::2]
                assert found == pytest.approx(expected[: len(found)], rel=1e-13)
            center, share = np.array([0.2, 5.0]), np.array([0.9, 5.0])
            alone = single.residuals(f, center[:1], share[:1], 0.5)
            assert alone.tolist() == two.residuals(f, center, share, 0.5).tolist()


@pytest.mark.parametrize("kind", ["ties", "distinct", "integers"])
def test_ranks(
    rng: np.random.Generator, columns: dict[str, Column], group: npt.NDArray[np.int64], kind: str
) -> None:
    values: npt.NDArray[Any] = rng.normal(0.0, 1e3, ROWS)
    if kind == "ties":
        values = np.round(values, -3)  # with both zeros
    elif kind == "integers":
        values = rng.integers(-(2**62), 2**62, ROWS)
    starts = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=GROUPS))])
    weight = by_side(group, columns["masses"], GROUPS)
    keys, exact, sampled, variance = native.rank(
        group, values.view(np.int64), values.dtype.kind == "f", columns["masses"],
        columns["variances"], EXACT, weight, starts,
    )  # fmt: skip
    for number in range(GROUPS - 1):
        rows = np.flatnonzero(group == number)
        rows = rows[np.argsort(values[rows], kind="stable")]
        part = slice(starts[number], starts[number + 1])
        assert np.array_equal(keys.view(values.dtype)[part], values[rows])
        last = np.searchsorted(values[rows], values[rows], side="right") - 1
        masses = columns["masses"][rows] / weight[number]
        spread = columns["variances"][rows] / weight[number] ** 2
        for found, column in (
            (exact, masses * (rows < EXACT)),
            (sampled, masses * (rows >= EXACT)),
            (variance, spread * (rows >= EXACT)),
        ):
            assert found[part] == pytest.approx(np.cumsum(column)[last], rel=1e-12)
    wanted = rng.random(GROUPS)
    some = np.arange(GROUPS)
    sums = np.split(exact + sampled, starts[1:-1])
    expected = [int(np.sum(each < most)) for each, most in zip(sums, wanted, strict=True)]
    assert native.reach(starts, exact, sampled, some, wanted).tolist() == expected


def test_lengths_are_checked(columns: dict[str, Column], group: npt.NDArray[np.int64]) -> None:
    rows = native.Rows(group, **columns, exact=EXACT, groups=GROUPS)
    with pytest.raises(ValueError, match="columns of 400 and 3 rows"):
        rows.terms(np.zeros(3))
    with pytest.raises(ValueError, match="known masses"):
        native.Rows(group, **columns, exact=ROWS + 1, groups=GROUPS)
