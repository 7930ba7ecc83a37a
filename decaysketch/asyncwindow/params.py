"""The frozen parameters for the asynchronous samplers, shared by all builders in one stream.

``SumParams`` serves sums of positive integers. ``MedianParams`` serves the median and other
quantiles (Xu, Tirthapura and Busch, sections 2 and 3). Both fix

* the number of levels from an upper bound on a window's contents, ``M = ceil(log2 bound)``,
* the number ``alpha`` of elements kept in each level,
* the largest window W,
* the seed for the coins.

The guaranteed accuracy, over the choice of the coins: a sum is off by more than ``epsilon`` times
itself, or a quantile's rank by more than ``epsilon`` times the element count, with probability
below ``delta``. Theorems 1 and 2 hold with

    alpha = 12 ln(8 / delta) / epsilon^2   (sum),   alpha = 96 ln(8 / delta) / epsilon^2   (median).

Section 2.2 prints ``12 / epsilon`` in the first. Its own Lemmas 8 and 11 use ``epsilon^2``.
``for_accuracy`` gives these (``mode="proven"``), or the capacity from a normal approximation to the
same error (``mode="practical"``), 16 to 250 times less.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_args

from decaysketch.core import hashing
from decaysketch.core.params import (
    MAX_CAPACITY,
    BuildParams,
    Option,
    check_integer,
    check_time_unit,
)
from decaysketch.core.special import ndtri
from decaysketch.errors import ParameterError

__all__ = [
    "MAX_BOUND",
    "MAX_CAPACITY",
    "MAX_WINDOW",
    "OPTIONS",
    "AsyncParams",
    "MedianParams",
    "Mode",
    "SumParams",
]

Mode = Literal["proven", "practical"]
ValueType = Literal["int64", "float64"]

MAX_BOUND = 1 << 53  # coins have 53 bits
MAX_WINDOW = 1 << 62


@dataclass(frozen=True, kw_only=True)
class AsyncParams(BuildParams):
    """Common parameters. Use :class:`SumParams` or :class:`MedianParams`.

    Args:
        capacity: elements kept in each level's sample, at most 2^20.
        max_window: the largest window width that queries may use, in time units, at most
            2^62. None for no limit: then a sampler's clock has no effect.
        seed: ``0 <= seed < 2^64``. It fixes the coins.
        time_unit: unit label for every timestamp and width, 1 to 8 lower-case letters.

    Raises:
        ParameterError: a field is outside its domain. The message names it and the value.
    """

    kind: ClassVar[str]
    weighted: ClassVar[bool]  # whether the value of an element decides its level

    capacity: int  # alpha
    max_window: int | None = None  # W
    seed: int = 0
    time_unit: str = "s"

    def __post_init__(self) -> None:
        check_integer("capacity", self.capacity, 1, MAX_CAPACITY)
        if self.max_window is not None:
            check_integer("max_window", self.max_window, 0, MAX_WINDOW)
        check_integer("seed", self.seed, 0, (1 << 64) - 1)
        check_time_unit(self.time_unit)

    @property
    @abstractmethod
    def bound(self) -> int:
        """Upper bound on a window's contents: V_max, or N_max."""

    @property
    @abstractmethod
    def first_nested(self) -> int:
        """Samples from this level on contain every element that reaches them (L of section 2.5).
        Samples below contain the elements with exactly their top level.
        """

    @property
    @abstractmethod
    def _choice(self) -> str:
        """The subclass's own parameters, as the fingerprint reads them."""

    @property
    def levels(self) -> int:
        """Index of the coarsest level, ``M = ceil(log2 bound)``. Levels are 0..M."""
        return (self.bound - 1).bit_length()  # M

    @property
    def copies(self) -> int:
        """Independent coin sets in a sampler: one."""
        return 1

    def source_word(self, index: int) -> int:
        """The ``index``-th 64-bit word of the stream that keys source names."""
        return hashing.derive(self.seed, PURPOSE_SOURCE, index)

    @cached_property
    def fingerprint(self) -> bytes:
        """8 bytes that are equal exactly when two samplers may be merged (capacity is not
        included).
        """
        window = "none" if self.max_window is None else str(self.max_window)
        parts = (self.kind, str(self.bound), self._choice, window, str(self.seed), self.time_unit)
        text = "\0".join(parts)
        digest = hashlib.blake2b(text.encode("ascii"), digest_size=8, person=b"ds-async-1")
        return digest.digest()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, with the ``kind``."""
        return {"kind": self.kind, **asdict(self)}

    @staticmethod
    def from_dict(form: Mapping[str, Any]) -> SumParams | MedianParams:
        """Inverse of :meth:`to_dict`, of either kind.

        Raises:
            ParameterError: an unknown kind or field, a missing one, or one outside its domain.
        """
        remaining = dict(form)
        kind = remaining.pop("kind", None)
        of_kind: dict[Any, type[SumParams] | type[MedianParams]] = {
            "sum": SumParams, "median": MedianParams
        }  # fmt: skip
        if kind not in of_kind:
            raise ParameterError(f"kind is {kind!r}; expected one of {', '.join(of_kind)}")
        cls = of_kind[kind]
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(remaining) - known):
            raise ParameterError(f"unknown parameter {unknown[0]!r}; known are {sorted(known)}")
        bound = "max_sum" if cls is SumParams else "max_count"
        if missing := sorted({"capacity", bound} - set(remaining)):
            raise ParameterError(f"{missing[0]} is missing")
        return cls(**remaining)


PURPOSE_SOURCE = 16  # stream of derived words, beside those of ``hashing``: never reuse one


@dataclass(frozen=True, kw_only=True)
class SumParams(AsyncParams):
    """Build parameters for a :class:`~decaysketch.asyncwindow.SumSampler`.

    Args:
        max_sum: upper bound on the sum of the values in any window, at most 2^53. Values are
            integers 1..max_sum. A larger sum is still estimated as long as the coarsest level has
            discarded nothing in its window, but without the guarantee.
        eager_from_level: L of section 2.5. None (as M) is the procedure SumProcess: an element is
            put into the sample of its top level only. From level L on, an element is put into
            every sample up to its top level instead, and 0 does so everywhere.
        capacity, max_window, seed, time_unit: see :class:`AsyncParams`.

    Elements are stored once for any ``eager_from_level``. So here it affects the number of kept
    elements, not time: eager samples overlap, so they keep fewer elements in total.
    """

    kind: ClassVar[str] = "sum"
    weighted: ClassVar[bool] = True
    value_type: ClassVar[ValueType] = "int64"

    max_sum: int  # V_max
    eager_from_level: int | None = None  # L

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("max_sum", self.max_sum, 1, MAX_BOUND)
        if self.eager_from_level is not None:
            check_integer("eager_from_level", self.eager_from_level, 0, self.levels)
            if self.eager_from_level == self.levels:  # level M is alone: the same samples
                object.__setattr__(self, "eager_from_level", None)

    @property
    def bound(self) -> int:
        """V_max."""
        return self.max_sum

    @property
    def first_nested(self) -> int:
        """L, which is M if ``eager_from_level`` is None."""
        return self.levels if self.eager_from_level is None else self.eager_from_level

    @property
    def _choice(self) -> str:
        return str(self.first_nested)

    @classmethod
    def for_accuracy(
        cls,
        epsilon: float,
        delta: float,
        *,
        max_sum: int,
        max_window: int | None = None,
        mode: Mode = "practical",
        eager_from_level: int | None = None,
        seed: int = 0,
        time_unit: str = "s",
    ) -> Self:
        """Return parameters under which a sum is off by more than ``epsilon`` times itself with
        probability below ``delta``.

        Args:
            epsilon: relative error, 0 < epsilon < 1.
            delta: probability, 0 < delta < 1.
            max_sum, max_window, eager_from_level, seed, time_unit: see :class:`SumParams`.
            mode: "proven": the capacity from Theorem 1. "practical": the level that a query reads
                has ``alpha`` sampled elements or more (``alpha / 2`` if samples are eager), so
                a sum's relative variance is about ``1 / alpha`` (``2 / alpha``) at most. The
                capacity makes ``epsilon`` the ``1 - delta / 2`` quantile of that normal law.

        Raises:
            ParameterError: an argument outside its domain, or a capacity above 2^20.
        """
        if _accuracy(epsilon, delta, mode, 1.0) == "proven":
            capacity = 12.0 * math.log(8.0 / delta) / epsilon**2
        else:
            overlap = 1.0 if eager_from_level is None else 2.0
            capacity = overlap * (ndtri(1.0 - 0.5 * delta) / epsilon) ** 2
        return cls(
            max_sum=max_sum, max_window=max_window, eager_from_level=eager_from_level, seed=seed,
            time_unit=time_unit, capacity=_capacity(capacity, epsilon, delta, mode),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MedianParams(AsyncParams):
    """Build parameters for a :class:`~decaysketch.asyncwindow.MedianSampler`.

    Args:
        max_count: upper bound on the element count in any window, at most 2^53.
        value_type: "float64" (default) or "int64": the type of stored values.
        capacity, max_window, seed, time_unit: see :class:`AsyncParams`.
    """

    kind: ClassVar[str] = "median"
    weighted: ClassVar[bool] = False

    max_count: int  # N_max
    value_type: ValueType = "float64"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("max_count", self.max_count, 1, MAX_BOUND)
        if self.value_type not in get_args(ValueType):
            raise ParameterError(
                f"value_type is {self.value_type!r}; expected one of "
                f"{', '.join(get_args(ValueType))}"
            )

    @property
    def bound(self) -> int:
        """N_max."""
        return self.max_count

    @property
    def first_nested(self) -> int:
        """0: MedianProcess puts an element into every level that it is sampled into."""
        return 0

    @property
    def _choice(self) -> str:
        return self.value_type

    @classmethod
    def for_accuracy(
        cls,
        epsilon: float,
        delta: float,
        *,
        max_count: int,
        max_window: int | None = None,
        mode: Mode = "practical",
        value_type: ValueType = "float64",
        seed: int = 0,
        time_unit: str = "s",
    ) -> Self:
        """Return parameters under which the rank of a median, or of any other quantile, is off by
        more than ``epsilon`` times the element count with probability below ``delta``.

        Args:
            epsilon: rank error as a share of the elements, 0 < epsilon < 1/2.
            delta: probability, 0 < delta < 1.
            max_count, max_window, value_type, seed, time_unit: see :class:`MedianParams`.
            mode: "proven": the capacity from Theorem 2. "practical": the level that a query reads
                has ``alpha / 2`` elements or more, so a relative rank's variance is about
                ``1 / (2 alpha)`` at most. The capacity makes ``epsilon`` the ``1 - delta / 2``
                quantile for that normal law.

        Raises:
            ParameterError: an argument outside its domain, or a capacity above 2^20.
        """
        if _accuracy(epsilon, delta, mode, 0.5) == "proven":
            capacity = 96.0 * math.log(8.0 / delta) / epsilon**2
        else:
            capacity = 0.5 * (ndtri(1.0 - 0.5 * delta) / epsilon) ** 2
        return cls(
            max_count=max_count, max_window=max_window, value_type=value_type, seed=seed,
            time_unit=time_unit, capacity=_capacity(capacity, epsilon, delta, mode),
        )  # fmt: skip


def _accuracy(epsilon: float, delta: float, mode: Mode, most: float) -> Mode:
    for name, value, limit in (("epsilon", epsilon, most), ("delta", delta, 1.0)):
        if not isinstance(value, (int, float)) or not 0.0 < value < limit:
            raise ParameterError(f"{name} is {value!r}; expected a number between 0 and {limit:g}")
    if mode not in get_args(Mode):
        raise ParameterError(f"mode is {mode!r}; expected one of {', '.join(get_args(Mode))}")
    return mode


def _capacity(wanted: float, epsilon: float, delta: float, mode: Mode) -> int:
    capacity = math.ceil(wanted)
    if capacity > MAX_CAPACITY:
        hint = ", or mode='practical'" if mode == "proven" else ""
        raise ParameterError(
            f"epsilon {epsilon} and delta {delta} require a capacity of {capacity}; the largest "
            f"is {MAX_CAPACITY}: allow a larger error{hint}"
        )
    return capacity


_CAPACITY = Option(name="capacity", type=int, doc="Elements stored for each level.", example=2000)
_SHARED = (
    Option(
        name="max_window",
        type=int,
        default=None,
        optional=True,
        doc="Largest width of a window. Null: any.",
    ),
    Option(name="seed", type=int, default=0, doc="Seed of the coins, up to 64 bits."),
    Option(name="time_unit", type=str, default="s", doc="Unit of times and ages."),
)

#: The parameters of each kind.
OPTIONS = {
    "sum": (
        Option(
            name="max_sum", type=int, doc="Upper bound on the sum in any window.", example=10**6
        ),
        _CAPACITY,
        *_SHARED,
        Option(
            name="eager_from_level",
            type=int,
            default=None,
            optional=True,
            doc="Elements enter every sample from this level up to their top level. L in section "
            "2.5 of the paper.",
        ),
    ),
    "median": (
        Option(
            name="max_count",
            type=int,
            doc="Upper bound on the number of elements in any window.",
            example=10**6,
        ),
        _CAPACITY,
        *_SHARED,
        Option(
            name="value_type",
            type=str,
            default="float64",
            choices=get_args(ValueType),
            doc="Type of the values.",
        ),
    ),
}
