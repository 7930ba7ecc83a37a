"""Integral decays that are given step by step: windows, halvings, fractions and tables."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.decay.integral import _exact
from decaysketch.decay.integral._base import (
    Decomposable,
    IntegralDecay,
    check_integer,
    check_last_age,
    integer_column,
)
from decaysketch.decay.integral._steps import MAX_AGE, MAX_STEPS, StepTable
from decaysketch.errors import ParameterError

__all__ = ["Fractions", "Halving", "Table", "Window"]

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Window(Decomposable):
    """See :func:`window`."""

    width: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_integer("width", self.width, 0, MAX_AGE - 1))

    def _fraction(self, age: int, order: int) -> tuple[int, int]:
        return (1, 1) if age <= self.width else (0, 1)

    def _table(self, max_weight: int) -> StepTable:
        return StepTable.of_fractions(max_weight, [(0, 1, 1), (self.width + 1, 0, 1)])

    def _guess(self, ratios: Float64Array) -> Float64Array:
        return np.full(ratios.shape, self.width + 1.0)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "window", "width": self.width}

    def __repr__(self) -> str:
        return f"integral.window({self.width!r})"


@dataclass(frozen=True)
class Halving(Decomposable):
    """See :func:`halving`."""

    period: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", check_integer("period", self.period, 1, MAX_AGE))

    def _fraction(self, age: int, order: int) -> tuple[int, int]:
        halvings = age // self.period
        return (1, 1 << halvings) if halvings < order.bit_length() else (0, 1)

    def _table(self, max_weight: int) -> StepTable:
        count = max_weight.bit_length()
        check_last_age(self, count * self.period)
        rows = [(k * self.period, 1, 1 << k) for k in range(count)]
        return StepTable.of_fractions(max_weight, [*rows, (count * self.period, 0, 1)])

    def _guess(self, ratios: Float64Array) -> Float64Array:
        return (np.floor(np.log2(ratios)) + 1.0) * self.period

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "halving", "period": self.period}

    def __repr__(self) -> str:
        return f"integral.halving({self.period!r})"


@dataclass(frozen=True)
class Fractions(Decomposable):
    """See :func:`fractions`. Compared by the digest of the values."""

    values: tuple[Fraction, ...] = field(compare=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        given = self.values
        if isinstance(given, (str, bytes)) or not isinstance(given, Sequence) or not len(given):
            raise ParameterError(f"fractions is {given!r}; expected one or more exact fractions")
        if len(given) >= MAX_STEPS:
            raise ParameterError(f"fractions has {len(given)} ages; expected less than {MAX_STEPS}")
        values = tuple(_exact_fraction(f"fractions[{k}]", value) for k, value in enumerate(given))
        for k, value in enumerate(values):
            if not 0 <= value <= (values[k - 1] if k else 1):
                limit = values[k - 1] if k else 1
                raise ParameterError(f"fractions[{k}] is {value}; expected 0 to {limit}")
        text = " ".join(map(str, values))
        digest = hashlib.blake2b(text.encode("ascii"), digest_size=16, person=b"ds-fractions-1")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "digest", digest.hexdigest())

    def _fraction(self, age: int, order: int) -> tuple[int, int]:
        value = self.values[age] if age < len(self.values) else Fraction(0)
        if value.denominator <= order:
            return value.numerator, value.denominator
        return _exact.farey_floor(value.numerator, value.denominator, order)[:2]

    def _table(self, max_weight: int) -> StepTable:
        ages = range(len(self.values) + 1)
        rows = [(age, *self._fraction(age, max_weight)) for age in ages]
        return StepTable.of_fractions(max_weight, rows)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "fractions", "ages": len(self.values), "digest": self.digest}

    def __repr__(self) -> str:
        return f"integral.fractions(<{len(self.values)} ages>)"


def _exact_fraction(name: str, value: object) -> Fraction:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and len(value) == 2:
        p, q = (check_integer(name, part, 0, 1 << 128) for part in value)
        if q == 0:
            raise ParameterError(f"{name} is {value!r}; expected a denominator > 0")
        return Fraction(p, q)
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, (int, Fraction)) and not isinstance(value, bool):
        return Fraction(value)
    raise ParameterError(f"{name} is {value!r}; expected an int, a Fraction or a pair (p, q)")


@dataclass(frozen=True)
class Table(IntegralDecay):
    """See :func:`table`. Equal where every value is."""

    full: StepTable

    def __call__(self, weights: npt.ArrayLike, ages: npt.ArrayLike) -> Int64Array:
        w = integer_column("weights", weights, 0, self.full.max_weight)
        x = integer_column("ages", ages, 0, (1 << 63) - 1)
        found: Int64Array = np.asarray(
            self.full.at(w, np.searchsorted(self.full.ages, x, side="right") - 1)
        )
        return found

    def _table(self, max_weight: int) -> StepTable:
        if max_weight > self.full.max_weight:
            raise ParameterError(
                f"max_weight is {max_weight}; expected at most {self.full.max_weight}, "
                f"the largest weight of {self!r}"
            )
        initial = int(self.full.at(np.array(max_weight), np.array(0)))
        if initial > max_weight:
            raise ParameterError(
                f"f({max_weight}, 0) is {initial}; expected at most {max_weight}, "
                "the largest weight of the sketch"
            )
        if max_weight == self.full.max_weight:
            return self.full
        return self.full.restricted(max_weight)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "table",
            "max_weight": self.full.max_weight,
            "steps": len(self.full),
            "digest": self.full.digest.hex(),
        }

    def __repr__(self) -> str:
        return (
            f"integral.table(<max_weight={self.full.max_weight}, {len(self.full)} steps, "
            f"digest {self.full.digest.hex()[:8]}>)"
        )


def check_table(name: str, values: npt.ArrayLike, largest: int) -> Table:
    """Return a table decay f(w, x) = values[w][x], after checking every rule for integral
    decays.
    """
    given = np.asarray(values)
    if given.dtype.kind not in "iu" or given.ndim != 2 or len(given) < 2 or not given.size:
        raise ParameterError(
            f"{name} has dtype {given.dtype} and shape {given.shape}; expected integers, a row for "
            "each weight from 0 to max_weight, a column for each age from 0"
        )
    if given.size > largest:
        raise ParameterError(f"{name} has {given.size} cells; expected at most {largest}")
    top = len(given) - 1

    def refuse(faults: npt.NDArray[np.bool_], expected: str) -> None:
        if faults.any():
            w, x = (int(k) for k in np.argwhere(faults)[0])
            raise ParameterError(f"{name}[{w}][{x}] is {given[w, x]}; expected {expected}")

    refuse((given < 0) | (given > top), f"0 to {top}, the largest weight")
    table = given.astype(np.int64)
    refuse((table > 0) & (np.arange(top + 1) == 0)[:, None], "0, as the weight is")
    refuse(np.diff(table, axis=1, prepend=table[:, :1]) > 0, "at most the value one age earlier")
    refuse(np.diff(table, axis=0, prepend=0) < 0, "at least the value of the weight before")
    refuse((table > 0) & (np.arange(table.shape[1]) == table.shape[1] - 1), "0 at the last age")
    ages = np.arange(table.shape[1], dtype=np.int64)
    return Table(StepTable.of_values(top, ages, table))
