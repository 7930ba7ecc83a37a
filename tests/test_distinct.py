"""Numbers of distinct int64 keys, against a Python dict."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from decaysketch.core import distinct
from decaysketch.core.distinct import Distinct

Int64Array = npt.NDArray[np.int64]
LIMITS = np.iinfo(np.int64)


def check(parts: list[Int64Array]) -> Distinct:
    """Number some parts one after the other; the same as a dict does."""
    numbers, expected = Distinct(), dict[int, int]()
    for part in parts:
        codes = numbers.number(part)
        assert codes.dtype == np.int32
        assert codes.tolist() == [expected.setdefault(key, len(expected)) for key in part.tolist()]
    assert numbers.count == len(expected)
    assert numbers.distinct[: numbers.count].tolist() == list(expected)
    return numbers


@pytest.mark.parametrize("keys", [1, 2, 512, 513, 3_000, 40_000])
def test_keys_are_numbered_in_order_of_first_appearance(keys: int) -> None:
    rng = np.random.default_rng(keys)
    drawn = rng.integers(LIMITS.min, LIMITS.max, keys, endpoint=True)[rng.integers(0, keys, 50_000)]
    check([drawn[:7], drawn[:0], drawn[7:9_000], drawn[9_000:]])
    check([np.arange(keys) * 1_000_003 - 5, np.arange(keys)[::-1] * 2_000_006 - 5])


def test_extremes_and_strided_columns() -> None:
    keys = np.array([LIMITS.min, -1, 0, LIMITS.max, -1, LIMITS.min, 0, 1])
    check([keys, keys[::-2]])


@pytest.mark.parametrize("sign", [1, -1])
def test_keys_that_all_fall_to_one_slot(monkeypatch: pytest.MonkeyPatch, sign: int) -> None:
    """Nothing is spread: all in the first slot, or in the last one and round the end."""
    monkeypatch.setattr(distinct, "_SALT", 1)
    check([sign * np.arange(1, 1_500), sign * np.arange(2_000, 0, -1)])


@pytest.mark.parametrize("before", [0, 3, 511, 512, 600])
def test_the_null_has_a_number_that_no_key_has(before: int) -> None:
    numbers = Distinct()
    numbers.number(np.arange(1, before + 1))
    assert numbers.number_null() == before
    assert numbers.number_null() == numbers.null == before
    later = np.arange(5_000)  # grows, and 0 is what stands for the null among the keys
    codes = numbers.number(later)
    expected = np.concatenate([[before + 1], np.arange(before), np.arange(before + 2, 5_001)])
    assert codes.tolist() == expected.tolist()
    assert numbers.number(later).tolist() == expected.tolist()
