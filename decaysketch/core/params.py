"""The frozen sketch parameters that every builder in one stream shares.

Two sketches merge only if they were built with the same hash function over the same universe of
integers. :class:`SketchParams` contains all of that, and nothing that an analyst may choose at
query time (decay, window, predicate, confidence). It contains the capacity as well, but sketches
with different capacities do merge. The smaller one wins, because shrinking a sketch gives the same
sketch as building it small.

The universe has ``Y = max_weight * 2^id_bits`` integers. An observation with weight ``w`` and
(mixed) id represents ``max_weight * id + j``, ``0 <= j < w`` (Cormode, Tirthapura and Xu, sections
3.1 and 3.2). The kernels need ``p < 2^61``, hence ``Y < 2^56.6``: weights with 10 bits leave 46
bits for the id, weights with 31 bits leave 25.
"""

from __future__ import annotations

import hashlib
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.core import hashing, sizing
from decaysketch.core.column_types import (
    ColumnsField,
    ColumnTypes,
    StrataField,
    read_column_types,
    read_strata,
    revision_first,
)
from decaysketch.core.sizing import MAX_CAPACITY, MAX_COPIES, MAX_ID_BITS
from decaysketch.errors import ParameterError

__all__ = [
    "DEFAULT_STRATA",
    "MAX_CAPACITY",
    "MAX_COPIES",
    "MAX_ID_BITS",
    "MAX_STRATA",
    "MAX_WEIGHT",
    "OBJECTIVES",
    "OPTIONS",
    "BuildParams",
    "Differences",
    "Form",
    "SketchParams",
    "check_integer",
    "check_shrinks",
    "check_time_unit",
    "differing",
]

IdMix = Literal["keyed", "none"]
ValueType = Literal["int64", "float64", "label"]
Objectives = tuple[Literal["weight"]] | tuple[Literal["weight"], Literal["count"]]
RECORD: Literal["record"] = "record"
"""The value type of streams with columns."""

Form = Mapping[str, Any]
"""A JSON object, as it was read: what its fields are, whoever takes one of them checks."""

Differences = dict[str, tuple[object, object]]
"""What must agree for a merge and does not, as ``{name: (ours, theirs)}``."""

MAX_WEIGHT = 1 << 31
BY_WEIGHT: Objectives = ("weight",)
BY_WEIGHT_AND_COUNT: Objectives = ("weight", "count")
_OBJECTIVES = {",".join(each): each for each in (BY_WEIGHT, BY_WEIGHT_AND_COUNT)}
DEFAULT_STRATA = 20_000
MAX_STRATA = 1 << 20
_TIME_UNIT = re.compile(r"[a-z]{1,8}")

_NONE: Any = ()  # a default, where type checkers read a wider type


class BuildParams(ABC):
    """The common part of frozen parameters in every sketch family. Dataclasses derive from it."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    capacity: int
    seed: int
    time_unit: str
    id_key: bytes | None = None  # the stream's secret, where ids are keyed by one
    objectives: Objectives = BY_WEIGHT
    strata: tuple[str, ...] = ()  # columns that each have samples of their own

    @property
    @abstractmethod
    def value_type(self) -> ValueType | Literal["record"]:
        """The type that values are stored as."""

    @property
    def value_dtype(self) -> Literal["int64", "float64"]:
        """The type of a value column, as kernels take it: labels are codes."""
        return "float64" if self.value_type == "float64" else "int64"

    @property
    @abstractmethod
    def fingerprint(self) -> bytes:
        """Digest that is equal exactly if two sketches may be merged. It does not include the
        capacity.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""

    @cached_property
    def listing(self) -> Mapping[str, Any]:
        """The content of :meth:`to_dict`, made once."""
        return MappingProxyType(self.to_dict())

    def differences(self, other: BuildParams) -> Differences:
        """Return every field that must be equal for a merge and is not, as ``{name: (ours,
        theirs)}``.
        """
        return differing(self.to_dict(), other.to_dict())

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone. Everything derived from them is derived again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def with_capacity(self, capacity: int) -> Self:
        """Return the same parameters with another capacity."""
        return replace(self, capacity=capacity)


def differing(ours: Form, theirs: Form) -> Differences:
    """Return every parameter that must be equal for a merge and is not: all but the capacity."""
    return {
        name: (ours.get(name), theirs.get(name))
        for name in sorted(ours.keys() | theirs.keys())
        if name != "capacity" and ours.get(name) != theirs.get(name)
    }


@dataclass(frozen=True)
class SketchParams(BuildParams):
    """Build parameters of a sketch.

    Args:
        max_weight: largest observation weight, at most 2^31. Weights are integers 1..max_weight.
            Default: 1.
        id_bits: ids are integers in ``[0, 2^id_bits)``. Default: the most that ``max_weight``
            leaves, 56 for weights of 1. Allow two spare bits: if ids fill more than a quarter of
            their space, estimates have a caveat (``crowded-ids``).
        capacity: observations kept for each level, at most 2^20. The standard error of a decayed
            sum is about ``1 / sqrt(capacity)``. Default: the result of :meth:`for_accuracy` for
            2 %, 19,208.
        copies: independent hash functions, at most 64. Each has its own rows, so size and time
            grow with it. The median of their results fails far more rarely than one of them.
        seed: ``0 <= seed < 2^64``. It fixes the hash function and, without ``id_key``, the id
            mixing.
        time_unit: unit label for every timestamp and age, 1 to 8 lower-case letters.
        value_type: "float64" (default), "int64", or "label" (texts): the type that values are
            stored as.
        id_mix: "keyed" (default), or "none" to hash ids as they are, which reproduces the paper
            and is for studies only.
        id_key: 16 to 64 secret bytes that key the id mixing instead of the seed. Then nobody can
            choose ids that bias the sketch. Bytes on the wire carry only a check value of the key.
        columns: names and types of the columns of an observation, which replace its single value:
            types by name, such as ``{"temp": "float64", "site": "text"}``, or one text, ``"temp
            float64, site text"``. Types are "float64", "int64", "bool" and "text". Every value may
            be null. At most 32 columns. ``value_type`` is "record" then.
        objectives: ``("weight",)`` (default) samples by weight. ``("weight", "count")``, or the
            text "weight,count", keeps a second, coordinated sample by count, with ``capacity`` rows
            per level. Counts and totals of values then stay accurate although weights differ by
            orders of magnitude. With half the capacity, such a sketch takes about the space of a
            sample by weight alone. It has one hash function (``copies=1``).
        revision: an int64 column that orders duplicates with one time before all other columns, and
            with which observations can be corrected and withdrawn
            (:mod:`decaysketch.core.withdrawals`).
        strata: one or two text columns. The sketch then keeps a sample of its own, of ``capacity``
            observations per level, for each of their values (a *stratum*), so that results for
            each are as accurate. A name, or several.
        max_strata: strata that a sketch accepts, 20,000 by default. An update with rows of more is
            rejected, and no stratum is dropped for another.
        expected: replaces ``id_bits``: the number of distinct observations that you expect in the
            stream's life. Ids then have the fewest bits for which hashed ids that collide cost less
            than a tenth of the standard error. This makes sketches smaller by up to half. Every
            sketch in the stream needs the same ``id_bits``, so give all the same number.
        accuracy: replaces ``capacity``: error of a sum in 19 of 20 results, as 0.02 or "2%".

    Raises:
        ParameterError: a field is outside its domain. The message names it and the value.

    Example:
        >>> SketchParams(accuracy="5%").capacity
        3074
        >>> SketchParams(expected=1_000_000).id_bits
        29
    """

    max_weight: int = 1
    id_bits: int = None  # type: ignore[assignment]  # then the most that there is room for
    capacity: int = sizing.DEFAULT_CAPACITY  # tau
    copies: int = 1
    seed: int = 0
    time_unit: str = "s"
    value_type: ValueType | Literal["record"] = "float64"
    id_mix: IdMix = "keyed"
    id_key: bytes | None = field(default=None, repr=False)
    columns: ColumnsField = field(default=_NONE, repr=False)
    objectives: Objectives = field(default=BY_WEIGHT, repr=False)
    revision: str | None = field(default=None, repr=False)
    strata: StrataField = field(default=_NONE, repr=False)
    max_strata: int = field(default=DEFAULT_STRATA, repr=False)
    accuracy: InitVar[float | str | None] = None
    expected: InitVar[int | None] = None

    def __post_init__(self, accuracy: float | str | None, expected: int | None) -> None:
        if accuracy is not None:
            if self.capacity != sizing.DEFAULT_CAPACITY:
                raise ParameterError(
                    f"accuracy is {accuracy!r} and capacity is {self.capacity}; expected one of "
                    "them"
                )
            object.__setattr__(self, "capacity", sizing.capacity_for(accuracy))
        check_integer("max_weight", self.max_weight, 1, MAX_WEIGHT)
        check_integer("capacity", self.capacity, 1, MAX_CAPACITY)
        if expected is not None:
            if self.id_bits is not None:
                raise ParameterError(
                    f"expected is {expected!r} and id_bits is {self.id_bits!r}; expected one of "
                    "them"
                )
            bits = sizing.least_id_bits(expected, self.capacity, self.max_weight)
            object.__setattr__(self, "id_bits", bits)
        if self.id_bits is None:
            object.__setattr__(self, "id_bits", sizing.most_id_bits(self.max_weight))
        check_integer("id_bits", self.id_bits, 0, MAX_ID_BITS)
        check_integer("copies", self.copies, 1, MAX_COPIES)
        check_integer("seed", self.seed, 0, (1 << 64) - 1)
        check_time_unit(self.time_unit)
        self._check_columns()
        self._check_objectives()
        object.__setattr__(self, "columns", revision_first(self.revision, self.columns))
        object.__setattr__(self, "strata", read_strata(self.strata, self.columns))
        check_integer("max_strata", self.max_strata, 1, MAX_STRATA)
        if self.strata and self.copies != 1:
            raise ParameterError(
                f"copies is {self.copies} and strata is {', '.join(self.strata)}; expected 1 copy"
            )
        if self.strata and self.objectives != BY_WEIGHT:
            raise ParameterError(
                f"objectives is {','.join(self.objectives)} and strata is "
                f"{', '.join(self.strata)}; expected one of them"
            )
        if not self.strata and self.max_strata != DEFAULT_STRATA:
            raise ParameterError(
                f"max_strata is {self.max_strata} and there are no strata; omit it"
            )
        _check_choice("id_mix", self.id_mix, get_args(IdMix))
        if self.id_key is not None:
            if not isinstance(self.id_key, bytes) or not 16 <= len(self.id_key) <= 64:
                raise ParameterError("id_key must be 16 to 64 secret bytes")
            if self.id_mix == "none":
                raise ParameterError("id_key cannot be combined with id_mix='none'")
        _ = self.prime  # refuses a universe that is too large

    def _check_columns(self) -> None:
        columns = read_column_types(self.columns)
        object.__setattr__(self, "columns", columns)
        if not columns:
            _check_choice("value_type", self.value_type, get_args(ValueType))
            return
        if type(self) is not SketchParams:
            raise ParameterError(
                f"columns is {self.columns!r:.80}; only the family 'decay' has columns"
            )
        if self.value_type not in ("float64", RECORD):  # the default, or as stated
            raise ParameterError(
                f"value_type is {self.value_type!r} and there are columns; omit value_type, "
                "because each column has a type"
            )
        object.__setattr__(self, "value_type", RECORD)

    def _check_objectives(self) -> None:
        objectives = read_objectives(self.objectives)
        object.__setattr__(self, "objectives", objectives)
        if objectives == BY_WEIGHT:
            return
        if type(self) is not SketchParams:
            raise ParameterError(
                f"objectives is {objectives}; only the family 'decay' samples by two objectives"
            )
        for name, wanted, why in (
            ("max_weight", "2 or more", "if all weights are 1, both objectives are the same"),
            ("copies", "1", "two objectives share one hash function"),
        ):
            value = getattr(self, name)
            if (value == 1) == (name == "max_weight"):
                raise ParameterError(
                    f"{name} is {value} and objectives is {objectives}; expected {name} {wanted}: "
                    f"{why}"
                )

    @classmethod
    def for_accuracy(
        cls,
        epsilon: float,
        delta: float = sizing.DELTA,
        *,
        max_weight: int = 1,
        expected: int = 1,
        mode: sizing.Mode = "practical",
        aggregate: sizing.Aggregate = "sum",
        seed: int = 0,
        time_unit: str = "s",
        value_type: ValueType = "float64",
        id_key: bytes | None = None,
    ) -> Self:
        """Return parameters for the smallest sketch that answers with a wanted accuracy.

        With probability ``1 - delta`` over the choice of the hash, one result is off by less than
        ``epsilon``:

        * "practical" (default): one repetition. It rests on measurement: errors are about normal,
          with a variance no larger than the worst that was measured (``python -m quality.sizing``).
        * "proven": several repetitions, each with the paper's capacity. Query it with
          ``combine="median"``. It takes about a hundred times the space and time.
          ``docs/estimators.md`` states which results the proof covers.

        Args:
            epsilon: accuracy, between 0 and 1. For "sum", relative to the decayed sum. For "share",
                of the share itself.
            delta: probability of a larger error, between 0 and 1, for one result, not for all.
                Default: 5 %.
            max_weight: largest weight of an observation.
            expected: number of distinct observations that the sketch will see. The capacity does
                not depend on it. It serves to account for hashed keys, which collide more often the
                more there are. Without it, collisions are not considered.
            mode: "practical" or "proven".
            aggregate: "sum", the decayed sum of weights, or "share", that is selectivity, rank,
                frequencies of values, and quantiles (by rank). A result weighted by something other
                than the weight, such as a count of very unequal weights or a sum of values, may
                need more: its interval shows that.
            seed, time_unit, value_type, id_key: see the class.

        Raises:
            ParameterError: an argument outside its domain, or no sketch within the limits of
                capacity, copies or id bits is large enough: the message names values that would
                    fit.
        """
        size = sizing.size_for(
            epsilon, delta, max_weight=max_weight, expected=expected, mode=mode, aggregate=aggregate
        )
        return cls(
            max_weight=max_weight,
            id_bits=size.id_bits,
            capacity=size.capacity,
            copies=size.copies,
            seed=seed,
            time_unit=time_unit,
            value_type=value_type,
            id_key=id_key,
        )

    @property
    def own_columns(self) -> ColumnTypes:
        """Columns that a row stores: all but its stratum."""
        return tuple(pair for pair in self.columns if pair[0] not in self.strata)

    # ------------------------------------------------------------------------ derived: the hash

    @property
    def samples(self) -> int:
        """Number of samples that a sketch keeps: one per hash function, or one per objective."""
        return max(self.copies, len(self.objectives))

    @property
    def universe(self) -> int:
        """Number of hashed integers: ``Y = max_weight * 2^id_bits``."""
        return self.max_weight << self.id_bits  # Y

    @property
    def prime(self) -> int:
        """Modulus of the hash, ``10 Y < p < 20 Y``."""
        return hashing.choose_prime(self.universe, self.seed)

    @cached_property
    def multipliers(self) -> tuple[int, ...]:
        """Multiplier ``a`` in each repetition's hash, ``1 <= a < p``."""
        return tuple(
            1 + hashing.uniform_below(self.prime - 1, self.seed, hashing.PURPOSE_MULTIPLIER, copy)
            for copy in range(self.copies)
        )

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Offset ``b`` in each repetition's hash, ``0 <= b < p``."""
        return tuple(
            hashing.uniform_below(self.prime, self.seed, hashing.PURPOSE_OFFSET, copy)
            for copy in range(self.copies)
        )

    @property
    def levels(self) -> int:
        """Index of the coarsest level, ``M = ceil(log2 Y)``. Levels are 0..M."""
        return (self.universe - 1).bit_length()  # M

    @cached_property
    def level_probabilities(self) -> npt.NDArray[np.float64]:
        """``p_i = floor(p / 2^i) / p`` for the levels 0..M. Read-only."""
        probabilities = np.array([(self.prime >> i) / self.prime for i in range(self.levels + 1)])
        probabilities.setflags(write=False)
        return probabilities

    @cached_property
    def mix_constants(self) -> npt.NDArray[np.int64]:
        """Round constants for the id mixing (empty if ``id_mix`` is "none"). Read-only."""
        constants = np.empty(0, dtype=np.int64)
        if self.id_mix == "keyed":
            constants = hashing.mix_constants(self.id_bits, self.key_word)
        constants.setflags(write=False)
        return constants

    def key_word(self, index: int) -> int:
        """Return the id key's ``index``-th 64-bit word."""
        return hashing.key_words(self.seed, self.id_key)(index)

    # ---------------------------------------------------------------------- identity and exchange

    @cached_property
    def key_check(self) -> bytes:
        """8-byte check value for the secret id key. Zeros if the key derives from the seed."""
        if self.id_key is None:
            return bytes(8)
        return hashlib.blake2b(self.id_key, digest_size=8, person=b"ds-key-check").digest()

    @cached_property
    def fingerprint(self) -> bytes:
        """8 bytes that are equal exactly if two sketches may be merged. They do not include the
        capacity.
        """
        packed = struct.pack(
            "<QBBQ8s", self.max_weight, self.id_bits, self.copies, self.seed, self.key_check
        )
        text = "\0".join((self.time_unit, self.value_type, self.id_mix))
        packed += text.encode("ascii")
        for column in self.columns:
            packed += b"".join(b"\0" + each.encode() for each in column)
        if self.objectives != BY_WEIGHT:
            packed += b"\0\0" + ",".join(self.objectives).encode()  # no column has an empty name
        if self.revision is not None:
            packed += b"\2" + self.revision.encode()
        if self.strata:
            packed += struct.pack("<I", self.max_strata)
            packed += b"".join(b"\1" + each.encode() for each in self.strata)
        return hashlib.blake2b(packed, digest_size=8, person=b"ds-params-1").digest()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form. A secret key is represented by its check value, never by itself."""
        form = self.__getstate__()
        del form["id_key"]
        if columns := form.pop("columns"):
            form["columns"] = dict(columns)
        if (objectives := form.pop("objectives")) != BY_WEIGHT:
            form["objectives"] = ",".join(objectives)
        if form["revision"] is None:
            del form["revision"]
        strata, max_strata = form.pop("strata"), form.pop("max_strata")
        if strata:
            form |= {"strata": list(strata), "max_strata": max_strata}
        form["keyed_by"] = "seed" if self.id_key is None else "secret"
        if self.id_key is not None:
            form["key_check"] = self.key_check.hex()
        return form

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], *, id_key: bytes | None = None) -> Self:
        """Inverse of :meth:`to_dict`.

        Args:
            fields: the result of :meth:`to_dict`, or with ``accuracy``, such as 0.02 or "2%", which
                replaces the capacity that is derived from it
                (:func:`decaysketch.core.sizing.capacity_for`), and with ``expected``, which
                replaces ``id_bits``.
            id_key: the secret, if ``keyed_by`` is "secret".

        Raises:
            ParameterError: unknown fields, a field outside its domain, a secret that is missing,
                not wanted, or does not match the check value.
        """
        remaining = dict(fields)
        keyed_by = remaining.pop("keyed_by", "seed")
        check = remaining.pop("key_check", None)
        if (accuracy := remaining.pop("accuracy", None)) is not None:
            if "capacity" in remaining:
                raise ParameterError(
                    f"accuracy is {accuracy!r} and capacity is {remaining['capacity']!r}; expected "
                    "one of them"
                )
            remaining["capacity"] = sizing.capacity_for(accuracy)
        known = set(cls.__dataclass_fields__) - {"id_key"}
        if unknown := sorted(set(remaining) - known):
            raise ParameterError(f"unknown parameter {unknown[0]!r}; known are {sorted(known)}")
        _check_choice("keyed_by", keyed_by, ("seed", "secret"))
        if (keyed_by == "secret") != (id_key is not None):
            raise ParameterError(
                f"keyed_by is {keyed_by!r} but id_key is {'given' if id_key else 'not given'}"
            )
        params = cls(**remaining, id_key=id_key)
        if check is not None and check != params.key_check.hex():
            raise ParameterError(
                f"id_key has check value {params.key_check.hex()!r}; expected {check!r}"
            )
        return params


def read_objectives(given: object) -> Objectives:
    """Return the objectives from a tuple, a list, or a text with commas.

    Raises:
        ParameterError: neither the default nor weight and count.
    """
    parts = given.split(",") if isinstance(given, str) else given
    if isinstance(parts, tuple | list) and all(isinstance(part, str) for part in parts):
        found = _OBJECTIVES.get(",".join(part.strip() for part in parts))
        if found is not None:
            return found
    raise ParameterError(
        f"objectives is {given!r:.80}; expected {' or '.join(map(repr, _OBJECTIVES.values()))}"
    )


def check_integer(name: str, value: object, low: int, high: int) -> None:
    """Reject a value that is no integer, or not from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ParameterError(f"{name} is {value!r}; expected an integer from {low} to {high}")


def check_time_unit(unit: object) -> None:
    """Reject a value that is no time unit label."""
    if not isinstance(unit, str) or not _TIME_UNIT.fullmatch(unit):
        raise ParameterError(
            f"time_unit is {unit!r}; expected 1 to 8 lower-case letters, such as 's'"
        )


def check_shrinks(capacity: object, present: int) -> None:
    """Reject an invalid capacity, or one above the present one: discarded rows are gone."""
    if isinstance(capacity, bool) or not isinstance(capacity, int) or not 1 <= capacity <= present:
        raise ParameterError(
            f"capacity is {capacity!r}; a sketch of capacity {present} can only shrink: "
            f"expected an integer from 1 to {present}"
        )


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ParameterError(f"{name} is {value!r}; expected one of {', '.join(choices)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One parameter, as it may be given by name.

    Attributes:
        name: as in the parameters' ``to_dict()``.
        type: int, or str.
        default: value if omitted. ``...`` if it is required.
        choices: choices for a text. None: any.
        optional: whether it may be null.
        doc: a sentence.
        example: a value for documents.
    """

    name: str
    type: type[int] | type[str]
    doc: str
    default: Any = ...
    choices: tuple[str, ...] = ()
    optional: bool = False
    example: Any = None


#: The parameters of :class:`SketchParams`, but for the secret.
OPTIONS = (
    Option(
        name="max_weight",
        type=int,
        default=1,
        doc="Largest weight of an observation.",
        example=999,
    ),
    Option(
        name="id_bits",
        type=int,
        default=None,
        optional=True,
        doc="Ids are integers below 2^id_bits. Default: as many bits as max_weight leaves.",
    ),
    Option(
        name="capacity",
        type=int,
        default=sizing.DEFAULT_CAPACITY,
        doc="Observations stored for each level.",
    ),
    Option(name="copies", type=int, default=1, doc="Independent hash functions."),
    Option(name="seed", type=int, default=0, doc="Seed of the hash function, up to 64 bits."),
    Option(name="time_unit", type=str, default="s", doc="Unit of times and ages."),
    Option(
        name="value_type",
        type=str,
        default="float64",
        choices=get_args(ValueType),
        doc="Type of the values. `label`: texts.",
    ),
    Option(
        name="id_mix",
        type=str,
        default="keyed",
        choices=get_args(IdMix),
        doc="Whether ids are mixed before they are hashed.",
    ),
)

#: The choice of the samples that a :class:`~decaysketch.DecaySketch` keeps.
OBJECTIVES = Option(
    name="objectives",
    type=str,
    default="weight",
    choices=tuple(_OBJECTIVES),
    doc="Objectives of the sample. `weight,count` gives accurate counts under unequal weights.",
)
